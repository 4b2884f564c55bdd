"""What eviction looks at, read from the kernel: memory, file systems, process numbers (04 §1).

Memory is read through kept fds, because under pressure it is read a hundred times a second; file systems and process
numbers change slowly enough for a plain look. What this kernel or driver does not tell has no observation, and a
threshold without an observation is never met.

A node whose capacity was declared is not the whole machine. Its memory is then what its own cgroups use: those below
the cgroup root where there is one, else the pods'.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

from plimsoll.cgroups.stats.usage import CgroupOpener, CgroupUsage, MemoryUsage, UsageReader
from plimsoll.codec.kernel.files import flat_keyed
from plimsoll.linux.cgroup_files import CgroupGoneError, KeptFile
from plimsoll.linux.machine import meminfo_bytes
from plimsoll.rules.config.thresholds import (
    ALLOCATABLE_MEMORY_AVAILABLE,
    CONTAINERFS_AVAILABLE,
    CONTAINERFS_INODES_FREE,
    IMAGEFS_AVAILABLE,
    IMAGEFS_INODES_FREE,
    MEMORY_AVAILABLE,
    NODEFS_AVAILABLE,
    NODEFS_INODES_FREE,
    PID_AVAILABLE,
    FsLayout,
    Threshold,
    fs_layout,
)
from plimsoll.rules.eviction.assessment import Observation, memory_observation, notifier_usage_bytes
from plimsoll.rules.eviction.usage import UNLIMITED_ABOVE_BYTES, working_set_bytes
from plimsoll.rules.quantity import from_units

log = logging.getLogger(__name__)

MemoryFrom = Literal["cgroup", "meminfo"]
Observations = dict[str, Observation]


class UsageMark(NamedTuple):
    """A usage at which the kernel is asked to wake us."""

    path: str
    usage_bytes: int


class Signals:
    def __init__(
        self,
        files: CgroupOpener | None,
        *,
        capacity_bytes: int,
        pods_path: str,
        node_path: str = "/",
        nodefs: Path,
        imagefs: Path | None = None,
        containerfs: Path | None = None,
        memory_from: MemoryFrom = "cgroup",
        proc: Path = Path("/proc"),
        clock: Callable[[], float],
    ) -> None:
        """`files`: how cgroup files are opened; None on a kernel in memory, which has no pressure to tell of.

        `containerfs`: where writable layers lie; None: where the images do (§1)."""
        self._capacity_bytes, self._nodefs, self._imagefs = capacity_bytes, nodefs, imagefs or nodefs
        self._containerfs = containerfs or self._imagefs
        self._proc, self._clock, self._memory_from = proc, clock, memory_from
        self._unreadable: set[str] = set()
        self._pods: _Memory | None = None
        self._node: _Memory | None = None
        if files is not None:
            self._pods = _Memory(files, pods_path)
            # Of a declared node the pods are all there is: one cgroup, read once.
            self._node = self._pods if node_path == pods_path else _Memory(files, node_path)

    def close(self) -> None:
        for reader in (self._pods, self._node):
            if reader is not None:
                reader.close()

    @property
    def layout(self) -> FsLayout:
        """Images on a file system of their own, or not; writable layers with them, or not."""
        node, images, layers = (os.stat(each).st_dev for each in (self._nodefs, self._imagefs, self._containerfs))
        return fs_layout(images != node, split_containerfs=layers != images)

    def memory(self) -> Observations:
        """Two or three reads; nothing for what is gone or was never there."""
        now_s, found = self._clock(), Observations()
        pods = None if self._pods is None else self._pods.read()
        node = pods if self._node is self._pods else None if self._node is None else self._node.read()
        used = None if node is None else node.working_set_bytes
        if self._memory_from == "meminfo":
            free = meminfo_bytes((self._proc / "meminfo").read_text())["MemAvailable"]
            used = max(0, self._capacity_bytes - free)  # a declared node is never larger than that
        if used is not None and (seen := memory_observation(self._capacity_bytes, used, now_s)) is not None:
            found[MEMORY_AVAILABLE] = seen
        if pods is not None and pods.limit_bytes is not None and pods.working_set_bytes is not None:
            seen = memory_observation(pods.limit_bytes, pods.working_set_bytes, now_s)
            if seen is not None:
                found[ALLOCATABLE_MEMORY_AVAILABLE] = seen
        return found

    def usage_marks(self, thresholds: Iterable[Threshold]) -> set[UsageMark]:
        """Where usage stands when a threshold on memory is met (§2.5); for v1's notifications."""
        marks = set()
        for each in thresholds:
            reader = self._pods if each.signal == ALLOCATABLE_MEMORY_AVAILABLE else self._node
            seen = None if reader is None else reader.read()
            if reader is None or seen is None:
                continue
            capacity = seen.limit_bytes if each.signal == ALLOCATABLE_MEMORY_AVAILABLE else self._capacity_bytes
            if capacity is not None and capacity <= UNLIMITED_ABOVE_BYTES:
                # In steps of a megabyte, so that page cache that comes and goes does not move them each time.
                at_bytes = notifier_usage_bytes(each, capacity, seen.inactive_file_bytes or 0) >> 20 << 20
                if at_bytes > 0:
                    marks.add(UsageMark(reader.path, at_bytes))
        return marks

    def others(self) -> Observations:
        """File systems and process numbers. What cannot be read has no observation, and the rest goes on."""
        now_s, found = self._clock(), Observations()
        for path, available, inodes in (
            (self._nodefs, NODEFS_AVAILABLE, NODEFS_INODES_FREE),
            (self._imagefs, IMAGEFS_AVAILABLE, IMAGEFS_INODES_FREE),
            (self._containerfs, CONTAINERFS_AVAILABLE, CONTAINERFS_INODES_FREE),
        ):
            found |= self._read(str(path), partial(_filesystem, path, available, inodes, now_s))
        return found | self._read(str(self._proc), partial(self._process_numbers, now_s))

    def _process_numbers(self, now_s: float) -> Observations:
        most = min(self._number("sys/kernel/pid_max"), self._number("sys/kernel/threads-max"))
        tasks = int((self._proc / "loadavg").read_text().split()[3].partition("/")[2])
        return {PID_AVAILABLE: Observation(from_units(most - tasks), from_units(most), now_s)}

    def _read(self, what: str, look: Callable[[], Observations]) -> Observations:
        """Trouble is told when it begins and when it is over, not with every look."""
        try:
            found = look()
        except OSError as error:
            if what not in self._unreadable:
                log.warning("no threshold on %s is met while it cannot be read: %s", what, error)
            self._unreadable.add(what)
            return {}
        if what in self._unreadable:
            log.info("%s can be read again", what)
            self._unreadable.discard(what)
        return found

    def _number(self, name: str) -> int:
        return int((self._proc / name).read_text())


