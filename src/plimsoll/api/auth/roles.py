"""Authorization: what a user may do, decided from the user and the request alone. Three roles.

admin (group system:masters) may do everything. viewer (plimsoll:viewers) may read everything but not run commands in
containers. node (system:nodes, user system:node:NAME) may do what a kubelet does, for itself: its Node, its Lease,
events, its own pods (`NODE_RULES`). Which node a pod belongs to is in the pod, so for these requests the verdict is
"own-pod", and the handler that has read the pod calls `own_pod_refusal`.

`rules_of` writes the same down as RBAC would (`kubectl auth can-i --list`). It decides nothing: it asks `verdict` about
every verb of every resource, without a name and with the node's name, and joins equal answers. Rules that depend on an
object (a node's own pods) cannot be written that way, so a sentence says them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Literal

import msgspec

from plimsoll.api.machinery.kinds import RESOURCES, ApiResource
from plimsoll.api.machinery.users import ANONYMOUS, AUTHENTICATED, MASTERS, VIEWERS, User

Verdict = Literal["allow", "deny", "own-pod"]
READ = frozenset({"get", "list", "watch"})
OPEN_PATHS = frozenset({"/livez", "/readyz", "/healthz", "/version"})  # for everyone
KNOWN_PATHS = ("/api", "/apis", "/openapi/")  # for authenticated users
REVIEWS = frozenset({"selfsubjectaccessreviews", "selfsubjectreviews", "selfsubjectrulesreviews"})
NODE_LEASES = "kube-node-lease"
_INTERACTIVE = frozenset({"exec", "attach", "portforward", "proxy"})


class Attributes(msgspec.Struct, frozen=True):
    """What a request is about, in RBAC's words."""

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


def verdict(user: User, request: Attributes) -> Verdict:
    if MASTERS in user.groups:
        return "allow"
    if AUTHENTICATED not in user.groups:
        return "deny"
    if request.resource in REVIEWS and request.verb == "create":
        return "allow"
    if user.node:
        return _node_verdict(user.node, request)
    if VIEWERS in user.groups and request.verb in READ and request.subresource not in _INTERACTIVE:
        return "allow"
    return "deny"


# What a node may do: resources, verbs, subresources, and which objects. Everything else is denied.
_Scope = Literal["any", "own-name", "own-or-new", "own-lease", "on-this-node", "own-pod"]
_WRITE = frozenset({"create", "update", "patch"})
_NODE_READS = ("configmaps", "serviceaccounts", "namespaces", "priorityclasses", "runtimeclasses")
NODE_RULES: tuple[tuple[tuple[str, ...], Collection[str], tuple[str, ...], _Scope], ...] = (
    (("nodes",), READ, ("", "status"), "own-name"),
    (("nodes",), _WRITE, ("", "status"), "own-or-new"),
    (("leases",), READ | _WRITE | {"delete"}, ("",), "own-lease"),
    (("certificatesigningrequests",), ("create",), ("",), "any"),  # `api.handlers.csr` checks whose certificate it is
    (("events",), _WRITE, ("",), "any"),
    (("pods",), ("list", "watch"), ("",), "on-this-node"),
    (("pods",), ("get",), ("", "status"), "own-pod"),
    (("pods",), ("create", "delete"), ("",), "own-pod"),
    (("pods",), ("create",), ("eviction",), "own-pod"),
    (("pods",), ("update", "patch"), ("status",), "own-pod"),
    (_NODE_READS, READ, ("",), "any"),
)


def _node_verdict(node: str, request: Attributes) -> Verdict:
    for resources, verbs, subresources, scope in NODE_RULES:
        if request.resource in resources and request.verb in verbs and request.subresource in subresources:
            if scope == "own-pod":
                return "own-pod"
            return "allow" if _is_in_scope(scope, node, request) else "deny"
    return "deny"


def _is_in_scope(scope: _Scope, node: str, request: Attributes) -> bool:
    match scope:
        case "own-name":
            return request.name == node or ("metadata.name", node) in request.field_selector
        case "own-or-new":
            return request.name in ("", node)  # the body names a new one: `own_name_refusal`
        case "own-lease":
            is_new = request.verb == "create" and not request.name
            return request.namespace == NODE_LEASES and (request.name == node or is_new)
        case "on-this-node":
            return ("spec.nodeName", node) in request.field_selector
        case _:
            return True


def own_pod_refusal(node: str, request: Attributes, node_name: str, *, is_mirror: bool = False) -> str:
    """Why a node may not do this to a pod that runs on `node_name`; empty where it may."""
    if node_name != node:
        match request.verb, request.subresource:
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
    if request.verb == "create" and not request.subresource and not is_mirror:
        return f'pod does not have "kubernetes.io/config.mirror" annotation, node "{node}" can only create mirror pods'
    return ""


def own_name_refusal(node: str, resource: str, name: str) -> str:
    """A node creates only itself and its own lease; the name is in the body."""
    if name == node:
        return ""
    if resource == "leases":
        return "can only access node lease with the same name as the requesting node"
    return f'node "{node}" is not allowed to modify node "{name}"'


def denial(user: User, request: Attributes) -> str:
    """Kubernetes' sentence, which follows `<resource> "<name>" is forbidden: `."""
    resource = f"{request.resource}/{request.subresource}" if request.subresource else request.resource
    where = f'in the namespace "{request.namespace}"' if request.namespace else "at the cluster scope"
    return f'User "{user.name}" cannot {request.verb} resource "{resource}" in API group "{request.group}" {where}'


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
    beyond: str = ""  # what no rule can express


def rules_of(user: User, namespace: str) -> Rules:
    if MASTERS in user.groups:
        return Rules((ResourceRule(_ANY, _ANY, _ANY),), (PathRule(_ANY, _ANY),))
    grouped: dict[tuple[tuple[str, ...], str, tuple[str, ...]], list[str]] = {}
    for resource in RESOURCES:
        for subresource, verbs in _parts(resource):
            shown = f"{resource.plural}/{subresource}" if subresource else resource.plural
            for names, allowed in _allowed(user, resource, subresource, verbs, namespace):
                grouped.setdefault((allowed, resource.group, names), []).append(shown)
    rules = (ResourceRule(verbs, (group,), tuple(some), names) for (verbs, group, names), some in grouped.items())
    return Rules(tuple(rules), (PathRule(("get",), _paths(user)),), _OWN_PODS if user.node else "")


def _parts(resource: ApiResource) -> Iterator[tuple[str, tuple[str, ...]]]:
    yield "", resource.verbs
    for subresource in resource.subresources:
        yield subresource.name, subresource.verbs


def _allowed(
    user: User, resource: ApiResource, subresource: str, verbs: tuple[str, ...], namespace: str
) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """(names, verbs): what is allowed for every name, and what only for the node's own."""

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
    """The verdict for a known path holds for everything below it."""
    if path_verdict(user, "/any") == "allow":
        return _ANY
    known = (path for top in KNOWN_PATHS for path in (top.rstrip("/"), f"{top.rstrip('/')}/*"))
    return tuple(sorted(path for path in (*OPEN_PATHS, *known) if path_verdict(user, path) == "allow"))
