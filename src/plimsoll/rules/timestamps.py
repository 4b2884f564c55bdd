"""Moments as seconds since 1970 and as the text that Kubernetes prints, `2026-11-16T03:51:48Z`, and back.

Days are counted from March 1st of the year 0, in eras of 400 years: leap days then come last.
"""

from __future__ import annotations

import math
import re

_TEXT = re.compile(r"(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(\.\d+)?(?:[Zz]|([+-])(\d\d):(\d\d))", re.ASCII)
_DAYS_TO_1970 = 719_468
_DAYS_OF_ERA = 146_097


def date_of(days: int) -> tuple[int, int, int]:
    """Year, month, day of a day counted from 1970."""
    era, of_era = divmod(days + _DAYS_TO_1970, _DAYS_OF_ERA)
    year_of_era = (of_era - of_era // 1_460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted_month = (5 * of_year + 2) // 153
    day = of_year - (153 * shifted_month + 2) // 5 + 1
    month = shifted_month + 3 if shifted_month < 10 else shifted_month - 9
    return year_of_era + era * 400 + (month <= 2), month, day


def days_of(year: int, month: int, day: int) -> int:
    """The other way round; a day past the month's end counts on."""
    era, year_of_era = divmod(year - (month <= 2), 400)
    of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    of_era = year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + of_year
    return era * _DAYS_OF_ERA + of_era - _DAYS_TO_1970


def utc_text(seconds: float) -> str:
    """Whole seconds, cut off as Kubernetes does."""
    days, rest = divmod(math.floor(seconds), 86_400)
    year, month, day = date_of(days)
    return f"{year:04d}-{month:02d}-{day:02d}T{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}Z"


def epoch_s(text: str | None) -> float | None:
    """None where it is no such text."""
    match = _TEXT.fullmatch(text) if text else None
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(part) for part in match.groups()[:6])
    offset_s = (int(match[9]) * 60 + int(match[10])) * (-60 if match[8] == "-" else 60) if match[8] else 0
    whole = days_of(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second - offset_s
    return whole + float(match[7] or 0)
