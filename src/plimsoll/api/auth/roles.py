"""Who may do what: three roles, decided without looking anything up.

admin (group system:masters) may everything. viewer (plimsoll:viewers) may read everything but may not run commands in
containers. node (system:nodes, user system:node:NAME) may do what a kubelet does, for itself: its Node, its Lease,
events, its own pods. Whether a pod is a node's own stands in the pod, so for those requests the verdict is OWN_POD and
whoever holds the pod asks `own_pod_refusal`.

What a user may do, as RBAC would write it down (`kubectl auth can-i --list`).

Nothing is decided here: `roles.verdict` is asked about every verb of everything that is served, without a name and with
the name that a node has, and equal answers are put together. What depends on an object (a node's own pods) is no rule;
it is told in words.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from plimsoll.api.machinery.kinds import RESOURCES, ApiResource
from plimsoll.api.machinery.users import ANONYMOUS, AUTHENTICATED, MASTERS, VIEWERS, User

Verdict = Literal["allow", "deny", "own-pod"]
READ = frozenset({"get", "list", "watch"})
OPEN_PATHS = frozenset({"/livez", "/readyz", "/healthz", "/version"})  # for anybody
KNOWN_PATHS = ("/api", "/apis", "/openapi/")  # for anybody who is known
REVIEWS = frozenset({"selfsubjectaccessreviews", "selfsubjectreviews", "selfsubjectrulesreviews"})
NODE_LEASES = "kube-node-lease"
_INTERACTIVE = frozenset({"exec", "attach", "portforward", "proxy"})
_NODE_READS = frozenset({"configmaps", "serviceaccounts", "namespaces", "priorityclasses", "runtimeclasses"})
_OWN_POD_WRITES = {("delete", ""), ("create", ""), ("create", "eviction"), ("update", "status"), ("patch", "status")}


class Attributes(msgspec.Struct, frozen=True):
    """What is asked, in RBAC's words."""

    verb: str
    resource: str
    group: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    field_selector: tuple[tuple[str, str], ...] = ()  # its `=` terms


def path_verdict(user: User, path: str) -> Verdict:
    """For paths outside the resources."""
    plain = path.rstrip("/") or "/"
    if plain in OPEN_PATHS or plain.startswith(("/livez/", "/readyz/", "/healthz/")):
        return "allow"
    if user == ANONYMOUS or AUTHENTICATED not in user.groups:
        return "deny"
    if MASTERS in user.groups or VIEWERS in user.groups:
        return "allow"
    return "allow" if plain.startswith(KNOWN_PATHS) else "deny"


def verdict(user: User, asked: Attributes) -> Verdict:
    if MASTERS in user.groups:
        return "allow"
    if AUTHENTICATED not in user.groups:
        return "deny"
    if asked.resource in REVIEWS and asked.verb == "create":
        return "allow"
    if user.node:
        return _node_verdict(user.node, asked)
    if VIEWERS in user.groups and asked.verb in READ and asked.subresource not in _INTERACTIVE:
        return "allow"
    return "deny"


def _node_verdict(node: str, asked: Attributes) -> Verdict:
    match asked.resource:
        case "nodes" if asked.verb in READ:
            own = asked.name == node or ("metadata.name", node) in asked.field_selector
            return "allow" if own and asked.subresource in ("", "status") else "deny"
        case "nodes" if asked.verb in ("create", "update", "patch") and asked.subresource in ("", "status"):
            return "allow" if asked.name in ("", node) else "deny"  # at create the body names it: `own_node_refusal`
        case "leases" if asked.namespace == NODE_LEASES and asked.verb != "deletecollection":
            return "allow" if asked.name == node or (asked.verb == "create" and not asked.name) else "deny"
        case "certificatesigningrequests" if asked.verb == "create":
            return "allow"  # for a new certificate of its own: `api.handlers.csr` looks whose it is
        case "events" if asked.verb in ("create", "update", "patch"):
            return "allow"
        case "pods" if asked.verb in ("list", "watch") and not asked.subresource:
            return "allow" if ("spec.nodeName", node) in asked.field_selector else "deny"
        case "pods" if asked.verb == "get" and asked.subresource in ("", "status"):
            return "own-pod"
        case "pods" if (asked.verb, asked.subresource) in _OWN_POD_WRITES:
            return "own-pod"
        case resource if resource in _NODE_READS and asked.verb in READ and not asked.subresource:
            return "allow"
        case _:
            return "deny"


