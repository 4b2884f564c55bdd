"""Paths to fields, such as `.spec.replicas` and `.spec['a-b']`, in definitions of custom kinds.

Source: k8s.io/apiextensions-apiserver pkg/apiserver/schema/cel/validation.go, ValidFieldPath.
"""

from __future__ import annotations

import re

from plimsoll.rules.model.json_object import JsonObject

_TOKEN = re.compile(r"'(?:[^'\\]|\\.)*'|[.\[\]]|[^.\[\]]+")
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "'": "'", "\\": "\\"}


class FieldPathError(Exception):
    """The text has kube-apiserver's words."""


def field_schema(schema: JsonObject, path: str, *, brackets: bool = True) -> tuple[tuple[str, ...], JsonObject | None]:
    """The steps of a path and the schema of the field; None below additionalProperties that have none. Raises
    FieldPathError. `brackets`: whether a step may be in brackets."""
    steps: list[str] = []
    found: JsonObject | None = schema
    tokens = iter(_TOKEN.findall(path))
    for token in tokens:
        if token not in (".", "["):
            raise FieldPathError(f"expected [ or . but got: {token}")
        if token == "[" and not brackets:
            raise FieldPathError("array notation is not allowed")
        name = next(tokens, None)
        if name is None:
            raise FieldPathError("unexpected end of JSON path")
        if token == "[":
            name = _unquoted(name)
        found = _step(found, name)
        steps.append(name)
        if token == "[" and (end := next(tokens, None)) != "]":
            raise FieldPathError("unexpected end of JSON path" if end is None else f"expected ] but got {end}")
    return tuple(steps), found


def _step(schema: JsonObject | None, name: str) -> JsonObject | None:
    properties, others = (schema or {}).get("properties"), (schema or {}).get("additionalProperties")
    if properties:
        if name not in properties:
            raise FieldPathError("does not refer to a valid field")
        found: JsonObject = properties[name]
        return found
    if others is None:
        raise FieldPathError("does not refer to a valid field")
    return others if isinstance(others, dict) else None


def _unquoted(text: str) -> str:
    if len(text) < 2 or not (text.startswith("'") and text.endswith("'")):
        raise FieldPathError(f"expected single quoted string but got {text}")
    for escape in re.findall(r"\\.", text[1:-1]):
        if escape[1] not in _ESCAPES:
            raise FieldPathError(f"invalid string literal: invalid escape char {escape}")
    return re.sub(r"\\(.)", lambda match: _ESCAPES[match[1]], text[1:-1])
