"""What will come of a resize in a live cluster: asks for everything the forecast needs, and sends nothing.

The pod, its node, the node's other pods with what is allocated to them, what the pod uses, how the kubelet is
configured, which version the server is. Whatever the cluster does not tell is said as a note.
"""

from __future__ import annotations

import msgspec

from plimsoll.cli.cluster import Cluster, Document
from plimsoll.cli.node_reports import Usage, container_sets, kubelet_config, pods_on, reported_conditions, usage_on
from plimsoll.cli.resize_answer import ResizeAnswer, resize_answer
from plimsoll.codec.defaults import with_defaults
from plimsoll.codec.lean import from_document, lean_pod
from plimsoll.kube.request import NODES, get
from plimsoll.rules.eviction import NODE_CONDITIONS
from plimsoll.rules.fit import EMPTY, allocated_load
from plimsoll.rules.held import held_pod
from plimsoll.rules.objects import MEMORY, Node, Pod
from plimsoll.rules.profile import Profile, profile_named
from plimsoll.rules.resize import ResizeSetting
from plimsoll.rules.resize_forecast import Forecast, forecast
from plimsoll.rules.resize_wish import Change, wished
from plimsoll.rules.versions import Version


async def foreseen(cluster: Cluster, stored: Document, container: str, change: Change) -> ResizeAnswer:
    profile = profile_named(await cluster.profile_name())
    spec = lean_pod(stored)
    old = Version(stored, spec)
    new = with_defaults(wished(stored, container, change), resize_policy=profile.resize_policy_defaulted)
    notes: list[str] = []
    if spec.spec.node_name:
        setting, usage = await _around(cluster, spec, profile)
        sets = container_sets(usage.by_pod.get((spec.metadata.namespace, spec.metadata.name)))
        if MEMORY in change.get("limits", {}) and container not in sets:
            notes.append("nobody tells how much memory it uses: whether that limit is safe is not known")
        found = forecast(old, new, setting, working_sets=sets)
    else:
        notes.append("the pod is on no node yet: the scheduler will look for one with room")
        found = _unbound(forecast(old, new, ResizeSetting(EMPTY, profile=profile)))
    return resize_answer(found, spec, new.pod, notes=notes)


async def _around(cluster: Cluster, pod: Pod, profile: Profile) -> tuple[ResizeSetting, Usage]:
    """The node, and what its pods use."""
    name, key = pod.spec.node_name, (pod.metadata.namespace, pod.metadata.name)
    described = await cluster.ask(get(NODES, name))
    others = [each for each in await pods_on(cluster, name) if (each.metadata.namespace, each.metadata.name) != key]
    usage = await usage_on(cluster, name)
    config = await kubelet_config(cluster, name)
    under = reported_conditions(described)
    setting = ResizeSetting(
        allocated_load(from_document(described, Node), map(held_pod, others)),
        profile,
        static_cpus=config.get("cpuManagerPolicy") == "static",
        static_memory=config.get("memoryManagerPolicy") == "Static",
        conditions=tuple(each for each in NODE_CONDITIONS if each in under),
    )
    return setting, usage


def _unbound(found: Forecast) -> Forecast:
    """No node has a say yet, only the API server."""
    if found.outcome in ("refused", "unchanged"):
        return found
    return msgspec.structs.replace(found, outcome="accepted", message="", helps=(), largest={})
