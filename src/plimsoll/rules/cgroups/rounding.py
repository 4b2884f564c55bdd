"""Whether a control file has the value that was written, although the texts differ.

The kernel stores memory in whole pages, rounded down, and shows the largest number of pages as `max` on v2 and as
9223372036854771712 on v1, where −1 sets it. Huge pages are rounded to their own size. `cpu.max` keeps its period if
only a quota is written; cpu lists are normalised; `cpu.shares` is clamped. io.max and the like have one line for each
device that is not at the default.

`kept` converts a text to the kernel's form; two texts are equal if their forms are.
"""

from __future__ import annotations

import re

from plimsoll.rules.blockio.files import WEIGHT_FILES, is_keyed, kept_lines
from plimsoll.rules.cpuset import cpu_numbers, cpu_text
from plimsoll.rules.resources.cpu import MAX_SHARES, MIN_SHARES
from plimsoll.rules.resources.files import MAX

_INTEGER = re.compile(r"[+-]?[0-9]{1,30}", re.ASCII)
_HUGE = re.compile(r"hugetlb\.([0-9]+)([KMGTP]?)B\.", re.ASCII)
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50}
_PAGED_V2 = frozenset({"min", "low", "high", "max", "swap.max", "swap.high", "zswap.max"})
_LONG_MAX = (1 << 63) - 1


def same_value(file: str, wanted: str, found: str, page_size: int = 4096) -> bool:
    """Whether `found`, as read from `file`, is what the kernel stores for `desired_files`."""
    if wanted == found:
        return True
    if file == "cpu.max":
        return _same_cpu_max(wanted.split(), found.split())
    return kept(file, wanted, page_size) == kept(file, found, page_size)


def kept(file: str, value: str, page_size: int = 4096) -> str:
    """The text as the kernel shows it, with `max` for unlimited on v1 too."""
    text = value.strip()
    if file.startswith("cpuset.") and file.removeprefix("cpuset.") in ("cpus", "mems"):
        numbers = cpu_numbers(text)
        return text if numbers is None else cpu_text(numbers)
    if is_keyed(file):
        return kept_lines(file, text)
    if file in WEIGHT_FILES:
        return text.partition("\n")[0].removeprefix("default ").strip()
    if text == MAX or not _INTEGER.fullmatch(text):
        return text
    number = int(text)
    if page_bytes := memory_unit_bytes(file, page_size):
        return _whole_pages(number, page_bytes, page_size, v1=file.endswith("_in_bytes"))
    if file == "cpu.cfs_quota_us":
        return MAX if number < 0 else str(number)
    if file == "cpu.shares":
        return str(min(max(number, MIN_SHARES), MAX_SHARES))
    return str(number)


def memory_unit_bytes(file: str, page_size: int = 4096) -> int:
    """The unit that a file rounds memory to; 0 for other files."""
    if match := _HUGE.match(file):
        return int(match[1]) * _UNITS[match[2]] if file.endswith(("max", "limit_in_bytes")) else 0
    controller, _, rest = file.partition(".")
    if controller == "memory" and (rest in _PAGED_V2 or rest.endswith("limit_in_bytes")):
        return page_size
    return 0


def unlimited_bytes(page_size: int = 4096, unit_bytes: int = 0) -> int:
    """How v1 shows "no limit": the largest whole number of pages (or huge pages) below 2^63."""
    most = _LONG_MAX // page_size * page_size
    return most // unit_bytes * unit_bytes if unit_bytes else most


def _whole_pages(number: int, unit_bytes: int, page_size: int, *, v1: bool) -> str:
    if number == -1 and v1:
        return MAX
    if number < 0:
        return str(number)
    rounded = number // unit_bytes * unit_bytes
    return MAX if rounded >= unlimited_bytes(page_size, unit_bytes) else str(rounded)


def _same_cpu_max(wanted: list[str], found: list[str]) -> bool:
    """`max` alone, or a quota alone, says nothing about the period."""
    return bool(wanted) and wanted[0] == (found or [""])[0] and wanted[1:] in ([], found[1:])