def own_pod_refusal(node: str, asked: Attributes, node_name: str, *, is_mirror: bool = False) -> str:
    """Why a node may not do this to a pod that runs on `node_name`; empty where it may."""
    if node_name != node:
        match asked.verb, asked.subresource:
            case _, "status":
                return f'node "{node}" can only update pod status for pods with spec.nodeName set to itself'
            case "create", "":
                return f'node "{node}" can only create pods with spec.nodeName set to itself'
            case "create", "eviction":
                return f"node {node} can only evict pods with spec.nodeName set to itself"
            case "delete", _:
                return f'node "{node}" can only delete pods with spec.nodeName set to itself'
            case _:
                return f'node "{node}" can only read pods with spec.nodeName set to itself'
    if asked.verb == "create" and not asked.subresource and not is_mirror:
        return f'pod does not have "kubernetes.io/config.mirror" annotation, node "{node}" can only create mirror pods'
    return ""


def own_name_refusal(node: str, resource: str, name: str) -> str:
    """A node creates only itself and its own lease; the name stands in the body."""
    if name == node:
        return ""
    if resource == "leases":
        return "can only access node lease with the same name as the requesting node"
    return f'node "{node}" is not allowed to modify node "{name}"'


def denial(user: User, asked: Attributes) -> str:
    """Kubernetes' sentence, which follows `<resource> "<name>" is forbidden: `."""
    resource = f"{asked.resource}/{asked.subresource}" if asked.subresource else asked.resource
    where = f'in the namespace "{asked.namespace}"' if asked.namespace else "at the cluster scope"
    return f'User "{user.name}" cannot {asked.verb} resource "{resource}" in API group "{asked.group}" {where}'


_ANY = ("*",)
_OWN_PODS = "pods that are bound to this node may be read, listed by spec.nodeName, reported on and removed, too"


class ResourceRule(msgspec.Struct, frozen=True):
    verbs: tuple[str, ...]
    groups: tuple[str, ...]
    resources: tuple[str, ...]  # `pods`, `pods/log`
    names: tuple[str, ...] = ()


class PathRule(msgspec.Struct, frozen=True):
    verbs: tuple[str, ...]
    paths: tuple[str, ...]


class Rules(msgspec.Struct, frozen=True):
    resources: tuple[ResourceRule, ...]
    paths: tuple[PathRule, ...]
    beyond: str = ""  # what no rule can say


def rules_of(user: User, namespace: str) -> Rules:
    if MASTERS in user.groups:
        return Rules((ResourceRule(_ANY, _ANY, _ANY),), (PathRule(_ANY, _ANY),))
    found: dict[tuple[tuple[str, ...], str, tuple[str, ...]], list[str]] = {}
    for resource in RESOURCES:
        for subresource, verbs in _parts(resource):
            shown = f"{resource.plural}/{subresource}" if subresource else resource.plural
            for names, allowed in _allowed(user, resource, subresource, verbs, namespace):
                found.setdefault((allowed, resource.group, names), []).append(shown)
    rules = (ResourceRule(verbs, (group,), tuple(some), names) for (verbs, group, names), some in found.items())
    return Rules(tuple(rules), (PathRule(("get",), _paths(user)),), _OWN_PODS if user.node else "")


def _parts(resource: ApiResource) -> Iterator[tuple[str, tuple[str, ...]]]:
    yield "", resource.verbs
    for each in resource.subresources:
        yield each.name, each.verbs


def _allowed(
    user: User, resource: ApiResource, subresource: str, verbs: tuple[str, ...], namespace: str
) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """(names, verbs): what is allowed whatever the name, and what only for the node's own."""

    def answer(verb: str, name: str) -> Verdict:
        place = namespace if resource.namespaced else ""
        return verdict(user, Attributes(verb, resource.plural, resource.group, subresource, place, name))

    always = tuple(verb for verb in verbs if answer(verb, "") == answer(verb, "another") == "allow")
    if always:
        yield (), always
    if user.node:
        own = tuple(verb for verb in verbs if verb not in always and answer(verb, user.node) == "allow")
        if own:
            yield (user.node,), own


def _paths(user: User) -> tuple[str, ...]:
    """Below each known path everything is as it is at its top."""
    if path_verdict(user, "/any") == "allow":
        return _ANY
    known = (path for top in KNOWN_PATHS for path in (top.rstrip("/"), f"{top.rstrip('/')}/*"))
    return tuple(sorted(path for path in (*OPEN_PATHS, *known) if path_verdict(user, path) == "allow"))
