"""Documents and JSON bytes → lean objects.

There are two decoders for the same object. `pod_from_json` is fast: msgspec decodes straight into the lean structs,
quantities through the memo. It does not accept JSON nulls or numbers as quantities, and reports only one error. If it
refuses, `from_document` decides: it walks a document by the field types of the structs, treats null as absent, reads a
number as the quantity text it was written with, and collects every error with its path.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from decimal import Decimal
from functools import cache
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import msgspec

from plimsoll.errors import FieldError, InvalidObjectError, InvalidQuantityError
from plimsoll.rules.model.objects import Lean, Pod
from plimsoll.rules.quantity import QUANTITIES, Quantity

T = TypeVar("T", bound=Lean)

_Problems = list[FieldError]
_Reader = Callable[[Any, str, _Problems], Any]


class NumberText(str):
    """A JSON number as written: `1.10` and `1.1` are the same number but not the same quantity text."""


def quantity_hook(kind: type, value: Any) -> Any:
    """msgspec also asks about `object`, a part that is not decoded: without it, no pod with a running container would
    be decoded fast."""
    return QUANTITIES[value] if kind is Quantity else value


@cache
def _pod_decode() -> Callable[[bytes | str], Pod]:
    """Created on first use: it takes milliseconds, and `explain` of a YAML file does not need it."""
    return msgspec.json.Decoder(Pod, dec_hook=quantity_hook).decode


def pod_from_json(data: bytes | str) -> Pod:
    """One Pod from JSON; raises InvalidObjectError with every error."""
    try:
        return _pod_decode()(data)
    except (msgspec.ValidationError, InvalidQuantityError):
        return from_document(json_document(data), Pod)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidObjectError([FieldError("FieldValueInvalid", "", f"not JSON: {error}")]) from None


def lean_pod(document: dict[str, Any]) -> Pod:
    """One Pod from a document, by the fast decoder if possible; raises InvalidObjectError with every error."""
    try:
        return msgspec.convert(document, Pod, dec_hook=quantity_hook)
    except (msgspec.ValidationError, InvalidQuantityError, RecursionError):
        return from_document(document, Pod)


def json_document(data: bytes | str) -> Any:
    """Parsed JSON whose numbers keep their text; raises InvalidObjectError if it is not JSON."""
    import json

    try:
        return json.loads(data, parse_int=NumberText, parse_float=NumberText, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise InvalidObjectError([FieldError("FieldValueInvalid", "", f"not JSON: {error}")]) from None


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def from_document(document: Any, kind: type[T], path: str = "") -> T:
    """A lean object from a document of JSON types; raises InvalidObjectError with every error, paths relative to
    `path`."""
    value, problems = read_as_far(document, kind, path)
    if problems:
        raise InvalidObjectError(problems)
    return value


def read_as_far(document: Any, kind: type[T], path: str = "") -> tuple[T, list[FieldError]]:
    """The object without its unreadable parts, and every error."""
    problems: _Problems = []
    value = _reader(kind)(document, path, problems)
    return (kind() if value is None else value), problems


def quantity_text(value: Any) -> str | None:
    """The text that Kubernetes would parse for this JSON value: a string, trimmed, or a number's own text."""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return str(value) if abs(value) < 10**30 else None
    if isinstance(value, float):
        return _go_float(value)
    return None


def _go_float(value: float) -> str:
    """A float as Go's JSON encoder prints it: plain digits between 1e-6 and 1e21, `1e-7` style outside."""
    if value == 0:
        return "0"
    if 1e-6 <= abs(value) < 1e21:
        return format(Decimal(repr(value)), "f").removesuffix(".0")
    mantissa, _, exponent = format(Decimal(repr(value)), "e").partition("e")
    power = int(exponent)
    return f"{mantissa}e{'+' if power > 0 else '-'}{abs(power)}"


@cache
def _reader(kind: Any) -> _Reader:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _struct_reader(kind)
    if kind is Quantity:
        return _read_quantity
    origin = get_origin(kind)
    if origin is Annotated:
        base, meta = get_args(kind)
        return _scalar_reader(base, meta.ge, meta.le)
    if origin is tuple:
        return _list_reader(get_args(kind)[0])
    if origin is dict:
        return _map_reader(get_args(kind)[1])
    if origin in (Union, types.UnionType):
        (inner,) = (arg for arg in get_args(kind) if arg is not type(None))
        return _reader(inner)
    if origin is Literal:
        return _choice_reader(get_args(kind))
    return _scalar_reader(kind)


