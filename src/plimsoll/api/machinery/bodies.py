"""Request bodies → documents: JSON, YAML or protobuf, checked against the schema of the kind (05 B2, B4)."""

from __future__ import annotations

from plimsoll.api.machinery.call import ApiCall
from plimsoll.api.machinery.negotiate import JSON, PROTOBUF, YAML, media_type
from plimsoll.api.machinery.request_info import WriteOptions
from plimsoll.api.machinery.status import bad_request, unsupported_body
from plimsoll.codec.protobuf.kube import ProtobufError, from_protobuf
from plimsoll.codec.schema.decode import Decoded, DecodeError, decode, decode_document, strict_error
from plimsoll.codec.schema.schema import SchemaKind, schema
from plimsoll.codec.yaml.reader import YamlError, read
from plimsoll.rules.model.json_object import JsonObject


def read_object(call: ApiCall, kind: SchemaKind, options: WriteOptions | None) -> JsonObject:
    """The object in the body of a POST or PUT; findings that do not refuse it are added to `call.warnings`."""
    try:
        decoded = _decoded(call.body, media_type(call.content_type), kind)
    except DecodeError as error:
        raise bad_request(error.message) from None
    if decoded.problems and options is not None:
        if options.field_validation == "Strict":
            raise bad_request(strict_error(kind, decoded.problems))
        if options.field_validation == "Warn":
            call.warnings += decoded.problems
    return decoded.document


def _decoded(body: bytes, type_: str, kind: SchemaKind) -> Decoded:
    if type_ in (JSON, ""):
        return decode(kind, body)
    if type_ == PROTOBUF:
        try:
            return decode_document(kind, from_protobuf(body))
        except ProtobufError as error:
            raise bad_request(error.message) from None
    if type_ == YAML:
        return _from_yaml(body, kind)
    raise unsupported_body()


def _from_yaml(body: bytes, kind: SchemaKind) -> Decoded:
    for document in read(body):
        if isinstance(document, YamlError):
            shown = f"error converting YAML to JSON: yaml: {document}"
            where = f"the object provided is unrecognized (must be of type {kind.name}): couldn't get version/kind"
            raise DecodeError(f"{where}; {shown}", shown)
        decoded = decode_document(kind, document.value)
        doubled = tuple(f'line {line}: key "{path[-1]}" already set in map' for path, line in document.duplicates)
        return Decoded(decoded.document, decoded.problems + doubled)
    return decode(kind, b"null")


def read_delete_options(call: ApiCall) -> JsonObject | None:
    """The DeleteOptions of a DELETE, None without a body; unknown fields are ignored."""
    return read_object(call, schema("v1", "DeleteOptions"), None) if call.body else None
