"""What connections have received and the server has not parsed yet.

The event loop hands over all that has arrived at once: five hundred requests would be parsed, and their tasks begun,
before the next answer is written. Here the data of limited clients is parsed for a few milliseconds in each round of
the event loop, of alternating clients; a connection is not read meanwhile. Data is parsed a few kilobytes at a time:
in chunks of one byte each, 32 KiB of a body take fifteen milliseconds.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Protocol

from plimsoll.api.machinery.rounds import PIECE_S

PIECE_BYTES = 4096


class Receiver(Protocol):
    """A connection: `shown_name` is that of its client."""

    shown_name: str

    def parse(self, data: bytes) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...


class Inbox:
    def __init__(self) -> None:
        self._waiting: dict[str, deque[tuple[Receiver, bytes]]] = {}  # by client; the first is next
        self._end_s = 0.0  # of this round's share; 0: the round has not begun

    def receive(self, receiver: Receiver, data: bytes) -> None:
        """Parse it now, if this round has time for it, or in one of the next."""
        now_s = time.perf_counter()
        if not self._end_s:
            self._end_s = now_s + PIECE_S
            asyncio.get_running_loop().call_soon(self._next_round)
        if not self._waiting and now_s < self._end_s:
            data = self._parse(receiver, data)
            if not data:
                return
        receiver.pause()
        self._waiting.setdefault(receiver.shown_name, deque()).append((receiver, data))

    def _parse(self, receiver: Receiver, data: bytes) -> bytes:
        """As much as there is time for, but some; the rest."""
        for start in range(0, len(data), PIECE_BYTES):
            receiver.parse(data[start : start + PIECE_BYTES])
            if time.perf_counter() >= self._end_s:
                return data[start + PIECE_BYTES :]
        return b""

    def _next_round(self) -> None:
        if not self._waiting:
            self._end_s = 0.0
            return
        self._end_s = time.perf_counter() + PIECE_S
        asyncio.get_running_loop().call_soon(self._next_round)
        while self._waiting:
            name = next(iter(self._waiting))
            of_client = self._waiting.pop(name)
            receiver, data = of_client.popleft()
            if rest := self._parse(receiver, data):
                of_client.appendleft((receiver, rest))  # before what it receives now
            else:
                receiver.resume()
            if of_client:
                self._waiting[name] = of_client  # behind the others
            if time.perf_counter() >= self._end_s:
                return
