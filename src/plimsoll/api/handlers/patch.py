"""PATCH: four patch types (05 B6 Patch types), then the same steps as PUT."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plimsoll.api.handlers.create import create_object
from plimsoll.api.handlers.update import write
from plimsoll.api.machinery.bodies import in_release, off_loop, read_body
from plimsoll.api.machinery.call import ApiCall, Response
from plimsoll.api.machinery.cluster import Cluster, key, kind_of
from plimsoll.api.machinery.encoding import encoded
from plimsoll.api.machinery.kinds import ApiResource
from plimsoll.api.machinery.metadata import check_place
from plimsoll.api.machinery.negotiate import media_type
from plimsoll.api.machinery.request_info import WriteOptions, write_options
from plimsoll.api.machinery.status import (
    StatusError,
    bad_request,
    conflict,
    internal,
    invalid,
    invalid_options,
    not_found,
    rejected_patch,
    unsupported_patch,
)
from plimsoll.codec.golang.fmt import go_printed
from plimsoll.codec.patch.json_patch import (
    MAX_COPIED_BYTES,
    PatchError,
    apply_json_patch,
    apply_merge_patch,
    patch_problems,
    read_patch,
)
from plimsoll.codec.patch.server_side_apply import ApplyConflictError, ApplyError, apply_server_side
from plimsoll.codec.patch.strategic import apply_strategic
from plimsoll.codec.schema.decode import MAX_DEPTH, DecodeError, decode_document
from plimsoll.codec.schema.releases import newer_fields
from plimsoll.codec.schema.schema import SchemaKind
from plimsoll.codec.yaml.json_stream import is_deeper
from plimsoll.codec.yaml.reader import YamlError
from plimsoll.codec.yaml.reader import read_body as read_yaml
from plimsoll.errors import FieldError
from plimsoll.rules.model.json_object import JsonObject

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
_JSON_NAMES = {list: "array", str: "string", bool: "bool"}


async def patch(cluster: Cluster, call: ApiCall) -> Response:
    info = call.info
    options = write_options(info, call.user_agent)
    if _patch_type(call) == APPLY_PATCH:
        return await _apply(cluster, call, options)
    patched = await patcher(cluster, call, options, kind_of(info.resource))

    def mutate(live: JsonObject) -> tuple[JsonObject, bool]:
        document = patched(live)
        check_place(document.get("metadata") or {}, info.namespace, info.name, namespaced=info.resource.namespaced)
        return document, False

    return await write(cluster, call, options, mutate, growth_bytes=growth_bytes(call))


def growth_bytes(call: ApiCall) -> int:
    """How much a patch may add to an object beyond its own size: only `copy` does, perhaps written with escapes."""
    may_copy = b"copy" in call.body or b"\\u" in call.body
    return MAX_COPIED_BYTES if may_copy and media_type(call.content_type) == JSON_PATCH else 0


def _patch_type(call: ApiCall) -> str:
    type_ = media_type(call.content_type)
    if type_ not in (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH):
        raise unsupported_patch()
    if type_ == STRATEGIC_PATCH and call.info.resource.custom is not None and call.info.subresource != "scale":
        raise unsupported_patch(JSON_PATCH, MERGE_PATCH, APPLY_PATCH)
    return type_


async def patcher(
    cluster: Cluster, call: ApiCall, options: WriteOptions, kind: SchemaKind
) -> Callable[[JsonObject], JsonObject]:
    """The patch in the body as a function from one whole object to the next; both raise StatusError."""
    type_ = _patch_type(call)
    if options.force is not None:
        reason = "may not be specified for non-apply patch"
        raise invalid_options("PatchOptions", [FieldError("FieldValueForbidden", "force", reason)])

    def read() -> tuple[Any, tuple[str, ...]]:
        is_list = type_ == JSON_PATCH
        return read_patch(call.body, is_list=is_list), patch_problems(call.body, is_list=is_list)

    try:
        body, doubled = await read_body(cluster, call, read, is_yaml=False)
    except PatchError as error:
        raise _refusal(error) from None

    def patched_object(live: JsonObject) -> JsonObject:
        try:
            if type_ == JSON_PATCH:
                patched = apply_json_patch(live, body)
            elif type_ == MERGE_PATCH:
                patched = apply_merge_patch(live, body)
            else:
                patched = apply_strategic(kind, live, body)
        except PatchError as error:
            raise _refusal(error) from None

        def shown() -> str:
            return go_printed(body) if type_ == STRATEGIC_PATCH else encoded(patched).decode()

        return _decoded(cluster, call, options, kind, patched, shown, doubled)

    return patched_object


def _refusal(error: PatchError) -> StatusError:
    match error.problem:
        case "rejected":
            return rejected_patch()
        case "too-large":
            return StatusError(413, "RequestEntityTooLarge", error.message, {})
        case "internal":
            return internal(error.message)
        case _:
            return bad_request(error.message)


def _decoded(
    cluster: Cluster,
    call: ApiCall,
    options: WriteOptions,
    kind: SchemaKind,
    patched: Any,
    shown: Callable[[], str],
    doubled: tuple[str, ...] = (),
) -> JsonObject:
    """The patched object by its schema; a patch whose result does not fit it is refused (422)."""
    try:
        result = in_release(cluster, kind, decode_document(kind, patched))
    except DecodeError as error:
        raise _unfit(shown(), error.detail) from None
    problems = doubled + result.problems
    if problems:
        if options.field_validation == "Strict":
            raise _unfit(shown(), f"strict decoding error: {', '.join(problems)}")
        if options.field_validation == "Warn":
            call.warnings += problems
    return result.document


def _unfit(shown: str, detail: str) -> StatusError:
    finding = FieldError("FieldValueInvalid", "patch", detail, shown)
    return invalid("", "", "", [finding])


# --- server-side apply ---


async def _apply(cluster: Cluster, call: ApiCall, options: WriteOptions) -> Response:
    info, resource = call.info, call.info.resource
    manager = info.option("fieldManager")
    if not manager:
        finding = FieldError("FieldValueRequired", "fieldManager", "is required for apply patch")
        raise invalid_options("PatchOptions", [finding])
    applied = await read_body(cluster, call, lambda: _applied_document(call, options), is_yaml=True)
    _check_applied(resource, applied)
    metadata = applied.get("metadata") or {}
    check_place(metadata, info.namespace, info.name, namespaced=resource.namespaced)
    named = {**applied, "metadata": {**metadata, "name": info.name}}
    if cluster.store.get(key(resource, info.namespace, info.name)) is None:
        if info.subresource:
            raise not_found(resource, info.name)
        return await _create(cluster, call, options, named, manager)

    def mutate(live: JsonObject) -> tuple[JsonObject, bool]:
        sent_version = metadata.get("resourceVersion")
        if sent_version and sent_version != live["metadata"]["resourceVersion"]:
            raise conflict(resource, info.name)
        return _merged(cluster, call, options, live, named, manager), True

    return await write(cluster, call, options, mutate)


async def _create(
    cluster: Cluster, call: ApiCall, options: WriteOptions, applied: JsonObject, manager: str
) -> Response:
    metadata = {name: value for name, value in applied["metadata"].items() if name != "resourceVersion"}
    if metadata.pop("uid", None):
        why = "uid mismatch: the provided object specified uid, and no object was found to match it"
        raise conflict(call.info.resource, call.info.name, why)
    named = {**applied, "metadata": metadata}
    merged = await off_loop(
        cluster, call, len(call.body), lambda: _merged(cluster, call, options, None, named, manager)
    )
    return await create_object(cluster, call, options, merged, tracked=True)


def _merged(
    cluster: Cluster, call: ApiCall, options: WriteOptions, live: JsonObject | None, applied: JsonObject, manager: str
) -> JsonObject:
    kind = kind_of(call.info.resource)
    try:
        merged = apply_server_side(
            kind,
            live,
            applied,
            manager,
            force=bool(options.force),
            subresource=call.info.subresource,
            now=cluster.now(),
            newer=newer_fields(kind, cluster.release),
        )
    except ApplyConflictError as error:
        causes = [
            {"reason": "FieldManagerConflict", "message": item.message, "field": item.field} for item in error.conflicts
        ]
        raise StatusError(409, "Conflict", str(error), {"causes": causes}) from None
    except ApplyError as error:
        raise internal(error.message) from None
    return _decoded(cluster, call, options, kind, merged, lambda: encoded(merged).decode())


def _applied_document(call: ApiCall, options: WriteOptions) -> JsonObject:
    """YAML, or JSON with the media type of YAML, as kubectl sends it."""
    document = read_yaml(call.body)
    if document is None:
        return {}
    if isinstance(document, YamlError):
        raise bad_request(f"error decoding YAML: error converting YAML to JSON: yaml: {document}")
    if document.duplicates:
        duplicates = [f'line {line}: key "{path[-1]}" already set in map' for path, line in document.duplicates]
        if options.field_validation == "Strict":
            lines = "\n  ".join(duplicates)
            raise bad_request(
                f"error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  {lines}"
            )
        if options.field_validation == "Warn":
            call.warnings += duplicates
    return _applied_object(document.value)


def _applied_object(value: Any) -> JsonObject:
    if value is None:
        return {}
    if not isinstance(value, dict):
        what = _JSON_NAMES.get(type(value), "number")
        problem = f"json: cannot unmarshal {what} into Go value of type map[string]interface {{}}"
    elif is_deeper(value, MAX_DEPTH):
        problem = "exceeded max depth"
    else:
        return value
    raise bad_request(f"error decoding YAML: error unmarshaling JSON: while decoding JSON: {problem}")


def _check_applied(resource: ApiResource, applied: JsonObject) -> None:
    api_version, kind = applied.get("apiVersion") or "", applied.get("kind") or ""
    if kind != resource.kind or api_version != resource.group_version:
        shown = api_version if "/" in str(api_version) else f"/{api_version}"
        raise bad_request(f"invalid object type: {shown}, Kind={kind}")
    metadata = applied.get("metadata")
    if metadata is not None and not isinstance(metadata, dict):
        raise bad_request("metadata must be an object")
    if metadata and metadata.get("managedFields") is not None:
        raise bad_request("metadata.managedFields must be nil")
