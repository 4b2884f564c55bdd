"""Custom objects against the schema of their kind, with the messages of a Kubernetes API server.

Rules in the Common Expression Language are evaluated by `codec.cel.rules`. An update may keep what is wrong already: a
value that it does not change is not judged again (ratcheting).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from plimsoll.errors import ErrorType, FieldError
from plimsoll.rules.admission.custom_resources.extensions import EMBEDDED, INT_OR_STRING
from plimsoll.rules.admission.custom_resources.formats import FORMATS
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.re2.matcher import RegexBudgetError, compiled

_OTHERS = ("apiVersion", "kind", "metadata")
_ABSENT: Any = object()  # no old value belongs to the new one
_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}


def custom_errors(schema: JsonObject, document: JsonObject, old: JsonObject | None = None) -> list[FieldError]:
    """Of a whole object: its metadata, apiVersion and kind are checked elsewhere. `old` is its last version."""
    own = {name: value for name, value in document.items() if name not in _OTHERS}
    inner = schema.get("properties") or {}
    rest = {name: each for name, each in inner.items() if name not in _OTHERS}
    required = [name for name in schema.get("required") or () if name not in _OTHERS]
    before = _ABSENT if old is None else {name: value for name, value in old.items() if name not in _OTHERS}
    return list(_errors({**schema, "properties": rest, "required": required}, own, "", before))


def value_errors(schema: JsonObject, value: Any) -> list[FieldError]:
    """Of any value, with paths from there."""
    return list(_errors(schema, value, ""))


def _errors(schema: JsonObject, value: Any, path: str, old: Any = _ABSENT) -> Iterator[FieldError]:
    if value is None and schema.get("nullable"):
        return
    if old is not _ABSENT and _is_equal(value, old):
        return
    kinds = _kinds(schema)
    if kinds and not any(_is_type(kind, value) for kind in kinds):
        shown = json_type(value)
        reason = f'{path} in body must be of type {",".join(kinds)}: "{shown}"'
        yield FieldError("FieldValueTypeInvalid", path, reason, shown)
        return
    if "enum" in schema and not any(_is_equal(value, allowed) for allowed in schema["enum"]):
        values = [each if isinstance(each, str) else _json(each) for each in schema["enum"]]
        listed = ", ".join(f'"{each}"' for each in values)
        yield _finding("FieldValueNotSupported", path, value, f"supported values: {listed}")
    if isinstance(value, str):
        yield from _text_errors(schema, value, path)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield from _number_errors(schema, value, path)
    elif isinstance(value, list):
        yield from _list_errors(schema, value, path, old)
    elif isinstance(value, dict):
        yield from _object_errors(schema, value, path, old)
    yield from _combined_errors(schema, value, path)


def _kinds(schema: JsonObject) -> tuple[str, ...]:
    if schema.get(INT_OR_STRING):
        return ("integer", "string")
    kind = schema.get("type")
    return (kind,) if kind else ()


def _is_type(kind: str, value: Any) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES[kind])


def json_type(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    for kind in ("object", "array", "string", "integer", "number"):
        if isinstance(value, _TYPES[kind]):
            return kind
    raise TypeError(type(value))


def _is_equal(left: Any, right: Any) -> bool:
    return isinstance(left, bool) == isinstance(right, bool) and bool(left == right)


def _finding(type_: ErrorType, path: str, value: Any, reason: str) -> FieldError:
    """Texts and integers are the error's value; anything else is shown as JSON."""
    if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
        return FieldError(type_, path, reason, value)
    return FieldError(type_, path, f"{_json(value)}: {reason}" if reason else _json(value))


def _invalid(path: str, value: Any, reason: str) -> FieldError:
    return _finding("FieldValueInvalid", path, value, reason)


def _json(value: Any) -> str:
    return msgspec.json.encode(value, order="sorted").decode()


def _text_errors(schema: JsonObject, value: str, path: str) -> Iterator[FieldError]:
    longest, shortest, pattern = schema.get("maxLength"), schema.get("minLength"), schema.get("pattern")
    if longest is not None and len(value) > longest:
        yield FieldError("FieldValueTooLong", path, f"may not be more than {longest} bytes")
    if shortest is not None and len(value) < shortest:
        yield _invalid(path, value, f"{path} in body should be at least {shortest} chars long")
    try:
        if pattern and not compiled(pattern).search(value):
            yield _invalid(path, value, f"{path} in body should match '{pattern}'")
    except RegexBudgetError as error:
        yield _invalid(path, value[:64], str(error))
    check = FORMATS.get(schema.get("format") or "")
    if check is not None and not check(value):
        yield _invalid(path, value, f'{path} in body must be of type {schema["format"]}: "{value}"')


