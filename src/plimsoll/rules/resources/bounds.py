"""Amounts that no value can be computed from: more than 63 bits (01 Q-14), or an unreadable page size.

Kubernetes accepts large amounts, and its arithmetic wraps around. Plimsoll refuses such a pod.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from plimsoll.errors import FieldError
from plimsoll.rules.model.objects import CPU, HUGEPAGES_PREFIX, Pod, ResourceList, container_fields, listed
from plimsoll.rules.quantity import MAX_INT64, Quantity
from plimsoll.rules.resources.effective import pod_limits, pod_requests
from plimsoll.rules.resources.values import page_size_of

_TOO_LARGE = "must fit 63 bits (cpu in thousandths): no node has that much"


def oversized(pod: Pod) -> list[FieldError]:
    """Every amount of the pod that is too large or has no readable page size, or the sum that is too large."""
    found = []
    for path, resources in _lists(pod):
        for name, quantity in resources.items():
            if _counted(name, quantity) > MAX_INT64:
                found.append(FieldError("FieldValueInvalid", f"{path}[{name}]", _TOO_LARGE, str(quantity)))
            elif not has_page_size(name):
                found.append(FieldError("FieldValueInvalid", f"{path}[{name}]", "the page size cannot be read", name))
    if found:
        return found
    for word, total in (("requests", pod_requests(pod)), ("limits", pod_limits(pod))):
        for name, quantity in total.items():
            if _counted(name, quantity) > MAX_INT64:
                found.append(FieldError("FieldValueInvalid", "spec", f"{word} of {name} in all {_TOO_LARGE}"))
    return found


def fits(amounts: Mapping[str, int]) -> bool:
    """The same check for amounts that are already rounded."""
    return not amounts or (max(amounts.values()) <= MAX_INT64 and all(map(has_page_size, amounts)))


def has_page_size(name: str) -> bool:
    """False for a `hugepages-` name without a readable size; true for any other name."""
    return not name.startswith(HUGEPAGES_PREFIX) or page_size_of(name) is not None


def _counted(name: str, quantity: Quantity) -> int:
    return quantity.milli if name == CPU else quantity.value


def _lists(pod: Pod) -> Iterator[tuple[str, ResourceList]]:
    spec = pod.spec
    blocks = ((field, container.resources) for field, container in container_fields(spec))
    for field, resources in (*blocks, ("spec", spec.resources)):
        yield f"{field}.resources.requests", listed(resources, "requests")
        yield f"{field}.resources.limits", listed(resources, "limits")
    yield "spec.overhead", spec.overhead or {}
