"""Preemption for a resize that its node has deferred (1.37, gate InPlacePodVerticalScalingSchedulerPreemption).

The pod has its node, so only this node is judged, and only by its resources: taints, affinity, ports and spread counted
when the pod came. The pod counts once, with the larger of what it requests and what it still has. If the node is too
small for that, pods of lower priority are removed as for a pod that waits for a node (`preemption`); the node then
carries out the resize by itself. No node is nominated and no FailedScheduling is reported.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from plimsoll.rules.model.objects import NodeSpec, Pod
from plimsoll.rules.model.policies import PodDisruptionBudget
from plimsoll.rules.profile import Profile
from plimsoll.rules.scheduling.fit import NodeLoad, PodLoad, load_key, verdict, waiting_load, with_nominated
from plimsoll.rules.scheduling.preemption import Preemption, preempt

DISABLED = "node had resize preemption disabled"
FITS_ALREADY = "pod resize fits, waiting for Kubelet actuation"
NO_NODE = "its node is not known"


def is_deferred(pod: Pod) -> bool:
    """Whether the pod runs on a node that has deferred its resize."""
    for condition in pod.status.conditions:
        if condition.type == "PodResizePending":
            return bool(pod.spec.node_name) and condition.reason == "Deferred"
    return False


def preemption_for_resize(
    pod: Pod,
    node: NodeLoad | None,
    profile: Profile,
    nominated: Sequence[PodLoad] = (),
    budgets: Sequence[PodDisruptionBudget] = (),
) -> Preemption:
    """`node`: the pod's own, with the pod among its residents. `nominated`: pods that are nominated to it."""
    if node is None:
        return Preemption(ineligible=NO_NODE)
    if node.node.spec.pod_preemption_policy.disable_resize_preemption:
        return Preemption(ineligible=DISABLED)
    load, others = _alone(pod, node)
    result = verdict(load, with_nominated(others, nominated, load), profile)
    if result.fits:
        return Preemption(ineligible=FITS_ALREADY)
    return preempt(load, [others], {others.name: result}, profile, {others.name: nominated}, budgets)


def _alone(pod: Pod, node: NodeLoad) -> tuple[PodLoad, NodeLoad]:
    """The pod by its resources only, and its node without it and without what only matters to new pods."""
    key = load_key(pod)
    counted = node.residents.get(key)
    requests = waiting_load(pod).requests
    if counted is not None:
        requests = {name: max(amount, counted.requests.get(name, 0)) for name, amount in requests.items()}
    spec = msgspec.structs.replace(pod.spec, node_selector={}, affinity=None)
    bare = msgspec.structs.replace(node.without_pods((key,)), node=msgspec.structs.replace(node.node, spec=NodeSpec()))
    return PodLoad(msgspec.structs.replace(pod, spec=spec), requests), bare
