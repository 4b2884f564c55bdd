"""Wait until something that parts of a control plane do on their own has come about."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

DEADLINE_S = 20.0

T = TypeVar("T")


async def until(look: Callable[[], Awaitable[T]]) -> T:
    """What it says once that is anything."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            if found := await look():
                return found
            await asyncio.sleep(0.02)
