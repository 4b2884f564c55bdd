"""The schema as server-side apply sees it: scalars, maps and lists, each with one owner (atomic) or many."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any, Literal

import msgspec

from plimsoll.codec.patch.field_sets import element_by_keys, element_by_value
from plimsoll.codec.schema.custom import CustomKind, is_preserved, item_schema
from plimsoll.codec.schema.schema import Field, SchemaKind, StructType, Type, struct
from plimsoll.rules.admission.custom_resources.extensions import EMBEDDED, INT_OR_STRING
from plimsoll.rules.model.json_object import JsonObject

_SCALARS = {"string": "string", "bytes": "string", "bool": "boolean", "int32": "numeric", "int64": "numeric"}


class Shape(msgspec.Struct, frozen=True, eq=False):
    """`fields` are a struct's; a map has `item` instead. A list is a map by `keys`, a set, or atomic."""

    form: Literal["scalar", "map", "list", "any"]
    atomic: bool = False
    scalar: str = "untyped"
    fields: dict[str, Field] | None = None
    item: Type | None = None
    keys: tuple[str, ...] = ()
    deduced: bool = False  # no schema: maps are merged, everything else has one owner
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
    if isinstance(kind, CustomKind):
        shape: Shape | None = kind.known.get("shape")
        if shape is None:
            shape = kind.known["shape"] = structural_shape(kind.schema, is_resource=True)
        return shape
    return _struct_shape(kind.root)


class StructuralShape(Shape, frozen=True, eq=False):
    """By the schema of a custom kind: `named` are its properties, `others` any further member."""

    named: dict[str, Shape] = {}
    others: Shape | None = None
    elements: Shape | None = None
    defaults: dict[str, Any] = {}

    def member(self, name: str) -> Shape | None:
        return self.named.get(name, DEDUCED if self.deduced else self.others)

    def is_named(self, name: str) -> bool:
        return name in self.named

    def element(self) -> Shape:
        return self.elements or ANY

    def _default(self, key: str) -> Any:
        element = self.element()
        if not isinstance(element, StructuralShape) or key not in element.defaults:
            raise KeyError(key)
        return element.defaults[key]


DEDUCED = StructuralShape("map", deduced=True)
_STRUCTURAL_SCALARS = {"string": "string", "boolean": "boolean", "integer": "numeric", "number": "numeric"}


def structural_shape(schema: JsonObject, *, is_resource: bool = False) -> Shape:
    """Lists are atomic unless the schema gives them keys or makes them sets."""
    kind = schema.get("type")
    if kind == "array":
        type_ = schema.get("x-kubernetes-list-type") or "atomic"
        keys = tuple(schema.get("x-kubernetes-list-map-keys") or ()) if type_ == "map" else ()
        element = structural_shape(schema.get("items") or {})
        return StructuralShape("list", atomic=type_ == "atomic", keys=keys, elements=element)
    if schema.get(INT_OR_STRING) or kind in _STRUCTURAL_SCALARS:
        return Shape("scalar", scalar=_STRUCTURAL_SCALARS.get(str(kind), "untyped"))
    properties = schema.get("properties") or {}
    named = {name: structural_shape(inner) for name, inner in properties.items()}
    if is_resource or schema.get(EMBEDDED):
        scalar = Shape("scalar", scalar="string")
        named |= {"apiVersion": scalar, "kind": scalar, "metadata": _struct_shape(struct("meta.ObjectMeta"))}
    items = item_schema(schema)
    others = None if items is None else structural_shape(items)
    if is_preserved(schema):
        others = DEDUCED
        if not named:
            return DEDUCED
    if kind is None and not named and others is None:
        return ANY
    defaults = {name: inner["default"] for name, inner in properties.items() if "default" in inner}
    is_atomic = schema.get("x-kubernetes-map-type") == "atomic"
    return StructuralShape("map", atomic=is_atomic, named=named, others=others, defaults=defaults)


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
    if kind.form in ("FieldsV1", "JSON"):
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
