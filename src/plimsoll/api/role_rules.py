"""What a user may do, as RBAC would write it down (`kubectl auth can-i --list`).

Nothing is decided here: `roles.verdict` is asked about every verb of everything that is served, without a name and with
the name that a node has, and equal answers are put together. What depends on an object (a node's own pods) is no rule;
it is told in words.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from plimsoll.api.kinds import RESOURCES, Resource
from plimsoll.api.roles import KNOWN_PATHS, OPEN_PATHS, Attributes, Verdict, path_verdict, verdict
from plimsoll.api.users import MASTERS, User

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


def _parts(resource: Resource) -> Iterator[tuple[str, tuple[str, ...]]]:
    yield "", resource.verbs
    for each in resource.subresources:
        yield each.name, each.verbs


def _allowed(
    user: User, resource: Resource, subresource: str, verbs: tuple[str, ...], namespace: str
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
