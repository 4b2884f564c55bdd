"""Which containers are started again: the restart policy of the pod and of the container, and restart rules (04 §11).

From 1.35 on a container may have a policy of its own, and rules by exit code before it: the first rule that matches
decides (https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#restart-policy). From 1.36 on a rule may
restart all containers of the pod: they are killed, their records are removed, and the pod begins again with its first
init container, in the same sandbox. The records of the containers whose exit has caused it are removed last, so that an
agent that was killed meanwhile continues.

A container is a sidecar only among the init containers; an ordinary one may have the policy Always, too.
"""

from __future__ import annotations

from plimsoll.rules.model.objects import Container, Pod
from plimsoll.rules.model.observed import Kill, ObservedContainer, ObservedPod, PodActions
from plimsoll.rules.model.runnable import ALWAYS, NEVER, ON_FAILURE, RunContainer, RunPod

RESTART, RESTART_ALL = "Restart", "RestartAllContainers"
RESTARTING_ALL = "RestartingAllContainers"  # the reason of containers that another one has ended


def matching_action(container: Container, exit_code: int) -> str:
    """Of the first rule that matches; "" if none does."""
    for rule in container.restart_policy_rules:
        codes = rule.exit_codes
        is_known = codes is not None and codes.operator in ("In", "NotIn")
        if codes is not None and is_known and (exit_code in codes.values) == (codes.operator == "In"):
            return rule.action
    return ""


def policy_of(container: Container, pod_policy: str) -> str:
    return container.restart_policy or pod_policy or ALWAYS


def is_restarted(container: Container, pod_policy: str, exit_code: int) -> bool:
    """After its end with this exit code."""
    if container.restart_policy and matching_action(container, exit_code) in (RESTART, RESTART_ALL):
        return True
    policy = policy_of(container, pod_policy)
    return policy == ALWAYS or (policy == ON_FAILURE and exit_code != 0)


def survives_failure(container: Container, pod_policy: str) -> bool:
    """Whether it is restarted after a kill, before there is an exit code: rules are not evaluated."""
    return policy_of(container, pod_policy) != NEVER


def runs_once(container: Container, pod_policy: str) -> bool:
    """Whether a success is final."""
    return policy_of(container, pod_policy) == ON_FAILURE


def may_restart(container: RunContainer, pod: RunPod, newest: ObservedContainer | None) -> bool:
    """Whether this container would be started if it does not run (04 §11)."""
    if pod.metadata.deletion_timestamp is not None or (newest is not None and newest.phase == "running"):
        return False
    if newest is None or newest.phase in ("unknown", "created"):
        return True
    return is_restarted(container, pod.spec.restart_policy or ALWAYS, newest.exit_code)


def may_restart_all(pod: Pod) -> bool:
    every = (*pod.spec.init_containers, *pod.spec.containers)
    return any(rule.action == RESTART_ALL for each in every for rule in each.restart_policy_rules)


def causes_of_restart_of_all(pod: RunPod, seen: ObservedPod) -> tuple[str, ...]:
    """Names of the containers whose last exit restarts all."""
    if not may_restart_all(pod):
        return ()
    every = (*pod.spec.init_containers, *pod.spec.containers)
    return tuple(each.name for each in every if _restarts_all(each, seen.newest(each.name)))


def _restarts_all(container: RunContainer, newest: ObservedContainer | None) -> bool:
    has_ended = newest is not None and newest.phase == "exited"
    return newest is not None and has_ended and matching_action(container, newest.exit_code) == RESTART_ALL


def restart_of_all(pod: RunPod, seen: ObservedPod, causes: tuple[str, ...], sandbox_id: str) -> PodActions:
    """Kill without a grace period, and remove the records; ephemeral containers stay."""
    ephemeral = {container.name for container in pod.spec.ephemeral_containers}
    every = [each for each in seen.containers if each.name not in ephemeral]
    running = [each for each in every if each.phase in ("running", "unknown")]
    return PodActions(
        kills=tuple(Kill(each.id, each.name, "killing", "pod", 0) for each in running),
        forget=tuple(each.id for each in sorted(every, key=lambda each: each.name in causes)),
        sandbox_id=sandbox_id,
        restarts_all=True,
    )
