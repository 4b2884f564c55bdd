"""`cycle.decide` for large clusters: the same filters and scores over arrays, one row per node (needs numpy).

What depends on a node's load (free resources, pod count, resource scores) is computed for all nodes at once. What
depends on the node and on the pod's constraints (taints, selectors, affinity) is computed by the scalar rules once per
constraint and cached until a node changes. Nodes with nominated pods, and pods with host ports where ports are taken,
are checked one by one. If no node fits, the scalar `decide` reports why; property tests prove that both agree on every
decision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import msgspec
import numpy as np
import numpy.typing as npt

from plimsoll.rules.model.objects import CPU, MEMORY, Node, Pod
from plimsoll.rules.profile import Profile
from plimsoll.rules.resources.qos import BEST_EFFORT, qos_class
from plimsoll.rules.scheduling.cycle import SchedulingDecision
from plimsoll.rules.scheduling.fit import NodeLoad, PodLoad, node_refusal, verdict, waiting_load, with_nominated
from plimsoll.rules.scheduling.preemption import Nominated
from plimsoll.rules.scheduling.score import (
    DEFAULT_WEIGHTS,
    MAX_SCORE,
    intolerable_taints,
    nodes_to_find,
)
from plimsoll.rules.scheduling.selectors import matches_term, required_node_names

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
MAX_CACHED = 1024  # cached results, one number per node each


class Fleet:
    """A mirror of the loads. Call `update` after a load changed; make a new Fleet after nodes were added, removed or
    changed."""

    def __init__(self, loads: Sequence[NodeLoad], profile: Profile) -> None:
        self._profile = profile
        self._loads = list(loads)
        self._row = {load.name: row for row, load in enumerate(self._loads)}
        self._names = [load.name for load in self._loads]
        names = {CPU, MEMORY}.union(*(load.allocatable for load in loads))
        self._capacity = {name: _ints(load.allocatable.get(name, 0) for load in loads) for name in names}
        self._used = {name: _ints(load.requested.get(name, 0) for load in loads) for name in names}
        self._allowed = _ints(load.pods_allowed for load in loads)
        self._count = _ints(len(load.residents) for load in loads)
        self._scored_cpu = _ints(load.scored_cpu_milli for load in loads)
        self._scored_memory = _ints(load.scored_memory_bytes for load in loads)
        self._has_ports = np.array([_has_ports(load) for load in self._loads], dtype=np.bool_)
        self._cache: dict[bytes, Ints] = {}

    def update(self, load: NodeLoad) -> None:
        row = self._row[load.name]
        self._loads[row] = load
        for name, used in self._used.items():
            used[row] = load.requested.get(name, 0)
        self._count[row] = len(load.residents)
        self._scored_cpu[row], self._scored_memory[row] = load.scored_cpu_milli, load.scored_memory_bytes
        self._has_ports[row] = _has_ports(load)

    def decide(
        self, pod: Pod, nominated: Nominated, start: int = 0, percent_to_find: int = 0
    ) -> SchedulingDecision | None:
        """The nodes for the pod; None if the scalar rules must decide: no node fits, or the pod is nominated."""
        if pod.status.nominated_node_name or required_node_names(pod) is not None or not self._loads:
            return None
        waiting, total = waiting_load(pod), len(self._loads)
        fits = self._with_room(waiting) & (self._refusals(pod) == 0)
        for name in nominated:
            row = self._row.get(name)
            if row is not None and fits[row]:
                fits[row] = self._fits(waiting, row, nominated)
        if waiting.ports:
            for taken in np.flatnonzero(fits & self._has_ports):
                fits[taken] = self._fits(waiting, int(taken), nominated)
        order = np.flatnonzero(np.roll(fits, -start))
        if not len(order):
            return None
        wanted = nodes_to_find(total, percent_to_find)
        first = order[:wanted]
        seen = int(first[-1]) + 1 if len(order) >= wanted else total
        rows = (first + start) % total
        next_start = (start + seen) % total
        if len(rows) == 1:
            return SchedulingDecision((self._names[rows[0]],), next_start=next_start)
        scores = self._scores(waiting, rows)
        best = rows[scores == scores.max()]
        return SchedulingDecision(tuple(self._names[row] for row in best), next_start=next_start)

    def _fits(self, pod: PodLoad, row: int, nominated: Nominated) -> bool:
        load = self._loads[row]
        return verdict(pod, with_nominated(load, nominated.get(load.name, ()), pod), self._profile).fits

    def _with_room(self, pod: PodLoad) -> Bools:
        room: Bools = self._count < self._allowed
        for name, amount in pod.requests.items():
            capacity = self._capacity.get(name)
            if capacity is None:
                return np.zeros(len(self._loads), dtype=np.bool_)
            room &= amount <= capacity - self._used[name]
        return room

    def _refusals(self, pod: Pod) -> Ints:
        """The nodes that refuse this pod whatever their load."""
        spec = pod.spec
        required = spec.affinity.node_affinity.required if spec.affinity and spec.affinity.node_affinity else None
        pod_class = _class(pod, self._profile)
        constraint = ("refuse", spec.node_name, spec.tolerations, spec.node_selector, required, pod_class)
        return self._cached(constraint, lambda node: node_refusal(pod, node, self._profile) is not None)

    def _preferences(self, pod: Pod) -> Ints | None:
        """`preferred_weight` of every node; None if the pod has no preferences."""
        affinity = pod.spec.affinity
        if affinity is None or affinity.node_affinity is None or not affinity.node_affinity.preferred:
            return None
        total = np.zeros(len(self._loads), dtype=np.int64)
        for term in affinity.node_affinity.preferred:
            total += term.weight * self._cached(("prefer", term.preference), partial(matches_term, term.preference))
        return total

    def _cached(self, constraint: object, compute: Callable[[Node], int]) -> Ints:
        key = msgspec.msgpack.encode(constraint)
        result = self._cache.get(key)
        if result is None:
            result = _ints(compute(load.node) for load in self._loads)
            if len(self._cache) >= MAX_CACHED:
                self._cache.pop(next(iter(self._cache)))
            self._cache[key] = result
        return result

    def _scores(self, pod: PodLoad, rows: Ints) -> Ints:
        weights, tolerations = DEFAULT_WEIGHTS, pod.pod.spec.tolerations
        total = weights.resources_fit * self._least_allocated(pod, rows)
        total += weights.balanced_allocation * self._balanced(pod, rows)
        taints = self._cached(("taints", tolerations), lambda node: intolerable_taints(pod.pod, node))[rows]
        total += weights.taint_toleration * (MAX_SCORE - _normalized(taints))
        preferred = self._preferences(pod.pod)
        if preferred is not None:
            total += weights.node_affinity * _normalized(preferred[rows])
        return total

    def _least_allocated(self, pod: PodLoad, rows: Ints) -> Ints:
        total, weights = np.zeros(len(rows), dtype=np.int64), np.zeros(len(rows), dtype=np.int64)
        for capacities, used, wanted in (
            (self._capacity[CPU], self._scored_cpu, pod.scored_cpu_milli),
            (self._capacity[MEMORY], self._scored_memory, pod.scored_memory_bytes),
        ):
            capacity, requested = capacities[rows], used[rows] + wanted
            counts = capacity > 0
            free = np.where(requested > capacity, 0, capacity - requested)
            total += np.where(counts, free * MAX_SCORE // np.maximum(capacity, 1), 0)
            weights += counts
        return total // np.maximum(weights, 1)

    def _balanced(self, pod: PodLoad, rows: Ints) -> Ints:
        cpu, memory = pod.requests.get(CPU, 0), pod.requests.get(MEMORY, 0)
        if not cpu and not memory:
            return np.zeros(len(rows), dtype=np.int64)
        with_pod = self._evenness(rows, cpu, memory)
        if not self._profile.balanced_by_difference:
            return with_pod
        half = MAX_SCORE // 2
        score: Ints = half + (half + with_pod - self._evenness(rows, 0, 0)) // 2
        return score

    def _evenness(self, rows: Ints, cpu: int, memory: int) -> Ints:
        cpus, memories = self._capacity[CPU][rows], self._capacity[MEMORY][rows]
        one = np.minimum(1.0, (self._used[CPU][rows] + cpu) / np.maximum(cpus, 1))
        other = np.minimum(1.0, (self._used[MEMORY][rows] + memory) / np.maximum(memories, 1))
        deviation = np.where((cpus > 0) & (memories > 0), np.abs((one - other) / 2), 0.0)
        return ((1 - deviation) * MAX_SCORE).astype(np.int64)


def _ints(figures: Iterable[int]) -> Ints:
    return np.fromiter(figures, dtype=np.int64)


def _has_ports(load: NodeLoad) -> bool:
    return any(each.ports for each in load.residents.values())


def _normalized(counts: Ints) -> Ints:
    """`score.normalized`: the highest becomes 100."""
    highest = counts.max()
    return counts * MAX_SCORE // highest if highest else counts


def _class(pod: Pod, profile: Profile) -> bool | None:
    """Under memory pressure a pod's QoS class matters too (04 §8), so it is part of the constraint."""
    return qos_class(pod) != BEST_EFFORT if profile.memory_pressure_tolerated else None
