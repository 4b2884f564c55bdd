"""Ask the kernel to reclaim memory of the pods before one of them is evicted, for a short time only.

`memory.reclaim` (cgroup v2, Linux 5.19) blocks while the kernel works, so a thread writes it in small parts and checks
the clock between two parts. If the pods have hardly any active page cache (inactive pages do not count as used) and the
machine has no swap there is nothing to gain, and the kernel is not asked: it would scan all their memory to find that
out. v1 can only empty whole cgroups. See https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files.
"""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import Callable
from pathlib import Path

from plimsoll.cgroups.stats.usage import CgroupOpener, usage
from plimsoll.codec.kernel.files import flat_keyed
from plimsoll.linux.cgroup_files import CgroupError
from plimsoll.linux.machine import meminfo_bytes

FILE = "memory.reclaim"
BOUND_S = 0.05
PART_BYTES = 2 << 20
LEAST_BYTES = 1 << 20  # page cache that is worth the attempt


class MemoryReclaim:
    def __init__(
        self,
        files: CgroupOpener,
        pods_path: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        proc: Path = Path("/proc"),
    ) -> None:
        self._files, self._pods_path, self._clock, self._proc = files, pods_path, clock, proc
        self.gained_bytes = 0  # in all

    async def of(self, path: str, wanted_bytes: int) -> None:
        """The same for one container above its memory.high."""
        await asyncio.to_thread(self._reclaim, wanted_bytes, path)

    async def __call__(self, wanted_bytes: int) -> int:
        """How much less the pods use afterwards; never negative."""
        if not self._may_gain():
            return 0
        before = self._used()
        await asyncio.to_thread(self._reclaim, wanted_bytes, self._pods_path)
        gained = max(0, before - self._used())
        self.gained_bytes += gained
        return gained

    def _reclaim(self, wanted_bytes: int, path: str) -> None:
        end_s, left = self._clock() + BOUND_S, wanted_bytes
        with self._files.directory(path, FILE) as directory:
            while left > 0 and self._clock() < end_s:
                part = min(left, PART_BYTES)
                try:
                    directory.write(FILE, str(part))
                except CgroupError as error:
                    if error.errno == errno.EAGAIN:  # the kernel found less than that
                        return
                    raise
                left -= part

    def _may_gain(self) -> bool:
        with self._files.directory(self._pods_path, "memory.stat") as directory:
            stat = flat_keyed(directory.read("memory.stat"))
        cached = sum(stat.get(name, 0) for name in ("active_file", "slab_reclaimable"))
        return cached >= LEAST_BYTES or meminfo_bytes((self._proc / "meminfo").read_text()).get("SwapFree", 0) > 0

    def _used(self) -> int:
        pods = usage(self._files, self._pods_path, ("memory",))
        return pods.memory.usage_bytes if pods is not None and pods.memory is not None else 0
