"""Sets of field paths in the format of metadata.managedFields (FieldsV1).

A set is a tree of path elements: `f:name` (a field or map key), `k:{"name":"c"}` (an element of a list by its keys),
`v:"x"` (a value of a set). A node without members is a path in the set; a node with members is one, too, if it has the
member `.`. So `{"f:a": {}, "f:b": {".": {}, "f:c": {}}}` contains a, b and b.c. Sets are never changed in place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

FieldSet = dict[str, Any]
Path = tuple[str, ...]

EMPTY: FieldSet = {}
SELF = "."


def is_member(node: FieldSet) -> bool:
    return not node or SELF in node


def _children(node: FieldSet) -> Iterator[tuple[str, FieldSet]]:
    return ((element, child) for element, child in node.items() if element != SELF)


def put(target: FieldSet, element: str, member: bool, children: FieldSet) -> None:
    """Set a node of a set under construction; an empty node is omitted."""
    if children:
        target[element] = {SELF: {}, **children} if member and SELF not in children else children
    elif member:
        target[element] = {}


def union(*sets: FieldSet) -> FieldSet:
    """Of any number at once: its time grows with their members, where unions of two would copy the result each time."""
    parts = [each for each in sets if each]
    if len(parts) < 2:
        return parts[0] if parts else EMPTY
    together: dict[str, list[FieldSet]] = {}
    for part in parts:
        for element, child in part.items():
            together.setdefault(element, []).append(child)
    result: FieldSet = {}
    for element, children in together.items():
        if len(children) == 1 or element == SELF:
            result[element] = children[0]
        else:
            put(result, element, any(map(is_member, children)), union(*map(_bare, children)))
    return result


def _bare(node: FieldSet) -> FieldSet:
    return {element: child for element, child in node.items() if element != SELF} if SELF in node else node


def difference(left: FieldSet, right: FieldSet) -> FieldSet:
    """`left` without `right`, in its order; `left` itself if nothing is removed. Walks along the smaller one: a
    write has few fields and an owner many, or there are many owners with few fields each."""
    if not left or not right:
        return left
    result = left
    for element in left if len(left) < len(right) else right:
        child, other = left.get(element), right.get(element)
        if child is None or other is None or element == SELF:
            continue
        was, bare = is_member(child), _bare(child)
        kept = was and not is_member(other)
        rest = difference(bare, other)
        if rest is bare and kept == was:
            continue
        if result is left:
            result = dict(left)
        if rest:
            result[element] = {SELF: {}, **rest} if kept else rest
        elif kept:
            result[element] = {}
        else:
            del result[element]
    return result


def intersection(left: FieldSet, right: FieldSet) -> FieldSet:
    result: FieldSet = {}
    for element, child in _children(left):
        other = right.get(element)
        if other is not None:
            put(result, element, is_member(child) and is_member(other), intersection(_bare(child), other))
    return result


def filtered(fields: FieldSet, keep: Callable[[Path], bool], path: Path = ()) -> FieldSet:
    """The paths that `keep` accepts."""
    result: FieldSet = {}
    for element, child in fields.items():
        if element != SELF:
            below = (*path, element)
            inner = filtered(child, keep, below) if child else child
            put(result, element, (not child or SELF in child) and keep(below), inner)
    return result


def without_branch(fields: FieldSet, path: Path) -> FieldSet:
    """The set without a path and everything below it."""
    element, *rest = path
    if element not in fields:
        return fields
    result = {name: child for name, child in fields.items() if name != element}
    if rest:
        child = fields[element]
        put(result, element, is_member(child), without_branch(_bare(child), tuple(rest)))
    return result


def paths(fields: FieldSet, path: Path = ()) -> Iterator[Path]:
    """Every path in the set, in order."""
    for element in sorted(fields):
        if element != SELF:
            child = fields[element]
            if is_member(child):
                yield (*path, element)
            yield from paths(child, (*path, element))


def from_paths(*members: Path) -> FieldSet:
    result: FieldSet = {}
    for path in members:
        node: FieldSet = {}
        for element in reversed(path):
            node = {element: node}
        result = union(result, node)
    return result


def in_order(fields: FieldSet) -> FieldSet:
    """In canonical order: `.` first, then by name."""
    return {element: in_order(child) if (child := fields[element]) else child for element in sorted(fields)}


def field(name: str) -> str:
    return f"f:{name}"


def written_path(path: Path) -> str:
    """`.spec.containers[name="c"].image`, as in error messages."""
    return "".join(map(_written, path))


def _written(element: str) -> str:
    kind, _, text = element.partition(":")
    if kind == "f":
        return f".{text}"
    if kind == "k":
        keys = msgspec.json.decode(text)
        return "[" + ",".join(f"{key}={_json(value)}" for key, value in sorted(keys.items())) + "]"
    return f"[={text}]" if kind == "v" else f"[{text}]"


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def element_by_keys(keys: dict[str, Any]) -> str:
    return "k:" + msgspec.json.encode(keys, order="sorted").decode()


def element_by_value(value: Any) -> str:
    return "v:" + _json(value)
