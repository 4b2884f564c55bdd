"""Room for a critical pod: which pods the node ends so that it can be admitted or grow (04 §9).

This is not eviction: it answers an admission that fails for want of resources alone, and it looks at requests, not at
usage. Guaranteed pods are spared most: first it is asked which of them must go even if every pod of the other classes
were gone, then the same for Burstable pods, then for BestEffort ones. Within a class the pod is taken whose requests
come nearest to what is still short.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from plimsoll.rules.fit import Shortfall
from plimsoll.rules.objects import CPU, MEMORY, PODS, Pod, QoSClass, is_critical
from plimsoll.rules.qos import BEST_EFFORT, BURSTABLE, GUARANTEED, qos_class
from plimsoll.rules.ranking import ranking_request

Shortage = dict[str, int]  # resource → amount still short, cpu in milli

PREEMPTING = "Preempting"
EVENT_MESSAGE = "Preempted in order to admit critical pod"
CONDITION_MESSAGE = "Pod was preempted by Kubelet to accommodate a critical pod."
UNEXPECTED_ADMISSION_ERROR = "UnexpectedAdmissionError"


class Preemption(msgspec.Struct, frozen=True):
    """Either victims, in the order they are to be killed, or why there is no set of victims."""

    victims: tuple[Pod, ...] = ()
    failure: str = ""


class _Candidate(msgspec.Struct, frozen=True):
    pod: Pod
    freed: Shortage
    size: tuple[int, int]  # memory, then cpu: what ties are broken by


def preemption(
    preemptor: Pod, pods: Iterable[Pod], shortfalls: Iterable[Shortfall], *, pod_level: bool = True
) -> Preemption:
    """`pods` are the active ones with their allocated resources, `shortfalls` all that admission found missing."""
    shortage = {each.resource: each.requested - (each.capacity - each.used) for each in shortfalls}
    classes: dict[QoSClass, list[_Candidate]] = {GUARANTEED: [], BURSTABLE: [], BEST_EFFORT: []}
    for pod in pods:
        if is_preemptable(pod, preemptor):
            qos = qos_class(pod, pod_level=pod_level)
            classes[qos].append(_candidate(pod, shortage, pod_level))
    guaranteed, burstable, best_effort = classes[GUARANTEED], classes[BURSTABLE], classes[BEST_EFFORT]
    missing = _less(shortage, [*best_effort, *burstable, *guaranteed])
    if missing:
        return Preemption(failure=_failure(missing))
    first = _nearest(guaranteed, _less(shortage, [*best_effort, *burstable]))
    second = _nearest(burstable, _less(shortage, [*best_effort, *first]))
    third = _nearest(best_effort, _less(shortage, [*second, *first]))
    return Preemption(tuple(each.pod for each in (*third, *second, *first)))


def is_preemptable(pod: Pod, preemptor: Pod) -> bool:
    """Not critical, or of lower priority where both say theirs."""
    if not is_critical(pod):
        return True
    own, other = pod.spec.priority, preemptor.spec.priority
    return own is not None and other is not None and own < other


def _candidate(pod: Pod, shortage: Shortage, pod_level: bool) -> _Candidate:
    freed = {name: freed_amount(pod, name, pod_level=pod_level) for name in shortage}
    size = (freed_amount(pod, MEMORY, pod_level=pod_level), freed_amount(pod, CPU, pod_level=pod_level))
    return _Candidate(pod, freed, size)


def freed_amount(pod: Pod, name: str, *, pod_level: bool = True) -> int:
    """What the end of this pod gives back; cpu in milli."""
    if name == PODS:
        return 1
    quantity = ranking_request(pod, name, pod_level=pod_level)
    return quantity.milli if name == CPU else quantity.value


def _less(shortage: Shortage, gone: Iterable[_Candidate]) -> Shortage:
    """What is still short without these pods."""
    left = dict(shortage)
    for candidate in gone:
        left = {name: amount - candidate.freed[name] for name, amount in left.items() if amount > candidate.freed[name]}
    return left


def _nearest(candidates: list[_Candidate], shortage: Shortage) -> list[_Candidate]:
    """Pods of one class that cover the shortage, in order of choice.

    The caller has checked that all of them together suffice; only negative requests could make that untrue.
    """
    left, chosen = list(candidates), []
    while shortage and left:
        index = 0
        nearest: float | None = None
        for position, candidate in enumerate(left):
            distance = _distance(candidate, shortage)
            if nearest is None or distance < nearest or (distance == nearest and candidate.size <= left[index].size):
                nearest, index = distance, position
        chosen.append(left[index])
        shortage = _less(shortage, [left[index]])
        # The last takes the place of the chosen one: that decides who is "later" in the next round's ties.
        left[index] = left[-1]
        left.pop()
    return chosen


def _distance(candidate: _Candidate, shortage: Shortage) -> float:
    """Σ of the squared shares that remain short."""
    total = 0.0  # not sum(): since Python 3.12 it rounds better than the kubelet does
    for name, amount in shortage.items():
        share = (amount - candidate.freed[name]) / amount
        if share > 0:
            total += share * share
    return total


def _failure(missing: Shortage) -> str:
    listed = "".join(f"(res: {name}, q: {amount}), " for name, amount in missing.items())
    return (
        "preemption: error finding a set of pods to preempt: "
        f"no set of running pods found to reclaim resources: [{listed}]"
    )
