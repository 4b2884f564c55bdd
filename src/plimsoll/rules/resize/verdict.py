"""The node's verdict on a resize (03 §6), and the order in which pending ones are judged (03 §7).

A pod whose desired resources differ from its allocated ones is treated like a new pod that requests admission beside
the others. First: can the resize ever be done on this node (*Infeasible* if not)? Then: does it fit now (*Deferred* if
not, whatever the reason)? The whole pod is decided at once: all containers or none.

`ResizeVerdict` also carries what follows: the new allocation, the pods that a critical pod preempts, and whether the
resize stays queued.

`resize_setting` derives the `ResizeSetting` of a node from its configuration, for the agent and for forecasts. The
caller adds the pods on the node, its pressure conditions and whether exclusive CPUs are available.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

import msgspec

from plimsoll.rules.eviction.assessment import NodeCondition
from plimsoll.rules.eviction.ranking import ranking_request
from plimsoll.rules.model.gates import DEFAULT_GATES, Gates
from plimsoll.rules.model.kernel import CgroupVersion
from plimsoll.rules.model.objects import CPU, MEMORY, Container, Pod, ResourceList, is_static
from plimsoll.rules.node.admission import AdmissionRefusal, admit
from plimsoll.rules.node.node_config import NodeConfig
from plimsoll.rules.profile import DEFAULT_PROFILE, Profile
from plimsoll.rules.quantity import ZERO, Quantity
from plimsoll.rules.resize.allocation import (
    Allocation,
    all_containers,
    allocated_pod,
    allocation_of,
    is_allocated,
    resizable_containers,
    restarts_for,
    same_pod_level,
    volumes_change,
    whole_amount,
)
from plimsoll.rules.resources.effective import pod_requests
from plimsoll.rules.resources.qos import GUARANTEED, qos_class
from plimsoll.rules.resources.values import uses_limited_swap
from plimsoll.rules.scheduling.fit import NodeLoad

Decision = Literal["Accepted", "Deferred", "Infeasible", "NoChange"]

RETRY_FIRST_S = 30.0
RETRY_S = 180.0


class ResizeSetting(msgspec.Struct, frozen=True):
    """The node around the pod. `load` is `fit.allocated_load`; whether the pod itself is in it does not matter."""

    load: NodeLoad
    profile: Profile = DEFAULT_PROFILE
    gates: Gates = DEFAULT_GATES
    static_cpus: bool = False  # cpuManagerPolicy: static
    static_memory: bool = False  # memoryManagerPolicy: Static
    conditions: tuple[NodeCondition, ...] = ()  # pressure conditions that the node has now
    refusals: tuple[str, ...] = ()  # of admission checks beyond `rules.node.admission`
    absolute_allocatable: ResourceList | None = None  # N-9; without it the Node's allocatable is used
    may_swap: Callable[[Pod, Container], bool] = lambda _pod, _container: False
    # Whether exclusive CPUs are available (02 §10).
    cpu_refusal: Callable[[Pod], AdmissionRefusal | None] = lambda _pod: None
    enabled: bool = True  # InPlacePodVerticalScaling
    cgroup_version: CgroupVersion = 2


class ResizeVerdict(msgspec.Struct, frozen=True):
    decision: Decision
    allocation: Allocation  # in force after the decision
    message: str = ""
    reason: str = ""  # what an event calls it: OutOfcpu, Evicted, Infeasible …
    label: str = ""  # the metric's detail of an infeasible resize
    still_pending: bool = False
    victims: tuple[Pod, ...] = ()  # in the order they are to be killed, before the resize starts


class _Infeasible(msgspec.Struct, frozen=True):
    message: str
    label: str
    reconsidered: bool = False


def resize_verdict(desired: Pod, allocation: Allocation, setting: ResizeSetting) -> ResizeVerdict:
    """03 §6, step by step. `allocation` is the one in force for this pod."""
    if is_allocated(desired, allocation):
        return ResizeVerdict("NoChange", allocation)
    infeasible = _infeasible(desired, allocation, setting)
    if infeasible is not None:
        message, label, reconsidered = msgspec.structs.astuple(infeasible)
        return ResizeVerdict("Infeasible", allocation, message, "Infeasible", label, still_pending=reconsidered)
    also = tuple(AdmissionRefusal("Deferred", refusal) for refusal in setting.refusals)
    admission = admit(
        desired,
        setting.load,
        setting.conditions,
        profile=setting.profile,
        gates=setting.gates,
        managers=lambda: setting.cpu_refusal(desired),
        also=also,
        preempts=not setting.gates.scheduler_preempts,
    )
    if isinstance(admission, AdmissionRefusal):
        return ResizeVerdict("Deferred", allocation, admission.event_text, admission.reason, still_pending=True)
    return ResizeVerdict("Accepted", allocation_of(desired, setting.gates), victims=admission.victims)


# --- can it ever be done on this node? (steps 2 to 6) ---


def _infeasible(desired: Pod, allocation: Allocation, setting: ResizeSetting) -> _Infeasible | None:
    if not setting.enabled:
        return _Infeasible("InPlacePodVerticalScaling is disabled", "feature_gate_off")
    if is_static(desired):
        return _Infeasible("In-place resize of static-pods is not supported", "static_pod")
    allocated = allocated_pod(desired, allocation)
    if setting.profile.swap_prevents_resize and _swaps_memory(desired, allocated, setting.may_swap):
        return _Infeasible("In-place resize of containers with swap is not supported.", "swap_limitation")
    if not setting.gates.pod_level_resize and not same_pod_level(desired.spec.resources, allocated.spec.resources):
        return _Infeasible("InPlacePodLevelResourcesVerticalScaling is disabled", "plr_feature_gate_off")
    if setting.cgroup_version == 1 and volumes_change(desired, allocation):
        sentence = "Memory-backed emptyDir volume resize is not supported on cgroups v1"
        return _Infeasible(sentence, "cgroups_v1_unsupported")
    if qos_class(desired, gates=setting.gates) == GUARANTEED:
        refusal = _exclusive_refusal(desired, allocation, setting)
        if refusal is not None:
            return refusal
    return _beyond_capacity(desired, setting) if setting.profile.too_large_is_infeasible else None


def _swaps_memory(desired: Pod, allocated: Pod, may_swap: Callable[[Pod, Container], bool]) -> bool:
    """Step 3: a memory request decides how much a container may swap, and that is not changed in place."""
    before = {container.name: container for container in all_containers(allocated.spec)}
    for container in all_containers(desired.spec):
        old = before[container.name]
        if _request(container, MEMORY) == _request(old, MEMORY) or restarts_for(container, MEMORY):
            continue
        if may_swap(desired, container) or may_swap(allocated, old):
            return True
    return False


def _exclusive_refusal(desired: Pod, allocation: Allocation, setting: ResizeSetting) -> _Infeasible | None:
    """Step 5. Only containers' requests are compared, so a change of the pod level alone passes."""
    gates, profile = setting.gates, setting.profile
    if profile.exclusive_resize_any and gates.exclusive_cpus:  # in 1.32 and 1.33 one gate for CPUs and memory
        return None
    if setting.static_cpus and profile.exclusive_resize_any:
        return _Infeasible(
            "Resize is infeasible for Guaranteed Pods alongside CPU Manager static policy",
            "guaranteed_pod_cpu_manager_static_policy",
        )
    if setting.static_cpus and not gates.exclusive_cpus:
        changed = _changed_requests(desired, allocation, CPU, gates)
        if setting.profile.static_cpu_resize == "infeasible" and changed:
            return _Infeasible(
                'Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"',
                "guaranteed_pod_cpu_manager_static_policy",
            )
        for container in changed if setting.profile.static_cpu_resize == "follows" else ():
            if _request(container, CPU).milli % 1000:
                return _Infeasible(
                    'Resize is infeasible: CPU Manager policy "static" allows whole CPUs only, '
                    f"container {container.name} asks for {_request(container, CPU)}",
                    "guaranteed_pod_cpu_manager_static_policy",
                )
    if not setting.static_memory or gates.exclusive_memory or not profile.static_memory_resize_checked:
        return None
    if profile.exclusive_resize_any:
        return _Infeasible(
            "Resize is infeasible for Guaranteed Pods alongside Memory Manager static policy",
            "guaranteed_pod_memory_manager_static_policy",
        )
    if _changed_requests(desired, allocation, MEMORY, gates):
        return _Infeasible(
            'Resize is infeasible for Guaranteed Pods alongside Memory Manager policy "Static"',
            "guaranteed_pod_memory_manager_static_policy",
        )
    return None


