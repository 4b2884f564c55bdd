"""Waiting until the kernel says that something is so: for changes that it announces late or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

_FIRST_S = 0.0002
_LONGEST_S = 0.02


async def until(condition: Callable[[], bool], deadline_s: float) -> bool:
    """Whether the condition came true in time. Asked often at first, then every 20 ms."""
    clock = asyncio.get_running_loop().time
    end, pause_s = clock() + deadline_s, _FIRST_S
    while not condition():
        if (left_s := end - clock()) <= 0:
            return False
        await asyncio.sleep(min(pause_s, left_s))
        pause_s = min(pause_s * 2, _LONGEST_S)
    return True
