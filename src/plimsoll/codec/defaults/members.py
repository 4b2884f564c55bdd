"""Members that a document lacks, inserted in Go's field order."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from plimsoll.codec.schema.schema import struct
from plimsoll.rules.model.json_object import JsonObject


def put(name: str, document: JsonObject, defaults: JsonObject) -> JsonObject:
    """The document of a struct (by its name in the tables) with the members that it lacks; itself, if it lacks none."""
    missing = {field: value for field, value in defaults.items() if document.get(field) is None}
    return in_go_order(name, {**document, **missing}) if missing else document


def in_go_order(name: str, document: JsonObject) -> JsonObject:
    """Known members in Go's order, then the others."""
    return {each: document[each] for each in sorted(document, key=_place_in(name))}


class _Places(dict[str, int]):
    def __missing__(self, _: str) -> int:
        return len(self)


@cache
def _place_in(name: str) -> Callable[[str], int]:
    return _Places((field, place) for place, field in enumerate(struct(name).fields)).__getitem__
