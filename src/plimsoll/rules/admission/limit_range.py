"""LimitRange: defaults for the containers of a namespace, and constraints on them (01 §8).

When a LimitRange is written, its container items are completed (L-1). When a pod is created or resized, containers get
the defaults that they lack (L-3). Then every constraint is checked against every container, or against the whole pod,
with Kubernetes' messages (L-4).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from plimsoll.rules.model.objects import Container, Pod, ResourceList, Resources
from plimsoll.rules.model.policies import LimitRange, LimitRangeItem, LimitRangeSpec
from plimsoll.rules.profile import Profile
from plimsoll.rules.quantity import MAX_INT64, ZERO, Quantity
from plimsoll.rules.resources.defaulting import rounded_list
from plimsoll.rules.resources.effective import pod_limits, pod_requests

ANNOTATION = "kubernetes.io/limit-ranger"
CONTAINER = "Container"
POD = "Pod"

_EMPTY: ResourceList = {}
_LARGEST_WITH_MILLI = MAX_INT64 // 1000
_replaced = msgspec.structs.replace


def defaulted_limit_range(limit_range: LimitRange) -> LimitRange:
    """The LimitRange as stored (L-1, R-2)."""
    items = tuple(map(_defaulted_item, limit_range.spec.limits))
    return _replaced(limit_range, spec=LimitRangeSpec(items))


def _defaulted_item(item: LimitRangeItem) -> LimitRangeItem:
    default, default_request = item.default, item.default_request
    if item.type == CONTAINER:
        default = {**(item.max or _EMPTY), **(default or _EMPTY)}
        default_request = {**(item.min or _EMPTY), **default, **(default_request or _EMPTY)}
    return LimitRangeItem(
        item.type,
        rounded_list(item.max),
        rounded_list(item.min),
        rounded_list(default),
        rounded_list(default_request),
        rounded_list(item.max_limit_request_ratio),
    )


def is_limited(operation: str, subresource: str, profile: Profile, *, old_is_deleted: bool = False) -> bool:
    """Whether LimitRanges apply to this request on a pod (L-2)."""
    if operation == "CREATE":
        return not subresource
    return operation == "UPDATE" and subresource == "resize" and profile.limit_range_on_resize and not old_is_deleted


# --- defaults ---


def limit_ranged(pod: Pod, limit_ranges: Sequence[LimitRange]) -> Pod:
    """The pod with the defaults of each LimitRange in order, and the annotation of the last one that set a default
    (L-3)."""
    for limit_range in limit_ranges:
        pod = _filled(pod, limit_range)
    return pod


def _filled(pod: Pod, limit_range: LimitRange) -> Pod:
    requests: ResourceList = {}
    limits: ResourceList = {}
    for item in limit_range.spec.limits:
        if item.type == CONTAINER:
            requests.update(item.default_request or _EMPTY)
            limits.update(item.default or _EMPTY)
    notes: list[str] = []
    containers = _filled_containers(pod.spec.containers, requests, limits, "container", notes)
    init_containers = _filled_containers(pod.spec.init_containers, requests, limits, "init container", notes)
    if not notes:
        return pod
    annotations = {**(pod.metadata.annotations or {}), ANNOTATION: f"LimitRanger plugin set: {'; '.join(notes)}"}
    return Pod(
        _replaced(pod.metadata, annotations=annotations),
        _replaced(pod.spec, containers=containers, init_containers=init_containers),
        pod.status,
    )


def _filled_containers(
    containers: tuple[Container, ...], requests: ResourceList, limits: ResourceList, kind: str, notes: list[str]
) -> tuple[Container, ...]:
    return tuple(_filled_container(container, requests, limits, kind, notes) for container in containers)


def _filled_container(
    container: Container, requests: ResourceList, limits: ResourceList, kind: str, notes: list[str]
) -> Container:
    own = container.resources
    own_requests, own_limits = own.requests or _EMPTY, own.limits or _EMPTY
    set_requests, set_limits = requests.keys() - own_requests.keys(), limits.keys() - own_limits.keys()
    if set_requests:
        notes.append(f"{', '.join(sorted(set_requests))} request for {kind} {container.name}")
    if set_limits:
        notes.append(f"{', '.join(sorted(set_limits))} limit for {kind} {container.name}")
    if not set_requests and not set_limits:
        return container
    return _replaced(container, resources=Resources({**requests, **own_requests}, {**limits, **own_limits}, own.claims))


# --- constraints ---


def limit_range_refusal(pod: Pod, limit_ranges: Sequence[LimitRange]) -> str:
    """The text after `pods "x" is forbidden: `, or empty; the first LimitRange with violations reports all of its
    own."""
    for limit_range in limit_ranges:
        violations = list(dict.fromkeys(limit_range_findings(pod, limit_range)))
        if violations:
            return violations[0] if len(violations) == 1 else f"[{', '.join(violations)}]"
    return ""


def limit_range_findings(pod: Pod, limit_range: LimitRange) -> Iterator[str]:
    """Every violation of every item; pod items check the whole pod without overhead and without its status (L-4)."""
    for item in limit_range.spec.limits:
        if item.type == CONTAINER:
            for container in (*pod.spec.containers, *pod.spec.init_containers):
                resources = container.resources
                yield from _breaches(item, resources.requests or _EMPTY, resources.limits or _EMPTY)
        elif item.type == POD:
            yield from _breaches(item, pod_requests(pod, overhead=False), pod_limits(pod, overhead=False))


def _breaches(item: LimitRangeItem, requests: ResourceList, limits: ResourceList) -> Iterator[str]:
    checks = ((item.min, _below_min), (item.max, _above_max), (item.max_limit_request_ratio, _above_ratio))
    for bounds, check in checks:
        for name, bound in sorted((bounds or _EMPTY).items()):
            text = check(name, item.type, bound, requests.get(name), limits.get(name))
            if text:
                yield text


def _below_min(name: str, kind: str, bound: Quantity, request: Quantity | None, limit: Quantity | None) -> str:
    text = f"minimum {name} usage per {kind} is {bound}"
    if request is None:
        return f"{text}.  No request is specified"
    own_request, own_limit, least = _comparable(request, limit or ZERO, bound)
    if own_request < least:
        return f"{text}, but request is {request}"
    if limit is not None and own_limit < least:
        return f"{text}, but limit is {limit}"
    return ""


def _above_max(name: str, kind: str, bound: Quantity, request: Quantity | None, limit: Quantity | None) -> str:
    text = f"maximum {name} usage per {kind} is {bound}"
    if limit is None:
        return f"{text}.  No limit is specified"
    own_request, own_limit, most = _comparable(request or ZERO, limit, bound)
    if own_limit > most:
        return f"{text}, but limit is {limit}"
    if request is not None and own_request > most:
        return f"{text}, but request is {request}"
    return ""


def _above_ratio(name: str, kind: str, bound: Quantity, request: Quantity | None, limit: Quantity | None) -> str:
    text = f"{name} max limit to request ratio per {kind} is {bound}"
    own_request, own_limit, _ = _comparable(request or ZERO, limit or ZERO, bound)
    if own_request == 0:
        return f"{text}, but no request is specified or request is 0"
    if own_limit == 0:
        return f"{text}, but no limit is specified or limit is 0"
    ratio = float(own_limit) / float(own_request)
    in_milli = bound.value <= _LARGEST_WITH_MILLI
    if (ratio * 1000 if in_milli else ratio) > float(bound.milli if in_milli else bound.value):
        return f"{text}, but provided ratio is {ratio:f}"
    return ""


def _comparable(request: Quantity, limit: Quantity, bound: Quantity) -> tuple[int, int, int]:
    """All in thousandths if all three fit into 64 bits, else all in whole units."""
    if max(request.value, limit.value, bound.value) <= _LARGEST_WITH_MILLI:
        return request.milli, limit.milli, bound.milli
    return request.value, limit.value, bound.value
