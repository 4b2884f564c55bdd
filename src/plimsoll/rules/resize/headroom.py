"""Headroom for a resize that the node cannot accept: the shortfall, the pods to remove, the largest request that fits.

Every answer comes from `resize_verdict` itself: amounts are found by searching with it, and the pods to remove are
those without which it would accept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from plimsoll.errors import FieldError
from plimsoll.rules.model.objects import CPU, MEMORY, NO_RESOURCES, Container, Pod, ResourceList, Resources
from plimsoll.rules.node.admission import shortfalls
from plimsoll.rules.quantity import ZERO, Quantity, from_milli, from_units
from plimsoll.rules.resize.allocation import Allocation, all_containers, allocated_pod, whole_amount, with_containers
from plimsoll.rules.resize.verdict import ResizeSetting, resize_verdict
from plimsoll.rules.resources.effective import pod_level_requests_set
from plimsoll.rules.resources.qos import GUARANTEED, qos_class
from plimsoll.rules.scheduling.fit import PodLoad, load_key

RESIZED = (CPU, MEMORY)
WHOLE_CPU_MILLI = 1000


class PodRemoval(msgspec.Struct, frozen=True):
    """Pods that must all be removed for a deferred resize to fit; none where removing every other pod is not enough."""

    pods: tuple[str, ...]  # namespace/name
    freed: Mapping[str, Quantity]  # by these pods, or by all others where these are not enough
    then: str = ""  # the verdict's message if the resize would still not be accepted


class LargestRequest(msgspec.Struct, frozen=True):
    """The largest request that fits, with the other desired amounts of this resource; None: not even the smallest."""

    container: str  # "" for the pod level
    resource: str
    ever: Quantity | None  # with no other pod on the node
    now: Quantity | None


def short_of(pod: Pod, setting: ResizeSetting) -> dict[str, Quantity]:
    return {name: _quantity(name, amount) for name, amount in _short(pod, setting).items()}


def _short(pod: Pod, setting: ResizeSetting) -> dict[str, int]:
    return {
        shortfall.resource: shortfall.requested + shortfall.used - shortfall.capacity
        for shortfall in shortfalls(pod, setting.load)
        if shortfall.resource in RESIZED
    }


# --- the pods to remove ---


def leaving(pod: Pod, allocation: Allocation, setting: ResizeSetting) -> PodRemoval | None:
    """None if neither cpu nor memory is short, or if the pod does not fit on the empty node."""
    short = _short(pod, setting)
    if not short or any(shortfall.unresolvable for shortfall in shortfalls(pod, setting.load)):
        return None
    others = list(setting.load.without_pods([load_key(pod)]).residents.values())
    removed = _enough(short, others)
    if not removed:
        return PodRemoval((), _freed(short, others))
    without = setting.load.without_pods(load.key for load in removed)
    verdict = resize_verdict(pod, allocation, msgspec.structs.replace(setting, load=without))
    return PodRemoval(tuple(_title(load.pod) for load in removed), _freed(short, removed), verdict.message)


def _enough(short: Mapping[str, int], others: Sequence[PodLoad]) -> list[PodLoad]:
    """The smallest single pod that frees enough; else the pods that free most, without those that are not needed.
    Empty if all pods together do not free enough."""
    sufficient = [pod for pod in others if _covers(short, [pod])]
    if sufficient:
        return [min(sufficient, key=lambda pod: _share(short, pod))]
    removed: list[PodLoad] = []
    missing, rest = dict(short), list(others)
    while missing:
        if not rest:
            return []
        best = max(rest, key=lambda pod: _share(missing, pod, most=1.0))
        rest.remove(best)
        removed.append(best)
        missing = {name: amount - _frees(best, name) for name, amount in missing.items() if amount > _frees(best, name)}
    for pod in sorted(removed, key=lambda pod: _share(short, pod)):
        fewer = [other for other in removed if other is not pod]
        if _covers(short, fewer):
            removed = fewer
    return removed


def _covers(short: Mapping[str, int], pods: Sequence[PodLoad]) -> bool:
    return all(sum(_frees(pod, name) for pod in pods) >= amount for name, amount in short.items())


def _share(short: Mapping[str, int], pod: PodLoad, *, most: float = float("inf")) -> float:
    """The share of the shortfall that the pod frees, summed over resources; each resource counts up to `most`."""
    return sum(min(_frees(pod, name) / amount, most) for name, amount in short.items())


def _frees(pod: PodLoad, name: str) -> int:
    return pod.requests.get(name, 0)


def _freed(short: Mapping[str, int], pods: Sequence[PodLoad]) -> dict[str, Quantity]:
    return {name: _quantity(name, sum(_frees(pod, name) for pod in pods)) for name in short}


# --- the largest request that fits ---


def most_that_fits(
    desired: Pod,
    allocation: Allocation,
    setting: ResizeSetting,
    resources: Sequence[str],
    api_errors: Callable[[Pod], Sequence[FieldError]],
) -> tuple[LargestRequest, ...]:
    """For each request that `desired` raises. `api_errors`: the errors of API validation for a pod."""
    alone = msgspec.structs.replace(
        setting,
        load=setting.load.without_pods(list(setting.load.residents)),
        conditions=(),
        refusals=(),
        cpu_refusal=lambda _pod: None,
    )

    allocated = allocated_pod(desired, allocation)
    projections = {name: _for_resource(name, desired, allocated) for name in RESIZED}

    def largest(container: str, name: str, node: ResizeSetting) -> Quantity | None:
        step = _step(desired, name, setting)

        def fits(amount: int) -> bool:
            pod = with_request(projections[name], container, name, _quantity(name, amount))
            verdict = resize_verdict(pod, allocation, node)
            return verdict.decision in ("Accepted", "NoChange") and not api_errors(pod)

        lowest, bound = _allocated_amount(allocated, container, name), node.load.allocatable.get(name, 0)
        amount = _largest(fits, lowest, bound=bound, step=step)
        return None if amount is None else _quantity(name, amount)

    return tuple(
        LargestRequest(container, name, largest(container, name, alone), largest(container, name, setting))
        for container, name in _raised(desired, allocated, setting)
        if name in resources
    )


def _raised(desired: Pod, allocated: Pod, setting: ResizeSetting) -> Iterator[tuple[str, str]]:
    """The requests that are larger than allocated: the pod level's where it is set, else the containers'."""
    pod_level = desired.spec.resources or NO_RESOURCES
    has_pod_level = setting.gates.pod_level and pod_level_requests_set(pod_level)
    for name in RESIZED:
        if has_pod_level and name in (pod_level.requests or {}):
            if _request(pod_level, name) > _request(allocated.spec.resources or NO_RESOURCES, name):
                yield "", name
            continue
        for before, after in zip(all_containers(allocated.spec), all_containers(desired.spec), strict=True):
            if _request(after.resources, name) > _request(before.resources, name):
                yield after.name, name


def _for_resource(name: str, desired: Pod, allocated: Pod) -> Pod:
    """This resource as desired, all others as allocated: whether cpu is short does not depend on memory."""

    def mixed_resources(after: Resources, before: Resources) -> Resources:
        return msgspec.structs.replace(
            after,
            requests=_mixed(name, after.requests, before.requests),
            limits=_mixed(name, after.limits, before.limits),
        )

    before = {container.name: container.resources for container in all_containers(allocated.spec)}
    pod = with_containers(
        desired,
        lambda after: msgspec.structs.replace(after, resources=mixed_resources(after.resources, before[after.name])),
    )
    if (pod_level := desired.spec.resources) is None:
        return pod
    mixed = mixed_resources(pod_level, allocated.spec.resources or NO_RESOURCES)
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, resources=mixed))


def _mixed(name: str, desired: ResourceList | None, allocated: ResourceList | None) -> ResourceList | None:
    others = {key: amount for key, amount in (allocated or {}).items() if key != name}
    mixed = {**others, **({name: desired[name]} if desired and name in desired else {})}
    return mixed or None


def with_request(pod: Pod, container: str, name: str, amount: Quantity) -> Pod:
    def changed(candidate: Container) -> Container:
        if candidate.name != container:
            return candidate
        return msgspec.structs.replace(candidate, resources=_requesting(candidate.resources, name, amount))

    if not container:
        own = _requesting(pod.spec.resources or NO_RESOURCES, name, amount)
        return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, resources=own))
    return with_containers(pod, changed)


def _requesting(resources: Resources, name: str, amount: Quantity) -> Resources:
    """A limit that equals the request is changed with it."""
    requests, limits = dict(resources.requests or {}), resources.limits
    if limits and limits.get(name) == requests.get(name):
        limits = {**limits, name: amount}
    return msgspec.structs.replace(resources, requests={**requests, name: amount}, limits=limits)


def _step(pod: Pod, name: str, setting: ResizeSetting) -> int:
    """Under the static CPU manager policy Guaranteed pods have whole CPUs."""
    whole = name == CPU and setting.static_cpus and not setting.gates.exclusive_cpus
    is_guaranteed = qos_class(pod, gates=setting.gates) == GUARANTEED
    return WHOLE_CPU_MILLI if whole and is_guaranteed else 1


def _allocated_amount(pod: Pod, container: str, name: str) -> int:
    resources = pod.spec.resources or NO_RESOURCES
    if container:
        resources = next(each.resources for each in all_containers(pod.spec) if each.name == container)
    return whole_amount(resources.requests, name)


def _largest(fits: Callable[[int], bool], lowest: int, *, bound: int, step: int) -> int | None:
    """The largest multiple of `step` up to `bound` that fits: a binary search, first from `lowest`, what is allocated.

    Below `lowest` the API may refuse small amounts, for example a pod level below the sum of its containers."""
    fitting, failing = -(-lowest // step), bound // step + 1
    if fitting >= failing or not fits(fitting * step):
        fitting = 0
    while failing - fitting > 1:
        middle = (fitting + failing) // 2
        if fits(middle * step):
            fitting = middle
        else:
            failing = middle
    return fitting * step if fitting else None


def _request(resources: Resources, name: str) -> Quantity:
    return (resources.requests or {}).get(name, ZERO)


def _quantity(name: str, amount: int) -> Quantity:
    return from_milli(amount) if name == CPU else from_units(amount, "BinarySI")


def _title(pod: Pod) -> str:
    return f"{pod.metadata.namespace or 'default'}/{pod.metadata.name}"
