"""The eviction signals, read from the kernel: memory, file systems, process numbers (04 §1).

Memory is read through open files, because under pressure it is read a hundred times a second; file systems and process
numbers change slowly and are opened for each read. A signal that this kernel or driver does not have gets no
observation, and a threshold without an observation is never met.

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
from plimsoll.node.stats.process_usage import PROC, process_numbers
from plimsoll.node.stats.stats import NodePlace
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


class UsageThreshold(NamedTuple):
    """A usage of a cgroup at which the kernel should notify."""

    path: str
    usage_bytes: int


class Signals:
    def __init__(
        self,
        files: CgroupOpener | None,
        place: NodePlace,
        *,
        capacity_bytes: int,
        hugepages_bytes: int = 0,
        memory_from: MemoryFrom = "cgroup",
        proc: Path = PROC,
        clock: Callable[[], float],
    ) -> None:
        """`files`: how cgroup files are opened; None on a simulated kernel, which has no memory signals."""
        self._capacity_bytes, self._nodefs, self._imagefs = capacity_bytes, place.nodefs, place.imagefs
        self._withheld_bytes = hugepages_bytes if memory_from == "cgroup" else 0  # MemAvailable does not contain them
        self._containerfs = place.containerfs or place.imagefs  # §1
        self._proc, self._clock, self._memory_from = proc, clock, memory_from
        self._unreadable: set[str] = set()
        self._pods: _Memory | None = None
        self._node: _Memory | None = None
        if files is not None:
            self._pods = _Memory(files, place.pods_path)
            # The memory of a declared node is that of its pods: one cgroup, read once.
            self._node = self._pods if place.node_path == place.pods_path else _Memory(files, place.node_path)

    def close(self) -> None:
        for reader in (self._pods, self._node):
            if reader is not None:
                reader.close()

    @property
    def layout(self) -> FsLayout:
        """Whether images have a file system of their own, and whether writable layers are on it."""
        node, images, layers = (os.stat(path).st_dev for path in (self._nodefs, self._imagefs, self._containerfs))
        return fs_layout(images != node, split_containerfs=layers != images)

    def memory(self) -> Observations:
        """Two or three reads; no observation for a cgroup that does not exist."""
        now_s, observations = self._clock(), Observations()
        pods = None if self._pods is None else self._pods.read()
        node = pods if self._node is self._pods else None if self._node is None else self._node.read()
        used = None if node is None else node.working_set_bytes
        if self._memory_from == "meminfo":
            free = meminfo_bytes((self._proc / "meminfo").read_text())["MemAvailable"]
            used = max(0, self._capacity_bytes - free)  # a declared node is never larger than that
        withheld = self._withheld_bytes
        memory = None if used is None else memory_observation(self._capacity_bytes, used, now_s, withheld)
        if memory is not None:
            observations[MEMORY_AVAILABLE] = memory
        if pods is not None and pods.limit_bytes is not None and pods.working_set_bytes is not None:
            memory = memory_observation(pods.limit_bytes, pods.working_set_bytes, now_s)
            if memory is not None:
                observations[ALLOCATABLE_MEMORY_AVAILABLE] = memory
        return observations

    def usage_thresholds(self, thresholds: Iterable[Threshold]) -> set[UsageThreshold]:
        """The usage at which each threshold on memory is met (§2.5); for notifications of v1."""
        usages = set()
        for threshold in thresholds:
            reader = self._pods if threshold.signal == ALLOCATABLE_MEMORY_AVAILABLE else self._node
            memory = None if reader is None else reader.read()
            if reader is None or memory is None:
                continue
            of_pods = threshold.signal == ALLOCATABLE_MEMORY_AVAILABLE
            capacity = memory.limit_bytes if of_pods else self._capacity_bytes - self._withheld_bytes
            if capacity is not None and capacity <= UNLIMITED_ABOVE_BYTES:
                # In steps of a mebibyte, so that small changes of the page cache do not rearm the notification.
                at_bytes = notifier_usage_bytes(threshold, capacity, memory.inactive_file_bytes or 0) >> 20 << 20
                if at_bytes > 0:
                    usages.add(UsageThreshold(reader.path, at_bytes))
        return usages

    def others(self) -> Observations:
        """File systems and process numbers. One that cannot be read has no observation."""
        now_s, observations = self._clock(), Observations()
        for path, available, inodes in (
            (self._nodefs, NODEFS_AVAILABLE, NODEFS_INODES_FREE),
            (self._imagefs, IMAGEFS_AVAILABLE, IMAGEFS_INODES_FREE),
            (self._containerfs, CONTAINERFS_AVAILABLE, CONTAINERFS_INODES_FREE),
        ):
            observations |= self._read(path, partial(_filesystem, path, available, inodes, now_s))
        return observations | self._read(str(self._proc), partial(self._process_numbers, now_s))

    def _process_numbers(self, now_s: float) -> Observations:
        limit, tasks = process_numbers(self._proc)
        return {PID_AVAILABLE: Observation(from_units(limit - tasks), from_units(limit), now_s)}

    def _read(self, source: str, read: Callable[[], Observations]) -> Observations:
        """An error is logged when it first occurs and when it is over, not with every read."""
        try:
            observations = read()
        except OSError as error:
            if source not in self._unreadable:
                log.warning("%s cannot be read, its thresholds are not checked: %s", source, error)
            self._unreadable.add(source)
            return {}
        if source in self._unreadable:
            log.info("%s can be read again", source)
            self._unreadable.discard(source)
        return observations


class _Memory:
    """The memory of one cgroup; opened again where it was removed and created again."""

    def __init__(self, files: CgroupOpener, path: str) -> None:
        self.path, self._files = path, files
        self._reader: UsageReader | _RootMemory | None = None

    def read(self) -> MemoryUsage | None:
        for _ in range(2):
            try:
                if self._reader is None:
                    is_root = self.path == "/" and self._files.version == 2
                    self._reader = (
                        _RootMemory(self._files) if is_root else UsageReader(self._files, self.path, ("memory",))
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
    """The root cgroup of v2 has no memory.current: its usage is anonymous and file memory together (§1.1)."""

    def __init__(self, files: CgroupOpener) -> None:
        with files.directory("/", "memory.stat") as directory:
            self._stat = KeptFile(directory, "memory.stat") if directory.has("memory.stat") else None

    def read(self) -> CgroupUsage:
        if self._stat is None:
            return CgroupUsage()
        stat = flat_keyed(self._stat.read())
        used, inactive = stat["anon"] + stat["file"], stat["inactive_file"]
        return CgroupUsage(MemoryUsage(used, working_set_bytes(used, inactive), inactive_file_bytes=inactive))

    def close(self) -> None:
        if self._stat is not None:
            self._stat.close()


def _filesystem(path: str, available: str, inodes: str, now_s: float) -> Observations:
    stat = os.statvfs(path)
    free, size = stat.f_bavail * stat.f_frsize, stat.f_blocks * stat.f_frsize
    observations = {available: Observation(from_units(free, "BinarySI"), from_units(size, "BinarySI"), now_s)}
    if stat.f_files:  # some file systems do not count inodes
        observations[inodes] = Observation(from_units(stat.f_favail), from_units(stat.f_files), now_s)
    return observations
