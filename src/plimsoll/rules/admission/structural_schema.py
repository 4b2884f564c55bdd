"""Whether a schema of a CustomResourceDefinition is structural, and what in it has no effect here.

Every value has a type, except below `x-kubernetes-int-or-string` and where unknown fields are preserved. The logical
combinations (`allOf`, `anyOf`, `oneOf`, `not`) only restrict values: what they name is specified outside of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from plimsoll.errors import FieldError
from plimsoll.rules.admission.custom_resources import INT_OR_STRING, custom_errors, json_type
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.re2.matcher import compiled
from plimsoll.rules.re2.syntax import RegexError

PRESERVE = "x-kubernetes-preserve-unknown-fields"
EMBEDDED = "x-kubernetes-embedded-resource"
TYPES = ("array", "boolean", "integer", "number", "object", "string")
_SCHEMAS = {"items", "not"}
_SCHEMA_MAPS = {"properties"}
_SCHEMA_LISTS = {"allOf", "anyOf", "oneOf"}
_TEXTS = {"description", "format", "pattern", "title", "type", "x-kubernetes-list-type", "x-kubernetes-map-type"}
_FLAGS = {"exclusiveMaximum", "exclusiveMinimum", "nullable", "uniqueItems", PRESERVE, EMBEDDED, INT_OR_STRING}
_COUNTS = {"maxItems", "maxLength", "maxProperties", "minItems", "minLength", "minProperties"}
_NUMBERS = {"maximum", "minimum", "multipleOf"}
_TEXT_LISTS = {"required", "x-kubernetes-list-map-keys"}
_ANYTHING = {"additionalProperties", "default", "enum", "example", "externalDocs", "x-kubernetes-validations"}
_REFUSED = ("$ref", "additionalItems", "definitions", "dependencies", "id", "patternProperties")
KNOWN = (_SCHEMAS | _SCHEMA_MAPS | _SCHEMA_LISTS | _TEXTS | _FLAGS | _COUNTS | _NUMBERS | _TEXT_LISTS | _ANYTHING) | {
    "$schema",
    *_REFUSED,
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
    errors = list(_errors(schema, path))
    if schema.get("type") != "object":
        errors.append(_invalid(f"{path}.type", schema.get("type") or "", "must be object at the root"))
    if schema.get("nullable"):
        errors.append(FieldError("FieldValueForbidden", f"{path}.nullable", "nullable cannot be true at the root"))
    if schema.get("additionalProperties") is not None:
        errors.append(FieldError("FieldValueForbidden", f"{path}.additionalProperties", "must not be used at the root"))
    return errors + list(_metadata_errors(schema, path))


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


def _errors(schema: JsonObject, path: str) -> Iterator[FieldError]:
    yield from _keyword_errors(schema, path)
    kind = schema.get("type")
    is_free = schema.get(INT_OR_STRING) or schema.get(PRESERVE)
    if not kind and not is_free and not schema.get(EMBEDDED):
        where = "for specified object fields" if path.endswith("]") else "for specified array items"
        yield _required(f"{path}.type", f"must not be empty {where if '.' in path else 'at the root'}")
    if schema.get(INT_OR_STRING):
        for name in (PRESERVE, EMBEDDED):
            if schema.get(name):
                reason = f"must be false if {INT_OR_STRING} is true"
                yield FieldError("FieldValueInvalid", f"{path}.{name}", reason, True)
    if schema.get(EMBEDDED) and kind != "object":
        reason = f"must be object if {EMBEDDED} is true"
        yield _invalid(f"{path}.type", kind, reason) if kind else _required(f"{path}.type", reason)
    if kind == "array" and not isinstance(schema.get("items"), dict):
        yield FieldError("FieldValueRequired", f"{path}.items", "must be specified")
    if schema.get(EMBEDDED) and not schema.get(PRESERVE) and not schema.get("properties"):
        yield _required(f"{path}.properties", f"must not be empty if {EMBEDDED} is true without {PRESERVE}")
    yield from _list_type_errors(schema, path)
    for name, inner in (schema.get("properties") or {}).items():
        yield from _errors(inner, f"{path}.properties[{name}]")
    if isinstance(schema.get("items"), dict):
        yield from _errors(schema["items"], f"{path}.items")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from _errors(schema["additionalProperties"], f"{path}.additionalProperties")
    for name in ("allOf", "anyOf", "oneOf"):
        if name == "anyOf" and schema.get(name) == _INTEGER_OR_STRING:
            continue
        for index, inner in enumerate(schema.get(name) or ()):
            if not (name == "allOf" and index == 0 and inner.get("anyOf") == _INTEGER_OR_STRING):
                yield from _combination_errors(inner, schema, f"{path}.{name}[{index}]")
    if isinstance(schema.get("not"), dict):
        yield from _combination_errors(schema["not"], schema, f"{path}.not")


def _keyword_errors(schema: JsonObject, path: str) -> Iterator[FieldError]:
    kind = schema.get("type")
    if kind and kind not in TYPES:
        yield _unsupported(f"{path}.type", kind, *TYPES)
    for name in _REFUSED:
        if name in schema:
            yield FieldError("FieldValueForbidden", f"{path}.{name}", f"{name} is not supported")
    yield from _nested_keyword_errors(schema, path)
    if schema.get("properties") and schema.get("additionalProperties") not in (None, True):
        reason = "additionalProperties and properties are mutual exclusive"
        yield FieldError("FieldValueForbidden", f"{path}.additionalProperties", reason)
    if schema.get(PRESERVE) is False:
        yield FieldError("FieldValueInvalid", f"{path}.{PRESERVE}", "false: must be true or undefined")
    if "default" in schema:
        around = {"type": "object", "properties": {"default": schema}}
        for finding in custom_errors(around, {"default": schema["default"]}):
            yield FieldError(finding.type, f"{path}.{finding.field}", finding.detail, finding.value)


def _nested_keyword_errors(schema: JsonObject, path: str) -> Iterator[FieldError]:
    """Of a schema, and of those inside of allOf, anyOf, oneOf and not."""
    if schema.get("uniqueItems"):
        reason = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        yield FieldError("FieldValueForbidden", f"{path}.uniqueItems", reason)
    if pattern := schema.get("pattern"):
        try:
            compiled(pattern)
        except RegexError as error:
            yield _invalid(f"{path}.pattern", pattern, f"must be a valid regular expression, but isn't: {error}")


def _required(path: str, reason: str) -> FieldError:
    return FieldError("FieldValueRequired", path, reason)


def _invalid(path: str, value: str, reason: str) -> FieldError:
    return FieldError("FieldValueInvalid", path, reason, value)


def _unsupported(path: str, value: str, *supported: str) -> FieldError:
    listed = ", ".join(f'"{name}"' for name in supported)
    return FieldError("FieldValueNotSupported", path, f"supported values: {listed}", value)


def _list_type_errors(schema: JsonObject, path: str) -> Iterator[FieldError]:
    kind, keys = schema.get("type") or "", schema.get("x-kubernetes-list-map-keys") or []
    map_type, list_type = schema.get("x-kubernetes-map-type"), schema.get("x-kubernetes-list-type")
    if map_type is not None:
        if map_type not in ("atomic", "granular"):
            yield _unsupported(f"{path}.x-kubernetes-map-type", map_type, "atomic", "granular")
        if kind != "object":
            yield _invalid(f"{path}.type", kind, "must be object if x-kubernetes-map-type is specified")
    if keys and list_type != "map":
        at, reason = f"{path}.x-kubernetes-list-type", "must be map if x-kubernetes-list-map-keys is non-empty"
        yield _required(at, reason) if list_type is None else _invalid(at, list_type, reason)
    if list_type is None:
        return
    if list_type in ("map", "set") and (schema.get("items") or {}).get("nullable"):
        reason = f"cannot be nullable when x-kubernetes-list-type is {list_type}"
        yield FieldError("FieldValueForbidden", f"{path}.items.nullable", reason)
    if list_type not in ("atomic", "map", "set"):
        yield _unsupported(f"{path}.x-kubernetes-list-type", list_type, "atomic", "set", "map")
    if kind != "array":
        yield _invalid(f"{path}.type", kind, "must be array if x-kubernetes-list-type is specified")
    if list_type == "map":
        yield from _map_key_errors(schema.get("items") or {}, keys, path)


def _map_key_errors(items: JsonObject, keys: list[str], path: str) -> Iterator[FieldError]:
    if not keys:
        yield _required(f"{path}.x-kubernetes-list-map-keys", "must not be empty if x-kubernetes-list-type is map")
    for key in keys:
        inner, at = (items.get("properties") or {}).get(key), f"{path}.items.properties[{key}]"
        if inner is None:
            reason = "entries must all be names of item properties"
            yield _invalid(f"{path}.x-kubernetes-list-map-keys", key, reason)
        elif inner.get("type") in ("array", "object"):
            reason = "must be a scalar type if parent array's x-kubernetes-list-type is map"
            yield _invalid(f"{at}.type", inner["type"], reason)
        elif key not in (items.get("required") or ()) and "default" not in inner:
            reason = (
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property"
            )
            yield _required(f"{at}.default", reason)
        if inner is not None and inner.get("nullable"):
            reason = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable"
            yield FieldError("FieldValueForbidden", f"{at}.nullable", reason)


# What is said once, outside of allOf, anyOf, oneOf and not.
_ONLY_OUTSIDE = {
    **dict.fromkeys(
        ("description", "title", "type", "x-kubernetes-list-map-keys", "x-kubernetes-validations"), "empty"
    ),
    **dict.fromkeys(
        ("additionalProperties", "default", "externalDocs", "x-kubernetes-list-type", "x-kubernetes-map-type"),
        "undefined",
    ),
    **dict.fromkeys(("nullable", PRESERVE, EMBEDDED, INT_OR_STRING), "false"),
}


def _combination_errors(schema: JsonObject, outside: JsonObject, path: str) -> Iterator[FieldError]:
    yield from _nested_keyword_errors(schema, path)
    for name, word in _ONLY_OUTSIDE.items():
        if schema.get(name) not in (None, "", False, []):
            yield FieldError("FieldValueForbidden", f"{path}.{name}", f"must be {word} to be structural")
    known = outside.get("properties") or {}
    for name, inner in (schema.get("properties") or {}).items():
        if name not in known:
            reason = f"because it is defined in {path}.properties[{name}]"
            yield _required(f"{path.rpartition('.')[0]}.properties[{name}]", reason)
        else:
            yield from _combination_errors(inner, known[name], f"{path}.properties[{name}]")
    if isinstance(schema.get("items"), dict):
        yield from _combination_errors(schema["items"], outside.get("items") or {}, f"{path}.items")
    for name in ("allOf", "anyOf", "oneOf"):
        for index, inner in enumerate(schema.get(name) or ()):
            yield from _combination_errors(inner, outside, f"{path}.{name}[{index}]")
    if isinstance(schema.get("not"), dict):
        yield from _combination_errors(schema["not"], outside, f"{path}.not")


def _metadata_errors(schema: JsonObject, path: str) -> Iterator[FieldError]:
    metadata = (schema.get("properties") or {}).get("metadata")
    if not metadata:
        return
    allowed = {"type", "description", "properties", "nullable"}
    names = set(metadata.get("properties") or {}) - {"name", "generateName"}
    if set(metadata) - allowed or names:
        reason = "must not specify anything other than name and generateName, but metadata is implicitly specified"
        yield FieldError("FieldValueForbidden", f"{path}.properties[metadata]", reason)


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
