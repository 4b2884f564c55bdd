"""Lower the memory limit of a cgroup that has processes, without an OOM kill: runs `rules.cgroups.shrink` on a driver.

`shrink: kubernetes` does what the kubelet does instead: it compares the usage with the new limit once, before anything
is written (02 §9.2). A process that grows between the check and the write may be killed, as with a kubelet.
The files: https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files
"""

from __future__ import annotations

import asyncio
import errno
import math
from collections.abc import Awaitable, Callable, Iterable

import msgspec

from plimsoll.cgroups.drivers.interface import CgroupDriver, CgroupError
from plimsoll.errors import StructuredError
from plimsoll.rules.cgroups import shrink
from plimsoll.rules.cgroups.desired_files import DesiredFiles, parent_path
from plimsoll.rules.cgroups.reasons import human_bytes
from plimsoll.rules.cgroups.reconcile import MEMORY_LIMITS, MEMSW_V1, amount
from plimsoll.rules.cgroups.rounding import same_value
from plimsoll.rules.cgroups.steps import Step, Write
from plimsoll.rules.resize.steps import MemoryCheck

RECLAIM = "memory.reclaim"
_NOT_YET = frozenset({errno.EBUSY, errno.EAGAIN})

SetLimit = Callable[[int], Awaitable[bool]]  # the runtime writes the limit; False while it does not fit


class ShrinkError(StructuredError):
    """The limit is not what it should be; `reason` says why. `lowered_to`: as far as the usage allowed, if at all."""

    path: str
    reason: str
    lowered_to: int | None = None

    def __str__(self) -> str:
        if self.lowered_to is None:
            return self.reason
        return f"{self.reason}; the limit is {human_bytes(self.lowered_to)} until then"


class Shrinker:
    def __init__(
        self,
        driver: CgroupDriver,
        *,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
        policy: shrink.ShrinkPolicy | None = None,
    ) -> None:
        self._driver = driver
        self._clock = clock
        self._sleep = sleep
        self.policy = policy or shrink.ShrinkPolicy()

    async def __call__(self, path: str, file: str, value: str, set_limit: SetLimit | None = None) -> None:
        """Return once the limit is set; otherwise lower it as far as it can be, and raise ShrinkError. memory.high is
        restored, and nothing stays frozen.

        `set_limit`: called in place of the write to the limit; it may write memory.high as well.
        """
        before = self._driver.read(path, ("memory.high", file))
        texts = before.files if before is not None else {}
        high = texts.get("memory.high")
        lowered_to: int | None = None
        progress, started = shrink.ShrinkProgress(self._usage(path, file)), self._clock()
        try:
            while True:
                move = shrink.next_move(int(value), progress, self._driver.version, self.policy)
                match move:
                    case shrink.TryLimit():
                        if await self._try_limit(path, file, int(value), set_limit):
                            return
                        progress = msgspec.structs.replace(progress, refused=True)
                    case shrink.ReclaimBytes(count):
                        await self._reclaim(path, count)  # v2
                        progress = msgspec.structs.replace(progress, reclaims=progress.reclaims + 1, refused=False)
                    case shrink.Throttle():
                        if high is not None and amount("memory.high", high) > int(value):
                            await self._driver.write(path, "memory.high", value)
                        progress = msgspec.structs.replace(progress, throttled=True)
                    case shrink.Approach():
                        has = amount(file, texts[file]) if file in texts else math.inf
                        lowered_to = await self._approach(path, file, int(value), has, set_limit)
                        progress = msgspec.structs.replace(progress, approached=True)
                    case shrink.Pause(seconds):
                        await self._sleep(seconds)
                        progress = msgspec.structs.replace(progress, refused=False)
                    case shrink.GiveUp(reason):
                        raise ShrinkError(path, reason, lowered_to)
                progress = msgspec.structs.replace(
                    progress, usage_bytes=self._usage(path, file), elapsed_s=self._clock() - started
                )
        finally:
            if progress.throttled and high is not None and self._is_throttled(path, value):
                await self._driver.write(path, "memory.high", high)

    async def _approach(
        self, path: str, file: str, target: int, limit_bytes: float, set_limit: SetLimit | None
    ) -> int | None:
        """Lower the limit as far as the usage allows; None if it stays as it is."""
        nearest = shrink.nearest_limit(target, self._usage(path, file), limit_bytes)
        if nearest is None or not await self._try_limit(path, file, nearest, set_limit):
            return None
        return nearest

    def _is_throttled(self, path: str, value: str) -> bool:
        """Whether memory.high still has the value that was written here."""
        now = self._driver.read(path, ("memory.high",))
        return now is not None and same_value("memory.high", value, now.files.get("memory.high", ""))

    def _usage(self, path: str, file: str) -> int:
        return usage_bytes(self._driver, path, swap_too=file == MEMSW_V1)

    async def _reclaim(self, path: str, count: int) -> None:
        if self._driver.has(RECLAIM) is not None:
            return  # a kernel before 5.19: memory.high alone must do
        try:
            await self._driver.write(path, RECLAIM, str(count))
        except CgroupError as error:
            if error.errno not in _NOT_YET:  # not all of it could be freed
                raise

    async def _try_limit(self, path: str, file: str, value: int, set_limit: SetLimit | None) -> bool:
        if self._driver.version == 1 and set_limit is not None:
            return await set_limit(value)
        if self._driver.version == 1:
            try:
                await self._driver.write(path, file, str(value))
            except CgroupError as error:
                if error.errno != errno.EBUSY:
                    raise
                return False
            return True
        cgroup = self._driver.read(path, ("cgroup.freeze",))
        if cgroup is not None and cgroup.files.get("cgroup.freeze") == "1":  # frozen by another process: stays frozen
            return await self._write_if_it_fits(path, file, value, set_limit)
        try:
            async with asyncio.timeout(self.policy.frozen_s):
                await self._driver.freeze(path, frozen=True)
            # Outside the timeout: a cancelled write could take effect after the thaw, and kill.
            return await self._write_if_it_fits(path, file, value, set_limit)
        except TimeoutError:
            return False
        finally:
            await self._driver.freeze(path, frozen=False)

    async def _write_if_it_fits(self, path: str, file: str, value: int, set_limit: SetLimit | None) -> bool:
        if self._usage(path, file) >= value:
            return False
        if set_limit is not None:
            return await set_limit(value)
        await self._driver.write(path, file, str(value))
        return True


def usage_bytes(driver: CgroupDriver, path: str, *, swap_too: bool = False) -> int:
    """The memory that the kernel has charged; 0 where the cgroup or the file does not exist."""
    file = "memory.current" if driver.version == 2 else "memory.usage_in_bytes"
    if swap_too:
        file = "memory.memsw.usage_in_bytes"
    texts = driver.texts(path, (file,))
    return int(texts.get(file, 0)) if texts is not None else 0


def check_as_kubernetes(driver: CgroupDriver, steps: Iterable[Step], plan: DesiredFiles) -> None:
    """Before anything is written: refuse a lower memory limit that is below the usage (02 §9.2)."""
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
