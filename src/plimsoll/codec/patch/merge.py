"""Values in server-side apply: the fields of a value, the difference of two, merging, removing parts.

These are the operations of Kubernetes' structured merge: a scalar, an atomic map or list and an empty container are
leaves; the members of other maps and lists have owners of their own. Absent (`ABSENT`) is not null.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from operator import itemgetter
from typing import Any

import msgspec

from plimsoll.codec.patch.field_sets import EMPTY, SELF, FieldSet, field, in_order, put, union
from plimsoll.codec.patch.list_types import ANY, Shape

ABSENT: Any = object()
_WITH_MEMBERS = frozenset({dict, list})
_FEW = 32  # members of a map


class Comparison(msgspec.Struct, frozen=True):
    removed: FieldSet
    modified: FieldSet
    added: FieldSet


def _is_composite(shape: Shape, value: Any) -> bool:
    """Whether the members of a value have owners of their own."""
    if shape.atomic:
        return False
    return isinstance(value, dict if shape.form == "map" else list if shape.form == "list" else ())


def _members(shape: Shape, value: Any) -> Iterator[tuple[str, Shape, Any]]:
    """Path element, shape and value of each member; of elements with one name the first counts."""
    if isinstance(value, dict):
        for name, member in value.items():
            yield field(name), shape.member(name) or ANY, member
        return
    seen = set()
    for member in value:
        try:
            element = shape.path_element(member)
        except KeyError:
            continue
        if element not in seen:
            seen.add(element)
            yield element, shape.element(), member


def field_set(shape: Shape, value: Any) -> FieldSet:
    """The fields that a value sets. Structs and lists are only passed, map entries and list elements are owned."""
    result: FieldSet = {}
    if not _is_composite(shape, value):
        return result
    for element, member_shape, member in _members(shape, value):
        is_struct_field = isinstance(value, dict) and shape.is_named(element[2:])
        is_only_passed = is_struct_field and _is_composite(member_shape, member) and member != {}
        put(result, element, not is_only_passed, field_set(member_shape, member))
    return result


def compare(shape: Shape, before: Any, after: Any) -> Comparison:
    removed: FieldSet = {}
    modified: FieldSet = {}
    added: FieldSet = {}
    _compare_members(shape, before, after, removed, modified, added)
    return Comparison(removed, modified, added)


def set_fields(shape: Shape, before: dict[str, Any], after: dict[str, Any]) -> FieldSet:
    """Modified and added fields of `compare` as one sorted set. For creates, whose `before` is an empty object: nearly
    everything is set, most of it as a whole."""
    shared = before.keys() & after.keys()
    if not shared:
        return _nodes(shape, after)
    result = dict(_nodes(shape, {name: value for name, value in after.items() if name not in shared}))
    for name in shared:
        old, new = before[name], after[name]
        if type(old) is dict and type(new) is dict:
            inner = shape.member(name) or ANY
            if not inner.atomic and inner.form == "map" and (old or new):
                put(result, f"f:{name}", False, set_fields(inner, old, new))
            elif not _is_same(old, new):
                result[f"f:{name}"] = {}
        elif old is None and new and type(new) is list and _is_composite(inner := shape.member(name) or ANY, new):
            # Every element is added as a whole; the list itself existed, empty.
            node = _whole(inner, new)
            del node[SELF]
            put(result, f"f:{name}", False, node)
        elif not _is_same(old, new):
            parts: tuple[FieldSet, FieldSet, FieldSet] = ({}, {}, {})
            _compare(f"f:{name}", shape.member(name) or ANY, old, new, *parts)
            result |= in_order(union(parts[1], parts[2]))
    return {element: result[element] for element in sorted(result)}


def _nodes(shape: Shape, value: dict[str, Any], *, with_self: bool = False) -> FieldSet:
    """Of all members of a map, sorted. Most are leaves, and most maps have the same names as others."""
    leaves = _leaves if len(value) <= _FEW else _leaves.__wrapped__
    nodes = leaves(with_self, *value)
    if not _WITH_MEMBERS.isdisjoint(map(type, value.values())):
        nodes = dict(nodes)
        for name, member in value.items():
            if member and type(member) in _WITH_MEMBERS:
                nodes[f"f:{name}"] = _whole(shape.member(name) or ANY, member)
    return nodes


@lru_cache(1024)
def _leaves(with_self: bool, *names: str) -> FieldSet:
    return dict.fromkeys([SELF] * with_self + sorted(map(field, names)), EMPTY)


def _compare_members(
    shape: Shape, before: Any, after: Any, removed: FieldSet, modified: FieldSet, added: FieldSet
) -> None:
    if isinstance(before, dict) and isinstance(after, dict):
        differing = _differing_members(shape, before, after)
    else:
        differing = _differing_elements(shape, before, after)
    for element, inner, old, new in differing:
        _compare(element, inner, old, new, removed, modified, added)


def _differing_members(
    shape: Shape, before: dict[str, Any], after: dict[str, Any]
) -> Iterator[tuple[str, Shape, Any, Any]]:
    """Most members of two versions are equal and are skipped."""
    if before.keys() == after.keys():
        for name, old in before.items():
            new = after[name]
            if old is not new and not _is_same(old, new):
                yield f"f:{name}", shape.member(name) or ANY, old, new
        return
    for name, new in after.items():
        old = before.get(name, ABSENT)
        if old is not new and not _is_same(old, new):
            yield f"f:{name}", shape.member(name) or ANY, old, new
    for name, old in before.items():
        if name not in after:
            yield f"f:{name}", shape.member(name) or ANY, old, ABSENT


def _differing_elements(shape: Shape, before: Any, after: Any) -> Iterator[tuple[str, Shape, Any, Any]]:
    left = {element: (inner, value) for element, inner, value in _members(shape, before)} if before else {}
    right = {element: (inner, value) for element, inner, value in _members(shape, after)} if after else {}
    for element in (*left, *(each for each in right if each not in left)):
        inner, old = left.get(element, (ANY, ABSENT))
        new = ABSENT
        if element in right:
            inner, new = right[element]
        if not _is_same(old, new):
            yield element, inner, old, new


def _compare(
    element: str, shape: Shape, old: Any, new: Any, removed: FieldSet, modified: FieldSet, added: FieldSet
) -> None:
    if old is ABSENT:
        added[element] = _whole(shape, new)
        return
    if new is ABSENT:
        removed[element] = _whole(shape, old)
        return
    inner: tuple[FieldSet, FieldSet, FieldSet] = ({}, {}, {})
    old_parts, new_parts = _is_composite(shape, old), _is_composite(shape, new)
    is_leaf = not ((old_parts and old) or (new_parts and new))
    if not is_leaf:
        _compare_members(shape, old if old_parts else None, new if new_parts else None, *inner)
    put(removed, element, False, inner[0])
    put(modified, element, is_leaf, inner[1])
    put(added, element, False, inner[2])


def _whole(shape: Shape, value: Any) -> FieldSet:
    """The node of a value that is added or removed as a whole: itself and everything in it."""
    if not value or not _is_composite(shape, value):
        return EMPTY
    if isinstance(value, dict):
        return _nodes(shape, value, with_self=True)
    node: FieldSet = {SELF: EMPTY}
    for element, inner, member in sorted(_members(shape, value), key=itemgetter(0)):
        node[element] = _whole(inner, member)
    return node


def _is_same(old: Any, new: Any) -> bool:
    """Equal dicts may still have True for 1; JSON distinguishes them."""
    if old is new:
        return True
    if type(old) is not type(new) or old != new:
        return False
    if not isinstance(old, (dict, list)):
        return True
    return msgspec.json.encode(old, order="sorted") == msgspec.json.encode(new, order="sorted")


def merged(shape: Shape, live: Any, applied: Any) -> Any:
    """Applied over live: leaves are replaced, everything else is merged."""
    if applied is ABSENT:
        return live
    if live is ABSENT or not (_is_composite(shape, live) and _is_composite(shape, applied)):
        return applied
    if shape.form == "map":
        result = dict(live)
        for name, value in applied.items():
            result[name] = merged(shape.member(name) or ANY, live.get(name, ABSENT), value)
        return result
    return _merged_list(shape, live, applied)


def _merged_list(shape: Shape, live: list[Any], applied: list[Any]) -> list[Any]:
    """Elements in the applied order; live-only ones keep their place between shared elements."""
    left = [(_element_name(shape, value), value) for value in live]
    right = [(_element_name(shape, value), value) for value in applied]
    in_left = dict(reversed(left))
    in_right = dict(right)
    shared = iter([name for name, _ in right if name in in_left])
    awaited = next(shared, None)
    done: set[str] = set()
    result: list[Any] = []
    left_at = right_at = 0

    def take_right(name: str) -> None:
        done.add(name)
        result.append(merged(shape.element(), in_left.get(name, ABSENT), in_right[name]))

    while left_at < len(left) or right_at < len(right):
        if left_at < len(left):
            name, value = left[left_at]
            if right_at < len(right):
                if name == right[right_at][0]:
                    take_right(name)
                    left_at, right_at, awaited = left_at + 1, right_at + 1, next(shared, None)
                    continue
                if name in in_right and awaited is not None and awaited != name:
                    left_at += 1  # shared, but comes later
                    continue
            if name not in in_right:
                result.append(value)
                left_at += 1
                continue
            if name in done:
                left_at += 1
        if right_at < len(right):
            name = right[right_at][0]
            take_right(name)
            right_at += 1
            if name == awaited:
                awaited = next(shared, None)
    return result


def _element_name(shape: Shape, value: Any) -> str:
    try:
        return shape.path_element(value)
    except KeyError:
        return "k:{}"


def without(shape: Shape, value: Any, unwanted: FieldSet) -> Any:
    """A value without these fields; a container that loses all its members becomes null."""
    if not unwanted or not _is_composite(shape, value) or not value:
        return value
    if isinstance(value, dict):
        result = {}
        for name, member in value.items():
            node = unwanted.get(field(name))
            if node is None:
                result[name] = member
            elif node and SELF not in node:
                result[name] = without(shape.member(name) or ANY, member, node)
        return result or None
    elements = []
    for member in value:
        node = unwanted.get(_element_name(shape, member))
        if node is None:
            elements.append(member)
        elif node and SELF not in node:
            elements.append(without(shape.element(), member, node))
    return elements or None


def with_named_fields(shape: Shape, fields: FieldSet) -> FieldSet:
    """The set with every struct field that is only passed (a set of a.b.c then also contains a and a.b)."""
    result: FieldSet = {}
    for element, node in fields.items():
        if element == SELF:
            result[element] = node
            continue
        name = element[2:]
        inner = shape.member(name) if element.startswith("f:") else shape.element()
        below = with_named_fields(inner or ANY, node)
        named = element.startswith("f:") and shape.is_named(name)
        put(result, element, not node or SELF in node or (bool(node) and named), below)
    return result
