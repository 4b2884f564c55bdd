"""The nearest request that the API server would take, for one that it refuses (03 §4.2).

The wish is bent as little as may be: limits no lower than requests, the QoS class as it was, or both; no more than the
pod's own block has; nothing taken away. What comes out is asked of the same rule that refused the wish, and a request
that would change nothing is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

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


def near_wishes(old: PodVersion, new: PodVersion, errors: Errors, *, gates: Gates = DEFAULT_GATES) -> Iterator[Pod]:
    """Those that validation takes, the nearest first. `errors`: its answer to the step from one to the other."""
    for found in (*_bent(old.pod, new.pod, gates), *_bent(old.pod, _each(old.pod, new.pod, _whole), gates)):
        # Documents are compared for what is neither cpu nor memory, so the one that was asked with will do.
        if is_change(old.pod, found) and not errors(old, PodVersion(new.document, found)):
            yield found


def _bent(old: Pod, new: Pod, gates: Gates) -> Iterator[Pod]:
    ordered = _with_ordered(old, new)
    yield ordered
    yield from _same_class(old, new, gates)
    yield from _same_class(old, ordered, gates)
    if gates.pod_level:
        yield _within_level(old, ordered)


def _whole(before: Container | None, after: Container) -> Container:
    """What was taken away is there again."""
    if before is None:
        return after
    requests, limits = ({**_list(before.resources, kind), **_list(after.resources, kind)} or None for kind in LISTS)
    return msgspec.structs.replace(after, resources=Resources(requests, limits, after.resources.claims))


def is_change(old: Pod, new: Pod) -> bool:
    pairs = zip(all_containers(old.spec), all_containers(new.spec), strict=False)
    return not same_pod_level(old.spec.resources, new.spec.resources) or any(
        not same_resources(before.resources, after.resources) for before, after in pairs
    )


def _with_ordered(old: Pod, new: Pod) -> Pod:
    return _each(old, new, _ordered)


def _ordered(before: Container | None, after: Container) -> Container:
    """A limit below its request: the request is lowered where only the limit was changed, else the limit is raised."""
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


def _within_level(old: Pod, new: Pod) -> Pod:
    """Containers whose wish is more than the pod's own block leaves them: as much as it does."""
    own = new.spec.resources or NO_RESOURCES
    bent = _each(old, new, _limited(_list(own, "limits")))
    before = {each.name: each for each in all_containers(old.spec)}
    for name, most in _list(own, "requests").items():
        for container in all_containers(new.spec) if name in RESIZED else ():
            was = before.get(container.name, Container())
            request, had = _amounts(container, name)[0] or ZERO, _amounts(was, name)[0] or ZERO
            excess = container_requests(bent).get(name, ZERO) - most
            if excess > ZERO and request > had:
                bent = _each(old, bent, _requesting(container.name, name, max(had, request - excess)))
    return bent


def _limited(most: ResourceList) -> Callable[[Container | None, Container], Container]:
    def change(before: Container | None, after: Container) -> Container:
        had = {} if before is None else _list(before.resources, "limits")
        limits = {
            name: min(amount, most.get(name, amount)) if name in RESIZED and amount != had.get(name) else amount
            for name, amount in _list(after.resources, "limits").items()
        }
        return msgspec.structs.replace(after, resources=msgspec.structs.replace(after.resources, limits=limits or None))

    return change


def _same_class(old: Pod, new: Pod, gates: Gates) -> Iterator[Pod]:
    """For a refusal because of the class: the wish, bent so that the class stays, the nearest first."""
    wanted_class = qos_class(old, gates=gates)
    if computed_qos_class(new, gates=gates) == wanted_class:
        return
    bent = _all_equal(old, new) if wanted_class == GUARANTEED else _one_below(old, new)
    for found in bent if wanted_class in (GUARANTEED, BURSTABLE) else ():
        if computed_qos_class(found, gates=gates) == wanted_class:
            yield found


def _all_equal(old: Pod, new: Pod) -> Iterator[Pod]:
    yield _each(old, new, _bent_guaranteed)


def _one_below(old: Pod, new: Pod) -> Iterator[Pod]:
    """A Burstable pod that would become Guaranteed: one request that the wish touched stays a little below its limit;
    else all requests as they were."""
    before = {each.name: each for each in all_containers(old.spec)}
    for container in all_containers(new.spec):
        was = before.get(container.name)
        for name in RESIZED:
            request, limit = _amounts(container, name)
            if limit is not None and request == limit and was is not None and _amounts(was, name) != (limit, limit):
                yield _each(old, new, _lowered(container.name, name, limit))
    yield _each(old, new, _old_requests)


def _amounts(container: Container, name: str) -> tuple[Quantity | None, Quantity | None]:
    return _list(container.resources, "requests").get(name), _list(container.resources, "limits").get(name)


def _lowered(container: str, name: str, limit: Quantity) -> Callable[[Container | None, Container], Container]:
    return _requesting(container, name, from_milli(limit.milli - 1) if name == CPU else _memory_below(limit.value))


def _requesting(container: str, name: str, amount: Quantity) -> Callable[[Container | None, Container], Container]:
    def change(_before: Container | None, after: Container) -> Container:
        if after.name != container:
            return after
        requests = {**_list(after.resources, "requests"), name: amount}
        return msgspec.structs.replace(after, resources=msgspec.structs.replace(after.resources, requests=requests))

    return change


def _memory_below(limit_bytes: int) -> Quantity:
    """A whole number of MiB where there is one, so that it can be typed."""
    below = (limit_bytes - 1) // MIB * MIB
    return from_units(below or limit_bytes - 1, "BinarySI")


def _each(old: Pod, new: Pod, bent: Callable[[Container | None, Container], Container]) -> Pod:
    before = {each.name: each for each in all_containers(old.spec)}
    spec = msgspec.structs.replace(
        new.spec,
        containers=tuple(bent(before.get(each.name), each) for each in new.spec.containers),
        init_containers=tuple(bent(before.get(each.name), each) for each in new.spec.init_containers),
    )
    return msgspec.structs.replace(new, spec=spec)


def _bent_guaranteed(before: Container | None, after: Container) -> Container:
    """Request and limit equal: whichever of the two was changed counts, the larger where both were."""
    requests, limits = dict(_list(after.resources, "requests")), dict(_list(after.resources, "limits"))
    for name in RESIZED:
        had = None if before is None else _list(before.resources, "limits").get(name)
        asked = [amount for amount in (requests.get(name), limits.get(name)) if amount is not None and amount != had]
        chosen = max(asked, default=had)
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
