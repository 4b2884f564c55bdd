"""Termination of pods and containers: the decision, the grace period, the order (04 §7, §12)."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.rules.lifecycle.termination import (
    TerminationVerdict,
    deadline_verdict,
    has_ended,
    is_ending,
    kill_grace_s,
    new_ends,
    pod_grace_s,
    stop_grace_s,
    stops,
)
from plimsoll.rules.model.observed import KillReason
from plimsoll.rules.model.pod_status import RunContainerStatus, Running, RunState, RunStatus, Terminated
from plimsoll.rules.model.runnable import ExecAction, Hook, RunPod
from tests.unit.rules.run_pods import START_S, a_pod, run, seen, sidecar

HARD, SOFT = TerminationVerdict("Evicted", "m", 1), TerminationVerdict("Evicted", "m", 20)
NO_GRACE = TerminationVerdict("DeadlineExceeded", "m")
DELETED = {"deletionTimestamp": "x"}


def deleted(grace_s: int) -> dict[str, Any]:
    return {"metadata": {**DELETED, "deletionGracePeriodSeconds": grace_s}}


GRACES = [
    pytest.param({}, None, 0, 30, id="the pod's own"),
    pytest.param(deleted(5), None, 0, 5, id="deleted with less"),
    pytest.param(deleted(0), None, 0, 1, id="forced"),
    pytest.param({"terminationGracePeriodSeconds": 0}, None, 0, 1, id="never less than one second"),
    pytest.param({}, HARD, 0, 1, id="hard eviction"),
    pytest.param({}, SOFT, 0, 20, id="soft eviction"),
    pytest.param({}, NO_GRACE, 0, 30, id="deadline"),
    pytest.param(deleted(5), SOFT, 0, 5, id="deleted during an eviction"),
    pytest.param(deleted(60), None, 10, 10, id="it only shrinks"),
    pytest.param(deleted(3), None, 10, 3, id="it may shrink"),
]


@pytest.mark.parametrize(("fields", "verdict", "before_s", "wanted"), GRACES)
def test_pod_grace(fields: Any, verdict: TerminationVerdict | None, before_s: int, wanted: int) -> None:
    assert pod_grace_s(a_pod("a", **fields), verdict, before_s) == wanted


PROBED = {
    "name": "a",
    "livenessProbe": {"terminationGracePeriodSeconds": 4},
    "startupProbe": {"terminationGracePeriodSeconds": 90},
}
KILLS: list[Any] = [
    ({}, "liveness", 4), ({}, "startup", 90), ({}, "resize", 30), ({}, "", 30), (deleted(8), "liveness", 8),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "reason", "wanted"), KILLS)
def test_kill_grace(fields: Any, reason: KillReason, wanted: int) -> None:
    assert kill_grace_s(a_pod(PROBED, **fields), "a", reason) == wanted
    assert kill_grace_s(a_pod("a", "b", **fields), "b", reason) == (8 if fields else 30)


@pytest.mark.parametrize(("grace_s", "spent_s", "left_s"), [(30, 0, 30), (30, 12.9, 18), (30, 40, 2), (1, 0, 2)])
def test_the_rest_of_the_grace_period(grace_s: float, spent_s: float, left_s: int) -> None:
    assert stop_grace_s(grace_s, spent_s) == left_s


def order(pod: RunPod, *names: str) -> dict[str, tuple[str, ...]]:
    return {each.name: each.after for each in stops(pod, seen(*(run(name) for name in names)))}


def test_order() -> None:
    pod = a_pod("a", "b", init=(sidecar("s"), "i", sidecar("t"), sidecar("u")))
    assert order(pod, "a", "b", "s", "t", "u") == {
        "a": (),
        "b": (),
        "u": ("a", "b"),
        "t": ("a", "b", "u"),
        "s": ("a", "b", "u", "t"),
    }
    assert order(pod, "s", "u") == {"u": (), "s": ("u",)}
    assert order(pod, "i", "s") == {"i": (), "s": ()}


def test_stops() -> None:
    hook = {"lifecycle": {"preStop": {"exec": {"command": ["bye"]}}}}
    pod = a_pod({"name": "a", **hook}, "b")
    what = seen(run("a", "exited"), run("a", attempt=1), run("b", "created"))
    assert [(each.id, each.grace_s, each.pre_stop) for each in stops(pod, what, 7)] == [
        ("a-1", 7, Hook(ExecAction(("bye",)))), ("b-0", 7, None),
    ]  # fmt: skip
    assert [each.pre_stop for each in stops(pod, what, 0)] == [None, None]
    assert {each.grace_s for each in stops(pod, what)} == {30}


def test_the_deadline() -> None:
    pod = a_pod("a", activeDeadlineSeconds=60)
    status = RunStatus(start_time="1970-01-12T13:46:40Z")
    assert deadline_verdict(pod, status, START_S + 59.9) is None
    assert deadline_verdict(pod, status, START_S + 60) == TerminationVerdict(
        "DeadlineExceeded", "Pod was active on the node longer than the specified deadline"
    )
    assert deadline_verdict(pod, RunStatus(), START_S + 600) is None
    assert deadline_verdict(a_pod("a"), status, START_S + 600) is None


ENDINGS = [
    pytest.param(a_pod("a"), None, None, False, False, id="runs"),
    pytest.param(a_pod("a", metadata=DELETED), None, None, True, False, id="deleted"),
    pytest.param(a_pod("a"), None, HARD, True, False, id="evicted"),
    pytest.param(a_pod("a"), RunStatus(phase="Succeeded"), None, True, True, id="finished here"),
    pytest.param(a_pod("a", status={"phase": "Failed"}), None, None, True, True, id="finished at the API"),
    pytest.param(a_pod("a"), RunStatus(phase="Running"), None, False, False, id="running"),
]


@pytest.mark.parametrize(("pod", "status", "verdict", "ending", "ended"), ENDINGS)
def test_terminating_pods(
    pod: RunPod, status: RunStatus | None, verdict: TerminationVerdict | None, ending: bool, ended: bool
) -> None:
    assert (is_ending(pod, status, verdict), has_ended(pod, status)) == (ending, ended)


RUNS, ENDED = RunState(running=Running()), RunState(terminated=Terminated(exit_code=3, reason="Error"))


@pytest.mark.parametrize(
    ("before", "now", "ends"),
    [
        pytest.param(RUNS, ENDED, 1, id="has ended"),
        pytest.param(None, ENDED, 1, id="was not there"),
        pytest.param(ENDED, ENDED, 0, id="had ended"),
        pytest.param(ENDED, RUNS, 0, id="runs again"),
    ],
)
@pytest.mark.parametrize("kind", ["init_container", "container", "ephemeral_container"])
def test_new_ends(kind: str, before: RunState | None, now: RunState, ends: int) -> None:
    def status(state: RunState | None) -> RunStatus:
        return RunStatus(**{f"{kind}_statuses": (RunContainerStatus(name="c", state=state),) if state else ()})

    assert list(new_ends(status(before), status(now))) == [(kind, ENDED.terminated)] * ends
