"""The forecast of a resize in a live cluster: reads everything that it needs, and changes nothing.

It reads the pod, its node, the other pods of the node with their allocated resources, the usage of the pod, the
configuration of the kubelet and the version of the server. A note says what the cluster does not report.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from plimsoll.cli.client import ClusterClient
from plimsoll.cli.node_info import (
    container_sets,
    kubelet_config,
    pods_on,
    reported_conditions,
    reported_setting,
    usage_on,
)
from plimsoll.cli.resize.answer import ResizeAnswer, resize_answer
from plimsoll.codec.defaults.resources import with_defaults
from plimsoll.codec.lean.lean import from_document, lean_pod
from plimsoll.errors import InvalidConfigError, InvalidConfigsError, PlimsollError
from plimsoll.kube.request import NODES, PODS, ApiError, document, get, listing
from plimsoll.rules.admission.comparison import PodVersion
from plimsoll.rules.eviction.assessment import NODE_CONDITIONS, NodeCondition
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.objects import MEMORY, Node, Pod
from plimsoll.rules.node.admission import AdmissionRefusal
from plimsoll.rules.node.node_config import NodeConfig
from plimsoll.rules.profile import Profile
from plimsoll.rules.resize.forecast import Api, Outcome, forecast, forecast_without_node
from plimsoll.rules.resize.predicted_cpus import PredictedCpus
from plimsoll.rules.resize.request import ResourceChange, resized_document
from plimsoll.rules.resize.verdict import ResizeSetting, resize_setting
from plimsoll.rules.resources.allocated_status import allocated_from_status
from plimsoll.rules.scheduling.fit import allocated_load


def predicted_cpus(setting: NodeConfig, allocated: Sequence[Pod]) -> PredictedCpus | None:
    """The exclusive CPUs on a node with the static CPU policy. `allocated`: all pods of the node.

    Cores count as one thread each, because a node does not report its topology. Raises InvalidConfigError if the node
    would not start with that policy.
    """
    if not setting.policy.static_cpus:
        return None
    from plimsoll.node.resources.cpu_manager import cpu_plan
    from plimsoll.rules.cpumanager.topology import flat

    return PredictedCpus(cpu_plan(setting, flat(setting.machine.cores)), setting.policy, allocated)


def cpu_refusal(predicted: PredictedCpus | None) -> Callable[[Pod], AdmissionRefusal | None]:
    return (lambda _pod: None) if predicted is None else predicted.refusal


# The fields of a KubeletConfiguration that the verdict on a resize depends on.
_FIELDS = (
    "cpuManagerPolicy",
    "cpuManagerPolicyOptions",
    "evictionHard",
    "featureGates",
    "kubeReserved",
    "memorySwap",
    "mergeDefaultEvictionSettings",
    "reservedSystemCPUs",
    "systemReserved",
)


JUDGED: tuple[Outcome, ...] = ("accepted", "deferred", "infeasible")


class NodeSeen(msgspec.Struct, frozen=True):
    node: JsonObject
    pods: list[Pod]  # all that have not ended, including the resized one
    config: JsonObject


class NoSuchPodError(PlimsollError):
    """There is no pod with this name; the message suggests others."""


async def stored_pod(cluster: ClusterClient, name: str) -> JsonObject:
    try:
        return await cluster.ask(get(PODS, name, cluster.namespace))
    except ApiError as error:
        if error.code != 404:
            raise
        listed = await cluster.answer(listing(PODS, namespace=cluster.namespace))
        if listed.status >= 400:
            raise
        names = [str(pod["metadata"]["name"]) for pod in document(listed).get("items") or ()]
    raise NoSuchPodError(f"no pod {name} in namespace {cluster.namespace}{_rather(name, names)}")


def _rather(name: str, names: list[str]) -> str:
    import difflib  # needed only for this error

    close = difflib.get_close_matches(name, names, n=1)
    if close:
        return f"; did you mean {close[0]}?"
    return f"; the pods are: {', '.join(sorted(names)[:10])}{' …' if len(names) > 10 else ''}" if names else ""


async def forecast_resize(
    cluster: ClusterClient, stored: JsonObject, container: str, change: ResourceChange, *, subresource: bool = True
) -> ResizeAnswer:
    """`subresource`: whether the server has the `resize` subresource of pods."""
    profile = (await cluster.chosen_profile()).profile
    spec = lean_pod(stored)
    old = PodVersion(stored, spec)
    new = with_defaults(
        resized_document(stored, container, change), resize_policy=profile.resize_policy_defaulted, stored=spec
    )
    api, name = Api(subresource=subresource), spec.spec.node_name
    if not name:
        return resize_answer(forecast_without_node(old, new, profile, api=api), spec, new.pod)
    try:
        seen = await _seen(cluster, name)
    except ApiError as error:
        if error.code not in (403, 404):
            raise
        found = forecast_without_node(old, new, profile, api=api, bound=True, missing=error.code == 404)
        return resize_answer(found, spec, new.pod, notes=[f"node {name} cannot be read: {error}"])
    notes: list[str] = []
    usage = await usage_on(cluster, name)
    sets = container_sets(usage.by_pod.get((spec.metadata.namespace, spec.metadata.name)))
    if MEMORY in change.get("limits", {}) and container not in sets:
        notes.append("its memory usage is unknown: the new limit may be below it")
    setting = node_setting(seen, allocated_from_status(spec), profile, notes)
    found = forecast(old, new, setting, working_sets=sets, api=api)
    return resize_answer(found, spec, new.pod, notes=notes if found.outcome in JUDGED else ())


async def _seen(cluster: ClusterClient, name: str) -> NodeSeen:
    described = await cluster.ask(get(NODES, name))
    return NodeSeen(described, await pods_on(cluster, name), await kubelet_config(cluster, name))


def node_setting(seen: NodeSeen, pod: Pod, profile: Profile, notes: list[str]) -> ResizeSetting:
    """The ResizeSetting that the agent of the node would use; `pod` as allocated. Adds to the notes."""
    key = (pod.metadata.namespace, pod.metadata.name)
    others = [allocated_from_status(one) for one in seen.pods if (one.metadata.namespace, one.metadata.name) != key]
    under = reported_conditions(seen.node)
    conditions = tuple(condition for condition in NODE_CONDITIONS if condition in under)
    node = from_document(seen.node, Node)
    if "Ready" not in under:
        notes.append("the node is not ready: it decides when it is ready again")
    if not seen.config:
        notes.append("the node does not report its configuration: defaults are assumed")
    try:
        return _configured(seen.config, node, others, pod, profile, conditions)
    except (InvalidConfigError, InvalidConfigsError) as error:
        notes.append(f"the configuration of the node cannot be read ({error}): defaults are assumed")
        return ResizeSetting(allocated_load(node, others), profile, conditions=conditions)


def _configured(
    reported: JsonObject,
    node: Node,
    others: Sequence[Pod],
    pod: Pod,
    profile: Profile,
    conditions: tuple[NodeCondition, ...],
) -> ResizeSetting:
    setting = reported_setting(reported, _FIELDS, node, profile)
    load = allocated_load(node, others)
    found = resize_setting(setting, load, conditions, cpu_refusal(predicted_cpus(setting, [*others, pod])))
    return msgspec.structs.replace(
        found,
        static_memory=reported.get("memoryManagerPolicy") == "Static",
        # Without its configuration, the allocatable resources of the Node are used.
        absolute_allocatable=setting.absolute if reported else None,
    )
