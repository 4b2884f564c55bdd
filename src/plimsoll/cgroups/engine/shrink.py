"""Memory limits of living cgroups come down without killing: climbs `rules.cgroups.shrink` on a driver.

`shrink: kubernetes` asks instead what the kubelet asks, once and before anything is written: is as much in use as the
new limit allows (02 §9.2)? Between that question and the write a process may grow and be killed, as with a kubelet.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Iterable

import msgspec

from plimsoll.cgroups.drivers.interface import CgroupDriver, CgroupError
from plimsoll.errors import PlimsollError
from plimsoll.rules.cgroups.desired_files import DesiredFiles, parent_path
from plimsoll.rules.cgroups.reconcile import MEMORY_LIMITS, MEMSW_V1, amount
from plimsoll.rules.cgroups.rounding import same_value
from plimsoll.rules.cgroups.shrink import (
    GiveUp,
    Pause,
    ReclaimBytes,
    ShrinkPolicy,
    ShrinkProgress,
    Throttle,
    TryLimit,
    next_move,
)
from plimsoll.rules.cgroups.steps import Step, Write
from plimsoll.rules.resize.steps import MemoryCheck

_NOT_YET = frozenset({errno.EBUSY, errno.EAGAIN})

SetLimit = Callable[[], Awaitable[bool]]  # writes the limit in our stead; False where it does not fit (yet)


class ShrinkError(PlimsollError):
    """The limit stays as it was; `reason` says why."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return self.reason


class Shrinker:
    def __init__(
        self,
        driver: CgroupDriver,
        *,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
        ladder: ShrinkPolicy | None = None,
    ) -> None:
        self._driver = driver
        self._clock = clock
        self._sleep = sleep
        self.ladder = ladder or ShrinkPolicy()

    async def __call__(self, path: str, file: str, value: str, set_limit: SetLimit | None = None) -> None:
        """Returns when the limit stands; else ShrinkRefused, with memory.high as before and nothing frozen.

        `set_limit`: somebody else writes the limit, when we say so; he may write memory.high as well."""
        before = self._driver.look(path, ("memory.high",))
        high = before.files.get("memory.high") if before is not None else None
        progress, started = ShrinkProgress(self._usage(path, file)), self._clock()
        try:
            while True:
                move = next_move(int(value), progress, self._driver.version, self.ladder)
                match move:
                    case TryLimit():
                        if await self._try_limit(path, file, value, set_limit):
                            return
                        progress = msgspec.structs.replace(progress, refused=True)
                    case ReclaimBytes(count):
                        await self._reclaim(path, count)
                        progress = msgspec.structs.replace(progress, reclaims=progress.reclaims + 1, refused=False)
                    case Throttle():
                        if high is not None and amount("memory.high", high) > int(value):
                            await self._driver.write(path, "memory.high", value)
                        progress = msgspec.structs.replace(progress, throttled=True)
                    case Pause(seconds):
                        await self._sleep(seconds)
                        progress = msgspec.structs.replace(progress, refused=False)
                    case GiveUp(reason):
                        raise ShrinkError(path, reason)
                progress = msgspec.structs.replace(
                    progress, usage_bytes=self._usage(path, file), elapsed_s=self._clock() - started
                )
        finally:
            if progress.throttled and high is not None and self._is_throttled(path, value):
                await self._driver.write(path, "memory.high", high)

    def _is_throttled(self, path: str, value: str) -> bool:
        """Whether memory.high still stands as we wrote it."""
        now = self._driver.look(path, ("memory.high",))
        return now is not None and same_value("memory.high", value, now.files.get("memory.high", ""))

    def _usage(self, path: str, file: str) -> int:
        return usage_bytes(self._driver, path, swap_too=file == MEMSW_V1)

    async def _reclaim(self, path: str, count: int) -> None:
        file, data = ("memory.reclaim", str(count)) if self._driver.version == 2 else ("memory.force_empty", "0")
        if self._driver.has(file) is not None:
            return  # an old kernel: memory.high does it alone
        try:
            await self._driver.write(path, file, data)
        except CgroupError as error:
            if error.errno not in _NOT_YET:  # not all of it could be freed
                raise

    async def _try_limit(self, path: str, file: str, value: str, set_limit: SetLimit | None) -> bool:
        if self._driver.version == 1 and set_limit is not None:
            return await set_limit()
        if self._driver.version == 1:
            try:
                await self._driver.write(path, file, value)
            except CgroupError as error:
                if error.errno != errno.EBUSY:
                    raise
                return False
            return True
        seen = self._driver.look(path, ("cgroup.freeze",))
        if seen is not None and seen.files.get("cgroup.freeze") == "1":  # somebody else has stopped it: so it stays
            return await self._write_if_it_fits(path, file, value, set_limit)
        try:
            async with asyncio.timeout(self.ladder.frozen_s):
                await self._driver.freeze(path, frozen=True)
            # Not to be cut off: a write that nobody waits for may come after the thaw, and kill.
            return await self._write_if_it_fits(path, file, value, set_limit)
        except TimeoutError:
            return False
        finally:
            await self._driver.freeze(path, frozen=False)

    async def _write_if_it_fits(self, path: str, file: str, value: str, set_limit: SetLimit | None) -> bool:
        if self._usage(path, file) >= int(value):
            return False
        if set_limit is not None:
            return await set_limit()
        await self._driver.write(path, file, value)
        return True


def usage_bytes(driver: CgroupDriver, path: str, *, swap_too: bool = False) -> int:
    """What the kernel has charged; 0 where the cgroup or the file is not there."""
    file = "memory.current" if driver.version == 2 else "memory.usage_in_bytes"
    if swap_too:
        file = "memory.memsw.usage_in_bytes"
    seen = driver.look(path, (file,))
    return int(seen.files.get(file, 0)) if seen is not None else 0


def check_as_kubernetes(driver: CgroupDriver, steps: Iterable[Step], plan: DesiredFiles) -> None:
    """Before anything is written: no memory limit that is new or lower may be below what is in use (02 §9.2)."""
    for step in steps:
        if not isinstance(step, Write) or step.was is None or step.file not in MEMORY_LIMITS - {MEMSW_V1}:
            continue
        level, name = plan[step.path].level, plan[step.path].name
        if level not in ("pod", "container") or amount(step.file, step.value) >= amount(step.file, step.was):
            continue
        pod = step.path if level == "pod" else parent_path(step.path)
        check = MemoryCheck(int(step.value), name if level == "container" else None)
        refusal = check.refusal(usage_bytes(driver, step.path), usage_bytes(driver, pod))
        if refusal is not None:
            raise ShrinkError(step.path, refusal)
