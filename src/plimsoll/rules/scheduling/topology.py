"""Other pods decide too: pod (anti-)affinity and topology spread constraints (05 A2, A3).

Both count pods by *topology pair*, a node label and its value (`topology.kubernetes.io/zone=a`), so one walk over the
nodes serves every candidate. Preemption and nominated pods change the pods of one node at a time: that node's share of
the counts is then replaced, and nothing else is counted again.

Sources: kube-scheduler's plugins InterPodAffinity and PodTopologySpread
https://github.com/kubernetes/kubernetes/tree/v1.36.0/pkg/scheduler/framework/plugins
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from plimsoll.rules.model.objects import (
    LabelSelector,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    SelectorTerm,
    TopologySpreadConstraint,
)
from plimsoll.rules.scheduling.fit import NO_EXECUTE, NO_SCHEDULE, FitVerdict, NodeLoad
from plimsoll.rules.scheduling.selectors import is_tolerated, matches_affinity, matches_selector

HOSTNAME = "kubernetes.io/hostname"
SPREAD = "node(s) didn't match pod topology spread constraints"
SPREAD_LABEL = f"{SPREAD} (missing required label)"
AFFINITY = "node(s) didn't match pod affinity rules"
ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
EXISTING_ANTI_AFFINITY = "node(s) didn't satisfy existing pods anti-affinity rules"
HARD_AFFINITY_WEIGHT = 1
MAX_SCORE = 100

Pair = tuple[str, str]  # node label, value
Namespaces = Mapping[str, Mapping[str, str]]  # name → labels
_NONE = PodAffinity()


def affinity_of(pod: Pod) -> PodAffinity:
    return (pod.spec.affinity and pod.spec.affinity.pod_affinity) or _NONE


def anti_affinity_of(pod: Pod) -> PodAffinity:
    return (pod.spec.affinity and pod.spec.affinity.pod_anti_affinity) or _NONE


def concerns_others(pod: Pod) -> bool:
    """Whether this pod, once it runs, can change where other pods may go or had better go."""
    affinity = pod.spec.affinity
    return affinity is not None and (affinity.pod_affinity is not None or affinity.pod_anti_affinity is not None)


def depends_on_others(pod: Pod) -> bool:
    """Whether other pods decide where this one may go or had better go."""
    return concerns_others(pod) or bool(pod.spec.topology_spread_constraints)


def with_label_keys(
    selector: LabelSelector | None, pod: Pod, keys: Sequence[str], mismatch: Sequence[str] = ()
) -> LabelSelector | None:
    """matchLabelKeys: the pod's own values of these labels become part of the selector."""
    labels = pod.metadata.labels or {}
    terms = [
        SelectorTerm(key, operator, (labels[key],))
        for operator, names in (("In", keys), ("NotIn", mismatch))
        for key in names
        if key in labels
    ]
    if selector is None or not terms:
        return selector
    return msgspec.structs.replace(selector, match_expressions=(*selector.match_expressions, *terms))


def _labels(load: NodeLoad) -> Mapping[str, str]:
    return load.node.metadata.labels or {}


class Term:
    """A pod affinity term of one pod, ready to be compared with other pods."""

    __slots__ = ("_any_namespace", "_namespaces", "_selector", "key", "weight")

    def __init__(self, owner: Pod, term: PodAffinityTerm, weight: int = 0) -> None:
        self.key, self.weight = term.topology_key, weight
        own_only = not term.namespaces and term.namespace_selector is None
        self._namespaces = frozenset((owner.metadata.namespace,) if own_only else term.namespaces)
        self._any_namespace = term.namespace_selector
        self._selector = with_label_keys(term.label_selector, owner, term.match_label_keys, term.mismatch_label_keys)

    def matches(self, pod: Pod, namespaces: Namespaces) -> bool:
        namespace = pod.metadata.namespace
        if namespace not in self._namespaces and not matches_selector(self._any_namespace, namespaces.get(namespace)):
            return False
        return matches_selector(self._selector, pod.metadata.labels)


def _terms(owner: Pod, affinity: PodAffinity) -> tuple[Term, ...]:
    return tuple(Term(owner, term) for term in affinity.required)


def _preferred(owner: Pod, affinity: PodAffinity, sign: int = 1) -> list[Term]:
    return [Term(owner, each.pod_affinity_term, sign * each.weight) for each in affinity.preferred]


class _Counts:
    """What the pods of the cluster add up to for the waiting pod."""

    __slots__ = ("affinity", "anti", "existing_anti", "spread")

    def __init__(self, constraints: int) -> None:
        self.affinity: Counter[Pair] = Counter()  # pods that match all required affinity terms
        self.anti: Counter[Pair] = Counter()  # pods that a required anti-affinity term of the waiting pod matches
        self.existing_anti: Counter[Pair] = Counter()  # pods whose own anti-affinity matches the waiting pod
        self.spread: list[Counter[Pair]] = [Counter() for _ in range(constraints)]  # pods that a constraint selects

    def parts(self) -> Iterable[Counter[Pair]]:
        return (self.affinity, self.anti, self.existing_anti, *self.spread)


