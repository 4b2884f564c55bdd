"""Whether a schema of a CustomResourceDefinition is structural, and what in it has no effect here.

Every value has a type, except below `x-kubernetes-int-or-string` and where unknown fields are preserved. The logical
combinations (`allOf`, `anyOf`, `oneOf`, `not`) only restrict values: what they name is specified outside of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from plimsoll.errors import FieldError
from plimsoll.rules.admission.custom_resources.extensions import EMBEDDED, INT_OR_STRING, PRESERVE, RULES
from plimsoll.rules.admission.custom_resources.objects import json_type, value_errors
from plimsoll.rules.admission.custom_resources.openapi_schema import OF_OBJECTS, REFUSED, keyword_errors
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.re2.matcher import compiled
from plimsoll.rules.re2.syntax import RegexError

_SCHEMAS = {"items", "not"}
_SCHEMA_MAPS = {"properties"}
_SCHEMA_LISTS = {"allOf", "anyOf", "oneOf"}
_TEXTS = {"description", "format", "pattern", "title", "type", "x-kubernetes-list-type", "x-kubernetes-map-type"}
_FLAGS = {"exclusiveMaximum", "exclusiveMinimum", "nullable", "uniqueItems", PRESERVE, EMBEDDED, INT_OR_STRING}
_COUNTS = {"maxItems", "maxLength", "maxProperties", "minItems", "minLength", "minProperties"}
_NUMBERS = {"maximum", "minimum", "multipleOf"}
_TEXT_LISTS = {"required", "x-kubernetes-list-map-keys"}
_ANYTHING = {"additionalProperties", "default", "enum", "example", "externalDocs", RULES}
KNOWN = (_SCHEMAS | _SCHEMA_MAPS | _SCHEMA_LISTS | _TEXTS | _FLAGS | _COUNTS | _NUMBERS | _TEXT_LISTS | _ANYTHING) | {
    "$schema",
    *REFUSED,
}
_INTEGER_OR_STRING = [{"type": "integer"}, {"type": "string"}]  # also as the first of allOf
MAX_DEPTH = 80


def schema_errors(schema: Any, path: str) -> list[FieldError]:
    """Of `openAPIV3Schema` at this path."""
    if not isinstance(schema, dict):
        return [FieldError("FieldValueTypeInvalid", path, "must be an object", json_type(schema))]
    errors = list(_shape_errors(schema, path, 0))
    if errors:
        return errors
    errors = [*_structural_errors(schema, path)] or [*_default_errors(schema, path)]
    if schema.get("nullable"):
        errors.append(_forbidden(f"{path}.nullable", "nullable cannot be true at the root"))
    return errors + list(keyword_errors(schema, path, is_root=True))


def _structural_errors(schema: JsonObject, path: str) -> Iterator[FieldError]:
    yield from _errors(schema, path, "at the root")
    if schema.get("additionalProperties") is not None:
        yield _forbidden(f"{path}.additionalProperties", "must not be used at the root")
    if schema.get("type") and schema["type"] != "object":
        yield _invalid(f"{path}.type", schema["type"], "must be object at the root")
    yield from _object_errors(schema, path)
    yield from _metadata_errors(schema, path)
    yield from _incomplete(schema, schema, path, path)


def _shape_errors(schema: Any, path: str, depth: int) -> Iterator[FieldError]:
    """Values of the wrong JSON type, so that everything else may rely on the types."""

    def wrong(name: str, wanted: str, value: Any) -> FieldError:
        return FieldError("FieldValueTypeInvalid", f"{path}.{name}", f"must be {wanted}", json_type(value))

    if not isinstance(schema, dict):
        yield FieldError("FieldValueTypeInvalid", path, "must be an object", json_type(schema))
        return
    if depth > MAX_DEPTH:
        yield FieldError("FieldValueInvalid", path, f"must not be deeper than {MAX_DEPTH} schemas")
        return
    for name, value in schema.items():
        if name in _TEXTS and not isinstance(value, str):
            yield wrong(name, "a string", value)
        elif name in _FLAGS and not isinstance(value, bool):
            yield wrong(name, "a boolean", value)
        elif name in _COUNTS and (isinstance(value, bool) or not isinstance(value, int)):
            yield wrong(name, "an integer", value)
        elif name in _NUMBERS and (isinstance(value, bool) or not isinstance(value, (int, float))):
            yield wrong(name, "a number", value)
        elif name in _TEXT_LISTS and not _is_text_list(value):
            yield wrong(name, "a list of strings", value)
        elif name == "enum" and not isinstance(value, list):
            yield wrong(name, "a list", value)
        elif name in _SCHEMAS:
            yield from _shape_errors(value, f"{path}.{name}", depth + 1)
        elif name in _SCHEMA_MAPS:
            if not isinstance(value, dict):
                yield wrong(name, "an object", value)
                continue
            for key, inner in value.items():
                yield from _shape_errors(inner, f"{path}.{name}[{key}]", depth + 1)
        elif name in _SCHEMA_LISTS:
            if not isinstance(value, list):
                yield wrong(name, "a list", value)
                continue
            for index, inner in enumerate(value):
                yield from _shape_errors(inner, f"{path}.{name}[{index}]", depth + 1)
        elif name == "additionalProperties" and not isinstance(value, bool):
            yield from _shape_errors(value, f"{path}.{name}", depth + 1)


def _is_text_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _errors(schema: JsonObject, path: str, missing: str) -> Iterator[FieldError]:
    """`missing`: what to say if it has no type."""
    kind = schema.get("type")
    if schema.get(INT_OR_STRING):
        for name in (PRESERVE, EMBEDDED):
            if schema.get(name):
                yield _invalid(f"{path}.{name}", True, f"must be false if {INT_OR_STRING} is true")
    if schema.get(EMBEDDED):
        yield from _embedded_errors(schema, path)
    elif not kind and not schema.get(INT_OR_STRING) and not schema.get(PRESERVE):
        yield _required(f"{path}.type", f"must not be empty {missing}")
    items, others = schema.get("items"), schema.get("additionalProperties")
    if kind == "array" and not isinstance(items, dict):
        yield _required(f"{path}.items", "must be specified")
    for name, inner in (schema.get("properties") or {}).items():
        yield from _errors(inner, f"{path}.properties[{name}]", "for specified object fields")
    if isinstance(items, dict):
        yield from _errors(items, f"{path}.items", "for specified array items")
    if isinstance(others, dict):
        yield from _errors(others, f"{path}.additionalProperties", "for specified object fields")
    yield from _pattern_errors(schema, path)
    for name in ("allOf", "anyOf", "oneOf"):
        if name == "anyOf" and schema.get(name) == _INTEGER_OR_STRING:
            continue
        for index, inner in enumerate(schema.get(name) or ()):
            is_either = name == "allOf" and index == 0 and inner.get("anyOf") == _INTEGER_OR_STRING
            yield from _combination_errors(inner, f"{path}.{name}[{index}]", is_either=is_either)
    if isinstance(schema.get("not"), dict):
        yield from _combination_errors(schema["not"], f"{path}.not")


def _embedded_errors(schema: JsonObject, path: str) -> Iterator[FieldError]:
    kind, reason = schema.get("type") or "", f"must be object if {EMBEDDED} is true"
    if not kind:
        yield _required(f"{path}.type", reason)
    elif kind != "object":
        yield _invalid(f"{path}.type", kind, reason)
    if schema.get("additionalProperties") is not None:
        yield _forbidden(f"{path}.additionalProperties", f"must not be used if {EMBEDDED} is set")
    if not schema.get(PRESERVE) and not schema.get("properties"):
        yield _required(f"{path}.properties", f"must not be empty if {EMBEDDED} is true without {PRESERVE}")
    yield from _object_errors(schema, path)


def _object_errors(schema: JsonObject, path: str) -> Iterator[FieldError]:
    """The fields that every object has, at the root or embedded."""
    properties = schema.get("properties") or {}
    for name, wanted in (("kind", "string"), ("apiVersion", "string"), ("metadata", "object")):
        if name in properties and (kind := properties[name].get("type") or "") != wanted:
            yield _invalid(f"{path}.properties[{name}].type", kind, f"must be {wanted}")


def _pattern_errors(schema: JsonObject, path: str) -> Iterator[FieldError]:
    if pattern := schema.get("pattern"):
        try:
            compiled(pattern)
        except RegexError as error:
            yield _invalid(f"{path}.pattern", pattern, f"must be a valid regular expression, but isn't: {error}")


# What is said once, outside of allOf, anyOf, oneOf and not.
_ONLY_OUTSIDE = {
    **dict.fromkeys(("description", "title", "type", "x-kubernetes-list-map-keys", RULES), "empty"),
    **dict.fromkeys(
        ("additionalProperties", "default", "x-kubernetes-list-type", "x-kubernetes-map-type"), "undefined"
    ),
    **dict.fromkeys(("nullable", PRESERVE, EMBEDDED, INT_OR_STRING), "false"),
}


def _combination_errors(schema: JsonObject, path: str, *, is_either: bool = False) -> Iterator[FieldError]:
    """`is_either`: its anyOf says that the value is an integer or a string."""
    for name, word in _ONLY_OUTSIDE.items():
        if schema.get(name) not in (None, "", False, []):
            yield _forbidden(f"{path}.{name}", f"must be {word} to be structural")
    yield from _pattern_errors(schema, path)
    properties = schema.get("properties") or {}
    if "metadata" in properties:
        yield _forbidden(f"{path}.properties[metadata]", "must not be specified in a nested context")
    for name, inner in properties.items():
        yield from _combination_errors(inner, f"{path}.properties[{name}]")
    if isinstance(schema.get("items"), dict):
        yield from _combination_errors(schema["items"], f"{path}.items")
    for name in ("allOf", "anyOf", "oneOf"):
        if name == "anyOf" and is_either:
            continue
        for index, inner in enumerate(schema.get(name) or ()):
            yield from _combination_errors(inner, f"{path}.{name}[{index}]")
    if isinstance(schema.get("not"), dict):
        yield from _combination_errors(schema["not"], f"{path}.not")


def _incomplete(inner: JsonObject, outside: JsonObject | None, at: str, path: str) -> Iterator[FieldError]:
    """Fields that a combination names and that are not specified outside of it."""
    if outside is None:
        yield _required(at, f"because it is defined in {path}")
        return
    for keyword in ("allOf", "anyOf", "oneOf"):
        for index, each in enumerate(inner.get(keyword) or ()):
            yield from _incomplete(each, outside, at, f"{path}.{keyword}[{index}]")
    if isinstance(inner.get("not"), dict):
        yield from _incomplete(inner["not"], outside, at, f"{path}.not")
    if inner is outside:
        return
    if isinstance(inner.get("items"), dict):
        yield from _incomplete(inner["items"], outside.get("items"), f"{at}.items", f"{path}.items")
    known = outside.get("properties") or {}
    for name, each in (inner.get("properties") or {}).items():
        step = f"properties[{name}]"
        yield from _incomplete(each, known.get(name), f"{at}.{step}", f"{path}.{step}")


def _metadata_errors(schema: JsonObject, path: str) -> Iterator[FieldError]:
    metadata = (schema.get("properties") or {}).get("metadata")
    if not metadata:
        return
    allowed = {"type", "description", "properties", "default"}
    names = set(metadata.get("properties") or {}) - {"name", "generateName"}
    others = {name for name, value in metadata.items() if value not in (None, "", False, [], {})} - allowed
    if others or names:
        reason = "must not specify anything other than name and generateName, but metadata is implicitly specified"
        yield _forbidden(f"{path}.properties[metadata]", reason)


def _default_errors(schema: JsonObject, path: str) -> Iterator[FieldError]:
    if (value := schema.get("default")) is not None:
        if _has_unknown(schema, value):
            text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
            yield FieldError("FieldValueInvalid", f"{path}.default", f"{text}: must not have unknown fields")
        for finding in value_errors(schema, value):
            at = f"{path}.default.{finding.field}" if finding.field else f"{path}.default"
            yield FieldError(finding.type, at, finding.detail, finding.value)
    for name, inner in (schema.get("properties") or {}).items():
        yield from _default_errors(inner, f"{path}.properties[{name}]")
    if isinstance(schema.get("items"), dict):
        yield from _default_errors(schema["items"], f"{path}.items")


def _has_unknown(schema: JsonObject, value: Any) -> bool:
    """Whether it has fields that would be pruned."""
    if isinstance(value, list):
        items = schema.get("items")
        return isinstance(items, dict) and any(_has_unknown(items, each) for each in value)
    if not isinstance(value, dict):
        return False
    known, others = schema.get("properties") or {}, schema.get("additionalProperties")
    if schema.get(EMBEDDED):
        known = {**{name: {PRESERVE: True} for name in OF_OBJECTS}, **known}
    for name, each in value.items():
        inner = known.get(name, others if isinstance(others, dict) else None)
        if inner is None and not others and not schema.get(PRESERVE):
            return True
        if inner is not None and _has_unknown(inner, each):
            return True
    return False


def _required(path: str, reason: str) -> FieldError:
    return FieldError("FieldValueRequired", path, reason)


def _forbidden(path: str, reason: str) -> FieldError:
    return FieldError("FieldValueForbidden", path, reason)


def _invalid(path: str, value: str | bool, reason: str) -> FieldError:
    return FieldError("FieldValueInvalid", path, reason, value)


# --- what has no effect ---


def unknown_keywords(schema: Any, path: str) -> Iterator[str]:
    """Paths of keywords that no schema has; they are dropped."""
    if not isinstance(schema, dict):
        return
    for name, value in schema.items():
        if name not in KNOWN:
            yield f"{path}.{name}"
        elif name in _SCHEMA_MAPS and isinstance(value, dict):
            for key, inner in value.items():
                yield from unknown_keywords(inner, f"{path}.{name}.{key}")
        elif name in _SCHEMAS or (name == "additionalProperties" and isinstance(value, dict)):
            yield from unknown_keywords(value, f"{path}.{name}")
        elif name in _SCHEMA_LISTS and isinstance(value, list):
            for index, inner in enumerate(value):
                yield from unknown_keywords(inner, f"{path}.{name}[{index}]")
