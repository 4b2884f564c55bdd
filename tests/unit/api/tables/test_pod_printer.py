"""READY, STATUS and RESTARTS of `kubectl get pods`, case by case (05 B7)."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.api.tables.pod_printer import pod_cells, pod_conditions
from plimsoll.rules.timestamps import age, human_duration, rfc3339

NOW_S = 1_000_000_000.0
RUNNING = {"running": {"startedAt": "2001-09-09T01:00:00Z"}}


def waiting(reason: str = "") -> dict[str, Any]:
    return {"waiting": {"reason": reason} if reason else {}}


def ended(code: int, reason: str = "", signal: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = {"exitCode": code}
    if reason:
        found["reason"] = reason
    if signal:
        found["signal"] = signal
    return {"terminated": found}


def status(state: Any, name: str = "c", ready: bool = False, **more: Any) -> dict[str, Any]:
    return {"name": name, "state": state, "ready": ready, **more}


def shown(
    phase: str = "Running", containers: int = 1, init: Any = (), spec: Any = None, metadata: Any = None, **parts: Any
) -> list[Any]:
    pod = {
        "metadata": metadata or {},
        "spec": {
            "containers": [{"name": f"c{i}"} for i in range(containers)],
            "initContainers": list(init),
            **(spec or {}),
        },
        "status": {"phase": phase, **parts},
    }
    return pod_cells(pod, NOW_S)


GATED = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
INITIALIZED = {"type": "Initialized", "status": "True"}
READY = {"type": "Ready", "status": "True"}
INIT, SIDECAR = {"name": "i"}, {"name": "s", "restartPolicy": "Always"}

CASES: list[Any] = [
    pytest.param(shown("Pending"), "0/1", "Pending", "0", id="nothing reported yet"),
    pytest.param(shown("Failed", reason="Evicted"), "0/1", "Evicted", "0", id="the status' reason before the phase"),
    pytest.param(shown("Pending", conditions=[GATED]), "0/1", "SchedulingGated", "0", id="gated"),
    pytest.param(shown(containerStatuses=[status(RUNNING, ready=True)]), "1/1", "Running", "0", id="running and ready"),
    pytest.param(shown(containerStatuses=[status(RUNNING)]), "0/1", "Running", "0", id="running, not ready"),
    pytest.param(shown("Pending", containerStatuses=[status(waiting("ContainerCreating"))]), "0/1", "ContainerCreating", "0", id="waiting"),
    pytest.param(shown("Pending", containerStatuses=[status(waiting())]), "0/1", "Pending", "0", id="waiting without a reason"),
    pytest.param(shown("Failed", containerStatuses=[status(ended(1, "Error"))]), "0/1", "Error", "0", id="ended with a reason"),
    pytest.param(shown("Failed", containerStatuses=[status(ended(137, signal=9))]), "0/1", "Signal:9", "0", id="ended by a signal"),
    pytest.param(shown("Failed", containerStatuses=[status(ended(3))]), "0/1", "ExitCode:3", "0", id="ended with a code"),
    pytest.param(shown("Failed", reason="Evicted", containerStatuses=[status(ended(137, "Error"))]), "0/1", "Error", "0", id="containers override the status' reason"),
    pytest.param(
        shown(containers=2, containerStatuses=[status(waiting("CrashLoopBackOff"), "c0"), status(ended(1, "Error"), "c1")]),
        "0/2", "CrashLoopBackOff", "0", id="the first container decides",
    ),
    pytest.param(
        shown(containers=2, conditions=[READY], containerStatuses=[status(ended(0, "Completed"), "c0"), status(RUNNING, "c1", True)]),
        "1/2", "Running", "0", id="completed beside a ready one in a ready pod",
    ),
    pytest.param(
        shown(containers=2, containerStatuses=[status(ended(0, "Completed"), "c0"), status(RUNNING, "c1", True)]),
        "1/2", "NotReady", "0", id="completed beside a ready one in a pod that is not",
    ),
    pytest.param(
        shown(containers=2, containerStatuses=[status(ended(0, "Completed"), "c0"), status(ended(1, "Error"), "c1")]),
        "0/2", "Error", "0", id="completed beside a failed one",
    ),
    pytest.param(shown("Succeeded", containerStatuses=[status(ended(0, "Completed"))]), "0/1", "Completed", "0", id="completed"),
    pytest.param(shown("Pending", init=[INIT], initContainerStatuses=[status(RUNNING, "i")]), "0/1", "Init:0/1", "0", id="init runs"),
    pytest.param(shown("Pending", init=[INIT, SIDECAR], initContainerStatuses=[status(ended(0), "i"), status(waiting(), "s")]), "0/2", "Init:1/2", "0", id="second init; sidecars count"),
    pytest.param(shown("Pending", init=[INIT], initContainerStatuses=[status(waiting("PodInitializing"), "i")]), "0/1", "Init:0/1", "0", id="PodInitializing is no reason"),
    pytest.param(shown("Pending", init=[INIT], initContainerStatuses=[status(waiting("ErrImagePull"), "i")]), "0/1", "Init:ErrImagePull", "0", id="init waits for a reason"),
    pytest.param(shown("Pending", init=[INIT], initContainerStatuses=[status(ended(1, "Error"), "i", restartCount=2)]), "0/1", "Init:Error", "2", id="init failed; its restarts count"),
    pytest.param(shown("Pending", init=[INIT], initContainerStatuses=[status(ended(2), "i")]), "0/1", "Init:ExitCode:2", "0", id="init failed with a code"),
    pytest.param(shown("Pending", init=[INIT], initContainerStatuses=[status(ended(2, signal=6), "i")]), "0/1", "Init:Signal:6", "0", id="init killed"),
    pytest.param(
        shown(init=[SIDECAR], initContainerStatuses=[status(RUNNING, "s", True, started=True, restartCount=1)], containerStatuses=[status(RUNNING, ready=True, restartCount=2)]),
        "2/2", "Running", "3", id="sidecar counts as ready, restarts of sidecars and containers",
    ),
    pytest.param(
        shown(init=[INIT], conditions=[INITIALIZED], initContainerStatuses=[status(ended(1, "Error"), "i", restartCount=5)], containerStatuses=[status(RUNNING, ready=True, restartCount=1)]),
        "1/1", "Init:Error", "1", id="initialized nevertheless: its containers decide",
    ),
    pytest.param(shown(metadata={"deletionTimestamp": "x"}, containerStatuses=[status(RUNNING, ready=True)]), "1/1", "Terminating", "0", id="deleted"),
    pytest.param(shown("Succeeded", metadata={"deletionTimestamp": "x"}, containerStatuses=[status(ended(0, "Completed"))]), "0/1", "Completed", "0", id="deleted after it ended"),
    pytest.param(shown(metadata={"deletionTimestamp": "x"}, reason="NodeLost"), "0/1", "Unknown", "0", id="deleted on a lost node"),
    pytest.param(
        shown(containerStatuses=[status(RUNNING, ready=True, restartCount=1, lastState={"terminated": {"finishedAt": rfc3339(NOW_S - 11)}})]),
        "1/1", "Running", "1 (11s ago)", id="restarted 11 s ago",
    ),
    pytest.param(
        shown(containerStatuses=[status(RUNNING, ready=True, restartCount=0, lastState={"terminated": {"finishedAt": rfc3339(NOW_S - 11)}})]),
        "1/1", "Running", "0", id="a last state without a restart",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("cells", "ready", "message", "restarts"), CASES)
def test_ready_status_restarts(cells: list[Any], ready: str, message: str, restarts: str) -> None:
    assert cells[:3] == [ready, message, restarts]


@pytest.mark.parametrize(
    ("cells", "wide"),
    [
        pytest.param(shown(), ["<none>"] * 4, id="nothing known"),
        pytest.param(
            shown(
                podIPs=[{"ip": "10.0.0.1"}, {"ip": "::1"}],
                nominatedNodeName="n2",
                spec={"nodeName": "n1", "readinessGates": [{"conditionType": "a"}, {"conditionType": "b"}]},
                conditions=[{"type": "a", "status": "True"}],
            ),
            ["10.0.0.1", "n1", "n2", "1/2"],
            id="everything known",
        ),
    ],
)
def test_wide_cells(cells: list[Any], wide: list[str]) -> None:
    assert cells[3:] == wide


@pytest.mark.parametrize(
    ("phase", "message"),
    [("Running", []), ("Succeeded", ["The pod has completed successfully."]), ("Failed", ["The pod failed."])],
)
def test_rows_of_ended_pods_have_a_condition(phase: str, message: list[str]) -> None:
    found = pod_conditions({"status": {"phase": phase}})
    assert [each["message"] for each in found] == message
    assert all(each["type"] == "Completed" and each["reason"] == phase for each in found)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-3, "<invalid>"), (-1, "0s"), (0, "0s"), (119, "119s"), (120, "2m"), (125, "2m5s"), (599, "9m59s"),
        (600, "10m"), (179 * 60 + 59, "179m"), (180 * 60, "3h"), (181 * 60, "3h1m"), (8 * 3600 - 60, "7h59m"), (8 * 3600, "8h"),
        (47 * 3600, "47h"), (48 * 3600, "2d"), (49 * 3600, "2d1h"), (8 * 86400 - 3600, "7d23h"), (8 * 86400, "8d"),
        (729 * 86400, "729d"), (730 * 86400, "2y"), (731 * 86400, "2y1d"), (8 * 365 * 86400, "8y"), (9000 * 86400, "24y"),
    ],
)  # fmt: skip
def test_ages(seconds: int, text: str) -> None:
    assert human_duration(seconds) == text


@pytest.mark.parametrize("text", [None, "", "soon"])
def test_no_time_is_unknown(text: object) -> None:
    assert age(text, NOW_S) == "<unknown>"
