"""Kubernetes' Status: what every answer that is not an object looks like, and one function per kind of refusal (05 B6).

Handlers raise `ApiError`; the app turns it into bytes once. A rule's findings (`FieldError`) become causes here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from plimsoll.api.machinery.encoding import line
from plimsoll.api.machinery.kinds import Resource
from plimsoll.errors import FieldError, PlimsollError

Document = dict[str, Any]

CONFLICT_TEXT = "the object has been modified; please apply your changes to the latest version and try again"
MAX_BODY_BYTES = 3 * 1024 * 1024


class ApiError(PlimsollError):
    """A refusal with everything its Status says."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: Document | None = None,
        *,
        retry_after_s: int = 0,
        continue_token: str = "",
    ) -> None:
        super().__init__(code, reason, message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.retry_after_s = retry_after_s
        self.continue_token = continue_token

    def __str__(self) -> str:
        return self.message

    def status(self) -> Document:
        body: Document = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {"continue": self.continue_token} if self.continue_token else {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            body["reason"] = self.reason
        if self.details is not None:
            body["details"] = self.details
        body["code"] = self.code
        return body

    def body(self) -> bytes:
        return line(self.status())

    def headers(self) -> list[tuple[bytes, bytes]]:
        if self.retry_after_s:
            return [(b"retry-after", str(self.retry_after_s).encode())]
        return []


def success(code: int = 0, details: Document | None = None) -> bytes:
    """What a request answers that returns no object: binding, eviction, deletion of a plain kind."""
    body: Document = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if details is not None:
        body["details"] = details
    if code:
        body["code"] = code
    return line(body)


# --- the kinds of refusal ---


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)


def unauthorized() -> ApiError:
    return ApiError(401, "Unauthorized", "Unauthorized")


def forbidden(resource: Resource, name: str, why: str, causes: Sequence[Mapping[str, str]] = ()) -> ApiError:
    what = f'{resource.group_resource} "{name}"' if name else resource.group_resource
    return ApiError(403, "Forbidden", f"{what} is forbidden: {why}", _details(resource, name, causes))


def path_forbidden(user: str, verb: str, path: str) -> ApiError:
    return ApiError(403, "Forbidden", f'forbidden: User "{user}" cannot {verb} path "{path}"', {})


def not_found(resource: Resource, name: str) -> ApiError:
    return ApiError(404, "NotFound", f'{resource.group_resource} "{name}" not found', _details(resource, name))


def no_such_resource() -> ApiError:
    return ApiError(404, "NotFound", "the server could not find the requested resource", {})


def method_not_allowed() -> ApiError:
    return ApiError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {})


def not_acceptable(message: str) -> ApiError:
    return ApiError(406, "NotAcceptable", message, {})


def already_exists(resource: Resource, name: str, *, is_deleting: bool = False) -> ApiError:
    message = f'{resource.group_resource} "{name}" already exists'
    if is_deleting:
        message = f"object is being deleted: {message}"
    return ApiError(409, "AlreadyExists", message, _details(resource, name))


def conflict(resource: Resource, name: str, why: str = CONFLICT_TEXT, subresource: str = "") -> ApiError:
    what = f"{resource.plural}/{subresource}" if subresource else resource.plural
    shown = f"{what}.{resource.group}" if resource.group else what
    details = _details(resource, name)
    details["kind"] = what
    return ApiError(409, "Conflict", f'Operation cannot be fulfilled on {shown} "{name}": {why}', details)


def precondition_failed(resource: Resource, name: str, why: str) -> ApiError:
    """Preconditions name the Kind where other conflicts name the resource (05 B6 Deletion)."""
    details: Document = {"name": name}
    if resource.group:
        details["group"] = resource.group
    details["kind"] = resource.kind
    message = f'Operation cannot be fulfilled on {resource.group_kind} "{name}": {why}'
    return ApiError(409, "Conflict", message, details)


def expired(message: str, continue_token: str = "") -> ApiError:
    return ApiError(410, "Expired", message, continue_token=continue_token)


def too_large_body(limit: int = MAX_BODY_BYTES) -> ApiError:
    return ApiError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {limit}", {})


def unsupported_body() -> ApiError:
    message = (
        "the body of the request was in an unknown format - accepted media types include: "
        "application/json, application/yaml, application/vnd.kubernetes.protobuf"
    )
    return ApiError(415, "UnsupportedMediaType", message, {})


def unsupported_patch() -> ApiError:
    return ApiError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})


def invalid(group: str, kind: str, name: str, errors: Iterable[FieldError]) -> ApiError:
    """422 from a rule's findings. The sentence says each finding once; the causes keep every one."""
    findings = list(errors)
    told = list(dict.fromkeys(map(str, findings)))
    text = told[0] if len(told) == 1 else f"[{', '.join(told)}]"
    shown = f"{kind}.{group}" if group else kind
    details: Document = {}
    if name:
        details["name"] = name
    if group:
        details["group"] = group
    if kind:
        details["kind"] = kind
    details["causes"] = [_cause(finding) for finding in findings]
    return ApiError(422, "Invalid", f'{shown} "{name}" is invalid: {text}', details)


def invalid_object(resource: Resource, name: str, errors: Iterable[FieldError]) -> ApiError:
    return invalid(resource.group, resource.kind, name, errors)


def invalid_options(kind: str, errors: Iterable[FieldError]) -> ApiError:
    return invalid("meta.k8s.io", kind, "", errors)


def rejected_patch() -> ApiError:
    message = "the server rejected our request due to an error in our request"
    return ApiError(422, "Invalid", message, {})


def too_many_requests(message: str, causes: Sequence[Mapping[str, str]] = (), retry_after_s: int = 0) -> ApiError:
    details: Document = {}
    if causes:
        details["causes"] = list(causes)
    if retry_after_s:
        details["retryAfterSeconds"] = retry_after_s
    return ApiError(429, "TooManyRequests", message, details, retry_after_s=retry_after_s)


def internal(message: str) -> ApiError:
    """The 500s that Kubernetes answers on purpose: neither reason nor details."""
    return ApiError(500, "", message)


def internal_error(message: str) -> ApiError:
    """A fault of ours: the log has the rest."""
    text = f"Internal error occurred: {message}"
    return ApiError(500, "InternalError", text, {"causes": [{"message": message}]})


def unavailable(message: str, retry_after_s: int = 1) -> ApiError:
    return ApiError(503, "ServiceUnavailable", message, {}, retry_after_s=retry_after_s)


def too_large_version(wanted: int, current: int) -> ApiError:
    details: Document = {
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    }
    message = f"Timeout: Too large resource version: {wanted}, current: {current}"
    return ApiError(504, "Timeout", message, details, retry_after_s=1)


def _details(resource: Resource, name: str, causes: Sequence[Mapping[str, str]] = ()) -> Document:
    details: Document = {}
    if name:
        details["name"] = name
    if resource.group:
        details["group"] = resource.group
    details["kind"] = resource.plural
    if causes:
        details["causes"] = list(causes)
    return details


def _cause(finding: FieldError) -> Document:
    cause: Document = {"reason": finding.type, "message": finding.message()}
    if finding.field:
        cause["field"] = finding.field
    return cause
