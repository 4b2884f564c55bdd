"""Restart policies and restart rules of containers (1.35+), and the restart of all containers (1.36+)."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.codec.lean.runnable import run_pod
from plimsoll.rules.lifecycle.pod_actions import compute_pod_actions
from plimsoll.rules.lifecycle.restarts import causes_of_restart_of_all, is_restarted, survives_failure
from plimsoll.rules.lifecycle.status import NodeView, pod_status
from plimsoll.rules.model.observed import NO_MEMORY, ObservedContainer, ObservedPod, ObservedSandbox, SyncState
from plimsoll.rules.model.runnable import RunPod
from plimsoll.rules.profile import profile_named

NODE = NodeView(("10.0.0.1",), profile=profile_named("1.36"))
Document = dict[str, Any]


def rule(*codes: int, action: str = "Restart", operator: str = "In") -> Document:
    return {"action": action, "exitCodes": {"operator": operator, "values": list(codes)}}


def made(*containers: Document, policy: str = "Never", inits: tuple[Document, ...] = ()) -> RunPod:
    spec = {"restartPolicy": policy, "containers": list(containers), "initContainers": list(inits)}
    return run_pod({"metadata": {"name": "p", "namespace": "default", "uid": "u"}, "spec": spec})


def seen(*containers: ObservedContainer) -> ObservedPod:
    return ObservedPod((ObservedSandbox("s"),), containers)


def ended(name: str, exit_code: int, attempt: int = 0) -> ObservedContainer:
    return ObservedContainer(f"{name}-{attempt}", name, "exited", attempt, "s", exit_code=exit_code, finished_s=1.0)


def runs(name: str, attempt: int = 0) -> ObservedContainer:
    return ObservedContainer(f"{name}-{attempt}", name, "running", attempt, "s", started_s=1.0)


@pytest.mark.parametrize(
    ("policy", "own", "rules", "code", "again"),
    [
        pytest.param("Always", None, [], 0, True, id="the pod's Always"),
        pytest.param("OnFailure", None, [], 0, False, id="the pod's OnFailure, success"),
        pytest.param("OnFailure", None, [], 1, True, id="the pod's OnFailure"),
        pytest.param("Never", None, [], 1, False, id="the pod's Never"),
        pytest.param("Never", "OnFailure", [], 1, True, id="the container's is stronger"),
        pytest.param("Always", "Never", [], 1, False, id="also if it is Never"),
        pytest.param("Always", "OnFailure", [], 0, False, id="the container's OnFailure, success"),
        pytest.param("Never", "Never", [rule(42)], 42, True, id="a rule"),
        pytest.param("Never", "Never", [rule(42)], 43, False, id="a rule for another code"),
        pytest.param("Never", "Never", [rule(42, operator="NotIn")], 43, True, id="NotIn"),
        pytest.param("Never", "Never", [rule(42, operator="NotIn")], 42, False, id="NotIn, the code"),
        pytest.param("Never", "Never", [rule(1), rule(42, action="RestartAllContainers")], 42, True, id="the second"),
    ],
)
def test_what_is_restarted(policy: str, own: str | None, rules: list[Document], code: int, again: bool) -> None:
    pod = made({"name": "c", "restartPolicy": own, "restartPolicyRules": rules}, policy=policy)
    container = pod.spec.containers[0]
    assert is_restarted(container, policy, code) is again
    actions = compute_pod_actions(pod, seen(ended("c", code)), NO_MEMORY, 100.0)
    if not causes_of_restart_of_all(pod, seen(ended("c", code))):
        assert [start.attempt for start in actions.starts] == ([1] if again else [])
        status = pod_status(pod, seen(ended("c", code)), NO_MEMORY, 100.0, NODE)
        assert status.phase == ("Running" if again else "Succeeded" if code == 0 else "Failed")


def test_a_killed_container_follows_its_policy_not_its_rules() -> None:
    pod = made({"name": "c", "restartPolicy": "Never", "restartPolicyRules": [rule(137)]}, policy="Always")
    assert not survives_failure(pod.spec.containers[0], "Always")


@pytest.mark.parametrize(("code", "phase"), [(42, "Pending"), (1, "Failed")])
def test_an_init_container_with_rules(code: int, phase: str) -> None:
    init = {"name": "i", "restartPolicy": "Never", "restartPolicyRules": [rule(42)]}
    pod = made({"name": "c"}, inits=(init,))
    found = seen(ended("i", code))
    actions = compute_pod_actions(pod, found, NO_MEMORY, 100.0)
    assert [(start.name, start.attempt) for start in actions.starts] == ([("i", 1)] if code == 42 else [])
    assert pod_status(pod, found, NO_MEMORY, 100.0, NODE).phase == phase


def restarting_pod() -> RunPod:
    source = {"name": "c", "restartPolicy": "Never", "restartPolicyRules": [rule(42, action="RestartAllContainers")]}
    return made(source, {"name": "d"}, inits=({"name": "i"}, {"name": "s", "restartPolicy": "Always"}))


def test_all_containers_restart_and_the_cause_is_forgotten_last() -> None:
    pod = restarting_pod()
    before = seen(ended("i", 0), runs("s"), ended("c", 42), runs("d"))
    running = pod_status(pod, seen(ended("i", 0), runs("s"), runs("c"), runs("d")), NO_MEMORY, 50.0, NODE)
    conditions = {each.type: each for each in running.conditions}
    assert conditions["AllContainersRestarting"].status == "False"

    memory = SyncState(status=running)
    actions = compute_pod_actions(pod, before, memory, 100.0)
    assert sorted((kill.name, kill.grace_s) for kill in actions.kills) == [("d", 0), ("s", 0)]
    assert set(actions.forget) == {"i-0", "s-0", "c-0", "d-0"} and actions.forget[-1] == "c-0"
    assert not actions.starts and not actions.kill_pod and actions.sandbox_attempt is None and actions.restarts_all
    shown = pod_status(pod, before, memory, 100.0, NODE)
    restarting = next(each for each in shown.conditions if each.type == "AllContainersRestarting")
    assert (restarting.status, restarting.reason) == ("True", "RestartAllContainersStarted")

    memory = SyncState(status=shown)
    emptied = pod_status(pod, seen(), memory, 101.0, NODE)
    assert emptied.phase == "Running"
    assert next(each for each in emptied.conditions if each.type == "AllContainersRestarting").status == "False"
    for status in (*emptied.container_statuses, *emptied.init_container_statuses):
        assert status.restart_count == 1 and status.state.waiting is not None
        assert status.state.waiting.reason == "RestartingAllContainers"
        assert status.last_state.terminated is not None
        assert (status.last_state.terminated.exit_code, status.last_state.terminated.reason) == (
            137,
            "RestartingAllContainers",
        )
    again = compute_pod_actions(pod, seen(), SyncState(status=emptied), 102.0)
    assert [(start.name, start.attempt) for start in again.starts] == [("i", 1)]


def test_another_exit_restarts_nothing_else() -> None:
    pod = restarting_pod()
    found = seen(ended("i", 0), runs("s"), ended("c", 1), runs("d"))
    actions = compute_pod_actions(pod, found, NO_MEMORY, 100.0)
    assert actions.is_idle and not actions.restarts_all
