"""When a streaming connection has had no traffic for too long (`streamingConnectionIdleTimeout`)."""

from __future__ import annotations

import asyncio

IDLE_S = 4 * 3600.0  # the kubelet's default


class IdleClock:
    def __init__(self, limit_s: float = IDLE_S) -> None:
        self._limit_s = limit_s
        self._last_s = asyncio.get_running_loop().time()

    def touch(self) -> None:
        self._last_s = asyncio.get_running_loop().time()

    async def expired(self) -> None:
        """Return when there was no traffic for that long."""
        clock = asyncio.get_running_loop().time
        while True:
            left_s = self._last_s + self._limit_s - clock()
            if left_s <= 0:
                return
            await asyncio.sleep(left_s)
