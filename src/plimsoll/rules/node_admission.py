"""Does this node take the pod that was bound to it? (03 §6 step 7 and "New pods racing", 04 §8, §9)

The node asks again, because the scheduler counted with what it knew: a resize may have been allocated meanwhile, the
node may be under pressure, somebody may have named the node by hand. The checks stand in the kubelet's order: pressure,
the operating system, resources against the *allocated* ones of the other pods, then node affinity, node name, host
ports and NoExecute taints. All of the last group are collected, and the first one found is what is said.

A critical pod is not refused for want of resources: if nothing else speaks against it, other pods make room, and it is
admitted without a second look. `Admitted.victims` are to be ended before its containers start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from plimsoll.rules.eviction import EVICTED, NodeCondition, pressure_refusal
from plimsoll.rules.fit import (
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
from plimsoll.rules.objects import Pod, is_critical, is_static
from plimsoll.rules.preemption_node import UNEXPECTED_ADMISSION_ERROR, preemption
from plimsoll.rules.profile import DEFAULT_PROFILE, Profile
from plimsoll.rules.selectors import is_tolerated, matches_affinity

OS_LABEL = "kubernetes.io/os"
THIS_OS = "linux"

_REJECTED = "Pod was rejected: "
_RECOVERY_ERROR = "Unexpected error while attempting to recover from admission failure: "


class Admitted(msgspec.Struct, frozen=True):
    victims: tuple[Pod, ...] = ()  # in the order they are to be killed
    short_of: str = ""  # the resource that they make room in


class Refused(msgspec.Struct, frozen=True):
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
    pod_level: bool = True,
    managers: Callable[[], Refused | None] = lambda: None,
    also: Sequence[Refused] = (),
) -> Admitted | Refused:
    """`load`: the node as `fit.allocated_load` counts it; should the pod itself be in it, that does not count.

    `also`: what else speaks against this one.

    `managers`: whether exclusive CPUs can be had, which a kubelet asks before it counts (03 §6 step 7).
    """
    pressure = pressure_refusal(pod, conditions, pod_level=pod_level)
    if pressure is not None:
        return Refused(EVICTED, pressure)
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
    if missing and not is_critical(pod):
        return Refused(missing[0].rejection, missing[0].rejection_message)
    if refusals:
        return refusals[0]
    if not missing:
        return Admitted()
    found = preemption(pod, (each.pod for each in others.residents.values()), missing, pod_level=pod_level)
    if found.failure:
        return Refused(UNEXPECTED_ADMISSION_ERROR, _RECOVERY_ERROR + found.failure)
    return Admitted(found.victims, missing[0].resource)


def shortfalls(pod: Pod, load: NodeLoad) -> list[Shortfall]:
    """What the node lacks for this pod beside the others."""
    own = requesting_load(pod)
    return kubelet_shortfalls(own.requests, load.without_pods([own.key]))


def _other_system(pod: Pod) -> Refused | None:
    """The kubelet looks at the pod's own label, not at its node selector, and so do we."""
    if (pod.metadata.labels or {}).get(OS_LABEL, THIS_OS) != THIS_OS:
        return Refused(
            "PodOSSelectorNodeLabelDoesNotMatch",
            f"Failed to admit pod as the `{OS_LABEL}` label doesn't match node label",
        )
    if pod.spec.os is not None and pod.spec.os.name not in ("", THIS_OS):
        return Refused("PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS")
    return None


def _unfit(own: PodLoad, others: NodeLoad, profile: Profile) -> list[Refused]:
    """What no preemption could change."""
    found: list[tuple[str, str]] = []
    pod, node = own.pod, others.node
    if not matches_affinity(pod, node):
        found.append(("NodeAffinity", AFFINITY_MISMATCH))
    if pod.spec.node_name and pod.spec.node_name != node.metadata.name:
        found.append(("NodeName", OTHER_NODE_NAME))
    if own.ports and ports_taken(own.ports, others.residents.values()):
        found.append(("NodePorts", PORTS_TAKEN))
    if not is_static(pod) and any(
        taint.effect == NO_EXECUTE and not is_tolerated(taint, pod.spec.tolerations) for taint in node.spec.taints
    ):
        found.append(("TaintToleration", UNTOLERATED_TAINTS))
    return [Refused(name, _predicate_text(name, reason, profile)) for name, reason in found]


def _predicate_text(name: str, reason: str, profile: Profile) -> str:
    sentence = f"Predicate {name} failed"
    return f"{sentence}: {reason}" if profile.predicate_text_has_reason else sentence
