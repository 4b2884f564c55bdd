"""Lines of a container's log, as every CRI runtime writes them and the kubelet reads them:

    2016-10-06T00:17:09.669794202Z stdout F what the container wrote

A line that was longer than the runtime's buffer, or had no line break yet, comes in pieces tagged `P` (partial), the
last one `F` (full). Nothing else than the standard library is imported here, for whoever writes logs and must be small.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

NANOS: Final = 1_000_000_000
_LINE: Final = re.compile(rb"([^ ]+) (stdout|stderr) ([^ ]*) (.*)", re.DOTALL)
_TIME: Final = re.compile(
    rb"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})(?:[.,]([0-9]{1,18}))?"
    rb"(?:Z|([+-])([0-9]{2}):([0-9]{2}))"
)


class LogLine(NamedTuple):
    time: bytes  # as it was written
    stream: bytes  # b"stdout" or b"stderr"
    partial: bool
    content: bytes  # without the line break


def parse(line: bytes) -> LogLine | None:
    """One line, with or without its line break; None for what no runtime writes."""
    found = _LINE.fullmatch(line[:-1] if line.endswith(b"\n") else line)
    if found is None or _TIME.fullmatch(found[1]) is None:
        return None
    tags = found[3].split(b":", 1)
    return LogLine(found[1], found[2], tags[0] == b"P", found[4])


def log_line(time: bytes, stream: bytes, content: bytes, *, partial: bool = False) -> bytes:
    """The line for `content`, which has no line break inside."""
    return b"%b %b %b %b\n" % (time, stream, b"P" if partial else b"F", content)


def unix_nanos(time: bytes) -> int | None:
    """An RFC 3339 time with any number of decimals, counted from 1970; None for what is none."""
    found = _TIME.fullmatch(time)
    if found is None:
        return None
    year, month, day, hour, minute, second = (int(each) for each in found.groups()[:6])
    seconds = (_days(year, month, day) * 24 + hour) * 3600 + minute * 60 + second
    if found[8]:
        offset = int(found[9]) * 3600 + int(found[10]) * 60
        seconds -= offset if found[8] == b"+" else -offset
    return seconds * NANOS + int((found[7] or b"0").ljust(9, b"0")[:9])


def fixed_time(time: bytes) -> bytes:
    """With nine decimals, as the kubelet shows it to whoever asks for timestamps; no offset is `Z`."""
    found = _TIME.fullmatch(time)
    if found is None:
        return time
    zone = b"Z" if not found[8] or (found[9], found[10]) == (b"00", b"00") else b"%b%b:%b" % found.groups()[7:]
    return b"%b.%b%b" % (time[:19], (found[7] or b"").ljust(9, b"0")[:9], zone)


def _days(year: int, month: int, day: int) -> int:
    """From 1970-01-01, counted in eras of 400 years that begin on March 1st: leap days then come last."""
    year -= month <= 2
    era, of_era = divmod(year, 400)
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468
