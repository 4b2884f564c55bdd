"""What a cluster tells of one node: the Node, its pods, what they use, how its kubelet is configured.

Usage comes from the node's own summary, else from metrics.k8s.io; a cluster may have neither, or not let us ask. Then
it is not known, and `source` says so.

Our own pages at a node's endpoint, read through the API server: what the agent knows of kills and of pressure.

What they say is `codec.node_pages`. A kubelet has no such pages; then it is said, and what to ask instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

import msgspec

from plimsoll.codec.kernel.usage_reports import PodKey, metrics_usage, summary_usage
from plimsoll.codec.lean.lean import lean_pod
from plimsoll.codec.node_pages import PressurePage
from plimsoll.errors import InvalidObjectError, PlimsollError
from plimsoll.rules.config.parse import reading
from plimsoll.rules.eviction.usage import PodUsage
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.objects import Node, Pod
from plimsoll.rules.node.node_config import NodeConfig, machine_from_capacity, resolved
from plimsoll.rules.profile import Profile

if TYPE_CHECKING:
    from plimsoll.cli.client import ClusterClient


Page = TypeVar("Page", bound=msgspec.Struct)


class NoSuchPageError(PlimsollError):
    """The node does not serve it."""


async def node_page(cluster: ClusterClient, node: str, page: str, kind: type[Page]) -> Page:
    from plimsoll.kube.request import Request, api_error

    answer = await cluster.answer(Request("GET", f"/api/v1/nodes/{node}/proxy/{page}"))
    if answer.status == 404:
        raise NoSuchPageError(
            f"node {node} has no /{page}: it is run by a kubelet or by an older plimsoll; "
            f"`plimsoll describe node {node}` and `plimsoll events -A --types Warning` show what it tells"
        )
    if answer.status >= 400:
        raise api_error(answer)
    try:
        return msgspec.json.decode(answer.body, type=kind)
    except msgspec.DecodeError as error:
        raise NoSuchPageError(f"node {node}: /{page}: {error}; node and command are of different versions") from None


METRICS = "/apis/metrics.k8s.io/v1beta1"


class AmbiguousNodeError(PlimsollError):
    """No node was named, and there is not exactly one."""


class ReportedUsage(msgspec.Struct, frozen=True):
    by_pod: dict[PodKey, PodUsage] = {}
    source: str = ""  # empty: nobody tells


async def chosen_node(cluster: ClusterClient, name: str) -> JsonObject:
    from plimsoll.kube.request import NODES, get, listing

    if name:
        return await cluster.ask(get(NODES, name.removeprefix("node/")))
    nodes: list[JsonObject] = (await cluster.ask(listing(NODES))).get("items") or []
    if len(nodes) == 1:
        return nodes[0]
    if not nodes:
        raise AmbiguousNodeError("the cluster has no node; `plimsoll node --help` says how a machine becomes one")
    listed = ", ".join(str(each["metadata"]["name"]) for each in nodes[:20])
    raise AmbiguousNodeError(f"which node? there are {len(nodes)}: {listed}")


async def pods_on(cluster: ClusterClient, node: str) -> list[Pod]:
    """Those that have not ended. One that cannot be read is left out: it is not ours to judge."""
    from plimsoll.kube.request import PODS, listing

    found = []
    for each in (await cluster.ask(listing(PODS, fields=f"spec.nodeName={node}"))).get("items") or ():
        try:
            pod = lean_pod(each)
        except InvalidObjectError:
            continue
        if pod.status.phase not in ("Succeeded", "Failed"):
            found.append(pod)
    return found


async def usage_on(cluster: ClusterClient, node: str) -> ReportedUsage:
    summary = await _maybe(cluster, f"/api/v1/nodes/{node}/proxy/stats/summary")
    by_pod = summary_usage(summary) if summary is not None else {}
    if any(_known(each) for each in by_pod.values()):
        return ReportedUsage(by_pod, "the node's summary")
    metrics = await _maybe(cluster, f"{METRICS}/pods")
    by_pod = metrics_usage(metrics) if metrics is not None else {}
    return ReportedUsage(by_pod, "metrics.k8s.io") if by_pod else ReportedUsage()


async def pressure_on(cluster: ClusterClient, node: str) -> PressurePage | None:
    """How the node itself sees it; None where it has no such page, as a kubelet."""
    from plimsoll.kube.request import ApiError

    try:
        return await node_page(cluster, node, "pressure", PressurePage)
    except (NoSuchPageError, ApiError):
        return None


async def kubelet_config(cluster: ClusterClient, node: str) -> JsonObject:
    """Empty where the node does not tell."""
    found = await _maybe(cluster, f"/api/v1/nodes/{node}/proxy/configz") or {}
    config = found.get("kubeletconfig")
    return config if isinstance(config, dict) else {}


def told_setting(told: JsonObject, counts: Iterable[str], node: Node, profile: Profile) -> NodeConfig:
    """The node as its own words make it; `counts`: of a KubeletConfiguration only these, the rest need not be readable
    here. InvalidConfigs where they are not."""
    config = reading({name: told[name] for name in counts if name in told}, profile).config
    return resolved(machine_from_capacity(node.status.capacity or {}, name=node.metadata.name), config, profile)


def container_sets(usage: PodUsage | None) -> dict[str, int]:
    """Working sets by container, as far as they are known."""
    if usage is None:
        return {}
    return {each.name: each.memory_bytes for each in usage.containers if each.memory_bytes is not None}


def reported_conditions(node: JsonObject) -> Sequence[str]:
    """Pressure that the node says it is under."""
    conditions = (node.get("status") or {}).get("conditions") or ()
    return tuple(str(each.get("type")) for each in conditions if each.get("status") == "True")


async def _maybe(cluster: ClusterClient, path: str) -> JsonObject | None:
    """The JSON there, None where the server or the node has none or may not tell us."""
    from plimsoll.kube.request import Request

    answer = await cluster.answer(Request("GET", path))
    if answer.status >= 400:
        return None
    try:
        found = msgspec.json.decode(answer.body)
    except msgspec.DecodeError:
        return None
    return found if isinstance(found, dict) else None


def _known(usage: PodUsage) -> bool:
    return usage.memory_bytes is not None or any(each.memory_bytes is not None for each in usage.containers)
