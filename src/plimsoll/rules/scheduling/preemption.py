"""Preemption: which pods to remove so that a pod of higher priority fits (05 A5). The QoS class does not matter.

On one node: remove every pod of lower priority; if the pod still does not fit, the node is excluded. Else reprieve pods
one by one as long as the pod still fits: those whose eviction violates a disruption budget first, then by importance.
The rest are victims. Among the nodes the least disruptive one is chosen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from plimsoll.rules.model.objects import Pod
from plimsoll.rules.model.policies import PodDisruptionBudget
from plimsoll.rules.profile import Profile
from plimsoll.rules.scheduling.fit import Filter, FitVerdict, NodeLoad, PodLoad, verdict, with_nominated
from plimsoll.rules.scheduling.selectors import selects

NO_VICTIMS = "No preemption victims found for incoming pod"
NOT_HELPFUL = "Preemption is not helpful for scheduling"
NEVER = "not eligible due to preemptionPolicy=Never."
VICTIM_TERMINATING = "not eligible due to a terminating pod on the nominated node."
PREEMPTED_REASON = "PreemptionByScheduler"

_MIN_CANDIDATES = 100
_MIN_CANDIDATES_PERCENT = 10
_PRIORITY_OFFSET = 2**31  # makes every priority positive, so that more victims always cost more

Nominated = Mapping[str, Sequence[PodLoad]]  # by node name


class PreemptionCandidate(msgspec.Struct, frozen=True):
    """A possible node and its victims, the most important first."""

    node: str
    victims: tuple[Pod, ...]
    broken_budgets: int = 0


class Preemption(msgspec.Struct, frozen=True):
    """The chosen candidate, or why there is none: a message of its own, or a verdict for each node."""

    candidate: PreemptionCandidate | None = None
    ineligible: str = ""
    verdicts: dict[str, FitVerdict] = {}
    # Nominated pods of lower priority on the chosen node: their nomination is removed (A5).
    cleared: tuple[Pod, ...] = ()


def preempt(
    pod: PodLoad,
    nodes: Sequence[NodeLoad],
    verdicts: Mapping[str, FitVerdict],
    profile: Profile,
    nominated: Nominated | None = None,
    budgets: Sequence[PodDisruptionBudget] = (),
    others: Filter | None = None,
) -> Preemption:
    """For a pod that fits nowhere. `verdicts` are the filters' results; a node without one is not tried."""
    nominated = nominated or {}
    text = ineligibility(pod, nodes, verdicts)
    if text:
        return Preemption(ineligible=text)
    hopeful = [node for node in nodes if _is_resolvable(verdicts.get(node.name))]
    wanted = min(len(hopeful), max(len(hopeful) * _MIN_CANDIDATES_PERCENT // 100, _MIN_CANDIDATES))
    clean: list[PreemptionCandidate] = []
    costly: list[PreemptionCandidate] = []
    tried: dict[str, FitVerdict] = {}
    for node in hopeful:
        candidate = victims_on(pod, node, profile, nominated.get(node.name, ()), budgets, others)
        if isinstance(candidate, FitVerdict):
            tried[node.name] = candidate
            continue
        (costly if candidate.broken_budgets else clean).append(candidate)
        if clean and len(clean) + len(costly) >= wanted:
            break
    chosen = cheapest(clean + costly)
    if chosen is None:
        not_helpful = FitVerdict((NOT_HELPFUL,), unresolvable=True)
        return Preemption(verdicts={node.name: tried.get(node.name, not_helpful) for node in nodes})
    cleared = tuple(each.pod for each in nominated.get(chosen.node, ()) if each.priority < pod.priority)
    return Preemption(chosen, cleared=cleared)


def ineligibility(pod: PodLoad, nodes: Iterable[NodeLoad], verdicts: Mapping[str, FitVerdict]) -> str:
    """Why the pod may not preempt at all, or empty: its policy, or its earlier victims are still terminating."""
    if pod.pod.spec.preemption_policy == "Never":
        return NEVER
    name = pod.pod.status.nominated_node_name
    before = verdicts.get(name)
    if not name or (before is not None and before.unresolvable):
        return ""
    for node in nodes:
        if node.name == name:
            leaving = (load for load in node.residents.values() if load.priority < pod.priority)
            return VICTIM_TERMINATING if any(_leaves_by_preemption(each.pod) for each in leaving) else ""
    return ""


def _leaves_by_preemption(pod: Pod) -> bool:
    if pod.metadata.deletion_timestamp is None:
        return False
    for condition in pod.status.conditions:
        if condition.type == "DisruptionTarget":
            return condition.status == "True" and condition.reason == PREEMPTED_REASON
    return False


def _is_resolvable(refusal: FitVerdict | None) -> bool:
    return refusal is not None and not refusal.fits and not refusal.unresolvable


def victims_on(
    pod: PodLoad,
    node: NodeLoad,
    profile: Profile,
    nominated: Sequence[PodLoad] = (),
    budgets: Sequence[PodDisruptionBudget] = (),
    others: Filter | None = None,
) -> PreemptionCandidate | FitVerdict:
    """The victims on one node, or the verdict that remains without all pods of lower priority."""
    lower = sorted((each for each in node.residents.values() if each.priority < pod.priority), key=_importance)
    if not lower:
        return FitVerdict((NO_VICTIMS,), unresolvable=True)
    load = with_nominated(node.without_pods(each.key for each in lower), nominated, pod)
    remaining = verdict(pod, load, profile, others)
    if not remaining.fits:
        return remaining
    broken = _budget_breakers(lower, budgets)
    victims: list[PodLoad] = []
    for each in sorted(lower, key=lambda load: load.key not in broken):
        with_each = load.with_pods((each,))
        if verdict(pod, with_each, profile, others).fits:
            load = with_each
        else:
            victims.append(each)
    violations = sum(victim.key in broken for victim in victims)
    return PreemptionCandidate(node.name, tuple(victim.pod for victim in sorted(victims, key=_importance)), violations)


def _importance(load: PodLoad) -> tuple[int, bool, str]:
    """Higher priority, then the longer run; a pod that has not started is the youngest."""
    return (-load.priority, *_started(load.pod))


def _started(pod: Pod) -> tuple[bool, str]:
    # The API prints all times in UTC with whole seconds, so their texts sort by time.
    start = pod.status.start_time
    return (start is None, start or "")


def _budget_breakers(pods: Sequence[PodLoad], budgets: Sequence[PodDisruptionBudget]) -> set[str]:
    """Pods whose eviction violates a budget, if they are evicted in this order; a pod that the budget already lists is
    free."""
    left = [budget.status.disruptions_allowed for budget in budgets]
    broken: set[str] = set()
    for load in pods:
        metadata = load.pod.metadata
        for index, budget in enumerate(budgets):
            if budget.metadata.namespace != metadata.namespace or not selects(budget.spec.selector, metadata.labels):
                continue
            if metadata.name in (budget.status.disrupted_pods or {}):
                continue
            left[index] -= 1
            if left[index] < 0:
                broken.add(load.key)
    return broken


def cheapest(candidates: Sequence[PreemptionCandidate]) -> PreemptionCandidate | None:
    """Fewest violated budgets, lowest top priority, smallest sum, fewest victims, youngest top victims, first (A5)."""
    # Without victims the pod fits already, and preemption is not needed.
    possible = [candidate for candidate in candidates if candidate.victims]
    if not possible:
        return None
    least = min(map(_cost, possible))
    return max((each for each in possible if _cost(each) == least), key=_youth)


def _cost(candidate: PreemptionCandidate) -> tuple[int, int, int, int]:
    priorities = [victim.spec.priority or 0 for victim in candidate.victims]
    total = sum(priorities) + _PRIORITY_OFFSET * len(priorities)
    return (candidate.broken_budgets, max(priorities), total, len(priorities))


def _youth(candidate: PreemptionCandidate) -> tuple[bool, str]:
    highest = max(victim.spec.priority or 0 for victim in candidate.victims)
    return min(_started(victim) for victim in candidate.victims if (victim.spec.priority or 0) == highest)
