"""The usage of a cgroup, in one form for v1 and v2.

A `UsageReader` opens the files of one cgroup once and reads each with one `pread` per tick. It belongs to that cgroup,
not to its path, and raises `CgroupGoneError` once it is removed. `usage` reads once. A value that the kernel does not
report is None, not zero.

On v1 the event counts are those of the cgroup alone; v2 also has those of its descendants.
The files: https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files
"""

from __future__ import annotations

import errno
import functools
import os
from collections.abc import Hashable, Iterable, Mapping
from contextlib import ExitStack, closing, suppress
from typing import Literal, Protocol, get_args

import msgspec

from plimsoll.codec.kernel.files import PressureStall, SomeKeys, cpu_max, number_or_max, pressure
from plimsoll.linux.cgroup_files import CgroupError, CgroupGoneError, Directory, KeptFile
from plimsoll.linux.machine import HUGEPAGES
from plimsoll.rules.eviction.usage import UNLIMITED_ABOVE_BYTES, working_set_bytes
from plimsoll.rules.model.kernel import CgroupVersion
from plimsoll.rules.resources.cpu import shares_from_weight
from plimsoll.rules.resources.memory import page_label

# `failcnt` is a part of `events`, `pids_current` of `pids`: what is read at every scrape.
Part = Literal[
    "memory", "events", "failcnt", "cpu", "pressure", "pids", "pids_current", "hugetlb", "lines", "cpu_limit"
]
PARTS: frozenset[Part] = frozenset(get_args(Part))


class MemoryUsage(msgspec.Struct, frozen=True, gc=False):
    usage_bytes: int
    working_set_bytes: int | None  # usage − inactive_file: the figure that eviction uses
    limit_bytes: int | None = None  # None: no limit
    anon_bytes: int | None = None
    file_bytes: int | None = None
    inactive_file_bytes: int | None = None
    page_faults: int | None = None
    major_page_faults: int | None = None


class MemoryEvents(msgspec.Struct, frozen=True, gc=False):
    low: int | None = None
    high: int | None = None
    max: int | None = None  # v1: failcnt
    oom: int | None = None
    oom_kill: int | None = None
    oom_group_kill: int | None = None


class CpuUsage(msgspec.Struct, frozen=True, gc=False):
    usage_us: int | None = None
    user_us: int | None = None
    system_us: int | None = None
    periods: int | None = None
    throttled_periods: int | None = None
    throttled_us: int | None = None


class Pids(msgspec.Struct, frozen=True, gc=False):
    current: int
    limit: int | None = None  # None: no limit


class Pressures(msgspec.Struct, frozen=True, gc=False):
    cpu: PressureStall | None = None
    memory: PressureStall | None = None
    io: PressureStall | None = None


class MemoryLines(msgspec.Struct, frozen=True, gc=False):
    """The protections and the throttling limit of v2; v1 has none of them."""

    min_bytes: int = 0
    low_bytes: int = 0
    high_bytes: int | None = None  # None: no limit


class CpuLimit(msgspec.Struct, frozen=True, gc=False):
    shares: int  # on v2 those of its weight
    quota_us: int | None  # None: no limit
    period_us: int


class CgroupUsage(msgspec.Struct, frozen=True):
    memory: MemoryUsage | None = None
    events: MemoryEvents | None = None  # including descendants; v2 only
    events_local: MemoryEvents | None = None
    cpu: CpuUsage | None = None
    pressure: Pressures | None = None
    pids: Pids | None = None
    hugetlb_bytes: Mapping[str, int] | None = None  # `2MB` → bytes in use
    lines: MemoryLines | None = None  # v2 only
    cpu_limit: CpuLimit | None = None


class CgroupOpener(Protocol):
    """The part of a cgroupfs driver that is used here."""

    @property
    def version(self) -> CgroupVersion: ...
    def directory(self, path: str, file: str) -> Directory: ...
    def mount_of(self, file: str) -> Hashable | None:
        """The same for all files of one hierarchy; None for one that is not mounted."""


