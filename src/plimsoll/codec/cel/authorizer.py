"""The authorizer library: `authorizer.group('apps').resource('deployments').namespace('a').check('create').allowed()`.

A program gets a function that judges attributes; nothing here knows how.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from plimsoll.codec.cel.overloads import overload
from plimsoll.codec.cel.values import EvaluationError, Opaque


class Attributes(msgspec.Struct, frozen=True):
    """What is asked: about a resource, or with `path` about a path."""

    user: str = ""  # of `serviceAccount(namespace, name)`; empty for the requester
    verb: str = ""
    path: str = ""
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""


class Answer(msgspec.Struct, frozen=True):
    allowed: bool
    reason: str = ""


class Check(msgspec.Struct, frozen=True):
    attributes: Attributes
    judge: Callable[[Attributes], Answer]
    request: Attributes | None = None  # the resource of the request


def authorizer(judge: Callable[[Attributes], Answer], request: Attributes | None = None) -> Opaque:
    return Opaque("authorizer", Check(Attributes(), judge, request))


def request_resource(check: Opaque) -> Opaque:
    """`authorizer.requestResource`."""
    found: Check = check.value
    return Opaque("resourcecheck", Check(found.request or Attributes(), found.judge))


def _with(kind: str, check: Opaque, **changes: str) -> Opaque:
    found: Check = check.value
    return Opaque(kind, Check(msgspec.structs.replace(found.attributes, **changes), found.judge))


@overload("authorizer.serviceAccount(string, string) authorizer")
def _service_account(check: Opaque, namespace: str, name: str) -> Opaque:
    return _with("authorizer", check, user=f"system:serviceaccount:{namespace}:{name}")


@overload("authorizer.path(string) pathcheck")
def _path(check: Opaque, path: str) -> Opaque:
    if not path:
        raise EvaluationError("path must not be empty")
    return _with("pathcheck", check, path=path)


@overload("authorizer.group(string) groupcheck")
def _group(check: Opaque, group: str) -> Opaque:
    return _with("groupcheck", check, group=group)


@overload("groupcheck.resource(string) resourcecheck")
def _resource(check: Opaque, resource: str) -> Opaque:
    return _with("resourcecheck", check, resource=resource)


@overload("resourcecheck.subresource(string) resourcecheck")
def _subresource(check: Opaque, subresource: str) -> Opaque:
    return _with("resourcecheck", check, subresource=subresource)


@overload("resourcecheck.namespace(string) resourcecheck")
def _namespace(check: Opaque, namespace: str) -> Opaque:
    return _with("resourcecheck", check, namespace=namespace)


@overload("resourcecheck.name(string) resourcecheck")
def _name(check: Opaque, name: str) -> Opaque:
    return _with("resourcecheck", check, name=name)


@overload("resourcecheck.fieldSelector(string) resourcecheck", "resourcecheck.labelSelector(string) resourcecheck")
def _selector(check: Opaque, selector: str) -> Opaque:
    """Without an effect: roles do not consider selectors."""
    return check


@overload("resourcecheck.check(string) decision", "pathcheck.check(string) decision", cost=lambda *_: 350_000)
def _check(check: Opaque, verb: str) -> Opaque:
    found: Check = check.value
    return Opaque("decision", found.judge(msgspec.structs.replace(found.attributes, verb=verb)))


@overload("decision.allowed() bool")
def _allowed(decision: Opaque) -> bool:
    return bool(decision.value.allowed)


@overload("decision.reason() string")
def _reason(decision: Opaque) -> str:
    return str(decision.value.reason)


@overload("decision.errored() bool")
def _errored(decision: Opaque) -> bool:
    return False


@overload("decision.error() string")
def _error(decision: Opaque) -> str:
    return ""
