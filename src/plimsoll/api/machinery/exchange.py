"""One HTTP exchange over ASGI: the request, how to read it, and whether the response has started.

uvicorn writes the head and the body of a response separately, which over TLS are two records and two packets, and every
line of a stream passes through a coroutine. A `Wire` writes to the same connection directly: one write for a whole
response, no task switch for a stream. It keeps the order and uvicorn's state of the exchange as its own `send` would.
The scope has it under `WIRE`; requests from inside the process have none and use ASGI's `send`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, MutableMapping, Sequence
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from plimsoll.api.machinery.request_info import RequestInfo
from plimsoll.api.machinery.status import StatusError, bad_request, slow_body, too_large_body
from plimsoll.api.machinery.users import ANONYMOUS, User

WIRE = "plimsoll.wire"
SURPLUS = "plimsoll.surplus"  # the limit, in the scope of a request on a connection beyond it
CLAIM = "plimsoll.claim"  # counts the connection for a user, `Claim`

_STATUS_LINES = {status.value: b"HTTP/1.1 %d %s" % (status.value, status.phrase.encode()) for status in HTTPStatus}


class Wire:
    __slots__ = ("_cycle", "_is_body_refused")

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle
        self._is_body_refused = False

    def whole_body(self) -> bytes | None:
        """The request's body if it has arrived completely, as it mostly has; None: receive it."""
        cycle = self._cycle
        if cycle.more_body or cycle.disconnected or cycle.response_complete or cycle.waiting_for_100_continue:
            return None
        body = bytes(cycle.body)
        cycle.body = bytearray()
        cycle.message_event.clear()
        cycle.flow.resume_reading()
        return body

    def refuse_body(self) -> None:
        """The rest of the request's body is not wanted: the response announces the end of the connection."""
        self._is_body_refused = True

    async def answer(self, code: int, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> None:
        """The whole response; nothing if the client has disconnected."""
        cycle = self._cycle
        if cycle.flow.write_paused and not cycle.disconnected:
            await cycle.flow.drain()
        if self.is_lost:
            self.give_up()
            return
        cycle.response_started = True
        cycle.waiting_for_100_continue = False
        spills = self._is_body_refused and cycle.more_body
        lines = [_STATUS_LINES[code]]
        lines += [name + b": " + value for name, value in headers]
        lines.append(b"content-length: %d" % len(body))
        if spills or not cycle.keep_alive:
            lines.append(b"connection: close")
        head = b"\r\n".join(lines)
        if head.count(b"\n") != len(lines) - 1 or b"\0" in head:
            raise ValueError(f"a header of more than one line: {head!r}")
        cycle.transport.write(b"%b\r\n\r\n%b" % (head, body))
        cycle.response_complete = True
        cycle.message_event.set()
        if not cycle.keep_alive:
            cycle.transport.close()
        elif spills:  # most clients read only when they have sent all: the connection ends after the body
            cycle.keep_alive = False
        cycle.on_response()

    @property
    def is_lost(self) -> bool:
        """Whether the client has disconnected: what is still sent goes nowhere."""
        return self._cycle.disconnected or self._cycle.transport.is_closing()

    def give_up(self) -> None:
        """There is no one to respond to: uvicorn would log that it misses the response."""
        self._cycle.disconnected = True

    @property
    def is_open(self) -> bool:
        """Whether a started stream accepts more at once: the client is connected and reads what it is sent."""
        cycle = self._cycle
        return not (cycle.flow.write_paused or self.is_lost or cycle.response_complete)

    def push(self, chunks: bytes) -> None:
        """More of a stream, `framed`. Only while it `is_open`."""
        self._cycle.transport.write(chunks)


def framed(data: bytes) -> bytes:
    """One chunk of an HTTP/1.1 stream."""
    return b"%x\r\n%b\r\n" % (len(data), data)


HIJACK = "plimsoll.hijack"  # in the scope of an upgrade that ASGI does not know: takes the connection over
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = dict[bytes, bytes]

_PIECE_BYTES = 256 * 1024
_DIGITS = 18
BODY_S = 60.0  # for a client to send its body


# With the user's name, and how many connections the user may have (0: any number); whether this one is among them.
Claim = Callable[[str, int], bool]
Authenticator = Callable[[Scope, Headers], User]  # raises InvalidCredentialsError


class Exchange:
    """One HTTP exchange: the request, and whether the response has started."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.receive = receive
        self._send = send
        self.headers: Headers = dict(scope["headers"])
        self.user: User = ANONYMOUS
        self.info: RequestInfo | None = None
        self.code = 0
        self.is_counted = False  # against the rate of its user
        self.warnings: list[str] = []  # for the client, also of a refused request
        self.annotations: dict[str, str] = {}  # of the audit event
        # Removed from the scope: the wire refers to its scope, and a cycle would live until a garbage collection.
        self.wire: Wire | None = scope.pop(WIRE, None)
        self.claim: Claim | None = scope.pop(CLAIM, None)

    def is_lost(self) -> bool:
        """Whether the client is known to have disconnected."""
        return self.wire is not None and self.wire.is_lost

    def header(self, name: bytes) -> str:
        return self.headers.get(name, b"").decode("latin-1")

    def expected_bytes(self, limit_bytes: int) -> int:
        """The size of the body, at most. Raises 413."""
        declared = self.headers.get(b"content-length", b"")
        if not declared.isdigit():
            return limit_bytes if b"transfer-encoding" in self.headers else 0
        if len(declared) > _DIGITS or int(declared) > limit_bytes:
            raise self._too_large(limit_bytes)
        return int(declared)

    async def body(self, limit_bytes: int) -> bytes:
        self.expected_bytes(limit_bytes)
        if self.wire is not None and (whole := self.wire.whole_body()) is not None:
            if len(whole) > limit_bytes:
                raise self._too_large(limit_bytes)
            return whole
        try:
            async with asyncio.timeout(BODY_S):
                return await self._received(limit_bytes)
        except TimeoutError:
            raise slow_body(BODY_S) from None

    async def _received(self, limit_bytes: int) -> bytes:
        parts: list[bytes] = []
        size, more = 0, True
        while more:
            message = await self.receive()
            if message["type"] == "http.disconnect":  # half a body may be valid with another meaning
                raise bad_request("the client disconnected before its request was complete")
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > limit_bytes:
                raise self._too_large(limit_bytes)
            more = message.get("more_body", False)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _too_large(self, limit_bytes: int) -> StatusError:
        if self.wire is not None:
            self.wire.refuse_body()
        return too_large_body(limit_bytes)

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.code = message["status"]
        if self.is_lost():
            self.give_up()
        else:
            await self._send(message)

    def give_up(self) -> None:
        """The client has disconnected, so there will be no response."""
        if self.wire is not None:
            self.wire.give_up()

    async def disconnected(self) -> None:
        while (await self.receive())["type"] != "http.disconnect":
            pass

    async def start(self, code: int, headers: Sequence[tuple[bytes, bytes]]) -> None:
        await self.send({"type": "http.response.start", "status": code, "headers": headers})

    async def respond(self, code: int, body: bytes, headers: Sequence[tuple[bytes, bytes]]) -> None:
        if self.code:  # a stream has started: it can only be ended
            await self.send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        if self.wire is not None and len(body) <= _PIECE_BYTES and self.scope["method"] != "HEAD":
            self.code = code
            await self.wire.answer(code, headers, body)
            return
        await self.start(code, [*headers, (b"content-length", b"%d" % len(body))])
        at = 0
        while len(body) - at > _PIECE_BYTES:
            # In pieces: asyncio does not move megabytes with every packet.
            await self.send({"type": "http.response.body", "body": body[at : at + _PIECE_BYTES], "more_body": True})
            at += _PIECE_BYTES
        await self.send({"type": "http.response.body", "body": body[at:] if at else body, "more_body": False})

    async def respond_in_pieces(
        self, code: int, pieces: AsyncIterator[bytes], headers: Sequence[tuple[bytes, bytes]]
    ) -> None:
        """Each piece is made when the client has read most of the one before; none once it has disconnected."""
        await self.start(code, headers)
        async for piece in pieces:
            await self.send({"type": "http.response.body", "body": piece, "more_body": True})
            if self.is_lost():
                return
        await self.send({"type": "http.response.body", "body": b"", "more_body": False})
