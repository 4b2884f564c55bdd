"""Back-off, wake-up and restart, on a virtual clock."""

from __future__ import annotations

import asyncio
import gc
import logging
import ssl

import pytest

from plimsoll.aio import ExponentialBackoff, Wakeup, cancel_all, connection_ended, in_slices, run_command, supervise
from tests.unit.virtual_clock import run_virtual


def test_backoff_doubles_up_to_its_limit_and_resets() -> None:
    backoff = ExponentialBackoff(0.5, 3.0)
    assert [backoff.next_s() for _ in range(5)] == [0.5, 1.0, 2.0, 3.0, 3.0]
    backoff.reset()
    assert backoff.next_s() == 0.5


async def test_long_work_lets_others_run_after_each_slice() -> None:
    now, others = [0.0], []

    async def other() -> None:
        while len(others) < 4:
            others.append(now[0])
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    seen = []
    async for item in in_slices(range(10), 2.0, lambda: now[0]):
        seen.append(item)
        now[0] += 1.0  # two items per slice
    assert seen == list(range(10))
    assert others == [2.0, 4.0, 6.0, 8.0]
    await task


def test_slices_with_pauses() -> None:
    async def run() -> float:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        assert [item async for item in in_slices(range(4), slice_s=0.0, pause_s=0.5)] == [0, 1, 2, 3]
        return loop.time() - began_s

    assert run_virtual(run()) == pytest.approx(2.0)


def test_wakeup_before_the_wait_is_not_lost() -> None:
    async def main() -> tuple[bool, bool, float]:
        wakeup = Wakeup()
        wakeup.set()
        wakeup.set()
        first, second = await wakeup.wait(10.0), await wakeup.wait(10.0)
        return first, second, asyncio.get_running_loop().time()

    assert run_virtual(main()) == (True, False, 10.0)  # two calls of `set` are one wake-up


def test_wakeup_ends_a_wait() -> None:
    async def main() -> tuple[bool, float]:
        wakeup, loop = Wakeup(), asyncio.get_running_loop()
        loop.call_later(3.0, wakeup.set)
        return await wakeup.wait(), loop.time()

    assert run_virtual(main()) == (True, 3.0)


def test_supervise_restarts_with_growing_pauses_until_a_clean_return(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> list[float]:
        starts: list[float] = []

        async def run() -> None:
            starts.append(asyncio.get_running_loop().time())
            if len(starts) < 5:
                raise RuntimeError(f"attempt {len(starts)}")

        await supervise("part", run, ExponentialBackoff(1.0, 4.0))
        return starts

    with caplog.at_level(logging.ERROR, "plimsoll.aio"):
        assert run_virtual(main()) == [0.0, 1.0, 3.0, 7.0, 11.0]
    assert caplog.messages[0] == "part failed; restarting it in 1 s"
    assert len(caplog.messages) == 4 and caplog.records[0].exc_info is not None


def test_supervise_can_be_cancelled_while_it_runs_and_while_it_pauses() -> None:
    async def fails() -> None:
        raise RuntimeError

    async def main() -> tuple[float, float]:
        loop = asyncio.get_running_loop()
        for run in (asyncio.Event().wait, fails):
            task = asyncio.create_task(supervise("part", run, ExponentialBackoff(60.0, 60.0)))  # type: ignore[arg-type]
            await asyncio.sleep(5.0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        return loop.time(), 10.0

    ended_s, expected_s = run_virtual(main())
    assert ended_s == expected_s


async def test_run_command_returns_the_exit_code_and_both_outputs() -> None:
    assert await run_command("sh", "-c", 'echo "$A"; echo b >&2; exit 3', timeout_s=10, environment={"A": "a"}) == (
        3,
        b"a\n",
        b"b\n",
    )


async def test_run_command_kills_at_the_timeout() -> None:
    with pytest.raises(TimeoutError):
        await run_command("sleep", "600", timeout_s=0.01)


@pytest.mark.parametrize("is_awaited", [True, False])
async def test_a_connection_that_ends_with_an_error_has_ended(is_awaited: bool) -> None:
    """As TLS has it where a peer sends data after its close. No one may be left to see the error, and none is logged."""
    logged: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: logged.append(context["message"]))
    accepted: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()
    async with (
        asyncio.timeout(60),
        await asyncio.start_server(lambda _, writer: accepted.put(writer), "127.0.0.1") as at,
    ):
        _, near = await asyncio.open_connection(*at.sockets[0].getsockname())
        far = await accepted.get()
        waiting = asyncio.create_task(connection_ended(far))
        await asyncio.sleep(0)
        if not is_awaited:
            await cancel_all((waiting,))
        protocol = far.transport.get_protocol()
        assert isinstance(protocol, asyncio.StreamReaderProtocol)
        far.transport.set_protocol(asyncio.Protocol())
        protocol.connection_lost(ssl.SSLError("APPLICATION_DATA_AFTER_CLOSE_NOTIFY"))
        await asyncio.wait((waiting,))
        assert waiting.cancelled() is not is_awaited
        for writer in (near, far):
            writer.transport.abort()
        await asyncio.sleep(0)
    del waiting, protocol, far
    gc.collect()
    assert not logged


async def test_waiting_for_the_end_of_a_connection_again_and_again_leaves_one_task() -> None:
    """A client that reads one log after the other on one connection."""
    accepted: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()
    async with (
        asyncio.timeout(60),
        await asyncio.start_server(lambda _, writer: accepted.put(writer), "127.0.0.1") as at,
    ):
        _, near = await asyncio.open_connection(*at.sockets[0].getsockname())
        far = await accepted.get()
        before = len(asyncio.all_tasks())
        for _ in range(20):
            waiting = asyncio.create_task(connection_ended(far))
            await asyncio.sleep(0)
            await cancel_all((waiting,))
        assert len(asyncio.all_tasks()) <= before + 1
        near.close()
        far.close()
        await connection_ended(far)
    assert len(asyncio.all_tasks()) <= before
