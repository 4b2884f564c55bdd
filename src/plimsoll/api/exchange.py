"""One HTTP exchange over ASGI: what came, how to read it, and whether an answer has begun."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

from plimsoll.api.request import RequestInfo
from plimsoll.api.status import bad_request, too_large_body
from plimsoll.api.users import ANONYMOUS, User
from plimsoll.api.wire import WIRE, Wire

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = dict[bytes, bytes]

_PIECE_BYTES = 256 * 1024


class Exchange:
    """One HTTP exchange: what came, and whether an answer has begun."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.receive = receive
        self.send = send
        self.headers: Headers = dict(scope["headers"])
        self.user: User = ANONYMOUS
        self.info: RequestInfo | None = None
        self.code = 0
        # Taken out: the wire knows its scope, and what is held in a circle stays until somebody collects it.
        self.wire: Wire | None = scope.pop(WIRE, None)

    def header(self, name: bytes) -> str:
        return self.headers.get(name, b"").decode("latin-1")

    async def body(self, limit_bytes: int) -> bytes:
        declared = self.headers.get(b"content-length", b"")
        if declared.isdigit() and int(declared) > limit_bytes:
            raise too_large_body(limit_bytes)
        if self.wire is not None and (whole := self.wire.whole_body()) is not None:
            if len(whole) > limit_bytes:
                raise too_large_body(limit_bytes)
            return whole
        parts: list[bytes] = []
        size, more = 0, True
        while more:
            message = await self.receive()
            if message["type"] == "http.disconnect":  # half a body may well be a whole one of another meaning
                raise bad_request("the client left before its request was complete")
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > limit_bytes:
                raise too_large_body(limit_bytes)
            more = message.get("more_body", False)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def disconnected(self) -> None:
        while (await self.receive())["type"] != "http.disconnect":
            pass

    async def start(self, code: int, headers: Sequence[tuple[bytes, bytes]]) -> None:
        self.code = code
        await self.send({"type": "http.response.start", "status": code, "headers": headers})

    async def respond(self, code: int, body: bytes, headers: Sequence[tuple[bytes, bytes]]) -> None:
        if self.code:  # a stream has begun: all that is left is to end it
            await self.send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        if self.wire is not None and len(body) <= _PIECE_BYTES and self.scope["method"] != "HEAD":
            self.code = code
            await self.wire.answer(code, headers, body)
            return
        await self.start(code, [*headers, (b"content-length", b"%d" % len(body))])
        at = 0
        while len(body) - at > _PIECE_BYTES:
            # Large lists in pieces: others get their turn, and asyncio does not move megabytes with every packet.
            await self.send({"type": "http.response.body", "body": body[at : at + _PIECE_BYTES], "more_body": True})
            at += _PIECE_BYTES
        await self.send({"type": "http.response.body", "body": body[at:] if at else body, "more_body": False})
