"""Nodes: the conditions of nodes that stopped reporting, the taints that follow, and the pods these taints evict."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from plimsoll.aio import in_slices
from plimsoll.api.controllers.controller import Controller, ControllerContext, own_key
from plimsoll.codec.lean.lean import from_document, pod_from_json
from plimsoll.kube import request
from plimsoll.rules.controllers.node_lifecycle import stay_s, taints, unknown_conditions
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.objects import Node, Pod
from plimsoll.rules.profile import Profile
from plimsoll.rules.scheduling.fit import is_terminal
from plimsoll.rules.timestamps import Clock, epoch_seconds, rfc3339

BY_TAINT = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "DeletionByTaintManager",
    "message": "Taint manager: deleting due to NoExecute taint",
}
LEASES = "coordination.k8s.io/leases/kube-node-lease/"
INTERVAL_S = 5.0


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _Placed(msgspec.Struct):
    spec: _Spec = msgspec.field(default_factory=_Spec)


_PLACED = msgspec.json.Decoder(_Placed)


def lifecycle_controller(context: ControllerContext, profile: Profile, clock: Clock) -> Controller:
    """Conditions of nodes that stopped reporting, and taints."""

    async def reconcile(key: str) -> float | None:
        node = context.document(key)
        if node is None:
            return None
        name, now_s = node["metadata"]["name"], clock()
        silence_s = now_s - _last_report(context, node)
        if silence_s > profile.node_grace_s:
            changed = unknown_conditions(node, rfc3339(now_s))
            if changed:
                change = {"status": {"conditions": changed}}
                node = await context.client.ask(request.patch(request.NODES, name, change, subresource="status"))
        desired = taints(node, rfc3339(now_s))
        if desired is not None:
            change = {"metadata": {"resourceVersion": node["metadata"]["resourceVersion"]}, "spec": {"taints": desired}}
            # 409: it has changed meanwhile, which enqueues it again
            await context.attempt(request.patch(request.NODES, name, change), (409,))
        return None

    def every_node() -> Iterable[str]:
        return [record.key for record in context.store.list("/nodes/")[1]]

    return Controller("nodes", context.store, {"/nodes/": own_key}, reconcile, periodic=every_node, every_s=INTERVAL_S)


def _last_report(context: ControllerContext, node: JsonObject) -> float:
    """The newest of lease, status and creation, in seconds since the epoch."""
    lease = context.document(f"{LEASES}{node['metadata']['name']}") or {}
    times = [lease.get("spec", {}).get("renewTime"), node["metadata"].get("creationTimestamp")]
    times += [
        condition.get("lastHeartbeatTime")
        for condition in node.get("status", {}).get("conditions") or ()
        if condition.get("status") != "Unknown"
    ]
    return max((seconds for time in times if (seconds := epoch_seconds(time)) is not None), default=0.0)


def observed_generation(pod: Pod, profile: Profile) -> JsonObject:
    """The member of a status, or of a condition, that says which spec it is about."""
    return {"observedGeneration": pod.metadata.generation} if profile.pod_observed_generation else {}


def taint_eviction_controller(context: ControllerContext, profile: Profile, clock: Clock) -> Controller:
    """Evict pods from nodes with NoExecute taints when their tolerations have expired.

    A toleration counts from the moment when pod and taint came together: the later of the two. A taint that a client
    has set may have no time; then it counts from the moment when it was seen here.
    """
    seen: dict[str, float] = {}  # uid of a pod that may stay for a while → since when
    tainted: set[str] = set()  # keys of nodes: where a node becomes one, all its pods are judged

    def of_pod(_: str, body: bytes) -> Iterable[str]:
        name = _PLACED.decode(body).spec.node_name if tainted and b'"nodeName":' in body else ""
        return tainted & {f"/nodes//{name}"}

    async def reconcile(key: str) -> float | None:
        document = context.document(key)
        every_taint = (document or {}).get("spec", {}).get("taints") or ()
        no_execute = [taint for taint in every_taint if taint.get("effect") == "NoExecute"]
        if document is None or not no_execute:
            tainted.discard(key)
            for pod in await placed(key.rpartition("/")[2]) if seen else ():
                seen.pop(pod.metadata.uid, None)
            return None
        tainted.add(key)
        node = from_document(document, Node)
        times = [epoch_seconds(taint.get("timeAdded")) for taint in no_execute]
        added_s = min((time_s for time_s in times if time_s is not None), default=None)
        now_s, waits = clock(), []
        for pod in await placed(node.metadata.name):
            metadata, stay = pod.metadata, stay_s(pod.spec.tolerations, node.spec.taints)
            if stay is None or metadata.deletion_timestamp is not None or is_terminal(pod):
                seen.pop(metadata.uid, None)
                continue
            since_s = seen.setdefault(metadata.uid, now_s)
            if added_s is not None and None not in times:
                since_s = max(added_s, epoch_seconds(metadata.creation_timestamp) or added_s)
            left = since_s + stay - now_s
            if left > 0:
                waits.append(left)
                continue
            seen.pop(metadata.uid, None)
            await evict(pod, now_s)
        return min(waits, default=None)

    async def placed(node: str) -> list[Pod]:
        records = in_slices(context.store.list_part("/pods/", node)[1])
        return [pod_from_json(each.body) async for each in records if _PLACED.decode(each.body).spec.node_name == node]

    async def evict(pod: Pod, now_s: float) -> None:
        name, namespace, uid = pod.metadata.name, pod.metadata.namespace, pod.metadata.uid
        observed = observed_generation(pod, profile)
        condition = {**BY_TAINT, **observed, "lastTransitionTime": rfc3339(now_s)}
        change = {"metadata": {"uid": uid}, "status": {"conditions": [condition]}}
        await context.attempt(request.patch(request.PODS, name, change, namespace, "status"), (404, 409))
        await context.attempt(request.delete(request.PODS, name, namespace, uid=uid), (404, 409))

    return Controller("taint-eviction", context.store, {"/nodes/": own_key, "/pods/": of_pod}, reconcile)