def _number_errors(schema: JsonObject, value: float, path: str) -> Iterator[FieldError]:
    most, least, step = schema.get("maximum"), schema.get("minimum"), schema.get("multipleOf")
    if most is not None:
        if schema.get("exclusiveMaximum") and value >= most:
            yield _invalid(path, value, f"{path} in body should be less than {most}")
        elif value > most:
            yield _invalid(path, value, f"{path} in body should be less than or equal to {most}")
    if least is not None:
        if schema.get("exclusiveMinimum") and value <= least:
            yield _invalid(path, value, f"{path} in body should be greater than {least}")
        elif value < least:
            yield _invalid(path, value, f"{path} in body should be greater than or equal to {least}")
    if step and not _is_multiple(value, step):
        yield _invalid(path, value, f"{path} in body should be a multiple of {step}")


def _is_multiple(value: float, step: float) -> bool:
    if isinstance(value, int) and isinstance(step, int):
        return value % step == 0
    try:
        return (value / step).is_integer()
    except OverflowError:
        return False


def _old_member(schema: JsonObject, old: Any) -> Callable[[Any], Any]:
    """Which old member of a list belongs to a new one: only in lists that are maps."""
    keys = schema.get("x-kubernetes-list-map-keys") or ()
    if schema.get("x-kubernetes-list-type") != "map" or not isinstance(old, list):
        return lambda member: _ABSENT

    def identity(member: Any) -> str:
        return _json([member.get(key) for key in keys]) if isinstance(member, dict) else ""

    known = {identity(each): each for each in old}
    return lambda member: known.get(identity(member), _ABSENT)


def _list_errors(schema: JsonObject, value: list[Any], path: str, old: Any) -> Iterator[FieldError]:
    most, least = schema.get("maxItems"), schema.get("minItems")
    if most is not None and len(value) > most:
        yield FieldError("FieldValueTooMany", path, f"must have at most {most} items", len(value))
    if least is not None and len(value) < least:
        yield _invalid(path, value, f"{path} in body should have at least {least} items")
    items = schema.get("items")
    if isinstance(items, dict):
        before = _old_member(schema, old)
        for index, member in enumerate(value):
            yield from _errors(items, member, f"{path}[{index}]", before(member))
    yield from _duplicate_errors(schema, value, path)


def _duplicate_errors(schema: JsonObject, value: list[Any], path: str) -> Iterator[FieldError]:
    type_ = schema.get("x-kubernetes-list-type")
    if type_ not in ("map", "set"):
        return
    keys = schema.get("x-kubernetes-list-map-keys") or ()
    properties = (schema.get("items") or {}).get("properties") or {}
    seen: set[str] = set()
    for index, member in enumerate(value):
        identity = member
        if type_ == "map":
            if not isinstance(member, dict):
                continue
            identity = {key: member.get(key, (properties.get(key) or {}).get("default")) for key in keys}
        text = _json(identity)
        if text in seen:
            yield _finding("FieldValueDuplicate", f"{path}[{index}]", identity, "")
        seen.add(text)


def _object_errors(schema: JsonObject, value: JsonObject, path: str, old: Any) -> Iterator[FieldError]:
    before = old if isinstance(old, dict) else {}

    def at(name: str) -> str:
        return f"{path}.{name}" if path else name

    most, least = schema.get("maxProperties"), schema.get("minProperties")
    if most is not None and len(value) > most:
        yield FieldError("FieldValueTooMany", path, f"must have at most {most} items", len(value))
    if least is not None and len(value) < least:
        yield _invalid(path, value, f"{path} in body should have at least {least} properties")
    for name in schema.get("required") or ():
        if name not in value:
            yield FieldError("FieldValueRequired", at(name))
    properties, others = schema.get("properties") or {}, schema.get("additionalProperties")
    for name, member in value.items():
        if name in properties:
            yield from _errors(properties[name], member, at(name), before.get(name, _ABSENT))
        elif isinstance(others, dict):
            yield from _errors(others, member, at(name), before.get(name, _ABSENT))
    if schema.get(EMBEDDED):
        for name in ("apiVersion", "kind"):
            if not value.get(name):
                yield FieldError("FieldValueRequired", at(name), "must not be empty")
        if not isinstance(value.get("metadata") or {}, dict):
            yield FieldError("FieldValueTypeInvalid", at("metadata"), "must be an object", json_type(value["metadata"]))


def _combined_errors(schema: JsonObject, value: Any, path: str) -> Iterator[FieldError]:
    shown = path or "."
    for inner in schema.get("allOf") or ():
        yield from _errors(inner, value, path)
    if (some := schema.get("anyOf")) and all(_fails(inner, value, path) for inner in some):
        yield from _errors(some[-1], value, path)
        yield _invalid(path, value, f'"{shown}" must validate at least one schema (anyOf)')
    if one := schema.get("oneOf"):
        count = sum(not _fails(inner, value, path) for inner in one)
        if count != 1:
            found = "none valid" if not count else f"{count} valid alternatives"
            yield _invalid(path, value, f'"{shown}" must validate one and only one schema (oneOf). Found {found}')
    if (other := schema.get("not")) is not None and not _fails(other, value, path):
        yield _invalid(path, value, f'"{shown}" must not validate the schema (not)')


def _fails(schema: JsonObject, value: Any, path: str) -> bool:
    return next(_errors(schema, value, path), None) is not None
