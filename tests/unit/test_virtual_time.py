"""The event loop with virtual time: exact, immediate, and loud where a test would wait without end."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.virtual_time import run_in_virtual_time


def test_timers_are_exact_and_take_no_real_time() -> None:
    async def main() -> list[float]:
        loop, seen = asyncio.get_running_loop(), []
        loop.call_later(3600.0, lambda: seen.append(loop.time()))
        try:
            async with asyncio.timeout(1800.0):
                await asyncio.Event().wait()
        except TimeoutError:
            seen.append(loop.time())
        await asyncio.sleep(7200.0)
        return [*seen, loop.time()]

    began_s = time.monotonic()
    assert run_in_virtual_time(main()) == pytest.approx([1800.0, 3600.0, 9000.0])
    assert time.monotonic() - began_s < 60.0


def test_a_wait_without_a_timer_is_an_error() -> None:
    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(RuntimeError, match="wait without end"):
        run_in_virtual_time(main())
