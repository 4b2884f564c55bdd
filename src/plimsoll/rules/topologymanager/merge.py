"""Merging hints: one NUMA mask for all resources of a container or pod, and whether the policy admits it (07 §4).

The real topology manager looks at every combination of one hint per resource. Its comparison is a total order, so the
best combination does not depend on the order; here the possible results are kept as a set while the lists are combined
one by one, which is fast on machines with many NUMA nodes, too.

Kubernetes: pkg/kubelet/cm/topologymanager/policy.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from plimsoll.rules.config.manager_options import NO_TOPOLOGY_OPTIONS, TopologyOptions
from plimsoll.rules.numa import Hint, HintLists, Hints, mask_of, nodes_of

TopologyPolicy = Literal["none", "best-effort", "restricted", "single-numa-node"]
NONE, BEST_EFFORT, RESTRICTED, SINGLE = "none", "best-effort", "restricted", "single-numa-node"
Distances = Mapping[int, Sequence[int]]  # NUMA node → its distance to node 0, 1, …


class NumaLayout(msgspec.Struct, frozen=True):
    """The NUMA nodes of a machine. `distances` are used with the option prefer-closest-numa-nodes only."""

    nodes: tuple[int, ...] = (0,)
    distances: Distances = {}

    @property
    def all_nodes(self) -> int:
        return mask_of(self.nodes)

    def mean_distance(self, mask: int) -> float:
        """Over all ordered pairs, a node with itself included."""
        nodes = nodes_of(mask)
        pairs = [self.distances[one][other] for one in nodes for other in nodes]
        return sum(pairs) / len(pairs) if pairs else 0.0


class Merged(msgspec.Struct, frozen=True):
    hint: Hint
    admitted: bool


def hint_lists(providers: Iterable[HintLists]) -> list[Hints]:
    """One list per provider and resource (TM-4)."""
    lists: list[Hints] = []
    for answer in providers:
        if not answer:
            lists.append((Hint(None, preferred=True),))
        for hints in answer.values():
            if hints is None:
                lists.append((Hint(None, preferred=True),))
            else:
                lists.append(hints or (Hint(None, preferred=False),))
    return lists


def merged(
    policy: TopologyPolicy,
    layout: NumaLayout,
    providers: Iterable[HintLists],
    options: TopologyOptions = NO_TOPOLOGY_OPTIONS,
) -> Merged:
    """The hint that is stored, and whether the pod is admitted by it."""
    if policy == NONE:
        return Merged(Hint(None, preferred=False), admitted=True)
    lists = hint_lists(providers)
    if policy == SINGLE:
        lists = [
            tuple(each for each in hints if each.preferred and (each.mask is None or each.mask.bit_count() == 1))
            for hints in lists
        ]
    best = _best(layout, lists, closest=options.prefer_closest and policy != SINGLE)
    if policy == SINGLE and best.mask == layout.all_nodes:
        best = Hint(None, best.preferred)
    return Merged(best, admitted=policy == BEST_EFFORT or best.preferred)


def _best(layout: NumaLayout, lists: Sequence[Hints], *, closest: bool) -> Hint:
    # Narrowest masks of the lists: a result that is not preferred should have as many nodes as the largest of them.
    narrowest = (min((each.mask.bit_count() for each in hints if each.mask is not None), default=0) for hints in lists)
    wanted = max(narrowest, default=0)

    def rank(mask: int, *, preferred: bool) -> tuple[float, ...]:
        size = mask.bit_count()
        distance = layout.mean_distance(mask) if closest else 0.0
        if preferred:
            return 0, size, distance, mask
        if size == wanted:
            return 1, size, distance, mask
        return (2, -size, distance, mask) if size < wanted else (3, size, distance, mask)

    found = [
        (rank(every, preferred=preferred), every, preferred)
        for mask, preferred in _combined(lists)
        if (every := layout.all_nodes if mask is None else mask & layout.all_nodes)
    ]
    if not found:
        return Hint(layout.all_nodes, preferred=False)
    _, mask, preferred = min(found)
    return Hint(mask, preferred)


def _combined(lists: Sequence[Hints]) -> set[tuple[int | None, bool]]:
    """All results of one hint per list: the common nodes, and whether all are preferred with equal masks (TM-5)."""
    states: set[tuple[int | None, bool]] = {(None, True)}
    for hints in lists:
        choices = {(hint.mask, hint.preferred) for hint in hints}
        states = {_both(mask, preferred, other, also) for mask, preferred in states for other, also in choices}
    return states


def _both(mask: int | None, preferred: bool, other: int | None, also: bool) -> tuple[int | None, bool]:
    if other is None or mask is None:
        return (mask if other is None else other), preferred and also
    return mask & other, preferred and also and mask == other


def explain_refusal(policy: TopologyPolicy, providers: Iterable[HintLists]) -> str:
    """Which resources stand against each other, for people; the kubelet's message does not say it."""
    parts = []
    for answer in providers:
        for resource, hints in answer.items():
            if hints is None:
                continue
            wanted = [each for each in hints if each.preferred]
            if policy == SINGLE:
                wanted = [each for each in wanted if each.mask is None or each.mask.bit_count() == 1]
            nodes = " or ".join(_nodes_text(each) for each in wanted)
            parts.append(
                f"{resource} {'cannot be had' if not hints else f'needs {nodes}' if nodes else 'fits no node'}"
            )
    return "; ".join(parts)


def _nodes_text(hint: Hint) -> str:
    if hint.mask is None:
        return "any NUMA node"
    nodes = nodes_of(hint.mask)
    return f"NUMA node{'s' if len(nodes) > 1 else ''} {'+'.join(map(str, nodes))}"
