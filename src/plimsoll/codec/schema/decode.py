"""JSON bytes or documents → typed, normalised documents, with Kubernetes' strict validation errors.

The result is what a Kubernetes API server would print: fields in Go's order, maps sorted, zeros dropped or printed as
in Go, quantities in canonical text, times in UTC. Unknown fields are kept, at the end of their object.

The fast decoder decodes into Structs (`codec.schema.fast_decode`); what it refuses is decoded by
`codec.schema.tolerant_decode`. Neither JSON reader reports duplicate keys, so keys are counted: a text with as many
`":` as its value has when written again cannot repeat a key. Only if the counts differ, a slower reader checks the
pairs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import msgspec

from plimsoll.codec.lean.lean import NumberText
from plimsoll.codec.schema import fast_decode
from plimsoll.codec.schema.custom import METADATA, CustomKind, metadata_fields, pruned
from plimsoll.codec.schema.schema import KINDS, SchemaKind
from plimsoll.codec.schema.tolerant_decode import DecodeStoppedError, Members, Walk, json_name, plain
from plimsoll.codec.yaml.json_stream import is_deeper, stream, without_surrogates
from plimsoll.codec.yaml.read_error import ReadError
from plimsoll.errors import InvalidQuantityError, PlimsollError, StructuredError
from plimsoll.rules.model.json_object import JsonObject

MAX_DEPTH = 100  # of a body; the deepest field of the schema is at 20
DELETE_OPTIONS = "DeleteOptions"
_BLANKS = b" \t\r\n"
_SHOWN_BYTES = 30
_TYPE_META = 'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
_SCHEME = "pkg/api/legacyscheme/scheme.go:30"  # of every Kubernetes API server


class DecodeError(StructuredError):
    """The body is not an object of its kind. `message` is the whole text of the 400 Status; `detail` only the decode
    error itself (what a 422 for a patch shows)."""

    message: str
    detail: str


class Decoded(msgspec.Struct, frozen=True):
    """`problems` are the strict errors in document order: `unknown field "spec.x"`, `duplicate field "spec.y"`."""

    document: JsonObject
    problems: tuple[str, ...] = ()


def decode(kind: SchemaKind, data: bytes) -> Decoded:
    """A JSON request body; raises DecodeError. Missing apiVersion and kind are set; `null` is an empty object."""
    if isinstance(kind, CustomKind):
        return _decode_custom(kind, data)
    try:
        document = fast_decode.to_document(fast_decode.from_json(kind, data))
        if not may_repeat_keys(data) and not _is_odd(document):
            return Decoded(_named(kind, document))
    except (msgspec.DecodeError, InvalidQuantityError, RecursionError, UnicodeDecodeError):
        pass
    try:
        value = read_pairs(data)
    except JsonError as error:
        raise _unrecognized(kind, data, str(error)) from None
    return _walked(kind, value, data)


def decode_document(kind: SchemaKind, document: JsonObject) -> Decoded:
    """The same for a document already in memory (after a patch, from YAML or protobuf); raises DecodeError."""
    if isinstance(kind, CustomKind):
        return _custom_document(kind, document, None, ())
    try:
        found = fast_decode.to_document(fast_decode.from_builtins(kind, document))
        if not _is_odd(found):
            return Decoded(_named(kind, found))
    except (msgspec.ValidationError, InvalidQuantityError, RecursionError):
        pass
    return _walked(kind, document, None)


def _decode_custom(kind: CustomKind, data: bytes) -> Decoded:
    try:
        value = read_pairs(data)
    except JsonError as error:
        raise _unrecognized(kind, data, str(error)) from None
    return _custom_document(kind, plain(value), data, tuple(_duplicates(value, "")))


def _duplicates(value: Any, path: str) -> Iterator[str]:
    """Of pairs: `duplicate field "spec.x"`, each once."""
    if isinstance(value, Members):
        seen: dict[str, int] = {}
        for name, member in value:
            here = f"{path}.{name}" if path else name
            seen[name] = seen.get(name, 0) + 1
            if seen[name] == 2:
                yield f'duplicate field "{here}"'
            yield from _duplicates(member, here)
    elif isinstance(value, list):
        for index, member in enumerate(value):
            yield from _duplicates(member, f"{path}[{index}]")


def _custom_document(kind: CustomKind, value: Any, data: bytes | None, doubled: tuple[str, ...]) -> Decoded:
    value = {} if value is None else value
    if data is None and is_deeper(value, MAX_DEPTH):
        raise _unhandled(kind, kind.name, kind.version, "exceeded max depth")
    _check_type_meta(kind, value, data)
    try:
        metadata = decode_document(METADATA, {"metadata": value.get("metadata")})
    except DecodeError as error:
        raise _unhandled(kind, kind.name, kind.version, error.detail) from None
    found, unknown = pruned(kind.schema, value)
    known = metadata_fields()
    own = {name: each for name, each in metadata.document["metadata"].items() if name in known}
    rest = {name: each for name, each in found.items() if name not in ("apiVersion", "kind", "metadata")}
    document = {"kind": kind.name, "apiVersion": kind.api_version, "metadata": own, **rest}
    problems = doubled + tuple(each for each in metadata.problems if each not in doubled)
    return Decoded(document, problems + tuple(f'unknown field "{path}"' for path in unknown))


def _is_odd(document: JsonObject) -> bool:
    """Owned fields are the only part without a schema: they may be too deep."""
    owners = document.get("metadata", {}).get("managedFields")
    if not owners:
        return False
    # There are no more levels than brackets, so most values need not be counted.
    text = msgspec.json.encode(owners).replace(b"{}", b"")
    return text.count(b"{") + text.count(b"[") >= MAX_DEPTH and is_deeper(owners, MAX_DEPTH)


def strict_error(kind: SchemaKind, problems: tuple[str, ...]) -> str:
    """The message of the 400 for a POST or PUT with these errors and fieldValidation=Strict."""
    return _unhandled(kind, kind.name, kind.version, strict_detail(problems)).message


def strict_detail(problems: tuple[str, ...]) -> str:
    return "strict decoding error: " + ", ".join(problems)


def may_repeat_keys(data: bytes) -> bool:
    """Whether JSON might have an object with the same key twice."""
    if b"\\u" in data:  # an escaped quote would count differently on both sides
        return True
    try:
        written = msgspec.json.encode(msgspec.json.decode(data))
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError, OverflowError):
        return True  # msgspec refuses some texts that Python's reader accepts, and writes no large integers
    return data.translate(None, _BLANKS).count(b'":') != written.translate(None, _BLANKS).count(b'":')


class JsonError(PlimsollError):
    """The text is not JSON; `str()` is Go's message."""


