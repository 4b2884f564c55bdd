"""Executes JSONPath templates on JSON values, as kubectl does.

Each expression selects a list of values. Maps are visited in the order of their keys; kubectl's order is random.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from plimsoll.codec.golang.fmt import go_printed
from plimsoll.codec.jsonpath.parser import (
    Expression,
    Field,
    Filter,
    Keyword,
    Literal,
    Node,
    Recursive,
    Slice,
    Template,
    TemplateError,
    Text,
    Union,
    Wildcard,
    parsed,
)

_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_HTML = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}
Values = list[Any]


class JsonPath:
    """One template, parsed once. A missing key selects nothing, or is an error without `allow_missing`."""

    def __init__(self, template: str, *, allow_missing: bool = True) -> None:
        self._parts = parsed(template)
        self._allow_missing = allow_missing

    def printed(self, document: Any) -> str:
        """The texts and selected values in order; the values of one expression have blanks between them."""
        return "".join(" ".join(map(_shown, values)) for values in self.results(document))

    def results(self, document: Any) -> list[Values]:
        """The values of each expression; those between `range` and `end` once per element."""
        found, _ = self._run(self._parts, document, in_range=False)
        return found

    def _run(self, parts: Template, document: Any, *, in_range: bool) -> tuple[list[Values], int]:
        """The results, and how many parts the range used; 0 if it has no `end`: the rest is executed once more."""
        found: list[Values] = []
        position = 0
        while position < len(parts):
            part = parts[position]
            position += 1
            if isinstance(part, Text):
                found.append([part.text])
                continue
            words = [node.name for node in part if isinstance(node, Keyword)]
            values = self._walk([document], part, in_range=in_range)
            if "range" in words:
                used = 0
                for value in values or [None]:
                    inner, used = self._run(parts[position:], value, in_range=True)
                    found += inner if values else []
                position += used
            elif "end" in words:
                return found, position
            else:
                found.append(values)
        return found, 0

    def _walk(self, values: Values, nodes: Expression, *, in_range: bool = False) -> Values:
        for node in nodes:
            values = self._step(values, node, in_range)
        return values

    def _step(self, values: Values, node: Node, in_range: bool) -> Values:
        match node:
            case Text(text):
                return [text]
            case Literal(value):
                return [value for _ in values]
            case Field(name):
                return self._field(values, name)
            case Wildcard():
                return [child for value in values for child in _children(value)]
            case Recursive():
                return [each for value in values for each in _descendants(value)]
            case Slice():
                return [each for value in values if value is not None for each in _sliced(value, node)]
            case Union(members):
                return [each for member in members for each in self._walk(values, member)]
            case Filter():
                return [each for value in values for each in self._filtered(value, node)]
            case Keyword("range"):
                return values
            case Keyword("end"):
                if not in_range:
                    raise TemplateError("not in range, nothing to end")
                return []
        raise TemplateError(f"unrecognized identifier {node.name}")

    def _field(self, values: Values, name: str) -> Values:
        found = [value[name] for value in values if isinstance(value, dict) and name in value]
        if values and not found and not self._allow_missing:
            raise TemplateError(f"{name} is not found")
        return found

    def _filtered(self, value: Any, node: Filter) -> Iterator[Any]:
        if not isinstance(value, list):
            raise TemplateError(f"{go_printed(value)} is not array or slice and cannot be filtered")
        for element in value:
            if not node.operator:
                if self._exists(element, node.left):
                    yield element
                continue
            left = self._walk([element], node.left)
            right = self._walk([element], node.right) if left else []
            if len(left) > 1 or len(right) > 1:
                raise TemplateError("can only compare one element at a time")
            if left and right and _compared(left[0], node.operator, right[0]):
                yield element

    def _exists(self, element: Any, path: Expression) -> bool:
        try:
            return bool(self._walk([element], path))
        except TemplateError:
            return False


def _children(value: Any) -> Sequence[Any]:
    if isinstance(value, dict):
        return [value[key] for key in sorted(value)]
    return value if isinstance(value, list) else ()


def _descendants(value: Any) -> Iterator[Any]:
    """The value and all below it that have children."""
    children = _children(value)
    if children:
        yield value
        for child in children:
            yield from _descendants(child)


def _sliced(value: Any, at: Slice) -> Sequence[Any]:
    if not isinstance(value, list):
        raise TemplateError(f"{_go_type(value)} is not array or slice")
    length = len(value)
    start = at.start or 0
    if start < 0:
        start += length
    end = length if at.end is None else at.end
    if end < 0 or (end == 0 and at.one):
        end += length
    if start == end:
        return ()
    if not 0 <= start < length:
        raise TemplateError(f"array index out of bounds: index {start}, length {length}")
    if not 0 <= end <= length:
        raise TemplateError(f"array index out of bounds: index {end - 1}, length {length}")
    if start > end:
        raise TemplateError(f"starting index {start} is greater than ending index {end}")
    if at.step is not None and at.step <= 0:
        raise TemplateError("step must be > 0")
    return value[start : end : at.step or 1]


def _compared(left: Any, sign: str, right: Any) -> bool:
    if sign not in _COMPARE:
        raise TemplateError(f"unrecognized filter operator {sign}")
    kinds = type(left), type(right)
    ordered = sign not in ("==", "!=")
    if not all(kind in (str, int, float) or (kind is bool and not ordered) for kind in kinds):
        raise TemplateError("invalid type for comparison")
    if kinds[0] is not kinds[1]:
        raise TemplateError("incompatible types for comparison")
    return _COMPARE[sign](left, right)


def _shown(value: Any) -> str:
    if isinstance(value, dict | list):
        text = msgspec.json.encode(value, order="sorted").decode()
        for character, escape in _HTML.items():  # Go escapes them in JSON
            text = text.replace(character, escape)
        return text
    return "null" if value is None else go_printed(value)


def _go_type(value: Any) -> str:
    if isinstance(value, dict):
        return "map[string]interface {}"
    for kind, name in ((bool, "bool"), (int, "int64"), (float, "float64")):
        if isinstance(value, kind):
            return name
    return "string"