_PRESSURE = ("cpu.pressure", "memory.pressure", "io.pressure")
_FILE_NAMES: dict[CgroupVersion, dict[Part, tuple[str, ...]]] = {
    2: {
        "memory": ("memory.current", "memory.stat", "memory.max"),
        "events": ("memory.events", "memory.events.local"),
        "failcnt": ("memory.events.local",),
        "cpu": ("cpu.stat",),
        "pressure": _PRESSURE,
        "pids": ("pids.current", "pids.max"),
        "pids_current": ("pids.current",),
        "lines": ("memory.min", "memory.low", "memory.high"),
        "cpu_limit": ("cpu.weight", "cpu.max"),
    },
    1: {
        "memory": ("memory.usage_in_bytes", "memory.stat", "memory.limit_in_bytes"),
        "events": ("memory.failcnt", "memory.oom_control"),
        "failcnt": ("memory.failcnt",),
        "cpu": ("cpuacct.usage", "cpuacct.usage_user", "cpuacct.usage_sys", "cpu.stat"),
        "pressure": _PRESSURE,
        "pids": ("pids.current", "pids.max"),
        "pids_current": ("pids.current",),
        "cpu_limit": ("cpu.shares", "cpu.cfs_quota_us", "cpu.cfs_period_us"),
    },
}
# Kernel key → field. On v1, `total_…` includes the descendants.
_STAT_V2 = SomeKeys(
    {
        "anon": "anon_bytes",
        "file": "file_bytes",
        "inactive_file": "inactive_file_bytes",
        "pgfault": "page_faults",
        "pgmajfault": "major_page_faults",
    }
)
_STAT_V1 = SomeKeys(
    {
        "total_rss": "anon_bytes",
        "total_cache": "file_bytes",
        "total_inactive_file": "inactive_file_bytes",
        "total_pgfault": "page_faults",
        "total_pgmajfault": "major_page_faults",
    }
)
_CPU_V2 = SomeKeys(
    {
        "usage_usec": "usage_us",
        "user_usec": "user_us",
        "system_usec": "system_us",
        "nr_periods": "periods",
        "nr_throttled": "throttled_periods",
        "throttled_usec": "throttled_us",
    }
)
_CPU_V1 = SomeKeys({"nr_periods": "periods", "nr_throttled": "throttled_periods", "throttled_time": "throttled_ns"})
_EVENTS = SomeKeys({name: name for name in MemoryEvents.__struct_fields__})
_OOM_CONTROL = SomeKeys({"oom_kill": "oom_kill"})


class UsageReader:
    """Keeps one fd per file: with all parts about ten (v2) or fourteen (v1), so request only the parts you need."""

    def __init__(self, driver: CgroupOpener, path: str, parts: Iterable[Part] = PARTS) -> None:
        self.version: CgroupVersion = driver.version
        self.path = path
        self._parts = frozenset(parts)
        self._files = kept_files(driver, path, _files(self.version, self._parts))

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()

    def read(self) -> CgroupUsage:
        """Raises CgroupGoneError once the cgroup is removed."""
        return from_texts({name: file.read() for name, file in self._files.items()}, self.version, self._parts)


def kept_files(driver: CgroupOpener, path: str, names: Iterable[str]) -> dict[str, KeptFile]:
    """Open those of the files that the cgroup has: a kernel may lack a file, and a hierarchy the cgroup.

    Raises CgroupGoneError where no hierarchy has it.
    """
    found: dict[str, KeptFile] = {}
    with ExitStack() as opened:
        opened.enter_context(driver.directory(path, "cgroup.procs"))
        directories: dict[Hashable, Directory | None] = {None: None}
        try:
            for name in names:
                mount = driver.mount_of(name)
                if mount not in directories:
                    directories[mount] = None
                    with suppress(CgroupGoneError):
                        directories[mount] = opened.enter_context(driver.directory(path, name))
                directory = directories[mount]
                if directory is not None and (file := _kept_file(directory, name)) is not None:
                    found[name] = file
        except CgroupError:
            for file in found.values():
                file.close()
            raise
    return found


