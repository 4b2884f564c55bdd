"""Amounts in the stages of `batch`: thousandths by name of the resource, and the conversion to whole units."""

from __future__ import annotations

from plimsoll.rules.model.objects import CPU, MEMORY, ResourceList
from plimsoll.rules.quantity import MAX_INT64
from plimsoll.rules.resources.bounds import has_page_size

Amounts = dict[str, int]

NOTHING: ResourceList = {}


def thousandths(resources: ResourceList | None) -> Amounts:
    return {name: each.tally for name, each in resources.items()} if resources else {}


def in_bounds(amounts: Amounts) -> bool:
    """No amount is negative (`Quantity.tally`) or beyond 63 bits."""
    return not amounts or max(amounts.values()) <= MAX_INT64


def whole(amounts: Amounts) -> Amounts:
    """Thousandths → whole units: cpu in milli-cores, others in bytes or pieces, rounded up (Q-13)."""
    return {name: each if name == CPU else -(-each // 1000) for name, each in amounts.items()}


def add_others(
    limits: ResourceList | None, requests: ResourceList | None, requested: Amounts, limited: Amounts
) -> None:
    """Add other resources than cpu and memory; a missing request is the limit (D-1)."""
    requests = requests or NOTHING
    for name, quantity in requests.items():
        if name != CPU and name != MEMORY:
            requested[name] = requested.get(name, 0) + quantity.tally
    if limits:
        for name, quantity in limits.items():
            if name != CPU and name != MEMORY:
                limited[name] = limited.get(name, 0) + quantity.tally
                if name not in requests:
                    requested[name] = requested.get(name, 0) + quantity.tally


def others_whole(requested: Amounts, limited: Amounts) -> bool:
    """Convert other resources than cpu and memory from thousandths to whole units; False if that is impossible.

    Every limited resource is also requested (D-1).
    """
    for name, amount in requested.items():
        limit = limited.get(name, 0)
        if amount + limit > MAX_INT64 or not has_page_size(name):
            return False
        requested[name] = -(-amount // 1000)
        if name in limited:
            limited[name] = -(-limit // 1000)
    return True
