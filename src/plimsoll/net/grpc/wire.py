"""HTTP/2 on asyncio, for either side of gRPC. What one iteration of the event loop writes is sent at once."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from plimsoll.net.grpc.frames import ConnectionFaultError
from plimsoll.net.grpc.http2 import Http2
from plimsoll.net.grpc.sending import Stream

PREFIX = 5  # of a message: a flag, its length


def framed(message: bytes) -> bytes:
    return b"\0" + len(message).to_bytes(PREFIX - 1) + message


class Call(Stream):
    __slots__ = ("_drained", "ended")

    def __init__(self) -> None:
        super().__init__()
        self.ended = False  # for who has made it; the stream may still be open
        self._drained: asyncio.Event | None = None

    def drained(self) -> None:
        if self._drained is not None:
            self._drained.set()

    async def sent(self) -> None:
        """All that was to be sent has found room."""
        while self.unsent and not self.ended:
            if self._drained is None:
                self._drained = asyncio.Event()
            self._drained.clear()
            await self._drained.wait()


C = TypeVar("C", bound=Call)


class Wire(Http2[C], asyncio.Protocol):
    def __init__(self, *, is_client: bool, settings: dict[int, int], window: int, connection_window: int) -> None:
        super().__init__(is_client=is_client, settings=settings, window=window, connection_window=connection_window)
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._flushes = False
        self.lost = False

    def fail(self, why: str) -> None:
        """Nothing can be sent or received any more."""
        raise NotImplementedError

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.flush()

    def data_received(self, data: bytes) -> None:
        if self.lost:
            return
        try:
            self.receive(data)
        except ConnectionFaultError as fault:
            self.flush()
            self.fail(f"no HTTP/2: {fault}")
            return
        self.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self.fail(f"the connection broke: {exc}" if exc else "the connection was closed")

    def hang_up(self) -> None:
        """What the socket has not taken is dropped: a peer that does not read would keep the connection open."""
        if self._transport is not None:
            if self._transport.get_write_buffer_size():
                self._transport.abort()
            else:
                self._transport.close()

    def pause_writing(self) -> None:
        self.is_full = True

    def resume_writing(self) -> None:
        self.is_full = False
        self.pump()
        self.flush()

    def wrote(self) -> None:
        if not self._flushes:
            self._flushes = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        self._flushes = False
        while self.output and not self.is_full and self._transport is not None and not self._transport.is_closing():
            self._transport.write(self.taken())
            self.pump()
