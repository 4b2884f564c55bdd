"""Requests to the Kubernetes API and responses, as values. Opens no connection.

It has only the requests that kubelets and schedulers make (05 B5, B9), so that the agent and the scheduler work with
any Kubernetes control plane.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeVar
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
    kind: str = ""  # of its objects; answers with another are unusable

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        parts = [self.base]
        if namespace:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        parts += [quote(part, safe="") for part in (name, subresource) if part]
        return "/".join(parts)


PODS, NODES, EVENTS = (ResourcePath("/api/v1", f"{kind.lower()}s", kind) for kind in ("Pod", "Node", "Event"))
NEW_EVENTS = ResourcePath("/apis/events.k8s.io/v1", "events", "Event")
LEASES = ResourcePath("/apis/coordination.k8s.io/v1", "leases", "Lease")
_OWN_KIND = frozenset({"", "status", "resize"})  # subresources that answer with the object itself


class Request(msgspec.Struct, frozen=True):
    method: Method
    path: str  # with its query
    body: bytes = b""
    content_type: str = ""
    accept: str = JSON
    kind: str = ""  # of the object in the response; empty: any

    @property
    def stream(self) -> bool:
        return "watch=true" in self.path


class ApiResponse(msgspec.Struct, frozen=True):
    status: int
    body: bytes
    content_type: bytes = b""  # of a stream
    location: bytes = b""  # of a stream: where a redirect leads


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


class UnusableAnswerError(UnreachableError):
    """What answers is no Kubernetes API server, or not the whole answer arrived: try again later."""


_Shape = TypeVar("_Shape")


def decoded_as(body: bytes | msgspec.Raw, shape: type[_Shape], what: str) -> _Shape:
    """`body` as JSON of this shape; UnusableAnswerError where it is something else."""
    try:
        return msgspec.json.decode(body, type=shape)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise UnusableAnswerError(f"{what} cannot be read ({error}): {_beginning(body)}") from None


def _beginning(body: bytes | msgspec.Raw) -> str:
    text = bytes(body)[:60].decode("utf-8", "replace")
    return repr(text) if text else "it is empty"


class _Metadata(msgspec.Struct, rename="camel"):
    """The types that clients rely on."""

    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[dict[str, Any]] | None = None
    finalizers: list[str] | None = None


class _Object(msgspec.Struct):
    metadata: _Metadata
    spec: dict[str, Any] | None = None
    status: dict[str, Any] | None = None


class _ListMetadata(msgspec.Struct, rename="camel"):
    resource_version: str = ""


class _List(msgspec.Struct):
    metadata: _ListMetadata
    items: list[dict[str, Any]] | None = None


class WatchEvent(msgspec.Struct, frozen=True):
    type: str
    object: dict[str, Any]


def watch_event(line: bytes) -> WatchEvent:
    """One line of a watch; UnusableAnswerError where it is something else."""
    return decoded_as(line, WatchEvent, "a line of the watch")


def get(resource: ResourcePath, name: str, namespace: str = "") -> Request:
    return Request("GET", resource.path(namespace, name), kind=resource.kind)


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
    kind = resource.kind and f"{resource.kind}List"
    return Request("GET", with_query(resource.path(namespace), query), kind=kind)


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
    kind = resource.kind if subresource in _OWN_KIND else ""
    return Request("POST", path, msgspec.json.encode(document), JSON, kind=kind)


def replace(resource: ResourcePath, document: Mapping[str, Any], name: str, namespace: str = "") -> Request:
    path = resource.path(namespace, name)
    return Request("PUT", path, msgspec.json.encode(document), JSON, kind=resource.kind)


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
    kind = resource.kind if subresource in _OWN_KIND else ""
    return Request("PATCH", path, msgspec.json.encode(change), content_type, kind=kind)


def delete(
    resource: ResourcePath,
    name: str,
    namespace: str = "",
    *,
    grace_s: int | None = None,
    uid: str = "",
    propagation: Literal["", "Background", "Foreground", "Orphan"] = "",
) -> Request:
    """With `uid` only this object is deleted, never a newer one with the same name."""
    options: dict[str, Any] = {"kind": "DeleteOptions", "apiVersion": "v1"}
    if grace_s is not None:
        options["gracePeriodSeconds"] = grace_s
    if uid:
        options["preconditions"] = {"uid": uid}
    if propagation:
        options["propagationPolicy"] = propagation
    return Request("DELETE", resource.path(namespace, name), msgspec.json.encode(options), JSON)


def document(answer: ApiResponse, kind: str = "") -> dict[str, Any]:
    """The object in the response; ApiError where its status is an error, UnusableAnswerError for any other answer.

    `kind`: of the object, with the types of the fields that all objects have.
    """
    if answer.status >= 400:
        raise api_error(answer)
    decoded: dict[str, Any] = decoded_as(answer.body, dict[str, Any], f"the response ({answer.status})")
    if kind:
        if decoded.get("kind", kind) != kind:
            raise UnusableAnswerError(f"the response is a {decoded['kind']}, not a {kind}: {_beginning(answer.body)}")
        try:
            msgspec.convert(decoded, _List if kind.endswith("List") else _Object)
        except msgspec.ValidationError as error:
            raise UnusableAnswerError(f"the response is not a {kind} ({error}): {_beginning(answer.body)}") from None
    return decoded


def api_error(answer: ApiResponse) -> ApiError:
    try:
        status = msgspec.json.decode(answer.body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        status = None
    if isinstance(status, dict) and status.get("kind") == "Status":
        return ApiError(answer.status, str(status.get("reason", "")), str(status.get("message", "")))
    text = answer.body[:200].decode("utf-8", "replace").strip()
    return ApiError(answer.status, "", text or "the server gave no reason")


def _query(**terms: Any) -> list[tuple[str, str]]:
    return [(key, str(value)) for key, value in terms.items() if value != ""]


def with_query(path: str, query: list[tuple[str, str]]) -> str:
    return f"{path}?{urlencode(query)}" if query else path
