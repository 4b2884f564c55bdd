"""Authorize a request: its RBAC attributes, the verdict of the roles, then an error or a guard."""

from __future__ import annotations

from plimsoll.api.auth.roles import Attributes, denial, own_name_refusal, own_pod_refusal, verdict
from plimsoll.api.machinery.call import Guard, allow_any
from plimsoll.api.machinery.kinds import stored_resource
from plimsoll.api.machinery.request_info import RequestInfo
from plimsoll.api.machinery.selectors import field_terms
from plimsoll.api.machinery.status import forbidden
from plimsoll.api.machinery.users import User
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.objects import MIRROR_ANNOTATION

_PODS = stored_resource("pods")


def attributes(info: RequestInfo, user: User) -> Attributes:
    selector = info.option("fieldSelector") if user.node else ""
    terms = tuple(
        (term.field, term.value) for term in (field_terms(info.resource, selector) if selector else ()) if term.is_equal
    )
    return Attributes(
        info.verb, info.resource.plural, info.resource.group, info.subresource, info.namespace, info.name, terms
    )


def authorize(user: User, info: RequestInfo) -> Guard:
    """Raises 403. Returns the guard that decides by the object itself."""
    request = attributes(info, user)
    decision = verdict(user, request)
    if decision == "deny":
        raise forbidden(info.resource, info.name, denial(user, request))
    if decision == "own-pod":
        return _own_pod(user, request)
    if user.node and info.verb == "create" and info.resource.storage in ("nodes", "leases"):
        return _own_name(user, info)
    return allow_any


def _own_pod(user: User, request: Attributes) -> Guard:
    def guard(pod: JsonObject) -> None:
        mirror = MIRROR_ANNOTATION in (pod["metadata"].get("annotations") or {})
        node_name = (pod.get("spec") or {}).get("nodeName") or ""
        refusal = own_pod_refusal(user.node, request, node_name, is_mirror=mirror)
        if refusal:
            raise forbidden(_PODS, pod["metadata"].get("name") or "", refusal)

    return guard


def _own_name(user: User, info: RequestInfo) -> Guard:
    def guard(document: JsonObject) -> None:
        name = document["metadata"].get("name") or ""
        refusal = own_name_refusal(user.node, info.resource.plural, name)
        if refusal:
            raise forbidden(info.resource, name, refusal)

    return guard
