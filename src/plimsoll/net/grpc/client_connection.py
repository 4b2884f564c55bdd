"""One connection of a gRPC client, and its calls. Imported with the first connection, because most agents need none."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from urllib.parse import unquote

from plimsoll.net.grpc.frames import (
    CANCEL,
    DEFAULT_WINDOW,
    ENABLE_PUSH,
    PADDED,
    PROTOCOL_ERROR,
    REFUSED_STREAM,
    StreamFaultError,
)
from plimsoll.net.grpc.header_blocks import RESPONSE, TRAILERS, Block
from plimsoll.net.grpc.hpack import encoded
from plimsoll.net.grpc.status import (
    CANCELLED,
    DEADLINE_EXCEEDED,
    INTERNAL,
    PERMISSION_DENIED,
    RESOURCE_EXHAUSTED,
    UNAUTHENTICATED,
    UNAVAILABLE,
    UNIMPLEMENTED,
    UNKNOWN,
    GrpcError,
    GrpcUnavailableError,
)
from plimsoll.net.grpc.wire import PREFIX, Call, Wire, framed

if TYPE_CHECKING:
    from plimsoll.net.grpc.client import Headers, Keepalive, KeptAlive

WINDOW = 1 << 20
MAX_MESSAGE = 64 << 20  # a longer one is an error
# Of an answer that is none of gRPC (https://github.com/grpc/grpc/blob/master/doc/http-grpc-status-mapping.md).
_BY_HTTP_STATUS = {
    "400": INTERNAL,
    "401": UNAUTHENTICATED,
    "403": PERMISSION_DENIED,
    "404": UNIMPLEMENTED,
    **dict.fromkeys(("429", "502", "503", "504"), UNAVAILABLE),
}
LONGEST_TIMEOUT_MS = 99_999_999  # grpc-timeout has at most eight digits
MAX_FOREIGN_MESSAGE, MAX_OTHER_BYTES = 4 << 20, 1 << 18  # the first is grpc-go's
_KEPT_BLOCKS = 128
_LONGEST_STATUS = 10  # digits


class ClientCall(Call):
    """Ends once, with a status: None is OK."""

    __slots__ = ("_buffer", "_connection", "_http_status")

    def __init__(self, connection: ClientConnection) -> None:
        super().__init__()
        self._connection = connection
        self._buffer = bytearray()
        self._http_status = ""

    def take_message(self, message: bytes) -> None: ...

    def take_status(self, status: GrpcError | None) -> None: ...

    def take_headers(self, block: Block, *, is_end: bool) -> None:
        fields = block.fields
        if not self._http_status and block.kind == RESPONSE:
            if fields[":status"].startswith("1") and not is_end:  # RFC 9113, section 8.1
                return
            self._http_status = fields[":status"]
        elif not self._http_status or block.kind != TRAILERS or not is_end:
            raise StreamFaultError(PROTOCOL_ERROR, f"malformed: {block.kind} in a wrong place")
        if is_end and "grpc-status" in fields:
            self.end(_status(fields["grpc-status"], fields.get("grpc-message", "")))
        elif self._http_status != "200":
            self.take_end()

    def take_data(self, data: bytes) -> None:
        if not self._http_status:
            raise StreamFaultError(PROTOCOL_ERROR, "malformed: data before headers")
        buffer = self._buffer
        if not buffer and not data[0] and int.from_bytes(data[1:PREFIX]) == len(data) - PREFIX:  # as most are
            if not self.ended:
                self.take_message(data[PREFIX:])
            return
        buffer += data
        while len(buffer) >= PREFIX and not self.ended:
            size = int.from_bytes(buffer[1:PREFIX])
            if buffer[0] or size > self._connection.max_message:
                self.end(self._refusal(buffer[0], size))
                return
            if len(buffer) < PREFIX + size:
                return
            self.take_message(bytes(buffer[PREFIX : PREFIX + size]))
            del buffer[: PREFIX + size]

    def _refusal(self, flags: int, size: int) -> GrpcError:
        if flags == 1:  # which needs a grpc-encoding that we have offered
            return GrpcError(INTERNAL, "grpc: compressed flag set with identity or empty encoding")
        if flags:
            return GrpcError(INTERNAL, f"grpc: received unexpected payload format {flags}")
        most = self._connection.max_message
        return GrpcError(RESOURCE_EXHAUSTED, f"grpc: received message larger than max ({size} vs. {most})")

    def take_end(self) -> None:
        if not self.ended:
            status = self._http_status or "none"
            code = _BY_HTTP_STATUS.get(status, UNKNOWN)
            self.end(GrpcError(code, f"ended without a gRPC status, HTTP status {status}"))

    def take_reset(self, code: int, why: str) -> None:
        if self.ended:
            return
        if code == REFUSED_STREAM:  # nothing was done (RFC 9113, section 8.7)
            self.end(GrpcUnavailableError("the server refused the call"))
        else:
            self.end(GrpcError(CANCELLED if code == CANCEL else UNAVAILABLE, why))

    def end(self, status: GrpcError | None) -> None:
        """Only the first one counts."""
        if not self.ended:
            self.ended = True
            self.drained()
            self.take_status(status)

    def leave(self) -> None:
        """The caller no longer waits: cancel the call on the server unless it has ended."""
        self.ended = True
        self.drained()
        if not self.is_closed:
            self._connection.forget(self)


def _status(code: str, message: str) -> GrpcError | None:
    number = int(code) if code.isascii() and code.isdecimal() and len(code) <= _LONGEST_STATUS else UNKNOWN
    return GrpcError(number, unquote(message)) if number else None


class UnaryCall(ClientCall):
    __slots__ = ("_message", "_timer", "answer")

    def __init__(self, connection: ClientConnection, answer: asyncio.Future[bytes | GrpcError]) -> None:
        super().__init__(connection)
        self.answer = answer
        self._message: bytes | None = None
        self._timer: asyncio.TimerHandle | None = None

    def end_in(self, left_s: float, deadline_s: float) -> None:
        self._timer = self.answer.get_loop().call_later(left_s, self._expire, deadline_s)

    def _expire(self, deadline_s: float) -> None:
        self.end(GrpcError(DEADLINE_EXCEEDED, f"no answer within {deadline_s:g} s"))

    def take_message(self, message: bytes) -> None:
        if self._message is None:
            self._message = message
        else:
            self.end(GrpcError(INTERNAL, "an answer with more than one message"))

    def take_status(self, status: GrpcError | None) -> None:
        if status is None and self._message is None:
            status = GrpcError(INTERNAL, "an answer without a message")
        if not self.answer.done():
            self.answer.set_result(status or self._message or b"")

    def leave(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().leave()


class StreamCall(ClientCall):
    """`received` has the messages, and at the end the status."""

    __slots__ = ("received",)

    def __init__(self, connection: ClientConnection) -> None:
        super().__init__(connection)
        self.received: asyncio.Queue[bytes | GrpcError | None] = asyncio.Queue()

    def take_message(self, message: bytes) -> None:
        self.received.put_nowait(message)

    def take_status(self, status: GrpcError | None) -> None:
        self.received.put_nowait(status)

    async def send(self, message: bytes, *, is_last: bool = False) -> None:
        if not self.ended:
            self._connection.send(self, framed(message), is_last=is_last)
            await self.sent()


class ClientConnection(Wire[ClientCall]):
    """Calls that the server does not allow yet, or the socket does not take, wait here."""

    def __init__(
        self,
        *,
        kept_alive: KeptAlive | None = None,
        authority: str = "localhost",
        scheme: str = "http",
        max_message: int = MAX_MESSAGE,
    ) -> None:
        super().__init__(
            is_client=True, settings={ENABLE_PUSH: 0}, window=WINDOW, connection_window=WINDOW + DEFAULT_WINDOW
        )
        self._kept_alive, self._authority, self._scheme = kept_alive, authority, scheme
        self.max_message = max_message
        self._keepalive: Keepalive | None = None
        self._waiting: dict[ClientCall, bytes] = {}  # with their headers
        self._blocks: dict[tuple[str, float | None, Headers], bytes] = {}
        self._is_retired = False
        self._going = ""  # what the server said when it began to go away

    @property
    def is_usable(self) -> bool:
        return not self.lost and not self._is_retired and self.ids_left > len(self._waiting)

    @property
    def is_going_away(self) -> bool:
        """The server lets unary calls end, and we close the connection after the last one."""
        return bool(self._going) and not self.lost

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self._kept_alive is not None:
            self._keepalive = self._kept_alive(transport.get_extra_info("socket").fileno())

    def unary(
        self, method: str, request: bytes, deadline_s: float, headers: Headers = (), left_s: float | None = None
    ) -> UnaryCall:
        """`left_s`: after which the call ends by itself."""
        call = UnaryCall(self, self._loop.create_future())
        self._start(call, method, deadline_s, headers)
        if left_s is not None:
            call.end_in(left_s, deadline_s)
        self.send(call, framed(request), is_last=True)
        return call

    def open(self, method: str, headers: Headers = ()) -> StreamCall:
        call = StreamCall(self)
        self._start(call, method, None, headers)
        return call

    def _start(self, call: ClientCall, method: str, deadline_s: float | None, more: Headers) -> None:
        if self.lost or self._is_retired:
            raise GrpcUnavailableError(self._going or "the connection was closed")
        block = self._blocks.get((method, deadline_s, more)) or self._block(method, deadline_s, more)
        if self._has_room and not self._waiting:
            self.begin(call, block)
        else:
            self._waiting[call] = block

    def _block(self, method: str, deadline_s: float | None, more: Headers) -> bytes:
        fields = [
            (":method", "POST"),
            (":scheme", self._scheme),
            (":path", method),
            (":authority", self._authority),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
            *more,
        ]
        if deadline_s is not None:
            fields.append(("grpc-timeout", f"{min(max(1, round(deadline_s * 1000)), LONGEST_TIMEOUT_MS)}m"))
        if len(self._blocks) >= _KEPT_BLOCKS:
            self._blocks.clear()
        block = self._blocks[method, deadline_s, more] = encoded(fields)
        return block

    @property
    def _has_room(self) -> bool:
        """Calls to a server that does not read are not sent: their headers and resets would gather in `output`."""
        return len(self.streams) < self.peer_streams and not self.is_full

    def resume_writing(self) -> None:
        super().resume_writing()
        self.room_for_streams()

    def room_for_streams(self) -> None:
        while self._waiting and self._has_room:
            call = next(iter(self._waiting))
            self.begin(call, self._waiting.pop(call))
        if self._is_retired and not self.streams and not self._waiting:
            self.fail("closed by us")

    def forget(self, call: ClientCall) -> None:
        if self._waiting.pop(call, None) is None and not self.lost:
            self.reset(call, CANCEL)

    def retire(self) -> None:
        """No new calls; the connection ends with the last one."""
        self._is_retired = True
        self.room_for_streams()

    def going_away(self, last_stream: int, code: int, text: str) -> None:
        """Nothing was done of calls after `last_stream` nor of those that wait; the others may still be answered (RFC
        9113, section 6.8). A stream may have no end of its own, so its caller goes on elsewhere now."""
        if self.lost:
            return
        why = self._going = f"the server is going away{f': {text} (error {code})' if code else ''}"
        self._is_retired = True
        waiting = [*self._waiting]
        self._waiting.clear()
        for call in waiting:
            call.end(GrpcUnavailableError(why))
        for call in [*self.streams.values()]:
            if call.id > last_stream:
                call.end(GrpcUnavailableError(why))
                self._close(call)
            elif isinstance(call, StreamCall):
                call.end(GrpcError(UNAVAILABLE, why))
                self.reset(call, CANCEL)
        self.room_for_streams()

    def fail(self, why: str) -> None:
        """Nothing was done of calls that were not sent."""
        if self.lost:
            return
        self.lost, why = True, self._going or why
        sent, waiting = [*self.streams.values()], [*self._waiting]
        self.streams.clear()
        self._waiting.clear()
        for call in sent:
            call.end(GrpcError(UNAVAILABLE, why))
        for call in waiting:
            call.end(GrpcUnavailableError(why))
        self.hang_up()
        if self._keepalive is not None:
            self._keepalive.end()


class ForeignConnection(ClientConnection):
    """To anyone's server, such as that of a container: neither our memory nor our time is without limit."""

    def __init__(self, authority: str) -> None:
        super().__init__(authority=authority, max_message=MAX_FOREIGN_MESSAGE)
        self._other_bytes = 0  # than of messages

    def data_received(self, data: bytes) -> None:
        self._other_bytes += len(data)
        super().data_received(data)
        if self._other_bytes > MAX_OTHER_BYTES:
            self.fail(f"no gRPC: more than {MAX_OTHER_BYTES} bytes that are not of a message")

    def _take_data(self, flags: int, number: int, payload: bytes) -> None:
        if not flags & PADDED:
            self._other_bytes -= len(payload)
        super()._take_data(flags, number, payload)
