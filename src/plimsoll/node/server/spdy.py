"""exec and attach over SPDY/3.1, for kubectl up to 1.29: one stream for each channel of the WebSocket form.

The client opens the streams (`error`, then `stdin`, `stdout`, `stderr`, `resize` as requested) after the upgrade. To
the session they look like the channels of v4.channel.k8s.io: the first byte of a message names the channel, and the
end of the client's stdin is the message that closes channel 0.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import suppress

from plimsoll.aio import connection_ended
from plimsoll.codec.spdy import (
    PROTOCOL,
    VERSION_HEADER,
    GoneAway,
    PingReceived,
    SpdyConnection,
    SpdyError,
    StreamData,
    StreamOpened,
    StreamReset,
)
from plimsoll.node.server.exec import CLOSE, ERROR, RESIZE, STDERR, STDIN, STDOUT, V4, ExecOptions
from plimsoll.node.server.http import HttpRequest

CREATION_S = 30.0  # as the kubelet waits for the streams (streamCreationTimeout)
CHUNK = 1 << 16
EARLY_BYTES = 1 << 20  # input before all streams are open
_CHANNELS = {"stdin": STDIN, "stdout": STDOUT, "stderr": STDERR, "error": ERROR, "resize": RESIZE}


def is_spdy(request: HttpRequest) -> bool:
    return request.wants_upgrade and request.header(b"upgrade").lower() == PROTOCOL.lower().encode()


def offered_versions(request: HttpRequest) -> list[str]:
    name = VERSION_HEADER.lower().encode()
    values = [value.decode("latin-1") for key, value in request.headers if key == name]
    return [version.strip() for value in values for version in value.split(",") if version.strip()]


def expected_streams(options: ExecOptions) -> frozenset[str]:
    wanted = {"error": True, "stdin": options.stdin, "stdout": options.stdout, "stderr": options.stderr}
    return frozenset(name for name, is_wanted in (wanted | {"resize": options.tty}).items() if is_wanted)


class SpdyChannels:
    """Use `accepted`. A client that breaks the protocol ends `pieces`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connection = SpdyConnection()
        self._reader, self._writer = reader, writer
        self._channels: dict[int, int] = {}  # stream → channel
        self._streams: dict[int, int] = {}  # channel → stream
        self._pending: deque[bytes] = deque()  # messages that came before the session asked for them
        self._closed = False

    @classmethod
    async def accepted(
        cls, options: ExecOptions, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> SpdyChannels:
        """Answer the upgrade, then wait for every stream that the request needs. TimeoutError, ConnectionError."""
        channels = cls(reader, writer)
        head = f"HTTP/1.1 101 Switching Protocols\r\nUpgrade: {PROTOCOL}\r\nConnection: Upgrade\r\n"
        await channels._write(f"{head}{VERSION_HEADER}: {V4}\r\n\r\n".encode())
        missing = {_CHANNELS[name] for name in expected_streams(options)}
        async with asyncio.timeout(CREATION_S):
            while missing - channels._streams.keys():
                if not await channels._receive():
                    raise ConnectionError("the client disconnected before it opened its streams")
                if sum(map(len, channels._pending)) > EARLY_BYTES:
                    raise ConnectionError(f"the client sent more than {EARLY_BYTES} bytes before its streams")
        return channels

    async def pieces(self) -> AsyncIterator[tuple[bytes, bool]]:
        """Messages as the WebSocket form has them; ends when the client has left."""
        while True:
            while self._pending:
                yield self._pending.popleft(), True
            if self._closed or not await self._receive():
                return

    async def send(self, data: bytes) -> None:
        """OSError where the client has left. A channel that the client did not open is dropped."""
        stream = self._streams.get(data[0])
        if stream is not None and len(data) > 1:
            await self._write(self._connection.data(stream, data[1:]))

    async def close(self, code: int = 1000) -> None:
        """End this side of every stream, then the connection. `code` is the WebSocket's, and has no meaning here."""
        self._closed = True
        ends = b"".join(self._connection.data(stream, b"", is_last=True) for stream in self._channels)
        with suppress(OSError):
            await self._write(ends + self._connection.go_away(max(self._channels, default=0)))

    async def gone(self) -> None:
        """Return when the connection is lost."""
        await connection_ended(self._writer)

    async def _receive(self) -> bool:
        """Read once and take in what came; False at the end of the connection."""
        try:
            data = await self._reader.read(CHUNK)
            for event in self._connection.receive(data):
                match event:
                    case StreamOpened():
                        await self._opened(event)
                    case StreamData():
                        self._arrived(event)
                    case StreamReset(stream=stream):
                        self._ended(stream)
                    case PingReceived(number=number):
                        await self._write(self._connection.pong(number))
                    case GoneAway():
                        self._closed = True
        except (OSError, SpdyError):
            return False
        return bool(data)

    async def _opened(self, event: StreamOpened) -> None:
        channel = _CHANNELS.get(event.headers.get("streamtype", "").lower())
        if channel is None or channel in self._streams:
            await self._write(self._connection.reset(event.stream))
            return
        self._channels[event.stream], self._streams[channel] = channel, event.stream
        await self._write(self._connection.accept(event.stream))
        if event.is_last:
            self._ended(event.stream)

    def _arrived(self, event: StreamData) -> None:
        channel = self._channels.get(event.stream)
        if channel in (STDIN, RESIZE) and event.data:
            self._pending.append(bytes([channel]) + event.data)
        if event.is_last:
            self._ended(event.stream)

    def _ended(self, stream: int) -> None:
        if self._channels.get(stream) == STDIN:
            self._pending.append(bytes([CLOSE, STDIN]))

    async def _write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()
