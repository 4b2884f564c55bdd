"""Room for a resize that a node does not take: how much is short, who would have to go, the most that would do.

Whatever is said here was asked of the verdict itself: amounts are searched for by asking it, and pods are named as the
way out only where it would then accept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from plimsoll.errors import FieldError
from plimsoll.rules.model.objects import CPU, MEMORY, NO_RESOURCES, Container, Pod, ResourceList, Resources
from plimsoll.rules.node.admission import shortfalls
from plimsoll.rules.quantity import ZERO, Quantity, from_milli, from_units
from plimsoll.rules.resize.allocation import Allocation, all_containers, allocated_pod
from plimsoll.rules.resize.verdict import ResizeSetting, resize_verdict
from plimsoll.rules.resources.effective import pod_level_requests_set
from plimsoll.rules.resources.qos import GUARANTEED, qos_class
from plimsoll.rules.scheduling.fit import PodLoad, load_key

RESIZED = (CPU, MEMORY)
WHOLE_CPU_MILLI = 1000


class Leaving(msgspec.Struct, frozen=True):
    """Pods without which a deferred resize would fit, all of them together. None: no pods' going would do."""

    pods: tuple[str, ...]  # namespace/name
    freed: Mapping[str, Quantity]  # by them, or by all others where these are not enough
    then: str = ""  # what would still speak against it


class Most(msgspec.Struct, frozen=True):
    """The largest request that would do, beside what else the wish asks of this resource; None: not the smallest."""

    container: str  # "" for the pod's own block
    resource: str
    ever: Quantity | None  # with nobody else on the node
    now: Quantity | None


def short_of(pod: Pod, setting: ResizeSetting) -> dict[str, Quantity]:
    return {name: _quantity(name, amount) for name, amount in _short(pod, setting).items()}


def _short(pod: Pod, setting: ResizeSetting) -> dict[str, int]:
    return {
        each.resource: each.requested + each.used - each.capacity
        for each in shortfalls(pod, setting.load)
        if each.resource in RESIZED
    }


# --- who must go ---


def leaving(pod: Pod, allocation: Allocation, setting: ResizeSetting) -> Leaving | None:
    """None where it is not for want of cpu or memory, or where it is too large for the node without any others."""
    short = _short(pod, setting)
    if not short or any(each.unresolvable for each in shortfalls(pod, setting.load)):
        return None
    others = list(setting.load.without_pods([load_key(pod)]).residents.values())
    gone = _enough(short, others)
    if not gone:
        return Leaving((), _freed(short, others))
    without = setting.load.without_pods(each.key for each in gone)
    verdict = resize_verdict(pod, allocation, msgspec.structs.replace(setting, load=without))
    return Leaving(tuple(_title(each.pod) for each in gone), _freed(short, gone), verdict.message)


def _enough(short: Mapping[str, int], others: Sequence[PodLoad]) -> list[PodLoad]:
    """One pod that does it alone, the smallest of such; else the ones that help most, without those that turn out not
    to be needed. Empty where all together do not suffice."""
    alone = [each for each in others if _covers(short, [each])]
    if alone:
        return [min(alone, key=lambda each: _share(short, each))]
    gone: list[PodLoad] = []
    left, rest = dict(short), list(others)
    while left:
        if not rest:
            return []
        best = max(rest, key=lambda each: _share(left, each, most=1.0))
        rest.remove(best)
        gone.append(best)
        left = {name: amount - _frees(best, name) for name, amount in left.items() if amount > _frees(best, name)}
    for each in sorted(gone, key=lambda each: _share(short, each)):
        fewer = [other for other in gone if other is not each]
        if _covers(short, fewer):
            gone = fewer
    return gone


def _covers(short: Mapping[str, int], pods: Sequence[PodLoad]) -> bool:
    return all(sum(_frees(pod, name) for pod in pods) >= amount for name, amount in short.items())


def _share(short: Mapping[str, int], pod: PodLoad, *, most: float = float("inf")) -> float:
    """How much of what is short it frees, summed over resources; more than `most` of one counts no more."""
    return sum(min(_frees(pod, name) / amount, most) for name, amount in short.items())


def _frees(pod: PodLoad, name: str) -> int:
    return pod.requests.get(name, 0)


def _freed(short: Mapping[str, int], pods: Sequence[PodLoad]) -> dict[str, Quantity]:
    return {name: _quantity(name, sum(_frees(pod, name) for pod in pods)) for name in short}


# --- the most that would do ---


