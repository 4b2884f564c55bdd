"""The schema as server-side apply sees it: scalars, maps and lists, each with one owner (atomic) or many."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any, Literal

import msgspec

from plimsoll.codec.patch.field_sets import element_by_keys, element_by_value
from plimsoll.codec.schema.schema import Field, SchemaKind, StructType, Type, struct

_SCALARS = {"string": "string", "bytes": "string", "bool": "boolean", "int32": "numeric", "int64": "numeric"}


class Shape(msgspec.Struct, frozen=True, eq=False):
    """`fields` are a struct's; a map has `item` instead. A list is a map by `keys`, a set, or atomic."""

    form: Literal["scalar", "map", "list", "any"]
    atomic: bool = False
    scalar: str = "untyped"
    fields: dict[str, Field] | None = None
    item: Type | None = None
    keys: tuple[str, ...] = ()
    known: dict[str, Shape] = msgspec.field(default_factory=dict)  # cached members

    def member(self, name: str) -> Shape | None:
        """The shape of a map's member; None if it is not in the schema."""
        if self.fields is None:
            return None if self.item is None else self.element()
        shape = self.known.get(name)
        if shape is None and name in self.fields:
            shape = self.known[name] = field_shape(self.fields[name])
        return shape

    def is_named(self, name: str) -> bool:
        return self.fields is not None and name in self.fields

    def element(self) -> Shape:
        shape = self.known.get("")
        if shape is None:
            shape = self.known[""] = ANY if self.item is None else type_shape(self.item)
        return shape

    def path_element(self, value: Any) -> str:
        """The path element of a list item; raises KeyError with the name of a missing key."""
        if not self.keys:
            return element_by_value(value)
        if len(self.keys) == 1 and type(value) is dict and type(key_value := value.get(self.keys[0])) is str:
            return _by_one_key(self.keys[0], key_value)
        keys = {}
        for key in self.keys:
            key_value = value.get(key) if isinstance(value, dict) else None
            if key_value is None:
                key_value = self._default(key)
            keys[key] = key_value
        return element_by_keys(keys)

    def _default(self, key: str) -> Any:
        fields = self.element().fields or {}
        default = fields[key].default if key in fields else ""
        if not default:
            raise KeyError(key)
        return default


@lru_cache(1024)
def _by_one_key(key: str, value: str) -> str:
    """Cached: most items have one name as their key, and few names are in use."""
    return element_by_keys({key: value})


ANY = Shape("any")


def root_shape(kind: SchemaKind) -> Shape:
    return _struct_shape(kind.root)


@cache
def _struct_shape(struct_type: StructType) -> Shape:
    return Shape("map", atomic=struct_type.atomic, fields=struct_type.fields)


@cache
def type_shape(kind: Type) -> Shape:
    if kind.form == "object":
        return _struct_shape(struct(kind.struct))
    if kind.form == "list":
        return Shape("list", atomic=True, item=kind.item)
    if kind.form == "map":
        return Shape("map", item=kind.item)
    if kind.form == "FieldsV1":
        return ANY
    return Shape("scalar", scalar=_SCALARS.get(kind.form, "untyped"))


@cache
def field_shape(field: Field) -> Shape:
    kind = field.type
    if kind.form == "list" and (field.keys or field.is_set):
        return Shape("list", item=kind.item, keys=field.keys)
    if kind.form == "map" and field.atomic:
        return Shape("map", atomic=True, item=kind.item)
    return type_shape(kind)
