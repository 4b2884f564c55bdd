"""Wait for something that a part of the control plane does by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

DEADLINE_S = 20.0

T = TypeVar("T")


async def until(poll: Callable[[], Awaitable[T]]) -> T:
    """The first result that is not empty."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            if found := await poll():
                return found
            await asyncio.sleep(0.02)
