"""Both sides of ttrpc on one socket: this peer serves one connection of the multiplexer and calls on the other.

Only unary calls exist here. Each request is answered by its own task, so that a slow one does not delay the others;
a peer that sends more than `MOST_OPEN` requests without waiting for answers is disconnected.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated

import msgspec

from plimsoll.aio import cancel_all
from plimsoll.codec.protobuf.structs import decode, encode
from plimsoll.codec.protobuf.wire import ProtobufError
from plimsoll.errors import StructuredError
from plimsoll.net.ttrpc.framing import REQUEST, RESPONSE, FrameReader, FramingError, MessageReader, TtrpcMessage, framed

Handler = Callable[[str, str, bytes], Awaitable[bytes]]  # service, method, payload → payload

OK, UNKNOWN, DEADLINE_EXCEEDED, UNIMPLEMENTED, UNAVAILABLE = 0, 2, 4, 12, 14  # gRPC's codes
MOST_OPEN = 256
_CHUNK = 1 << 16


class TtrpcError(StructuredError):
    """A call failed, or a handler refuses a request."""

    code: int
    message: str
    template = "{message} (ttrpc code {code})"


class _Request(msgspec.Struct, frozen=True):
    service: Annotated[str, 1] = ""
    method: Annotated[str, 2] = ""
    payload: Annotated[bytes, 3] = b""
    timeout_nano: Annotated[int, 4] = 0


class _Status(msgspec.Struct, frozen=True):
    code: Annotated[int, 1] = OK
    message: Annotated[str, 2] = ""


class _Response(msgspec.Struct, frozen=True):
    status: Annotated[_Status | None, 1] = None
    payload: Annotated[bytes, 2] = b""


class TtrpcPeer:
    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        handler: Handler,
        *,
        serves: int,
        calls: int,
    ) -> None:
        """`serves` and `calls`: the multiplexer's ids of the two connections."""
        self._reader, self._writer, self._handler = reader, writer, handler
        self._serves, self._calls = serves, calls
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._next_stream = 1  # a client's streams are odd
        self._tasks: set[asyncio.Task[None]] = set()
        self.closed = False

    async def run(self) -> None:
        """Read until the other side closes. Raises FramingError if it does not speak ttrpc."""
        frames = FrameReader()
        messages = {self._serves: MessageReader(), self._calls: MessageReader()}
        try:
            while data := await self._reader.read(_CHUNK):
                for connection, payload in frames.feed(data):
                    if connection not in messages:
                        continue  # as NRI does: connections that were not opened are ignored
                    for message in messages[connection].feed(payload):
                        self._take(connection, message)
        except ConnectionError:
            return  # the same as an end
        finally:
            self.closed = True
            self._fail_all()
            await cancel_all(self._tasks)
            self._writer.close()

    def close(self) -> None:
        self._writer.close()

    async def call(self, service: str, method: str, payload: bytes, timeout_s: float) -> bytes:
        """Raises TtrpcError."""
        stream, self._next_stream = self._next_stream, self._next_stream + 2
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[stream] = answer
        request = _Request(service, method, payload, int(timeout_s * 1e9))
        try:
            async with asyncio.timeout(timeout_s):
                await self._send(self._calls, TtrpcMessage(stream, REQUEST, encode(request)))
                return await answer
        except TimeoutError:
            raise TtrpcError(DEADLINE_EXCEEDED, f"{method}: no answer within {timeout_s:g} s") from None
        except ConnectionError as error:
            raise TtrpcError(UNAVAILABLE, f"{method}: {error}") from None
        finally:
            self._waiting.pop(stream, None)

    def _take(self, connection: int, message: TtrpcMessage) -> None:
        if connection == self._calls:
            if message.type == RESPONSE:
                self._answered(message)
            return
        if message.type != REQUEST:
            raise FramingError(f"a message of type {message.type} where only requests are expected")
        if len(self._tasks) >= MOST_OPEN:
            raise FramingError(f"more than {MOST_OPEN} requests at once")
        task = asyncio.create_task(self._serve(message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _answered(self, message: TtrpcMessage) -> None:
        answer = self._waiting.get(message.stream)
        if answer is None or answer.done():
            return  # too late
        try:
            response = decode(_Response, message.data)
        except ProtobufError as error:
            answer.set_exception(TtrpcError(UNKNOWN, f"the answer is not ttrpc's: {error}"))
            return
        status = response.status
        if status is not None and status.code != OK:
            answer.set_exception(TtrpcError(status.code, status.message))
        else:
            answer.set_result(response.payload)

    async def _serve(self, message: TtrpcMessage) -> None:
        try:
            request = decode(_Request, message.data)
            response = _Response(payload=await self._handler(request.service, request.method, request.payload))
        except TtrpcError as error:
            response = _Response(_Status(error.code, error.message))
        except ProtobufError as error:
            response = _Response(_Status(UNKNOWN, f"invalid request: {error}"))
        try:
            await self._send(self._serves, TtrpcMessage(message.stream, RESPONSE, encode(response)))
        except ConnectionError:
            return  # the other side has gone, `run` ends

    async def _send(self, connection: int, message: TtrpcMessage) -> None:
        self._writer.write(framed(connection, message))
        await self._writer.drain()

    def _fail_all(self) -> None:
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(TtrpcError(UNAVAILABLE, "the connection was closed"))