def _changed_requests(desired: Pod, allocation: Allocation, name: str, gates: Gates) -> list[Container]:
    return [
        container
        for container in resizable_containers(desired, gates)
        if _request(container, name)
        != (allocation.containers.get(container.name, container.resources).requests or {}).get(name, ZERO)
    ]


def _beyond_capacity(desired: Pod, setting: ResizeSetting) -> _Infeasible | None:
    """Step 6: larger than the whole node. Beside a sidecar of 3 CPUs, a container of 3 CPUs requests 3 up to 1.33."""
    requests = pod_requests(desired, gates=setting.gates)
    if setting.profile.too_large_as_ranked:
        requests = {name: ranking_request(desired, name, gates=setting.gates) for name in (MEMORY, CPU)}
    capacity = setting.absolute_allocatable if setting.profile.too_large_for_absolute else None
    if capacity is None:
        status = setting.load.node.status
        capacity = status.allocatable or status.capacity or {}
    for name in (MEMORY, CPU):
        requested, available = whole_amount(requests, name), whole_amount(capacity, name)
        if requested > available:
            message = f"Node didn't have enough capacity: {name}, requested: {requested}, capacity: {available}"
            return _Infeasible(message, "insufficient_node_allocatable", setting.profile.too_large_reconsidered)
    return None


