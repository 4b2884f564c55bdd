"""Scalars as kubectl resolves them: the text of a YAML scalar → null, bool, number or string.

kubectl reads YAML with a fork of go-yaml v2, turns the result into JSON and reads that JSON again. So a scalar passes
three stages, and each affects what the API server sees:

1. *Resolution* (`resolve`). A quoted scalar is a string. A plain one is looked up in a table of words (`yes`, `~`,
   `.nan` …), then tried as an integer in Go's notation (`0x1F`, `0644`, `0b101`; underscores are dropped first), then
   as a decimal float. Anything else, or an overflow, stays a string: `08` is the float 8, `1e400` is text. A date is
   text too, and there are no base-60 numbers. A tag (`!!int "5"`) requires a type and fails for another one.
2. *Conversion to JSON* (`key_text`). Keys become strings, floats at the precision of a float32. Null and integers above
   the int64 range cannot be keys; NaN and infinity cannot be values.
3. *Reading the JSON* (`json_number`). A number without fraction that fits an int64 is an integer, every other one a
   float64.

The tables are 06 Y1 and Y2.
"""

from __future__ import annotations

import math
import re
from typing import Final

Scalar = None | bool | int | float | str

INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1
UINT64_MAX: Final = 2**64 - 1

_PREFIX: Final = "tag:yaml.org,2002:"
STR_TAG: Final = _PREFIX + "str"
BINARY_TAG: Final = _PREFIX + "binary"
FLOAT_TAG: Final = _PREFIX + "float"
TIMESTAMP_TAG: Final = _PREFIX + "timestamp"
MERGE_TAG: Final = _PREFIX + "merge"
# Only these change how a text is read; every other tag leaves it a string (Y2: unknown tags are ignored).
_TYPED_TAGS: Final = frozenset(_PREFIX + name for name in ("str", "bool", "int", "float", "null", "timestamp"))

_WORDS: Final[dict[str, Scalar]] = {
    **dict.fromkeys(["y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"], True),
    **dict.fromkeys(["n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"], False),
    **dict.fromkeys(["", "~", "null", "Null", "NULL"]),
    **dict.fromkeys([".nan", ".NaN", ".NAN"], math.nan),
    **dict.fromkeys([".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"], math.inf),
    **dict.fromkeys(["-.inf", "-.Inf", "-.INF"], -math.inf),
}
_NUMBER_STARTS: Final = frozenset("+-.0123456789")

# Go's strconv.ParseInt with base 0. A lone leading zero means octal.
_INTEGER: Final = (
    r"([+-]?)(?:0[xX](?P<hex>[0-9a-fA-F]+)|0[bB](?P<bin>[01]+)|0[oO]?(?P<oct>[0-7]+)|(?P<dec>0|[1-9][0-9]*))"
)
# go-yaml's second attempt at binary accepts a sign inside: `0b-11` is −3.
_BINARY_SIGN_INSIDE: Final = r"0b([+-][01]+)"
_FLOAT: Final = r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
# A text that starts with a dot is passed to strconv.ParseFloat, which accepts underscores only between digits.
_DOT_FLOAT: Final = r"\.[0-9]+(?:_[0-9]+)*(?:[eE][-+]?[0-9]+(?:_[0-9]+)*)?"
_BASES: Final = {"hex": 16, "bin": 2, "oct": 8, "dec": 10}
_MAX_DIGITS: Final = 64  # of a 64-bit number in base 2

_TIMESTAMP: Final = (
    r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})"
    r"(?:(?: |(?P<t>[Tt]))([0-9]{1,2}):([0-9]{1,2}):([0-9]{1,2})(?:[.,][0-9]+)?"
    r"(?(t)(?:Z|[+-]([0-9]{2}):([0-9]{2}))))?"
)
_BASE64: Final = r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"
_SHOWN_CHARACTERS: Final = 60


class ScalarError(ValueError):
    """A scalar does not match its tag or its place."""


def resolve(tag: str | None, text: str, implicit: bool) -> Scalar:
    """The value of a scalar; `implicit` as the parser reports it: plain and untagged, or with the bare tag `!`."""
    if tag is None:
        return plain(text) if implicit else text
    if tag == BINARY_TAG:
        return _binary(text)
    if tag == STR_TAG or tag not in _TYPED_TAGS:
        return text
    return _typed(tag, text)


