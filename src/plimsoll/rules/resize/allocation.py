"""The allocated resources of a pod: what the node has accepted (03 §1, §6).

Four states follow each other: *desired* (the spec), *allocated* (accepted by the node), *actuated* (sent to the
runtime), *actual* (read back). Allocated and actuated resources are recorded per container as an `Allocation`, whole
resource lists, for the parts that a resize may change. The *allocated pod* is the current spec with exactly those parts
overwritten; all other parts come from the spec immediately, without a decision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec

from plimsoll.rules.admission.validation import RESTART_CONTAINER
from plimsoll.rules.model.gates import DEFAULT_GATES, Gates
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.objects import (
    CPU,
    MEMORY,
    MEMORY_MEDIUM,
    NO_RESOURCES,
    Container,
    Pod,
    PodSpec,
    ResourceList,
    Resources,
    Volume,
    is_sidecar,
)
from plimsoll.rules.quantity import ZERO, Quantity


class Allocation(msgspec.Struct, frozen=True):
    """The checkpoint of one pod: resources by container name, and the pod-level block."""

    containers: dict[str, Resources] = {}
    holds_pod_level: bool = False
    pod_level: Resources | None = None
    volumes: dict[str, Quantity] = {}  # sizeLimit of memory-backed volumes, with their feature gate
    inherited: dict[str, Resources] = {}  # of actuated containers: limits they have from another block than `pod_level`


def allocation_of(pod: Pod, gates: Gates = DEFAULT_GATES) -> Allocation:
    """The record of a pod that is admitted, or of a resize that is accepted."""
    return Allocation(
        {container.name: container.resources for container in resizable_containers(pod, gates)},
        gates.pod_level_resize,
        pod.spec.resources if gates.pod_level_resize else None,
        memory_volumes(pod) if gates.memory_volumes else {},
    )


def memory_volumes(pod: Pod) -> dict[str, Quantity]:
    """The memory-backed emptyDir volumes with a sizeLimit, which a resize may change."""
    return {
        each.name: each.empty_dir.size_limit
        for each in pod.spec.volumes
        if each.empty_dir is not None and each.empty_dir.medium == MEMORY_MEDIUM and each.empty_dir.size_limit
    }


def resizable_containers(pod: Pod, gates: Gates = DEFAULT_GATES) -> Iterator[Container]:
    """Init containers first; those that are not sidecars only with their feature gate."""
    for container in pod.spec.init_containers:
        if gates.init_containers or is_sidecar(container):
            yield container
    yield from pod.spec.containers


def allocated_pod(pod: Pod, allocation: Allocation) -> Pod:
    """The pod that admission, eviction and cgroups use."""
    spec = pod.spec
    init_containers = _overwritten(spec.init_containers, allocation)
    containers = _overwritten(spec.containers, allocation)
    resources = allocation.pod_level if allocation.holds_pod_level else spec.resources
    volumes = _sized(pod, allocation) if allocation.volumes else spec.volumes
    same = init_containers is spec.init_containers and containers is spec.containers and resources is spec.resources
    if same and volumes is spec.volumes:
        return pod
    return msgspec.structs.replace(
        pod,
        spec=msgspec.structs.replace(
            spec, init_containers=init_containers, containers=containers, resources=resources, volumes=volumes
        ),
    )


def _sized(pod: Pod, allocation: Allocation) -> tuple[Volume, ...]:
    limits = {name: allocation.volumes.get(name, limit) for name, limit in memory_volumes(pod).items()}
    return tuple(
        msgspec.structs.replace(each, empty_dir=msgspec.structs.replace(each.empty_dir, size_limit=limits[each.name]))
        if each.empty_dir is not None and each.name in limits
        else each
        for each in pod.spec.volumes
    )


def volumes_change(pod: Pod, allocation: Allocation) -> bool:
    """Whether a memory-backed volume is to get another size."""
    return any(allocation.volumes.get(name, limit) != limit for name, limit in memory_volumes(pod).items())


def _overwritten(containers: tuple[Container, ...], allocation: Allocation) -> tuple[Container, ...]:
    allocated = [allocation.containers.get(container.name, container.resources) for container in containers]
    pairs = list(zip(containers, allocated, strict=True))
    if all(resources is container.resources for container, resources in pairs):
        return containers
    return tuple(msgspec.structs.replace(container, resources=resources) for container, resources in pairs)


def is_allocated(pod: Pod, allocation: Allocation) -> bool:
    """Desired equals allocated: nothing is pending. Quantities compare by value; absent and empty lists are equal
    (§4.1)."""
    if allocation.holds_pod_level and not same_pod_level(pod.spec.resources, allocation.pod_level):
        return False
    if allocation.volumes and volumes_change(pod, allocation):
        return False
    return all(
        same_resources(container.resources, allocation.containers.get(container.name, container.resources))
        for container in all_containers(pod.spec)
    )


def with_pod_limits(resources: Resources, pod_level: Resources | None) -> Resources:
    """A container without a cpu or memory limit has that of the pod level (02 §4.4)."""
    inherited = pod_limits_of(pod_level).limits or {}
    own = resources.limits or {}
    missing = {name: limit for name, limit in inherited.items() if not own.get(name)}
    return msgspec.structs.replace(resources, limits={**own, **missing}) if missing else resources


def pod_limits_of(pod_level: Resources | None) -> Resources:
    """The limits that containers inherit."""
    limits = (pod_level.limits if pod_level is not None else None) or {}
    return Resources(limits={name: limits[name] for name in (CPU, MEMORY) if limits.get(name)} or None)


def actuated_size(actuated: Allocation, name: str) -> Resources:
    """Of one container, with the limits it has from the pod level. Without a record nothing is known of it."""
    own = actuated.containers.get(name, NO_RESOURCES)
    return with_pod_limits(own, actuated.inherited.get(name, actuated.pod_level))


def kept_sizes(actuated: Allocation, names: Iterable[str], pod_level: Resources | None) -> dict[str, Resources]:
    """What these containers have, to be written into a pod with this block: their own resources, and the limits that
    they would otherwise take from it."""
    sizes = {}
    for name in names:
        if name in actuated.containers:
            own, size = actuated.containers[name], actuated_size(actuated, name)
            sizes[name] = own if size == with_pod_limits(own, pod_level) else size
    return sizes


def actuated_after(actuated: Allocation, allocated: Pod, names: Iterable[str], *, pod_level: bool) -> Allocation:
    """The record after these containers, and with `pod_level` the pod's own cgroup, got what is allocated."""
    spec, names = allocated.spec, tuple(names)
    resources = {each.name: each.resources for each in (*all_containers(spec), *spec.ephemeral_containers)}
    containers = {**actuated.containers, **{name: resources[name] for name in names}}
    block = spec.resources if pod_level else actuated.pod_level
    before, now = pod_limits_of(actuated.pod_level), pod_limits_of(spec.resources)
    limits = {name: now if name in names else actuated.inherited.get(name, before) for name in containers}
    inherited = {name: each for name, each in limits.items() if each != pod_limits_of(block)}
    return msgspec.structs.replace(actuated, containers=containers, pod_level=block, inherited=inherited)


