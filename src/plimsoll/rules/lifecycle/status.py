"""The pod status: phase, conditions, addresses, and container statuses (04 §7, §11, §12; 05 B7).

A status is computed from the observed state and the previous status: the time of a condition stays while its status
stays, reason and message stay with the phase, and a final phase never changes. A final phase is not reported while any
container may still run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from plimsoll.rules.lifecycle.conditions import (
    ALL_RESTARTING,
    BY_NODE,
    DISRUPTION_TARGET,
    OWN_CONDITIONS,
    PASSING_CONDITIONS,
    SCHEDULED,
    ConditionInputs,
    all_restarting,
    containers_ready,
    initialized,
    pod_ready,
    ready_to_start,
)
from plimsoll.rules.lifecycle.container_status import (
    StatusContext,
    container_statuses,
    ended_unknown,
    has_started,
    with_short_messages,
)
from plimsoll.rules.lifecycle.restarts import RESTARTING_ALL, causes_of_restart_of_all, is_restarted, may_restart_all
from plimsoll.rules.lifecycle.termination import FINAL_PHASES, TerminationVerdict, is_ending
from plimsoll.rules.model.objects import ResourceList, Resources, is_sidecar, is_static
from plimsoll.rules.model.observed import ObservedPod, SyncState
from plimsoll.rules.model.pod_status import (
    FAILED,
    PENDING,
    RUNNING,
    SUCCEEDED,
    IpAddress,
    RunCondition,
    RunContainerStatus,
    RunStatus,
    Terminated,
)
from plimsoll.rules.model.runnable import ALWAYS, RunContainer, RunPod
from plimsoll.rules.profile import DEFAULT_PROFILE, Profile
from plimsoll.rules.resources.qos import qos_class
from plimsoll.rules.timestamps import rfc3339

REJECTED_PREFIX = "Pod was rejected: "


class NodeView(msgspec.Struct, frozen=True):
    """What a status contains of its node."""

    host_ips: tuple[str, ...] = ()
    runtime_name: str = "plimsoll"  # of `runtime://id`
    profile: Profile = DEFAULT_PROFILE
    shows_resources: bool = True  # gate InPlacePodVerticalScaling: `resources` of containers
    shows_allocated: bool = True  # … and `allocatedResources`, which 1.32 shows with one more gate
    shows_stop_signal: bool = True  # gate ContainerStopSignals


def shows_allocated(gate: Callable[[str], bool], profile: Profile) -> bool:
    """Whether the statuses of containers have `allocatedResources` (03 §2)."""
    needed = ["InPlacePodVerticalScaling"]
    if profile.allocated_status_needs_gate:
        needed.append("InPlacePodVerticalScalingAllocatedStatus")
    return all(map(gate, needed))


def pod_status(
    pod: RunPod,
    seen: ObservedPod,
    memory: SyncState,
    now_s: float,
    node: NodeView,
    *,
    verdict: TerminationVerdict | None = None,
    is_final: bool = False,
    allocated: Mapping[str, Resources] | None = None,
    conditions: Iterable[RunCondition] = (),
    resize: str = "",
    resources: Resources | None = None,
    allocated_resources: ResourceList | None = None,
) -> RunStatus:
    """The status now.

    `verdict`: the node terminates this pod. `is_final`: all containers are stopped and none will be started again.
    `allocated`: resources by container name where they differ from the spec. `conditions`: those of other rules, such
    as resize; they replace conditions of the same type. `resize`: `status.resize`, if the profile has it. `resources`,
    `allocated_resources`: of the pod level, if set.
    """
    before = memory.status if memory.status is not None else pod.status
    ending = is_final or is_ending(pod, before, verdict)
    restarting = not ending and _is_restarting_all(pod, seen, before)
    context = StatusContext(
        pod,
        seen,
        memory,
        node.profile,
        node.runtime_name,
        ending,
        allocated or {},
        node.shows_resources,
        node.shows_allocated,
        node.shows_stop_signal,
        restarting,
    )
    spec = pod.spec
    count = len(spec.containers) + len(spec.init_containers) + len(spec.ephemeral_containers)
    inits = container_statuses(context, spec.init_containers, before.init_container_statuses, "initContainers")
    ordinary = container_statuses(context, spec.containers, before.container_statuses)
    ephemeral = container_statuses(
        context, spec.ephemeral_containers, before.ephemeral_container_statuses, "ephemeralContainers"
    )
    if is_final:
        inits, ordinary = _all_ended(pod, inits, ordinary)
    inits, ordinary = with_short_messages(inits, count), with_short_messages(ordinary, count)
    phase, reason, message = _phase(pod, seen, before, (*inits, *ordinary), verdict, is_final=is_final)
    shown = RunStatus(
        phase=phase,
        reason=reason,
        message=message,
        qos_class=pod.status.qos_class or qos_class(pod),
        start_time=before.start_time or pod.status.start_time or rfc3339(now_s),
        resize=resize,
        resources=resources,
        allocated_resources=allocated_resources,
        init_container_statuses=inits,
        container_statuses=ordinary,
        ephemeral_container_statuses=with_short_messages(ephemeral, count),
        nominated_node_name=pod.status.nominated_node_name,
        observed_generation=pod.metadata.generation if node.profile.pod_observed_generation else 0,
    )
    shown = _with_addresses(pod, seen, before, shown, node)
    reported = _conditions(pod, seen, before, shown, node.profile, verdict, tuple(conditions))
    return msgspec.structs.replace(shown, conditions=_dated(reported, before, pod.status, now_s))


def rejected_status(
    pod: RunPod, reason: str, message: str, now_s: float, profile: Profile = DEFAULT_PROFILE
) -> RunStatus:
    """Of a pod that the node did not admit: Failed, and no container ever ran."""
    generation = pod.metadata.generation if profile.pod_observed_generation else 0
    conditions = [each for each in pod.status.conditions if each.type not in ("Ready", "ContainersReady")]
    conditions += [
        RunCondition(kind, "False", "PodFailed", observed_generation=generation)
        for kind in ("Ready", "ContainersReady")
    ]
    return RunStatus(
        phase=FAILED,
        reason=reason,
        message=f"{REJECTED_PREFIX}{message}",
        qos_class=pod.status.qos_class or qos_class(pod),
        start_time=pod.status.start_time or rfc3339(now_s),
        conditions=_dated(conditions, pod.status, pod.status, now_s),
        observed_generation=generation,
    )


# Containers at the end


def _all_ended(
    pod: RunPod, inits: tuple[RunContainerStatus, ...], ordinary: tuple[RunContainerStatus, ...]
) -> tuple[tuple[RunContainerStatus, ...], tuple[RunContainerStatus, ...]]:
    """If initialised, every container is terminated; of the init containers, those up to the last one that started."""
    if _was_initialised(pod, inits, ordinary):
        ordinary = tuple(ended_unknown(each) for each in ordinary)
    begun = max((index for index, each in enumerate(inits) if has_started(each)), default=-1)
    return tuple(ended_unknown(each) if index <= begun else each for index, each in enumerate(inits)), ordinary


def _was_initialised(
    pod: RunPod, inits: tuple[RunContainerStatus, ...], ordinary: tuple[RunContainerStatus, ...]
) -> bool:
    if not pod.spec.init_containers or any(has_started(each) for each in ordinary):
        return True
    last = inits[-1]
    if is_sidecar(pod.spec.init_containers[-1]):
        return bool(last.started)
    ended = last.last_state.terminated or last.state.terminated
    return ended is not None and ended.exit_code == 0


# Phase


def _phase(
    pod: RunPod,
    seen: ObservedPod,
    before: RunStatus,
    statuses: tuple[RunContainerStatus, ...],
    verdict: TerminationVerdict | None,
    *,
    is_final: bool,
) -> tuple[str, str, str]:
    """Phase, reason, message."""
    for reported in (pod.status, before):
        if reported.phase in FINAL_PHASES:
            return reported.phase, reported.reason, reported.message
    phase = phase_of(pod, statuses, is_final=is_final)
    if is_final and phase not in FINAL_PHASES:
        phase = FAILED
    reason, message = "", ""
    if phase == before.phase:
        reason, message = before.reason or pod.status.reason, before.message or pod.status.message
    if verdict is not None:
        phase, reason, message = FAILED, verdict.reason, verdict.message
    may_run = any(container.phase in ("running", "unknown") for container in seen.containers)
    if phase in FINAL_PHASES and may_run and not is_final:
        return before.phase or PENDING, before.reason, before.message
    return phase, reason, message


def phase_of(pod: RunPod, statuses: tuple[RunContainerStatus, ...], *, is_final: bool = False) -> str:
    """From the containers alone."""
    by_name = {each.name: each for each in statuses}
    tally = _Tally(pod.spec.restart_policy or ALWAYS)
    for container in pod.spec.init_containers:
        status = by_name.get(container.name)
        tally.count_sidecar(status) if is_sidecar(container) else tally.count_init(container, status)
    for container in pod.spec.containers:
        tally.count(container, by_name.get(container.name))
    if tally.failed_inits:
        return FAILED
    begun = any(
        status.state.running is not None or status.state.terminated is not None
        for status in (by_name.get(container.name) for container in pod.spec.containers)
        if status is not None
    )
    if (tally.pending_inits and not begun) or tally.waiting or tally.unknown:
        return PENDING
    if tally.running:
        return RUNNING
    if not tally.stopped:
        return PENDING
    has_succeeded = tally.stopped == tally.succeeded
    if is_final and not is_static(pod):
        return SUCCEEDED if has_succeeded else FAILED
    if tally.restarting:
        return RUNNING
    return SUCCEEDED if has_succeeded else FAILED


class _Tally:
    """Containers by state. A waiting container that has terminated before counts as stopped. `failed_inits` and
    `restarting`: stopped, and not or to be started again."""

    def __init__(self, policy: str) -> None:
        self._policy = policy
        self.pending_inits = self.failed_inits = 0
        self.unknown = self.running = self.waiting = self.stopped = self.succeeded = self.restarting = 0

    def count_init(self, container: RunContainer, status: RunContainerStatus | None) -> None:
        ended = None if status is None else status.state.terminated
        if status is not None and ended is None and status.state.running is None:
            ended = status.last_state.terminated
        if ended is None:
            self.pending_inits += 1
        elif ended.exit_code != 0:
            self.failed_inits += not self._is_restarted(container, ended)

    def count_sidecar(self, status: RunContainerStatus | None) -> None:
        """A terminated sidecar is not counted."""
        if status is None:
            self.unknown += 1
        elif status.state.running is not None:
            self.running += 1
            self.pending_inits += not status.started
        elif status.state.terminated is None and status.last_state.terminated is None:
            self.pending_inits += 1
            self.waiting += 1

    def _is_restarted(self, container: RunContainer, ended: Terminated) -> bool:
        return ended.reason == RESTARTING_ALL or is_restarted(container, self._policy, ended.exit_code)

    def count(self, container: RunContainer, status: RunContainerStatus | None) -> None:
        if status is None:
            self.unknown += 1
        elif status.state.running is not None:
            self.running += 1
        elif status.state.terminated is not None:
            self.stopped += 1
            self.succeeded += status.state.terminated.exit_code == 0
            self.restarting += self._is_restarted(container, status.state.terminated)
        elif status.last_state.terminated is not None:
            self.stopped += 1
            self.restarting += self._is_restarted(container, status.last_state.terminated)
        else:
            self.waiting += 1


# Addresses


def _with_addresses(pod: RunPod, seen: ObservedPod, before: RunStatus, shown: RunStatus, node: NodeView) -> RunStatus:
    sandbox = seen.sandbox()
    own: tuple[str, ...] = (sandbox.ip,) if sandbox is not None and sandbox.ready and sandbox.ip else ()
    if not own and pod.spec.host_network:
        own = node.host_ips
    pod_ips = tuple(IpAddress(each) for each in own) or before.pod_ips
    host_ips = tuple(IpAddress(each) for each in node.host_ips)
    return msgspec.structs.replace(
        shown,
        pod_ips=pod_ips,
        pod_ip=pod_ips[0].ip if pod_ips else "",
        host_ip=node.host_ips[0] if node.host_ips else before.host_ip,
        host_ips=host_ips if node.profile.host_ips_reported else (),
    )


# Conditions


def _conditions(
    pod: RunPod,
    seen: ObservedPod,
    before: RunStatus,
    shown: RunStatus,
    profile: Profile,
    verdict: TerminationVerdict | None,
    others: tuple[RunCondition, ...],
) -> list[RunCondition]:
    """Conditions of other controllers first, then the node's in the kubelet's order."""
    ours = OWN_CONDITIONS | PASSING_CONDITIONS | {other.type for other in others}
    conditions = [condition for condition in pod.status.conditions if condition.type not in ours]
    conditions.extend(others)
    generation = shown.observed_generation
    disruption = next((condition for condition in before.conditions if condition.type == DISRUPTION_TARGET), None)
    if verdict is not None and verdict.is_disruption:
        disruption = RunCondition(
            DISRUPTION_TARGET,
            "True",
            BY_NODE,
            verdict.condition_message or verdict.message,
            observed_generation=generation,
        )
    if disruption is not None:
        conditions = [condition for condition in conditions if condition.type != DISRUPTION_TARGET]
        conditions.append(disruption)
    inputs = ConditionInputs(pod, (*shown.init_container_statuses, *shown.container_statuses), shown.phase, generation)
    if profile.ready_to_start_condition:
        conditions.append(ready_to_start(inputs, seen, with_reason=profile.ready_to_start_reason))
    conditions.append(initialized(inputs))
    ready = pod_ready(inputs, conditions)
    conditions += [ready, containers_ready(inputs), inputs.condition(SCHEDULED, True)]
    if may_restart_all(pod):
        conditions.append(all_restarting(inputs, is_restarting=bool(causes_of_restart_of_all(pod, seen))))
    return conditions


def _is_restarting_all(pod: RunPod, seen: ObservedPod, before: RunStatus) -> bool:
    """Until the containers that a restart rule has ended are started again; their records are removed before."""
    if not may_restart_all(pod):
        return False
    was = any(each.type == ALL_RESTARTING and each.status == "True" for each in before.conditions)
    has_records = any(seen.newest(each.name) for each in (*pod.spec.init_containers, *pod.spec.containers))
    return bool(causes_of_restart_of_all(pod, seen)) or (was and not has_records)


def _dated(
    conditions: Iterable[RunCondition], before: RunStatus, stored: RunStatus, now_s: float
) -> tuple[RunCondition, ...]:
    """A condition's time changes only with its status."""
    known = {condition.type: condition for condition in (*stored.conditions, *before.conditions)}
    return tuple(_with_time(condition, known.get(condition.type), now_s) for condition in conditions)


def _with_time(condition: RunCondition, before: RunCondition | None, now_s: float) -> RunCondition:
    if condition.last_transition_time is not None:
        return condition
    if before is not None and before.status == condition.status and before.last_transition_time is not None:
        return msgspec.structs.replace(condition, last_transition_time=before.last_transition_time)
    return msgspec.structs.replace(condition, last_transition_time=rfc3339(now_s))
