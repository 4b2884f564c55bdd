"""The short way from an answer to its connection: one write for a whole answer, none of a task's turns for a stream.

uvicorn writes the head and the body of an answer apart, which over TLS are two records and two packets; and whatever a
stream says passes through a coroutine. A `Wire` writes to the same connection, in the same order, and leaves uvicorn's
account of the exchange as its own `send` would. It stands in the scope under `WIRE` where there is one: requests from
inside the process have none and go the ordinary way of ASGI.
"""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

WIRE = "plimsoll.wire"
SURPLUS = "plimsoll.surplus"  # the limit, in the scope of a request on a connection beyond it

_STATUS_LINES = {each.value: b"HTTP/1.1 %d %s" % (each.value, each.phrase.encode()) for each in HTTPStatus}


class Wire:
    __slots__ = ("_cycle",)

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle

    def whole_body(self) -> bytes | None:
        """The request's body if all of it is there already, as it mostly is; None: receive it."""
        cycle = self._cycle
        if cycle.more_body or cycle.disconnected or cycle.response_complete or cycle.waiting_for_100_continue:
            return None
        body = bytes(cycle.body)
        cycle.body = bytearray()
        cycle.message_event.clear()
        cycle.flow.resume_reading()
        return body

    async def answer(self, code: int, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> None:
        """The whole answer; nothing if the client has left."""
        cycle = self._cycle
        if cycle.flow.write_paused and not cycle.disconnected:
            await cycle.flow.drain()
        if cycle.disconnected:
            return
        cycle.response_started = True
        cycle.waiting_for_100_continue = False
        lines = [_STATUS_LINES[code]]
        lines += [name + b": " + value for name, value in headers]
        lines.append(b"content-length: %d" % len(body))
        if not cycle.keep_alive:
            lines.append(b"connection: close")
        head = b"\r\n".join(lines)
        if head.count(b"\n") != len(lines) - 1 or b"\0" in head:
            raise ValueError(f"a header of more than one line: {head!r}")
        cycle.transport.write(b"%b\r\n\r\n%b" % (head, body))
        cycle.response_complete = True
        cycle.message_event.set()
        if not cycle.keep_alive:
            cycle.transport.close()
        cycle.on_response()

    @property
    def is_open(self) -> bool:
        """Whether a stream that has begun can take more at once: the client has not left and reads what it is sent."""
        cycle = self._cycle
        return not (cycle.flow.write_paused or cycle.disconnected or cycle.response_complete)

    def push(self, chunks: bytes) -> None:
        """More of a stream, `framed`. Only while it `is_open`."""
        self._cycle.transport.write(chunks)


def framed(data: bytes) -> bytes:
    """One chunk of an HTTP/1.1 stream."""
    return b"%x\r\n%b\r\n" % (len(data), data)
