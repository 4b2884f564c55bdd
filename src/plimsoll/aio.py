"""What every long-running coroutine needs: pauses that grow, a wake-up that is not lost, a restart after a failure, and
slices of long work."""

from __future__ import annotations

import asyncio
import logging
import time
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

SLICE_S = 0.002

log = logging.getLogger(__name__)
T = TypeVar("T")


class ExponentialBackoff:
    """Pauses between attempts: `first_s`, then twice the last one, never above `most_s`."""

    def __init__(self, first_s: float, most_s: float) -> None:
        self._first_s, self._most_s = first_s, most_s
        self._next_s = first_s

    def next_s(self) -> float:
        """The pause to make now."""
        pause_s, self._next_s = self._next_s, min(self._next_s * 2, self._most_s)
        return pause_s

    def reset(self) -> None:
        """After a success."""
        self._next_s = self._first_s


class Wakeup:
    """Wakes one waiting coroutine. Calls of `set` before it waits again count as one."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def set(self) -> None:
        self._event.set()

    async def wait(self, timeout_s: float | None = None) -> bool:
        """True after `set`, also where it was called before; False when the time is up."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._event.wait()
        except TimeoutError:
            return False
        self._event.clear()
        return True


async def supervise(name: str, run: Callable[[], Awaitable[None]], backoff: ExponentialBackoff) -> None:
    """Run it until it returns. When it raises, log the error and run it again after a pause."""
    while True:
        try:
            await run()
            return
        except Exception:  # an error in one part must not end the whole process
            pause_s = backoff.next_s()
            log.exception("%s failed; restarting it in %g s", name, pause_s)
        await asyncio.sleep(pause_s)


async def in_slices(
    items: Iterable[T], slice_s: float = SLICE_S, clock: Callable[[], float] = time.perf_counter, pause_s: float = 0.0
) -> AsyncIterator[T]:
    """The items, one by one. After each `slice_s` that the caller works on them, all other coroutines may run.

    An answer takes several rounds of the event loop: with a pause most of them have no slice.
    """
    began_s = clock()
    for item in items:
        yield item
        if clock() - began_s >= slice_s:
            await asyncio.sleep(pause_s)
            began_s = clock()


@asynccontextmanager
async def beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Runs it in a task of its own until the block ends."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        await cancel_all([task])


async def cancel_all(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Cancel those that still run, and wait until all have ended."""
    pending = list(tasks)
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)


async def connection_ended(writer: asyncio.StreamWriter) -> None:
    """Return when the connection has ended, in whichever way: a peer that leaves early is not an error.

    Cancelling the caller does not cancel the connection's own future. The shielded task consumes that future's error:
    `shield` forgets a task whose caller was cancelled, and asyncio would log the error as never retrieved. There is one
    task per connection: a client that keeps its connection may request hundreds of streams on it.
    """
    task = _endings.get(writer)
    if task is None:
        task = _endings[writer] = asyncio.ensure_future(_ended(writer))
    await asyncio.shield(task)


_endings: weakref.WeakKeyDictionary[asyncio.StreamWriter, asyncio.Future[None]] = weakref.WeakKeyDictionary()


async def _ended(writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):  # ssl.SSLError is one: data after the peer's close, no close at all
        await writer.wait_closed()


async def run_command(
    *command: str,
    timeout_s: float,
    environment: Mapping[str, str] | None = None,
    is_interactive: bool = False,
    given: bytes | None = None,
) -> tuple[int, bytes, bytes]:
    """Exit code, stdout and stderr of a command. It is killed when the time is up (TimeoutError) or on cancellation.

    `is_interactive`: it talks to the user by our standard input and error. `given`: its standard input."""
    pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(
        *command,
        env=environment,
        stdin=None if is_interactive else pipe if given is not None else nothing,
        stdout=pipe,
        stderr=None if is_interactive else pipe,
    )
    try:
        async with asyncio.timeout(timeout_s):
            output, errors = await process.communicate(given)  # None where it is not piped
    except (TimeoutError, asyncio.CancelledError):
        process.kill()
        await process.wait()
        raise
    return process.returncode or 0, output, errors or b""
