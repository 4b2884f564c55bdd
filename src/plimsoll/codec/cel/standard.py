"""The standard functions: operators, conversions, sizes, times and durations."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

from plimsoll.codec.cel.overloads import list_cost, overload, text_cost
from plimsoll.codec.cel.values import (
    NONE,
    Duration,
    EvaluationError,
    Optional,
    Timestamp,
    TypeValue,
    Uint,
    checked_duration,
    checked_int,
    checked_time,
    checked_uint,
    equal,
    type_name,
)
from plimsoll.codec.golang.fmt import go_printed
from plimsoll.errors import PlimsollError
from plimsoll.rules.gotext import duration_nanos
from plimsoll.rules.timestamps import NANOS, unix_nanos

# --- arithmetic ---


@overload("_+_(int, int) int")
def _add(left: int, right: int) -> int:
    return checked_int(left + right)


@overload("_-_(int, int) int")
def _subtract(left: int, right: int) -> int:
    return checked_int(left - right)


@overload("_*_(int, int) int")
def _multiply(left: int, right: int) -> int:
    return checked_int(left * right)


@overload("_/_(int, int) int")
def _divide(left: int, right: int) -> int:
    if not right:
        raise EvaluationError("division by zero")
    found = abs(left) // abs(right)  # towards zero, as in Go
    return checked_int(found if (left < 0) == (right < 0) else -found)


@overload("_%_(int, int) int")
def _remainder(left: int, right: int) -> int:
    if not right:
        raise EvaluationError("modulus by zero")
    return int(math.fmod(left, right)) if abs(left) < 2**53 else (abs(left) % abs(right)) * (-1 if left < 0 else 1)


@overload("_+_(uint, uint) uint")
def _add_uint(left: int, right: int) -> Uint:
    return checked_uint(left + right)


@overload("_-_(uint, uint) uint")
def _subtract_uint(left: int, right: int) -> Uint:
    return checked_uint(left - right)


@overload("_*_(uint, uint) uint")
def _multiply_uint(left: int, right: int) -> Uint:
    return checked_uint(left * right)


@overload("_/_(uint, uint) uint")
def _divide_uint(left: int, right: int) -> Uint:
    if not right:
        raise EvaluationError("division by zero")
    return Uint(int(left) // int(right))


@overload("_%_(uint, uint) uint")
def _remainder_uint(left: int, right: int) -> Uint:
    if not right:
        raise EvaluationError("modulus by zero")
    return Uint(int(left) % int(right))


@overload("_+_(double, double) double")
def _add_double(left: float, right: float) -> float:
    return left + right


@overload("_-_(double, double) double")
def _subtract_double(left: float, right: float) -> float:
    return left - right


@overload("_*_(double, double) double")
def _multiply_double(left: float, right: float) -> float:
    return left * right


@overload("_/_(double, double) double")
def _divide_double(left: float, right: float) -> float:
    if right:
        return left / right
    return math.nan if not left or math.isnan(left) else math.copysign(math.inf, left) * math.copysign(1, right)


@overload("_+_(string, string) string", "_+_(bytes, bytes) bytes", cost=text_cost)
def _join(left: Any, right: Any) -> Any:
    return left + right


@overload("_+_(list<A>, list<A>) list<A>", cost=list_cost)
def _concatenate(left: list[Any], right: list[Any]) -> list[Any]:
    return left + right


@overload("_+_(timestamp, duration) timestamp", "_+_(duration, timestamp) timestamp")
def _later(left: Any, right: Any) -> Timestamp:
    return checked_time(left.nanos + right.nanos)


@overload("_+_(duration, duration) duration")
def _longer(left: Duration, right: Duration) -> Duration:
    return checked_duration(left.nanos + right.nanos)


@overload("_-_(timestamp, timestamp) duration", "_-_(duration, duration) duration")
def _between(left: Any, right: Any) -> Duration:
    return checked_duration(left.nanos - right.nanos)


@overload("_-_(timestamp, duration) timestamp")
def _earlier(left: Timestamp, right: Duration) -> Timestamp:
    return checked_time(left.nanos - right.nanos)


@overload("-_(int) int")
def _negate(value: int) -> int:
    return checked_int(-value)


@overload("-_(double) double")
def _negate_double(value: float) -> float:
    return -value


@overload("!_(bool) bool")
def _not(value: bool) -> bool:
    return not value


# --- comparison ---

_ORDERED = ("bool", "int", "uint", "double", "string", "bytes", "timestamp", "duration")
_PAIRS = [(each, each) for each in _ORDERED]
_PAIRS += [(one, two) for one in ("int", "uint", "double") for two in ("int", "uint", "double") if one != two]


def _signatures(operator: str) -> list[str]:
    return [f"{operator}({one}, {two}) bool" for one, two in _PAIRS]


@overload(*_signatures("_<_"), cost=text_cost)
def _less(left: Any, right: Any) -> bool:
    return bool(left < right)


@overload(*_signatures("_<=_"), cost=text_cost)
def _at_most(left: Any, right: Any) -> bool:
    return bool(left <= right)


@overload(*_signatures("_>_"), cost=text_cost)
def _more(left: Any, right: Any) -> bool:
    return bool(left > right)


@overload(*_signatures("_>=_"), cost=text_cost)
def _at_least(left: Any, right: Any) -> bool:
    return bool(left >= right)


@overload("_==_(A, A) bool", cost=text_cost)
def _equal(left: Any, right: Any) -> bool:
    return equal(left, right)


@overload("_!=_(A, A) bool", cost=text_cost)
def _unequal(left: Any, right: Any) -> bool:
    return not equal(left, right)


@overload("@in(A, list<A>) bool", cost=list_cost)
def _in_list(member: Any, members: list[Any]) -> bool:
    return any(equal(member, each) for each in members)


@overload("@in(A, map<A, B>) bool")
def _in_map(key: Any, members: dict[Any, Any]) -> bool:
    try:
        return key in members
    except TypeError:
        return False


# --- access ---


@overload("_[_](list<A>, int) A", "_[_](list<A>, uint) A")
def _item(members: list[Any], index: int) -> Any:
    if not 0 <= index < len(members):
        raise EvaluationError(f"index out of bounds: {int(index)}")
    return members[index]


@overload("_[_](map<A, B>, A) B")
def _member(members: dict[Any, Any], key: Any) -> Any:
    try:
        return members[key]
    except KeyError:
        raise EvaluationError(f"no such key: {go_printed(key)}") from None
    except TypeError:
        raise EvaluationError("unsupported key type") from None


@overload("_[?_](list<A>, int) optional<A>")
def _optional_item(members: list[Any], index: int) -> Optional:
    return Optional(True, members[index]) if 0 <= index < len(members) else NONE


@overload("_[?_](map<A, B>, A) optional<B>")
def _optional_member(members: dict[Any, Any], key: Any) -> Optional:
    return Optional(True, members[key]) if key in members else NONE


@overload("_[?_](optional<list<A>>, int) optional<A>", "_[?_](optional<map<A, B>>, A) optional<B>")
@overload("_[_](optional<list<A>>, int) optional<A>", "_[_](optional<map<A, B>>, A) optional<B>")
def _optional_of_optional(found: Optional, key: Any) -> Optional:
    """After an optional access the later ones are optional as well, with and without a question mark."""
    if not found.is_set:
        return NONE
    if isinstance(found.value, list):
        return Optional(True, found.value[key]) if 0 <= key < len(found.value) else NONE
    is_member = isinstance(found.value, dict) and key in found.value
    return Optional(True, found.value[key]) if is_member else NONE


@overload("size(string) int", "string.size() int", "size(bytes) int", "bytes.size() int", cost=text_cost)
@overload("size(list<A>) int", "list<A>.size() int", "size(map<A, B>) int", "map<A, B>.size() int")
def _size(value: Any) -> int:
    return len(value)


# --- conversion ---


@overload("type(A) type")
def _type(value: Any) -> TypeValue:
    return TypeValue(type_name(value))


@overload("dyn(A) dyn", "int(int) int", "uint(uint) uint", "double(double) double", "string(string) string")
@overload("bool(bool) bool", "bytes(bytes) bytes", "timestamp(timestamp) timestamp", "duration(duration) duration")
def _same(value: Any) -> Any:
    return value


@overload("int(uint) int", "int(double) int", "int(string) int", "int(timestamp) int", "int(duration) int")
def _int(value: Any) -> int:
    if isinstance(value, Timestamp):
        return value.nanos // NANOS
    if isinstance(value, Duration):
        return value.nanos
    if isinstance(value, str):
        return checked_int(_parsed_int(value, "int"))
    if isinstance(value, float) and not -(2.0**63) < value < 2.0**63:
        raise EvaluationError("integer overflow")
    return checked_int(int(value))


def _parsed_int(text: str, name: str) -> int:
    digits = text.removeprefix("-").removeprefix("+") if len(text) < 40 else ""
    if not (digits.isascii() and digits.isdigit()):
        raise EvaluationError(f'strconv.Parse{"Int" if name == "int" else "Uint"}: parsing "{text}": invalid syntax')
    return int(text)


@overload("uint(int) uint", "uint(double) uint", "uint(string) uint")
def _uint(value: Any) -> Uint:
    if isinstance(value, float) and not 0 <= value < 2.0**64:
        raise EvaluationError("unsigned integer overflow")
    return checked_uint(_parsed_int(value, "uint") if isinstance(value, str) else int(value))


@overload("double(int) double", "double(uint) double", "double(string) double")
def _double(value: Any) -> float:
    try:
        return float(value)
    except ValueError:
        raise EvaluationError(f'strconv.ParseFloat: parsing "{value}": invalid syntax') from None


@overload("bool(string) bool")
def _bool(text: str) -> bool:
    if text in ("1", "t", "T", "true", "TRUE", "True"):
        return True
    if text in ("0", "f", "F", "false", "FALSE", "False"):
        return False
    raise EvaluationError(f'strconv.ParseBool: parsing "{text}": invalid syntax')


@overload("bytes(string) bytes", cost=text_cost)
def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


@overload("string(int) string", "string(uint) string", "string(double) string", "string(bool) string")
@overload("string(timestamp) string", "string(duration) string", "string(bytes) string", cost=text_cost)
def _string(value: Any) -> str:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise EvaluationError("invalid UTF-8 in bytes, cannot convert to string") from None
    return go_printed(value) if isinstance(value, (bool, float)) else str(value)


@overload("timestamp(string) timestamp", "timestamp(int) timestamp")
def _timestamp(value: Any) -> Timestamp:
    if isinstance(value, int):
        return checked_time(value * NANOS)
    nanos = unix_nanos(value)
    if nanos is None:
        raise EvaluationError(
            f'parsing time "{value}" as "2006-01-02T15:04:05Z07:00": cannot parse "{value}" as "2006"'
        )
    return checked_time(nanos)


@overload("duration(string) duration", "duration(int) duration")
def parsed_duration(value: Any) -> Duration:
    if isinstance(value, int):
        return checked_duration(value)
    try:
        return checked_duration(duration_nanos(value))
    except (PlimsollError, ValueError):
        raise EvaluationError(f'time: invalid duration "{value}"') from None


# --- parts of times ---

_PARTS = {
    "getFullYear": lambda at: at.year,
    "getMonth": lambda at: at.month - 1,
    "getDate": lambda at: at.day,
    "getDayOfMonth": lambda at: at.day - 1,
    "getDayOfWeek": lambda at: at.isoweekday() % 7,
    "getDayOfYear": lambda at: at.timetuple().tm_yday - 1,
    "getHours": lambda at: at.hour,
    "getMinutes": lambda at: at.minute,
    "getSeconds": lambda at: at.second,
    "getMilliseconds": lambda at: at.microsecond // 1000,
}


def _zone_seconds(zone: str) -> int:
    if zone in ("", "UTC", "Z"):
        return 0
    sign, rest = (zone[0], zone[1:]) if zone[0] in "+-" else ("+", zone)
    hours, colon, minutes = rest.partition(":")
    if not colon or not (hours + minutes).isdigit() or len(hours) > 2 or len(minutes) != 2:
        raise EvaluationError(f"unknown time zone {zone}: this server knows UTC and offsets such as +01:00")
    return (int(hours) * 3600 + int(minutes) * 60) * (-1 if sign == "-" else 1)


def _register_parts() -> None:
    for name, part in _PARTS.items():

        def read(at: Timestamp, zone: str = "", part: Any = part) -> int:
            seconds, nanos = divmod(at.nanos, NANOS)
            moment = datetime.fromtimestamp(seconds + _zone_seconds(zone), UTC).replace(microsecond=nanos // 1000)
            return int(part(moment))

        overload(f"timestamp.{name}() int", f"timestamp.{name}(string) int")(read)
    for name, unit in (("getHours", 3600 * NANOS), ("getMinutes", 60 * NANOS), ("getSeconds", NANOS)):

        def whole(span: Duration, unit: int = unit) -> int:
            return abs(span.nanos) // unit * (-1 if span.nanos < 0 else 1)

        overload(f"duration.{name}() int")(whole)

    def milliseconds(span: Duration) -> int:
        return abs(span.nanos) // 1_000_000 * (-1 if span.nanos < 0 else 1)

    overload("duration.getMilliseconds() int")(milliseconds)


_register_parts()