class _Constraint:
    """A spread constraint of the waiting pod, with its selector complete."""

    __slots__ = ("honors_affinity", "honors_taints", "key", "max_skew", "min_domains", "selector")

    def __init__(self, pod: Pod, constraint: TopologySpreadConstraint) -> None:
        self.key, self.max_skew = constraint.topology_key, constraint.max_skew
        self.min_domains = constraint.min_domains or 1
        self.selector = with_label_keys(constraint.label_selector, pod, constraint.match_label_keys)
        self.honors_affinity = constraint.node_affinity_policy != "Ignore"
        self.honors_taints = constraint.node_taints_policy == "Honor"

    def includes(self, pod: Pod, load: NodeLoad) -> bool:
        """Whether the node is one of those over which pods are spread."""
        if self.honors_affinity and not matches_affinity(pod, load.node):
            return False
        return not self.honors_taints or all(
            taint.effect not in (NO_SCHEDULE, NO_EXECUTE) or is_tolerated(taint, pod.spec.tolerations)
            for taint in load.node.spec.taints
        )

    def count(self, pod: Pod, load: NodeLoad) -> int:
        namespace = pod.metadata.namespace
        return sum(
            resident.pod.metadata.namespace == namespace
            and resident.pod.metadata.deletion_timestamp is None
            and matches_selector(self.selector, resident.pod.metadata.labels)
            for resident in load.residents.values()
        )