def plain(text: str) -> Scalar:
    """The value of an untagged plain scalar (Y1)."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] in _NUMBER_STARTS:
        return _number(text)
    return text


def _number(text: str) -> int | float | str:
    if text[0] == ".":
        return _finite(text, text) if re.fullmatch(_DOT_FLOAT, text) else text
    digits = text.replace("_", "")
    integer = _integer(digits)
    if integer is not None:
        return integer
    if re.fullmatch(_FLOAT, digits):
        return _finite(digits, text)
    if match := re.fullmatch(_BINARY_SIGN_INSIDE, digits):
        number = int(match[1], 2)
        return number if INT64_MIN <= number <= INT64_MAX else text
    return text


def _integer(digits: str) -> int | None:
    match = re.fullmatch(_INTEGER, digits)
    if match is None or match.lastgroup is None:
        return None
    magnitude = match[match.lastgroup].lstrip("0") or "0"
    if len(magnitude) > _MAX_DIGITS:
        return None
    number = int(match[1] + magnitude, _BASES[match.lastgroup])
    # ParseUint, the second attempt, accepts no sign.
    return number if INT64_MIN <= number <= (INT64_MAX if match[1] else UINT64_MAX) else None


def _finite(digits: str, text: str) -> float | str:
    number = float(digits.replace("_", ""))
    return text if math.isinf(number) else number


def _typed(tag: str, text: str) -> Scalar:
    value = plain(text)
    found = _short_tag(value)
    if tag == TIMESTAMP_TAG and _is_timestamp(text):
        return text
    if _PREFIX + found == tag:
        return value
    if tag == FLOAT_TAG and isinstance(value, int) and found == "int" and value <= INT64_MAX:
        return float(value)
    raise ScalarError(f"yaml: cannot decode !!{found} `{shortened(text)}` as a !!{tag.removeprefix(_PREFIX)}")


def _short_tag(value: Scalar) -> str:
    if value is None:
        return "null"
    return {bool: "bool", int: "int", float: "float", str: "str"}[type(value)]


def _binary(text: str) -> str:
    packed = text.replace("\n", "").replace("\r", "")
    if not re.fullmatch(_BASE64, packed):
        raise ScalarError("!!binary value contains invalid base64 data")
    import base64
    import binascii

    try:
        data = base64.b64decode(packed, validate=True)
    except binascii.Error as error:
        raise ScalarError("!!binary value contains invalid base64 data") from error
    return data.decode("utf-8", "replace")


def _is_timestamp(text: str) -> bool:
    match = re.fullmatch(_TIMESTAMP, text)
    if match is None:
        return False
    year, month, day = (int(match[group]) for group in (1, 2, 3))
    hour, minute, second, zone_hour, zone_minute = (int(match[group] or 0) for group in (5, 6, 7, 8, 9))
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    last_day = 29 + leap - 1 if month == 2 else 30 + (month + month // 8) % 2
    in_range = 1 <= month <= 12 and 1 <= day <= last_day and hour < 24 and minute < 60 and second < 60
    # Go's time.Parse accepts an offset of 24 hours or 60 minutes.
    return in_range and zone_hour <= 24 and zone_minute <= 60


def json_number(number: int | float) -> int | float:
    """A number as it results from the JSON that kubectl makes of the document."""
    if isinstance(number, int):
        return number if INT64_MIN <= number <= INT64_MAX else float(number)
    if not number.is_integer() or abs(number) > 2**63:
        return number
    written = _shortest(number)
    return written if INT64_MIN <= written <= INT64_MAX else number


def _shortest(number: float) -> int:
    """A whole number as Go writes it in JSON: the fewest digits that identify this float, then zeros."""
    mantissa, _, exponent = repr(number).partition("e")
    whole, _, fraction = mantissa.partition(".")
    return int(whole + fraction) * 10 ** (int(exponent) - len(fraction)) if exponent else int(whole)


def key_text(value: Scalar) -> str:
    """The JSON object key that a scalar key becomes (Y3)."""
    if isinstance(value, str):
        return value
    if value is None:
        raise ScalarError("unsupported map key of type: null")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _float32_text(value)
    if value > INT64_MAX:
        raise ScalarError(f"unsupported map key of type: uint64, key: {value}")
    return str(value)


def _float32_text(value: float) -> str:
    """Go's strconv.FormatFloat(value, 'g', -1, 32): the fewest digits that give the same float32."""
    single = _float32(value)
    if math.isnan(single):
        return ".nan"
    if math.isinf(single):
        return ".inf" if single > 0 else "-.inf"
    for decimals in range(10):
        scientific = f"{single:.{decimals}e}"
        if _float32(float(scientific)) == single:
            break
    exponent = int(scientific.partition("e")[2])
    # Go writes an exponent below −4 and from 6 digits on when it chooses the precision itself.
    return f"{single:.{max(0, decimals - exponent)}f}" if -4 <= exponent < 6 else scientific


def _float32(value: float) -> float:
    import struct

    try:
        (single,) = struct.unpack("<f", struct.pack("<f", value))
    except OverflowError:
        return math.copysign(math.inf, value)
    return float(single)


def shortened(text: str) -> str:
    """A text short enough for a message."""
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"
