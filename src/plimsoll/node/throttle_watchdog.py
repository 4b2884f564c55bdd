"""Looks once a second at containers that have a memory.high, and helps those that are parked above it.

Only cgroup v2 has memory.high. A container without one costs nothing: which have one is looked up when containers come
or go. Of the others two files are read each second, `memory.current` and `memory.high`, and the rest only where usage
is near the mark. What it means and what is to be done is `rules.throttle_watch`'s to say. A mark is moved by the cgroup
engine (`lift`), so that it is what is wanted from then on and nobody repairs it; the next run of the container begins
with the rules' own value again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from plimsoll.cgroups.usage import Opens
from plimsoll.codec.kernel_files import flat_keyed, number_or_max, pressure
from plimsoll.errors import PlimsollError
from plimsoll.linux.beneath import CgroupError, CgroupGone, KeptFile
from plimsoll.node.oom_ledger import Watched
from plimsoll.rules.throttle_watch import (
    NEAR_SHARE,
    Policy,
    Throttled,
    ThrottleFinding,
    ThrottleSample,
    throttle_sentence,
    watched,
)

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

Lift = Callable[[Watched, str], Awaitable[None]]
Reclaim = Callable[[Watched, int], Awaitable[None]]
Tell = Callable[[Watched, str, str], None]


class ThrottleWatchdog:
    def __init__(
        self,
        files: Opens | None,
        containers: Callable[[], Iterable[Watched]],
        policy: Policy,
        *,
        lift: Lift,
        reclaim: Reclaim,
        tell: Tell,
        clock: Callable[[], float],
    ) -> None:
        """`lift`: give this container another memory.high. `tell`: reason and message of a Warning about it."""
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
            try:
                kept = _Kept(self._files, each)
            except CgroupError as error:
                log.debug("%s is not watched for throttling: %s", each.path, error)
                continue
            if kept.high_bytes() is None:
                kept.close()
            else:
                self._kept[container_id] = kept

    async def _look(self, kept: _Kept) -> None:
        each = kept.container
        try:
            sample = kept.sample(self._clock())
        except CgroupGone:
            self._kept.pop(each.id, None)
            kept.close()
            return
        kept.memory, found = watched(kept.memory, sample, self._policy)
        if found is None:
            return
        try:
            await self._help(each, found)
        except PlimsollError as error:
            log.warning("container %s is parked at memory.high and could not be helped: %s", each.name, error)
        self._tell(each, THROTTLED, throttle_sentence(each.name, found))

    async def _help(self, each: Watched, found: ThrottleFinding) -> None:
        if found.action == "raise":
            await self._lift(each, str(found.high_bytes))
        elif found.action == "release":
            await self._lift(each, "max")
        elif found.action == "reclaim":
            await self._reclaim(each, found.reclaim_bytes)


class _Kept:
    """The files of one container, open as long as it is there."""

    def __init__(self, files: Opens, container: Watched) -> None:
        self.container = container
        self.memory: Throttled | None = None
        with files.directory(container.path, _HIGH) as directory:
            names = [_HIGH, _MAX, _CURRENT, _EVENTS]
            if directory.read_if_there(_PRESSURE) is not None:
                names.append(_PRESSURE)
            self._files = {name: KeptFile(directory, name) for name in names}

    def high_bytes(self) -> int | None:
        return number_or_max(self._files[_HIGH].read())

    def sample(self, now_s: float) -> ThrottleSample:
        usage, high = int(self._files[_CURRENT].read()), self.high_bytes()
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
