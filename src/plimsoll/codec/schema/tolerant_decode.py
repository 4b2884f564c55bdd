"""A document against the schema, field by field, as Go's JSON decoder does it.

It reports the errors that the fast decoder only detects. Go continues after a wrong type and returns the first one; a
text that a type parses itself (quantities, times) stops it immediately and takes precedence. Unknown and duplicate
fields are recorded in the document's order; unknown ones are kept, at the end of their object.

Objects are dicts, or `Members`: the pairs of a JSON text with all duplicates.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any

from plimsoll.codec.golang.times import ZERO, ZERO_MICRO, TimeError, utc_micro_time, utc_time
from plimsoll.codec.lean.lean import NumberText, quantity_text
from plimsoll.codec.schema.schema import Field, SchemaKind, StructType, Type, struct
from plimsoll.errors import InvalidQuantityError
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.quantity import FORMAT_ERROR, QUANTITIES

MAX_PROBLEMS = 100  # of one document; Go stops there, too
_INTEGER = re.compile(r"-?(0|[1-9][0-9]*)")
_BOUNDS = {"int32": 2**31, "int64": 2**63}
_LONGEST_INTEGER = 20  # characters of an int64
_KEPT = ("object", "FieldsV1", "JSON")  # never empty to Go: pointers
_ZEROS: tuple[Any, ...] = ("", 0, False, [], {})
_ZERO_TIMES = (ZERO, ZERO_MICRO)
_ABSENT = object()
_UNREADABLE = object()


class Members(list[tuple[str, Any]]):
    """An object of a JSON text: its pairs as written."""


class DecodeStoppedError(Exception):
    """A text that its type cannot parse; `str()` is Go's message."""


class Walk:
    """The state of one document; `error` is the first wrong type."""

    def __init__(self) -> None:
        self.problems: dict[str, None] = {}
        self.error = ""

    def document(self, kind: SchemaKind, value: Any) -> JsonObject:
        found = self._object(kind.root, value, "", "")
        return found if isinstance(found, dict) else {}

    def _mistyped(self, value: Any, owner: str, path: str, go: str, text: str = "") -> Any:
        self.error = self.error or _wrong_type(value, owner, path, go, text)
        return _UNREADABLE

    def _note(self, what: str, at: str) -> None:
        if len(self.problems) < MAX_PROBLEMS:
            self.problems[f'{what} field "{at}"'] = None

    def _object(self, kind: StructType, value: Any, at: str, path: str, owner: str = "") -> Any:
        if not isinstance(value, (dict, Members)):
            return self._mistyped(value, owner, path, kind.go)
        fields = kind.fields
        found: JsonObject = {}
        unknown: JsonObject = {}
        seen: set[str] = set()
        for name, member in value.items() if isinstance(value, dict) else value:
            here = f"{at}.{name}" if at else name
            if name in seen:
                self._note("duplicate", here)
            seen.add(name)
            field = fields.get(name)
            if field is None:
                self._note("unknown", here)
                unknown[name] = plain(member)
                continue
            below = f"{path}.{name}" if path else name
            found[name] = self._value(field.type, member, here, below, kind.go_struct)
        return {**_printed(fields, found), **unknown}

    def _value(self, kind: Type, value: Any, at: str, path: str, owner: str) -> Any:
        if value is None:
            return _ABSENT
        form = kind.form
        if form == "string":
            return value if type(value) is str else self._mistyped(value, owner, path, kind.go)
        if form == "object":
            return self._object(struct(kind.struct), value, at, path, owner)
        if form == "list":
            return self._list(kind, value, at, path, owner)
        if form == "map":
            return self._map(kind, value, at, path, owner)
        if form in _BOUNDS:
            return self._integer(kind, value, path, owner)
        if form == "bool":
            return value if type(value) is bool else self._mistyped(value, owner, path, kind.go)
        return self._parsed(kind, value, path, owner)

    def _integer(self, kind: Type, value: Any, path: str, owner: str) -> Any:
        number = _whole(value, kind.form)
        return self._mistyped(value, owner, path, kind.go, _number_name(value)) if number is None else number

    def _list(self, kind: Type, value: Any, at: str, path: str, owner: str) -> Any:
        if not isinstance(value, list) or isinstance(value, Members):
            return self._mistyped(value, owner, path, kind.go)
        item = kind.item
        assert item is not None
        return [
            _element(item, self._value(item, member, f"{at}[{index}]", path, owner))
            for index, member in enumerate(value)
        ]

    def _map(self, kind: Type, value: Any, at: str, path: str, owner: str) -> Any:
        if not isinstance(value, (dict, Members)):
            return self._mistyped(value, owner, path, kind.go)
        item = kind.item
        assert item is not None
        found: JsonObject = {}
        for name, member in value.items() if isinstance(value, dict) else value:
            if name in found:
                self._note("duplicate", f"{at}.{name}")
            found[name] = _element(item, self._value(item, member, f"{at}.{name}", path, owner))
        return dict(sorted(found.items()))

    def _parsed(self, kind: Type, value: Any, path: str, owner: str) -> Any:
        """Types that parse their text themselves."""
        form = kind.form
        if form == "Quantity":
            return _quantity(value)
        if form in ("FieldsV1", "JSON"):
            return plain(value)
        if form == "IntOrString":
            if type(value) is str:
                return value
            number = _whole(value, "int32")
            if number is None:
                raise DecodeStoppedError(_wrong_type(value, owner, path, kind.go, _number_name(value)))
            return number
        if form == "bytes":
            return self._bytes(value) if type(value) is str else self._mistyped(value, owner, path, "[]uint8")
        if type(value) is not str:
            raise DecodeStoppedError(_wrong_type(value, owner, path, kind.go))
        if form == "Duration":
            return value
        try:
            return utc_time(value) if form == "Time" else utc_micro_time(value)
        except TimeError as error:
            raise DecodeStoppedError(str(error)) from None

    def _bytes(self, value: str) -> Any:
        try:
            base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            self.error = self.error or f"illegal base64 data at input byte {_bad_base64(value)}"
        return value


