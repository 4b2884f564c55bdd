"""Times as Kubernetes writes them, and ages as kubectl shows them (05 B7)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache

Clock = Callable[[], float]  # seconds since the epoch

_MINUTE, _HOUR, _DAY = 60, 3600, 86400
UNKNOWN = "<unknown>"


def rfc3339(epoch_s: float) -> str:
    """A metav1.Time: UTC, whole seconds."""
    return _whole_second(math.floor(epoch_s))


@lru_cache(64)
def _whole_second(epoch_s: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch_s))


def rfc3339_micro(epoch_s: float) -> str:
    return datetime.fromtimestamp(epoch_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def epoch_seconds(text: object) -> float | None:
    """None where it is absent, empty or not a time."""
    if not isinstance(text, str) or not text:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


def age(text: object, now_s: float) -> str:
    since = epoch_seconds(text)
    return UNKNOWN if since is None else human_duration(now_s - since)


def human_duration(duration_s: float) -> str:
    """Two units for short durations, then one; years have 365 days."""
    seconds = int(duration_s)
    if seconds < -1:
        return "<invalid>"
    if seconds < 0:
        return "0s"
    if seconds < 2 * _MINUTE:
        return f"{seconds}s"
    minutes, hours, days = seconds // _MINUTE, seconds // _HOUR, seconds // _DAY
    if minutes < 10:
        return _two(minutes, "m", seconds % _MINUTE, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return _two(days, "d", hours % 24, "h")
    if days < 2 * 365:
        return f"{days}d"
    if days < 8 * 365:
        return _two(days // 365, "y", days % 365, "d")
    return f"{days // 365}y"


def _two(large: int, unit: str, small: int, small_unit: str) -> str:
    return f"{large}{unit}{small}{small_unit}" if small else f"{large}{unit}"
