"""What is reported of a pod: phase, conditions, addresses, and its containers (04 §7, §11, §12; 05 B7).

A status is computed from what is seen, on top of the status before: times of conditions stay while a condition stays,
reason and message stay with the phase, and a final phase stays for good. While any container may still run, a final
phase is held back, so that nobody takes a pod for ended whose processes live.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from plimsoll.rules.lifecycle.conditions import (
    DISRUPTION_TARGET,
    OWN_CONDITIONS,
    PASSING_CONDITIONS,
    ConditionInputs,
    containers_ready,
    initialized,
    pod_ready,
    ready_to_start,
    scheduled,
)
from plimsoll.rules.lifecycle.container_status import (
    StatusContext,
    container_statuses,
    ended_unknown,
    was_begun,
    with_short_messages,
)
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
)
from plimsoll.rules.model.runnable import ALWAYS, NEVER, RunPod
from plimsoll.rules.profile import DEFAULT_PROFILE, Profile
from plimsoll.rules.resources.qos import qos_class
from plimsoll.rules.timestamps import rfc3339

REJECTED_PREFIX = "Pod was rejected: "


class NodeView(msgspec.Struct, frozen=True):
    """What a status says of its node."""

    host_ips: tuple[str, ...] = ()
    runtime_name: str = "plimsoll"  # of `runtime://id`
    profile: Profile = DEFAULT_PROFILE


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

    `verdict`: the node ends this pod. `is_final`: everything was stopped and nothing will be started again.
    `allocated`: resources by container name where they differ from the spec. `conditions`: those of other rules, such
    as the two of a resize; a type of theirs replaces what the API server has. `resize`: the word for one, where the
    profile has it. `resources`, `allocated_resources`: of the pod as a whole, where it has some of its own.
    """
    before = memory.status if memory.status is not None else pod.status
    ending = is_final or is_ending(pod, before, verdict)
    context = StatusContext(pod, seen, memory, node.profile, node.runtime_name, ending, allocated or {})
    spec = pod.spec
    count = len(spec.containers) + len(spec.init_containers)
    inits = container_statuses(context, spec.init_containers, before.init_container_statuses, is_init=True)
    ordinary = container_statuses(context, spec.containers, before.container_statuses, is_init=False)
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
        nominated_node_name=pod.status.nominated_node_name,
        observed_generation=pod.metadata.generation if node.profile.pod_observed_generation else 0,
    )
    shown = _with_addresses(pod, seen, before, shown, node)
    told = _conditions(pod, seen, before, shown, node.profile, verdict, tuple(conditions))
    return msgspec.structs.replace(shown, conditions=_dated(told, before, pod.status, now_s))


def rejected_status(
    pod: RunPod, reason: str, message: str, now_s: float, profile: Profile = DEFAULT_PROFILE
) -> RunStatus:
    """Of a pod that the node did not admit: Failed, and nothing of it ever ran."""
    generation = pod.metadata.generation if profile.pod_observed_generation else 0
    told = [each for each in pod.status.conditions if each.type not in ("Ready", "ContainersReady")]
    told += [
        RunCondition("Ready", "False", "PodFailed", observed_generation=generation),
        RunCondition("ContainersReady", "False", "PodFailed", observed_generation=generation),
    ]
    return RunStatus(
        phase=FAILED,
        reason=reason,
        message=f"{REJECTED_PREFIX}{message}",
        qos_class=pod.status.qos_class or qos_class(pod),
        start_time=pod.status.start_time or rfc3339(now_s),
        conditions=_dated(told, pod.status, pod.status, now_s),
        observed_generation=generation,
    )


# Containers at the end


def _all_ended(
    pod: RunPod, inits: tuple[RunContainerStatus, ...], ordinary: tuple[RunContainerStatus, ...]
) -> tuple[tuple[RunContainerStatus, ...], tuple[RunContainerStatus, ...]]:
    """Once initialised, every ordinary container has ended somehow; of the init containers, those before the last sign
    of life."""
    if _was_initialised(pod, inits, ordinary):
        ordinary = tuple(ended_unknown(each) for each in ordinary)
    begun = max((index for index, each in enumerate(inits) if was_begun(each)), default=-1)
    return tuple(ended_unknown(each) if index <= begun else each for index, each in enumerate(inits)), ordinary


