"""Long work in short pieces: in each round of the event loop at most one piece runs, of alternating users.

A list of thousands of objects is checked, printed and sent in pieces of a few milliseconds. With `asyncio.sleep(0)`
between them a hundred such requests would each run a piece before the next short request gets its answer; here a
short request waits for one piece, and a user with a hundred long requests slows down only these.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

PIECE_S = 0.001
# While the worker runs Python code, the event loop gets the interpreter lock back within this time, several times for
# each request. Python's own 5 ms would make a request of 1 ms take 40.
_SWITCH_S = 0.0002
_Result = TypeVar("_Result")


class Rounds:
    def __init__(self) -> None:
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}  # by user; the first is next
        self._is_scheduled = False

    async def next(self, user: str) -> None:
        """Return when the next piece of this user's work may run."""
        loop = asyncio.get_running_loop()
        place: asyncio.Future[None] = loop.create_future()
        self._waiting.setdefault(user, deque()).append(place)
        if not self._is_scheduled:
            self._is_scheduled = True
            loop.call_soon(self._give, loop)
        await place

    def _give(self, loop: asyncio.AbstractEventLoop) -> None:
        while (place := _next_place(self._waiting)) is not None:
            if not place.done():
                place.set_result(None)
                break
        self._is_scheduled = bool(self._waiting)
        if self._is_scheduled:
            loop.call_soon(self._give, loop)  # behind the task that was woken


class Pace:
    """The pace of one request: `if pace.is_due(): await pace.pause()` between steps of a millisecond at most."""

    __slots__ = ("_end", "_is_lost", "_rounds", "user")

    def __init__(self, rounds: Rounds, user: str = "", is_lost: Callable[[], bool] = lambda: False) -> None:
        self._rounds, self.user, self._is_lost = rounds, user, is_lost
        self._end = time.perf_counter() + PIECE_S

    def is_due(self) -> bool:
        return time.perf_counter() >= self._end

    async def pause(self) -> None:
        """Raises ClientLostError: no client waits for the rest."""
        await self._rounds.next(self.user)
        if self._is_lost():
            raise ClientLostError
        self._end = time.perf_counter() + PIECE_S


class ClientLostError(Exception):
    """The client has disconnected."""


class _SwitchInterval:
    """Python's, which is shorter while any worker is busy."""

    def __init__(self) -> None:
        self._busy = 0
        self._before_s = 0.0

    def shorten(self) -> None:
        if not self._busy:
            self._before_s = sys.getswitchinterval()
            sys.setswitchinterval(_SWITCH_S)
        self._busy += 1

    def restore(self) -> None:
        self._busy -= 1
        if not self._busy:
            sys.setswitchinterval(self._before_s)


_interval = _SwitchInterval()


class Exclusive:
    """One piece of work at a time; of those that wait, users alternate."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}  # by user; the first is next
        self.is_taken = False

    async def take(self, user: str) -> None:
        if not self.is_taken:
            self.is_taken = True
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(user, deque()).append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self.leave()
            raise

    def leave(self) -> None:
        while (place := _next_place(self._waiting)) is not None:
            if not place.done():
                place.set_result(None)  # it is next
                return
        self.is_taken = False


class Worker:
    """One thread for work that cannot be cut into pieces, such as parsing large documents; users alternate."""

    def __init__(self, name: str) -> None:
        self._thread = ThreadPoolExecutor(1, name)  # starts with its first work
        self._exclusive = Exclusive()
        self.is_closed = False  # read by work that takes long

    async def run(self, user: str, work: Callable[[], _Result]) -> _Result:
        if not self._exclusive.is_taken:
            _interval.shorten()
        try:
            await self._exclusive.take(user)
        except asyncio.CancelledError:
            self._restore()
            raise
        running = asyncio.get_running_loop().run_in_executor(self._thread, work)
        running.add_done_callback(lambda _: self._leave())
        return await asyncio.shield(running)

    def _leave(self) -> None:
        self._exclusive.leave()
        self._restore()

    def _restore(self) -> None:
        if not self._exclusive.is_taken:
            _interval.restore()

    def close(self) -> None:
        self.is_closed = True
        self._thread.shutdown(wait=False, cancel_futures=True)


def _next_place(waiting: dict[str, deque[asyncio.Future[None]]]) -> asyncio.Future[None] | None:
    """Take the first of the first user, who is the last from now on."""
    user = next(iter(waiting), None)
    if user is None:
        return None
    places = waiting.pop(user)
    place = places.popleft()
    if places:
        waiting[user] = places
    return place
