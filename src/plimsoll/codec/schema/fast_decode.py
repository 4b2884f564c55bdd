"""msgspec Structs built from the schema: the fast way to validate a document and put it into Go's order.

A field's default is Go's zero when printed: `omit_defaults` then drops exactly the zeros that Go drops (`omitempty`).
Pointers default to UNSET, so an explicit zero stays; fields that are always printed have a factory, whose values are
never dropped. What a Struct refuses (unknown fields, nulls, unusual times, wrong types) is decoded again by
`codec.schema.tolerant_decode`, which reports the errors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from plimsoll.codec.golang.times import CANONICAL
from plimsoll.codec.schema.schema import Field, SchemaKind, StructType, Type, struct
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.quantity import QUANTITIES, Quantity

_INT32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
_INT64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
_SCALARS: dict[str, Any] = {
    "string": str,
    "bool": bool,
    "int32": _INT32,
    "int64": _INT64,
    "bytes": Annotated[str, Meta(pattern="^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{2}==)?$")],
    "Quantity": Quantity,
    "IntOrString": _INT32 | str,
    "Time": Annotated[str, Meta(pattern=f"^{CANONICAL}Z$")],
    "MicroTime": Annotated[str, Meta(pattern=f"^{CANONICAL}\\.[0-9]{{6}}Z$")],
    "Duration": str,
    "FieldsV1": dict[str, Any],
    "JSON": Any,
}
_ZEROS: dict[str, Any] = {"string": "", "bool": False, "int32": 0, "int64": 0, "bytes": "", "Duration": "0s"}


def _quantity(_: type, value: Any) -> Quantity:
    if type(value) is str:
        return QUANTITIES[value]
    raise msgspec.ValidationError("a number: its text counts")


@cache
def _decoder(kind: SchemaKind) -> Callable[[bytes], Any]:
    return msgspec.json.Decoder(_struct_type(kind.root), dec_hook=_quantity).decode


def from_json(kind: SchemaKind, data: bytes) -> msgspec.Struct:
    """Raises msgspec.DecodeError (or ValidationError), InvalidQuantityError."""
    decoded: msgspec.Struct = _decoder(kind)(data)
    return decoded


def from_builtins(kind: SchemaKind, document: JsonObject) -> msgspec.Struct:
    """Raises msgspec.ValidationError, InvalidQuantityError."""
    converted: msgspec.Struct = msgspec.convert(document, _struct_type(kind.root), dec_hook=_quantity)
    return converted


def to_document(value: msgspec.Struct) -> JsonObject:
    document: JsonObject = msgspec.to_builtins(value, order="deterministic", enc_hook=str)
    return document


@cache
def _struct_type(struct_type: StructType) -> type[msgspec.Struct]:
    fields = [
        (f"f{index}", *_member(field))  # JSON names such as `default` or `Port` cannot be used in Python
        for index, field in enumerate(struct_type.fields.values())
    ]
    emptied = [
        f"f{index}"
        for index, field in enumerate(struct_type.fields.values())
        if field.always and field.type.form in ("list", "map")
    ]
    return msgspec.defstruct(
        struct_type.go_struct,
        fields,
        namespace={"__post_init__": _without_empty(emptied)} if emptied else None,
        kw_only=True,
        omit_defaults=True,
        forbid_unknown_fields=True,
        gc=False,
    )


def _without_empty(names: Sequence[str]) -> Callable[[msgspec.Struct], None]:
    """Kubernetes stores protobuf, which has no empty lists and maps: those that are always printed become null."""

    def without_empty(value: msgspec.Struct) -> None:
        for name in names:
            if not getattr(value, name):
                setattr(value, name, None)

    return without_empty


def _member(field: Field) -> tuple[Any, Any]:
    hint = _hint(field.type)
    form = field.type.form
    if form == "object":
        if field.always and not field.pointer:
            return hint, msgspec.field(name=field.name, default_factory=hint)
        return _optional(hint, field)
    if form == "list" and not field.pointer and not field.always:
        return hint, msgspec.field(name=field.name, default_factory=list)
    if form == "map" and not field.always:
        return hint, msgspec.field(name=field.name, default_factory=dict)
    if form in ("list", "map") and field.always:
        return hint | None, msgspec.field(name=field.name, default_factory=_nothing)
    if form in ("Time", "MicroTime") and not field.pointer:
        default = {"default_factory": _nothing} if field.always else {"default": None}
        return hint | None, msgspec.field(name=field.name, **default)
    if field.pointer or form in ("FieldsV1", "JSON", "list"):
        return _optional(hint, field)
    if form == "Quantity":
        return hint, msgspec.field(name=field.name, default_factory=lambda: QUANTITIES["0"])
    zero = _ZEROS.get(form, 0)
    if field.always:
        return hint, msgspec.field(name=field.name, default_factory=lambda: zero)
    return hint, msgspec.field(name=field.name, default=zero)


def _optional(hint: Any, field: Field) -> tuple[Any, Any]:
    if field.always:
        return hint | None, msgspec.field(name=field.name, default_factory=_nothing)
    return hint | UnsetType, msgspec.field(name=field.name, default=UNSET)


def _nothing() -> None:
    return None


def _hint(kind: Type) -> Any:
    if kind.form == "object":
        return _struct_type(struct(kind.struct))
    if kind.item is not None:
        item = _hint(kind.item)
        return list[item] if kind.form == "list" else dict[str, item]  # type: ignore[valid-type]
    return _SCALARS[kind.form]
