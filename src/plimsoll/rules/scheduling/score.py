"""Scoring: the best of the nodes that fit (05 A3).

Each scorer gives a node 0…100, the weighted sum decides, and among equals any node is right. Two of the four use
resources. NodeResourcesFit counts containers without requests with a small default (E-15), so that pods without
requests spread too. BalancedAllocation counts real requests and prefers equal shares of cpu and memory. The other two
count terms and taints, and are normalized to 0…100 over the compared nodes.

The arithmetic is Kubernetes': integers, truncating division, and 64-bit floats only where Kubernetes uses them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from plimsoll.rules.model.objects import CPU, MEMORY, Node, Pod
from plimsoll.rules.profile import Profile
from plimsoll.rules.scheduling.fit import PREFER_NO_SCHEDULE, NodeLoad, PodLoad, is_scalar
from plimsoll.rules.scheduling.selectors import is_tolerated, matches_term
from plimsoll.rules.scheduling.topology import Topology

MAX_SCORE = 100
_MAX_SHAPE_SCORE = 10
_MIN_NODES_TO_FIND = 100
_MIN_PERCENT_TO_FIND = 5

Kind = Literal["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"]
Weighted = tuple[tuple[str, int], ...]  # resource, weight
CPU_AND_MEMORY: Weighted = ((CPU, 1), (MEMORY, 1))


class ScoringStrategy(msgspec.Struct, frozen=True, gc=False):
    """NodeResourcesFit's scoringStrategy. `shape` is (utilization in percent, score 0…10), rising utilization."""

    kind: Kind = "LeastAllocated"
    resources: Weighted = CPU_AND_MEMORY
    shape: tuple[tuple[int, int], ...] = ()


class Weights(msgspec.Struct, frozen=True, gc=False):
    taint_toleration: int = 3
    node_affinity: int = 2
    topology_spread: int = 2
    pod_affinity: int = 2
    resources_fit: int = 1
    balanced_allocation: int = 1


LEAST_ALLOCATED = ScoringStrategy()
DEFAULT_WEIGHTS = Weights()


class NodeScore(msgspec.Struct, frozen=True, gc=False):
    """The score of each scorer, and the weighted sum."""

    taint_toleration: int
    node_affinity: int
    resources_fit: int
    balanced_allocation: int
    total: int
    topology_spread: int = 0
    pod_affinity: int = 0


class NodeUsage(msgspec.Struct, frozen=True, gc=False):
    """One resource of a node: capacity, requested by its pods, requested with the new pod."""

    capacity: int
    without: int
    requested: int
    weight: int = 1


def scores(
    pod: PodLoad,
    nodes: Sequence[NodeLoad],
    profile: Profile,
    strategy: ScoringStrategy = LEAST_ALLOCATED,
    weights: Weights = DEFAULT_WEIGHTS,
    balanced_resources: Weighted = CPU_AND_MEMORY,
    topology: Topology | None = None,
) -> dict[str, NodeScore]:
    """The score of each node by name; scores are relative, so all nodes that fit must be passed."""
    taints = normalized([intolerable_taints(pod.pod, node.node) for node in nodes], reverse=True)
    affinities = normalized([preferred_weight(pod.pod, node.node) for node in nodes])
    none = [0] * len(nodes)
    spreads = none if topology is None else topology.spread_scores(nodes)
    neighbours = none if topology is None else topology.affinity_scores(nodes)
    node_scores: dict[str, NodeScore] = {}
    for node, taint, affinity, spread, near in zip(nodes, taints, affinities, spreads, neighbours, strict=True):
        fit = strategy_score(strategy, usages(pod, node, strategy.resources, real=False))
        balanced = balanced_score(pod, node, profile, balanced_resources)
        total = (
            weights.taint_toleration * taint
            + weights.node_affinity * affinity
            + weights.resources_fit * fit
            + weights.balanced_allocation * balanced
            + weights.topology_spread * spread
            + weights.pod_affinity * near
        )
        node_scores[node.name] = NodeScore(taint, affinity, fit, balanced, total, spread, near)
    return node_scores


def best(node_scores: dict[str, NodeScore]) -> tuple[str, ...]:
    """Every node with the highest sum; Kubernetes picks one at random."""
    highest = max((score.total for score in node_scores.values()), default=0)
    return tuple(name for name, score in node_scores.items() if score.total == highest)


