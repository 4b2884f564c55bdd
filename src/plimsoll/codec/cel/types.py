"""Static types, read from short texts: `string`, `list<int>`, `map<string, A>` with A as a type parameter."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

import msgspec

from plimsoll.codec.cel.values import OPAQUE_NAMES


class Type(msgspec.Struct, frozen=True, eq=False):
    """`fields` gives the fields of an object: it is called with a name and returns their type, or None."""

    name: str
    params: tuple[Type, ...] = ()
    fields: Callable[[str], Type | None] | None = None
    shown: str = ""
    longest: int | None = None  # of texts, lists and maps in a schema: how much they may contain

    def __str__(self) -> str:
        if self.shown:
            return self.shown
        name = _SHOWN.get(self.name, self.name)
        return f"{name}({', '.join(map(str, self.params))})" if self.params else name


_SHOWN = {
    **OPAQUE_NAMES,
    "null": "null",
    "timestamp": "timestamp",
    "duration": "duration",
    "optional": "optional_type",
}
_OPAQUE = frozenset(_SHOWN) - {"null"}

DYN, BOOL, INT, UINT, DOUBLE, STRING, BYTES, NULL, TIMESTAMP, DURATION = (
    Type(name) for name in ("dyn", "bool", "int", "uint", "double", "string", "bytes", "null", "timestamp", "duration")
)
_SIMPLE = {each.name: each for each in (DYN, BOOL, INT, UINT, DOUBLE, STRING, BYTES, NULL, TIMESTAMP, DURATION)}


def list_of(member: Type, longest: int | None = None) -> Type:
    return Type("list", (member,), longest=longest)


def map_of(key: Type, value: Type, longest: int | None = None) -> Type:
    return Type("map", (key, value), longest=longest)


@lru_cache(None)
def read_type(text: str) -> Type:
    found, rest = _read(text.replace(" ", ""))
    assert not rest, text
    return found


def _read(text: str) -> tuple[Type, str]:
    match = re.match(r"[A-Za-z]+", text)
    assert match is not None, text
    name, rest = match[0], text[match.end() :]
    params = []
    if rest.startswith("<"):
        while rest[0] in "<,":
            param, rest = _read(rest[1:])
            params.append(param)
        rest = rest[1:]
    return (_SIMPLE.get(name) or Type(name, tuple(params))), rest


def is_parameter(type_: Type) -> bool:
    return len(type_.name) == 1


def fits(wanted: Type, given: Type, bound: dict[str, Type]) -> bool:
    """Whether an argument of one type can be given for a parameter; binds type parameters."""
    if is_parameter(wanted):
        known = bound.get(wanted.name)
        if known is None or known.name == "dyn":
            bound[wanted.name] = given if known is None else known
            return True
        if fits(known, given, {}):
            return True
        if fits(given, known, {}):
            bound[wanted.name] = given
            return True
        return False
    if "dyn" in (wanted.name, given.name):
        return True
    if given.name == "null":
        return wanted.name in ("null", "object") or wanted.name in _OPAQUE
    if wanted.name == "null":
        return given.name == "object" or given.name in _OPAQUE
    if wanted.name != given.name:
        return False
    if wanted.name == "object":
        return wanted is given or wanted.shown == given.shown
    return all(fits(one, other, bound) for one, other in zip(wanted.params, given.params, strict=False))


def filled(type_: Type, bound: dict[str, Type]) -> Type:
    """A result type with its parameters replaced."""
    if is_parameter(type_):
        return bound.get(type_.name, DYN)
    if not type_.params:
        return type_
    return Type(type_.name, tuple(filled(each, bound) for each in type_.params))


def joined(types: list[Type]) -> Type:
    """Of the members of a list: theirs, or dyn if they differ."""
    if not types:
        return DYN
    first = types[0]
    return first if all(fits(first, each, {}) and each.name == first.name for each in types) else DYN
