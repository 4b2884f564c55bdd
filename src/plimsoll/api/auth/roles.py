"""Authorization: what a user may do, decided from the user and the request. Three roles.

admin (group system:masters) may do everything. viewer (plimsoll:viewers) may read everything but not run commands in
containers. node (system:nodes, user system:node:NAME) may do what a kubelet does, for itself (`node_authorizer`).

`rules_of` writes the same down as RBAC would (`kubectl auth can-i --list`). It decides nothing: it asks `verdict` about
every verb of every resource, without a name and with the node's name, and joins equal answers. Rules that depend on an
object (a node's own pods) cannot be written that way, so a sentence says them.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from plimsoll.api.auth.node_authorizer import (
    ALLOWED,
    DENIED,
    NO_RELATIONS,
    READ,
    Attributes,
    Decision,
    Relations,
    node_verdict,
)
from plimsoll.api.machinery.kinds import RESOURCES, ApiResource
from plimsoll.api.machinery.users import ANONYMOUS, AUTHENTICATED, MASTERS, NODES, VIEWERS, User

OPEN_PATHS = frozenset({"/livez", "/readyz", "/healthz", "/version"})  # for everyone
KNOWN_PATHS = ("/api", "/apis", "/openapi/")  # for authenticated users
REVIEWS = frozenset({"selfsubjectaccessreviews", "selfsubjectreviews", "selfsubjectrulesreviews"})
_INTERACTIVE = frozenset({"exec", "attach", "portforward", "proxy"})


def may_read_path(user: User, path: str) -> bool:
    """For paths outside the resources."""
    plain = path.rstrip("/") or "/"
    if plain in OPEN_PATHS or plain.startswith(("/livez/", "/readyz/", "/healthz/")):
        return True
    if user == ANONYMOUS or AUTHENTICATED not in user.groups:
        return False
    if MASTERS in user.groups or VIEWERS in user.groups:
        return True
    return plain.startswith(KNOWN_PATHS)


def verdict(user: User, request: Attributes, relations: Relations = NO_RELATIONS) -> Decision:
    """`relations`: the objects of each node; without it nothing is related to a node."""
    if MASTERS in user.groups:
        return ALLOWED
    if AUTHENTICATED not in user.groups:
        return DENIED
    if request.resource in REVIEWS and request.verb == "create":
        return ALLOWED
    if NODES in user.groups:
        return node_verdict(user.node, request, relations)
    if VIEWERS in user.groups and request.verb in READ and request.subresource not in _INTERACTIVE:
        return ALLOWED
    return DENIED


def denial(user: User, request: Attributes, reason: str = "") -> str:
    """Kubernetes' sentence, which follows `<resource> "<name>" is forbidden: `."""
    resource = f"{request.resource}/{request.subresource}" if request.subresource else request.resource
    where = f'in the namespace "{request.namespace}"' if request.namespace else "at the cluster scope"
    text = f'User "{user.name}" cannot {request.verb} resource "{resource}" in API group "{request.group}" {where}'
    return f"{text}: {reason}" if reason else text


_ANY = ("*",)
_OWN_PODS = (
    "writes are limited to this node and to pods that are bound to this node; these pods, and the objects that they "
    "refer to, may be read, too"
)


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

    def may(verb: str, name: str) -> bool:
        place = namespace if resource.namespaced else ""
        return verdict(user, Attributes(verb, resource.plural, resource.group, subresource, place, name)).allowed

    always = tuple(verb for verb in verbs if may(verb, "") and may(verb, "another"))
    if always:
        yield (), always
    if user.node:
        own = tuple(verb for verb in verbs if verb not in always and may(verb, user.node))
        if own:
            yield (user.node,), own


def _paths(user: User) -> tuple[str, ...]:
    """The verdict for a known path holds for everything below it."""
    if may_read_path(user, "/any"):
        return _ANY
    known = (path for top in KNOWN_PATHS for path in (top.rstrip("/"), f"{top.rstrip('/')}/*"))
    return tuple(sorted(path for path in (*OPEN_PATHS, *known) if may_read_path(user, path)))