class _Memory:
    """One cgroup's memory, whatever it takes to read it; opened again where it was removed and made anew."""

    def __init__(self, files: CgroupOpener, path: str) -> None:
        self.path, self._files = path, files
        self._reader: UsageReader | _RootMemory | None = None

    def read(self) -> MemoryUsage | None:
        for _ in range(2):
            try:
                if self._reader is None:
                    is_top = self.path == "/" and self._files.version == 2
                    self._reader = (
                        _RootMemory(self._files) if is_top else UsageReader(self._files, self.path, ("memory",))
                    )
                return self._reader.read().memory
            except CgroupGoneError:
                self.close()
        return None

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None


class _RootMemory:
    """The top of v2 has no memory.current: anonymous and file memory together are its usage (§1.1)."""

    def __init__(self, files: CgroupOpener) -> None:
        with files.directory("/", "memory.stat") as directory:
            self._kept = KeptFile(directory, "memory.stat") if directory.has("memory.stat") else None

    def read(self) -> CgroupUsage:
        if self._kept is None:
            return CgroupUsage()
        stat = flat_keyed(self._kept.read())
        used, inactive = stat["anon"] + stat["file"], stat["inactive_file"]
        return CgroupUsage(MemoryUsage(used, working_set_bytes(used, inactive), inactive_file_bytes=inactive))

    def close(self) -> None:
        if self._kept is not None:
            self._kept.close()


def _filesystem(path: Path, available: str, inodes: str, now_s: float) -> Observations:
    seen = os.statvfs(path)
    bytes_free, bytes_all = seen.f_bavail * seen.f_frsize, seen.f_blocks * seen.f_frsize
    found = {available: Observation(from_units(bytes_free, "BinarySI"), from_units(bytes_all, "BinarySI"), now_s)}
    if seen.f_files:  # some file systems do not count inodes
        found[inodes] = Observation(from_units(seen.f_favail), from_units(seen.f_files), now_s)
    return found
