"""Authorize a request: its RBAC attributes, the verdict of the roles, and an error where it is not allowed."""

from __future__ import annotations

import msgspec

from plimsoll.api.auth.roles import denial, is_allowed, verdict
from plimsoll.api.machinery.cluster import Cluster
from plimsoll.api.machinery.request_info import RequestInfo
from plimsoll.api.machinery.selectors import Selection
from plimsoll.api.machinery.status import forbidden
from plimsoll.api.machinery.users import User
from plimsoll.rules.access.rbac import Attributes


def attributes(info: RequestInfo, chosen: Selection) -> Attributes:
    """A list or watch of one object by `metadata.name` is a request for that object, as in Kubernetes."""
    terms = tuple((test.field, value) for test in chosen.fields for value in sorted(test.equal))
    name = info.name or chosen.required("metadata.name") or ""
    return Attributes(
        info.verb, info.resource.plural, info.resource.group, info.subresource, info.namespace, name, terms
    )


def create_of(info: RequestInfo) -> RequestInfo:
    """The create that a PUT or PATCH becomes where the object does not exist."""
    return msgspec.structs.replace(info, verb="create")


def check_creation(user: User, info: RequestInfo, *, may_create: bool) -> None:
    """Of an object that does not exist. Who may only change objects cannot create one in this way. Raises 403."""
    if info.verb != "create" and not may_create:
        request = attributes(create_of(info), Selection(info.resource.storage))
        raise forbidden(info.resource, info.name, denial(user, request))


def authorize(user: User, info: RequestInfo, chosen: Selection, cluster: Cluster) -> None:
    """Raises 403."""
    request = attributes(info, chosen)
    if not is_allowed(user, request, cluster):
        reason = verdict(user, request, cluster).reason
        raise forbidden(info.resource, request.name, denial(user, request, reason))