def read_pairs(data: bytes) -> Any:
    """The JSON value with objects as `Members` and numbers as their texts; raises JsonError."""
    text = data.decode("utf-8", "replace")
    try:
        value = json.loads(
            text,
            object_pairs_hook=Members,
            parse_int=NumberText,
            parse_float=_finite,
            parse_constant=_no_constant,
        )
    except (ValueError, RecursionError):
        raise JsonError(syntax_error(text)) from None
    if _is_deep(value):
        raise JsonError(syntax_error(text))
    return _sound(value) if "\\u" in text else value


def _is_deep(value: Any) -> bool:
    """`is_deeper` for pairs."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [
            member
            for part in level
            if isinstance(part, list)
            for member in ((each for _, each in part) if isinstance(part, Members) else part)
        ]
        if not level:
            return False
    return any(isinstance(part, list) for part in level)


def _finite(text: str) -> NumberText:
    if math.isinf(float(text)):
        raise ValueError(text)
    return NumberText(text)


def _no_constant(name: str) -> Any:
    raise ValueError(name)


def _sound(value: Any) -> Any:
    """The value without lone surrogates."""
    if isinstance(value, Members):
        return Members((without_surrogates(name), _sound(member)) for name, member in value)
    if isinstance(value, list):
        return [_sound(member) for member in value]
    return without_surrogates(value) if type(value) is str else value


def syntax_error(text: str) -> str:
    """The message of Go's json.Unmarshal for a text that is not JSON."""
    found = list(stream(text, MAX_DEPTH))
    first = found[0] if found else None
    if isinstance(first, ReadError):
        # Go's stream readers and its Unmarshal have different messages here.
        return first.message.replace("unexpected EOF", "unexpected end of JSON input")
    if first is None:
        return "unexpected end of JSON input"
    rest = text[first.end :].lstrip(" \t\r\n")
    return f"invalid character '{rest[:1]}' after top-level value" if rest else "exceeded max depth"


