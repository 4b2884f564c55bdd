"""Pod actions (04 §10–§12, 03 §10): the tables of computePodActions, and whole lives on a model node."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.rules.lifecycle.backoff import backoff_key
from plimsoll.rules.lifecycle.pod_actions import (
    after_sync,
    compute_pod_actions,
    definition_of,
    next_attempt,
    pull_failed,
    without_stale_probes,
)
from plimsoll.rules.model.observed import (
    NO_MEMORY,
    Backoff,
    ObservedContainer,
    ObservedPod,
    ObservedSandbox,
    ProbeResults,
    StartFailure,
    SyncState,
)
from plimsoll.rules.model.pod_status import RunContainerStatus, Running, RunState, RunStatus, Waiting
from plimsoll.rules.model.runnable import RunPod
from plimsoll.rules.profile import profile_named
from tests.unit.rules.run_pods import START_S, ModelNode, a_pod, is_ordinary_init, memory, run, seen, sidecar

PROBE = {"exec": {"command": ["true"]}}
LIVE: dict[str, Any] = {"livenessProbe": PROBE}
SLOW: dict[str, Any] = {"startupProbe": PROBE}
NOW_S = START_S + 100


def starts(pod: RunPod, what: ObservedPod, about: SyncState = NO_MEMORY, now_s: float = NOW_S) -> list[str]:
    return [each.name for each in compute_pod_actions(pod, what, about, now_s).starts]


def test_an_ephemeral_container_whose_record_is_gone_has_run() -> None:
    about = SyncState(status=RunStatus(ephemeral_container_statuses=(D_RAN,)))
    assert starts(a_pod("a", **DEBUG), seen(run("a")), about) == []


def test_an_ephemeral_container_does_not_keep_its_pod() -> None:
    pod = a_pod("a", restart="Never", **DEBUG)
    actions = compute_pod_actions(pod, seen(run("a", "exited"), run("d")), NO_MEMORY, NOW_S)
    assert actions.kill_pod and not actions.starts


# What to start

DEBUG: dict[str, Any] = {"ephemeralContainers": [{"name": "d", "image": "img:1"}]}
D_RAN = RunContainerStatus(name="d", state=RunState(running=Running("1970-01-12T13:46:40Z")))
STARTS = [
    pytest.param(a_pod("a", **DEBUG), seen(run("a")), ["d"], id="ephemeral: at once"),
    pytest.param(a_pod("a", init=("i",), **DEBUG), seen(run("i")), ["d"], id="ephemeral: whatever init containers do"),
    pytest.param(a_pod("a", **DEBUG), seen(run("a"), run("d")), [], id="ephemeral: runs"),
    pytest.param(a_pod("a", **DEBUG), seen(run("a"), run("d", "exited", exit_code=1)), [], id="ephemeral: never again"),
    pytest.param(a_pod("a", **DEBUG), seen(run("a"), run("d", "created")), ["d"], id="ephemeral: created only"),
    pytest.param(a_pod("a", **DEBUG), ObservedPod(), ["a"], id="ephemeral: not before there is a sandbox"),
    pytest.param(a_pod("a", "b"), seen(), ["a", "b"], id="all at once"),
    pytest.param(a_pod("a", "b"), seen(run("a")), ["b"], id="only what is missing"),
    pytest.param(a_pod("a"), seen(run("a", "exited", exit_code=1)), ["a"], id="Always: failed"),
    pytest.param(a_pod("a"), seen(run("a", "exited")), ["a"], id="Always: succeeded"),
    pytest.param(a_pod("a", "b", restart="OnFailure"), seen(run("a", "exited"), run("b")), [], id="OnFailure: succeeded"),
    pytest.param(
        a_pod("a", "b", restart="OnFailure"), seen(run("a", "exited", exit_code=2), run("b")), ["a"], id="OnFailure: failed"
    ),
    pytest.param(
        a_pod("a", "b", restart="Never"), seen(run("a", "exited", exit_code=2), run("b")), [], id="Never: failed"
    ),
    pytest.param(a_pod("a", restart="Never"), seen(run("a", "unknown")), ["a"], id="Never: unknown is tried again"),
    pytest.param(a_pod("a", init=("i", "j")), seen(), ["i"], id="first init container"),
    pytest.param(a_pod("a", init=("i", "j")), seen(run("i")), [], id="init container runs"),
    pytest.param(a_pod("a", init=("i", "j")), seen(run("i", "exited")), ["j"], id="next init container"),
    pytest.param(
        a_pod("a", init=("i", "j")), seen(run("i", "exited"), run("j", "exited")), ["a"], id="init containers done"
    ),
    pytest.param(a_pod("a", init=("i", "j")), seen(run("j", "exited")), ["a"], id="record of an earlier one is gone"),
    pytest.param(a_pod("a", init=("i", "j")), seen(run("a")), [], id="records of all init containers are gone"),
    pytest.param(
        a_pod("a", init=("i", "j")), seen(run("i", "exited", exit_code=1)), ["i"], id="init container failed: again"
    ),
    pytest.param(a_pod("a", init=(sidecar("s"), "i")), seen(), ["s"], id="sidecar first"),
    pytest.param(a_pod("a", init=(sidecar("s"), "i")), seen(run("s")), ["i"], id="running sidecar lets the next start"),
    pytest.param(a_pod("a", init=(sidecar("s"),)), seen(run("s")), ["a"], id="last sidecar runs"),
    pytest.param(
        a_pod("a", init=(sidecar("s", **SLOW), "i")), seen(run("s")), [], id="sidecar with a startup probe is waited for"
    ),
    pytest.param(
        a_pod("a", init=(sidecar("s"), "i")), seen(run("s", "exited"), run("i")), ["s"], id="sidecar restarts meanwhile"
    ),
    pytest.param(
        a_pod("a", init=(sidecar("s"),), restart="Never"), seen(run("s", "exited", exit_code=1), run("a")), ["s"],
        id="sidecar restarts under Never",
    ),
    pytest.param(
        a_pod("a", init=(sidecar("s"), "i", sidecar("t"))), seen(run("a"), run("i", "exited")), ["s", "t"],
        id="sidecars without a record, once initialised",
    ),
    pytest.param(a_pod("a", metadata={"deletionTimestamp": "x"}), seen(run("a", "exited", exit_code=1)), [], id="deleted"),
]  # fmt: skip


@pytest.mark.parametrize(("pod", "what", "wanted"), STARTS)
def test_what_starts(pod: RunPod, what: ObservedPod, wanted: list[str]) -> None:
    assert starts(pod, what) == wanted


def test_a_startup_probe_gates_the_next_init_container() -> None:
    pod = a_pod("a", init=(sidecar("s", **SLOW), "i"))
    assert starts(pod, seen(run("s")), memory(probes={"s-0": ProbeResults(startup=True)})) == ["i"]


# The end of a pod

ENDS = [
    pytest.param(a_pod("a", restart="Never"), seen(run("a", "exited")), id="Never: succeeded"),
    pytest.param(a_pod("a", restart="Never"), seen(run("a", "exited", exit_code=3)), id="Never: failed"),
    pytest.param(a_pod("a", restart="OnFailure"), seen(run("a", "exited")), id="OnFailure: succeeded"),
    pytest.param(
        a_pod("a", restart="Never", init=(sidecar("s"),)), seen(run("s"), run("a", "exited")), id="a sidecar does not hold it"
    ),
    pytest.param(
        a_pod("a", restart="Never", init=("i",)), seen(run("i", "exited", exit_code=1)), id="Never: init container failed"
    ),
    pytest.param(
        a_pod("a", restart="Never"), seen(run("a"), sandbox=ObservedSandbox("s-0", ready=False)), id="Never: sandbox lost"
    ),
    pytest.param(
        a_pod({"name": "a", **LIVE}, restart="Never"), seen(run("a")), id="Never: liveness failed",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("pod", "what"), ENDS)
def test_the_end(pod: RunPod, what: ObservedPod) -> None:
    work = compute_pod_actions(pod, what, memory(probes={"a-0": ProbeResults(liveness=False)}), NOW_S)
    assert (work.kill_pod, work.starts, work.sandbox_attempt) == (True, (), None)


def test_a_terminated_pod_needs_no_actions() -> None:
    pod = a_pod("a", restart="Never")
    gone = seen(run("a", "exited"), sandbox=ObservedSandbox("s-0", ready=False))
    assert compute_pod_actions(pod, gone, NO_MEMORY, NOW_S).is_idle


# Sandboxes


def test_the_first_sandbox() -> None:
    work = compute_pod_actions(a_pod("a"), seen(sandbox=None), NO_MEMORY, NOW_S)
    assert (work.sandbox_attempt, work.kill_pod, work.events) == (0, False, ())
    assert [each.name for each in work.starts] == ["a"]


LOST = ObservedSandbox("s-0", attempt=2, ready=False)
NEW_SANDBOX = [
    pytest.param(a_pod("a"), (LOST,), (run("a"),), ["a"], id="not ready"),
    pytest.param(a_pod("a", hostNetwork=True), (ObservedSandbox("s-0", 2, host_network=False),), (), ["a"], id="other network"),
    pytest.param(a_pod("a"), (ObservedSandbox("x", 1), ObservedSandbox("s-0", 2)), (run("a"),), ["a"], id="two of them"),
    pytest.param(a_pod("a", init=("i", "j")), (LOST,), (run("a"), run("j", "exited")), ["i"], id="from the beginning"),
    pytest.param(
        a_pod("a", "b", restart="OnFailure"), (LOST,), (run("a"), run("b", "exited")), ["a"], id="what succeeded stays done"
    ),
    pytest.param(a_pod("a", restart="Never"), (LOST,), (), ["a"], id="Never: nothing ever ran"),
]  # fmt: skip


@pytest.mark.parametrize(("pod", "sandboxes", "containers", "wanted"), NEW_SANDBOX)
def test_a_new_sandbox(
    pod: RunPod, sandboxes: tuple[ObservedSandbox, ...], containers: tuple[ObservedContainer, ...], wanted: list[str]
) -> None:
    work = compute_pod_actions(pod, ObservedPod(sandboxes, containers), NO_MEMORY, NOW_S)
    assert (work.kill_pod, work.sandbox_attempt) == (True, 3)
    assert [each.name for each in work.starts] == wanted
    assert [each.message for each in work.events] == ["Pod sandbox changed, it will be killed and re-created."]


def test_a_new_sandbox_repeats_the_init_containers_also_when_the_agent_dies_in_between() -> None:
    pod = a_pod("a", init=("i",))
    what = seen(run("i", "exited"), run("a", "exited", exit_code=255), sandbox=ObservedSandbox("s-1", 1))
    assert starts(pod, what) == ["i"]


# What to end

KILLS = [
    pytest.param({"probes": {"a-0": ProbeResults(liveness=False)}}, "Always", "Container a failed liveness probe, will be restarted", 7, id="liveness"),
    pytest.param({"probes": {"a-0": ProbeResults(startup=False)}}, "Always", "Container a failed startup probe, will be restarted", 9, id="startup"),
    pytest.param({"probes": {"a-0": ProbeResults(liveness=False)}}, "Never", "Container a failed liveness probe", 7, id="Never"),
    pytest.param({"restart_to_resize": frozenset({"a"})}, "Always", "Container a resize requires restart", 30, id="resize"),
]  # fmt: skip


@pytest.mark.parametrize(("about", "restart", "message", "grace_s"), KILLS)
def test_kills(about: Any, restart: str, message: str, grace_s: int) -> None:
    probes = {
        "livenessProbe": {**PROBE, "terminationGracePeriodSeconds": 7},
        "startupProbe": {**PROBE, "terminationGracePeriodSeconds": 9},
    }
    pod = a_pod({"name": "a", **probes}, "b", restart=restart)
    work = compute_pod_actions(pod, seen(run("a"), run("b")), memory(**about), NOW_S)
    assert [(each.id, each.message, each.grace_s) for each in work.kills] == [("a-0", message, grace_s)]
    assert [(each.name, each.attempt) for each in work.starts] == ([] if restart == "Never" else [("a", 1)])


SIDECAR_KILLS = [
    pytest.param(ProbeResults(startup=False), "Init container s failed startup probe", [], id="startup"),
    pytest.param(ProbeResults(startup=True, liveness=False), "Init container s failed liveness probe", ["i"], id="liveness"),
]  # fmt: skip


@pytest.mark.parametrize(("results", "message", "also"), SIDECAR_KILLS)
def test_sidecars_are_ended(results: ProbeResults, message: str, also: list[str]) -> None:
    """A failed liveness probe does not keep its successor from starting."""
    pod = a_pod("a", init=(sidecar("s", **LIVE, **SLOW), "i"))
    work = compute_pod_actions(pod, seen(run("s")), memory(probes={"s-0": results}), NOW_S)
    assert [each.message for each in work.kills] == [message]
    assert [each.name for each in work.starts] == ["s", *also]


@pytest.mark.parametrize("restart", ["Always", "OnFailure", "Never"])
def test_another_image_restarts_whatever_the_policy(restart: str) -> None:
    pod = a_pod({"name": "a", "image": "img:2"}, restart=restart)
    work = compute_pod_actions(pod, seen(run("a", definition="a=img:1")), NO_MEMORY, NOW_S)
    assert [each.message for each in work.kills] == ["Container a definition changed, will be restarted"]
    assert [each.name for each in work.starts] == ["a"]
    same = run("a", definition=definition_of(pod.spec.containers[0]))
    assert compute_pod_actions(pod, seen(same), NO_MEMORY, NOW_S).is_idle


def test_of_two_running_containers_the_older_is_killed() -> None:
    work = compute_pod_actions(a_pod("a"), seen(run("a"), run("a", attempt=1)), NO_MEMORY, NOW_S)
    assert [each.id for each in work.kills] == ["a-0"]
    assert not work.starts
    work = compute_pod_actions(a_pod("a"), seen(run("a", "created"), run("a", attempt=1)), NO_MEMORY, NOW_S)
    assert (work.kills, work.forget) == ((), ("a-0",))


def test_unknown_is_ended_before_it_starts_again() -> None:
    work = compute_pod_actions(a_pod("a"), seen(run("a", "unknown")), NO_MEMORY, NOW_S)
    assert [each.message for each in work.kills] == ['Container is in "unknown" state, try killing it before restart']
    assert [(each.name, each.attempt) for each in work.starts] == [("a", 1)]


def test_a_created_container_is_only_started() -> None:
    work = compute_pod_actions(a_pod("a"), seen(run("a", "created", attempt=2)), NO_MEMORY, NOW_S)
    assert [(each.attempt, each.resume_id) for each in work.starts] == [(2, "a-2")]
    elsewhere = run("a", "created", attempt=2, sandbox_id="gone")
    work = compute_pod_actions(a_pod("a"), seen(elsewhere), NO_MEMORY, NOW_S)
    assert [(each.attempt, each.resume_id) for each in work.starts] == [(3, "")]
    assert work.forget == ("a-2",)


def test_the_newest_and_one_before_are_kept() -> None:
    runs = [run("a", "exited", attempt=attempt) for attempt in range(4)]
    assert compute_pod_actions(a_pod("a"), seen(*runs, run("a", attempt=4)), NO_MEMORY, NOW_S).forget == (
        "a-0",
        "a-1",
        "a-2",
    )


ATTEMPTS = [
    pytest.param(RunState(running=Running("x")), 5, id="ran"),
    pytest.param(RunState(waiting=Waiting("CrashLoopBackOff")), 4, id="counted already"),
]


@pytest.mark.parametrize(("state", "attempt"), ATTEMPTS)
def test_attempts_continue_when_the_runtime_lost_its_records(state: RunState, attempt: int) -> None:
    status = RunStatus(container_statuses=(RunContainerStatus(name="a", state=state, restart_count=4),))
    assert next_attempt("a", ObservedPod(), status) == attempt
    assert next_attempt("b", ObservedPod(), status) == 0


# Back-off


def test_the_sequence() -> None:
    """Crashes at once, every time (04 §11)."""
    node = ModelNode(a_pod("a"))
    work = node.sync()
    while len(node.starts) < 10:
        node.exit("a", 1)
        work = node.sync()
        if work.requeue_s is not None:
            assert not node.names()
            assert node.memory.failures["a"].reason == "CrashLoopBackOff"
            node.now_s = work.requeue_s - 0.001
            assert not node.sync().starts
            node.now_s = work.requeue_s
            node.sync()
    assert [at_s for _, at_s in node.starts] == [0, 0, 10, 30, 70, 150, 310, 610, 910, 1210]
    newest = node.seen.newest("a")
    assert newest is not None and newest.attempt == 9


def test_a_long_run_resets_the_back_off() -> None:
    node = ModelNode(a_pod("a"))
    node.sync()
    for _ in range(3):
        node.exit("a")
        node.now_s += 60
        node.sync()
    node.now_s += 601
    node.exit("a")
    assert [each.name for each in node.sync().starts] == ["a"]
    node.exit("a")
    work = node.sync()
    assert work.waits[0].until_s - node.now_s == 10


def test_the_message_of_a_wait() -> None:
    pod = a_pod("a")
    about = memory(backoffs={backoff_key(pod.spec.containers[0]): Backoff(80, NOW_S - 5)})
    work = compute_pod_actions(pod, seen(run("a", "exited", exit_code=1, finished_s=NOW_S)), about, NOW_S)
    (wait,) = work.waits
    assert (wait.reason, wait.message) == (
        "CrashLoopBackOff", "back-off 1m20s restarting failed container=a pod=p_ns(7e5a)",
    )  # fmt: skip
    (event,) = work.events
    assert (event.reason, event.type, event.field_path) == ("BackOff", "Warning", "spec.containers{a}")
    assert event.message == "Back-off restarting failed container a in pod p_ns(7e5a)"
    again = compute_pod_actions(pod, seen(run("a", "exited", finished_s=NOW_S)), after_sync(about, work), NOW_S + 1)
    assert (again.events, again.waits) == ((), work.waits)


def test_an_accepted_resize_ends_the_wait() -> None:
    pod = a_pod({"name": "a", "resources": {"requests": {"cpu": "1"}}})
    about = memory(backoffs={backoff_key(pod.spec.containers[0]): Backoff(300, NOW_S)})
    dead = seen(run("a", "exited", exit_code=1, finished_s=NOW_S))
    assert not starts(pod, dead, about)
    assert starts(a_pod({"name": "a", "resources": {"requests": {"cpu": "2"}}}), dead, about) == ["a"]


def test_one_container_waits_while_the_others_run() -> None:
    pod = a_pod("a", "b", init=(sidecar("s"),))
    about = memory(backoffs={backoff_key(each): Backoff(40, NOW_S) for each in (pod.spec.init_containers[0],)})
    work = compute_pod_actions(pod, seen(run("s", "exited", finished_s=NOW_S), run("a")), about, NOW_S)
    assert [each.name for each in work.waits] == ["s"]
    assert [each.name for each in work.starts] == ["b"]


PULLS = [
    pytest.param("documents", 'Back-off pulling image "img:1"', id="documents"),
    pytest.param("1.36", 'Back-off pulling image "img:1": ErrImagePull: no such image', id="1.36"),
]


@pytest.mark.parametrize(("profile", "message"), PULLS)
def test_pull_back_off(profile: str, message: str) -> None:
    pod = a_pod("a")
    about = pull_failed(NO_MEMORY, pod.spec.containers[0], "no such image", NOW_S)
    assert about.failures["a"] == StartFailure("ErrImagePull", "no such image")
    for step in range(2):
        work = compute_pod_actions(pod, seen(), about, NOW_S + step, profile=profile_named(profile))
        (wait,) = work.waits
        assert (wait.reason, wait.message, wait.until_s) == ("ImagePullBackOff", message, NOW_S + 10)
        events = [(each.reason, each.message) for each in work.events]
        first = [("BackOff", 'Back-off pulling image "img:1"'), ("Failed", "Error: ImagePullBackOff")]
        assert events == ([] if step else first)
        about = after_sync(about, work)
    assert starts(pod, seen(), about, NOW_S + 10) == ["a"]


def test_the_next_sync_is_at_the_deadline() -> None:
    status = {"startTime": "1970-01-12T13:46:40Z"}  # START_S
    work = compute_pod_actions(a_pod("a", activeDeadlineSeconds=120, status=status), seen(run("a")), NO_MEMORY, NOW_S)
    assert work.is_idle
    assert work.requeue_s == START_S + 120


def test_probe_results_of_removed_containers_are_dropped() -> None:
    about = memory(probes={"a-0": ProbeResults(), "a-1": ProbeResults(liveness=True)})
    assert without_stale_probes(about, seen(run("a", attempt=1))).probes == {"a-1": ProbeResults(liveness=True)}
    assert without_stale_probes(about, seen(run("a"), run("a", attempt=1))) is about


# Whole lives

NAMES = ["i", "j", "s", "t", "a", "b"]


@st.composite
def pods(draw: st.DrawFn) -> RunPod:
    chosen = draw(st.lists(st.sampled_from(["i", "j", "s", "t"]), unique=True))
    init = tuple(sidecar(name) if name in "st" else name for name in chosen)
    ordinary: list[Any] = draw(st.lists(st.sampled_from(["a", "b"]), unique=True, min_size=1))
    probed = [{"name": name, **LIVE, **SLOW} if draw(st.booleans()) else name for name in ordinary]
    return a_pod(*probed, init=init, restart=draw(st.sampled_from(["Always", "OnFailure", "Never"])))


happenings = st.one_of(
    st.tuples(st.just("exit"), st.sampled_from(NAMES), st.sampled_from([0, 1, 137])),
    st.tuples(st.just("live"), st.sampled_from(NAMES), st.booleans()),
    st.tuples(st.just("startup"), st.sampled_from(NAMES), st.booleans()),
    st.tuples(st.just("lose"), st.just(""), st.just(0)),
    st.tuples(st.just("wait"), st.just(""), st.integers(0, 700)),
)


@given(pods(), st.lists(happenings, max_size=12))
def test_any_sequence_of_events(pod: RunPod, story: list[tuple[str, str, int]]) -> None:
    """Whatever happens: never two of a name (the model node checks), the order of init containers is kept, syncs
    come to rest, and one more sync at rest changes nothing."""
    node = ModelNode(pod)
    for what, name, how in [("wait", "", 0), *story]:
        if what == "exit":
            node.exit(name, how)
        elif what == "live":
            node.probe(name, liveness=bool(how))
        elif what == "startup":
            node.probe(name, startup=bool(how))
        elif what == "lose":
            node.lose_sandbox()
        else:
            node.now_s += how
        rest = node.settle()
        assert len(node.names()) == len(set(node.names()))
        running_inits = [each for each in node.names() if is_ordinary_init(pod, each)]
        assert len(running_inits) <= 1
        if running_inits:
            assert not {"a", "b"} & set(node.names())
        again = compute_pod_actions(pod, node.seen, node.memory, node.now_s)
        assert again == msgspec.structs.replace(rest, events=())
        for name in {each.name for each in node.containers}:
            assert len([each for each in node.seen.of(name) if each.phase == "exited"]) <= 2
