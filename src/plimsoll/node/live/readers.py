"""Read the figures of many cgroups often: files stay open, and what cannot have changed is not read.

Composing memory.stat is what costs the kernel most. A cgroup whose usage and whose CPU time are those of the last
reading has done nothing, so its figures are kept; every `FULL_EVERY` readings all files are read nevertheless, because
reclaim and a write to a limit leave both as they are. The files of the limits that are drawn are small and are
read every time.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping

from plimsoll.cgroups.stats.readers import OpenReaders
from plimsoll.cgroups.stats.usage import CgroupOpener, kept_files
from plimsoll.codec.kernel.files import SomeKeys, cpu_max, number_or_max, pressure
from plimsoll.codec.live_page import COLUMN, COLUMNS, NONE
from plimsoll.rules.eviction.usage import UNLIMITED_ABOVE_BYTES

FULL_EVERY = 8
_FDS_PER_CGROUP = 14
_LIMITS = {
    2: ("memory.max", "memory.high", "memory.low", "memory.min", "cpu.max", "cpu.weight"),
    1: ("memory.limit_in_bytes", "cpu.cfs_quota_us", "cpu.shares"),
}
_BUSY = {2: ("memory.current", "cpu.stat"), 1: ("memory.usage_in_bytes", "cpuacct.usage")}
_REST = {
    2: (
        *("memory.stat", "memory.events", "pids.current", "pids.max"),
        *("memory.pressure", "cpu.pressure", "io.pressure"),
    ),
    1: (
        *("memory.stat", "memory.kmem.usage_in_bytes", "memory.oom_control", "cpu.stat", "pids.current", "pids.max"),
        "cpu.cfs_period_us",
    ),
}
_STAT = {
    2: SomeKeys(
        {
            "anon": "anon",
            "shmem": "shmem",
            "kernel": "kernel",
            "active_file": "activeFile",
            "inactive_file": "inactiveFile",
        }
    ),
    1: SomeKeys(
        {
            "total_rss": "anon",
            "total_shmem": "shmem",
            "total_active_file": "activeFile",
            "total_inactive_file": "inactiveFile",
        }
    ),
}
_CPU_STAT = SomeKeys(
    {
        "usage_usec": "usage_us",  # v2
        "nr_periods": "periods",
        "nr_throttled": "throttledPeriods",
        "throttled_usec": "throttledUs",  # v2
        "throttled_time": "throttled_ns",  # v1
    }
)
_OOM_KILLS = SomeKeys({"oom_kill": "oomKills"})
_LINES_V2 = {"memory.max": "max", "memory.high": "high", "memory.low": "low", "memory.min": "min"}
_STALLS = {"memory.pressure": "memoryStall", "cpu.pressure": "cpuStall", "io.pressure": "ioStall"}


_CPU = COLUMN["cpuMilli"]
_STAGGER = itertools.count()  # not all cgroups are read in full by the same sample


class CgroupReader:
    """One cgroup with its open files. Raises CgroupGoneError once it is removed."""

    def __init__(self, files: CgroupOpener, path: str) -> None:
        self.path, self._version = path, files.version
        names = (*_BUSY[self._version], *_LIMITS[self._version], *_REST[self._version])
        self._files = kept_files(files, path, names)
        self._busy: list[bytes] = []
        self._limits: list[bytes] = []
        self._readings = next(_STAGGER)
        self.row = [NONE] * len(COLUMNS)
        self.cpu_us, self.at_s = NONE, 0.0
        self._busy_names, self._limit_names, self._rest_names = (
            tuple(name for name in names[self._version] if name in self._files) for names in (_BUSY, _LIMITS, _REST)
        )
        self._read_busy = tuple(self._files[name].read for name in self._busy_names)
        self._read_limits = tuple(self._files[name].read for name in self._limit_names)

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()

    def read(self, now_s: float) -> list[int]:
        """The figures now, in the order of COLUMNS; the same list where nothing has changed."""
        busy, limits = [read() for read in self._read_busy], [read() for read in self._read_limits]
        self._readings += 1
        if busy == self._busy and limits == self._limits and self._readings % FULL_EVERY:
            self.at_s = now_s
            if self.row[_CPU] > 0:
                self.row = self.row.copy()
                self.row[_CPU] = 0
            return self.row
        texts = dict(zip((*self._busy_names, *self._limit_names), (*busy, *limits), strict=True))
        texts |= {name: self._files[name].read() for name in self._rest_names}
        self._busy, self._limits = busy, limits
        row = self.row.copy()
        _limits(row, texts, self._version)
        _figures(row, texts, self._version)
        self._count_cpu(row, texts, now_s)
        self.row = row
        return row

    def _count_cpu(self, row: list[int], texts: Mapping[str, bytes], now_s: float) -> None:
        counted = NONE
        if "cpuacct.usage" in texts:
            counted = int(texts["cpuacct.usage"]) // 1000
        elif "cpu.stat" in texts:
            counted = _CPU_STAT.of(texts["cpu.stat"]).get("usage_us", NONE)
        elapsed_s = now_s - self.at_s
        if counted >= 0 and self.cpu_us >= 0 and elapsed_s > 0:
            row[COLUMN["cpuMilli"]] = max(0, round((counted - self.cpu_us) / (elapsed_s * 1000)))
        self.cpu_us, self.at_s = counted, now_s


def _limits(row: list[int], texts: Mapping[str, bytes], version: int) -> None:
    if version == 2:
        for name, column in _LINES_V2.items():
            if name in texts:
                row[COLUMN[column]] = _amount(number_or_max(texts[name]))
        if "cpu.max" in texts:
            both = cpu_max(texts["cpu.max"].decode())
            row[COLUMN["quotaMilli"]] = NONE if both.quota_us is None else both.quota_us * 1000 // both.period_us
    else:
        if "memory.limit_in_bytes" in texts:
            limit = int(texts["memory.limit_in_bytes"])
            row[COLUMN["max"]] = NONE if limit > UNLIMITED_ABOVE_BYTES else limit
        quota, period = int(texts.get("cpu.cfs_quota_us", b"-1")), int(texts.get("cpu.cfs_period_us", b"0"))
        row[COLUMN["quotaMilli"]] = quota * 1000 // period if quota > 0 and period else NONE
    weight = texts.get("cpu.weight") or texts.get("cpu.shares")
    if weight is not None:
        row[COLUMN["weight"]] = int(weight)
    if "pids.max" in texts:
        row[COLUMN["pidsMax"]] = _amount(number_or_max(texts["pids.max"]))


def _figures(row: list[int], texts: Mapping[str, bytes], version: int) -> None:
    usage = texts.get("memory.current") or texts.get("memory.usage_in_bytes")
    if usage is not None:
        row[COLUMN["usage"]] = int(usage)
    if "memory.stat" in texts:
        for key, amount in _STAT[version].of(texts["memory.stat"]).items():
            row[COLUMN[key]] = amount
    if "memory.kmem.usage_in_bytes" in texts:
        row[COLUMN["kernel"]] = int(texts["memory.kmem.usage_in_bytes"])
    events = texts.get("memory.events") or texts.get("memory.oom_control")
    if events is not None:
        row[COLUMN["oomKills"]] = _OOM_KILLS.of(events).get("oomKills", NONE)
    if "cpu.stat" in texts:
        stat = _CPU_STAT.of(texts["cpu.stat"])
        if "throttled_ns" in stat:
            stat["throttledUs"] = stat["throttled_ns"] // 1000
        for key in ("periods", "throttledPeriods", "throttledUs"):
            row[COLUMN[key]] = stat.get(key, NONE)
    if "pids.current" in texts:
        row[COLUMN["pids"]] = int(texts["pids.current"])
    for name, column in _STALLS.items():
        if name in texts and (some := pressure(texts[name]).some) is not None:
            row[COLUMN[column]] = round(some.avg10 * 100)


def _amount(value: int | None) -> int:
    return NONE if value is None else value


class CgroupReaders(OpenReaders[CgroupReader]):
    """Of the cgroups that the dashboard shows."""

    def __init__(self, files: CgroupOpener | None) -> None:
        super().__init__(1 / 3, _FDS_PER_CGROUP)
        self._files = files
        self.opening_s = 0.0  # CPU time in which files were opened that stay open

    def read(self, path: str, now_s: float) -> list[int] | None:
        """None where there is no such cgroup."""
        files = self._files
        if files is None or not path:
            return None
        return self.reading(path, lambda: self._opened(files, path), lambda reader: reader.read(now_s))

    def _opened(self, files: CgroupOpener, path: str) -> CgroupReader:
        began_s = time.thread_time()
        try:
            return CgroupReader(files, path)
        finally:
            if len(self._open) < self._most:
                self.opening_s += time.thread_time() - began_s
