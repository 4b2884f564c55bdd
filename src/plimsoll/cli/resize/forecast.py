"""What will come of a resize in a live cluster: asks for everything the forecast needs, and sends nothing.

The pod, its node, the node's other pods with what is allocated to them, what the pod uses, how the kubelet is
configured, which version the server is. Whatever the cluster does not tell is said as a note.

Whether a node with the static CPU policy has the CPUs that a resize asks for, as far as can be told from outside.
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
    told_setting,
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
from plimsoll.rules.profile import Profile, profile_named
from plimsoll.rules.resize.forecast import Api, Outcome, forecast, forecast_without_node
from plimsoll.rules.resize.request import ResourceChange, resized_document
from plimsoll.rules.resize.verdict import ResizeSetting, resize_setting
from plimsoll.rules.resources.allocated_status import allocated_from_status
from plimsoll.rules.scheduling.fit import allocated_load


def cpu_refusal(setting: NodeConfig, held: Sequence[Pod]) -> Callable[[Pod], AdmissionRefusal | None]:
    """`held`: the node's pods as allocated. Cores are counted as one thread each: nobody tells how they are laid out.

    Raises InvalidConfig where the node would not start with that policy.
    """
    if not setting.policy.static_cpus:
        return lambda _pod: None
    from plimsoll.node.resources.cpu_manager import cpu_plan
    from plimsoll.rules.cpumanager.topology import flat
    from plimsoll.rules.resize.forecast_cpus import predicted_cpu_refusal

    return predicted_cpu_refusal(cpu_plan(setting, flat(setting.machine.cores)), setting.policy, held)


# Of a KubeletConfiguration, what verdicts on resizes depend on; the rest need not be readable here.
_COUNTS = (
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
    pods: list[Pod]  # all that have not ended, the one in question included
    config: JsonObject


class NoSuchPodError(PlimsollError):
    """There is no pod of that name; the message names the nearest, or those there are."""


async def stored_pod(cluster: ClusterClient, name: str) -> JsonObject:
    try:
        return await cluster.ask(get(PODS, name, cluster.namespace))
    except ApiError as error:
        if error.code != 404:
            raise
        listed = await cluster.answer(listing(PODS, namespace=cluster.namespace))
        if listed.status >= 400:
            raise
        names = [str(each["metadata"]["name"]) for each in document(listed).get("items") or ()]
    raise NoSuchPodError(f"no pod {name} in namespace {cluster.namespace}{_rather(name, names)}")


def _rather(name: str, names: list[str]) -> str:
    import difflib  # needed only once something is wrong

    close = difflib.get_close_matches(name, names, n=1)
    if close:
        return f"; did you mean {close[0]}?"
    return f"; there are: {', '.join(sorted(names)[:10])}{' …' if len(names) > 10 else ''}" if names else ""


async def foreseen(
    cluster: ClusterClient, stored: JsonObject, container: str, change: ResourceChange, *, subresource: bool = True
) -> ResizeAnswer:
    """`subresource`: whether the server has `resize` for pods."""
    profile = profile_named(await cluster.profile_name())
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
        return resize_answer(found, spec, new.pod, notes=[f"nothing is known of node {name}: {error}"])
    notes: list[str] = []
    usage = await usage_on(cluster, name)
    sets = container_sets(usage.by_pod.get((spec.metadata.namespace, spec.metadata.name)))
    if MEMORY in change.get("limits", {}) and container not in sets:
        notes.append("nobody tells how much memory it uses: whether that limit is safe is not known")
    setting = node_setting(seen, allocated_from_status(spec), profile, notes)
    found = forecast(old, new, setting, working_sets=sets, api=api)
    return resize_answer(found, spec, new.pod, notes=notes if found.outcome in JUDGED else ())


async def _seen(cluster: ClusterClient, name: str) -> NodeSeen:
    described = await cluster.ask(get(NODES, name))
    return NodeSeen(described, await pods_on(cluster, name), await kubelet_config(cluster, name))


def node_setting(seen: NodeSeen, pod: Pod, profile: Profile, notes: list[str]) -> ResizeSetting:
    """As the node's own agent would have it; `pod` as it is held. Adds to the notes."""
    key = (pod.metadata.namespace, pod.metadata.name)
    others = [allocated_from_status(each) for each in seen.pods if (each.metadata.namespace, each.metadata.name) != key]
    under = reported_conditions(seen.node)
    conditions = tuple(each for each in NODE_CONDITIONS if each in under)
    node = from_document(seen.node, Node)
    if "Ready" not in under:
        notes.append("the node is not ready: it judges once it is")
    if not seen.config:
        notes.append("the node does not tell how it is configured: defaults are assumed")
    try:
        return _configured(seen.config, node, others, pod, profile, conditions)
    except (InvalidConfigError, InvalidConfigsError) as error:
        notes.append(f"how the node is configured cannot be read here ({error}): defaults are assumed")
        return ResizeSetting(allocated_load(node, others), profile, conditions=conditions)


def _configured(
    told: JsonObject,
    node: Node,
    others: Sequence[Pod],
    pod: Pod,
    profile: Profile,
    conditions: tuple[NodeCondition, ...],
) -> ResizeSetting:
    setting = told_setting(told, _COUNTS, node, profile)
    load = allocated_load(node, others)
    found = resize_setting(setting, load, conditions, cpu_refusal(setting, [*others, pod]))
    return msgspec.structs.replace(
        found,
        static_memory=told.get("memoryManagerPolicy") == "Static",
        # Without its configuration the Node's own word is the best there is.
        absolute_allocatable=setting.absolute if told else None,
    )
