"""What containers have written into their own root file systems, as the runtime that keeps those counts it (04 §1.2).

It is asked only when somebody wants to know, and seldom: a runtime counts by itself, every ten seconds or so. One that
takes its time is waited for a moment, and what it says later counts later; so nobody who must act stands still for it.
One that does not answer is told of, and its containers count as having written nothing until it does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from plimsoll.rules.usage import NO_FS_USAGE, FsUsage
from plimsoll.runtime.runtime import RuntimeTrouble

KEPT_S = 10.0
ANSWER_S = 1.0
NOTHING_USED = FsUsage(0, 0)
log = logging.getLogger(__name__)

Ask = Callable[[], Awaitable[Mapping[str, FsUsage]]]  # by container id


class WritableLayers:
    def __init__(self, ask: Ask | None, clock: Callable[[], float]) -> None:
        """`ask` None: what containers write to their roots is on no disk."""
        self._ask, self._clock = ask, clock
        self._found: Mapping[str, FsUsage] = {}
        self._asked_s = float("-inf")
        self._asking: asyncio.Task[None] | None = None
        self._is_silent = False

    @property
    def unasked(self) -> FsUsage:
        """What is known of anybody without an answer."""
        return NOTHING_USED if self._ask is None else NO_FS_USAGE

    def of(self, container_id: str) -> FsUsage:
        return self._found.get(container_id, self.unasked)

    async def refresh(self, max_age_s: float) -> None:
        """New figures where those that are known are older than that; returns after a moment in any case."""
        if self._ask is None:
            return
        if self._asking is None:
            if 0 <= self._clock() - self._asked_s < min(max_age_s, KEPT_S):
                return
            self._asking = asyncio.create_task(self._answered(self._ask), name="writable layers")
        asking = self._asking
        await asyncio.wait([asking], timeout=ANSWER_S)
        if asking.done():
            self._asking = None
            asking.result()

    async def _answered(self, ask: Ask) -> None:
        asked_s = self._clock()
        try:
            self._found = await ask()
        except RuntimeTrouble as trouble:
            self._found = {}
            if not self._is_silent:
                log.warning("what containers have written to their own files counts as nothing: %s", trouble)
            self._is_silent = True
        else:
            self._is_silent = False
        self._asked_s = asked_s
