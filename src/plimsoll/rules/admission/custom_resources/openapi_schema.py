"""Which keywords a schema of a CustomResourceDefinition may use, and with which values.

A part of a schema is `inside metadata` if it describes apiVersion, kind or metadata of an object: defaults are not
allowed where it is not certain that they belong to the object.

Source: k8s.io/apiextensions-apiserver pkg/apis/apiextensions/validation/validation.go.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from plimsoll.errors import FieldError
from plimsoll.rules.admission.custom_resources.extensions import EMBEDDED, PRESERVE, RULES
from plimsoll.rules.admission.custom_resources.field_paths import FieldPathError, field_schema
from plimsoll.rules.model.json_object import JsonObject

REFUSED = ("$ref", "additionalItems", "definitions", "dependencies", "id", "patternProperties")
REASONS = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")
TYPES = ("array", "boolean", "integer", "number", "object", "string")
OF_OBJECTS = ("apiVersion", "kind", "metadata")


def keyword_errors(
    schema: JsonObject, path: str, *, no_default: str = "", in_metadata: bool = False, is_root: bool = False
) -> Iterator[FieldError]:
    """Of a schema whose keywords have values of the right JSON types. `no_default`: where defaults are forbidden."""

    def below(
        inner: Any, at: str, no_default: str = no_default, in_metadata: bool = in_metadata
    ) -> Iterator[FieldError]:
        if isinstance(inner, dict):
            yield from keyword_errors(inner, f"{path}.{at}", no_default=no_default, in_metadata=in_metadata)

    yield from _own_errors(schema, path, no_default, in_metadata)
    others = schema.get("additionalProperties")
    if others is not None:
        if schema.get("properties") and others is not True:
            reason = "additionalProperties and properties are mutual exclusive"
            yield _forbidden(f"{path}.additionalProperties", reason)
        reason = "inside additionalProperties applying to object metadata" if in_metadata else no_default
        yield from below(others, "additionalProperties", reason)
    for name, inner in (schema.get("properties") or {}).items():
        is_of_object = (is_root or bool(schema.get(EMBEDDED))) and name in OF_OBJECTS
        reason = f"in top-level {name}" if is_root and is_of_object else no_default
        yield from below(inner, f"properties[{name}]", reason, in_metadata or is_of_object)
    yield from below(schema.get("not"), "not")
    for keyword in ("allOf", "anyOf", "oneOf"):
        for index, inner in enumerate(schema.get(keyword) or ()):
            yield from below(inner, f"{keyword}[{index}]")
    yield from below(schema.get("items"), "items")
    yield from _list_errors(schema, path)
    for index, rule in enumerate(schema.get(RULES) or ()):
        yield from _rule_errors(rule, schema, f"{path}.{RULES}[{index}]")


def _own_errors(schema: JsonObject, path: str, no_default: str, in_metadata: bool) -> Iterator[FieldError]:
    kind = schema.get("type")
    if kind and kind not in TYPES:
        yield _unsupported(f"{path}.type", kind, *TYPES)
    if kind == "null":
        yield _forbidden(f"{path}.type", "type cannot be set to null, use nullable as an alternative")
    if no_default and schema.get("default") is not None:
        yield _forbidden(f"{path}.default", f"must not be set {no_default}")
    for name in REFUSED:
        if name in schema:
            yield _forbidden(f"{path}.{name}", f"{name} is not supported")
    if in_metadata and schema.get(EMBEDDED):
        yield _forbidden(f"{path}.{EMBEDDED}", "must not be used inside of resource meta")
    if schema.get("uniqueItems"):
        reason = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        yield _forbidden(f"{path}.uniqueItems", reason)
    if schema.get(PRESERVE) is False:
        yield _invalid(f"{path}.{PRESERVE}", False, "must be true or undefined")


def _list_errors(schema: JsonObject, path: str) -> Iterator[FieldError]:
    """Of x-kubernetes-list-type, x-kubernetes-list-map-keys and x-kubernetes-map-type."""
    keys = schema.get("x-kubernetes-list-map-keys") or []
    map_type, list_type = schema.get("x-kubernetes-map-type"), schema.get("x-kubernetes-list-type")
    if map_type is not None:
        yield from _type_errors(schema, path, "object", "x-kubernetes-map-type")
        if map_type not in ("atomic", "granular"):
            yield _unsupported(f"{path}.x-kubernetes-map-type", map_type, "atomic", "granular")
    at = f"{path}.x-kubernetes-list-type"
    if keys and list_type != "map":
        reason = "must be map if x-kubernetes-list-map-keys is non-empty"
        yield _required(at, reason) if list_type is None else _invalid(at, list_type, reason)
    if list_type is None:
        return
    items = schema.get("items")
    yield from _type_errors(schema, path, "array", "x-kubernetes-list-type")
    if list_type not in ("atomic", "map", "set"):
        yield _unsupported(at, list_type, "atomic", "set", "map")
    if list_type in ("map", "set") and isinstance(items, dict) and items.get("nullable"):
        reason = f"cannot be nullable when x-kubernetes-list-type is {list_type}"
        yield _forbidden(f"{path}.items.nullable", reason)
    if list_type == "set" and schema.get("type") == "array" and isinstance(items, dict):
        yield from _member_errors(items, f"{path}.items")
    if list_type == "map":
        yield from _map_list_errors(items, keys, path)


def _type_errors(schema: JsonObject, path: str, wanted: str, keyword: str) -> Iterator[FieldError]:
    kind, reason = schema.get("type") or "", f"must be {wanted} if {keyword} is specified"
    if not kind:
        yield _required(f"{path}.type", reason)
    elif kind != wanted:
        yield _invalid(f"{path}.type", kind, reason)


def _member_errors(items: JsonObject, path: str) -> Iterator[FieldError]:
    """Members of a set are compared as a whole."""
    list_type, reason = (
        items.get("x-kubernetes-list-type"),
        "must be atomic as item of a list with x-kubernetes-list-type=set",
    )
    if items.get("type") == "array" and list_type not in (None, "atomic"):
        yield _invalid(f"{path}.x-kubernetes-list-type", list_type, reason)
    if items.get("type") == "object" and items.get("x-kubernetes-map-type") != "atomic":
        yield _null(f"{path}.x-kubernetes-map-type", reason)


def _map_list_errors(items: JsonObject | None, keys: list[str], path: str) -> Iterator[FieldError]:
    at = f"{path}.x-kubernetes-list-map-keys"
    if not keys:
        yield _required(at, "must not be empty if x-kubernetes-list-type is map")
    if items is None:
        yield _required(f"{path}.items", "must have a schema if x-kubernetes-list-type is map")
        return
    known, kind = items.get("properties") or {}, items.get("type") or ""
    if kind != "object":
        yield _invalid(f"{path}.items.type", kind, "must be object if parent array's x-kubernetes-list-type is map")
    for index, key in enumerate(keys):
        inner, place = known.get(key), f"{path}.items.properties[{key}]"
        if kind == "object" and inner is None:
            yield _invalid(at, keys, "entries must all be names of item properties")
        if kind == "object" and key in keys[:index]:
            yield _invalid(at, keys, "must not contain duplicate entries")
        if inner is None:
            continue
        if kind == "object" and inner.get("type") in ("array", "object"):
            reason = "must be a scalar type if parent array's x-kubernetes-list-type is map"
            yield _invalid(f"{place}.type", kind, reason)
        of_key = "this property is in x-kubernetes-list-map-keys, so it"
        if key not in (items.get("required") or ()) and inner.get("default") is None:
            yield _required(f"{place}.default", f"{of_key} must have a default or be a required property")
        if inner.get("nullable"):
            yield _forbidden(f"{place}.nullable", f"{of_key} cannot be nullable")


def _rule_errors(rule: Any, schema: JsonObject, path: str) -> Iterator[FieldError]:
    """What is wrong with a rule before it is compiled."""
    text = rule.get("rule") if isinstance(rule, dict) else None
    if not isinstance(text, str) or not text.strip():
        yield _required(f"{path}.rule", "rule is not specified")
        if not isinstance(rule, dict):
            return
        text = ""
    message, expression = rule.get("message") or "", rule.get("messageExpression") or ""
    if text and message and not message.strip():
        yield _invalid(f"{path}.message", message, "must be non-empty if specified")
    elif text and "\n" in message.strip():
        yield _invalid(f"{path}.message", message, "must not contain line breaks")
    elif "\n" in text.strip() and not message.strip():
        yield _required(f"{path}.message", "message must be specified if rule contains line breaks")
    if expression and not expression.strip():
        yield _required(f"{path}.messageExpression", "messageExpression must be non-empty if specified")
    reason, field_path = rule.get("reason"), rule.get("fieldPath") or ""
    if reason is not None and reason not in REASONS:
        yield _unsupported(f"{path}.reason", reason, *REASONS)
    if field_path and not field_path.strip():
        yield _invalid(f"{path}.fieldPath", field_path, "must be non-empty if specified")
    if "\n" in field_path:
        yield _invalid(f"{path}.fieldPath", field_path, "must not contain line breaks")
    if field_path:
        try:
            field_schema(schema, field_path)
        except FieldPathError:
            yield _invalid(f"{path}.fieldPath", field_path, "must be a valid path")


def _required(path: str, reason: str) -> FieldError:
    return FieldError("FieldValueRequired", path, reason)


def _forbidden(path: str, reason: str) -> FieldError:
    return FieldError("FieldValueForbidden", path, reason)


def _invalid(path: str, value: Any, reason: str) -> FieldError:
    return FieldError("FieldValueInvalid", path, reason, value)


def _null(path: str, reason: str) -> FieldError:
    return FieldError("FieldValueInvalid", path, f"null: {reason}")


def _unsupported(path: str, value: str, *supported: str) -> FieldError:
    listed = ", ".join(f'"{name}"' for name in supported)
    return FieldError("FieldValueNotSupported", path, f"supported values: {listed}", value)
