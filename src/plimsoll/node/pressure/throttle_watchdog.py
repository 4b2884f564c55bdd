"""Looks once a second at containers that have a memory.high, and helps those that are parked above it.

Only cgroup v2 has memory.high. A container without one costs nothing: which have one is looked up when containers come
or go. Of the others two files are read each second, `memory.current` and `memory.high`, and the rest only where usage
is near the mark. What it means and what is to be done is `rules.oom.throttling`'s to say. A mark is moved by whoever
writes the container's cgroup (`lift`), the cgroup engine or a runtime, so that it is what is wanted from then on and
nobody repairs it; the next run of the container begins with the rules' own value again. Only what the kernel then has
in memory.high counts as done.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from plimsoll.cgroups.stats.usage import CgroupOpener
from plimsoll.codec.kernel.files import flat_keyed, number_or_max, pressure
from plimsoll.errors import PlimsollError
from plimsoll.linux.cgroup_files import CgroupError, CgroupGoneError, KeptFile
from plimsoll.node.pressure.oom_ledger import MonitoredContainer
from plimsoll.rules.cgroups.rounding import same_value
from plimsoll.rules.oom.throttling import (
    NEAR_SHARE,
    Policy,
    Throttled,
    ThrottleFinding,
    ThrottleSample,
    helped,
    throttle_sentence,
    watched,
)
from plimsoll.rules.resources.files import MAX

EVERY_S = 1.0
LOOK_FOR_NEW_S = 10.0
THROTTLED = "MemoryThrottled"
_HIGH, _MAX, _CURRENT, _EVENTS, _PRESSURE = (
    "memory.high",
    "memory.max",
    "memory.current",
    "memory.events",
    "memory.pressure",
)
log = logging.getLogger(__name__)

Lift = Callable[[MonitoredContainer, str], Awaitable[None]]
Reclaim = Callable[[MonitoredContainer, int], Awaitable[None]]
Tell = Callable[[MonitoredContainer, str, str], None]


class ThrottleWatchdog:
    def __init__(
        self,
        files: CgroupOpener | None,
        containers: Callable[[], Iterable[MonitoredContainer]],
        policy: Policy,
        *,
        lift: Lift,
        reclaim: Reclaim,
        tell: Tell,
        clock: Callable[[], float],
        page_size: int = 4096,
    ) -> None:
        """`lift`: give this container another memory.high. `tell`: reason and message of a Warning about it."""
        self._page_size = page_size
        self._files, self._containers, self._policy = files, containers, policy
        self._lift, self._reclaim, self._tell, self._clock = lift, reclaim, tell, clock
        self._kept: dict[str, _Kept] = {}
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """For ever; at once where there is nothing to watch on this kernel."""
        if self._files is None or self._files.version == 1 or self._policy == "off":
            return
        try:
            while True:
                self._changed.clear()
                self._follow()
                await self._turns()
        finally:
            for each in self._kept.values():
                each.close()
            self._kept.clear()

    async def _turns(self) -> None:
        """Until there are other containers, or it is time to look whether there are."""
        end_s = self._clock() + LOOK_FOR_NEW_S
        while not self._changed.is_set() and self._clock() < end_s:
            for kept in list(self._kept.values()):
                await self._look(kept)
            try:
                async with asyncio.timeout(EVERY_S if self._kept else LOOK_FOR_NEW_S):
                    await self._changed.wait()
            except TimeoutError:
                continue

    # --- told by whoever makes and removes cgroups ---

    def changing(self, uid: str) -> None:
        """Nothing that they count is kept here."""

    def changed(self) -> None:
        self._changed.set()

    # ---

    def _follow(self) -> None:
        now = {each.id: each for each in self._containers()}
        for gone in self._kept.keys() - now.keys():
            self._kept.pop(gone).close()
        assert self._files is not None
        for container_id, each in now.items():
            if container_id in self._kept:
                continue
            kept = None
            try:
                kept = _Kept(self._files, each)
                has_mark = kept.high() != MAX
            except CgroupError as error:
                log.debug("%s is not watched for throttling: %s", each.path, error)
                has_mark = False
            if kept is not None and has_mark:
                self._kept[container_id] = kept
            elif kept is not None:
                kept.close()

    async def _look(self, kept: _Kept) -> None:
        try:
            sample = kept.sample(self._clock())
            kept.memory, found = watched(kept.memory, sample, self._policy)
            if found is not None:
                await self._act(kept, found)
        except CgroupError as error:
            if not isinstance(error, CgroupGoneError):
                log.warning("%s is not watched for throttling for now: %s", kept.container.path, error)
            self._kept.pop(kept.container.id, None)
            kept.close()

    async def _act(self, kept: _Kept, found: ThrottleFinding) -> None:
        each, failure = kept.container, ""
        try:
            await self._help(each, found)
        except (PlimsollError, OSError) as error:
            failure = str(error)
        has = kept.high()  # one that has ended meanwhile is no failure, and nothing to tell
        if not failure and found.lifts_to and not same_value(_HIGH, found.lifts_to, has, self._page_size):
            failure = f"whoever writes its cgroup was told, and memory.high is {has}, not {found.lifts_to}"
        assert kept.memory is not None
        is_known = bool(failure) and failure == kept.memory.failure
        kept.memory = helped(kept.memory, found, failure)
        if failure:
            log.warning("container %s is parked at memory.high and could not be helped: %s", each.name, failure)
        if not is_known:
            self._tell(each, THROTTLED, throttle_sentence(each.name, found, failure))

    async def _help(self, each: MonitoredContainer, found: ThrottleFinding) -> None:
        if found.lifts_to:
            await self._lift(each, found.lifts_to)
        elif found.action == "reclaim":
            await self._reclaim(each, found.reclaim_bytes)


class _Kept:
    """The files of one container, open as long as it is there."""

    def __init__(self, files: CgroupOpener, container: MonitoredContainer) -> None:
        self.container = container
        self.memory: Throttled | None = None
        with files.directory(container.path, _HIGH) as directory:
            names = [_HIGH, _MAX, _CURRENT, _EVENTS]
            if directory.read_if_there(_PRESSURE) is not None:
                names.append(_PRESSURE)
            self._files: dict[str, KeptFile] = {}
            try:
                for name in names:
                    self._files[name] = KeptFile(directory, name)
            except CgroupError:
                self.close()
                raise

    def high(self) -> str:
        return self._files[_HIGH].read().decode().strip()

    def sample(self, now_s: float) -> ThrottleSample:
        usage, high = int(self._files[_CURRENT].read()), number_or_max(self._files[_HIGH].read())
        if high is None or usage < NEAR_SHARE * high:
            return ThrottleSample(now_s, usage, high, None, 0)
        stalled = pressure(self._files[_PRESSURE].read()) if _PRESSURE in self._files else None
        return ThrottleSample(
            now_s,
            usage,
            high,
            number_or_max(self._files[_MAX].read()),
            flat_keyed(self._files[_EVENTS].read()).get("high", 0),
            None if stalled is None or stalled.some is None else stalled.some.total_us,
        )

    def close(self) -> None:
        for each in self._files.values():
            each.close()
