"""What eviction looks at, read from the kernel: memory, file systems, process numbers (04 §1).

Memory is read through kept fds, because under pressure it is read a hundred times a second; file systems and process
numbers change slowly enough for a plain look. What this kernel or driver does not tell has no observation, and a
threshold without an observation is never met.

A node whose capacity was declared is not the whole machine. Its memory is then what its own cgroups use: those below
the cgroup root where there is one, else the pods'.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal

from plimsoll.cgroups.usage import Opens, UsageReader
from plimsoll.codec.kernel_files import flat_keyed
from plimsoll.linux.beneath import KeptFile
from plimsoll.rules.eviction import Observation, memory_observation, notifier_usage_bytes
from plimsoll.rules.quantity import from_units
from plimsoll.rules.thresholds import (
    ALLOCATABLE_MEMORY_AVAILABLE,
    CONTAINERFS_AVAILABLE,
    CONTAINERFS_INODES_FREE,
    IMAGEFS_AVAILABLE,
    IMAGEFS_INODES_FREE,
    MEMORY_AVAILABLE,
    NODEFS_AVAILABLE,
    NODEFS_INODES_FREE,
    PID_AVAILABLE,
    Threshold,
)
from plimsoll.rules.usage import working_set_bytes

MemoryFrom = Literal["cgroup", "meminfo"]
Observations = dict[str, Observation]


class Signals:
    def __init__(
        self,
        files: Opens | None,
        *,
        capacity_bytes: int,
        pods_path: str,
        node_path: str = "/",
        nodefs: Path,
        imagefs: Path | None = None,
        memory_from: MemoryFrom = "cgroup",
        proc: Path = Path("/proc"),
        clock: Callable[[], float],
    ) -> None:
        """`files`: how cgroup files are opened; None on a kernel in memory, which has no pressure to tell of."""
        self._capacity_bytes, self._nodefs, self._imagefs = capacity_bytes, nodefs, imagefs or nodefs
        self._proc, self._clock, self._memory_from = proc, clock, memory_from
        self._pods: UsageReader | None = None
        self._node: UsageReader | _RootMemory | None = None
        if files is not None:
            self._pods = UsageReader(files, pods_path, ("memory",))
            is_top = node_path == "/" and files.version == 2
            self._node = _RootMemory(files) if is_top else UsageReader(files, node_path, ("memory",))

    def close(self) -> None:
        for reader in (self._pods, self._node):
            if reader is not None:
                reader.close()

    def memory(self) -> Observations:
        """Two or three reads; nothing for what is gone or was never there."""
        now_s, found = self._clock(), Observations()
        node = self._node_working_set()
        if node is not None and (seen := memory_observation(self._capacity_bytes, node, now_s)) is not None:
            found[MEMORY_AVAILABLE] = seen
        pods = None if self._pods is None else self._pods.read().memory
        if pods is not None and pods.limit_bytes is not None and pods.working_set_bytes is not None:
            seen = memory_observation(pods.limit_bytes, pods.working_set_bytes, now_s)
            if seen is not None:
                found[ALLOCATABLE_MEMORY_AVAILABLE] = seen
        return found

    def pods_usage_at(self, thresholds: Iterable[Threshold]) -> list[int]:
        """Where the pods' usage stands when a threshold on their memory is met (§2.5); for v1's notifications."""
        pods = None if self._pods is None else self._pods.read().memory
        if pods is None or pods.limit_bytes is None:
            return []
        return [
            notifier_usage_bytes(each, pods.limit_bytes, pods.inactive_file_bytes or 0)
            for each in thresholds
            if each.signal == ALLOCATABLE_MEMORY_AVAILABLE
        ]

    def others(self) -> Observations:
        """File systems and process numbers."""
        now_s = self._clock()
        found = _filesystem(self._nodefs, NODEFS_AVAILABLE, NODEFS_INODES_FREE, now_s)
        found |= _filesystem(self._imagefs, IMAGEFS_AVAILABLE, IMAGEFS_INODES_FREE, now_s)
        found |= _filesystem(self._nodefs, CONTAINERFS_AVAILABLE, CONTAINERFS_INODES_FREE, now_s)
        most = min(self._number("sys/kernel/pid_max"), self._number("sys/kernel/threads-max"))
        tasks = int((self._proc / "loadavg").read_text().split()[3].partition("/")[2])
        found[PID_AVAILABLE] = Observation(from_units(most - tasks), from_units(most), now_s)
        return found

    def _node_working_set(self) -> int | None:
        if self._memory_from == "meminfo":
            lines = dict(line.split(":", 1) for line in (self._proc / "meminfo").read_text().splitlines())
            return self._capacity_bytes - int(lines["MemAvailable"].split()[0]) * 1024
        if isinstance(self._node, _RootMemory):
            return self._node.working_set_bytes()
        seen = None if self._node is None else self._node.read().memory
        return None if seen is None else seen.working_set_bytes

    def _number(self, name: str) -> int:
        return int((self._proc / name).read_text())


class _RootMemory:
    """The top of v2 has no memory.current: anonymous and file memory together are its usage (§1.1)."""

    def __init__(self, files: Opens) -> None:
        with files.directory("/", "memory.stat") as directory:
            self._kept = KeptFile(directory, "memory.stat") if directory.has("memory.stat") else None

    def working_set_bytes(self) -> int | None:
        if self._kept is None:
            return None
        stat = flat_keyed(self._kept.read())
        return working_set_bytes(stat["anon"] + stat["file"], stat["inactive_file"])

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
