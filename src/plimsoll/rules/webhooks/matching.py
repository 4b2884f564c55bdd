"""Whether a request concerns a webhook or policy: rules, namespace and object selectors, match policy."""

from __future__ import annotations

from typing import Any

import msgspec

from plimsoll.rules.model.json_object import JsonObject

ANY = "*"
EXEMPT_GROUP = "admissionregistration.k8s.io"


class RequestAttributes(msgspec.Struct, frozen=True):
    """What is asked of which resource; `versions` are all served versions of it, its own first."""

    operation: str  # CREATE, UPDATE, DELETE, CONNECT
    group: str
    version: str
    resource: str
    subresource: str
    namespace: str
    name: str
    versions: tuple[str, ...] = ()
    is_namespace: bool = False


def is_exempt(group: str) -> bool:
    """Configurations of webhooks and policies can always be written, so that a wrong one can be removed."""
    return group == EXEMPT_GROUP


def matched_version(rules: list[JsonObject], request: RequestAttributes, *, equivalent: bool) -> str:
    """The version in which the request concerns one of the rules; empty if none."""
    versions = (request.version, *request.versions) if equivalent else (request.version,)
    for version in dict.fromkeys(versions):
        if any(_matches(rule, request, version) for rule in rules):
            return version
    return ""


def _matches(rule: JsonObject, request: RequestAttributes, version: str) -> bool:
    names = rule.get("resourceNames") or ()
    return (
        _has(rule.get("operations"), request.operation)
        and _has(rule.get("apiGroups"), request.group)
        and _has(rule.get("apiVersions"), version)
        and any(_is_resource(each, request) for each in rule.get("resources") or ())
        and _is_scope(rule.get("scope") or ANY, request)
        and (not names or request.name in names)
    )


def _has(values: Any, wanted: str) -> bool:
    return ANY in (values or ()) or wanted in (values or ())


def _is_resource(pattern: str, request: RequestAttributes) -> bool:
    resource, _, subresource = pattern.partition("/")
    if resource not in (ANY, request.resource):
        return False
    if pattern == ANY:  # all resources, but no subresources
        return not request.subresource
    return subresource in (ANY, request.subresource)


def _is_scope(scope: str, request: RequestAttributes) -> bool:
    """A namespace itself is in no namespace."""
    is_namespaced = bool(request.namespace) and not request.is_namespace
    return scope == ANY or (scope == "Namespaced") is is_namespaced


def selects(selector: JsonObject | None, labels: dict[str, str]) -> bool:
    """A label selector as in manifests; an empty one selects everything, an absent one here too."""
    if not selector:
        return True
    for key, value in (selector.get("matchLabels") or {}).items():
        if labels.get(key) != value:
            return False
    for term in selector.get("matchExpressions") or ():
        key, values = term.get("key"), term.get("values") or ()
        match term.get("operator"):
            case "In":
                holds = key in labels and labels[key] in values
            case "NotIn":
                holds = key not in labels or labels[key] not in values
            case "Exists":
                holds = key in labels
            case "DoesNotExist":
                holds = key not in labels
            case _:
                holds = False
        if not holds:
            return False
    return True


def selects_objects(selector: JsonObject | None, new: JsonObject | None, old: JsonObject | None) -> bool:
    """Whether one of both versions has the labels."""
    if not selector:
        return True
    return any(
        selects(selector, (each.get("metadata") or {}).get("labels") or {}) for each in (new, old) if each is not None
    )
