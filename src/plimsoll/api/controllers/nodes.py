"""Nodes: who has fallen silent, which taints follow from that and from pressure, and whom they send away."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from plimsoll.api.controllers.controller import Controller, ControllerContext, itself
from plimsoll.codec.lean.lean import from_document, pod_from_json
from plimsoll.kube import request
from plimsoll.kube.request import ApiError
from plimsoll.rules.controllers.node_lifecycle import stay_s, taints, unknown_conditions
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.objects import Node
from plimsoll.rules.profile import Profile
from plimsoll.rules.scheduling.fit import is_terminal
from plimsoll.rules.timestamps import Clock, epoch_seconds, rfc3339

LEASES = "coordination.k8s.io/leases/kube-node-lease/"
LOOK_EVERY_S = 5.0


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _Placed(msgspec.Struct):
    spec: _Spec = msgspec.field(default_factory=_Spec)


_PLACED = msgspec.json.Decoder(_Placed)


def lifecycle_loop(shelf: ControllerContext, profile: Profile, clock: Clock) -> Controller:
    """Conditions of silent nodes, and taints."""

    async def look(key: str) -> float | None:
        node = shelf.document(key)
        if node is None:
            return None
        name, now_s = node["metadata"]["name"], clock()
        silent_s = now_s - _last_heard(shelf, node)
        if silent_s > profile.node_grace_s:
            changed = unknown_conditions(node, rfc3339(now_s))
            if changed:
                change = {"status": {"conditions": changed}}
                node = await shelf.client.ask(request.patch(request.NODES, name, change, subresource="status"))
        wanted = taints(node, rfc3339(now_s))
        if wanted is not None:
            change = {"metadata": {"resourceVersion": node["metadata"]["resourceVersion"]}, "spec": {"taints": wanted}}
            try:
                await shelf.client.ask(request.patch(request.NODES, name, change))
            except ApiError as error:
                if not error.is_conflict:  # somebody changed it meanwhile, which brings us back
                    raise
        return None

    def every_node() -> Iterable[str]:
        return [record.key for record in shelf.store.list("/nodes/")[1]]

    return Controller("nodes", shelf.store, {"/nodes/": itself}, look, periodic=every_node, every_s=LOOK_EVERY_S)


def _last_heard(shelf: ControllerContext, node: JsonObject) -> float:
    """The newest of lease, status and creation, in seconds since the epoch."""
    lease = shelf.document(f"{LEASES}{node['metadata']['name']}") or {}
    times = [lease.get("spec", {}).get("renewTime"), node["metadata"].get("creationTimestamp")]
    times += [
        each.get("lastHeartbeatTime")
        for each in node.get("status", {}).get("conditions") or ()
        if each.get("status") != "Unknown"
    ]
    return max((seconds for each in times if (seconds := epoch_seconds(each)) is not None), default=0.0)


def eviction_loop(shelf: ControllerContext, clock: Clock) -> Controller:
    """Pods on nodes with NoExecute taints, when their tolerations have run out."""

    def of_pod(_: str, body: bytes) -> Iterable[str]:
        name = _PLACED.decode(body).spec.node_name if b'"nodeName":' in body else ""
        return (f"/nodes//{name}",) if name else ()

    async def look(key: str) -> float | None:
        document = shelf.document(key)
        if document is None or not any(
            each.get("effect") == "NoExecute" for each in document.get("spec", {}).get("taints") or ()
        ):
            return None
        node = from_document(document, Node)
        began = [
            seconds
            for each in document["spec"]["taints"]
            if each.get("effect") == "NoExecute" and (seconds := epoch_seconds(each.get("timeAdded"))) is not None
        ]
        now_s, waits = clock(), []
        since_s = min(began, default=now_s)
        for record in shelf.store.list("/pods/")[1]:
            if _PLACED.decode(record.body).spec.node_name != node.metadata.name:
                continue
            pod = pod_from_json(record.body)
            stay = stay_s(pod.spec.tolerations, node.spec.taints)
            if stay is None or pod.metadata.deletion_timestamp is not None or is_terminal(pod):
                continue
            left = since_s + stay - now_s
            if left > 0:
                waits.append(left)
                continue
            metadata = pod.metadata
            gone = request.delete(request.PODS, metadata.name, metadata.namespace, uid=metadata.uid)
            try:
                await shelf.client.ask(gone)
            except ApiError as error:
                if not error.is_gone and error.code != 409:
                    raise
        return min(waits, default=None)

    return Controller("taint-eviction", shelf.store, {"/nodes/": itself, "/pods/": of_pod}, look)
