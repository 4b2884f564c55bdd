"""Whether the node admits a pod that is bound to it (03 §6 step 7 and "New pods racing", 04 §8, §9).

The node checks again what the scheduler has checked, because the scheduler may not have known everything: a resize may
have been allocated meanwhile, the node may be under pressure, or a user may have set the node name. The checks are in
the kubelet's order: pressure, the operating system, resources against the *allocated* ones of the other pods, then node
affinity, node name, host ports and NoExecute taints. Of the last group all failures are collected and the first one is
reported.

A critical pod that only lacks resources is admitted: other pods are preempted for it. `Admitted.victims` must terminate
before its containers start.

`preemption` chooses these pods, for an admission or a resize (04 §9). This is not eviction: it uses requests, not
usage. Guaranteed pods are preempted last: first come those that must be preempted even if every pod of the other
classes were gone, then the same for Burstable pods, then for BestEffort pods. Within a class the pod with the requests
nearest to the remaining shortage is chosen.

Kubernetes: pkg/kubelet/lifecycle/predicate.go, pkg/kubelet/preemption/preemption.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from plimsoll.rules.eviction.assessment import EVICTED, NodeCondition, pressure_refusal
from plimsoll.rules.eviction.ranking import ranking_request
from plimsoll.rules.model.gates import DEFAULT_GATES, Gates
from plimsoll.rules.model.objects import CPU, MEMORY, PODS, Pod, QoSClass, is_critical, is_static
from plimsoll.rules.profile import DEFAULT_PROFILE, Profile
from plimsoll.rules.resources.effective import pod_level_set
from plimsoll.rules.resources.qos import BEST_EFFORT, BURSTABLE, GUARANTEED, qos_class
from plimsoll.rules.scheduling.fit import (
    AFFINITY_MISMATCH,
    NO_EXECUTE,
    OTHER_NODE_NAME,
    PORTS_TAKEN,
    UNTOLERATED_TAINTS,
    NodeLoad,
    PodLoad,
    Shortfall,
    kubelet_shortfalls,
    ports_taken,
    requesting_load,
)
from plimsoll.rules.scheduling.selectors import is_tolerated, matches_affinity

Shortage = dict[str, int]  # resource → amount still short, cpu in milli

PREEMPTING = "Preempting"
EVENT_MESSAGE = "Preempted in order to admit critical pod"
CONDITION_MESSAGE = "Pod was preempted by Kubelet to accommodate a critical pod."
UNEXPECTED_ADMISSION_ERROR = "UnexpectedAdmissionError"


class CriticalPodPreemption(msgspec.Struct, frozen=True):
    """Either victims, in the order of termination, or why there is no set of victims."""

    victims: tuple[Pod, ...] = ()
    failure: str = ""


class _Candidate(msgspec.Struct, frozen=True):
    pod: Pod
    freed: Shortage
    size: tuple[int, int]  # memory, then cpu: the tie-breaker


def preemption(
    preemptor: Pod, pods: Iterable[Pod], shortfalls: Iterable[Shortfall], *, gates: Gates = DEFAULT_GATES
) -> CriticalPodPreemption:
    """`pods` are the active pods with their allocated resources; `shortfalls` are all that admission found."""
    shortage = {
        shortfall.resource: shortfall.requested - (shortfall.capacity - shortfall.used) for shortfall in shortfalls
    }
    classes: dict[QoSClass, list[_Candidate]] = {GUARANTEED: [], BURSTABLE: [], BEST_EFFORT: []}
    for pod in pods:
        if is_preemptable(pod, preemptor):
            qos = qos_class(pod, gates=gates)
            classes[qos].append(_candidate(pod, shortage, gates))
    guaranteed, burstable, best_effort = classes[GUARANTEED], classes[BURSTABLE], classes[BEST_EFFORT]
    missing = _less(shortage, [*best_effort, *burstable, *guaranteed])
    if missing:
        return CriticalPodPreemption(failure=_failure(missing))
    first = _nearest(guaranteed, _less(shortage, [*best_effort, *burstable]))
    second = _nearest(burstable, _less(shortage, [*best_effort, *first]))
    third = _nearest(best_effort, _less(shortage, [*second, *first]))
    return CriticalPodPreemption(tuple(candidate.pod for candidate in (*third, *second, *first)))


def is_preemptable(pod: Pod, preemptor: Pod) -> bool:
    """Not critical, or of lower priority if both have one."""
    if not is_critical(pod):
        return True
    own, other = pod.spec.priority, preemptor.spec.priority
    return own is not None and other is not None and own < other


def _candidate(pod: Pod, shortage: Shortage, gates: Gates) -> _Candidate:
    freed = {name: freed_amount(pod, name, gates=gates) for name in shortage}
    size = (freed_amount(pod, MEMORY, gates=gates), freed_amount(pod, CPU, gates=gates))
    return _Candidate(pod, freed, size)


def freed_amount(pod: Pod, name: str, *, gates: Gates = DEFAULT_GATES) -> int:
    """What the termination of this pod frees; cpu in milli-cores."""
    if name == PODS:
        return 1
    quantity = ranking_request(pod, name, gates=gates)
    return quantity.milli if name == CPU else quantity.value


def _less(shortage: Shortage, gone: Iterable[_Candidate]) -> Shortage:
    """What is still short without these pods: 2Gi short, pods of 1Gi and 512Mi: 512Mi."""
    left = dict(shortage)
    for candidate in gone:
        left = {name: amount - candidate.freed[name] for name, amount in left.items() if amount > candidate.freed[name]}
    return left


def _nearest(candidates: list[_Candidate], shortage: Shortage) -> list[_Candidate]:
    """Pods of one class that cover the shortage, in order of choice.

    The caller has checked that all of them together are enough; negative requests could contradict that.
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
        # The last one takes the place of the chosen one: that decides ties in the next round.
        left[index] = left[-1]
        left.pop()
    return chosen


