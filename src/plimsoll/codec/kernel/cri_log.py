"""Lines of a container's log, as CRI runtimes write them and the kubelet reads them:

    2016-10-06T00:17:09.669794202Z stdout F what the container wrote

A line that is longer than the runtime's buffer, or has no line break yet, is written in pieces tagged `P` (partial),
the last one `F` (full).
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

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
    """One line, with or without its line break; None for any other format."""
    match = _LINE.fullmatch(line[:-1] if line.endswith(b"\n") else line)
    if match is None or _TIME.fullmatch(match[1]) is None:
        return None
    tags = match[3].split(b":", 1)
    return LogLine(match[1], match[2], tags[0] == b"P", match[4])


def log_line(time: bytes, stream: bytes, content: bytes, *, partial: bool = False) -> bytes:
    """The line for `content`, which contains no line break."""
    return b"%b %b %b %b\n" % (time, stream, b"P" if partial else b"F", content)


def fixed_time(time: bytes) -> bytes:
    """With nine decimals, as the kubelet shows it when timestamps are requested; no offset is `Z`."""
    match = _TIME.fullmatch(time)
    if match is None:
        return time
    zone = b"Z" if not match[8] or (match[9], match[10]) == (b"00", b"00") else b"%b%b:%b" % match.groups()[7:]
    return b"%b.%b%b" % (time[:19], (match[7] or b"").ljust(9, b"0")[:9], zone)
