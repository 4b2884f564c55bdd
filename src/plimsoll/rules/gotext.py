"""Durations and float32 numbers as Go parses them, with Go's error messages.

Go's standard library parses kubelet settings (`1m30s`, the `7.25` of `7.25%`), so users see its grammar, its rounding
and its errors. A float32 is represented as the Python float of the same value.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal

from plimsoll.errors import InvalidConfigError, byte_quoted, quoted
from plimsoll.rules.quantity import MAX_INT64

NANO_PER_SECOND = 10**9
LARGEST_FLOAT32 = float(2**128 - 2**104)

_UNIT_NANOS = {
    "ns": 1,
    "us": 10**3,
    "\u00b5s": 10**3,  # micro sign
    "\u03bcs": 10**3,  # Greek mu
    "ms": 10**6,
    "s": NANO_PER_SECOND,
    "m": 60 * NANO_PER_SECOND,
    "h": 3600 * NANO_PER_SECOND,
}
# Digits, fraction, and a unit up to the next number: `1m-5s` has the unknown unit `m-`.
_DURATION_PART = r"([0-9]*)(?:\.([0-9]*))?([^0-9.]*)"
_DIGITS = "[0-9]+(?:_[0-9]+)*"
_FLOAT = rf"[+-]?(?:{_DIGITS}(?:\.(?:{_DIGITS})?)?|\.{_DIGITS})(?:[eE][+-]?{_DIGITS})?"
_INFINITY = r"([+-]?)inf(?:inity)?"


def duration_seconds(text: str, path: str = "") -> float:
    """Seconds of a Go duration; raises InvalidConfigError for the setting at `path`."""
    return duration_nanos(text, path) / NANO_PER_SECOND


def duration_nanos(text: str, path: str = "") -> int:
    unsigned = text[1:] if text.startswith(("+", "-")) else text
    if unsigned == "0":
        return 0
    invalid = InvalidConfigError(path, f"time: invalid duration {byte_quoted(text)}")
    if not unsigned:
        raise invalid
    total = position = 0
    while position < len(unsigned):
        match = re.compile(_DURATION_PART, re.ASCII).match(unsigned, position)
        if match is None or not (match[1] or match[2]):
            raise invalid
        whole, fraction, unit = match[1], match[2] or "", match[3]
        if not unit:
            raise InvalidConfigError(path, f"time: missing unit in duration {byte_quoted(text)}")
        if unit not in _UNIT_NANOS:
            raise InvalidConfigError(path, f"time: unknown unit {byte_quoted(unit)} in duration {byte_quoted(text)}")
        total += _part_nanos(whole, fraction, _UNIT_NANOS[unit])
        if total > MAX_INT64:
            raise invalid
        position = match.end()
    return -total if text.startswith("-") else total


def _part_nanos(whole: str, fraction: str, unit_nanos: int) -> int:
    whole = whole.lstrip("0")
    if len(whole) > 19:
        return MAX_INT64 + 1
    # Go multiplies the fraction in float64 and truncates; beyond 18 digits it is less than a nanosecond.
    fraction = fraction[:18]
    part = int(fraction or "0") * (unit_nanos / 10 ** len(fraction))
    return int(whole or "0") * unit_nanos + int(part)


def parsed_float32(text: str, path: str = "") -> float:
    """The float32 nearest to a decimal text, or an infinity; raises InvalidConfigError for the setting at `path`."""
    match = re.fullmatch(_INFINITY, text, re.ASCII | re.IGNORECASE)
    if match is not None:
        return -math.inf if match[1] == "-" else math.inf
    if re.fullmatch(_FLOAT, text, re.ASCII) is None:
        raise InvalidConfigError(path, f"strconv.ParseFloat: parsing {quoted(text)}: invalid syntax")
    magnitude = abs(float(text))
    if magnitude < 1e-60:  # below the smallest float32; the exact fraction could have any number of digits
        return 0.0
    value = nearest_float32(*Decimal(text).as_integer_ratio()) if magnitude < 1e60 else math.inf
    if abs(value) > LARGEST_FLOAT32:
        raise InvalidConfigError(path, f"strconv.ParseFloat: parsing {quoted(text)}: value out of range")
    return value


def nearest_float32(numerator: int, denominator: int = 1) -> float:
    """A ratio rounded to 24 significant bits, half to even; without an upper bound."""
    exponent = max(math.frexp(numerator / denominator)[1] - 1, -126) - 23
    if exponent >= 0:
        denominator <<= exponent
    else:
        numerator <<= -exponent
    units, rest = divmod(numerator, denominator)
    if 2 * rest > denominator or (2 * rest == denominator and units % 2):
        units += 1
    return math.ldexp(units, exponent)
