"""The node authorizer: what a node may ask for, decided as kube-apiserver does, with its reasons.

A node reads its own Node and Lease, the pods that are bound to it, and single objects that those pods refer to. What
it may write depends on the object and is checked when it is known (`api.admission.node_restriction`).
"""

from __future__ import annotations

from typing import Protocol

from plimsoll.rules.access.rbac import ALLOWED, DENIED, READ, Attributes, Decision
from plimsoll.rules.admission.node_restriction import lease_refusal

_WRITE = frozenset({"create", "update", "patch"})
# (group, resource) of those that are the same for every node: what it may do with each. Custom kinds of other groups
# may have the same names.
_SHARED = {
    # `api.handlers.csr` checks whose certificate it is.
    ("certificates.k8s.io", "certificatesigningrequests"): frozenset({"create"}) | READ,
    ("certificates.k8s.io", "clustertrustbundles"): READ,
    ("", "events"): _WRITE,
    ("events.k8s.io", "events"): _WRITE,
    ("authorization.k8s.io", "localsubjectaccessreviews"): frozenset({"create"}),
    ("authorization.k8s.io", "subjectaccessreviews"): frozenset({"create"}),
    ("authentication.k8s.io", "tokenreviews"): frozenset({"create"}),
    ("node.k8s.io", "runtimeclasses"): READ,
    ("", "services"): READ,
}


class Relations(Protocol):
    def is_related(self, node: str, resource: str, namespace: str, name: str) -> bool:
        """Whether a pod on the node is this object, or refers to it."""
        ...


def node_verdict(node: str, request: Attributes, relations: Relations) -> Decision:
    """`node` is empty for a user of system:nodes without a node's name."""
    if not node:
        return Decision(False, "unknown node for user")
    match request.resource, request.group:
        case "nodes", "":
            return _node(node, request)
        case "pods", "":
            return _pod(node, request, relations)
        case "leases", "coordination.k8s.io":
            return _lease(node, request)
        case (("configmaps" | "secrets"), ""):
            return _reference(node, request, relations, READ)
        case ("serviceaccounts", "") if request.subresource == "token":
            return _token(node, request, relations)
        case (("persistentvolumeclaims" | "persistentvolumes" | "serviceaccounts"), ""):
            return _reference(node, request, relations, frozenset({"get"}))
    verbs = _SHARED.get((request.group, request.resource), frozenset())
    return ALLOWED if request.verb in verbs and not request.subresource else DENIED


def _node(node: str, request: Attributes) -> Decision:
    if request.subresource:
        return ALLOWED if request.subresource == "status" and request.verb in ("update", "patch") else DENIED
    if request.verb in _WRITE:
        return ALLOWED
    if request.verb not in READ:
        return DENIED
    if request.name == node:
        return ALLOWED
    what = f"'{request.name}'" if request.name else "all nodes"
    return Decision(False, f"node '{node}' cannot read {what}, only its own Node object")


def _pod(node: str, request: Attributes, relations: Relations) -> Decision:
    match request.subresource, request.verb:
        case "", "get":
            return _related(node, request, relations)
        case "", "list" | "watch":
            if ("spec.nodeName", node) in request.field_selector:
                return ALLOWED
            if request.name and request.namespace:
                return _related(node, request, relations)
            return Decision(False, "can only list/watch pods with spec.nodeName field selector")
        case ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create"):
            return ALLOWED
    return DENIED


def _lease(node: str, request: Attributes) -> Decision:
    if request.verb not in _WRITE | {"get", "delete"}:
        return Decision(False, "can only get, create, update, patch, or delete a node lease")
    name = node if request.verb == "create" else request.name  # a new one's name is in the body
    refusal = lease_refusal(node, request.namespace, name)
    return Decision(not refusal, refusal)


def _token(node: str, request: Attributes, relations: Relations) -> Decision:
    if request.verb != "create" or not request.name:
        return Decision(False, "can only create tokens for individual service accounts")
    return _related(node, request, relations)


def _reference(node: str, request: Attributes, relations: Relations, verbs: frozenset[str]) -> Decision:
    if request.verb not in verbs:
        only_get = "can only get individual resources of this type"
        return Decision(False, "can only read resources of this type" if verbs == READ else only_get)
    if request.subresource:
        return Decision(False, "cannot read subresource" if verbs == READ else "cannot get subresource")
    if not request.namespace and request.resource != "persistentvolumes":
        return Decision(False, "can only read namespaced object of this type")
    return _related(node, request, relations)


def _related(node: str, request: Attributes, relations: Relations) -> Decision:
    if not request.name:
        return Decision(False, "No Object name found")
    if relations.is_related(node, request.resource, request.namespace, request.name):
        return ALLOWED
    return Decision(False, f"no relationship found between node '{node}' and this object")
