"""The connection of one agent. Writing never blocks: what the socket does not take is queued, up to a limit."""

from __future__ import annotations

import os
import socket
from collections import deque
from collections.abc import Callable, Sequence

from plimsoll.runtime.supervisor import wire
from plimsoll.runtime.supervisor.loop import EventLoop

_MAX_WAITING_BYTES = 32 << 20

Handler = Callable[["AgentConnection", wire.Message, list[int]], None]


class AgentConnection:
    __slots__ = (
        "_closed",
        "_handler",
        "_loop",
        "_on_close",
        "_reader",
        "_socket",
        "_waiting",
        "_waiting_bytes",
        "follows",
    )

    def __init__(
        self, loop: EventLoop, connected: socket.socket, handler: Handler, on_close: Callable[[AgentConnection], None]
    ) -> None:
        connected.setblocking(False)
        self._loop, self._socket, self._handler, self._on_close = loop, connected, handler, on_close
        self._reader = wire.FrameReader()
        self._waiting: deque[tuple[memoryview, list[int]]] = deque()
        self._waiting_bytes = 0
        self._closed = False
        self.follows = False  # it gets every change
        loop.watch(connected.fileno(), self._readable)

    def send(self, message: wire.Message, fds: Sequence[int] = ()) -> None:
        """The descriptors are duplicated; the caller still closes its own."""
        if self._closed:
            return
        if fds:
            message = {**message, "fds": len(fds)}
        data = wire.encoded(message)
        try:
            copies = [os.dup(fd) for fd in fds]
        except OSError:  # no descriptor is left: close the connection rather than send half an answer
            self.close()
            return
        self._waiting.append((memoryview(data), copies))
        self._waiting_bytes += len(data)
        if self._waiting_bytes > _MAX_WAITING_BYTES:
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
        for _, fds in self._waiting:
            for fd in fds:
                os.close(fd)
        self._waiting.clear()
        self._on_close(self)

    def _flush(self) -> None:
        while self._waiting:
            data, fds = self._waiting[0]
            try:
                done = wire.send_some(self._socket, data, fds)
            except BlockingIOError:
                break
            except OSError:
                self.close()
                return
            for fd in fds:
                os.close(fd)
            self._waiting_bytes -= done
            if done == len(data):
                self._waiting.popleft()
            else:
                self._waiting[0] = (data[done:], [])
        self._loop.watch(self._socket.fileno(), self._readable, self._flush if self._waiting else None)

    def _readable(self) -> None:
        try:
            data, fds = wire.receive(self._socket)
        except BlockingIOError:
            return
        except OSError:
            data, fds = b"", []
        if not data:
            self.close()
            return
        try:
            messages = self._reader.feed(data, fds)
        except wire.MessageFormatError:
            self.close()
            return
        for message, with_it in messages:
            if self._closed:
                for fd in with_it:
                    os.close(fd)
            else:
                self._handler(self, message, with_it)
