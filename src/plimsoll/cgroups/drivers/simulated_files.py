"""The control files of the simulated kernel: their names, their initial values, and the values they accept.

For each file a function returns the text that the kernel shows after the write, or raises the errno. Relations between
files and between cgroups (a limit and its memsw, a quota and its parent's) are in `simulated`.
Ranges and defaults: https://docs.kernel.org/admin-guide/cgroup-v2.html#controllers
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterable

from plimsoll.rules.blockio.files import KEYED_FILES, kept_lines, lines_of
from plimsoll.rules.cgroups.rounding import unlimited_bytes
from plimsoll.rules.cpuset import cpu_numbers, cpu_text
from plimsoll.rules.model.kernel import DEFAULT_PERIOD_US, CgroupVersion
from plimsoll.rules.resources.cpu import MAX_SHARES, MIN_SHARES
from plimsoll.rules.resources.files import MAX
from plimsoll.rules.resources.memory import page_label

MAX_PIDS = 4_194_304
MAX_BURST_US = (1 << 44) // 1000
_SUFFIXES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_BYTES = re.compile(r"([0-9]{1,19})([kmgtKMGT]?)", re.ASCII)
_DECIMAL = re.compile(r"-?[0-9]{1,19}", re.ASCII)

Accept = Callable[[str], str]


class ErrnoError(Exception):
    """The errno for a value; never leaves these two modules."""

    def __init__(self, number: int, detail: str = "") -> None:
        super().__init__(number, detail)
        self.number = number
        self.detail = detail


def control_files(
    version: CgroupVersion, page_size: int, hugepage_sizes: Iterable[int], *, swap: bool, cpus: int
) -> dict[str, tuple[str, Accept]]:
    """file → its value in a new cgroup, and the function that accepts a value."""
    pages, numbers = _memory(page_size, page_size, version), _whole(0, MAX_PIDS, allow_max=True)
    everything = cpu_text(range(cpus))
    cpuset = {"cpuset.cpus": (everything if version == 1 else "", _cpus(cpus)), "cpuset.mems": ("0", _cpus(1))}
    if version == 2:
        files = {
            "cpu.weight": ("100", _whole(1, 10_000, beyond=errno.ERANGE)),
            "cpu.max": (f"{MAX} {DEFAULT_PERIOD_US}", _cpu_max),
            "cpu.max.burst": ("0", _whole(0, MAX_BURST_US)),
            "memory.min": ("0", pages),
            "memory.low": ("0", pages),
            "memory.high": (MAX, pages),
            "memory.max": (MAX, pages),
            "memory.oom.group": ("0", _whole(0, 1)),
            "pids.max": (MAX, numbers),
            "io.weight": ("default 100", _io_weight),
            **{file: ("", _keyed(file)) for file in KEYED_FILES[2]},
            **({"memory.swap.max": (MAX, pages)} if swap else {}),
        }
        cpuset["cpuset.mems"] = ("", _cpus(1))
    else:
        unlimited = str(unlimited_bytes(page_size))
        files = {
            "cpu.shares": ("1024", _shares),
            "cpu.cfs_period_us": (str(DEFAULT_PERIOD_US), _whole(1000, 1_000_000)),
            "cpu.cfs_quota_us": ("-1", _quota),
            "cpu.cfs_burst_us": ("0", _whole(0, MAX_BURST_US)),
            "memory.limit_in_bytes": (unlimited, pages),
            "pids.max": (MAX, numbers),
            "blkio.bfq.weight": ("100", _whole(1, 1000, beyond=errno.ERANGE)),
            **{file: ("", _keyed(file)) for file in KEYED_FILES[1]},
            **({"memory.memsw.limit_in_bytes": (unlimited, pages)} if swap else {}),
        }
    for size in hugepage_sizes:
        name = f"hugetlb.{page_label(size)}.{'max' if version == 2 else 'limit_in_bytes'}"
        default = MAX if version == 2 else str(unlimited_bytes(page_size, size))
        files[name] = (default, _memory(page_size, size, version))
    return files | cpuset


def byte_count(text: str) -> int:
    """`1048576` or `1M`, as every memory file accepts it."""
    match = _BYTES.fullmatch(text)
    if match is None:
        raise ErrnoError(errno.EINVAL)
    return int(match[1]) * _SUFFIXES[match[2].lower()]


def _memory(page_size: int, unit_bytes: int, version: CgroupVersion) -> Accept:
    unlimited = unlimited_bytes(page_size, unit_bytes)
    no_limit = MAX if version == 2 else "-1"

    def accept(text: str) -> str:
        number = unlimited if text == no_limit else byte_count(text) // unit_bytes * unit_bytes
        if version == 2:
            return MAX if number >= unlimited else str(number)
        return str(min(number, unlimited))

    return accept


def _whole(least: int, most: int, *, allow_max: bool = False, beyond: int = errno.EINVAL) -> Accept:
    def accept(text: str) -> str:
        if allow_max and text == MAX:
            return text
        number = _integer(text)
        if not least <= number <= most:
            raise ErrnoError(beyond)
        return str(number)

    return accept


def _integer(text: str) -> int:
    if not _DECIMAL.fullmatch(text):
        raise ErrnoError(errno.EINVAL)
    return int(text)


def _shares(text: str) -> str:
    number = _integer(text)
    if number < 0:
        raise ErrnoError(errno.EINVAL)
    return str(min(max(number, MIN_SHARES), MAX_SHARES))


def _quota(text: str) -> str:
    number = _integer(text)
    if 0 <= number < 1000:
        raise ErrnoError(errno.EINVAL)
    return str(max(number, -1))


def _cpu_max(text: str) -> str:
    """One word keeps the period: `simulated` adds it."""
    words = text.split()
    if len(words) not in (1, 2):
        raise ErrnoError(errno.EINVAL)
    if words[0] != MAX and _integer(words[0]) < 1000:
        raise ErrnoError(errno.EINVAL)
    if len(words) == 2 and not 1000 <= _integer(words[1]) <= 1_000_000:
        raise ErrnoError(errno.EINVAL)
    return " ".join(words)


def _io_weight(text: str) -> str:
    return "default " + _whole(1, 10_000, beyond=errno.ERANGE)(text.removeprefix("default "))


def _keyed(file: str) -> Accept:
    """All lines at once: a driver writes them one by one, and removes those that are not there any more."""

    def accept(text: str) -> str:
        for values in lines_of(file, text).values():
            for amount in values.values():
                if _integer(amount) <= 0:
                    raise ErrnoError(errno.ERANGE)
        if any(line and len(line.split()) < 2 for line in text.splitlines()):
            raise ErrnoError(errno.EINVAL)
        return kept_lines(file, text)

    return accept


def _cpus(count: int) -> Accept:
    def accept(text: str) -> str:
        numbers = cpu_numbers(text)
        if numbers is None:
            raise ErrnoError(errno.EINVAL)
        if any(number >= count for number in numbers):
            raise ErrnoError(errno.ERANGE)
        return cpu_text(numbers)

    return accept
