"""Values while an expression is evaluated.

int, bool, str, bytes, float, None, list and dict stand for themselves; what Python has no type for is here. Equality is
CEL's: numbers compare across types, anything else of different types is unequal.
"""

from __future__ import annotations

from typing import Any

import msgspec

from plimsoll.rules.timestamps import NANOS, rfc3339


class EvaluationError(Exception):
    """An expression that has no value; `str()` is cel-go's message."""


class CostError(EvaluationError):
    """The evaluation costs more than it may."""

    def __init__(self) -> None:
        super().__init__("operation cancelled: actual cost limit exceeded")


class StoppedError(CostError):
    """The evaluation has taken longer than it may."""

    def __init__(self) -> None:
        EvaluationError.__init__(self, "operation interrupted")


class LongError(Exception):
    """The evaluation costs more than it may here; elsewhere it may succeed."""


class Uint(int):
    """An unsigned integer of 64 bits."""

    __slots__ = ()


class Timestamp(msgspec.Struct, frozen=True, order=True):
    nanos: int  # since 1970

    def __str__(self) -> str:
        seconds, nanos = divmod(self.nanos, NANOS)
        decimals = f".{nanos:09d}".rstrip("0") if nanos else ""
        return f"{rfc3339(seconds)[:-1]}{decimals}Z"


class Duration(msgspec.Struct, frozen=True, order=True):
    nanos: int

    def __str__(self) -> str:
        """As `string()` prints it: seconds, with the decimals that it has."""
        seconds, nanos = divmod(abs(self.nanos), NANOS)
        decimals = f".{nanos:09d}".rstrip("0") if nanos else ""
        return f"{'-' if self.nanos < 0 else ''}{seconds}{decimals}s"


class TypeValue(msgspec.Struct, frozen=True):
    """What `type(x)` gives."""

    name: str


class Optional(msgspec.Struct, frozen=True):
    """An optional value; `value` means nothing without `is_set`."""

    is_set: bool
    value: Any = None


NONE = Optional(False)


class Opaque(msgspec.Struct, frozen=True):
    """A value of one of Kubernetes' libraries: quantity, URL, IP, CIDR, semver, format."""

    kind: str
    value: Any


_NUMBERS = (int, float)


def is_number(value: Any) -> bool:
    return isinstance(value, _NUMBERS) and not isinstance(value, bool)


def equal(left: Any, right: Any) -> bool:
    if is_number(left) and is_number(right):
        return bool(left == right)
    if type(left) is not type(right):
        return False
    if isinstance(left, list):
        return len(left) == len(right) and all(equal(one, other) for one, other in zip(left, right, strict=True))
    if isinstance(left, dict):
        return len(left) == len(right) and all(key in right and equal(each, right[key]) for key, each in left.items())
    if isinstance(left, Optional):
        return left.is_set is right.is_set and (not left.is_set or equal(left.value, right.value))
    return bool(left == right)


_CLASSES: dict[type, str] = {
    bool: "bool",
    int: "int",
    Uint: "uint",
    float: "double",
    str: "string",
    bytes: "bytes",
    type(None): "null",
    list: "list",
    dict: "map",
    Timestamp: "timestamp",
    Duration: "duration",
    TypeValue: "type",
    Optional: "optional",
}
OPAQUE_NAMES = {
    "quantity": "kubernetes.Quantity",
    "url": "kubernetes.URL",
    "ip": "net.IP",
    "cidr": "net.CIDR",
    "semver": "kubernetes.Semver",
    "format": "kubernetes.NamedFormat",
    "authorizer": "kubernetes.authorization.Authorizer",
    "pathcheck": "kubernetes.authorization.PathCheck",
    "groupcheck": "kubernetes.authorization.GroupCheck",
    "resourcecheck": "kubernetes.authorization.ResourceCheck",
    "decision": "kubernetes.authorization.Decision",
}
_TYPE_NAMES = {
    **OPAQUE_NAMES,
    "null": "null_type",
    "timestamp": "google.protobuf.Timestamp",
    "duration": "google.protobuf.Duration",
    "optional": "optional_type",
}


def class_of(value: Any) -> str:
    """The name of its type in signatures of functions."""
    return value.kind if isinstance(value, Opaque) else _CLASSES[type(value)]


def type_name(value: Any) -> str:
    """The name of its type as `type(value)` shows it."""
    name = class_of(value)
    return _TYPE_NAMES.get(name, name)


def checked_int(value: int) -> int:
    if not -(2**63) <= value < 2**63:
        raise EvaluationError("integer overflow")
    return value


def checked_uint(value: int) -> Uint:
    if not 0 <= value < 2**64:
        raise EvaluationError("unsigned integer overflow")
    return Uint(value)


def checked_duration(nanos: int) -> Duration:
    if not -(2**63) <= nanos < 2**63:
        raise EvaluationError("integer overflow")
    return Duration(nanos)


def checked_time(nanos: int) -> Timestamp:
    if not -62_135_596_800 * NANOS <= nanos < 253_402_300_800 * NANOS:
        raise EvaluationError("timestamp overflow")
    return Timestamp(nanos)
