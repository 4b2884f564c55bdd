"""reservedMemory: memory of each NUMA node that no pod gets, checked against the node's reservations (MM-2, MM-3).

Kubernetes: pkg/kubelet/apis/config/validation/validation_reserved_memory.go, pkg/kubelet/cm/memorymanager.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from plimsoll.errors import InvalidConfigError
from plimsoll.rules.model.names import is_hugepages
from plimsoll.rules.model.objects import MEMORY
from plimsoll.rules.quantity import ZERO, Quantity, from_units

PATH = "reservedMemory"


class ReservedMemory(msgspec.Struct, frozen=True):
    """One entry of the kubelet's setting."""

    node: int
    limits: Mapping[str, Quantity]


def reserved_errors(entries: Iterable[ReservedMemory]) -> Iterator[InvalidConfigError]:
    seen = set()
    for number, entry in enumerate(entries):
        for kind, quantity in entry.limits.items():
            path = f"{PATH}[{number}].limits[{kind}]"
            if kind != MEMORY and not is_hugepages(kind):
                yield InvalidConfigError(
                    path,
                    f'invalid configuration: the limit type "{kind}" for NUMA node {entry.node} is not supported, only '
                    "[memory hugepages-<HugePageSize>] is accepted",
                )
            if not quantity:
                yield InvalidConfigError(
                    path,
                    f"invalid configuration: reserved memory may not be zero for NUMA node {entry.node} and resource "
                    f'"{kind}"',
                )
            if (entry.node, kind) in seen:
                yield InvalidConfigError(
                    path,
                    f"invalid configuration: the reserved memory has a duplicate value for NUMA node {entry.node} and "
                    f'resource "{kind}"',
                )
            seen.add((entry.node, kind))


def reserved_by_node(
    entries: Sequence[ReservedMemory], nodes: Iterable[int], expected: Mapping[str, Quantity]
) -> dict[int, dict[str, int]]:
    """`expected`: per type, kube-reserved + system-reserved + the hard eviction threshold.

    Raises InvalidConfigError."""
    known, sums = set(nodes), dict[str, Quantity]()
    result: dict[int, dict[str, int]] = {}
    for entry in entries:
        if entry.node not in known:
            raise InvalidConfigError(
                PATH,
                f"the reserved memory configuration references a NUMA node {entry.node} that does not exist on this "
                "machine",
            )
        for kind, quantity in entry.limits.items():
            result.setdefault(entry.node, {})[kind] = quantity.value
            sums[kind] = quantity + sums.get(kind, ZERO)
    for kind in sorted({*sums, *expected}):
        total, wanted = ZERO + sums.get(kind, ZERO), ZERO + expected.get(kind, ZERO)  # in canonical form
        if total != wanted:
            raise InvalidConfigError(
                PATH,
                f'the total amount "{total}" of type "{kind}" is not equal to the value "{wanted}" determined by Node '
                "Allocatable feature",
            )
    if any(not _is_whole(quantity) for entry in entries for quantity in entry.limits.values()):
        raise InvalidConfigError(PATH, "could not covert a variable of type Quantity to int64")
    if not sum(each.get(MEMORY, 0) for each in result.values()):
        raise InvalidConfigError(PATH, "[memorymanager] you should specify the system reserved memory")
    return result


def _is_whole(quantity: Quantity) -> bool:
    return quantity == from_units(quantity.value)