def _was_initialised(
    pod: RunPod, inits: tuple[RunContainerStatus, ...], ordinary: tuple[RunContainerStatus, ...]
) -> bool:
    if not pod.spec.init_containers or any(was_begun(each) for each in ordinary):
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
    for told in (pod.status, before):
        if told.phase in FINAL_PHASES:
            return told.phase, told.reason, told.message
    phase = phase_of(pod, statuses, is_final=is_final)
    if is_final and phase not in FINAL_PHASES:
        phase = FAILED
    reason, message = "", ""
    if phase == before.phase:
        reason, message = before.reason or pod.status.reason, before.message or pod.status.message
    if verdict is not None:
        phase, reason, message = FAILED, verdict.reason, verdict.message
    may_run = any(each.phase in ("running", "unknown") for each in seen.containers)
    if phase in FINAL_PHASES and may_run and not is_final:
        return before.phase or PENDING, before.reason, before.message
    return phase, reason, message


def phase_of(pod: RunPod, statuses: tuple[RunContainerStatus, ...], *, is_final: bool = False) -> str:
    """From the containers alone."""
    by_name = {each.name: each for each in statuses}
    tally = _Tally()
    for container in pod.spec.init_containers:
        status = by_name.get(container.name)
        tally.count_sidecar(status) if is_sidecar(container) else tally.count_init(status)
    for container in pod.spec.containers:
        tally.count(by_name.get(container.name))
    if tally.failed_inits and pod.spec.restart_policy == NEVER:
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
    if (pod.spec.restart_policy or ALWAYS) == ALWAYS:
        return RUNNING
    if has_succeeded:
        return SUCCEEDED
    return FAILED if pod.spec.restart_policy == NEVER else RUNNING


class _Tally:
    """How many containers are where. A waiting one that has ended before counts as stopped."""

    def __init__(self) -> None:
        self.pending_inits = self.failed_inits = 0
        self.unknown = self.running = self.waiting = self.stopped = self.succeeded = 0

    def count_init(self, status: RunContainerStatus | None) -> None:
        ended = None if status is None else status.state.terminated
        if status is not None and ended is None and status.state.running is None:
            ended = status.last_state.terminated
        if ended is None:
            self.pending_inits += 1
        elif ended.exit_code != 0:
            self.failed_inits += 1

    def count_sidecar(self, status: RunContainerStatus | None) -> None:
        """One that has ended is not taken into account."""
        if status is None:
            self.unknown += 1
        elif status.state.running is not None:
            self.running += 1
            self.pending_inits += not status.started
        elif status.state.terminated is None and status.last_state.terminated is None:
            self.pending_inits += 1
            self.waiting += 1

    def count(self, status: RunContainerStatus | None) -> None:
        if status is None:
            self.unknown += 1
        elif status.state.running is not None:
            self.running += 1
        elif status.state.terminated is not None:
            self.stopped += 1
            self.succeeded += status.state.terminated.exit_code == 0
        elif status.last_state.terminated is not None:
            self.stopped += 1
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
    """Those of others first, then our own in the kubelet's order."""
    ours = OWN_CONDITIONS | PASSING_CONDITIONS | {each.type for each in others}
    told = [each for each in pod.status.conditions if each.type not in ours]
    told.extend(others)
    generation = shown.observed_generation
    disruption = next((each for each in before.conditions if each.type == DISRUPTION_TARGET), None)
    if verdict is not None and verdict.is_disruption:
        disruption = RunCondition(
            DISRUPTION_TARGET,
            "True",
            "TerminationByKubelet",
            verdict.condition_message or verdict.message,
            observed_generation=generation,
        )
    if disruption is not None:
        told = [each for each in told if each.type != DISRUPTION_TARGET]
        told.append(disruption)
    by = ConditionInputs(pod, (*shown.init_container_statuses, *shown.container_statuses), shown.phase, generation)
    if profile.ready_to_start_condition:
        told.append(ready_to_start(by, seen))
    told.append(initialized(by))
    told.append(pod_ready(by, told))
    told.append(containers_ready(by))
    told.append(scheduled(by))
    return told


def _dated(
    told: Iterable[RunCondition], before: RunStatus, stored: RunStatus, now_s: float
) -> tuple[RunCondition, ...]:
    """A condition's time changes only with its status."""
    known = {each.type: each for each in (*stored.conditions, *before.conditions)}
    return tuple(_with_time(each, known.get(each.type), now_s) for each in told)


def _with_time(condition: RunCondition, before: RunCondition | None, now_s: float) -> RunCondition:
    if condition.last_transition_time is not None:
        return condition
    if before is not None and before.status == condition.status and before.last_transition_time is not None:
        return msgspec.structs.replace(condition, last_transition_time=before.last_transition_time)
    return msgspec.structs.replace(condition, last_transition_time=rfc3339(now_s))