def _request(container: Container, name: str) -> Quantity:
    return (container.resources.requests or {}).get(name, ZERO)


# --- the queue (03 §7) ---


class PendingResize(msgspec.Struct, frozen=True):
    """`pending_since_s` is the last transition of PodResizePending, if the pod has that condition."""

    desired: Pod
    allocation: Allocation
    pending_since_s: float | None = None


def queue_order(pending: Iterable[PendingResize], gates: Gates = DEFAULT_GATES) -> list[PendingResize]:
    """Resizes that request no more come first, then by priority, then Guaranteed, then the longest waiting."""
    return sorted(pending, key=lambda each: _queue_key(each, gates))


def _queue_key(pending: PendingResize, gates: Gates) -> tuple[bool, int, bool, float]:
    desired = pending.desired
    since = pending.pending_since_s
    return (
        increases_requests(desired, pending.allocation, gates),
        -(desired.spec.priority or 0),
        qos_class(desired, gates=gates) != GUARANTEED,
        float("inf") if since is None else since,
    )


def increases_requests(desired: Pod, allocation: Allocation, gates: Gates = DEFAULT_GATES) -> bool:
    """Does the pod as a whole request more cpu or memory than is allocated to it?"""
    requested, allocated = (pod_requests(pod, gates=gates) for pod in (desired, allocated_pod(desired, allocation)))
    return any(requested.get(name, ZERO) > allocated.get(name, ZERO) for name in (CPU, MEMORY))


def resize_setting(
    setting: NodeConfig,
    load: NodeLoad,
    conditions: tuple[NodeCondition, ...] = (),
    cpu_refusal: Callable[[Pod], AdmissionRefusal | None] = lambda _pod: None,
) -> ResizeSetting:
    config = setting.config

    def may_swap(pod: Pod, container: Container) -> bool:
        return uses_limited_swap(pod, container, qos_class(pod, gates=setting.policy.gates), setting.policy)

    return ResizeSetting(
        load,
        setting.profile,
        setting.policy.gates,
        static_cpus=setting.policy.static_cpus,
        static_memory=config.static_memory,
        conditions=conditions,
        absolute_allocatable=setting.absolute,
        may_swap=may_swap,
        cpu_refusal=cpu_refusal,
        enabled=config.gate("InPlacePodVerticalScaling"),
        cgroup_version=setting.policy.cgroup_version,
    )