def most_that_fits(
    wish: Pod,
    allocation: Allocation,
    setting: ResizeSetting,
    resources: Sequence[str],
    api_errors: Callable[[Pod], Sequence[FieldError]],
) -> tuple[Most, ...]:
    """For each request that the wish raises. `api_errors`: what the API server has against a pod."""
    alone = msgspec.structs.replace(
        setting,
        load=setting.load.without_pods(list(setting.load.residents)),
        conditions=(),
        refusals=(),
        cpu_refusal=lambda _pod: None,
    )

    held = allocated_pod(wish, allocation)
    wishes = {name: _for_resource(name, wish, held) for name in RESIZED}

    def found(container: str, name: str, around: ResizeSetting) -> Quantity | None:
        step = _step(wish, name, setting)

        def fits(amount: int) -> bool:
            pod = with_request(wishes[name], container, name, _quantity(name, amount))
            verdict = resize_verdict(pod, allocation, around)
            return verdict.decision in ("Accepted", "NoChange") and not api_errors(pod)

        largest = _largest(fits, _held(held, container, name), bound=around.load.allocatable.get(name, 0), step=step)
        return None if largest is None else _quantity(name, largest)

    return tuple(
        Most(container, name, found(container, name, alone), found(container, name, setting))
        for container, name in _raised(wish, held, setting)
        if name in resources
    )


def _raised(wish: Pod, held: Pod, setting: ResizeSetting) -> Iterator[tuple[str, str]]:
    """The requests that are larger than what is held: containers', or the pod's own where that is what counts."""
    own = wish.spec.resources or NO_RESOURCES
    counts = setting.gates.pod_level and pod_level_requests_set(own)
    for name in RESIZED:
        if counts and name in (own.requests or {}):
            if _request(own, name) > _request(held.spec.resources or NO_RESOURCES, name):
                yield "", name
            continue
        for before, after in zip(all_containers(held.spec), all_containers(wish.spec), strict=True):
            if _request(after.resources, name) > _request(before.resources, name):
                yield after.name, name


def _for_resource(name: str, wish: Pod, held: Pod) -> Pod:
    """The wish as far as it is about this resource: whether cpu is short does not depend on memory."""

    def kept(wished: Resources, had: Resources) -> Resources:
        return msgspec.structs.replace(
            wished,
            requests=_mixed(name, wished.requests, had.requests),
            limits=_mixed(name, wished.limits, had.limits),
        )

    def each(wished: tuple[Container, ...], had: tuple[Container, ...]) -> tuple[Container, ...]:
        return tuple(
            msgspec.structs.replace(after, resources=kept(after.resources, before.resources))
            for before, after in zip(had, wished, strict=True)
        )

    spec, own = wish.spec, wish.spec.resources
    spec = msgspec.structs.replace(
        spec,
        containers=each(spec.containers, held.spec.containers),
        init_containers=each(spec.init_containers, held.spec.init_containers),
        resources=None if own is None else kept(own, held.spec.resources or NO_RESOURCES),
    )
    return msgspec.structs.replace(wish, spec=spec)


def _mixed(name: str, wished: ResourceList | None, had: ResourceList | None) -> ResourceList | None:
    others = {key: amount for key, amount in (had or {}).items() if key != name}
    mixed = {**others, **({name: wished[name]} if wished and name in wished else {})}
    return mixed or None


def with_request(pod: Pod, container: str, name: str, amount: Quantity) -> Pod:
    def changed(each: Container) -> Container:
        if each.name != container:
            return each
        return msgspec.structs.replace(each, resources=_requesting(each.resources, name, amount))

    spec = pod.spec
    if not container:
        own = _requesting(spec.resources or NO_RESOURCES, name, amount)
        return msgspec.structs.replace(pod, spec=msgspec.structs.replace(spec, resources=own))
    spec = msgspec.structs.replace(
        spec,
        containers=tuple(map(changed, spec.containers)),
        init_containers=tuple(map(changed, spec.init_containers)),
    )
    return msgspec.structs.replace(pod, spec=spec)


def _requesting(resources: Resources, name: str, amount: Quantity) -> Resources:
    """A limit that equals the request goes with it."""
    requests, limits = dict(resources.requests or {}), resources.limits
    if limits and limits.get(name) == requests.get(name):
        limits = {**limits, name: amount}
    return msgspec.structs.replace(resources, requests={**requests, name: amount}, limits=limits)


def _step(pod: Pod, name: str, setting: ResizeSetting) -> int:
    """Under the static policy Guaranteed pods have whole CPUs."""
    whole = name == CPU and setting.static_cpus and not setting.gates.exclusive_cpus
    is_guaranteed = qos_class(pod, gates=setting.gates) == GUARANTEED
    return WHOLE_CPU_MILLI if whole and is_guaranteed else 1


def _held(pod: Pod, container: str, name: str) -> int:
    resources = pod.spec.resources or NO_RESOURCES
    if container:
        resources = next(each.resources for each in all_containers(pod.spec) if each.name == container)
    amount = _request(resources, name)
    return amount.milli if name == CPU else amount.value


def _largest(fits: Callable[[int], bool], held: int, *, bound: int, step: int) -> int | None:
    """Among the multiples of `step` up to `bound`. Above what is held, what is larger than one that does not fit does
    not fit either; below it the API may refuse, a pod level less than its containers' sum, say."""
    fitting, failing = -(-held // step), bound // step + 1
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
