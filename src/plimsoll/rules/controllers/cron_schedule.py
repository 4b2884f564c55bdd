"""Schedules of CronJobs: five fields as cron has them, `@daily` and the like, or `@every 90s`.

A day matches if the day of the month and the day of the week match; if neither is `*`, one of them is enough. A time
that a time zone skips is skipped; one that it repeats is due twice.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo

import msgspec

from plimsoll.errors import PlimsollError

MINUTE_S = 60
_MONTHS = {
    name: number
    for number, name in enumerate(
        ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"], 1
    )
}
_DAYS = {name: number for number, name in enumerate(["sun", "mon", "tue", "wed", "thu", "fri", "sat"])}
# lowest, highest, names
_FIELDS: tuple[tuple[int, int, dict[str, int]], ...] = (
    (0, 59, {}),
    (0, 23, {}),
    (1, 31, {}),
    (1, 12, _MONTHS),
    (0, 6, _DAYS),
)
_DESCRIPTORS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_UNITS_S = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_DURATION = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?(?:h|ms|m|s|us|µs|ns))+", re.ASCII)
_PART = re.compile(r"([0-9.]+)(h|ms|m|s|us|µs|ns)", re.ASCII)
_YEARS = 5  # a schedule without a time in so many years has none (February 30)


class ScheduleError(PlimsollError):
    """The text is no schedule; the message is the one of Kubernetes' parser."""


class Schedule(msgspec.Struct, frozen=True):
    minutes: frozenset[int] = frozenset()
    hours: frozenset[int] = frozenset()
    days: frozenset[int] = frozenset()
    months: frozenset[int] = frozenset()
    weekdays: frozenset[int] = frozenset()
    any_day: bool = False  # the day of the month or of the week is `*`
    every_s: int = 0  # of `@every`
    zone: str = ""  # of a TZ prefix

    def after(self, moment_s: float, zone: tzinfo = UTC) -> float | None:
        """The first time after a moment; None if there is none."""
        if self.every_s:
            return float(int(moment_s) + self.every_s)
        at_s = int(moment_s) // MINUTE_S * MINUTE_S + MINUTE_S
        end_s = moment_s + _YEARS * 366 * 86400
        while at_s <= end_s:
            local = datetime.fromtimestamp(at_s, zone)
            if local.month not in self.months:
                at_s = _later(at_s, datetime(local.year + local.month // 12, local.month % 12 + 1, 1, tzinfo=zone))
            elif not self._is_day(local):
                at_s = _later(at_s, datetime(local.year, local.month, local.day, tzinfo=zone) + timedelta(days=1))
            elif local.hour not in self.hours:
                at_s += (60 - local.minute) * MINUTE_S
            elif local.minute not in self.minutes:
                at_s += MINUTE_S
            else:
                return float(at_s)
        return None

    def _is_day(self, local: datetime) -> bool:
        by_month, by_week = local.day in self.days, local.isoweekday() % 7 in self.weekdays
        return by_month and by_week if self.any_day else by_month or by_week


def _later(at_s: int, local: datetime) -> int:
    """The beginning of a later day; always later, also where clocks are changed at midnight."""
    return max(int(local.timestamp()), at_s + MINUTE_S)


def parsed_schedule(text: str) -> Schedule:
    """Raises ScheduleError."""
    zone = ""
    if text.startswith(("TZ=", "CRON_TZ=")):
        first, _, text = text.partition(" ")
        zone, text = first.partition("=")[2], text.strip()
    if not text:
        raise ScheduleError("empty spec string")
    if text.startswith("@every "):
        return Schedule(every_s=_every_s(text.removeprefix("@every ")), zone=zone)
    if text.startswith("@"):
        if text not in _DESCRIPTORS:
            raise ScheduleError(f"unrecognized descriptor: {text}")
        text = _DESCRIPTORS[text]
    parts = text.split()
    if len(parts) != len(_FIELDS):
        raise ScheduleError(f"expected exactly 5 fields, found {len(parts)}: [{' '.join(parts)}]")
    values = [_field(part, *field) for part, field in zip(parts, _FIELDS, strict=True)]
    any_day = values[2][1] or values[4][1]
    minutes, hours, days, months, weekdays = (frozenset(found) for found, _ in values)
    return Schedule(minutes, hours, days, months, weekdays, any_day, zone=zone)


def _every_s(text: str) -> int:
    if not _DURATION.fullmatch(text):
        raise ScheduleError(f'failed to parse duration @every {text}: time: invalid duration "{text}"')
    return max(int(sum(float(number) * _UNITS_S[unit] for number, unit in _PART.findall(text))), 1)


def _field(text: str, low: int, high: int, names: dict[str, int]) -> tuple[set[int], bool]:
    """The values, and whether it is `*`."""
    found: set[int] = set()
    is_any = False
    for part in text.split(","):
        values, every = _range(part, low, high, names)
        found |= values
        is_any = is_any or every
    return found, is_any


def _range(text: str, low: int, high: int, names: dict[str, int]) -> tuple[set[int], bool]:
    span, *steps = text.split("/")
    first, *last = span.split("-")
    if len(last) > 1:
        raise ScheduleError(f"too many hyphens: {text}")
    if len(steps) > 1:
        raise ScheduleError(f"too many slashes: {text}")
    is_any = first in ("*", "?")
    begin = low if is_any else _number(first, names)
    end = high if is_any else _number(last[0], names) if last else begin
    step = 1
    if steps:
        step = _number(steps[0], {})
        if not last and not is_any:
            end = high  # `5/10` is `5-59/10`
    if begin < low:
        raise ScheduleError(f"beginning of range ({begin}) below minimum ({low}): {text}")
    if end > high:
        raise ScheduleError(f"end of range ({end}) above maximum ({high}): {text}")
    if begin > end:
        raise ScheduleError(f"beginning of range ({begin}) beyond end of range ({end}): {text}")
    if step == 0:
        raise ScheduleError(f"step of range should be a positive number: {text}")
    return set(range(begin, end + 1, step)), is_any and step == 1


def _number(text: str, names: dict[str, int]) -> int:
    if text.lower() in names:
        return names[text.lower()]
    if not re.fullmatch(r"[+-]?[0-9]{1,9}", text, re.ASCII):
        raise ScheduleError(f'failed to parse int from {text}: strconv.Atoi: parsing "{text}": invalid syntax')
    number = int(text)
    if number < 0:
        raise ScheduleError(f"negative number ({number}) not allowed: {text}")
    return number