def nodes_to_find(count: int, percent: int = 0) -> int:
    """How many fitting nodes end the search; `percent` 0 means by cluster size."""
    if count < _MIN_NODES_TO_FIND:
        return count
    percent = percent or max(50 - count // 125, _MIN_PERCENT_TO_FIND)
    return max(count * percent // 100, _MIN_NODES_TO_FIND)


# --- resources ---


def usages(pod: PodLoad, node: NodeLoad, resources: Weighted, *, real: bool) -> list[NodeUsage]:
    """The resources that count on this node. `real`: requests without defaults for absent ones."""
    result: list[NodeUsage] = []
    for name, weight in resources:
        wanted, without = pod.requests.get(name, 0), node.requested.get(name, 0)
        if not real and name == CPU:
            wanted, without = pod.scored_cpu_milli, node.scored_cpu_milli
        elif not real and name == MEMORY:
            wanted, without = pod.scored_memory_bytes, node.scored_memory_bytes
        capacity = node.allocatable.get(name, 0)
        if capacity and (wanted or not is_scalar(name)):
            result.append(NodeUsage(capacity, without, without + wanted, weight))
    return result


def strategy_score(strategy: ScoringStrategy, used: Iterable[NodeUsage]) -> int:
    if strategy.kind == "RequestedToCapacityRatio":
        return _ratio_score(strategy.shape, used)
    least = strategy.kind == "LeastAllocated"
    total = weights = 0
    for usage in used:
        total += usage.weight * (least_allocated(usage) if least else most_allocated(usage))
        weights += usage.weight
    return total // weights if weights else 0


def least_allocated(used: NodeUsage) -> int:
    return 0 if used.requested > used.capacity else (used.capacity - used.requested) * MAX_SCORE // used.capacity


def most_allocated(used: NodeUsage) -> int:
    # Above the capacity only because of defaults for absent requests.
    return min(used.requested, used.capacity) * MAX_SCORE // used.capacity


def _ratio_score(shape: tuple[tuple[int, int], ...], used: Iterable[NodeUsage]) -> int:
    total = weights = 0
    for usage in used:
        score = shaped(shape, most_allocated(usage))
        if score > 0:
            total += usage.weight * score
            weights += usage.weight
    return (2 * total + weights) // (2 * weights) if weights else 0  # rounded, half up


def shaped(shape: tuple[tuple[int, int], ...], utilization: int) -> int:
    """The line through the shape's points at this utilization, flat outside them; scores scaled to 0…100."""
    stretch = MAX_SCORE // _MAX_SHAPE_SCORE
    before: tuple[int, int] | None = None
    for point, raw in shape:
        score = raw * stretch
        if utilization <= point:
            if before is None:
                return score
            rise = (score - before[1]) * (utilization - before[0])
            # Truncated towards zero also where the line falls.
            return before[1] + abs(rise) // (point - before[0]) * (1 if rise > 0 else -1)
        before = (point, score)
    return 0 if before is None else before[1]


def balanced_score(pod: PodLoad, node: NodeLoad, profile: Profile, resources: Weighted = CPU_AND_MEMORY) -> int:
    """How even the shares are with the pod; 1.36: how much more even than without it."""
    if not any(pod.requests.get(name) for name, _ in resources):
        return 0
    used = usages(pod, node, resources, real=True)
    evenness = _evenness([(usage.requested, usage.capacity) for usage in used])
    if not profile.balanced_by_difference:
        return evenness
    half = MAX_SCORE // 2
    return half + (half + evenness - _evenness([(usage.without, usage.capacity) for usage in used])) // 2


def _evenness(shares: Sequence[tuple[int, int]]) -> int:
    """100 minus the standard deviation of the used fractions, in percent."""
    fractions = [min(1.0, requested / capacity) for requested, capacity in shares]
    if len(fractions) == 2:
        deviation = abs((fractions[0] - fractions[1]) / 2)
    elif len(fractions) > 2:
        total = variance = 0.0
        for fraction in fractions:
            total += fraction
        mean = total / len(fractions)
        for fraction in fractions:
            variance += (fraction - mean) * (fraction - mean)
        deviation = math.sqrt(variance / len(fractions))
    else:
        deviation = 0.0
    return int((1 - deviation) * MAX_SCORE)


# --- taints and affinity ---


def intolerable_taints(pod: Pod, node: Node) -> int:
    """PreferNoSchedule taints that the pod does not tolerate."""
    return sum(
        taint.effect == PREFER_NO_SCHEDULE and not is_tolerated(taint, pod.spec.tolerations)
        for taint in node.spec.taints
    )


def preferred_weight(pod: Pod, node: Node) -> int:
    affinity = pod.spec.affinity
    if affinity is None or affinity.node_affinity is None:
        return 0
    return sum(term.weight for term in affinity.node_affinity.preferred if matches_term(term.preference, node))


def normalized(counts: Sequence[int], *, reverse: bool = False) -> list[int]:
    """Scaled so that the highest count is 100, or 0 with `reverse`; if all are zero, all nodes are equal."""
    highest = max(counts, default=0)
    if highest == 0:
        return [MAX_SCORE if reverse else 0] * len(counts)
    stretched = [MAX_SCORE * count // highest for count in counts]
    return [MAX_SCORE - each for each in stretched] if reverse else stretched
