"""The kernel's list of CPUs (or memory nodes): `0-3,8` ↔ sorted numbers. An empty text is an empty list."""

from __future__ import annotations

import re
from collections.abc import Iterable

CPU_BOUND = 65_536  # more than Linux supports; a range like 0-999999999 must not exhaust the memory
_RANGE = r"([0-9]{1,9})(?:-([0-9]{1,9}))?"


def cpu_numbers(text: str) -> tuple[int, ...] | None:
    """None if the text is not such a list."""
    numbers: set[int] = set()
    for part in text.split(",") if text else ():
        match = re.fullmatch(_RANGE, part, re.ASCII)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if first > last or last >= CPU_BOUND:
            return None
        numbers.update(range(first, last + 1))
    return tuple(sorted(numbers))


def cpu_text(numbers: Iterable[int]) -> str:
    """As the kernel prints it: a pair is a range as well (`0-1`)."""
    parts: list[str] = []
    first = last = -2
    for number in sorted(set(numbers)):
        if number == last + 1:
            last = number
            parts[-1] = f"{first}-{last}"
        else:
            first = last = number
            parts.append(str(number))
    return ",".join(parts)
