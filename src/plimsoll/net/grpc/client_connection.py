"""One connection of a gRPC client, and its calls. h2 takes a megabyte of memory, so this is imported with the first
connection."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import unquote

from h2 import events
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes

from plimsoll.net.grpc.status import (
    CANCELLED,
    INTERNAL,
    UNAVAILABLE,
    UNKNOWN,
    GrpcError,
    GrpcUnavailableError,
)

if TYPE_CHECKING:
    from plimsoll.net.grpc.client import Headers, Keepalive, KeptAlive

PREFIX = 5
WINDOW = 1 << 20
MAX_MESSAGE = 64 << 20  # a longer one is an error


class ClientCall:
    """What was received for one stream: messages, and at the end a GrpcError, with code OK on success."""

    def __init__(self, connection: ClientConnection, stream_id: int) -> None:
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


class ClientConnection(asyncio.Protocol):
    def __init__(
        self, *, kept_alive: KeptAlive | None = None, authority: str = "localhost", scheme: str = "http"
    ) -> None:
        self._kept_alive, self._authority, self._scheme = kept_alive, authority, scheme
        self._keepalive: Keepalive | None = None
        self._h2 = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        self._transport: asyncio.Transport | None = None
        self._calls: dict[int, ClientCall] = {}
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

    async def start(self, method: str, request: bytes, deadline_s: float | None, more: Headers = ()) -> ClientCall:
        call = await self.open(method, deadline_s, more)
        try:
            await call.send(request, is_last=True)
        except BaseException:
            self.forget(call)
            raise
        return call

    async def open(self, method: str, deadline_s: float | None, more: Headers = ()) -> ClientCall:
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
            call = ClientCall(self, self._h2.get_next_available_stream_id())
            self._h2.send_headers(call.stream_id, headers)
        except ProtocolError as error:  # too many streams at once, or no stream ids left
            self.fail(f"no more calls on this connection: {error}")
            raise GrpcUnavailableError(str(error)) from error
        self._calls[call.stream_id] = call
        return call

    async def send(self, call: ClientCall, data: bytes, *, is_last: bool) -> None:
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

    def forget(self, call: ClientCall) -> None:
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
