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
from plimsoll.rules.model.objects import CPU, MEMORY, NO_RESOURCES, Container, Pod, ResourceList, Resources, listed
from plimsoll.rules.quantity import ZERO, Quantity, from_milli, from_units
from plimsoll.rules.resize.allocation import all_containers, same_pod_level, same_resources, with_containers
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
    requests, limits = ({**listed(before.resources, kind), **listed(after.resources, kind)} or None for kind in LISTS)
    return _with_lists(after, requests, limits)


def is_change(old: Pod, new: Pod) -> bool:
    pairs = zip(all_containers(old.spec), all_containers(new.spec), strict=False)
    return not same_pod_level(old.spec.resources, new.spec.resources) or any(
        not same_resources(before.resources, after.resources) for before, after in pairs
    )


def _ordered(before: Container | None, after: Container) -> Container:
    """For a limit below its request: lower the request if only the limit was changed, else raise the limit."""
    requests, limits = dict(listed(after.resources, "requests")), dict(listed(after.resources, "limits"))
    for name in RESIZED:
        request, limit = requests.get(name), limits.get(name)
        if request is None or limit is None or request <= limit:
            continue
        if before is not None and listed(before.resources, "requests").get(name) == request:
            requests[name] = limit
        else:
            limits[name] = request
    return _with_lists(after, requests or None, limits or None)


def _within_pod_level(old: Pod, new: Pod) -> Pod:
    """Reduce container amounts to what the pod level leaves them."""
    pod_level = new.spec.resources or NO_RESOURCES
    adjusted = _map_containers(old, new, _limited(listed(pod_level, "limits")))
    before = {container.name: container for container in all_containers(old.spec)}
    for name, most in listed(pod_level, "requests").items():
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
        had = {} if before is None else listed(before.resources, "limits")
        limits = {
            name: min(amount, most.get(name, amount)) if name in RESIZED and amount != had.get(name) else amount
            for name, amount in listed(after.resources, "limits").items()
        }
        return _with_lists(after, after.resources.requests, limits or None)

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
    return listed(container.resources, "requests").get(name), listed(container.resources, "limits").get(name)


def _lowered(container: str, name: str, limit: Quantity) -> Change:
    return _requesting(container, name, from_milli(limit.milli - 1) if name == CPU else _memory_below(limit.value))


def _requesting(container: str, name: str, amount: Quantity) -> Change:
    def change(_before: Container | None, after: Container) -> Container:
        if after.name != container:
            return after
        requests = {**listed(after.resources, "requests"), name: amount}
        return _with_lists(after, requests, after.resources.limits)

    return change


def _memory_below(limit_bytes: int) -> Quantity:
    """A whole number of MiB if possible, so that it is easy to type."""
    below = (limit_bytes - 1) // MIB * MIB
    return from_units(below or limit_bytes - 1, "BinarySI")


def _map_containers(old: Pod, new: Pod, change: Change) -> Pod:
    before = {container.name: container for container in all_containers(old.spec)}
    return with_containers(new, lambda after: change(before.get(after.name), after))


def _guaranteed(before: Container | None, after: Container) -> Container:
    """Request and limit become equal: the one that was changed decides, the larger if both were."""
    requests, limits = dict(listed(after.resources, "requests")), dict(listed(after.resources, "limits"))
    for name in RESIZED:
        had = None if before is None else listed(before.resources, "limits").get(name)
        changed = [amount for amount in (requests.get(name), limits.get(name)) if amount is not None and amount != had]
        chosen = max(changed, default=had)
        if chosen is not None:
            requests[name] = limits[name] = chosen
    return _with_lists(after, requests, limits)


def _old_requests(before: Container | None, after: Container) -> Container:
    return after if before is None else _with_lists(after, before.resources.requests, after.resources.limits)


def _with_lists(container: Container, requests: ResourceList | None, limits: ResourceList | None) -> Container:
    return msgspec.structs.replace(container, resources=Resources(requests, limits, container.resources.claims))
