"""The nearest resize request that the API server would accept, for one that it refuses (03 §4.2).

The desired amounts are adjusted as little as possible: limits no lower than requests, the QoS class unchanged, or both;
no more than the pod level allows; nothing removed. The rule that refused the request must accept the result, and the
result must change something.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec

from plimsoll.errors import FieldError
from plimsoll.rules.admission.comparison import LISTS, PodVersion
from plimsoll.rules.model.gates import DEFAULT_GATES, Gates
from plimsoll.rules.model.objects import CPU, MEMORY, NO_RESOURCES, Container, Pod, ResourceList, Resources
from plimsoll.rules.quantity import ZERO, Quantity, from_milli, from_units
from plimsoll.rules.resize.allocation import all_containers, same_pod_level, same_resources
from plimsoll.rules.resources.effective import container_requests
from plimsoll.rules.resources.qos import BURSTABLE, GUARANTEED, computed_qos_class, qos_class

RESIZED = (CPU, MEMORY)
MIB = 1 << 20
Errors = Callable[[PodVersion, PodVersion], list[FieldError]]
Change = Callable[[Container | None, Container], Container]  # the container before, if any, and as requested


def nearest_requests(
    old: PodVersion, new: PodVersion, errors: Errors, *, gates: Gates = DEFAULT_GATES
) -> Iterator[Pod]:
    """Pods that validation accepts, the nearest first. `errors`: the result of validation for an update."""
    complete = _map_containers(old.pod, new.pod, _with_removed)
    for pod in (*_adjusted(old.pod, new.pod, gates), *_adjusted(old.pod, complete, gates)):
        # Documents are compared for what is neither cpu nor memory, so the requested one can be used.
        if is_change(old.pod, pod) and not errors(old, PodVersion(new.document, pod)):
            yield pod


def _adjusted(old: Pod, new: Pod, gates: Gates) -> Iterator[Pod]:
    ordered = _map_containers(old, new, _ordered)
    yield ordered
    yield from _same_class(old, new, gates)
    yield from _same_class(old, ordered, gates)
    if gates.pod_level:
        yield _within_pod_level(old, ordered)


def _with_removed(before: Container | None, after: Container) -> Container:
    """With the amounts that the request removed."""
    if before is None:
        return after
    requests, limits = ({**_list(before.resources, kind), **_list(after.resources, kind)} or None for kind in LISTS)
    return msgspec.structs.replace(after, resources=Resources(requests, limits, after.resources.claims))


def is_change(old: Pod, new: Pod) -> bool:
    pairs = zip(all_containers(old.spec), all_containers(new.spec), strict=False)
    return not same_pod_level(old.spec.resources, new.spec.resources) or any(
        not same_resources(before.resources, after.resources) for before, after in pairs
    )


def _ordered(before: Container | None, after: Container) -> Container:
    """For a limit below its request: lower the request if only the limit was changed, else raise the limit."""
    requests, limits = dict(_list(after.resources, "requests")), dict(_list(after.resources, "limits"))
    for name in RESIZED:
        request, limit = requests.get(name), limits.get(name)
        if request is None or limit is None or request <= limit:
            continue
        if before is not None and _list(before.resources, "requests").get(name) == request:
            requests[name] = limit
        else:
            limits[name] = request
    return msgspec.structs.replace(
        after, resources=msgspec.structs.replace(after.resources, requests=requests or None, limits=limits or None)
    )


def _within_pod_level(old: Pod, new: Pod) -> Pod:
    """Reduce container amounts to what the pod level leaves them."""
    pod_level = new.spec.resources or NO_RESOURCES
    adjusted = _map_containers(old, new, _limited(_list(pod_level, "limits")))
    before = {container.name: container for container in all_containers(old.spec)}
    for name, most in _list(pod_level, "requests").items():
        for container in all_containers(new.spec) if name in RESIZED else ():
            was = before.get(container.name, Container())
            request, had = _amounts(container, name)[0] or ZERO, _amounts(was, name)[0] or ZERO
            excess = container_requests(adjusted).get(name, ZERO) - most
            if excess > ZERO and request > had:
                change = _requesting(container.name, name, max(had, request - excess))
                adjusted = _map_containers(old, adjusted, change)
    return adjusted


def _limited(most: ResourceList) -> Change:
    def change(before: Container | None, after: Container) -> Container:
        had = {} if before is None else _list(before.resources, "limits")
        limits = {
            name: min(amount, most.get(name, amount)) if name in RESIZED and amount != had.get(name) else amount
            for name, amount in _list(after.resources, "limits").items()
        }
        return msgspec.structs.replace(after, resources=msgspec.structs.replace(after.resources, limits=limits or None))

    return change


def _same_class(old: Pod, new: Pod, gates: Gates) -> Iterator[Pod]:
    """If the QoS class would change: adjusted so that it does not, the nearest first."""
    required = qos_class(old, gates=gates)
    if computed_qos_class(new, gates=gates) == required or required not in (GUARANTEED, BURSTABLE):
        return
    pods: Iterable[Pod] = (_map_containers(old, new, _guaranteed),) if required == GUARANTEED else _one_below(old, new)
    for pod in pods:
        if computed_qos_class(pod, gates=gates) == required:
            yield pod


def _one_below(old: Pod, new: Pod) -> Iterator[Pod]:
    """For a Burstable pod that would become Guaranteed: one changed request stays just below its limit; else all
    requests stay as they were."""
    before = {container.name: container for container in all_containers(old.spec)}
    for container in all_containers(new.spec):
        was = before.get(container.name)
        for name in RESIZED:
            request, limit = _amounts(container, name)
            if limit is not None and request == limit and was is not None and _amounts(was, name) != (limit, limit):
                yield _map_containers(old, new, _lowered(container.name, name, limit))
    yield _map_containers(old, new, _old_requests)


def _amounts(container: Container, name: str) -> tuple[Quantity | None, Quantity | None]:
    return _list(container.resources, "requests").get(name), _list(container.resources, "limits").get(name)


def _lowered(container: str, name: str, limit: Quantity) -> Change:
    return _requesting(container, name, from_milli(limit.milli - 1) if name == CPU else _memory_below(limit.value))


def _requesting(container: str, name: str, amount: Quantity) -> Change:
    def change(_before: Container | None, after: Container) -> Container:
        if after.name != container:
            return after
        requests = {**_list(after.resources, "requests"), name: amount}
        return msgspec.structs.replace(after, resources=msgspec.structs.replace(after.resources, requests=requests))

    return change


def _memory_below(limit_bytes: int) -> Quantity:
    """A whole number of MiB if possible, so that it is easy to type."""
    below = (limit_bytes - 1) // MIB * MIB
    return from_units(below or limit_bytes - 1, "BinarySI")


def _map_containers(old: Pod, new: Pod, change: Change) -> Pod:
    before = {container.name: container for container in all_containers(old.spec)}
    spec = msgspec.structs.replace(
        new.spec,
        containers=tuple(change(before.get(after.name), after) for after in new.spec.containers),
        init_containers=tuple(change(before.get(after.name), after) for after in new.spec.init_containers),
    )
    return msgspec.structs.replace(new, spec=spec)


def _guaranteed(before: Container | None, after: Container) -> Container:
    """Request and limit become equal: the one that was changed decides, the larger if both were."""
    requests, limits = dict(_list(after.resources, "requests")), dict(_list(after.resources, "limits"))
    for name in RESIZED:
        had = None if before is None else _list(before.resources, "limits").get(name)
        changed = [amount for amount in (requests.get(name), limits.get(name)) if amount is not None and amount != had]
        chosen = max(changed, default=had)
        if chosen is not None:
            requests[name] = limits[name] = chosen
    return msgspec.structs.replace(
        after, resources=msgspec.structs.replace(after.resources, requests=requests, limits=limits)
    )


def _old_requests(before: Container | None, after: Container) -> Container:
    if before is None:
        return after
    resources = Resources(before.resources.requests, after.resources.limits, after.resources.claims)
    return msgspec.structs.replace(after, resources=resources)


def _list(resources: Resources, kind: str) -> ResourceList:
    return (resources.requests if kind == "requests" else resources.limits) or {}
