"""Kubernetes' Status: the response that is not an object, and one function for each kind of error (05 B6).

Handlers raise `StatusError`; the app encodes it. A rule's findings (`FieldError`) become causes here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from plimsoll.api.machinery.encoding import line
from plimsoll.api.machinery.kinds import ApiResource
from plimsoll.errors import FieldError, StructuredError
from plimsoll.rules.model.json_object import JsonObject

CONFLICT_TEXT = "the object has been modified; please apply your changes to the latest version and try again"
MAX_BODY_BYTES = 3 * 1024 * 1024


class StatusError(StructuredError):
    """An error with everything that its Status contains."""

    code: int
    reason: str
    message: str
    details: JsonObject | None = None
    retry_after_s: int = 0
    continue_token: str = ""

    def status(self) -> JsonObject:
        body: JsonObject = {
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


def success(code: int = 0, details: JsonObject | None = None) -> bytes:
    """The response to a request that returns no object: binding, eviction, deletion of a plain kind."""
    body: JsonObject = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if details is not None:
        body["details"] = details
    if code:
        body["code"] = code
    return line(body)


# --- the kinds of errors ---


def bad_request(message: str) -> StatusError:
    return StatusError(400, "BadRequest", message)


def unauthorized() -> StatusError:
    return StatusError(401, "Unauthorized", "Unauthorized")


def forbidden(resource: ApiResource, name: str, why: str, causes: Sequence[Mapping[str, str]] = ()) -> StatusError:
    what = f'{resource.group_resource} "{name}"' if name else resource.group_resource
    return StatusError(403, "Forbidden", f"{what} is forbidden: {why}", _details(resource, name, causes))


def path_forbidden(user: str, verb: str, path: str) -> StatusError:
    return StatusError(403, "Forbidden", f'forbidden: User "{user}" cannot {verb} path "{path}"', {})


def not_found(resource: ApiResource, name: str) -> StatusError:
    return StatusError(404, "NotFound", f'{resource.group_resource} "{name}" not found', _details(resource, name))


def no_such_resource() -> StatusError:
    return StatusError(404, "NotFound", "the server could not find the requested resource", {})


def method_not_allowed() -> StatusError:
    return StatusError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {})


def not_acceptable(message: str) -> StatusError:
    return StatusError(406, "NotAcceptable", message, {})


def already_exists(resource: ApiResource, name: str, *, is_deleting: bool = False) -> StatusError:
    message = f'{resource.group_resource} "{name}" already exists'
    if is_deleting:
        message = f"object is being deleted: {message}"
    return StatusError(409, "AlreadyExists", message, _details(resource, name))


def conflict(resource: ApiResource, name: str, why: str = CONFLICT_TEXT, subresource: str = "") -> StatusError:
    what = f"{resource.plural}/{subresource}" if subresource else resource.plural
    shown = f"{what}.{resource.group}" if resource.group else what
    details = object_details(name, resource.group, what)
    return StatusError(409, "Conflict", f'Operation cannot be fulfilled on {shown} "{name}": {why}', details)


def precondition_failed(resource: ApiResource, name: str, why: str) -> StatusError:
    """Preconditions name the Kind where other conflicts name the resource (05 B6 Deletion)."""
    message = f'Operation cannot be fulfilled on {resource.group_kind} "{name}": {why}'
    return StatusError(409, "Conflict", message, object_details(name, resource.group, resource.kind))


def expired(message: str, continue_token: str = "") -> StatusError:
    return StatusError(410, "Expired", message, continue_token=continue_token)


def too_large_body(limit: int = MAX_BODY_BYTES) -> StatusError:
    return StatusError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {limit}", {})


def too_many_values(limit: int) -> StatusError:
    return StatusError(
        413, "RequestEntityTooLarge", f"Request entity too large: more than {limit} objects and lists", {}
    )


def too_large_document() -> StatusError:
    message = "Request entity too large: the object needs more memory than one request may use"
    return StatusError(413, "RequestEntityTooLarge", message, {})


def slow_body(seconds: float) -> StatusError:
    return StatusError(408, "Timeout", f"the body of the request was not complete after {seconds:g} s", {})


def unsupported_body() -> StatusError:
    message = (
        "the body of the request was in an unknown format - accepted media types include: "
        "application/json, application/yaml, application/vnd.kubernetes.protobuf"
    )
    return StatusError(415, "UnsupportedMediaType", message, {})


def unsupported_patch(*accepted: str) -> StatusError:
    """With `accepted`: a kind that does not have every type."""
    if not accepted:
        return StatusError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})
    listed = ", ".join(accepted)
    text = f"the body of the request was in an unknown format - accepted media types include: {listed}"
    return StatusError(415, "UnsupportedMediaType", text, {})


def invalid(group: str, kind: str, name: str, errors: Iterable[FieldError]) -> StatusError:
    """422 from a rule's findings. The message has each finding once; the causes have every one."""
    findings = list(errors)
    messages = list(dict.fromkeys(map(str, findings)))
    text = messages[0] if len(messages) == 1 else f"[{', '.join(messages)}]"
    shown = f"{kind}.{group}" if group else kind
    details = {**object_details(name, group, kind), "causes": [_cause(finding) for finding in findings]}
    return StatusError(422, "Invalid", f'{shown} "{name}" is invalid: {text}', details)


def invalid_object(resource: ApiResource, name: str, errors: Iterable[FieldError]) -> StatusError:
    return invalid(resource.group, resource.kind, name, errors)


def invalid_options(kind: str, errors: Iterable[FieldError]) -> StatusError:
    return invalid("meta.k8s.io", kind, "", errors)


def rejected_patch() -> StatusError:
    return StatusError(422, "Invalid", "the server rejected our request due to an error in our request", {})


def too_many_requests(message: str, causes: Sequence[Mapping[str, str]] = (), retry_after_s: int = 0) -> StatusError:
    details: JsonObject = {}
    if causes:
        details["causes"] = list(causes)
    if retry_after_s:
        details["retryAfterSeconds"] = retry_after_s
    return StatusError(429, "TooManyRequests", message, details, retry_after_s=retry_after_s)


def internal(message: str) -> StatusError:
    """A 500 that Kubernetes returns deliberately: neither reason nor details."""
    return StatusError(500, "", message)


def internal_error(message: str) -> StatusError:
    """An error of the server: the log has the rest."""
    text = f"Internal error occurred: {message}"
    return StatusError(500, "InternalError", text, {"causes": [{"message": message}]})


def unavailable(message: str, retry_after_s: int = 1) -> StatusError:
    return StatusError(503, "ServiceUnavailable", message, {}, retry_after_s=retry_after_s)


def timed_out(message: str) -> StatusError:
    """Not known whether it was done."""
    return StatusError(504, "Timeout", f"Timeout: {message}", {})


def too_large_version(requested: int, current: int) -> StatusError:
    details: JsonObject = {
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    }
    message = f"Timeout: Too large resource version: {requested}, current: {current}"
    return StatusError(504, "Timeout", message, details, retry_after_s=1)


def _details(resource: ApiResource, name: str, causes: Sequence[Mapping[str, str]] = ()) -> JsonObject:
    details = object_details(name, resource.group, resource.plural)
    return {**details, "causes": list(causes)} if causes else details


def object_details(name: str, group: str, kind: str) -> JsonObject:
    return {key: value for key, value in (("name", name), ("group", group), ("kind", kind)) if value}


def _cause(finding: FieldError) -> JsonObject:
    cause: JsonObject = {"reason": finding.type, "message": finding.message()}
    if finding.field:
        cause["field"] = finding.field
    return cause