def _kept_file(directory: Directory, name: str) -> KeptFile | None:
    try:
        file = KeptFile(directory, name)
    except CgroupGoneError:
        return None
    except CgroupError as error:
        if error.errno == errno.ENOENT:
            return None
        raise
    if not name.endswith(".pressure"):
        return file
    try:
        file.read()
    except CgroupError as error:
        file.close()
        if error.errno not in (errno.EOPNOTSUPP, errno.ENODEV):
            raise
        return None  # PSI is disabled, or the cgroup is gone
    return file


def usage(driver: CgroupOpener, path: str, parts: Iterable[Part] = PARTS) -> CgroupUsage | None:
    """None where there is no such cgroup."""
    with suppress(CgroupGoneError), closing(UsageReader(driver, path, parts)) as reader:
        return reader.read()
    return None


def from_texts(texts: Mapping[str, bytes], version: CgroupVersion, parts: frozenset[Part] = PARTS) -> CgroupUsage:
    """From the contents of the files that exist."""
    is_v2, local = version == 2, not parts.isdisjoint(("events", "failcnt"))
    return CgroupUsage(
        None if "memory" not in parts else _memory_v2(texts) if is_v2 else _memory_v1(texts),
        _events(texts.get("memory.events")) if "events" in parts else None,
        None if not local else _events(texts.get("memory.events.local")) if is_v2 else _events_v1(texts),
        None if "cpu" not in parts else _cpu_v2(texts) if is_v2 else _cpu_v1(texts),
        _pressures(texts) if "pressure" in parts else None,
        _pids(texts) if "pids" in parts or "pids_current" in parts else None,
        _hugetlb(texts) if "hugetlb" in parts else None,
        _lines(texts) if "lines" in parts else None,
        None if "cpu_limit" not in parts else _cpu_limit_v2(texts) if is_v2 else _cpu_limit_v1(texts),
    )


def host_pressure(directory: str = "/proc/pressure") -> Pressures | None:
    """The PSI of the whole machine; None where the kernel has none, it is disabled, or it may not be read."""
    texts: dict[str, bytes] = {}
    for resource in ("cpu", "memory", "io"):
        try:
            fd = os.open(f"{directory}/{resource}", os.O_RDONLY | os.O_CLOEXEC)
        except (FileNotFoundError, PermissionError):
            continue
        try:
            texts[f"{resource}.pressure"] = os.read(fd, 4096)
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:  # psi=0
                raise
        finally:
            os.close(fd)
    return _pressures(texts)


def _files(version: CgroupVersion, parts: frozenset[Part]) -> list[str]:
    files = list(dict.fromkeys(file for part, names in _FILE_NAMES[version].items() if part in parts for file in names))
    if "hugetlb" in parts:
        suffix = "current" if version == 2 else "usage_in_bytes"
        files += [f"hugetlb.{label}.{suffix}" for label in huge_page_labels()]
    return files


@functools.cache
def huge_page_labels() -> tuple[str, ...]:
    """The huge page sizes of this kernel, as file names spell them."""
    try:
        names = os.listdir(HUGEPAGES)
    except FileNotFoundError:
        return ()
    sizes = sorted(int(name.removeprefix("hugepages-").removesuffix("kB")) * 1024 for name in names)
    return tuple(map(page_label, sizes))


def _memory(used: bytes | None, stat: bytes | None, limit: int | None, keys: SomeKeys) -> MemoryUsage | None:
    if used is None:
        return None
    usage_bytes, stats = int(used), keys.of(stat or b"")
    inactive = stats.get("inactive_file_bytes")
    working_set = None if inactive is None else working_set_bytes(usage_bytes, inactive)
    return MemoryUsage(usage_bytes, working_set, limit, **stats)


