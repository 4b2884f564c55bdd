"""Request bodies → documents: JSON, YAML or protobuf, checked against the schema of the kind (05 B2, B4).

A large body is read in the cluster's worker, so that other requests are answered meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from plimsoll.api.machinery.alike import decoded_alike
from plimsoll.api.machinery.call import ApiCall
from plimsoll.api.machinery.cluster import Cluster
from plimsoll.api.machinery.negotiate import JSON, PROTOBUF, YAML, media_type
from plimsoll.api.machinery.request_info import WriteOptions
from plimsoll.api.machinery.status import bad_request, too_many_values, unsupported_body
from plimsoll.codec.protobuf.kube import ProtobufError, from_protobuf
from plimsoll.codec.schema.decode import Decoded, DecodeError, decode, decode_document, strict_error
from plimsoll.codec.schema.releases import newer_fields, without_newer
from plimsoll.codec.schema.schema import SchemaKind, schema
from plimsoll.codec.yaml.reader import YamlError
from plimsoll.codec.yaml.reader import read_body as read_yaml
from plimsoll.rules.model.json_object import JsonObject

# Of an object that is read and written at once: its defaults, owners and rules take a millisecond for each of them, and
# more if it has many containers. YAML is some fifty times as slow as JSON to read, and with aliases a small text may
# become a large document.
AT_ONCE_BYTES, YAML_AT_ONCE_BYTES = 16 * 1024, 4 * 1024
MAX_CONTAINERS = 200_000  # objects and lists: creating them is one step of the JSON decoder, which nothing interrupts
_Read = TypeVar("_Read")


async def read_body(cluster: Cluster, call: ApiCall, read: Callable[[], _Read], *, is_yaml: bool) -> _Read:
    """What `read` makes of the body, in the worker if it is large. `read` changes nothing but the call's warnings."""
    if len(call.body) > AT_ONCE_BYTES and call.body.count(b"[") + call.body.count(b"{") > MAX_CONTAINERS:
        raise too_many_values(MAX_CONTAINERS)
    if is_yaml and (len(call.body) > YAML_AT_ONCE_BYTES or b"*" in call.body):
        return await cluster.worker.run(call.user.name, read)
    return await off_loop(cluster, call, len(call.body), read)


async def off_loop(
    cluster: Cluster, call: ApiCall, size: int, work: Callable[[], _Read], *, evaluates: bool = False
) -> _Read:
    """The result of work on a document of this size, in a worker if it is large or evaluates expressions."""
    if size <= AT_ONCE_BYTES and not evaluates:
        return work()
    return await (cluster.expressions if evaluates else cluster.worker).run(call.user.name, work)


async def read_object(cluster: Cluster, call: ApiCall, kind: SchemaKind, options: WriteOptions | None) -> JsonObject:
    """The object in the body of a POST or PUT; findings that do not refuse it are added to `call.warnings`.

    Do not change it: that of another request may share its parts.
    """
    is_yaml = media_type(call.content_type) == YAML
    return await read_body(cluster, call, lambda: _object(cluster, call, kind, options), is_yaml=is_yaml)


def _object(cluster: Cluster, call: ApiCall, kind: SchemaKind, options: WriteOptions | None) -> JsonObject:
    try:
        decoded = _decoded(call, kind)
    except DecodeError as error:
        raise bad_request(error.message) from None
    decoded = in_release(cluster, kind, decoded)
    if decoded.problems and options is not None:
        if options.field_validation == "Strict":
            raise bad_request(strict_error(kind, decoded.problems))
        if options.field_validation == "Warn":
            call.warnings += decoded.problems
    return decoded.document


def in_release(cluster: Cluster, kind: SchemaKind, decoded: Decoded) -> Decoded:
    """Without the fields that the server's release does not have."""
    newer = newer_fields(kind, cluster.release)
    if not newer:
        return decoded
    document, problems = without_newer(decoded.document, newer)
    return Decoded(document, decoded.problems + problems) if problems else decoded


def _decoded(call: ApiCall, kind: SchemaKind) -> Decoded:
    body, type_ = call.body, media_type(call.content_type)
    if type_ in (JSON, ""):
        is_often_alike = call.info.verb == "create" and kind.name == "Pod" and len(body) <= AT_ONCE_BYTES
        return decoded_alike(kind, body) if is_often_alike else decode(kind, body)
    if type_ == PROTOBUF:
        try:
            return decode_document(kind, from_protobuf(body))
        except ProtobufError as error:
            raise bad_request(error.message) from None
    if type_ == YAML:
        return _from_yaml(body, kind)
    raise unsupported_body()


def _from_yaml(body: bytes, kind: SchemaKind) -> Decoded:
    document = read_yaml(body)
    if document is None:
        return decode(kind, b"null")
    if isinstance(document, YamlError):
        shown = f"error converting YAML to JSON: yaml: {document}"
        where = f"the object provided is unrecognized (must be of type {kind.name}): couldn't get version/kind"
        raise DecodeError(f"{where}; {shown}", shown)
    decoded = decode_document(kind, document.value)
    doubled = tuple(f'line {line}: key "{path[-1]}" already set in map' for path, line in document.duplicates)
    return Decoded(decoded.document, decoded.problems + doubled)


async def read_delete_options(cluster: Cluster, call: ApiCall) -> JsonObject | None:
    """The DeleteOptions of a DELETE, None without a body; unknown fields are ignored."""
    return await read_object(cluster, call, schema("v1", "DeleteOptions"), None) if call.body else None
