"""One connection of a gRPC server. Imported with the first connection, because most sockets have no client."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING
from urllib.parse import quote

from plimsoll.net.grpc.frames import (
    DEFAULT_WINDOW,
    MAX_CONCURRENT_STREAMS,
    NO_ERROR,
    PROTOCOL_ERROR,
    REFUSED_STREAM,
    StreamFaultError,
)
from plimsoll.net.grpc.header_blocks import REQUEST, TRAILERS, Block
from plimsoll.net.grpc.hpack import encoded
from plimsoll.net.grpc.status import DEADLINE_EXCEEDED, INTERNAL, RESOURCE_EXHAUSTED, UNIMPLEMENTED, UNKNOWN, GrpcError
from plimsoll.net.grpc.wire import PREFIX, Call, Wire, framed

if TYPE_CHECKING:
    from plimsoll.net.grpc.server import GrpcServer

log = logging.getLogger(__name__)

MAX_CONNECTIONS, MAX_CALLS = 64, 100
OK_HEADERS = ((":status", "200"), ("content-type", "application/grpc"))
_OK_BLOCK = encoded(OK_HEADERS)
UNIT_S = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}  # of the header grpc-timeout


class ServerCall(Call):
    """The request as it comes. It is answered when it is complete, or already too long."""

    __slots__ = ("_connection", "body", "headers", "task")

    def __init__(self, connection: ServerConnection) -> None:
        super().__init__()
        self._connection = connection
        self.headers: Mapping[str, str] = {}
        self.body = bytearray()
        self.task: asyncio.Task[None] | None = None

    def take_headers(self, block: Block, *, is_end: bool) -> None:
        if not self.headers and block.kind == REQUEST:
            self.headers = block.fields
        elif not self.headers or block.kind != TRAILERS or not is_end:
            raise StreamFaultError(PROTOCOL_ERROR, f"malformed: {block.kind} in a wrong place")

    def take_data(self, data: bytes) -> None:
        if self.task is None:
            self.body += data
            if len(self.body) > PREFIX + self._connection.max_message:
                self._connection.answer(self)

    def take_end(self) -> None:
        if self.task is None:
            self._connection.answer(self)

    def take_reset(self, code: int, why: str) -> None:
        self.ended = True
        if self.task is not None:
            self.task.cancel()


class ServerConnection(Wire[ServerCall]):
    def __init__(self, server: GrpcServer) -> None:
        super().__init__(
            is_client=False,
            settings={MAX_CONCURRENT_STREAMS: MAX_CALLS},
            window=DEFAULT_WINDOW,
            connection_window=DEFAULT_WINDOW,
        )
        self._server, self.max_message = server, server.max_message
        self._tasks: set[asyncio.Task[None]] = set()  # also of calls that were reset, until they have ended

    # --- the transport ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        if len(self._server.connections) >= MAX_CONNECTIONS:
            self.lost = True
            transport.abort()
            return
        self._server.connections.add(self)
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.connections.discard(self)
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """A client that does not read our answers sends no more calls."""
        super().pause_writing()
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        if self._transport is not None:
            self._transport.resume_reading()
        super().resume_writing()

    def fail(self, why: str) -> None:
        if self.lost:
            return
        log.debug("a connection ends: %s", why)
        self.lost = True
        for task in self._tasks:
            task.cancel()
        self.streams.clear()
        self.hang_up()

    # --- calls ---

    def opened(self) -> ServerCall:
        if len(self.streams) >= MAX_CALLS or len(self._tasks) >= MAX_CALLS:
            raise StreamFaultError(REFUSED_STREAM, f"{MAX_CALLS} calls at once")
        return ServerCall(self)

    def answer(self, call: ServerCall) -> None:
        call.task = self._loop.create_task(self._answer(call), name=call.headers.get(":path"))
        self._tasks.add(call.task)
        call.task.add_done_callback(self._tasks.discard)

    async def _answer(self, call: ServerCall) -> None:
        headers, method = call.headers, call.headers[":path"]
        has_started = False
        status, message = 0, ""
        try:
            async with asyncio.timeout(deadline_s(headers.get("grpc-timeout", ""))):
                request = self._request(headers, bytes(call.body))
                if method in self._server.unary:
                    answers = _one(self._server.unary[method](request))
                elif method in self._server.streams:
                    answers = self._server.streams[method](request)
                else:
                    raise GrpcError(UNIMPLEMENTED, f"unknown method {method}")
                async with aclosing(answers):  # at once: a task and its call refer to each other
                    async for answer in answers:
                        if not has_started:
                            self.send_headers(call, _OK_BLOCK)
                            has_started = True
                        self.send(call, framed(answer))
                        await call.sent()
        except GrpcError as error:
            status, message = error.code, error.message
        except TimeoutError:
            status, message = DEADLINE_EXCEEDED, "the client's deadline has passed"
        except Exception:  # a defect in one handler must not end the other calls
            log.exception("gRPC %s failed", method)
            status, message = UNKNOWN, "the server failed; see its log"
        trailers = [("grpc-status", str(status)), *([("grpc-message", quote(message, safe=" "))] if message else [])]
        self.send_headers(call, encoded(trailers if has_started else [*OK_HEADERS, *trailers]), is_last=True)
        self.reset(call, NO_ERROR)  # if the request has not ended: no more of it is read

    def _request(self, headers: Mapping[str, str], body: bytes) -> bytes:
        if headers[":method"] != "POST" or not headers.get("content-type", "").startswith("application/grpc"):
            raise GrpcError(UNIMPLEMENTED, "this is a gRPC server: POST with content-type application/grpc")
        size = int.from_bytes(body[1:PREFIX])
        if size > self._server.max_message:
            raise GrpcError(
                RESOURCE_EXHAUSTED,
                f"grpc: received message larger than max ({size} vs. {self._server.max_message})",
            )
        if body[:1] == b"\1":
            raise GrpcError(UNIMPLEMENTED, "compressed messages are not supported")
        if body[0:1] > b"\1":
            raise GrpcError(INTERNAL, f"grpc: received unexpected payload format {body[0]}")
        if len(body) != PREFIX + size:
            raise GrpcError(INTERNAL, "the request is not one message")
        return body[PREFIX:]


async def _one(answer: Awaitable[bytes]) -> AsyncGenerator[bytes, None]:
    yield await answer


def deadline_s(text: str) -> float | None:
    """The header grpc-timeout: at most eight digits and a unit, `250m` is a quarter of a second. None: no deadline."""
    number, unit = text[:-1], text[-1:]
    if unit not in UNIT_S or not (number.isascii() and number.isdecimal()) or len(number) > 8:
        return None
    return int(number) * UNIT_S[unit]