def all_containers(spec: PodSpec) -> tuple[Container, ...]:
    return (*spec.init_containers, *spec.containers)


def with_containers(pod: Pod, change: Callable[[Container], Container]) -> Pod:
    spec = pod.spec
    containers, init_containers = tuple(map(change, spec.containers)), tuple(map(change, spec.init_containers))
    return msgspec.structs.replace(
        pod, spec=msgspec.structs.replace(spec, containers=containers, init_containers=init_containers)
    )


def allocated_document(document: JsonObject, allocation: Allocation) -> JsonObject:
    """The pod without its status, with what is allocated in place of what its spec requests."""
    spec: JsonObject = {**document["spec"]}
    for field in ("initContainers", "containers"):
        if field in spec:
            spec[field] = [
                {**each, "resources": _resources_document(allocation.containers[each["name"]], each.get("resources"))}
                if each["name"] in allocation.containers
                else each
                for each in spec[field]
            ]
    if allocation.holds_pod_level and allocation.pod_level is not None:
        spec["resources"] = _resources_document(allocation.pod_level, spec.get("resources"))
    return {**{key: value for key, value in document.items() if key != "status"}, "spec": spec, "status": {}}


def _resources_document(resources: Resources, requested: JsonObject | None) -> JsonObject:
    lists = {"requests": resources.requests, "limits": resources.limits}
    shown = {
        kind: {name: str(amount) for name, amount in amounts.items()}
        for kind, amounts in lists.items()
        if amounts is not None
    }
    others = {key: value for key, value in (requested or {}).items() if key not in lists}
    return {**others, **shown}


def whole_amount(resources: ResourceList | None, name: str) -> int:
    """Milli-cores, bytes or pieces; 0 if absent."""
    quantity = (resources or {}).get(name, ZERO)
    return quantity.milli if name == CPU else quantity.value


def same_resources(left: Resources, right: Resources) -> bool:
    return (
        (left.requests or {}) == (right.requests or {})
        and (left.limits or {}) == (right.limits or {})
        and (left.claims or ()) == (right.claims or ())
    )


def same_pod_level(left: Resources | None, right: Resources | None) -> bool:
    """`spec.resources` is optional as a whole: empty and absent differ."""
    return (left is None) == (right is None) and same_resources(left or NO_RESOURCES, right or NO_RESOURCES)


def restarts_for(container: Container, name: str) -> bool:
    """Whether a change of this resource restarts the container. The first policy that names it decides (§3.1)."""
    for policy in container.resize_policy:
        if policy.resource_name == name:
            return policy.restart_policy == RESTART_CONTAINER
    return False
