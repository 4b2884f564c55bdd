"""One connection of a gRPC server. h2 takes a megabyte of memory, so this is imported with the first connection."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Mapping
from typing import TYPE_CHECKING
from urllib.parse import quote

from h2 import events
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes

from plimsoll.net.grpc.status import DEADLINE_EXCEEDED, INTERNAL, RESOURCE_EXHAUSTED, UNIMPLEMENTED, UNKNOWN, GrpcError

if TYPE_CHECKING:
    from plimsoll.net.grpc.server import GrpcServer

log = logging.getLogger(__name__)

PREFIX = 5
MAX_CONNECTIONS, MAX_CALLS = 64, 100
OK_HEADERS = [(":status", "200"), ("content-type", "application/grpc")]
UNIT_S = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}  # of the header grpc-timeout


class ServerConnection(asyncio.Protocol):
    def __init__(self, server: GrpcServer) -> None:
        self._server = server
        self._h2 = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        self._transport: asyncio.Transport | None = None
        self._requests: dict[int, tuple[dict[str, str], bytearray]] = {}
        self._calls: dict[int, asyncio.Task[None]] = {}
        self._room = asyncio.Event()  # a window has grown, or the socket takes bytes again
        self._is_full = False

    # --- the transport ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if len(self._server.connections) >= MAX_CONNECTIONS:
            transport.abort()
            return
        self._server.connections.add(self)
        self._h2.initiate_connection()
        self._h2.update_settings({SettingCodes.MAX_CONCURRENT_STREAMS: MAX_CALLS})
        self._flush()

    def data_received(self, data: bytes) -> None:
        try:
            for event in self._h2.receive_data(data):
                self._take(event)
        except ProtocolError as error:
            log.debug("a client does not speak HTTP/2: %s", error)
            self._flush()
            self.end()
            return
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self.end()

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        self._room.set()

    def end(self) -> None:
        self._server.connections.discard(self)
        for call in self._calls.values():
            call.cancel()
        self._calls.clear()
        self._requests.clear()
        if self._transport is not None:
            self._transport.close()

    def _flush(self) -> None:
        if self._transport is not None and not self._transport.is_closing() and (data := self._h2.data_to_send()):
            self._transport.write(data)

    # --- calls ---

    def _take(self, event: events.Event) -> None:
        stream = getattr(event, "stream_id", None) or 0
        if isinstance(event, events.RequestReceived):
            self._requests[stream] = {str(name): str(value) for name, value in event.headers or ()}, bytearray()
        elif isinstance(event, events.DataReceived):
            if event.flow_controlled_length:
                self._h2.acknowledge_received_data(event.flow_controlled_length, stream)
            request = self._requests.get(stream)
            if request is None:
                return
            request[1].extend(event.data or b"")
            if len(request[1]) > PREFIX + self._server.max_message:
                self._start(stream, *self._requests.pop(stream))
        elif isinstance(event, events.StreamEnded):
            request = self._requests.pop(stream, None)
            if request is not None:
                self._start(stream, *request)
        elif isinstance(event, events.StreamReset):
            self._requests.pop(stream, None)
            call = self._calls.pop(stream, None)
            if call is not None:
                call.cancel()
        elif isinstance(event, events.WindowUpdated | events.RemoteSettingsChanged):
            self._room.set()

    def _start(self, stream: int, headers: Mapping[str, str], body: bytearray) -> None:
        task = asyncio.create_task(self._answer(stream, headers, bytes(body)), name=headers.get(":path"))
        self._calls[stream] = task
        task.add_done_callback(lambda _: self._calls.pop(stream, None))

    async def _answer(self, stream: int, headers: Mapping[str, str], body: bytes) -> None:
        method = headers.get(":path", "")
        has_started = False
        status, message = 0, ""
        try:
            async with asyncio.timeout(deadline_s(headers.get("grpc-timeout", ""))):
                request = self._request(headers, body)
                if method in self._server.unary:
                    answers = _one(self._server.unary[method](request))
                elif method in self._server.streams:
                    answers = self._server.streams[method](request)
                else:
                    raise GrpcError(UNIMPLEMENTED, f"unknown method {method}")
                async for answer in answers:
                    if not has_started:
                        self._h2.send_headers(stream, OK_HEADERS)
                        has_started = True
                    await self._send(stream, b"\0" + len(answer).to_bytes(PREFIX - 1) + answer)
        except GrpcError as error:
            status, message = error.code, error.message
        except TimeoutError:
            status, message = DEADLINE_EXCEEDED, "the client's deadline has passed"
        except ProtocolError:  # the client has ended the stream or the connection
            return
        except Exception:  # a defect in one handler must not end the other calls
            log.exception("gRPC %s failed", method)
            status, message = UNKNOWN, "the server failed; see its log"
        trailers = [("grpc-status", str(status)), *([("grpc-message", quote(message, safe=" "))] if message else [])]
        try:
            self._h2.send_headers(stream, trailers if has_started else [*OK_HEADERS, *trailers], end_stream=True)
            if not self._h2.streams[stream].closed:  # the request has not ended: no more of it is read
                self._h2.reset_stream(stream, ErrorCodes.NO_ERROR)
        except (ProtocolError, KeyError):
            return
        self._flush()

    def _request(self, headers: Mapping[str, str], body: bytes) -> bytes:
        if headers.get(":method") != "POST" or not headers.get("content-type", "").startswith("application/grpc"):
            raise GrpcError(UNIMPLEMENTED, "this is a gRPC server: POST with content-type application/grpc")
        size = int.from_bytes(body[1:PREFIX])
        if size > self._server.max_message:
            raise GrpcError(
                RESOURCE_EXHAUSTED,
                f"grpc: received message larger than max ({size} vs. {self._server.max_message})",
            )
        if body[:1] == b"\1":
            raise GrpcError(UNIMPLEMENTED, "compressed messages are not supported")
        if len(body) != PREFIX + size:
            raise GrpcError(INTERNAL, "the request is not one message")
        return body[PREFIX:]

    async def _send(self, stream: int, data: bytes) -> None:
        """In parts, as the client's flow control window and the socket allow."""
        left = memoryview(data)
        while left:
            room = min(self._h2.local_flow_control_window(stream), self._h2.max_outbound_frame_size)
            if room <= 0 or self._is_full:
                self._flush()
                self._room.clear()
                await self._room.wait()
                continue
            part, left = left[:room], left[room:]
            self._h2.send_data(stream, bytes(part))
            self._flush()


async def _one(answer: Awaitable[bytes]) -> AsyncIterator[bytes]:
    yield await answer


def deadline_s(text: str) -> float | None:
    """The header grpc-timeout: at most eight digits and a unit, `250m` is a quarter of a second. None: no deadline."""
    number, unit = text[:-1], text[-1:]
    if unit not in UNIT_S or not (number.isascii() and number.isdecimal()) or len(number) > 8:
        return None
    return int(number) * UNIT_S[unit]
