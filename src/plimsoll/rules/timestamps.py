"""Timestamps as Kubernetes prints and reads them, and ages as kubectl shows them (05 B7).

A metav1.Time is RFC 3339 in UTC with whole seconds, `2026-11-16T03:51:48Z`; a metav1.MicroTime has six decimals.
`datetime` ends at the years 1 and 9999. The Gregorian calendar repeats every 400 years, so a moment outside that range
is converted in the period that begins in 1970 or 2000, and the difference is added.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache

Clock = Callable[[], float]  # seconds since the epoch

_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_PERIOD_S = 146_097 * _DAY  # 400 years
_RFC3339 = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:[.,](\d+))?(?:Z|([+-])(\d\d):(\d\d))",
    re.ASCII,
)
NANOS = 1_000_000_000
UNKNOWN = "<unknown>"


def rfc3339(epoch_s: float) -> str:
    """A metav1.Time; parts of a second are cut off, as Kubernetes does."""
    return _rfc3339(math.floor(epoch_s))


@lru_cache(64)
def _rfc3339(epoch_s: int) -> str:
    periods, rest = divmod(epoch_s, _PERIOD_S)
    moment = datetime.fromtimestamp(rest, UTC)
    return f"{moment.year + 400 * periods:04d}{moment:-%m-%dT%H:%M:%SZ}"


def rfc3339_micro(epoch_s: float) -> str:
    """A metav1.MicroTime."""
    return f"{datetime.fromtimestamp(epoch_s, UTC):%Y-%m-%dT%H:%M:%S.%fZ}"


def unix_seconds(year: int, month: int, day: int, hour: int, minute: int, second: int) -> int:
    """A moment in UTC, counted from 1970. Raises ValueError for a date that the calendar does not have."""
    periods, year = divmod(year - 2000, 400)
    moment = datetime(2000 + year, month, day, hour, minute, second, tzinfo=UTC)
    return int(moment.timestamp()) + periods * _PERIOD_S


def offset_seconds(sign: str, hours: str, minutes: str) -> int:
    """The zone `+01:30` is 5400 seconds ahead of UTC."""
    offset_s = int(hours) * _HOUR + int(minutes) * _MINUTE
    return -offset_s if sign == "-" else offset_s


def unix_nanos(text: str) -> int | None:
    """Nanoseconds since 1970 of an RFC 3339 text with any number of decimals; None if it is not a time."""
    match = _RFC3339.fullmatch(text)
    if match is None:
        return None
    try:
        seconds = unix_seconds(*map(int, match.groups()[:6]))
    except ValueError:
        return None
    offset_s = offset_seconds(match[8], match[9], match[10]) if match[8] else 0
    return (seconds - offset_s) * NANOS + int((match[7] or "0").ljust(9, "0")[:9])


def epoch_seconds(text: object) -> float | None:
    """Seconds since 1970 of an RFC 3339 text; None if it is absent or not a time."""
    nanos = unix_nanos(text) if isinstance(text, str) else None
    return None if nanos is None else nanos / NANOS


def age(text: object, now_s: float) -> str:
    since_s = epoch_seconds(text)
    return UNKNOWN if since_s is None else human_duration(now_s - since_s)


def human_duration(duration_s: float) -> str:
    """Two units while the smaller one matters, then one; a year has 365 days."""
    seconds = int(duration_s)
    if seconds < -1:
        return "<invalid>"
    if seconds < 0:
        return "0s"
    if seconds < 2 * _MINUTE:
        return f"{seconds}s"
    minutes, hours, days = seconds // _MINUTE, seconds // _HOUR, seconds // _DAY
    if minutes < 10:
        return _two_units(minutes, "m", seconds % _MINUTE, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _two_units(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return _two_units(days, "d", hours % 24, "h")
    if days < 2 * 365:
        return f"{days}d"
    if days < 8 * 365:
        return _two_units(days // 365, "y", days % 365, "d")
    return f"{days // 365}y"


def _two_units(large: int, unit: str, small: int, small_unit: str) -> str:
    return f"{large}{unit}{small}{small_unit}" if small else f"{large}{unit}"
