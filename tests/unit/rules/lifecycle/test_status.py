"""What is reported of a pod: phase, conditions, addresses (04 §7, §11, §12), and how kubectl prints it (05 B7)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api.tables.pod_printer import pod_cells
from plimsoll.codec.lean.runnable import run_pod, status_document
from plimsoll.rules.config.parse import default_config
from plimsoll.rules.lifecycle.status import NodeView, pod_status, rejected_status, shows_allocated
from plimsoll.rules.lifecycle.termination import TerminationVerdict
from plimsoll.rules.model.observed import (
    NO_MEMORY,
    ContainerPhase,
    ObservedPod,
    ObservedSandbox,
    ProbeResults,
    StartFailure,
    SyncState,
)
from plimsoll.rules.model.pod_status import RunCondition, RunStatus
from plimsoll.rules.model.runnable import RunPod
from plimsoll.rules.profile import profile_named
from tests.unit.rules.run_pods import START_S, Json, a_pod, memory, run, seen, sidecar

NOW_S = START_S + 100
NODE = NodeView(("192.0.2.1",), "plimsoll", profile_named("1.36"))
OLD_NODE = NodeView(("192.0.2.1",), "plimsoll", profile_named("documents"))
CRASH = memory(failures={"a": StartFailure("CrashLoopBackOff", "back-off 10s …")})
EVICTED = TerminationVerdict("Evicted", "The node was low on resource: memory. ", 1, is_disruption=True)
PROBE = {"exec": {"command": ["true"]}}
GATED: Json = {"name": "a", "readinessProbe": PROBE}


def status(
    pod: RunPod, what: ObservedPod, about: SyncState = NO_MEMORY, node: NodeView = NODE, **more: Any
) -> RunStatus:
    return pod_status(pod, what, about, NOW_S, node, **more)


def cells(pod: RunPod, shown: RunStatus) -> list[Any]:
    """READY, STATUS, RESTARTS of `kubectl get pods`."""
    metadata = msgspec.to_builtins(pod.metadata)
    spec = {
        "containers": [{"name": each.name} for each in pod.spec.containers],
        "initContainers": [
            {"name": each.name, "restartPolicy": each.restart_policy} for each in pod.spec.init_containers
        ],
    }
    return pod_cells({"metadata": metadata, "spec": spec, "status": status_document(shown)}, NOW_S)[:3]


# pod, seen, memory → phase, READY, STATUS, RESTARTS
PHASES = [
    pytest.param(a_pod("a"), ObservedPod(), NO_MEMORY, "Pending", "0/1", "ContainerCreating", "0", id="nothing yet"),
    pytest.param(a_pod("a", init=("i",)), ObservedPod(), NO_MEMORY, "Pending", "0/1", "Init:0/1", "0", id="nothing yet, init"),
    pytest.param(a_pod("a"), seen(run("a", "created")), NO_MEMORY, "Pending", "0/1", "Pending", "0", id="made"),
    pytest.param(a_pod("a", "b"), seen(run("a"), run("b")), NO_MEMORY, "Running", "2/2", "Running", "0", id="running"),
    pytest.param(a_pod("a", "b"), seen(run("a")), NO_MEMORY, "Pending", "1/2", "ContainerCreating", "0", id="one of two"),
    pytest.param(a_pod(GATED), seen(run("a")), NO_MEMORY, "Running", "0/1", "Running", "0", id="not ready"),
    pytest.param(
        a_pod(GATED), seen(run("a")), memory(probes={"a-0": ProbeResults(readiness=True)}), "Running", "1/1", "Running", "0",
        id="ready",
    ),
    pytest.param(
        a_pod({**GATED, "startupProbe": PROBE}), seen(run("a")), memory(probes={"a-0": ProbeResults(readiness=True)}),
        "Running", "0/1", "Running", "0", id="not started",
    ),
    pytest.param(
        a_pod("a"), seen(run("a", "exited", exit_code=1)), NO_MEMORY, "Running", "0/1", "Error", "0", id="Always: failed"
    ),
    pytest.param(
        a_pod("a"), seen(run("a", "exited", exit_code=1, attempt=3)), CRASH, "Running", "0/1", "CrashLoopBackOff",
        "3 (96s ago)", id="crash loop",
    ),
    pytest.param(
        a_pod("a"), seen(run("a", "exited", exit_code=137, reason="OOMKilled"), run("a", attempt=1)), NO_MEMORY, "Running",
        "1/1", "Running", "1 (99s ago)", id="restarted after OOM",
    ),
    pytest.param(
        a_pod("a"), seen(run("a", "exited", exit_code=137, reason="OOMKilled")), NO_MEMORY, "Running", "0/1", "OOMKilled",
        "0", id="OOM",
    ),
    pytest.param(
        a_pod("a"), seen(run("a", "exited", exit_code=137)), NO_MEMORY, "Running", "0/1", "Error", "0", id="137 without OOM"
    ),
    pytest.param(
        a_pod("a"), seen(), memory(failures={"a": StartFailure("ErrImagePull", "no")}), "Pending", "0/1", "ErrImagePull", "0",
        id="no image",
    ),
    pytest.param(
        a_pod("a", restart="OnFailure"), seen(run("a", "exited")), NO_MEMORY, "Succeeded", "0/1", "Completed", "0",
        id="OnFailure: succeeded",
    ),
    pytest.param(
        a_pod("a", restart="OnFailure"), seen(run("a", "exited", exit_code=2)), NO_MEMORY, "Running", "0/1", "Error", "0",
        id="OnFailure: failed",
    ),
    pytest.param(
        a_pod("a", "b", restart="Never"), seen(run("a", "exited", exit_code=2), run("b", "exited")), NO_MEMORY, "Failed",
        "0/2", "Error", "0", id="Never: failed",
    ),
    pytest.param(
        a_pod("a", "b", restart="Never"), seen(run("a", "exited", exit_code=2), run("b")), NO_MEMORY, "Running", "1/2",
        "Error", "0", id="Never: one failed, one runs",
    ),
    pytest.param(
        a_pod("a", init=("i", "j")), seen(run("i", "exited"), run("j")), NO_MEMORY, "Pending", "0/1", "Init:1/2", "0",
        id="second init container",
    ),
    pytest.param(
        a_pod("a", init=("i",)), seen(run("i", "exited", exit_code=1, attempt=2)),
        memory(failures={"i": StartFailure("CrashLoopBackOff", "")}), "Pending", "0/1", "Init:CrashLoopBackOff",
        "2 (97s ago)", id="init crash loop",
    ),
    pytest.param(
        a_pod("a", init=("i",), restart="Never"), seen(run("i", "exited", exit_code=1)), NO_MEMORY, "Failed", "0/1",
        "Init:Error", "0", id="Never: init failed",
    ),
    pytest.param(
        a_pod("a", init=(sidecar("s"),)), seen(run("s")), NO_MEMORY, "Pending", "1/2", "PodInitializing", "0",
        id="sidecar up, main not yet",
    ),
    pytest.param(
        a_pod("a", init=(sidecar("s"),)), seen(run("s"), run("a")), NO_MEMORY, "Running", "2/2", "Running", "0",
        id="sidecar and main",
    ),
    pytest.param(
        a_pod("a", init=(sidecar("s"),)), seen(run("s", "exited", exit_code=1), run("a")), NO_MEMORY, "Running", "1/2",
        "Init:Error", "0", id="sidecar fell",
    ),
    pytest.param(
        a_pod("a", init=(sidecar("s"),), restart="Never"), seen(run("s"), run("a", "exited")), NO_MEMORY, "Running", "1/2",
        "Completed", "0", id="a running sidecar delays the end",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("pod", "what", "about", "phase", "ready", "word", "restarts"), PHASES)
def test_phases(
    pod: RunPod, what: ObservedPod, about: SyncState, phase: str, ready: str, word: str, restarts: str
) -> None:
    shown = status(pod, what, about)
    assert shown.phase == phase
    assert cells(pod, shown) == [ready, word, restarts]


# Conditions

CONDITIONS = [
    pytest.param(
        a_pod("b", "a"), ObservedPod(), NO_MEMORY,
        [
            ("PodReadyToStartContainers", "False", "", ""), ("Initialized", "True", "", ""),
            ("Ready", "False", "ContainersNotReady", "containers with unready status: [b a]"),
            ("ContainersReady", "False", "ContainersNotReady", "containers with unready status: [b a]"),
            ("PodScheduled", "True", "", ""),
        ],
        id="nothing yet",
    ),
    pytest.param(
        a_pod("a", init=("i", "j")), seen(run("i", "exited")), NO_MEMORY,
        [
            ("PodReadyToStartContainers", "True", "", ""),
            ("Initialized", "False", "ContainersNotInitialized", "containers with incomplete status: [j]"),
            ("Ready", "False", "ContainersNotReady", "containers with unready status: [a]"),
            ("ContainersReady", "False", "ContainersNotReady", "containers with unready status: [a]"),
            ("PodScheduled", "True", "", ""),
        ],
        id="init containers",
    ),
    pytest.param(
        a_pod("a", init=(sidecar("s"),)), seen(run("a"), run("s", "exited")), NO_MEMORY,
        [
            ("PodReadyToStartContainers", "True", "", ""), ("Initialized", "True", "", ""),
            ("Ready", "False", "ContainersNotReady", "containers with unready status: [s]"),
            ("ContainersReady", "False", "ContainersNotReady", "containers with unready status: [s]"),
            ("PodScheduled", "True", "", ""),
        ],
        id="a sidecar restarts",
    ),
    pytest.param(
        a_pod("a", readinessGates=[{"conditionType": "x/y"}, {"conditionType": "z"}], status={
            "conditions": [{"type": "z", "status": "False"}]}), seen(run("a")), NO_MEMORY,
        [
            ("z", "False", "", ""),
            ("PodReadyToStartContainers", "True", "", ""), ("Initialized", "True", "", ""),
            ("Ready", "False", "ReadinessGatesNotReady",
             'corresponding condition of pod readiness gate "x/y" does not exist., '
             'the status of pod readiness gate "z" is not "True", but False'),
            ("ContainersReady", "True", "", ""), ("PodScheduled", "True", "", ""),
        ],
        id="readiness gates",
    ),
    pytest.param(
        a_pod("a", init=("i",), restart="Never"), seen(run("i", "exited"), run("a", "exited")), NO_MEMORY,
        [
            ("PodReadyToStartContainers", "True", "", ""), ("Initialized", "True", "PodCompleted", ""),
            ("Ready", "False", "PodCompleted", ""), ("ContainersReady", "False", "PodCompleted", ""),
            ("PodScheduled", "True", "", ""),
        ],
        id="succeeded",
    ),
    pytest.param(
        a_pod("a", restart="Never"), seen(run("a", "exited", exit_code=1)), NO_MEMORY,
        [
            ("PodReadyToStartContainers", "True", "", ""), ("Initialized", "True", "", ""),
            ("Ready", "False", "PodFailed", ""), ("ContainersReady", "False", "PodFailed", ""),
            ("PodScheduled", "True", "", ""),
        ],
        id="failed",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("pod", "what", "about", "wanted"), CONDITIONS)
def test_conditions(pod: RunPod, what: ObservedPod, about: SyncState, wanted: list[tuple[str, str, str, str]]) -> None:
    shown = status(pod, what, about)
    assert [(each.type, each.status, each.reason, each.message) for each in shown.conditions] == wanted
    if not pod.status.conditions:
        assert {each.observed_generation for each in shown.conditions} == {3}
    old = status(pod, what, about, OLD_NODE)
    assert [each.type for each in old.conditions] == [
        kind for kind, *_ in wanted if kind != "PodReadyToStartContainers"
    ]
    assert {each.observed_generation for each in old.conditions} == {0}


def test_the_time_of_a_condition_changes_with_its_status_only() -> None:
    pod = a_pod(GATED)
    first = pod_status(pod, seen(run("a")), NO_MEMORY, START_S, NODE)
    ready = {"a-0": ProbeResults(readiness=True)}
    second = pod_status(pod, seen(run("a")), memory(status=first, probes=ready), START_S + 60, NODE)
    times = {each.type: each.last_transition_time for each in second.conditions}
    assert times == {
        "PodReadyToStartContainers": "1970-01-12T13:46:40Z",
        "Initialized": "1970-01-12T13:46:40Z",
        "Ready": "1970-01-12T13:47:40Z",
        "ContainersReady": "1970-01-12T13:47:40Z",
        "PodScheduled": "1970-01-12T13:46:40Z",
    }
    assert second.start_time == "1970-01-12T13:46:40Z"


def test_conditions_of_others_are_kept_and_replaced() -> None:
    stored = [
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": "t0", "lastProbeTime": None},
        {"type": "mine/gate", "status": "True", "lastTransitionTime": "t1"},
        {"type": "PodResizePending", "status": "True", "reason": "Deferred", "lastTransitionTime": "t2"},
    ]
    resize = RunCondition("PodResizePending", "True", "Infeasible")
    shown = status(a_pod("a", status={"conditions": stored}), seen(run("a")), conditions=[resize])
    assert [each.type for each in shown.conditions][:2] == ["mine/gate", "PodResizePending"]
    assert [each.reason for each in shown.conditions][1] == "Infeasible"
    times = {each.type: each.last_transition_time for each in shown.conditions}
    assert (times["mine/gate"], times["PodResizePending"], times["PodScheduled"]) == ("t1", "t2", "t0")


# The end

GONE = ObservedSandbox("s-0", ready=False)


def test_an_evicted_pod() -> None:
    """Not Failed while a container runs, then Failed whatever the containers report (04 §7)."""
    pod = a_pod("a")
    running = status(pod, seen(run("a")))
    running_status = status(pod, seen(run("a")), memory(status=running), verdict=EVICTED)
    assert (running_status.phase, running_status.reason) == ("Running", "")
    assert running_status.conditions[0].type == "DisruptionTarget"
    assert (running_status.conditions[0].status, running_status.conditions[0].reason) == (
        "True",
        "TerminationByKubelet",
    )
    assert running_status.conditions[0].message == EVICTED.message
    assert not running_status.container_statuses[0].ready
    dead = seen(run("a", "exited", exit_code=143), sandbox=GONE)
    ended = status(pod, dead, memory(status=running_status), verdict=EVICTED, is_final=True)
    assert (ended.phase, ended.reason, ended.message) == ("Failed", "Evicted", EVICTED.message)
    assert [(each.type, each.reason) for each in ended.conditions if each.type == "Ready"] == [("Ready", "PodFailed")]
    # The agent was restarted: only the API remembers.
    again = status(run_pod({"spec": {"containers": [{"name": "a"}]}, "status": status_document(ended)}), dead)
    assert (again.phase, again.reason, again.message) == ("Failed", "Evicted", EVICTED.message)
    assert "DisruptionTarget" in {each.type for each in again.conditions}


FINALS = [
    pytest.param(a_pod("a"), seen(run("a", "exited")), "Succeeded", "Completed", id="exit 0"),
    pytest.param(a_pod("a"), seen(run("a", "exited", exit_code=143)), "Failed", "Error", id="TERM"),
    pytest.param(a_pod("a", "b"), seen(run("a", "exited"), run("b", "exited", exit_code=1)), "Failed", "Error", id="one failed"),
    pytest.param(a_pod("a"), ObservedPod(), "Failed", "ContainerStatusUnknown", id="never started"),
    pytest.param(a_pod("a"), seen(run("a", "created")), "Failed", "ContainerStatusUnknown", id="never ran"),
    pytest.param(a_pod("a", init=("i",)), seen(run("i", "exited", exit_code=143)), "Failed", "Init:Error", id="during init"),
    pytest.param(
        a_pod("a", init=(sidecar("s"),)), seen(run("a", "exited"), run("s", "exited", exit_code=143)), "Succeeded",
        "Completed", id="sidecars do not count",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("pod", "what", "phase", "word"), FINALS)
def test_final(pod: RunPod, what: ObservedPod, phase: str, word: str) -> None:
    """Deleted and stopped, under restartPolicy Always (04 §12)."""
    shown = status(pod, what, CRASH, is_final=True)
    assert (shown.phase, cells(pod, shown)[1]) == (phase, word)


def test_while_it_is_being_deleted() -> None:
    pod = a_pod("a", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    shown = status(pod, seen(run("a")))
    assert (shown.phase, cells(pod, shown)[:2]) == ("Running", ["0/1", "Terminating"])
    assert shown.container_statuses[0].started is True


def test_a_rejected_pod() -> None:
    stored = {"phase": "Pending", "qosClass": "BestEffort", "conditions": [{"type": "PodScheduled", "status": "True"}]}
    shown = rejected_status(a_pod("a", status=stored), "OutOfcpu", "Node didn't have enough resource: cpu", NOW_S)
    assert (shown.phase, shown.reason) == ("Failed", "OutOfcpu")
    assert shown.message == "Pod was rejected: Node didn't have enough resource: cpu"
    assert [each.type for each in shown.conditions] == ["PodScheduled", "Ready", "ContainersReady"]
    assert shown.start_time == "1970-01-12T13:48:20Z"
    assert cells(a_pod("a"), shown) == ["0/1", "OutOfcpu", "0"]


# Addresses and the rest

ADDRESSES = [
    pytest.param({}, ObservedSandbox("s-0", ip="10.1.1.1"), "10.1.1.1", id="own"),
    pytest.param({"hostNetwork": True}, ObservedSandbox("s-0"), "192.0.2.1", id="the host's"),
    pytest.param({}, ObservedSandbox("s-0"), "", id="loopback only"),
    pytest.param({"status": {"podIPs": [{"ip": "10.9.9.9"}]}}, GONE, "10.9.9.9", id="of a sandbox that is gone"),
]


@pytest.mark.parametrize(("fields", "sandbox", "ip"), ADDRESSES)
def test_addresses(fields: Any, sandbox: ObservedSandbox, ip: str) -> None:
    shown = status(a_pod("a", **fields), seen(run("a"), sandbox=sandbox))
    assert shown.pod_ip == ip
    assert [each.ip for each in shown.pod_ips] == ([ip] if ip else [])
    assert (shown.host_ip, [each.ip for each in shown.host_ips]) == ("192.0.2.1", ["192.0.2.1"])
    assert status(a_pod("a", **fields), seen(sandbox=sandbox), node=OLD_NODE).host_ips == ()


def test_without_in_place_resize_a_status_has_no_allocated_resources() -> None:
    """Gate InPlacePodVerticalScaling: the kubelet sets both fields only with it (03 §2)."""
    pod = a_pod({"name": "a", "resources": {"requests": {"cpu": "1"}}})
    for resources, allocated in ((True, True), (True, False), (False, False)):
        node = msgspec.structs.replace(OLD_NODE, shows_resources=resources, shows_allocated=allocated)
        (found,) = status(pod, seen(run("a")), node=node).container_statuses
        assert (found.resources is not None, found.allocated_resources is not None) == (resources, allocated)


@pytest.mark.parametrize(
    ("release", "gates", "shows"),
    [
        ("1.31", {}, False),
        ("1.31", {"InPlacePodVerticalScaling": True}, True),
        ("1.32", {"InPlacePodVerticalScaling": True}, False),
        ("1.32", {"InPlacePodVerticalScaling": True, "InPlacePodVerticalScalingAllocatedStatus": True}, True),
        ("1.32", {"InPlacePodVerticalScalingAllocatedStatus": True}, False),
        ("1.33", {}, True),
        ("1.37", {}, True),
    ],
)
def test_where_allocated_resources_are_shown(release: str, gates: dict[str, bool], shows: bool) -> None:
    """03 §2: 1.32 needs a second gate."""
    profile = profile_named(release)
    found = default_config(profile).feature_gates | gates
    assert shows_allocated(found.__getitem__, profile) is shows


def test_quality_of_service_and_generation() -> None:
    shown = status(a_pod({"name": "a", "resources": {"requests": {"cpu": "1"}}}), ObservedPod())
    assert (shown.qos_class, shown.observed_generation) == ("Burstable", 3)
    assert status(a_pod("a"), ObservedPod(), node=OLD_NODE).observed_generation == 0


# Properties

PHASE_NAMES: list[ContainerPhase] = ["created", "running", "exited", "unknown"]
phases = st.sampled_from(PHASE_NAMES)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[RunPod, list[ObservedPod]]:
    init = draw(st.sampled_from([(), ("i",), (sidecar("s"), "i"), ("i", sidecar("s"))]))
    pod = a_pod("a", "b", init=init, restart=draw(st.sampled_from(["Always", "OnFailure", "Never"])))
    names = [each.name for each in (*pod.spec.init_containers, *pod.spec.containers)]

    def observation() -> ObservedPod:
        runs = []
        for name in names:
            for attempt in range(draw(st.integers(0, 2))):
                phase: ContainerPhase = draw(phases)
                runs.append(run(name, phase, attempt=attempt, exit_code=draw(st.sampled_from([0, 1, 137]))))
        return seen(*runs, sandbox=draw(st.sampled_from([None, GONE, ObservedSandbox("s-0")])))

    return pod, [observation() for _ in range(draw(st.integers(1, 4)))]


@given(worlds(), st.sampled_from([None, EVICTED]), st.booleans())
def test_successive_statuses(
    world: tuple[RunPod, list[ObservedPod]], verdict: TerminationVerdict | None, final: bool
) -> None:
    """A final phase stays; a report of the same thing is the same report; a report survives being read back."""
    pod, observations = world
    about = NO_MEMORY
    for index, what in enumerate(observations):
        is_final = final and index == len(observations) - 1 and not what.live()
        shown = pod_status(pod, what, about, NOW_S + index, NODE, verdict=verdict, is_final=is_final)
        if about.status is not None and about.status.phase in ("Succeeded", "Failed"):
            assert shown.phase == about.status.phase
        if is_final:
            assert shown.phase in ("Succeeded", "Failed")
        types = [each.type for each in shown.conditions]
        assert len(types) == len(set(types))
        for each in (*shown.init_container_statuses, *shown.container_statuses):
            states = (each.state.waiting, each.state.running, each.state.terminated)
            assert sum(state is not None for state in states) == 1
            assert not each.ready or each.state.running is not None or each.name == "i"
        document = status_document(shown)
        read = run_pod({"metadata": {"generation": 3}, "spec": {"containers": [{"name": "a"}]}, "status": document})
        assert status_document(read.status) == document
        about = memory(status=shown)
        again = pod_status(pod, what, about, NOW_S + index, NODE, verdict=verdict, is_final=is_final)
        assert again == shown
