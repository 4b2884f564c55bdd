"""What a cluster reports about one node: the Node, its pods, their usage, the kubelet's configuration.

Usage comes from the summary of the node, else from metrics.k8s.io. If neither is available, `ReportedUsage.source` is
empty. Plimsoll's agent also serves pages about OOM kills and pressure (`codec.node_pages`), read through the API
server; a kubelet does not, and then the error says which command to use instead.
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
    """The node does not serve the page."""


async def node_page(cluster: ClusterClient, node: str, page: str, kind: type[Page]) -> Page:
    from plimsoll.kube.request import Request, api_error

    answer = await cluster.answer(Request("GET", f"/api/v1/nodes/{node}/proxy/{page}"))
    if answer.status == 404:
        raise NoSuchPageError(
            f"node {node} does not serve /{page}: it runs a kubelet or an older plimsoll; "
            f"run `plimsoll {page} --here` there, or use `plimsoll describe node {node}` and `plimsoll events -A`"
        )
    if answer.status >= 400:
        raise api_error(answer)
    try:
        return msgspec.json.decode(answer.body, type=kind)
    except msgspec.DecodeError as error:
        raise NoSuchPageError(f"node {node}: /{page}: {error}; the versions of node and command differ") from None


METRICS = "/apis/metrics.k8s.io/v1beta1"


class AmbiguousNodeError(PlimsollError):
    """No node was named, and the cluster does not have exactly one."""


class ReportedUsage(msgspec.Struct, frozen=True):
    by_pod: dict[PodKey, PodUsage] = {}
    source: str = ""  # empty: unknown


async def chosen_node(cluster: ClusterClient, name: str) -> JsonObject:
    from plimsoll.kube.request import NODES, get, listing

    if name:
        return await cluster.ask(get(NODES, name.removeprefix("node/")))
    nodes: list[JsonObject] = (await cluster.ask(listing(NODES))).get("items") or []
    if len(nodes) == 1:
        return nodes[0]
    if not nodes:
        raise AmbiguousNodeError("the cluster has no nodes; see `plimsoll node --help` for how to add one")
    listed = ", ".join(str(node["metadata"]["name"]) for node in nodes[:20])
    raise AmbiguousNodeError(f"name a node, the cluster has {len(nodes)}: {listed}")


async def pods_on(cluster: ClusterClient, node: str) -> list[Pod]:
    """The pods on the node that have not ended. Pods that cannot be read are left out."""
    from plimsoll.kube.request import PODS, listing

    pods = []
    for document in (await cluster.ask(listing(PODS, fields=f"spec.nodeName={node}"))).get("items") or ():
        try:
            pod = lean_pod(document)
        except InvalidObjectError:
            continue
        if pod.status.phase not in ("Succeeded", "Failed"):
            pods.append(pod)
    return pods


async def usage_on(cluster: ClusterClient, node: str) -> ReportedUsage:
    summary = await _maybe(cluster, f"/api/v1/nodes/{node}/proxy/stats/summary")
    by_pod = summary_usage(summary) if summary is not None else {}
    if any(_known(each) for each in by_pod.values()):
        return ReportedUsage(by_pod, "the summary of the node")
    metrics = await _maybe(cluster, f"{METRICS}/pods")
    by_pod = metrics_usage(metrics) if metrics is not None else {}
    return ReportedUsage(by_pod, "metrics.k8s.io") if by_pod else ReportedUsage()


async def pressure_on(cluster: ClusterClient, node: str) -> PressurePage | None:
    """The pressure page of the node; None if it has none, as with a kubelet."""
    from plimsoll.kube.request import ApiError

    try:
        return await node_page(cluster, node, "pressure", PressurePage)
    except (NoSuchPageError, ApiError):
        return None


async def kubelet_config(cluster: ClusterClient, node: str) -> JsonObject:
    """The KubeletConfiguration of the node; empty if it cannot be read."""
    page = await _maybe(cluster, f"/api/v1/nodes/{node}/proxy/configz") or {}
    config = page.get("kubeletconfig")
    return config if isinstance(config, dict) else {}


def reported_setting(document: JsonObject, fields: Iterable[str], node: Node, profile: Profile) -> NodeConfig:
    """The node by its own KubeletConfiguration, of which only `fields` must be readable. Raises InvalidConfigsError."""
    config = reading({name: document[name] for name in fields if name in document}, profile).config
    return resolved(machine_from_capacity(node.status.capacity or {}, name=node.metadata.name), config, profile)


def container_sets(usage: PodUsage | None) -> dict[str, int]:
    """The known working sets, by container."""
    if usage is None:
        return {}
    return {each.name: each.memory_bytes for each in usage.containers if each.memory_bytes is not None}


def reported_conditions(node: JsonObject) -> Sequence[str]:
    """The conditions of the node that are True."""
    conditions = (node.get("status") or {}).get("conditions") or ()
    return tuple(str(each.get("type")) for each in conditions if each.get("status") == "True")


async def _maybe(cluster: ClusterClient, path: str) -> JsonObject | None:
    """The JSON object at a path; None if there is none or access is denied."""
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
