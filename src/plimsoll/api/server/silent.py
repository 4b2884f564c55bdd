"""Accepted connections that have sent nothing yet."""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import Callable

_AT_ONCE = 32  # connections that are handled in one round of the event loop: about a millisecond
_SWEEP_S = 0.1


class SilentConnections:
    """Each costs a socket and an entry here until its client has sent something, and is closed after `wait_s`.

    They have a poll object of their own. The event loop calls a reader for every socket that is ready before it goes
    on, and a thousand clients that leave together would hold it up.
    """

    def __init__(self, spoken: Callable[[str, socket.socket], None], most: int, wait_s: float) -> None:
        """`spoken`: called with the address and the connection when something has arrived. Above `most` the oldest is
        closed."""
        self._spoken, self._most, self._wait_s = spoken, most, wait_s
        self._waiting: dict[int, tuple[socket.socket, str, float]] = {}  # by descriptor, oldest first
        self._poll = select.epoll()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._poll.fileno(), self._take_some)
        self._sweep: asyncio.TimerHandle | None = None

    def add(self, address: str, connection: socket.socket) -> None:
        """One that was accepted, without blocking; most have sent something by then."""
        sent = _sent(connection)
        if sent is not None:
            if sent:
                self._spoken(address, connection)
            else:
                connection.close()
            return
        descriptor = connection.fileno()
        self._waiting[descriptor] = connection, address, self._loop.time() + self._wait_s
        self._poll.register(descriptor, select.EPOLLIN)
        if len(self._waiting) > self._most:
            self._close(next(iter(self._waiting)))
        if self._sweep is None:
            self._sweep = self._loop.call_later(_SWEEP_S, self._close_some)

    def close(self) -> None:
        if self._sweep is not None:
            self._sweep.cancel()
        self._loop.remove_reader(self._poll.fileno())
        for descriptor in list(self._waiting):
            self._close(descriptor)
        self._poll.close()

    def _take_some(self) -> None:
        for descriptor, _ in self._poll.poll(0, _AT_ONCE):
            connection, address, _ = self._waiting[descriptor]
            if _sent(connection):
                self._poll.unregister(descriptor)
                del self._waiting[descriptor]
                self._spoken(address, connection)
            else:
                self._close(descriptor)

    def _close_some(self) -> None:
        """The oldest, if their time is over."""
        self._sweep = None
        now_s = self._loop.time()
        for descriptor, (_, _, end_s) in list(self._waiting.items())[:_AT_ONCE]:
            if end_s > now_s:
                break
            self._close(descriptor)
        if self._waiting:
            self._sweep = self._loop.call_later(_SWEEP_S, self._close_some)

    def _close(self, descriptor: int) -> None:
        self._poll.unregister(descriptor)
        self._waiting.pop(descriptor)[0].close()


def _sent(connection: socket.socket) -> bool | None:
    """False: the client has left without a word; None: it has not sent anything yet."""
    try:
        return bool(connection.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return None
    except OSError:  # reset
        return False
