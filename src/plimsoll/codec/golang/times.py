"""Times as Go's `time.Parse` reads them and the API prints them, with Go's error messages.

Two layouts: RFC 3339 (decimals are read and dropped) and the same with exactly six decimals (leases, event times). Both
are printed in UTC.
"""

from __future__ import annotations

import re
from typing import Final

from plimsoll.errors import byte_quoted
from plimsoll.rules.timestamps import offset_seconds, rfc3339, unix_seconds

LAYOUT: Final = "2006-01-02T15:04:05Z07:00"
MICRO_LAYOUT: Final = "2006-01-02T15:04:05.000000Z07:00"
ZERO: Final = "0001-01-01T00:00:00Z"
ZERO_MICRO: Final = "0001-01-01T00:00:00.000000Z"

# Texts that are printed unchanged; days from the 29th on must be checked against the calendar.
CANONICAL: Final = r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]"
_FIRST_S: Final = unix_seconds(0, 1, 1, 0, 0, 0)
_END_S: Final = unix_seconds(10_000, 1, 1, 0, 0, 0)
_FRACTION: Final = re.compile(r"[.,]([0-9]+)")


class TimeError(ValueError):
    """`str()` is Go's message."""


class _Parser:
    def __init__(self, text: str, layout: str) -> None:
        self.text = text
        self.rest = text
        self.layout = layout

    def bad(self, element: str) -> TimeError:
        return TimeError(
            f"parsing time {byte_quoted(self.text)} as {byte_quoted(self.layout)}: "
            f"cannot parse {byte_quoted(self.rest)} as {byte_quoted(element)}"
        )

    def off(self, message: str) -> TimeError:
        return TimeError(f"parsing time {byte_quoted(self.text)}: {message}")

    def literal(self, character: str) -> None:
        if not self.rest.startswith(character):
            raise self.bad(character)
        self.rest = self.rest[1:]

    def number(self, element: str, digits: int, least: int, most: int, name: str) -> int:
        taken = self.rest[:digits]
        # Go reads a one-digit hour and day.
        if element in ("15", "02") and len(taken) == digits and taken[0].isdigit() and not _is_digits(taken):
            taken = taken[:1]
        if not _is_digits(taken) or (len(taken) < digits and element not in ("15", "02")):
            raise self.bad(element)
        self.rest = self.rest[len(taken) :]
        if not least <= int(taken) <= most:
            raise self.off(f"{name} out of range")
        return int(taken)

    def micros(self) -> int:
        """`.000000`: exactly six digits."""
        taken = self.rest[:7]
        if len(taken) < 7 or taken[0] not in ".," or not _is_digits(taken[1:]):
            raise self.bad(".000000")
        self.rest = self.rest[7:]
        return int(taken[1:])

    def offset_seconds(self) -> int:
        rest = self.rest
        if rest.startswith("Z"):
            self.rest = rest[1:]
            return 0
        if len(rest) < 6 or rest[3] != ":" or rest[0] not in "+-" or not _is_digits(rest[1:3] + rest[4:6]):
            raise self.bad("Z07:00")
        # Go accepts an offset of 24 hours or 60 minutes.
        if int(rest[1:3]) > 24:
            raise self.off("time zone offset hour out of range")
        if int(rest[4:6]) > 60:
            raise self.off("time zone offset minute out of range")
        self.rest = rest[6:]
        return offset_seconds(rest[0], rest[1:3], rest[4:6])


def _is_digits(text: str) -> bool:
    return text.isascii() and text.isdigit()


def utc_time(text: str) -> str:
    """An RFC 3339 time as the API prints it: UTC, whole seconds; raises TimeError."""
    return _parsed(text, LAYOUT)


def utc_micro_time(text: str) -> str:
    """The same with six decimals; raises TimeError."""
    return _parsed(text, MICRO_LAYOUT)


def _parsed(text: str, layout: str) -> str:
    parser = _Parser(text, layout)
    year = parser.number("2006", 4, 0, 9999, "year")
    parser.literal("-")
    month = parser.number("01", 2, 1, 12, "month")
    parser.literal("-")
    day = parser.number("02", 2, 0, 99, "day")
    parser.literal("T")
    hour = parser.number("15", 2, 0, 23, "hour")
    parser.literal(":")
    minute = parser.number("04", 2, 0, 59, "minute")
    parser.literal(":")
    second = parser.number("05", 2, 0, 59, "second")
    micros = None
    if layout is MICRO_LAYOUT:
        micros = parser.micros()
    elif (fraction := _FRACTION.match(parser.rest)) is not None:
        parser.rest = parser.rest[fraction.end() :]
    offset_s = parser.offset_seconds()
    if parser.rest:
        raise parser.off(f"extra text: {byte_quoted(parser.rest)}")
    try:
        seconds = unix_seconds(year, month, day, hour, minute, second)
    except ValueError:
        raise parser.off("day out of range") from None
    return _printed(seconds - offset_s, micros)


def from_unix(seconds: int, micros: int | None = None) -> str:
    """Seconds since 1970 as the API prints them, with six decimals if `micros` is set; raises TimeError."""
    if not _FIRST_S <= seconds < _END_S:
        raise TimeError("Time.MarshalJSON: year outside of range [0,9999]")
    return _printed(seconds, micros)


def _printed(seconds: int, micros: int | None) -> str:
    text = rfc3339(seconds)
    return text if micros is None else f"{text[:-1]}.{micros:06d}Z"
