"""Requests to the Kubernetes API and responses, as values. Opens no connection.

It has only the requests that kubelets and schedulers make (05 B5, B9), so that the agent and the scheduler work with
any Kubernetes control plane.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal
from urllib.parse import quote, urlencode

import msgspec

from plimsoll.errors import PlimsollError, StructuredError

MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
JSON = "application/json"
Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]


class ResourcePath(msgspec.Struct, frozen=True):
    """The path of one kind: `/api/v1` or `/apis/<group>/<version>`, and its plural name."""

    base: str
    plural: str

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        parts = [self.base]
        if namespace:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        parts += [quote(part, safe="") for part in (name, subresource) if part]
        return "/".join(parts)


PODS, NODES, EVENTS = (ResourcePath("/api/v1", plural) for plural in ("pods", "nodes", "events"))
NEW_EVENTS = ResourcePath("/apis/events.k8s.io/v1", "events")
LEASES = ResourcePath("/apis/coordination.k8s.io/v1", "leases")


class Request(msgspec.Struct, frozen=True):
    method: Method
    path: str  # with its query
    body: bytes = b""
    content_type: str = ""
    accept: str = JSON

    @property
    def stream(self) -> bool:
        return "watch=true" in self.path


class ApiResponse(msgspec.Struct, frozen=True):
    status: int
    body: bytes


class ApiError(StructuredError):
    """The server answered with an error: its Status, as far as it sent one."""

    code: int
    reason: str
    message: str

    def __str__(self) -> str:
        return f"{self.message} ({self.code} {self.reason})" if self.reason else f"{self.message} ({self.code})"

    @property
    def is_conflict(self) -> bool:
        return self.code == 409 and self.reason == "Conflict"

    @property
    def is_gone(self) -> bool:
        return self.code == 404


class UnreachableError(PlimsollError):
    """The server did not answer: try again later."""


def get(resource: ResourcePath, name: str, namespace: str = "") -> Request:
    return Request("GET", resource.path(namespace, name))


def listing(
    resource: ResourcePath,
    *,
    namespace: str = "",
    fields: str = "",
    labels: str = "",
    limit: int = 0,
    follow: str = "",
    version: str = "",
) -> Request:
    """`follow`: the continue token of the previous page."""
    query = _query(fieldSelector=fields, labelSelector=labels, limit=limit or "", resourceVersion=version)
    query += [("continue", follow)] if follow else []
    return Request("GET", with_query(resource.path(namespace), query))


def watching(
    resource: ResourcePath, version: str, *, namespace: str = "", fields: str = "", labels: str = "", timeout_s: int = 0
) -> Request:
    query = _query(
        allowWatchBookmarks="true",
        fieldSelector=fields,
        labelSelector=labels,
        resourceVersion=version,
        timeoutSeconds=timeout_s or "",
        watch="true",
    )
    return Request("GET", with_query(resource.path(namespace), query))


def create(
    resource: ResourcePath, document: Mapping[str, Any], namespace: str = "", name: str = "", subresource: str = ""
) -> Request:
    path = resource.path(namespace, name, subresource)
    return Request("POST", path, msgspec.json.encode(document), JSON)


def replace(resource: ResourcePath, document: Mapping[str, Any], name: str, namespace: str = "") -> Request:
    return Request("PUT", resource.path(namespace, name), msgspec.json.encode(document), JSON)


def patch(
    resource: ResourcePath,
    name: str,
    change: Mapping[str, Any] | Sequence[Any],
    namespace: str = "",
    subresource: str = "",
    *,
    content_type: str = STRATEGIC,
) -> Request:
    path = resource.path(namespace, name, subresource)
    return Request("PATCH", path, msgspec.json.encode(change), content_type)


def delete(
    resource: ResourcePath, name: str, namespace: str = "", *, grace_s: int | None = None, uid: str = ""
) -> Request:
    """With `uid` only this object is deleted, never a newer one with the same name."""
    options: dict[str, Any] = {"kind": "DeleteOptions", "apiVersion": "v1"}
    if grace_s is not None:
        options["gracePeriodSeconds"] = grace_s
    if uid:
        options["preconditions"] = {"uid": uid}
    return Request("DELETE", resource.path(namespace, name), msgspec.json.encode(options), JSON)


def document(answer: ApiResponse) -> dict[str, Any]:
    """The object in the response; ApiError where its status is an error."""
    if answer.status >= 400:
        raise api_error(answer)
    decoded: dict[str, Any] = msgspec.json.decode(answer.body) if answer.body else {}
    return decoded


def api_error(answer: ApiResponse) -> ApiError:
    try:
        status = msgspec.json.decode(answer.body)
    except msgspec.DecodeError:
        status = None
    if isinstance(status, dict) and status.get("kind") == "Status":
        return ApiError(answer.status, str(status.get("reason", "")), str(status.get("message", "")))
    text = answer.body[:200].decode("utf-8", "replace").strip()
    return ApiError(answer.status, "", text or "the server gave no reason")


def _query(**terms: Any) -> list[tuple[str, str]]:
    return [(key, str(value)) for key, value in terms.items() if value != ""]


def with_query(path: str, query: list[tuple[str, str]]) -> str:
    return f"{path}?{urlencode(query)}" if query else path