def _memory_v2(texts: Mapping[str, bytes]) -> MemoryUsage | None:
    limit = number_or_max(texts.get("memory.max", b"max"))
    used, stat = texts.get("memory.current"), texts.get("memory.stat")
    if used is None and stat is not None:  # the root cgroup has no memory.current (04 §1.1)
        stats = _STAT_V2.of(stat)
        used = b"%d" % (stats.get("anon_bytes", 0) + stats.get("file_bytes", 0))
    return _memory(used, stat, limit, _STAT_V2)


def _memory_v1(texts: Mapping[str, bytes]) -> MemoryUsage | None:
    limit = number_or_max(texts.get("memory.limit_in_bytes", b"max"))
    if limit is not None and limit > UNLIMITED_ABOVE_BYTES:
        limit = None
    return _memory(texts.get("memory.usage_in_bytes"), texts.get("memory.stat"), limit, _STAT_V1)


def _events(text: bytes | None) -> MemoryEvents | None:
    return None if text is None else MemoryEvents(**_EVENTS.of(text))


def _events_v1(texts: Mapping[str, bytes]) -> MemoryEvents | None:
    failures, control = texts.get("memory.failcnt"), texts.get("memory.oom_control")
    if failures is None and control is None:
        return None
    kills = None if control is None else _OOM_CONTROL.of(control).get("oom_kill")
    return MemoryEvents(max=None if failures is None else int(failures), oom_kill=kills)


def _cpu_v2(texts: Mapping[str, bytes]) -> CpuUsage | None:
    text = texts.get("cpu.stat")
    return None if text is None else CpuUsage(**_CPU_V2.of(text))


def _cpu_v1(texts: Mapping[str, bytes]) -> CpuUsage | None:
    stat = _CPU_V1.of(texts.get("cpu.stat", b""))
    used = _micros(texts.get("cpuacct.usage"))
    if not stat and used is None:
        return None
    return CpuUsage(
        used,
        _micros(texts.get("cpuacct.usage_user")),
        _micros(texts.get("cpuacct.usage_sys")),
        stat.get("periods"),
        stat.get("throttled_periods"),
        _micros(stat.get("throttled_ns")),
    )


def _micros(nanos: bytes | int | None) -> int | None:
    return None if nanos is None else int(nanos) // 1000


def _pressures(texts: Mapping[str, bytes]) -> Pressures | None:
    stalls = {
        name: pressure(texts[f"{name}.pressure"]) for name in ("cpu", "memory", "io") if f"{name}.pressure" in texts
    }
    return Pressures(**stalls) if stalls else None


def _pids(texts: Mapping[str, bytes]) -> Pids | None:
    if (current := texts.get("pids.current")) is None:
        return None
    return Pids(int(current), number_or_max(texts.get("pids.max", b"max")))


def _lines(texts: Mapping[str, bytes]) -> MemoryLines | None:
    if "memory.min" not in texts:
        return None
    lowest, low = number_or_max(texts["memory.min"]), number_or_max(texts.get("memory.low", b"0"))
    everything = UNLIMITED_ABOVE_BYTES  # `max` protects all there is
    return MemoryLines(
        everything if lowest is None else lowest,
        everything if low is None else low,
        number_or_max(texts.get("memory.high", b"max")),
    )


def _cpu_limit_v2(texts: Mapping[str, bytes]) -> CpuLimit | None:
    if (weight := texts.get("cpu.weight")) is None or (limit := texts.get("cpu.max")) is None:
        return None
    quota = cpu_max(limit.decode())
    return CpuLimit(shares_from_weight(int(weight)), quota.quota_us, quota.period_us)


def _cpu_limit_v1(texts: Mapping[str, bytes]) -> CpuLimit | None:
    if (shares := texts.get("cpu.shares")) is None:
        return None
    quota_us = int(texts.get("cpu.cfs_quota_us", b"-1"))
    return CpuLimit(int(shares), quota_us if quota_us >= 0 else None, int(texts.get("cpu.cfs_period_us", b"0")))


def _hugetlb(texts: Mapping[str, bytes]) -> dict[str, int] | None:
    usage = {file.split(".")[1]: int(text) for file, text in texts.items() if file.startswith("hugetlb.")}
    return usage or None
