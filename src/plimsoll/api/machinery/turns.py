"""Long work in short pieces: in each round of the event loop at most one piece runs, of each user in turn.

A list of thousands of objects is checked, printed and sent in pieces of a few milliseconds. With `asyncio.sleep(0)`
between them a hundred such requests would each run a piece before the next short request gets its answer; with turns a
short request waits for one piece, and a user with a hundred long requests slows down only these.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

PIECE_S = 0.002
# While the worker runs Python code, the event loop gets the interpreter lock back within this time, several times for
# each request. Python's own 5 ms would make a request of 1 ms take 40.
_SWITCH_S = 0.0005
_Result = TypeVar("_Result")


class Turns:
    def __init__(self) -> None:
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}  # by user; the first is next
        self._is_scheduled = False

    async def next(self, user: str) -> None:
        """Return when the next piece of this user's work may run."""
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.setdefault(user, deque()).append(turn)
        if not self._is_scheduled:
            self._is_scheduled = True
            loop.call_soon(self._give, loop)
        await turn

    def _give(self, loop: asyncio.AbstractEventLoop) -> None:
        is_given = False
        while self._waiting and not is_given:
            user = next(iter(self._waiting))
            turns = self._waiting.pop(user)
            turn = turns.popleft()
            if turns:
                self._waiting[user] = turns  # now the last
            if not turn.done():
                turn.set_result(None)
                is_given = True
        self._is_scheduled = bool(self._waiting)
        if self._is_scheduled:
            loop.call_soon(self._give, loop)  # behind the task that was woken


class Pace:
    """The pace of one request: `if pace.is_due(): await pace.turn()` between steps of a millisecond at most."""

    __slots__ = ("_end", "_turns", "_user")

    def __init__(self, turns: Turns, user: str = "") -> None:
        self._turns, self._user = turns, user
        self._end = time.perf_counter() + PIECE_S

    def is_due(self) -> bool:
        return time.perf_counter() >= self._end

    async def turn(self) -> None:
        await self._turns.next(self._user)
        self._end = time.perf_counter() + PIECE_S


class Worker:
    """One thread for work that cannot be cut into pieces: parsing and printing large documents."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "large-documents")  # starts with its first work
        self._waiting = 0

    async def run(self, work: Callable[[], _Result]) -> _Result:
        if not self._waiting:
            before, set_interval = sys.getswitchinterval(), sys.setswitchinterval
            self._restore = partial(set_interval, before)
            set_interval(_SWITCH_S)
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._restore()

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