class Topology:
    """Pod affinity and topology spread for one waiting pod against the cluster as it is in this cycle."""

    def __init__(
        self,
        pod: Pod,
        loads: Sequence[NodeLoad],
        namespaces: Namespaces | None = None,
        defaults: Sequence[TopologySpreadConstraint] = (),
    ) -> None:
        """`defaults`: the constraints of a pod that has none; nodes without their labels are scored, too."""
        self._pod, self._loads, self._namespaces = pod, {load.name: load for load in loads}, namespaces or {}
        self._required = _terms(pod, affinity_of(pod))
        self._forbidden = _terms(pod, anti_affinity_of(pod))
        own = pod.spec.topology_spread_constraints
        self._is_defaulted = not own
        wanted = [(_Constraint(pod, each), each.when_unsatisfiable) for each in own or defaults]
        self._hard = [constraint for constraint, policy in wanted if policy == "DoNotSchedule"]
        self._soft = [constraint for constraint, policy in wanted if policy != "DoNotSchedule"]
        self._counts = _Counts(len(self._hard))
        for load in loads:
            self._add(self._counts, load)

    # --- filters ---

    def refusal(self, load: NodeLoad) -> FitVerdict | None:
        """Why the pod may not go to this node; `load` may have other pods than the cluster, as in preemption."""
        known = self._loads.get(load.name)
        counts = self._counts if known is None or load.residents is known.residents else self._recounted(known, load)
        labels = _labels(load)
        return self._spread_refusal(labels, counts) or self._affinity_refusal(labels, counts)

    def _spread_refusal(self, labels: Mapping[str, str], counts: _Counts) -> FitVerdict | None:
        for constraint, by_pair in zip(self._hard, counts.spread, strict=True):
            if constraint.key not in labels:
                return FitVerdict((SPREAD_LABEL,), unresolvable=True)
            least = min(by_pair.values(), default=0) if len(by_pair) >= constraint.min_domains else 0
            own = matches_selector(constraint.selector, self._pod.metadata.labels)
            if by_pair.get((constraint.key, labels[constraint.key]), 0) + own - least > constraint.max_skew:
                return FitVerdict((SPREAD,))
        return None

    def _affinity_refusal(self, labels: Mapping[str, str], counts: _Counts) -> FitVerdict | None:
        if not self._is_near(labels, counts):
            return FitVerdict((AFFINITY,), unresolvable=True)
        if any(term.key in labels and counts.anti[term.key, labels[term.key]] > 0 for term in self._forbidden):
            return FitVerdict((ANTI_AFFINITY,))
        if counts.existing_anti and any(counts.existing_anti[pair] > 0 for pair in labels.items()):
            return FitVerdict((EXISTING_ANTI_AFFINITY,))
        return None

    def _is_near(self, labels: Mapping[str, str], counts: _Counts) -> bool:
        if any(term.key not in labels for term in self._required):
            return False
        if all(counts.affinity[term.key, labels[term.key]] > 0 for term in self._required):
            return True
        # The first pod of a group that wants to be near itself may start anywhere.
        none_runs = not any(count > 0 for count in counts.affinity.values())
        return none_runs and all(term.matches(self._pod, self._namespaces) for term in self._required)

    # --- counts ---

    def _add(self, counts: _Counts, load: NodeLoad) -> None:
        labels = _labels(load)
        for resident in load.residents.values():
            other = resident.pod
            if self._required and all(term.matches(other, self._namespaces) for term in self._required):
                counts.affinity.update((term.key, labels[term.key]) for term in self._required if term.key in labels)
            for term in self._forbidden:
                if term.key in labels and term.matches(other, self._namespaces):
                    counts.anti[term.key, labels[term.key]] += 1
            for theirs in anti_affinity_of(other).required:
                if theirs.topology_key in labels and Term(other, theirs).matches(self._pod, self._namespaces):
                    counts.existing_anti[theirs.topology_key, labels[theirs.topology_key]] += 1
        if self._hard and all(constraint.key in labels for constraint in self._hard):
            for constraint, by_pair in zip(self._hard, counts.spread, strict=True):
                if constraint.includes(self._pod, load):
                    by_pair[constraint.key, labels[constraint.key]] += constraint.count(self._pod, load)

    def _recounted(self, known: NodeLoad, load: NodeLoad) -> _Counts:
        before, after, total = (_Counts(len(self._hard)) for _ in range(3))
        self._add(before, known)
        self._add(after, load)
        for result, whole, old, new in zip(
            total.parts(), self._counts.parts(), before.parts(), after.parts(), strict=True
        ):
            result.update(whole)
            result.subtract(old)
            result.update(new)
        return total

    # --- scores ---

    def spread_scores(self, nodes: Sequence[NodeLoad]) -> list[int]:
        """0…100 for each node: the fewer matching pods in its places, the better (ScheduleAnyway constraints)."""
        if not self._soft:
            return [0] * len(nodes)
        eligible = [load for load in nodes if self._has_keys(load)]
        raw = {load.name: 0.0 for load in eligible}
        for constraint in self._soft:
            for name, score in self._spread_counts(constraint, eligible).items():
                raw[name] += score
        rounded = {name: math.floor(score + 0.5) for name, score in raw.items()}
        highest, lowest = max(rounded.values(), default=0), min(rounded.values(), default=0)
        if highest == 0:
            return [MAX_SCORE if load.name in rounded else 0 for load in nodes]
        return [
            MAX_SCORE * (highest + lowest - rounded[load.name]) // highest if load.name in rounded else 0
            for load in nodes
        ]

    def _spread_counts(self, constraint: _Constraint, nodes: Sequence[NodeLoad]) -> dict[str, float]:
        """By node: matching pods in its place, weighted by the number of places, so that small keys do not dominate."""
        key = constraint.key
        labelled = [load for load in nodes if key in _labels(load)]
        if key == HOSTNAME:
            counts = {load.name: constraint.count(self._pod, load) for load in labelled}
            places = len(nodes)
        else:
            by_value: Counter[str] = Counter()
            for load in self._loads.values():
                if key in _labels(load) and self._has_keys(load) and constraint.includes(self._pod, load):
                    by_value[_labels(load)[key]] += constraint.count(self._pod, load)
            counts = {load.name: by_value[_labels(load)[key]] for load in labelled}
            places = len({_labels(load).get(key, "") for load in nodes})  # without the label: one more
        return {name: count * math.log(places + 2) + constraint.max_skew - 1 for name, count in counts.items()}

    def _has_keys(self, load: NodeLoad) -> bool:
        return self._is_defaulted or all(constraint.key in _labels(load) for constraint in self._soft)

    def affinity_scores(self, nodes: Sequence[NodeLoad]) -> list[int]:
        """0…100 for each node by preferred terms, of the waiting pod and of the pods that run."""
        own = [*_preferred(self._pod, affinity_of(self._pod)), *_preferred(self._pod, anti_affinity_of(self._pod), -1)]
        weights: Counter[Pair] = Counter()
        for load in self._loads.values():
            labels = _labels(load)
            for resident in load.residents.values():
                other = resident.pod
                theirs = self._terms_of(other) if concerns_others(other) else []
                for term, target in (*((term, other) for term in own), *((term, self._pod) for term in theirs)):
                    if term.key in labels and term.matches(target, self._namespaces):
                        weights[term.key, labels[term.key]] += term.weight
        if not weights:
            return [0] * len(nodes)
        raw = [sum(weights[pair] for pair in _labels(load).items()) for load in nodes]
        span = max(raw) - min(raw)
        return [int(MAX_SCORE * ((score - min(raw)) / span)) if span else 0 for score in raw]

    @staticmethod
    def _terms_of(other: Pod) -> list[Term]:
        affinity = affinity_of(other)
        hard = [Term(other, term, HARD_AFFINITY_WEIGHT) for term in affinity.required]
        return [*hard, *_preferred(other, affinity), *_preferred(other, anti_affinity_of(other), -1)]
