"""The option `distribute-cpus-across-numa`: the same number of CPUs from each of several NUMA nodes (CM-13).

The smallest number of nodes that can do it wins; among combinations of so many nodes the one that leaves the available
CPUs most balanced (the smallest standard deviation). A NUMA node in several sockets is listed for each of them.
`group` is the size in which CPUs are given out: a whole core with `full-pcpus-only`, otherwise one CPU.

Kubernetes: pkg/kubelet/cm/cpumanager/cpu_assignment.go, takeByTopologyNUMADistributed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations

from plimsoll.errors import StructuredError
from plimsoll.rules.cpumanager.packing import UNEXPECTED, NotEnoughCpusError, numa_order, packed
from plimsoll.rules.cpumanager.topology import NO_CPUS, Cpus, CpuTopology

Nodes = tuple[int, ...]


class DistributionError(StructuredError):
    """`remaining`: below zero where cores or sockets were taken with CPUs that were not asked for (CM-2)."""

    reason = UNEXPECTED

    remaining: int

    def __str__(self) -> str:
        number = "too many" if self.remaining < 0 else "not enough"
        return (
            f"Allocate failed due to accounting error, {number} CPUs allocated, remaining: {self.remaining}, which is "
            "unexpected"
        )


def distributed(
    topology: CpuTopology,
    available: Cpus,
    count: int,
    group: int = 1,
    *,
    spread: bool = False,
    capped: bool = False,
    by_socket: bool = False,
) -> Cpus:
    """`capped`: every node gives at most the whole groups that it has, the others give the rest; `by_socket`: nodes of
    one socket win over nodes of several, and the share of a combination is capped when it is compared (both since
    1.37, the second with `align-by-socket`). Raises NotEnoughCpusError or DistributionError."""
    if count % group or count < 1:
        return packed(topology, available, count, spread=spread)
    if len(available) < count:
        raise NotEnoughCpusError(count, len(available))
    order = numa_order(topology, available)
    by_node = topology.parts(available, "numa")
    sizes = {node: len(by_node[node]) for node in order}
    groups = -(-count // group)
    all_groups = -(-len(topology.cpus) // group)
    per_node = -(-all_groups // topology.numa_nodes)
    for number in range(-(-groups // per_node), min(groups, len(sizes)) + 1):
        winner = _best(order, number, sizes, count, group, topology.sockets_of if by_socket else None)
        if winner is None:
            continue
        each = _share(count, winner[0], group, sizes if capped else {})
        return _taken(topology, available, winner, count, group, each, spread=spread)
    return packed(topology, available, count, spread=spread)


def _share(count: int, nodes: Nodes, group: int, sizes: Mapping[int, int]) -> int:
    """CPUs that each of the nodes gives; at most the whole groups of the smallest one, if `sizes` has it."""
    share = count // len(nodes) // group * group
    return min([share, *(sizes[node] // group * group for node in nodes if node in sizes)])


def _taken(
    topology: CpuTopology,
    available: Cpus,
    winner: tuple[Nodes, Nodes],
    count: int,
    group: int,
    each: int,
    *,
    spread: bool,
) -> Cpus:
    nodes, extra = winner
    taken, needed = NO_CPUS, count

    def take(node: int, number: int) -> None:
        nonlocal taken, needed
        here = topology.by_numa[node] & (available - taken)
        if len(here) >= number:  # a node that the buffer quirk chose may have too few: then none of its CPUs is taken
            found = packed(topology, here, number, spread=spread)
            taken, needed = taken | found, needed - len(found)

    for node in nodes:
        take(node, each)
    left = count - each * len(nodes)
    while left > 0:
        before = left
        for node in extra:
            if left and len(topology.by_numa[node] & (available - taken)) >= group:
                take(node, group)
                left -= group
        if left == before:
            break  # a real kubelet never returns here (07 §10); the error below is what it would have to say
    if needed:
        raise DistributionError(needed)
    return taken


def _best(
    order: Sequence[int],
    number: int,
    sizes: Mapping[int, int],
    count: int,
    group: int,
    sockets_of: Callable[[Nodes], frozenset[int]] | None,
) -> tuple[Nodes, Nodes] | None:
    """The winning combination of so many nodes, and the nodes that give the rest."""

    def score(nodes: Nodes) -> tuple[float, Nodes] | None:
        if sum(sizes[node] for node in set(nodes)) < count:
            return None
        if sum(sizes[node] // group * group for node in nodes) < count:
            return None
        each = _share(count, nodes, group, {} if sockets_of is None else sizes)
        if any(sizes[node] < each for node in nodes):
            return None
        left = {node: size - each * nodes.count(node) for node, size in sizes.items()}
        remainder = count - each * number
        if not remainder:
            return standard_deviation(list(left.values())), ()
        return _best_rest([node for node in nodes if left[node] >= group], left, remainder, group)

    return _smallest(order, number, score, sockets_of)


def _best_rest(members: list[int], left: Mapping[int, int], remainder: int, group: int) -> tuple[float, Nodes] | None:
    best: tuple[float, Nodes] | None = None
    for size in range(len(members), 0, -1):
        for subset in combinations(members, size):
            if sum(left[node] for node in subset) < remainder:
                continue
            balance = _balance(subset, left, remainder, group)
            if balance is not None and (best is None or balance < best[0]):
                best = balance, _overwritten(subset, members)
    return best


def _balance(subset: Nodes, left: Mapping[int, int], remainder: int, group: int) -> float | None:
    """None: too few whole groups, where a real kubelet never returns (07 §10); Plimsoll skips the subset."""
    after = dict(left)
    while remainder > 0:
        before = remainder
        for node in subset:
            if remainder and after[node] >= group:
                after[node] -= group
                remainder -= group
        if remainder == before:
            return None
    return standard_deviation(list(after.values()))


def _smallest(
    order: Sequence[int],
    number: int,
    score: Callable[[Nodes], tuple[float, Nodes] | None],
    sockets_of: Callable[[Nodes], frozenset[int]] | None,
) -> tuple[Nodes, Nodes] | None:
    best: tuple[tuple[bool, float], Nodes, Nodes] | None = None  # of several sockets, balance; nodes; of the rest
    for combination in combinations(order, number):
        if best is not None and best[0] == (False, 0):  # the search ends after this combination is in the buffer
            fixed = _fixed(number)
            return (combination if combination[:fixed] == best[1][:fixed] else best[1]), best[2]
        found = score(combination)
        if found is None:
            continue
        rank = sockets_of is not None and len(sockets_of(combination)) > 1, found[0]
        if best is None or rank < best[0]:
            best = rank, combination, found[1]
    return None if best is None else (_overwritten(best[1], order), best[2])


def _fixed(number: int) -> int:
    """How many members of a kept combination stay as they were.

    [quirk] CM-13: Go's buffer has room for 1, 2, 4, 8, … members. The winner is a reference to it, and later
    combinations with the same first members write the others: of 4 members the last one, of 6 to 8 all after the fifth.
    """
    return 1 if number == 1 else 2 ** ((number - 1).bit_length() - 1) + 1


def _overwritten(winner: Nodes, order: Sequence[int]) -> Nodes:
    """The winner after all later combinations: its last members are the last of the list."""
    fixed = _fixed(len(winner))
    return winner[:fixed] + tuple(order[len(order) - len(winner) + fixed :])


def standard_deviation(numbers: Sequence[int]) -> float:
    """Of a population; the mean and the result are rounded to three decimals, half away from zero."""
    mean, squares = _rounded(sum(numbers) / len(numbers)), 0.0
    for number in numbers:
        squares += (number - mean) ** 2
    return _rounded(math.sqrt(squares / len(numbers)))


def _rounded(value: float) -> float:
    return math.floor(value * 1000 + 0.5) / 1000
