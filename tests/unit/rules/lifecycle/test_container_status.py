"""What is reported of each container (04 §10–§12)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from plimsoll.rules.lifecycle.container_status import (
    NOT_LOCATED,
    NOT_LOCATED_AT_END,
    StatusContext,
    container_statuses,
    termination_message,
    with_short_messages,
)
from plimsoll.rules.model.objects import Resources
from plimsoll.rules.model.observed import NO_MEMORY, ContainerUser, ObservedPod, ProbeResults, StartFailure, SyncState
from plimsoll.rules.model.pod_status import (
    NO_STATE,
    RunContainerStatus,
    Running,
    RunState,
    Terminated,
    VolumeMountStatus,
    Waiting,
)
from plimsoll.rules.model.runnable import RunContainer, RunPod
from plimsoll.rules.profile import profile_named
from plimsoll.rules.quantity import QUANTITIES
from tests.unit.rules.run_pods import a_pod, memory, run, seen, sidecar

T0, T1 = "1970-01-12T13:46:40Z", "1970-01-12T13:46:41Z"
UNKNOWN = RunState(terminated=Terminated(137, 0, "ContainerStatusUnknown", NOT_LOCATED))
UNKNOWN_AT_END = RunState(terminated=Terminated(137, 0, "ContainerStatusUnknown", NOT_LOCATED_AT_END))
RAN = RunContainerStatus(name="a", state=RunState(running=Running(T0)), container_id="rt://a-0", restart_count=2)
ENDED = RunState(terminated=Terminated(1, 0, "Error", "", T0, T1, "rt://a-0"))
CRASH = {"a": StartFailure("CrashLoopBackOff", "back-off")}
CRASH_STATE = RunState(waiting=Waiting("CrashLoopBackOff", "back-off"))


def shown(
    pod: RunPod,
    what: ObservedPod,
    about: SyncState = NO_MEMORY,
    *before: RunContainerStatus,
    profile: str = "1.36",
    is_ending: bool = False,
    is_init: bool = False,
    allocated: dict[str, Resources] | None = None,
) -> tuple[RunContainerStatus, ...]:
    context = StatusContext(pod, what, about, profile_named(profile), "rt", is_ending, allocated or {})
    containers = pod.spec.init_containers if is_init else pod.spec.containers
    return container_statuses(context, containers, before, "initContainers" if is_init else "containers")


def test_an_ephemeral_container_is_never_ready_and_shows_no_later_failure() -> None:
    pod = a_pod("a", ephemeralContainers=[{"name": "d", "image": "img:1"}])
    context = StatusContext(pod, seen(run("a"), run("d")), NO_MEMORY, profile_named("1.36"), "rt", False, {})
    (status,) = container_statuses(context, pod.spec.ephemeral_containers, (), "ephemeralContainers")
    assert (status.name, status.ready, status.started) == ("d", False, None) and status.state.running is not None
    failed = SyncState(failures={"d": StartFailure("ErrImagePull", "no")})
    for what, reason in ((seen(run("a")), "ErrImagePull"), (seen(run("d", "exited")), "")):
        context = StatusContext(pod, what, failed, profile_named("1.36"), "rt", False, {})
        (status,) = container_statuses(context, pod.spec.ephemeral_containers, (), "ephemeralContainers")
        assert (status.state.waiting.reason if status.state.waiting else "") == reason


def test_the_stop_signal_by_release_and_gate() -> None:
    what = seen(msgspec.structs.replace(run("a"), stop_signal="SIGUSR1"))
    for release, gate, expected in (("1.32", True, None), ("1.33", True, "SIGUSR1"), ("1.36", False, None)):
        context = StatusContext(
            a_pod("a"), what, NO_MEMORY, profile_named(release), "rt", False, {}, shows_stop_signal=gate
        )
        (status,) = container_statuses(context, a_pod("a").spec.containers, ())
        assert status.stop_signal == expected, release


def one(*args: Any, **options: Any) -> RunContainerStatus:
    (status,) = shown(*args, **options)
    return status


def test_the_user_of_its_first_process() -> None:
    what = seen(msgspec.structs.replace(run("a"), user=ContainerUser(7, 8, (8, 9))))
    assert one(a_pod("a"), what).user == {"linux": {"uid": 7, "gid": 8, "supplementalGroups": [8, 9]}}
    assert one(a_pod("a"), what, profile="1.32").user is None
    assert one(a_pod("a"), seen(run("a"))).user is None


STATES = [
    pytest.param(a_pod("a"), ObservedPod(), NO_MEMORY, RunState(waiting=Waiting("ContainerCreating")), NO_STATE, id="never"),
    pytest.param(
        a_pod("a", init=("i",)), ObservedPod(), NO_MEMORY, RunState(waiting=Waiting("PodInitializing")), NO_STATE, id="never, init"
    ),
    pytest.param(a_pod("a"), seen(run("a", "created")), NO_MEMORY, RunState(waiting=Waiting()), NO_STATE, id="created"),
    pytest.param(a_pod("a"), seen(run("a")), NO_MEMORY, RunState(running=Running(T0)), NO_STATE, id="running"),
    pytest.param(a_pod("a"), seen(run("a", "exited", exit_code=1)), NO_MEMORY, ENDED, NO_STATE, id="failed"),
    pytest.param(
        a_pod("a"), seen(run("a", "exited", message="bye")), NO_MEMORY,
        RunState(terminated=Terminated(0, 0, "Completed", "bye", T0, T1, "rt://a-0")), NO_STATE, id="succeeded",
    ),
    pytest.param(
        a_pod("a"), seen(run("a", "exited", exit_code=1), run("a", attempt=1)), NO_MEMORY,
        RunState(running=Running(T1)), ENDED, id="restarted",
    ),
    pytest.param(
        a_pod("a"), seen(run("a", "exited", exit_code=1)), memory(failures=CRASH), CRASH_STATE, ENDED, id="waits to restart"
    ),
    pytest.param(
        a_pod("a", restart="Never"), seen(run("a", "exited", exit_code=1)), memory(failures=CRASH), ENDED, NO_STATE,
        id="will not restart",
    ),
    pytest.param(
        a_pod("a"), seen(run("a")), memory(failures=CRASH), RunState(running=Running(T0)), NO_STATE, id="old failure"
    ),
    pytest.param(
        a_pod("a"), seen(run("a", "created")), memory(failures={"a": StartFailure("RunContainerError", "no such file")}),
        RunState(waiting=Waiting("RunContainerError", "no such file")), NO_STATE, id="could not start",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("pod", "what", "about", "state", "last_state"), STATES)
def test_states(pod: RunPod, what: ObservedPod, about: SyncState, state: RunState, last_state: RunState) -> None:
    status = one(pod, what, about)
    assert (status.state, status.last_state) == (state, last_state)


def test_one_that_never_started_shows_the_epoch() -> None:
    """As the kubelet: a container whose program does not exist has the start time 0 of CRI."""
    never = msgspec.structs.replace(run("a", "exited", exit_code=128, reason="StartError"), started_s=0.0)
    (status,) = shown(a_pod("a", restart="Never"), seen(never))
    assert status.state.terminated is not None
    assert (status.state.terminated.started_at, status.state.terminated.finished_at) == ("1970-01-01T00:00:00Z", T1)


def test_no_container_waits_while_its_pod_terminates() -> None:
    status = one(a_pod("a"), seen(run("a", "exited", exit_code=1)), memory(failures=CRASH), is_ending=True)
    assert status.state == ENDED


VANISHED = [
    pytest.param(a_pod("a"), ObservedPod(), RunState(waiting=Waiting("ContainerCreating")), UNKNOWN, 3, id="no record"),
    pytest.param(
        a_pod("a", metadata={"deletionTimestamp": "x"}), ObservedPod(), RunState(waiting=Waiting("ContainerCreating")), UNKNOWN,
        2, id="no record, deleted",
    ),
    pytest.param(a_pod("a"), seen(run("a", "unknown", attempt=2)), UNKNOWN_AT_END, NO_STATE, 3, id="unknown"),
]  # fmt: skip


@pytest.mark.parametrize(("pod", "what", "state", "last_state", "restarts"), VANISHED)
def test_a_container_that_disappeared(
    pod: RunPod, what: ObservedPod, state: RunState, last_state: RunState, restarts: int
) -> None:
    status = one(pod, what, NO_MEMORY, RAN)
    assert (status.state, status.last_state, status.restart_count) == (state, last_state, restarts)
    assert (status.ready, status.started) == (False, False)


def test_an_end_outlives_its_record() -> None:
    before = RunContainerStatus(name="a", state=ENDED, restart_count=4, image="img:0")
    status = one(a_pod("a"), ObservedPod(), NO_MEMORY, before)
    assert (status.state, status.restart_count, status.image) == (ENDED, 4, "img:0")
    running_again = RunContainerStatus(name="a", last_state=ENDED, container_id="rt://a-1")
    assert one(a_pod("a"), seen(run("a", attempt=1)), NO_MEMORY, running_again).last_state == ENDED


def test_identity() -> None:
    status = one(a_pod("a"), seen(run("a", attempt=5)))
    assert (status.container_id, status.image, status.image_id) == ("rt://a-5", "img:1", "sha256:1")
    assert status.restart_count == 5


def test_order() -> None:
    pod = a_pod("b", "a", init=("z", "y"))
    assert [each.name for each in shown(pod, ObservedPod())] == ["a", "b"]
    assert [each.name for each in shown(pod, ObservedPod(), is_init=True)] == ["z", "y"]


READY, UNREADY = ProbeResults(readiness=True), ProbeResults(readiness=False)
PROBE = {"exec": {"command": ["x"]}}
GATED = {"name": "a", "readinessProbe": PROBE}
SLOW = {"name": "a", "startupProbe": PROBE}
FLAGS = [
    pytest.param("a", "running", None, True, True, id="no probes"),
    pytest.param(GATED, "running", None, True, False, id="readiness not known"),
    pytest.param(GATED, "running", UNREADY, True, False, id="not ready"),
    pytest.param(GATED, "running", READY, True, True, id="ready"),
    pytest.param(GATED, "exited", READY, False, False, id="ended"),
    pytest.param(SLOW, "running", None, False, False, id="startup not known"),
    pytest.param(SLOW, "running", ProbeResults(startup=False), False, False, id="startup failed"),
    pytest.param(SLOW, "running", ProbeResults(startup=True), True, True, id="startup succeeded"),
]  # fmt: skip


@pytest.mark.parametrize(("container", "phase", "results", "started", "ready"), FLAGS)
def test_flags(container: Any, phase: Any, results: ProbeResults | None, started: bool, ready: bool) -> None:
    about = memory(probes={"a-0": results} if results is not None else {})
    status = one(a_pod(container), seen(run("a", phase)), about)
    assert (status.started, status.ready) == (started, ready)
    as_sidecar = {**({} if isinstance(container, str) else container), **sidecar("a")}
    status = one(a_pod("m", init=(as_sidecar,)), seen(run("a", phase)), about, is_init=True)
    assert (status.started, status.ready) == (started, ready)


INIT_FLAGS = [
    pytest.param(run("i"), "1.36", True, False, id="1.36 running"),
    pytest.param(run("i", "exited"), "1.36", False, True, id="1.36 done"),
    pytest.param(run("i", "exited", exit_code=1), "1.36", False, False, id="1.36 failed"),
    pytest.param(run("i"), "documents", None, False, id="documents running"),
    pytest.param(run("i", "exited"), "documents", None, True, id="documents done"),
]


@pytest.mark.parametrize(("container", "profile", "started", "ready"), INIT_FLAGS)
def test_init_flags(container: Any, profile: str, started: bool | None, ready: bool) -> None:
    status = one(a_pod("a", init=("i",)), seen(container), profile=profile, is_init=True)
    assert (status.started, status.ready) == (started, ready)


def test_resources() -> None:
    small, large = (Resources({"cpu": QUANTITIES[text]}) for text in ("1", "2"))
    pod = a_pod({"name": "a", "resources": {"requests": {"cpu": "3"}}})
    status = one(pod, seen(run("a", resources=large)), allocated={"a": small})
    assert (status.resources, status.allocated_resources) == (large, small.requests)
    status = one(pod, seen(run("a", "exited", resources=large)), allocated={"a": small})
    assert (status.resources, status.allocated_resources) == (small, small.requests)
    assert one(pod, seen(run("a"))).allocated_resources == {"cpu": QUANTITIES["3"]}


def test_mounts() -> None:
    mounts = [{"name": "v", "mountPath": "/v", "readOnly": True}, {"name": "w", "mountPath": "/w", "subPath": "x"}]
    pod = a_pod({"name": "a", "volumeMounts": mounts})
    mounts = (VolumeMountStatus("v", "/v", True, "Disabled"), VolumeMountStatus("w", "/w"))
    assert one(pod, seen(run("a"))).volume_mounts == mounts
    assert one(pod, seen(run("a")), profile="documents").volume_mounts is None


FILE, LOGS = RunContainer(), RunContainer(termination_message_policy="FallbackToLogsOnError")
MESSAGES = [
    pytest.param(FILE, 0, b"done", b"log", "", "done", id="file"),
    pytest.param(FILE, 1, b"", b"log", "", "", id="no fallback"),
    pytest.param(FILE, 1, None, b"log", "no such file", "no such file", id="the runtime's"),
    pytest.param(FILE, 1, b"mine", b"log", "killed", "killed: mine", id="both"),
    pytest.param(LOGS, 1, b"", b"one\ntwo\n", "", "one\ntwo\n", id="fallback"),
    pytest.param(LOGS, 1, b"mine", b"log", "", "mine", id="file before logs"),
    pytest.param(LOGS, 0, b"", b"log", "", "", id="no fallback without an error"),
    pytest.param(FILE, 0, b"x" * 5000, b"", "", "x" * 4096, id="long file"),
    pytest.param(LOGS, 1, b"", b"y" * 3000, "", "y" * 2048, id="long line"),
    pytest.param(LOGS, 1, b"", b"z\n" * 100, "", "z\n" * 80, id="many lines"),
]


@pytest.mark.parametrize(("container", "code", "file_text", "log", "runtime", "wanted"), MESSAGES)
def test_messages(
    container: RunContainer, code: int, file_text: bytes | None, log: bytes, runtime: str, wanted: str
) -> None:
    assert termination_message(container, code, file_text, log, runtime) == wanted


def test_all_messages_together() -> None:
    ended = RunState(terminated=Terminated(message="ü" * 4000))
    (short,) = with_short_messages([RunContainerStatus(state=ended, last_state=ended)], 3)
    assert short.state.terminated is not None
    assert short.state.terminated.message == "ü" * 2048
    assert short.last_state == short.state