def _struct_reader(kind: type[msgspec.Struct]) -> _Reader:
    fields = [(f.encode_name, f.name, f.type) for f in msgspec.structs.fields(kind)]

    def read(value: Any, path: str, problems: _Problems) -> Any:
        if not isinstance(value, dict):
            return _mistyped(value, path, "an object", problems)
        found = {}
        for wire, name, hint in fields:
            inner = value.get(wire)
            if inner is not None:
                read_value = _reader(hint)(inner, f"{path}.{wire}" if path else wire, problems)
                if read_value is not None:
                    found[name] = read_value
        return kind(**found)

    return read


def _list_reader(item: Any) -> _Reader:
    read_item = _reader(item)

    def read(value: Any, path: str, problems: _Problems) -> Any:
        if not isinstance(value, list):
            return _mistyped(value, path, "a list", problems)
        # A null element is the zero value of its type, as in Go; an unreadable one too, so that indexes stay.
        empty: Any = {} if isinstance(item, type) and issubclass(item, msgspec.Struct) else ""
        elements = []
        for index, inner in enumerate(value):
            element = read_item(empty if inner is None else inner, f"{path}[{index}]", problems)
            elements.append(read_item(empty, path, problems) if element is None else element)
        return tuple(elements)

    return read


def _map_reader(item: Any) -> _Reader:
    read_item = _reader(item) if item is not object else _keep

    def read(value: Any, path: str, problems: _Problems) -> Any:
        if not isinstance(value, dict):
            return _mistyped(value, path, "an object", problems)
        found = {}
        for key, inner in value.items():
            read_value = read_item("" if inner is None and item is str else inner, f"{path}[{key}]", problems)
            if read_value is not None or item is object:
                found[key] = read_value
        return found

    return read


def _keep(value: Any, path: str, problems: _Problems) -> Any:
    return value


def _read_quantity(value: Any, path: str, problems: _Problems) -> Quantity | None:
    if value is None:
        return Quantity(0, "")
    text = quantity_text(value)
    if text is None:
        problems.append(FieldError("FieldValueInvalid", path, "must be a quantity", _shown(value)))
        return None
    try:
        return QUANTITIES[text]
    except InvalidQuantityError as error:
        problems.append(FieldError("FieldValueInvalid", path, error.reason, text))
        return None


def _choice_reader(choices: tuple[str, ...]) -> _Reader:
    def read(value: Any, path: str, problems: _Problems) -> Any:
        if value == "":
            return None
        if value in choices:
            return value
        supported = ", ".join(f'"{choice}"' for choice in choices)
        problems.append(FieldError("FieldValueNotSupported", path, f"supported values: {supported}", _shown(value)))
        return None

    return read


def _scalar_reader(kind: Any, least: int = -(2**63), most: int = 2**63 - 1) -> _Reader:
    def read(value: Any, path: str, problems: _Problems) -> Any:
        if kind is int and isinstance(value, NumberText):
            value = _whole(value)
        # type(), not isinstance(): True is an int and a NumberText is a str in Python, and both must be refused.
        if type(value) is kind and (kind is not int or least <= value <= most):
            return value
        if type(value) is kind is int:
            return _mistyped(value, path, f"between {least} and {most}", problems)
        wanted = {str: "a string", int: "an integer", bool: "true or false"}[kind]
        return _mistyped(value, path, wanted, problems)

    return read


def _whole(text: NumberText) -> Any:
    return int(text) if text.lstrip("-").isdigit() and len(text) < 20 else text


def _mistyped(value: Any, path: str, wanted: str, problems: _Problems) -> None:
    problems.append(FieldError("FieldValueInvalid", path or "(document)", f"must be {wanted}", _shown(value)))


def _shown(value: Any) -> str:
    import json

    try:
        text = str(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    except RecursionError:
        text = "(too deep to show)"
    return text if len(text) <= 80 else text[:77] + "..."
