"""The cost of an expression before it is evaluated, as cel-go and Kubernetes' own functions estimate it.

A cost is an upper bound, and depends on the sizes of what is read: characters, members of a list or map, 1 for a
number. Sizes follow from the schema (`Type.longest`), from literals, or from the function that makes the value. They
are found by the path from `self`: what is not below it has the size of the first thing on its path that is known.

Factors: 0.1 for each character that is traversed, 0.25 for each character of a regular expression.
`self.matches('^[a-z]+$')` with maxLength 10, which counts four bytes a character: ⌈41 · 0.1⌉ · ⌈8 · 0.25⌉ = 10.

Source: github.com/google/cel-go checker/cost.go, k8s.io/apiserver pkg/cel/library/cost.go.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from plimsoll.codec.cel.types import Type

MOST = 2**64 - 1
IDENT = SELECT = CALL = 1
LIST, MAP, MESSAGE = 10, 30, 40
_TRAVERSAL, _REGEX = 0.1, 0.25
_CHECK = 350_000  # allows two authorization checks in an expression
_NAME_FORMAT = 64  # characters of the longest name of a format
_NAME_FORMAT_REGEX = 128  # characters of the longest regular expression of a named format
_SCALARS = frozenset(["bool", "double", "duration", "int", "timestamp", "uint"])
_TEXTS = frozenset(["string", "bytes"])
# Kubernetes compares values of these types in constant time.
_CONSTANT_EQUALITY = frozenset(
    ["ip", "cidr", "quantity", "semver", "authorizer", "pathcheck", "groupcheck", "resourcecheck", "decision"]
)


Path = tuple[str, ...]


class Size(msgspec.Struct, frozen=True):
    least: int
    most: int

    def __add__(self, other: Size) -> Size:
        return Size(added(self.least, other.least), added(self.most, other.most))

    def times(self, other: Size) -> Size:
        return Size(multiplied(self.least, other.least), multiplied(self.most, other.most))

    def union(self, other: Size) -> Size:
        return Size(min(self.least, other.least), max(self.most, other.most))


ONE, UNKNOWN = Size(1, 1), Size(0, MOST)


class Estimate(msgspec.Struct, frozen=True):
    """Of a value: its type, what it costs, and its size if that does not follow from path and type."""

    type: Type
    cost: int
    size: Size | None = None
    path: Path = ()
    member: Size | None = None  # of each value in a list or map that an expression makes


def both(one: Size | None, other: Size | None) -> Size | None:
    return None if one is None or other is None else one.union(other)


def added(*amounts: int) -> int:
    return min(sum(amounts), MOST)


def multiplied(one: int, other: int) -> int:
    return min(one * other, MOST)


def scaled(amount: int, factor: float) -> int:
    return min(math.ceil(float(amount) * factor), MOST)


def traversed(size: Size) -> int:
    return scaled(size.most, _TRAVERSAL)


def size_of(value: Estimate, root: Type | None) -> Size:
    """`root`: the type of `self`."""
    if value.size is not None:
        return value.size
    if value.path and root is not None and (found := _at(root, value.path[1:])) is not None:
        return Size(0, found.longest or 0)
    return ONE if _is_scalar(value.type) else UNKNOWN


def _at(type_: Type, path: Path) -> Type | None:
    for name in path:
        found: Type | None = None
        if name in ("@items", "@values", "@keys"):
            if type_.params:
                found = type_.params[0 if name == "@keys" else -1]
        elif type_.fields is not None:
            found = type_.fields(name)
        if found is None:
            return None
        type_ = found
    return type_


def _is_scalar(type_: Type) -> bool:
    if type_.name == "optional" and type_.params:
        return _is_scalar(type_.params[0])
    return type_.name in _SCALARS


def call_estimate(
    name: str,
    args: Sequence[Estimate],
    sizes: Sequence[Size],
    *,
    is_method: bool,
    literals: Sequence[int | None],
    root: Type | None = None,
) -> tuple[int, Size | None]:
    """What a call costs beside its arguments, and the size of its result. With `is_method` the target is the first of
    them. `literals`: the arguments that are whole numbers in the text, None for each other one. `root`: as of
    `size_of`."""
    kinds = [each.type.name for each in args]
    first = sizes[0] if sizes else UNKNOWN
    match name:
        case "check":
            return _CHECK, None
        case "fieldSelector" | "labelSelector":
            requirements = scaled(sizes[1].most, 0.5)  # the shortest one is `k,`
            return added(LIST, traversed(sizes[1]), scaled(requirements, LIST + MESSAGE)), None
        case "matches" if is_method:  # matches(text, pattern) has the cost of any call
            return _matched(first, sizes[1]), None
        case "find" | "findAll":
            return _matched(first, sizes[1]), Size(0, first.most)
        case "contains":
            return multiplied(traversed(first), traversed(sizes[1])), None
        case "startsWith" | "endsWith":
            return traversed(sizes[1]), None
        case "format":
            return traversed(first), None
        case "@in":
            return (sizes[1].most if kinds[1] == "list" else max(sizes[1].most, 1) if kinds[1] == "dyn" else 1), None
        case "_==_" if kinds[0] == kinds[1] and kinds[0] in _CONSTANT_EQUALITY:
            return 1, None
        case "_==_" if kinds == ["url", "url"]:
            return 1 if args[1].size is None else traversed(sizes[1]), None
        case "_==_" if kinds == ["format", "format"]:
            return scaled(_NAME_FORMAT, _TRAVERSAL), None
        case "_==_" | "_!=_":
            return scaled(min(each.most for each in sizes), _TRAVERSAL), None
        case "_<_" | "_<=_" | "_>_" | "_>=_":
            if set(kinds) <= _TEXTS:
                return scaled(min(each.most for each in sizes), _TRAVERSAL), None
            return 1, None
        case "_+_":
            return _added(kinds, sizes)
        case "isSorted" | "sum" | "min" | "max" | "indexOf" | "lastIndexOf" if is_method:
            return _searched(args[0], first, root), None
        case "url" | "jsonpatch.escapeKey" | "lowerAscii" | "upperAscii" | "substring" | "trim":
            return traversed(first), first
        case "replace":
            return scaled(first.most, 2 * _TRAVERSAL), _replaced(first, sizes[1], sizes[2])
        case "split":
            limit = literals[2] if len(literals) > 2 else None
            return scaled(first.most, 2 * _TRAVERSAL), Size(0, first.most if limit is None else limit % (MOST + 1))
        case "join":
            separator = sizes[1] if len(sizes) > 1 else Size(0, 0)
            joined = _joined(first, _member_size(args[0], root), separator)
            return traversed(joined), joined
        case "cidr" | "isIP" | "isCIDR" | "quantity" | "isQuantity" | "semver" | "isSemver":
            return traversed(first), None
        case "ip" if not is_method:
            return traversed(first), None
        case "ip.isCanonical":
            return scaled(first.most, 2 * _TRAVERSAL), None
        case "containsIP" | "containsCIDR":
            parsed = traversed(sizes[1]) if kinds[1] in ("string", "dyn") else 0
            return scaled(32, _TRAVERSAL) + parsed + (scaled(16, _TRAVERSAL) + 1 if name == "containsCIDR" else 0), None
        case "sets.contains" | "sets.intersects":
            return added(sizes[0].times(sizes[1]).most, CALL), None
        case "sets.equivalent":
            return added(multiplied(sizes[0].times(sizes[1]).most, 2), CALL), None
        case "slice" | "lists.range" | "reverse" | "flatten" | "distinct" | "sort":
            return _listed(name, args, sizes, literals)
        case "validate":
            return scaled(traversed(sizes[1]), _NAME_FORMAT_REGEX * _REGEX), None
        case "bytes" if kinds[0] in ("string", "dyn"):
            return max(traversed(first), CALL if kinds[0] == "dyn" else 0), Size(
                first.least, first.most * 4 & MOST
            )  # overflows, as in Go
        case "string" if kinds[0] in ("bytes", "dyn"):
            return max(traversed(first), CALL if kinds[0] == "dyn" else 0), Size(first.least // 4, first.most)
        case "strings.quote":
            return traversed(first), Size(first.least + 2, first.most * 2 + 2 & MOST)
    return CALL, None


def _matched(text: Size, pattern: Size) -> int:
    """An empty text counts as one character: the pattern may be costly."""
    return multiplied(traversed(text + ONE), scaled(pattern.most, _REGEX))


def _added(kinds: Sequence[str], sizes: Sequence[Size]) -> tuple[int, Size | None]:
    if len(sizes) != 2 or ("dyn" not in kinds and kinds[0] not in (*_TEXTS, "list")):
        return CALL, None
    result = sizes[0] + sizes[1]
    return (1 if kinds == ["list", "list"] else max(traversed(result), 1 if "dyn" in kinds else 0)), result


def _member_size(target: Estimate, root: Type | None) -> Size:
    """Of each member of a list: by the schema, if the list has a path."""
    if not target.path:
        return UNKNOWN
    return size_of(Estimate(target.type.params[0], 0, path=(*target.path, "@items")), root)


def _searched(target: Estimate, size: Size, root: Type | None) -> int:
    """One for each member, and the characters of its texts."""
    if not target.type.params:
        return traversed(size)
    if target.type.params[0].name not in _TEXTS:
        return size.most
    return multiplied(size.most, added(1, traversed(_member_size(target, root))))


def _joined(size: Size, member: Size, separator: Size) -> Size:
    between = Size(max(size.least - 1, 0), max(size.most - 1, 0))
    return size.times(member) + separator.times(between)


def _listed(
    name: str, args: Sequence[Estimate], sizes: Sequence[Size], literals: Sequence[int | None]
) -> tuple[int, Size]:
    """A call that makes a list: its members or, to compare all with each other, their square."""
    factor, size = 1.0, sizes[0]
    if name == "slice":
        begin = literals[1] or 0
        end = size.most if literals[2] is None else literals[2]
        size = Size(max(end - begin, 0), max(end - begin, 0))
    elif name == "lists.range":
        count = MOST if literals[0] is None else max(literals[0], 0)
        size = Size(count, count)
    elif name == "flatten" and len(args) > 1:
        factor = float(MOST if literals[1] is None else literals[1])
    elif name in ("distinct", "sort"):
        texts = name == "sort" and bool(args[0].type.params) and args[0].type.params[0].name in (*_TEXTS, "dyn")
        factor, size = 2.0 + (_TRAVERSAL if texts else 0), size.times(size)
    return added(scaled(size.most, factor), CALL, LIST), size


def _replaced(text: Size, old: Size, new: Size) -> Size:
    """The shortest and the longest result."""
    return Size(
        _replaced_length(text.least, old.most, new.least, stays=old.most <= new.least),
        _replaced_length(text.most, old.least, new.most, stays=new.most <= old.least),
    )


def _replaced_length(text: int, old: int, new: int, *, stays: bool) -> int:
    """`stays`: no replacement makes it more extreme. An empty old text is found around each character."""
    if old == 0:
        return added(multiplied(added(text, 1), new), text)
    return text if stays else multiplied(math.ceil(text / old), new)


# --- macros: what a loop costs for each member, and besides (the accumulator is one identifier) ---

# op → cost of each member beside the predicate or body, cost of the rest
_EACH: dict[str, tuple[int, int]] = {
    "all": (3, 1),  # @not_strictly_false(r); r && p; r
    "exists": (4, 1),  # @not_strictly_false(!r); r || p; r
    "existsOne": (2, 2),  # p ? r + 1 : r; r == 1
    "filter": (13, LIST + 1),  # p ? r + [x] : r
    "map": (12, LIST + 1),  # r + [f]
    "transformList": (12, LIST + 1),
    "transformMap": (3, MAP + 1),  # @mapInsert(r, k, f)
    "transformMapEntry": (2, MAP + 1),  # @mapInsert(r, e)
}


def fold_cost(op: str, count: int, where: int | None, body: int) -> int:
    """`where`: of the filter of a map or transform."""
    each, rest = _EACH[op]
    step = added(body, each)
    if where is not None:
        step = added(where, max(step, IDENT))  # p ? step : r
    return added(rest, multiplied(count, step))


def optional_map_cost(target: int, body: int, *, is_flat: bool) -> int:
    """t.hasValue() ? optional.of(cel.bind(x, t.value(), body)) : optional.none()"""
    asked = added(target, CALL)
    return added(asked, max(added(LIST, asked, body, 0 if is_flat else CALL), CALL))


def sort_by_estimate(target: int, count: Size, key: Estimate) -> tuple[int, Size]:
    """cel.bind(l, target, l.@sortByAssociatedKeys(l.map(x, key)))"""
    keys = Estimate(Type("list", (key.type,)), 0)
    spent, size = _listed("sort", [keys], [count], [])
    return added(LIST, target, IDENT, IDENT, fold_cost("map", count.most, None, key.cost), spent), size