def _wrong_type(value: Any, owner: str, path: str, go: str, text: str = "") -> str:
    where = f"struct field {owner}.{path}" if path else "value"
    return f"json: cannot unmarshal {text or json_name(value)} into Go {where} of type {go}"


def _whole(value: Any, form: str) -> int | None:
    """The integer value of a JSON number, if it is an integer of this size: 5.0 is not."""
    if not _is_number(value):
        return None
    text = _number_text(value)
    bound = _BOUNDS[form]
    if len(text) <= _LONGEST_INTEGER and _INTEGER.fullmatch(text) and -bound <= int(text) < bound:
        return int(text)
    return None


def _number_text(value: Any) -> str:
    return str(value) if isinstance(value, NumberText) else quantity_text(value) or repr(value)


def _number_name(value: Any) -> str:
    return f"number {_number_text(value)}" if _is_number(value) else ""


def _quantity(value: Any) -> str:
    text = quantity_text(value)
    if text is None:
        raise DecodeStoppedError(FORMAT_ERROR)
    try:
        return str(QUANTITIES[text])
    except InvalidQuantityError as error:
        raise DecodeStoppedError(error.reason) from None


def _bad_base64(value: str) -> int:
    good = re.match(r"(?:[A-Za-z0-9+/]{4})*", value)
    start = good.end() if good else 0
    rest = re.match(r"[A-Za-z0-9+/]*", value[start:])
    return start + (rest.end() if rest else 0)


def _printed(fields: dict[str, Field], found: JsonObject) -> JsonObject:
    """The members of an object that Go prints, in its order."""
    printed: JsonObject = {}
    for name, field in fields.items():
        value = found.get(name, _ABSENT)
        if value is _ABSENT or value is _UNREADABLE:
            if field.always:
                printed[name] = _zero(field)
        elif value in _ZERO_TIMES and field.type.form in ("Time", "MicroTime"):
            if field.always:
                printed[name] = None
        elif field.always and field.type.form in ("list", "map") and not value:
            printed[name] = None  # Kubernetes stores protobuf, which has no empty lists and maps
        elif field.always or field.pointer or field.type.form in _KEPT or value not in _ZEROS:
            printed[name] = value
    return printed


def _zero(field: Field) -> Any:
    form = field.type.form
    if field.pointer or form in ("list", "map", "Time", "MicroTime"):
        return None
    return _zero_value(field.type)


def _zero_value(kind: Type) -> Any:
    """Go's zero of a type, as printed in a list or map."""
    form = kind.form
    if form == "object":
        return _printed(struct(kind.struct).fields, {})
    if form == "Quantity":
        return "0"
    return {"string": "", "bytes": "", "bool": False, "Duration": "0s"}.get(form, 0 if "nt" in form else None)


def _element(kind: Type, value: Any) -> Any:
    return _zero_value(kind) if value is _ABSENT or value is _UNREADABLE else value


def _is_number(value: Any) -> bool:
    return isinstance(value, (NumberText, int, float)) and not isinstance(value, bool)


def _json_number(text: NumberText) -> int | float:
    """An integer if it has at most 64 bits, as in Go."""
    if len(text) <= _LONGEST_INTEGER and _INTEGER.fullmatch(text) and -(2**63) <= int(text) < 2**63:
        return int(text)
    return float(text)


def json_name(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if _is_number(value):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) and not isinstance(value, Members) else "object"


def plain(value: Any) -> Any:
    """A value without `Members` and number texts, for parts that are not in the schema."""
    if isinstance(value, Members):
        return {name: plain(member) for name, member in value}
    if isinstance(value, list):
        return [plain(member) for member in value]
    if isinstance(value, dict):
        return {name: plain(member) for name, member in value.items()}
    if isinstance(value, NumberText):
        return _json_number(value)
    return value
