"""Where an audit gets its evidence: a dump, the API and this machine, or the kubelet's own socket and this machine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from plimsoll.cli.client import ClusterClient, NoClusterError, answered
from plimsoll.cli.failure import FailedError
from plimsoll.codec.lean.audited_pod import audited_pod
from plimsoll.codec.lean.lean import from_document
from plimsoll.errors import InvalidObjectError, PlimsollError
from plimsoll.rules.audit.evidence import AuditedPod, KubeletFacts, NodeEvidence, NodeRecord
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.objects import Node

KUBELET_KUBECONFIG = Path("/etc/kubernetes/kubelet.conf")
SOCKET_SINCE = "1.37"  # the first release with the PodsAPI
_ELSEWHERE = "this is another machine: run `plimsoll audit` there (deploy/ has a DaemonSet), or audit a dump of it"


class Gathered(msgspec.Struct):
    """The evidence, and the documents that a dump contains."""

    nodes: list[NodeEvidence] = []
    node_documents: list[JsonObject] = []
    pod_documents: list[JsonObject] = []
    notes: list[str] = []


class Asked(msgspec.Struct, frozen=True):
    """What the API server has said."""

    nodes: list[JsonObject] = []
    pods: dict[str, list[JsonObject]] = {}
    configs: dict[str, JsonObject] = {}


def live(names: tuple[str, ...], options: Mapping[str, Any], *, all_nodes: bool) -> Gathered:
    """By the API. Without a name: the node that this machine is."""
    options = {**options, "kubeconfig": options["kubeconfig"] or kubelet_kubeconfig()}
    try:
        asked = answered(options, lambda cluster: _ask(cluster, names, all_nodes=all_nodes))
    except (NoClusterError, FailedError, PlimsollError) as error:
        if names or all_nodes:
            raise
        return _alone(str(error).partition("\n")[0], options)
    gathered = Gathered(node_documents=asked.nodes)
    for document in asked.nodes:
        name = str(document["metadata"]["name"])
        config = asked.configs.get(name)
        kubelet = KubeletFacts(config, "/configz", True, version=_version(document)) if config else None
        record = node_record(kubelet, options) if is_here(document) else NodeRecord(kubelet=kubelet, unread=_unread())
        gathered.pod_documents += asked.pods[name]
        gathered.notes += _attached_note(record)
        gathered.nodes.append(
            NodeEvidence(name, record, from_document(document, Node), _pods(asked.pods[name], gathered.notes))
        )
    return gathered


def by_socket(path: str, options: Mapping[str, Any]) -> Gathered:
    """By the kubelet's PodsAPI: only this node, and without the Node object."""
    from plimsoll.audit.pods_socket import listed_pods

    documents = listed_pods(path)
    gathered = Gathered(pod_documents=documents)
    name = str(next((pod["spec"].get("nodeName") for pod in documents if pod.get("spec")), "") or os.uname().nodename)
    record = node_record(None, {**options, "profile": options["profile"] or SOCKET_SINCE})
    gathered.notes += _attached_note(record)
    gathered.nodes.append(NodeEvidence(name, record, None, _pods(documents, gathered.notes)))
    return gathered


def kubelet_kubeconfig() -> Path | None:
    """The kubelet's own credentials: they may read its node and its pods. Only where no other kubeconfig is found."""
    if os.environ.get("KUBECONFIG") or Path(os.environ.get("HOME", "/"), ".kube", "config").exists():
        return None
    return KUBELET_KUBECONFIG if os.access(KUBELET_KUBECONFIG, os.R_OK) else None


def _alone(problem: str, options: Mapping[str, Any]) -> Gathered:
    """No API: the machine alone. Most rules cannot tell, and say why."""
    record = node_record(None, options)
    unread = {**record.unread, "pods": f"no pods: {problem}", "node": f"no Node object: {problem}"}
    record = msgspec.structs.replace(record, unread=unread)
    return Gathered([NodeEvidence(os.uname().nodename, record)])


def node_record(kubelet: KubeletFacts | None, options: Mapping[str, Any]) -> NodeRecord:
    from plimsoll.audit.record import this_node

    if options["config_file"]:
        kubelet = configured(options["config_file"], kubelet)
    record = this_node(kubelet, runtime=options["oci_runtime"], processes=not options["no_processes"])
    release = options["profile"]
    return msgspec.structs.replace(record, kubelet_version=f"v{release}.0") if release else record


def configured(path: str, kubelet: KubeletFacts | None) -> KubeletFacts:
    """The configuration of --config, in place of what the node shows."""
    from plimsoll.audit.kubelet import read_config

    document, problem = read_config(path)
    if document is None:
        raise PlimsollError(f"--config {problem}")
    return KubeletFacts(document, path, version=kubelet.version if kubelet is not None else "")


def _unread() -> dict[str, str]:
    parts = ("kernel", "cgroups", "processes", "applications", "cpu manager state")
    return dict.fromkeys(parts, _ELSEWHERE)


def is_here(node: JsonObject) -> bool:
    """Whether the node is this machine: by the kernel's boot id, which no two machines share."""
    info = (node.get("status") or {}).get("nodeInfo") or {}
    try:
        own = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        own = ""
    if info.get("bootID"):
        return bool(own) and str(info["bootID"]) == own
    return str(node["metadata"]["name"]) == os.uname().nodename.lower()


def _attached_note(record: NodeRecord) -> list[str]:
    count = sum(len(files) for files in record.attached.values())
    return [f"{count} control files have values of `plimsoll attach`: they are no differences"] if count else []


def _version(node: JsonObject) -> str:
    return str(((node.get("status") or {}).get("nodeInfo") or {}).get("kubeletVersion") or "")


def _pods(documents: list[JsonObject], notes: list[str]) -> tuple[AuditedPod, ...]:
    found = []
    for document in documents:
        try:
            found.append(audited_pod(msgspec.json.encode(document)))
        except InvalidObjectError as error:
            notes.append(f"a pod that cannot be read is left out: {error}")
    return tuple(found)


async def _ask(cluster: ClusterClient, names: tuple[str, ...], *, all_nodes: bool) -> Asked:
    from plimsoll.cli.node_info import kubelet_config
    from plimsoll.kube.request import NODES, PODS, ApiError, get, listing

    if names:
        nodes = [await cluster.ask(get(NODES, name.removeprefix("node/"))) for name in names]
    else:
        try:
            nodes = (await cluster.ask(listing(NODES))).get("items") or []
        except ApiError:  # a kubelet may read only its own node
            nodes = [await cluster.ask(get(NODES, os.uname().nodename.lower()))]
        here = [node for node in nodes if is_here(node)]
        if not all_nodes and not here:
            listed = ", ".join(str(node["metadata"]["name"]) for node in nodes[:10]) or "none"
            raise PlimsollError(f"this machine is not a node of the cluster; name one ({listed}), or use --all-nodes")
        nodes = nodes if all_nodes else here
    asked = Asked(nodes)
    for node in nodes:
        name = str(node["metadata"]["name"])
        listed_pods = await cluster.ask(listing(PODS, fields=f"spec.nodeName={name}"))
        asked.pods[name] = listed_pods.get("items") or []
        config = await kubelet_config(cluster, name)
        if config:
            asked.configs[name] = config
    return asked
