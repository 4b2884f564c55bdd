"""RBAC: whether a rule allows a request, whom a binding concerns, and which rules go beyond those that a user has.

A rule allows; none denies. `*` matches every verb, group, resource or path, `*/scale` the subresource of every
resource, and a path ending in `*` everything below it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Literal

import msgspec

from plimsoll.rules.access.token_claims import USER_PREFIX

GROUP = "rbac.authorization.k8s.io"
ANY = "*"
READ = frozenset({"get", "list", "watch"})


class Attributes(msgspec.Struct, frozen=True):
    """What a request is about, in RBAC's words."""

    verb: str
    resource: str
    group: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    field_selector: tuple[tuple[str, str], ...] = ()  # its `=` terms


class Decision(msgspec.Struct, frozen=True):
    allowed: bool
    reason: str = ""


ALLOWED, DENIED = Decision(True), Decision(False)


class PolicyRule(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    verbs: tuple[str, ...] = ()
    api_groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    resource_names: tuple[str, ...] = ()
    non_resource_urls: tuple[str, ...] = msgspec.field(name="nonResourceURLs", default=())


class Subject(msgspec.Struct, frozen=True, rename="camel"):
    kind: str
    name: str
    namespace: str = ""


class RoleRef(msgspec.Struct, frozen=True, rename="camel"):
    kind: Literal["Role", "ClusterRole"] | str
    name: str


def allows_resource(rule: PolicyRule, verb: str, group: str, resource: str, subresource: str) -> bool:
    """For some name: `rule.resource_names` are those, or all where it has none."""
    return (
        _has(rule.verbs, verb)
        and _has(rule.api_groups, group)
        and any(_is_resource(each, resource, subresource) for each in rule.resources)
    )


def _has(values: Collection[str], value: str) -> bool:
    return ANY in values or value in values


def _is_resource(written: str, resource: str, subresource: str) -> bool:
    if written == ANY:
        return True
    if not subresource:
        return written == resource
    return written in (f"{resource}/{subresource}", f"{ANY}/{subresource}")


def allows_path(rule: PolicyRule, verb: str, path: str) -> bool:
    return _has(rule.verbs, verb) and any(_is_path(each, path) for each in rule.non_resource_urls)


def _is_path(written: str, path: str) -> bool:
    return path.startswith(written[:-1]) if written.endswith(ANY) else written == path


def concerns(subject: Subject, user: str, groups: Collection[str], namespace: str) -> bool:
    """`namespace`: of the binding, for a service account without one."""
    match subject.kind:
        case "User":
            return subject.name == user
        case "Group":
            return subject.name in groups
        case "ServiceAccount":
            return user == f"{USER_PREFIX}{subject.namespace or namespace}:{subject.name}"
    return False


# --- escalation ---


def uncovered(requested: Iterable[PolicyRule], owned: Collection[PolicyRule]) -> list[PolicyRule]:
    """The parts of the requested rules that none of the owned ones covers, each with one verb, group and resource."""
    return [part for rule in requested for part in _parts(rule) if not any(_covers(each, part) for each in owned)]


def _parts(rule: PolicyRule) -> Iterator[PolicyRule]:
    for verb in rule.verbs:
        for url in rule.non_resource_urls:
            yield PolicyRule((verb,), non_resource_urls=(url,))
        for group in rule.api_groups:
            for resource in rule.resources:
                if not rule.resource_names:
                    yield PolicyRule((verb,), (group,), (resource,))
                for name in rule.resource_names:
                    yield PolicyRule((verb,), (group,), (resource,), (name,))


def _covers(owned: PolicyRule, part: PolicyRule) -> bool:
    if not _has(owned.verbs, part.verbs[0]):
        return False
    if part.non_resource_urls:
        return any(_covers_path(each, part.non_resource_urls[0]) for each in owned.non_resource_urls)
    resource, _, subresource = part.resources[0].partition("/")
    return (
        _has(owned.api_groups, part.api_groups[0])
        and any(_is_resource(each, resource, subresource) for each in owned.resources)
        and (not owned.resource_names or (bool(part.resource_names) and part.resource_names[0] in owned.resource_names))
    )


def _covers_path(written: str, wanted: str) -> bool:
    """`/a` covers neither `/a*` nor `/a/*`, which are more than one path."""
    return written == wanted or (written.endswith(ANY) and wanted.startswith(written[:-1]))


def escalation(user: str, groups: Collection[str], missing: Iterable[PolicyRule]) -> str:
    """Kubernetes' sentence, with the missing rules of one resource joined."""
    joined: dict[PolicyRule, list[str]] = {}
    for rule in missing:
        joined.setdefault(msgspec.structs.replace(rule, verbs=()), []).append(rule.verbs[0])
    shown = sorted(_compact(msgspec.structs.replace(rule, verbs=tuple(verbs))) for rule, verbs in joined.items())
    listed = " ".join(f'"{group}"' for group in sorted(groups))
    lines = "\n".join(shown)
    return f'user "{user}" (groups=[{listed}]) is attempting to grant RBAC permissions not currently held:\n{lines}'


def _compact(rule: PolicyRule) -> str:
    parts = (
        ("APIGroups", rule.api_groups),
        ("Resources", rule.resources),
        ("NonResourceURLs", rule.non_resource_urls),
        ("ResourceNames", rule.resource_names),
        ("Verbs", rule.verbs),
    )
    shown = (f"{name}:[{' '.join(f'{chr(34)}{each}{chr(34)}' for each in values)}]" for name, values in parts if values)
    return f"{{{', '.join(shown)}}}"


# --- aggregation ---


def aggregated(roles: Iterable[tuple[str, Collection[PolicyRule]]]) -> tuple[PolicyRule, ...]:
    """The rules of the selected roles, (name, rules), by name and each once."""
    return tuple(dict.fromkeys(rule for _, rules in sorted(roles, key=lambda each: each[0]) for rule in rules))
