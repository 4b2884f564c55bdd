"""Authorization: what a user may do. Administrators everything, nodes what a kubelet does for itself, others by RBAC.

A node is asked about first as `node_authorizer` decides; what that does not allow, a binding may.
"""

from __future__ import annotations

import msgspec

from plimsoll.api.auth.node_authorizer import node_verdict
from plimsoll.api.machinery.cluster import Cluster
from plimsoll.api.machinery.users import MASTERS, NODES, User
from plimsoll.rules.access.rbac import ALLOWED, ANY, Attributes, Decision, PolicyRule, uncovered

OPEN_PATHS = frozenset({"/livez", "/readyz", "/healthz", "/version"})  # for everyone, also those who are unknown
_EVERYTHING = (PolicyRule((ANY,), (ANY,), (ANY,)), PolicyRule((ANY,), non_resource_urls=(ANY,)))
_OWN_PODS = (
    "writes are limited to this node and to pods that are bound to this node; these pods, and the objects that they "
    "refer to, may be read, too"
)


def may_read_path(user: User, path: str, cluster: Cluster, verb: str = "get") -> bool:
    """For paths outside the resources."""
    plain = path.rstrip("/") or "/"
    if plain in OPEN_PATHS or plain.startswith(("/livez/", "/readyz/", "/healthz/")):
        return verb == "get" or MASTERS in user.groups
    if MASTERS in user.groups:
        return True
    return cluster.roles.allows_path(user.name, user.groups, verb, plain)


def is_allowed(user: User, request: Attributes, cluster: Cluster) -> bool:
    if MASTERS in user.groups:
        return True
    if NODES in user.groups and node_verdict(user.node, request, cluster.node_graph).allowed:
        return True
    return cluster.roles.allows(user.name, user.groups, request)


def verdict(user: User, request: Attributes, cluster: Cluster) -> Decision:
    """`is_allowed` with its reason."""
    if MASTERS in user.groups:
        return ALLOWED
    reasons = []
    if NODES in user.groups:
        decision = node_verdict(user.node, request, cluster.node_graph)
        if decision.allowed:
            return decision
        reasons.append(decision.reason)
    decision = cluster.roles.decision(user.name, user.groups, request)
    if decision.allowed:
        return decision
    return Decision(False, ", ".join(reason for reason in (*reasons, decision.reason) if reason))


def denial(user: User, request: Attributes, reason: str = "") -> str:
    """Kubernetes' sentence, which follows `<resource> "<name>" is forbidden: `."""
    resource = f"{request.resource}/{request.subresource}" if request.subresource else request.resource
    where = f'in the namespace "{request.namespace}"' if request.namespace else "at the cluster scope"
    text = f'User "{user.name}" cannot {request.verb} resource "{resource}" in API group "{request.group}" {where}'
    return f"{text}: {reason}" if reason else text


class Rules(msgspec.Struct, frozen=True):
    """What `kubectl auth can-i --list` shows."""

    rules: tuple[PolicyRule, ...]
    beyond: str = ""  # what no rule can express


def rules_of(user: User, namespace: str, cluster: Cluster) -> Rules:
    if MASTERS in user.groups:
        return Rules(_EVERYTHING)
    return Rules(cluster.roles.rules(user.name, user.groups, namespace), _OWN_PODS if user.node else "")


def lacking_rules(user: User, rules: tuple[PolicyRule, ...], namespace: str, cluster: Cluster) -> list[PolicyRule]:
    """The parts of these rules that the user does not have."""
    if MASTERS in user.groups:
        return []
    return uncovered(rules, cluster.roles.rules(user.name, user.groups, namespace))