def _distance(candidate: _Candidate, shortage: Shortage) -> float:
    """Sum of the squared shares that remain short: 1Gi of 2Gi and 0m of 500m: (1/2)² + 0² = 0.25 (04 §9)."""
    total = 0.0  # not sum(): since Python 3.12 it rounds differently from the kubelet
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


OS_LABEL = "kubernetes.io/os"
THIS_OS = "linux"

_REJECTED = "Pod was rejected: "
_RECOVERY_ERROR = "Unexpected error while attempting to recover from admission failure: "


class Admitted(msgspec.Struct, frozen=True):
    victims: tuple[Pod, ...] = ()  # in the order of termination
    short_of: str = ""  # the resource that they free


class AdmissionRefusal(msgspec.Struct, frozen=True):
    """`reason` is both `status.reason` of the Failed pod and the reason of the Warning event."""

    reason: str
    event_text: str

    @property
    def message(self) -> str:
        """`status.message`"""
        return _REJECTED + self.event_text


def admit(
    pod: Pod,
    load: NodeLoad,
    conditions: Iterable[NodeCondition] = (),
    *,
    profile: Profile = DEFAULT_PROFILE,
    gates: Gates = DEFAULT_GATES,
    managers: Callable[[], AdmissionRefusal | None] = lambda: None,
    also: Sequence[AdmissionRefusal] = (),
    preempts: bool = True,
) -> Admitted | AdmissionRefusal:
    """`load`: the node as `fit.allocated_load` counts it; the pod itself, if it is part of it, does not count.

    `also`: further failures. `managers`: whether exclusive CPUs are available, which a kubelet checks before it counts
    resources (03 §6 step 7). `preempts`: whether a critical pod takes the place of others.
    """
    pressure = pressure_refusal(pod, conditions, gates=gates)
    if pressure is not None:
        return AdmissionRefusal(EVICTED, pressure)
    foreign = _other_system(pod)
    if foreign is not None:
        return foreign
    refusal = managers()
    if refusal is not None:
        return refusal
    own = requesting_load(pod)
    others = load.without_pods([own.key])
    missing = kubelet_shortfalls(own.requests, others)
    refusals = (*_unfit(own, others, profile), *also)
    if missing and not (preempts and is_critical(pod)):
        return AdmissionRefusal(missing[0].rejection, missing[0].rejection_message)
    if refusals:
        return refusals[0]
    if not missing:
        return Admitted()
    preempted = preemption(pod, (resident.pod for resident in others.residents.values()), missing, gates=gates)
    if preempted.failure:
        return AdmissionRefusal(UNEXPECTED_ADMISSION_ERROR, _RECOVERY_ERROR + preempted.failure)
    return Admitted(preempted.victims, missing[0].resource)


NO_APP_ARMOR = AdmissionRefusal("AppArmor", "Cannot enforce AppArmor: AppArmor is not enabled on the host")


def shortfalls(pod: Pod, load: NodeLoad) -> list[Shortfall]:
    """The resources that the node lacks for this pod."""
    own = requesting_load(pod)
    return kubelet_shortfalls(own.requests, load.without_pods([own.key]))


def _other_system(pod: Pod) -> AdmissionRefusal | None:
    """As the kubelet does: by the pod's own label, not by its node selector."""
    if (pod.metadata.labels or {}).get(OS_LABEL, THIS_OS) != THIS_OS:
        return AdmissionRefusal(
            "PodOSSelectorNodeLabelDoesNotMatch",
            f"Failed to admit pod as the `{OS_LABEL}` label doesn't match node label",
        )
    if pod.spec.os is not None and pod.spec.os.name not in ("", THIS_OS):
        return AdmissionRefusal("PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS")
    return None


def resource_levels(pod: Pod, gates: Gates) -> str:
    """The label of the metric of admissions: where the pod specifies resources; "" if nowhere."""
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    in_containers = any(each.resources.requests or each.resources.limits for each in containers)
    if pod_level_set(pod.spec.resources, gates):
        return "pod_and_container_level" if in_containers else "pod_level"
    return "container_level" if in_containers else ""


def _unfit(own: PodLoad, others: NodeLoad, profile: Profile) -> list[AdmissionRefusal]:
    """Failures that preemption cannot resolve."""
    failures: list[tuple[str, str]] = []
    pod, node = own.pod, others.node
    if not matches_affinity(pod, node):
        failures.append(("NodeAffinity", AFFINITY_MISMATCH))
    if pod.spec.node_name and pod.spec.node_name != node.metadata.name:
        failures.append(("NodeName", OTHER_NODE_NAME))
    if own.ports and ports_taken(own.ports, others.residents.values()):
        failures.append(("NodePorts", PORTS_TAKEN))
    if not is_static(pod) and any(
        taint.effect == NO_EXECUTE and not is_tolerated(taint, pod.spec.tolerations) for taint in node.spec.taints
    ):
        failures.append(("TaintToleration", UNTOLERATED_TAINTS))
    return [AdmissionRefusal(name, _predicate_text(name, reason, profile)) for name, reason in failures]


def _predicate_text(name: str, reason: str, profile: Profile) -> str:
    sentence = f"Predicate {name} failed"
    return f"{sentence}: {reason}" if profile.predicate_text_has_reason else sentence
