"""What will come of a resize, said before it is asked for: the API's answer, the node's verdict, and what would help.

    old, new ──resize_errors──▶ refused by the API (with the nearest request that would not be)
             ──resize_verdict─▶ accepted │ Deferred (who or how much must go) │ Infeasible (the most that would fit)
             ──policies, usage─▶ restarts, unsafe shrinks

Nothing here asks anybody: the caller brings the node, its other pods and, where it has them, the working sets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from plimsoll.errors import FieldError
from plimsoll.rules.allocation import allocation_of, restarts_for
from plimsoll.rules.effective import pod_requests
from plimsoll.rules.fit import Shortfall, load_key
from plimsoll.rules.held import held_pod
from plimsoll.rules.node_admission import shortfalls
from plimsoll.rules.objects import CPU, MEMORY, Container, Pod, ResourceList, Resources
from plimsoll.rules.profile import Profile
from plimsoll.rules.qos import GUARANTEED, computed_qos_class, qos_class
from plimsoll.rules.quantity import ZERO, Quantity, from_milli, from_units
from plimsoll.rules.resize import ResizeSetting, ResizeVerdict, resize_verdict
from plimsoll.rules.resize_api import ResizeGates, capacity_verdict, resize_errors
from plimsoll.rules.versions import Version

Outcome = Literal["unchanged", "accepted", "deferred", "infeasible", "refused"]
RESIZED = (CPU, MEMORY)


class Helps(msgspec.Struct, frozen=True):
    """One way to make room for a resource: these pods gone, freeing that much."""

    resource: str
    short: Quantity
    pods: tuple[str, ...]  # namespace/name; empty where no pods together would do
    freed: Quantity = ZERO


class UnsafeShrink(msgspec.Struct, frozen=True):
    container: str
    limit: Quantity
    used: Quantity


class Forecast(msgspec.Struct, frozen=True):
    outcome: Outcome
    message: str = ""  # the verdict's own words
    errors: tuple[FieldError, ...] = ()  # of the API
    nearest: Pod | None = None  # a request that the API would take
    restarts: tuple[str, ...] = ()
    unsafe: tuple[UnsafeShrink, ...] = ()
    helps: tuple[Helps, ...] = ()
    largest: Mapping[str, Quantity] = {}  # resource → the most this pod could ask for here


def forecast(
    old: Version,
    new: Version,
    setting: ResizeSetting,
    *,
    working_sets: Mapping[str, int] | None = None,
    gates: ResizeGates | None = None,
) -> Forecast:
    """`working_sets`: container → bytes."""
    api_gates = gates or ResizeGates()
    errors = resize_errors(old, new, api_gates, setting.profile)
    if errors:
        return Forecast(
            "refused", str(errors[0]), tuple(errors), nearest=_nearest(old, new, api_gates, setting.profile)
        )
    if setting.profile.too_large_refused_by_api:
        refusal = capacity_verdict(old, new, setting.load.node)
        if refusal is not None:
            return Forecast("refused", refusal.message, largest={name: _largest(name, setting) for name in RESIZED})
    held = held_pod(old.pod)  # an earlier wish may still be pending: the node compares with what it has allocated
    verdict = resize_verdict(new.pod, allocation_of(held, setting.gates), setting)
    if verdict.decision == "NoChange":
        return Forecast("unchanged")
    restarts = tuple(after.name for before, after in _pairs(held, new.pod) if _restarts(before, after))
    unsafe = tuple(_unsafe(held, new.pod, working_sets or {}, restarts))
    return _judged(new.pod, verdict, setting, restarts, unsafe)


def _judged(
    pod: Pod,
    verdict: ResizeVerdict,
    setting: ResizeSetting,
    restarts: tuple[str, ...],
    unsafe: tuple[UnsafeShrink, ...],
) -> Forecast:
    if verdict.decision == "Accepted":
        return Forecast("accepted", restarts=restarts, unsafe=unsafe)
    short = [each for each in shortfalls(pod, setting.load) if each.resource in RESIZED]
    if verdict.decision == "Deferred" and not any(each.unresolvable for each in short):
        others = setting.load.without_pods([load_key(pod)]).residents.values()
        helps = tuple(_helps(each, [other.pod for other in others]) for each in short)
        return Forecast("deferred", verdict.message, restarts=restarts, unsafe=unsafe, helps=helps)
    outcome: Outcome = "deferred" if verdict.decision == "Deferred" else "infeasible"
    largest = {name: _largest(name, setting) for name in RESIZED}
    return Forecast(outcome, verdict.message, restarts=restarts, unsafe=unsafe, largest=largest)


# --- what must go ---


def _helps(shortfall: Shortfall, others: Sequence[Pod]) -> Helps:
    """The fewest pods, and of these the ones that free the least beyond need: the smallest that does it alone, else the
    largest ones together."""
    short = shortfall.requested + shortfall.used - shortfall.capacity
    freed = sorted(((_requested(pod, shortfall.resource), pod) for pod in others), key=lambda each: each[0])
    alone = next((each for each in freed if each[0] >= short), None)
    if alone is not None:
        return Helps(
            shortfall.resource,
            _quantity(shortfall.resource, short),
            (_title(alone[1]),),
            _quantity(shortfall.resource, alone[0]),
        )
    gone, total = [], 0
    for amount, pod in reversed(freed):
        if total >= short or amount == 0:
            break
        gone.append(_title(pod))
        total += amount
    enough = total >= short
    return Helps(
        shortfall.resource,
        _quantity(shortfall.resource, short),
        tuple(gone) if enough else (),
        _quantity(shortfall.resource, total),
    )


def _requested(pod: Pod, name: str) -> int:
    amount = pod_requests(pod).get(name, ZERO)
    return amount.milli if name == CPU else amount.value


def _largest(name: str, setting: ResizeSetting) -> Quantity:
    limits = setting.absolute_allocatable or setting.load.node.status.allocatable or {}
    return limits.get(name, ZERO)


def _quantity(name: str, amount: int) -> Quantity:
    return from_milli(amount) if name == CPU else from_units(amount, "BinarySI")


def _title(pod: Pod) -> str:
    return f"{pod.metadata.namespace or 'default'}/{pod.metadata.name}"


# --- what it means for the containers ---


def _pairs(old: Pod, new: Pod) -> Iterable[tuple[Container, Container]]:
    yield from zip(old.spec.init_containers, new.spec.init_containers, strict=False)
    yield from zip(old.spec.containers, new.spec.containers, strict=False)


def _restarts(before: Container, after: Container) -> bool:
    return any(_changes(before, after, name) and restarts_for(after, name) for name in RESIZED)


def _changes(before: Container, after: Container, name: str) -> bool:
    return any(
        (_list(before.resources, kind).get(name)) != (_list(after.resources, kind).get(name))
        for kind in ("requests", "limits")
    )


def _unsafe(old: Pod, new: Pod, working_sets: Mapping[str, int], restarts: Sequence[str]) -> Iterable[UnsafeShrink]:
    """Limits at or below what is in use now; a container that is restarted anyway starts empty."""
    for before, after in _pairs(old, new):
        limit, used = _list(after.resources, "limits").get(MEMORY), working_sets.get(after.name)
        if limit is None or used is None or after.name in restarts or not _changes(before, after, MEMORY):
            continue
        if used >= limit.value:
            yield UnsafeShrink(after.name, limit, from_units(used, "BinarySI"))


# --- what the API would take ---


def _nearest(old: Version, new: Version, gates: ResizeGates, profile: Profile) -> Pod | None:
    """The wish with limits no lower than requests, or bent so that the class stays, or both; None where nothing of that
    is taken either."""
    ordered = _with_ordered(old.pod, new.pod)
    for found in (ordered, _same_class(old.pod, new.pod, gates), _same_class(old.pod, ordered, gates)):
        # Documents are compared for what is neither cpu nor memory, so the one that was asked with will do.
        if found is not None and not resize_errors(old, Version(new.document, found), gates, profile):
            return found
    return None


def _with_ordered(old: Pod, new: Pod) -> Pod:
    before = {each.name: each for each in (*old.spec.init_containers, *old.spec.containers)}
    spec = msgspec.structs.replace(
        new.spec,
        containers=tuple(_ordered(before.get(each.name), each) for each in new.spec.containers),
        init_containers=tuple(_ordered(before.get(each.name), each) for each in new.spec.init_containers),
    )
    return msgspec.structs.replace(new, spec=spec)


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


def _same_class(old: Pod, new: Pod, gates: ResizeGates) -> Pod | None:
    """For a refusal because of the class: the wish of each container, bent so that the class stays. None where the
    class is not the trouble, or bending does not help."""
    wanted_class = qos_class(old, pod_level=gates.pod_level)
    if computed_qos_class(new, pod_level=gates.pod_level) == wanted_class:
        return None
    bent = _bent_guaranteed if wanted_class == GUARANTEED else _bent_burstable
    before = {each.name: each for each in (*old.spec.init_containers, *old.spec.containers)}
    spec = msgspec.structs.replace(
        new.spec,
        containers=tuple(bent(before.get(each.name), each) for each in new.spec.containers),
        init_containers=tuple(bent(before.get(each.name), each) for each in new.spec.init_containers),
    )
    found = msgspec.structs.replace(new, spec=spec)
    return found if computed_qos_class(found, pod_level=gates.pod_level) == wanted_class else None


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


def _bent_burstable(before: Container | None, after: Container) -> Container:
    """A Burstable pod that became Guaranteed keeps its old requests; one that lost everything keeps all."""
    if before is None:
        return after
    resources = Resources(before.resources.requests, after.resources.limits, after.resources.claims)
    return msgspec.structs.replace(after, resources=resources)


def _list(resources: Resources, kind: str) -> ResourceList:
    return (resources.requests if kind == "requests" else resources.limits) or {}
