"""NodeRestriction: what a node writes, checked by the objects themselves. Requests of other users pass."""

from __future__ import annotations

from collections.abc import Collection

from plimsoll.api.machinery.call import ApiCall
from plimsoll.api.machinery.cluster import Cluster
from plimsoll.api.machinery.kinds import stored_resource
from plimsoll.api.machinery.status import forbidden, not_found
from plimsoll.rules.admission.node_restriction import (
    lease_refusal,
    node_create_refusal,
    node_update_refusal,
    pod_create_refusal,
    pod_delete_refusal,
    pod_status_refusal,
    token_refusal,
)
from plimsoll.rules.model.json_object import JsonObject

_NODES = stored_resource("nodes")


def check_create(cluster: Cluster, call: ApiCall, new: JsonObject) -> None:
    node, name = call.user.node, new["metadata"].get("name") or ""
    if not node:
        return
    match call.info.resource.storage:
        case "pods":
            _check(call, name, pod_create_refusal(node, new, _uid(cluster, node)))
        case "nodes":
            _check(call, name, node_create_refusal(node, new))
        case "leases":
            _check(call, name, lease_refusal(node, call.info.namespace, name))


def check_update(call: ApiCall, old: JsonObject, new: JsonObject) -> None:
    node = call.user.node
    if not node:
        return
    match call.info.resource.storage:
        case "pods":
            _check(call, call.info.name, pod_status_refusal(node, old, new))
        case "nodes":
            _check(call, call.info.name, node_update_refusal(node, old, new))
        case "leases":
            _check(call, call.info.name, lease_refusal(node, call.info.namespace, call.info.name))


def check_delete(call: ApiCall, old: JsonObject) -> None:
    """Also of an eviction."""
    if call.user.node and call.info.resource.storage == "pods":
        is_eviction = call.info.subresource == "eviction"
        _check(call, call.info.name, pod_delete_refusal(call.user.node, old, is_eviction=is_eviction))


def check_token(cluster: Cluster, call: ApiCall, spec: JsonObject, api_audiences: Collection[str]) -> None:
    """Of a TokenRequest."""
    if call.user.node:
        bound = spec.get("boundObjectRef") or {}
        pod = cluster.document("pods", call.info.namespace, bound.get("name") or "")
        _check(call, call.info.name, token_refusal(call.user.node, spec, pod, api_audiences))


def _uid(cluster: Cluster, node: str) -> str:
    document = cluster.document("nodes", "", node)
    if document is None:
        raise not_found(_NODES, node)
    return str(document["metadata"]["uid"])


def _check(call: ApiCall, name: str, refusal: str) -> None:
    if refusal:
        raise forbidden(call.info.resource, name, refusal)