def _walked(kind: SchemaKind, value: Any, data: bytes | None) -> Decoded:
    value = {} if value is None else value
    if data is None and is_deeper(value, MAX_DEPTH):
        raise _unhandled(kind, kind.name, kind.version, "exceeded max depth")
    _check_type_meta(kind, value, data)
    walk = Walk()
    try:
        document = walk.document(kind, value)
        error = walk.error
    except DecodeStoppedError as stop:
        document, error = {}, str(stop)
    if error:
        raise _unhandled(kind, kind.name, kind.version, error)
    return Decoded(_named(kind, document), tuple(walk.problems))


def _check_type_meta(kind: SchemaKind, value: Any, data: bytes | None) -> None:
    """For a body without a kind."""
    if not isinstance(value, (dict, Members)):
        error = f"json: cannot unmarshal {json_name(value)} into Go value of type {_TYPE_META}"
        raise _unrecognized(kind, _shown(value) if data is None else data, error)
    members = dict(value)
    for field in ("apiVersion", "kind"):
        found = members.get(field)
        if found is not None and type(found) is not str:
            error = f"json: cannot unmarshal {json_name(found)} into Go struct field .{field} of type string"
            raise _unrecognized(kind, _shown(value) if data is None else data, error)
    _check_names(kind, members.get("apiVersion") or "", members.get("kind") or "")


def _shown(value: Any) -> bytes:
    return msgspec.json.encode(plain(value))


def _named(kind: SchemaKind, document: JsonObject) -> JsonObject:
    """The document with its kind and apiVersion first; raises DecodeError if it has others."""
    found_kind, found_version = document.get("kind", ""), document.get("apiVersion", "")
    if found_kind == kind.name and found_version == kind.api_version:
        return document
    _check_names(kind, found_version, found_kind)
    return {
        "kind": kind.name,
        "apiVersion": found_version or kind.api_version,
        **{name: value for name, value in document.items() if name not in ("kind", "apiVersion")},
    }


def _check_names(kind: SchemaKind, api_version: str, name: str) -> None:
    name = name or kind.name
    api_version = api_version or kind.api_version
    if (name, api_version) == (kind.name, kind.api_version) or name == kind.name == DELETE_OPTIONS:
        return
    other = next((each for each in KINDS if (each.name, each.api_version) == (name, api_version)), None)
    version = api_version.rpartition("/")[2]
    if other is None:
        raise _unhandled(
            kind, name, version, f'no kind "{name}" is registered for version "{api_version}" in scheme "{_SCHEME}"'
        )
    if other.name == kind.name:
        message = (
            f"the API version in the data ({api_version}) does not match the expected API version ({kind.api_version})"
        )
        raise DecodeError(message, message)
    internal = "core" if kind.table.startswith("events.") else kind.table.partition(".")[0]
    error = f"converting ({other.root.go}) to ({internal}.{kind.name}): unknown conversion"
    raise _unhandled(kind, name, version, error)


def _unhandled(kind: SchemaKind, name: str, version: str, detail: str) -> DecodeError:
    return DecodeError(f'{name} in version "{version}" cannot be handled as a {kind.name}: {detail}', detail)


def _unrecognized(kind: SchemaKind, data: bytes, error: str) -> DecodeError:
    detail = f"couldn't get version/kind; json parse error: {error}"
    return DecodeError(
        f"the object provided is unrecognized (must be of type {kind.name}): {detail} ({_summary(data)})", detail
    )


def _summary(data: bytes) -> str:
    """The start of a body, as Kubernetes shows it: objects as text, anything else in hexadecimal."""
    if not data:
        return "<empty>"
    start, more = data[:_SHOWN_BYTES], " ..." if len(data) > _SHOWN_BYTES else ""
    return (start.decode("utf-8", "replace") if data[:1] == b"{" else start.hex()) + more
