"""Strategic merge patches (05 B6): maps merge, lists merge by the schema's keys, and `$` directives.

The order inside one map is Kubernetes': `$patch` decides alone; `$retainKeys` prunes the live map; lists with a
`$setElementOrder` are merged and ordered; then every other member. Members of the patch without a live counterpart are
added without their nulls and directives. Neither argument is changed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from plimsoll.codec.golang.fmt import go_printed
from plimsoll.codec.patch.json_patch import PatchError
from plimsoll.codec.schema.schema import Field, SchemaKind, StructType, struct
from plimsoll.rules.model.json_object import JsonObject

DIRECTIVE = "$patch"
RETAIN_KEYS = "$retainKeys"
_DELETE_FROM = "$deleteFromPrimitiveList"
_SET_ORDER = "$setElementOrder"


class _Place(msgspec.Struct, frozen=True):
    """The position of a map in the schema: a struct, a map with values of one kind (struct None), or unknown."""

    struct: StructType | None = None

    def field(self, name: str) -> Field | None:
        return self.struct.fields.get(name) if self.struct is not None else None


_UNKNOWN = _Place()


def apply_strategic(kind: SchemaKind, document: JsonObject, patch: JsonObject) -> JsonObject:
    """The patched document; raises PatchError."""
    return _merged_map(document, patch, _Place(kind.root))


def _below(field: Field | None) -> _Place:
    if field is None:
        return _UNKNOWN
    inner = field.type.item or field.type
    return _Place(struct(inner.struct)) if inner.form == "object" else _UNKNOWN


def _merged_map(live: JsonObject, patch: JsonObject, place: _Place) -> JsonObject:
    patch = dict(patch)
    if DIRECTIVE in patch:
        return _directed(patch)
    result = dict(live)
    if RETAIN_KEYS in patch:
        _retain(result, patch)
    _merge_ordered_lists(result, patch, place)
    for name, value in patch.items():
        if name.startswith(_DELETE_FROM):
            _delete_scalars(result, _list_name(name, _DELETE_FROM), value)
        elif value is None:
            result.pop(name, None)
        elif name in result and type(result[name]) is type(value) and isinstance(value, (dict, list)):
            result[name] = _merged(result[name], value, place, name)
        else:
            _put_clean(result, name, value)
    return result


def _directed(patch: JsonObject) -> JsonObject:
    directive = patch.pop(DIRECTIVE)
    if directive == "replace":
        return patch
    if directive == "delete":
        return {}
    raise _bad_directive(directive, {DIRECTIVE: directive, **patch})


def _bad_directive(directive: Any, patch: JsonObject) -> PatchError:
    return PatchError("internal", f"unknown patch type: {go_printed(directive)} in map: {go_printed(patch)}")


def _retain(result: JsonObject, patch: JsonObject) -> None:
    wanted = patch.pop(RETAIN_KEYS)
    broken = PatchError("format", "invalid patch format of retainKeys")
    if not isinstance(wanted, list):
        raise broken
    kept = {name for name in wanted if isinstance(name, str)}
    for name, value in patch.items():
        if value is not None and not name.startswith((_DELETE_FROM, _SET_ORDER)) and name not in kept:
            raise broken
    for name in result.keys() - kept:
        del result[name]


def _merged(live: Any, value: Any, place: _Place, name: str) -> Any:
    field = place.field(name)
    if isinstance(value, dict):
        if field is not None and field.replaces:
            return value
        return _merged_map(live, value, _below(field))
    if field is not None and field.merges:
        return _merged_list(live, value, field)
    return value


def _put_clean(result: JsonObject, name: str, value: Any) -> None:
    keep, clean = _without_directives(value)
    if keep:
        result[name] = clean
    else:
        result.pop(name, None)


def _without_directives(value: Any) -> tuple[bool, Any]:
    """A value without a live counterpart: no nulls, no directives, no deleted elements. The first result is whether
    anything remains."""
    if isinstance(value, dict):
        if value.get(DIRECTIVE) == "delete":
            return False, None
        result: JsonObject = {}
        for name, member in value.items():
            if name in (DIRECTIVE, RETAIN_KEYS) or name.startswith((_DELETE_FROM, _SET_ORDER)):
                continue
            keep, clean = _without_directives(member)
            if keep and clean is not None:
                result[name] = clean
        return True, result
    if isinstance(value, list):
        cleaned = map(_without_directives, value)
        return True, [member for keep, member in cleaned if keep]
    return True, value


def _list_name(name: str, prefix: str) -> str:
    found, slash, rest = name.partition("/")
    if found != prefix or not slash:
        what = "primitive" if prefix == _DELETE_FROM else "setElementOrder"
        raise PatchError("format", f"invalid patch format of {what} list")
    return rest


def _delete_scalars(result: JsonObject, name: str, unwanted: Any) -> None:
    live = result.get(name)
    if unwanted is None:
        result.pop(name, None)
    elif isinstance(live, list) and isinstance(unwanted, list) and (live or unwanted):
        _check_types(live, unwanted)
        gone = set(map(_identity, unwanted))
        result[name] = [member for member in live if _identity(member) not in gone]


def _merge_ordered_lists(result: JsonObject, patch: JsonObject, place: _Place) -> None:
    for directive in [name for name in patch if name.startswith(_SET_ORDER)]:
        order = patch.pop(directive)
        name = _list_name(directive, _SET_ORDER)
        for value in (order, result.get(name, []), patch.get(name, [])):
            if not isinstance(value, list):
                raise _bad_argument("[]interface {}", value)
        field = place.field(name)
        if field is None:
            owner = place.struct.go_struct if place.struct is not None else ""
            raise PatchError("internal", f'unable to find api field in struct {owner} for the json field "{name}"')
        _check_order(patch.get(name, []), order, field.merge_key)
        if name not in result and name not in patch:
            continue
        live, wanted = result.get(name), patch.pop(name, None)
        if live is None:
            merged = _without_directives(wanted)[1]
        elif wanted is None:
            merged = live
        else:
            merged = _merged_list(live, wanted, field) if field.merges else wanted
        _check_types(live or [], wanted or [])
        result[name] = _ordered(merged, order, live or [], field.merge_key)


def _bad_argument(wanted: str, found: Any) -> PatchError:
    go_types = {dict: "map[string]interface {}", list: "[]interface {}", str: "string", bool: "bool", int: "int64"}
    # A quirk of Go: a missing type has no name to print.
    name = "%!s(<nil>)" if found is None else go_types.get(type(found), "float64")
    return PatchError("format", f"expected a {wanted}, but received a {name}")


def _check_order(patch: list[Any], order: list[Any], merge_key: str) -> None:
    """Every element of the patch must be in the order list, in the same relative order."""
    if merge_key:
        for each in patch:
            if not isinstance(each, dict):
                raise _bad_argument("map[string]interface {}", each)
    elements = [each for each in patch if not merge_key or DIRECTIVE not in each]
    key = _key_of(merge_key)
    position = 0
    for wanted in order:
        if position < len(elements) and key(elements[position]) == key(wanted):
            position += 1
    if order and position < len(elements):
        raise PatchError(
            "internal",
            f"The order in patch list:\n{go_printed(patch)}\n doesn't match {_SET_ORDER} list:\n{go_printed(order)}\n",
        )


def _key_of(merge_key: str) -> Callable[[Any], Any]:
    """What identifies elements: their merge key, or their value."""

    def key(element: Any) -> Any:
        if not merge_key:
            return type(element), go_printed(element)
        if not isinstance(element, dict) or merge_key not in element:
            raise _no_merge_key(element, merge_key)
        value = element[merge_key]
        return (str, value) if type(value) is str else (type(value), go_printed(value))

    return key


def _no_merge_key(element: Any, merge_key: str) -> PatchError:
    return PatchError("internal", f"map: {go_printed(element)} does not contain declared merge key: {merge_key}")


def _check_types(live: list[Any], patch: list[Any]) -> None:
    types = {type(each) for each in (*live, *patch)}
    if list in types:
        raise PatchError("rejected", "lists of lists are not supported")
    if len(types) > 1 or type(None) in types:
        raise PatchError("internal", f"list element types are not identical: {go_printed([live, patch])}")
    if not types:
        raise PatchError("format", "no elements in any of the given slices")


def _merged_list(live: list[Any], patch: list[Any], field: Field) -> list[Any]:
    if not live and not patch:
        return live
    _check_types(live, patch)
    if not isinstance((live or patch)[0], dict):
        merged = list({(type(each), each): each for each in (*live, *patch)}.values())
        return _ordered(merged, patch, live, "")
    if not field.merge_key:
        go = field.type.item.go if field.type.item is not None else ""
        raise PatchError("format", f"cannot merge lists without merge key for {go}")
    live, elements = _with_element_directives(live, patch, field.merge_key)
    place, key = _below(field), _key_of(field.merge_key)
    merged = list(live)
    position = _positions(live, key)
    for element in elements:
        at = position.setdefault(key(element), len(merged))
        if at == len(merged):
            merged.append(element)  # unchanged, directives and nulls included
        else:
            merged[at] = _merged_map(merged[at], element, place)
    return _ordered(merged, elements, live, field.merge_key)


def _with_element_directives(live: list[Any], patch: list[Any], merge_key: str) -> tuple[list[Any], list[Any]]:
    """The live list after the `$patch` elements, and the elements that remain to merge."""
    elements: list[Any] = []
    deleted: set[bytes] = set()
    replacing = False
    for element in patch:
        directive = element.get(DIRECTIVE)
        if DIRECTIVE not in element:
            elements.append(element)
        elif directive == "delete":
            if merge_key not in element:
                raise _no_merge_key(element, merge_key)
            deleted.add(_identity(element[merge_key]))
        elif directive == "replace":
            replacing = True
        elif directive == "merge":
            raise PatchError("format", "merging lists cannot yet be specified in the patch")
        else:
            raise _bad_directive(directive, element)
    if replacing:
        return elements, []
    kept = [item for item in live if _identity(item.get(merge_key)) not in deleted] if deleted else live
    return kept, elements


def _ordered(merged: list[Any], named: list[Any], live: list[Any], merge_key: str) -> list[Any]:
    """Elements named by the patch in its order, the others in live order, merged as 05 B6 describes: a live-only
    element comes first only if both heads are live and it precedes the other there."""
    key = _key_of(merge_key)
    named_at = _positions(named, key)
    live_at = _positions(live, key)
    right = sorted((each for each in merged if key(each) in named_at), key=lambda each: named_at[key(each)])
    left = sorted(
        (each for each in merged if key(each) not in named_at), key=lambda each: live_at.get(key(each), len(live_at))
    )
    result: list[Any] = []
    left_at = right_at = 0
    while left_at < len(left) and right_at < len(right):
        first, second = live_at.get(key(left[left_at])), live_at.get(key(right[right_at]))
        if first is not None and second is not None and first < second:
            result.append(left[left_at])
            left_at += 1
        else:
            result.append(right[right_at])
            right_at += 1
    return result + left[left_at:] + right[right_at:]


def _identity(value: Any) -> bytes:
    """Equal for equal values of JSON, also for those that cannot be members of a set."""
    return msgspec.json.encode(value, order="deterministic")


def _positions(elements: list[Any], key: Callable[[Any], Any]) -> dict[Any, int]:
    positions: dict[Any, int] = {}
    for index, element in enumerate(elements):
        positions.setdefault(key(element), index)
    return positions
