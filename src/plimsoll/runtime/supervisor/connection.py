"""The connection of one agent. Writing never blocks: what the socket does not take is queued, up to a limit."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence

from plimsoll.runtime.supervisor import wire
from plimsoll.runtime.supervisor.loop import EventLoop

_MAX_WAITING_BYTES = 32 << 20

Handler = Callable[["AgentConnection", wire.Message, list[int]], None]


class AgentConnection:
    __slots__ = ("_closed", "_handler", "_loop", "_on_close", "_queue", "_reader", "_socket", "follows")

    def __init__(
        self, loop: EventLoop, connected: socket.socket, handler: Handler, on_close: Callable[[AgentConnection], None]
    ) -> None:
        connected.setblocking(False)
        self._loop, self._socket, self._handler, self._on_close = loop, connected, handler, on_close
        self._reader, self._queue = wire.FrameReader(), wire.SendQueue(connected)
        self._closed = False
        self.follows = False  # it gets every change
        loop.watch(connected.fileno(), self._readable)

    def send(self, message: wire.Message, fds: Sequence[int] = ()) -> None:
        if self._closed:
            return
        try:
            self._queue.add(message, fds)
        except OSError:  # no descriptor is left: close the connection rather than send half an answer
            self.close()
            return
        if self._queue.waiting_bytes > _MAX_WAITING_BYTES:
            self.close()
        else:
            self._flush()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._loop.watch(self._socket.fileno(), None)
        self._socket.close()
        self._reader.close()
        self._queue.close()
        self._on_close(self)

    def _flush(self) -> None:
        try:
            done = self._queue.flush()
        except OSError:
            self.close()
            return
        self._loop.watch(self._socket.fileno(), self._readable, None if done else self._flush)

    def _readable(self) -> None:
        messages = self._reader.receive(self._socket)
        if messages is None:
            self.close()
            return
        for message, with_it in messages:
            if self._closed:
                wire.close_fds(with_it)
            else:
                self._handler(self, message, with_it)
