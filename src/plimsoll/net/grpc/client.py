"""gRPC over a unix socket or TCP: calls with a deadline, and streams. h2 speaks HTTP/2, asyncio carries it.

A call is one HTTP/2 stream: headers that name the method, one message with a prefix of five bytes (a flag, its length),
answers framed the same way, and trailers with the status. One connection carries all calls; it is made for the
first one and again after it broke. A broken connection fails every call on it (UNAVAILABLE); the caller decides whether
to retry. `GrpcUnavailableError` means that nothing was sent. `unary_over` makes one call over any connected socket.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import Protocol
from urllib.parse import unquote

from h2 import events
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes

from plimsoll.net.grpc.status import (
    CANCELLED,
    DEADLINE_EXCEEDED,
    INTERNAL,
    UNAVAILABLE,
    UNKNOWN,
    GrpcError,
    GrpcUnavailableError,
)

CONNECT_S = 5.0
PREFIX = 5
WINDOW = 1 << 20
MAX_MESSAGE = 64 << 20  # a longer one is an error
Headers = tuple[tuple[str, str], ...]


class Keepalive(Protocol):
    """Something that keeps a connection open beside us; `end` is called when no call needs it any more."""

    def end(self) -> None: ...


KeptAlive = Callable[[int], Keepalive]  # called with the file descriptor of each new connection


class GrpcClient:
    """Of a unix socket, or with `address` of a TCP port; `tls` has to offer `h2` by ALPN."""

    def __init__(
        self,
        socket_path: str = "",
        *,
        address: tuple[str, int] | None = None,
        tls: ssl.SSLContext | None = None,
        kept_alive: KeptAlive | None = None,
        connect_s: float = CONNECT_S,
    ) -> None:
        self.socket_path, self._address, self._tls, self._connect_s = socket_path, address, tls, connect_s
        self._kept_alive = kept_alive
        self.name = socket_path if address is None else authority_of(*address)
        self.connections = 0  # made so far
        self._connection: _Connection | None = None
        self._connecting = asyncio.Lock()

    async def unary(self, method: str, request: bytes, deadline_s: float, headers: Headers = ()) -> bytes:
        """One request, one answer. `method` is the whole path."""
        call: _Call | None = None
        try:
            async with asyncio.timeout(deadline_s):
                connection = await self._connected()
                call = await connection.start(method, request, deadline_s, headers)
                return await call.only_answer()
        except TimeoutError:
            if call is None:
                raise GrpcUnavailableError(f"{self.name}: not connected within {deadline_s:g} s") from None
            raise GrpcError(DEADLINE_EXCEEDED, f"no answer within {deadline_s:g} s") from None
        finally:
            if call is not None:
                call.leave()

    async def stream(self, method: str, request: bytes) -> AsyncIterator[bytes]:
        """The answers as they come, without a deadline, until the server ends the stream."""
        call = await (await self._connected()).start(method, request, None)
        try:
            while True:
                answer = await call.received.get()
                if isinstance(answer, GrpcError):
                    if answer.code:
                        raise answer
                    return
                yield answer
        finally:
            call.leave()

    async def open(self, method: str, headers: Headers = ()) -> GrpcStream:
        """A call on which both sides send messages at any time."""
        return GrpcStream(await (await self._connected()).open(method, None, headers))

    def close(self, why: str = "closed by us") -> None:
        if self._connection is not None:
            self._connection.fail(why)

    async def _connected(self) -> _Connection:
        async with self._connecting:
            if self._connection is None or self._connection.lost:
                loop = asyncio.get_running_loop()
                try:
                    async with asyncio.timeout(self._connect_s):
                        self._connection = await self._connect(loop)
                        self.connections += 1
                except TimeoutError:
                    raise GrpcUnavailableError(f"{self.name}: not connected within {self._connect_s:g} s") from None
                except OSError as error:  # also of TLS
                    raise GrpcUnavailableError(f"{self.name}: {error.strerror or error}") from error
            return self._connection

    async def _connect(self, loop: asyncio.AbstractEventLoop) -> _Connection:
        if self._address is None:
            factory = partial(_Connection, kept_alive=self._kept_alive)
            return (await loop.create_unix_connection(factory, self.socket_path))[1]
        host, port = self._address
        factory = partial(_Connection, authority=self.name, scheme="http" if self._tls is None else "https")
        return (await loop.create_connection(factory, host, port, ssl=self._tls))[1]


def authority_of(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class GrpcStream:
    """`received` raises GrpcError when the call has failed; it returns None when the server has ended it."""

    def __init__(self, call: _Call) -> None:
        self._call = call

    async def send(self, message: bytes) -> None:
        await self._call.send(message)

    async def received(self) -> bytes | None:
        answer = await self._call.received.get()
        if not isinstance(answer, GrpcError):
            return answer
        if answer.code:
            raise answer
        return None

    def received_at_once(self) -> list[bytes]:
        """The messages that are there already."""
        queue, messages = self._call.received, []
        while not queue.empty():
            answer = queue.get_nowait()
            if isinstance(answer, GrpcError):
                queue.put_nowait(answer)
                break
            messages.append(answer)
        return messages

    def leave(self) -> None:
        self._call.leave()


async def unary_over(
    connected: socket.socket, authority: str, method: str, request: bytes, deadline_s: float, headers: Headers = ()
) -> bytes:
    """One call on a connection of its own, which is closed afterwards. The caller limits the time."""
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(partial(_Connection, authority=authority), sock=connected)
    try:
        return await (await connection.start(method, request, deadline_s, headers)).only_answer()
    finally:
        connection.fail("closed by us")


class _Call:
    """What was received for one stream: messages, and at the end a GrpcError, with code OK on success."""

    def __init__(self, connection: _Connection, stream_id: int) -> None:
        self._connection, self.stream_id = connection, stream_id
        self.received: asyncio.Queue[bytes | GrpcError] = asyncio.Queue()
        self.may_send = asyncio.Event()
        self.ended = False
        self._buffer = bytearray()
        self._http_status = ""

    async def only_answer(self) -> bytes:
        answer = await self.received.get()
        if isinstance(answer, GrpcError):
            raise answer if answer.code else GrpcError(INTERNAL, "an answer without a message")
        end = await self.received.get()
        if isinstance(end, GrpcError) and end.code:
            raise end
        return answer

    async def send(self, message: bytes, *, is_last: bool = False) -> None:
        """Raises GrpcUnavailableError when the connection is lost."""
        await self._connection.send(self, b"\0" + len(message).to_bytes(PREFIX - 1) + message, is_last=is_last)

    def take_headers(self, headers: Mapping[str, str]) -> None:
        self._http_status = headers.get(":status", self._http_status)
        if "grpc-status" in headers:
            code = headers["grpc-status"]
            message = unquote(headers.get("grpc-message", ""))
            self.end(GrpcError(int(code) if code.isdecimal() else UNKNOWN, message))
        elif self._http_status != "200":
            self.end()

    def take_data(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        while len(buffer) >= PREFIX:
            size = int.from_bytes(buffer[1:PREFIX])
            if buffer[0] or size > MAX_MESSAGE:
                self.end(GrpcError(INTERNAL, f"a message of {size} bytes with the flags {buffer[0]}"))
                return
            if len(buffer) < PREFIX + size:
                return
            self.received.put_nowait(bytes(buffer[PREFIX : PREFIX + size]))
            del buffer[: PREFIX + size]

    def end(self, how: GrpcError | None = None) -> None:
        """Only the first call counts."""
        if not self.ended:
            self.ended = True
            self.may_send.set()
            why = how or GrpcError(UNKNOWN, f"ended without a gRPC status, HTTP status {self._http_status or 'none'}")
            self.received.put_nowait(why)

    def leave(self) -> None:
        self._connection.forget(self)


class _Connection(asyncio.Protocol):
    def __init__(
        self, *, kept_alive: KeptAlive | None = None, authority: str = "localhost", scheme: str = "http"
    ) -> None:
        self._kept_alive, self._authority, self._scheme = kept_alive, authority, scheme
        self._keepalive: Keepalive | None = None
        self._h2 = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        self._transport: asyncio.Transport | None = None
        self._calls: dict[int, _Call] = {}
        self.lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if self._kept_alive is not None:
            self._keepalive = self._kept_alive(transport.get_extra_info("socket").fileno())
        self._h2.initiate_connection()
        self._h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: WINDOW, SettingCodes.ENABLE_PUSH: 0})
        self._h2.increment_flow_control_window(WINDOW)
        self._flush()

    def data_received(self, data: bytes) -> None:
        if self.lost:
            return
        try:
            for event in self._h2.receive_data(data):
                self._take(event)
        except ProtocolError as error:
            self.fail(f"no HTTP/2: {error}")
            return
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self.fail(f"the connection broke: {exc}" if exc else "the connection was closed")

    def fail(self, why: str) -> None:
        """Nothing can be sent or received any more."""
        self.lost = True
        for call in [*self._calls.values()]:
            call.end(GrpcError(UNAVAILABLE, why))
        self._calls.clear()
        if self._transport is not None:
            self._transport.close()
        if self._keepalive is not None:
            self._keepalive.end()

    async def start(self, method: str, request: bytes, deadline_s: float | None, more: Headers = ()) -> _Call:
        call = await self.open(method, deadline_s, more)
        try:
            await call.send(request, is_last=True)
        except BaseException:
            self.forget(call)
            raise
        return call

    async def open(self, method: str, deadline_s: float | None, more: Headers = ()) -> _Call:
        if self.lost:
            raise GrpcUnavailableError("the connection was closed")
        headers = [
            (":method", "POST"),
            (":scheme", self._scheme),
            (":path", method),
            (":authority", self._authority),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
            *more,
        ]
        if deadline_s is not None:
            headers.append(("grpc-timeout", f"{max(1, round(deadline_s * 1000))}m"))
        try:
            call = _Call(self, self._h2.get_next_available_stream_id())
            self._h2.send_headers(call.stream_id, headers)
        except ProtocolError as error:  # too many streams at once, or no stream ids left
            self.fail(f"no more calls on this connection: {error}")
            raise GrpcUnavailableError(str(error)) from error
        self._calls[call.stream_id] = call
        return call

    async def send(self, call: _Call, data: bytes, *, is_last: bool) -> None:
        """In parts, as the server's flow control window allows."""
        left = memoryview(data)
        while left and not call.ended:
            room = min(self._h2.local_flow_control_window(call.stream_id), self._h2.max_outbound_frame_size)
            if room <= 0:
                self._flush()
                call.may_send.clear()
                await call.may_send.wait()
                continue
            part, left = left[:room], left[room:]
            self._h2.send_data(call.stream_id, bytes(part), end_stream=is_last and not left)
        self._flush()

    def forget(self, call: _Call) -> None:
        """The caller no longer waits: cancel the call on the server unless it has ended."""
        if self._calls.pop(call.stream_id, None) is None or self.lost or call.ended:
            return
        try:
            self._h2.reset_stream(call.stream_id, ErrorCodes.CANCEL)
        except ProtocolError:  # both sides had ended it
            return
        self._flush()

    def _take(self, event: events.Event) -> None:
        if isinstance(event, events.ConnectionTerminated):
            self.fail("the server is going away")
            return
        if isinstance(event, events.WindowUpdated):
            for pending in self._calls.values():
                pending.may_send.set()
            return
        if isinstance(event, events.DataReceived):
            length, stream_id = event.flow_controlled_length, event.stream_id
            if length and stream_id is not None:
                self._h2.acknowledge_received_data(length, stream_id)
        call = self._calls.get(getattr(event, "stream_id", None) or 0)
        if call is None:
            return
        if isinstance(event, events.ResponseReceived | events.TrailersReceived):
            call.take_headers({str(name): str(value) for name, value in event.headers or ()})
        elif isinstance(event, events.DataReceived):
            call.take_data(event.data or b"")
        elif isinstance(event, events.StreamReset):
            call.end(
                GrpcError(CANCELLED if event.error_code == ErrorCodes.CANCEL else UNAVAILABLE, "the call was reset")
            )
        elif isinstance(event, events.StreamEnded):
            call.end()

    def _flush(self) -> None:
        if self._transport is not None and (data := self._h2.data_to_send()):
            self._transport.write(data)
