"""One HTTP/1.1 connection, fed by hand."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from plimsoll.net.http import MAX_HEADER_BYTES, HttpClientConnection, MalformedResponseError, TruncatedResponseError


class _Writer(SimpleNamespace):
    def write(self, data: bytes) -> None:
        self.sent = getattr(self, "sent", b"") + data

    async def drain(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


def _connection(*answers: bytes) -> HttpClientConnection:
    reader = asyncio.StreamReader()
    for answer in answers:
        reader.feed_data(answer)
    reader.feed_eof()
    return HttpClientConnection(reader, _Writer())  # type: ignore[arg-type]


async def _exchange(connection: HttpClientConnection) -> tuple[int, bytes]:
    status = await connection.begin(b"GET / HTTP/1.1\r\n\r\n")
    return status, b"".join([part async for part in connection.parts()])


async def test_a_response_with_a_length_leaves_the_connection_reusable() -> None:
    connection = _connection(b"HTTP/1.1 200 OK\r\nLocation: /a\r\nContent-Length: 2\r\n\r\nok")
    assert await _exchange(connection) == (200, b"ok")
    assert connection.reusable and connection.headers[b"location"] == b"/a"


async def test_a_response_without_a_length_ends_with_the_connection() -> None:
    connection = _connection(b"HTTP/1.1 200 OK\r\n\r\nuntil the end")
    assert await _exchange(connection) == (200, b"until the end")
    assert not connection.reusable


async def test_chunks_arrive_as_one_body() -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    connection = _connection(head, b"2\r\nab\r\n", b"1\r\nc\r\n0\r\n\r\n")
    assert await _exchange(connection) == (200, b"abc") and connection.reusable


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        pytest.param(b"", EOFError, id="closed without an answer"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok", TruncatedResponseError, id="truncated"),
        pytest.param(b"SSH-2.0-OpenSSH\r\n\r\n", MalformedResponseError, id="not HTTP"),
    ],
)
async def test_a_response_that_breaks_off(answer: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        await _exchange(_connection(answer))


def _fields(name: str) -> list[bytes]:
    return [b"%s-%d: %s\r\n" % (name.encode(), number, b"x" * 1000) for number in range(2 * MAX_HEADER_BYTES // 1000)]


_CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param([b"HTTP/1.1 200 OK\r\n", *_fields("head"), b"\r\n"], id="headers"),
        pytest.param([b"HTTP/1.1 200 OK\r\nX: ", *[b"y" * 1000] * (2 * MAX_HEADER_BYTES // 1000)], id="one header"),
        pytest.param([_CHUNKED, b"1\r\na\r\n0\r\n", *_fields("tail"), b"\r\n"], id="trailers"),
    ],
)
async def test_a_response_with_headers_without_end(answers: list[bytes]) -> None:
    """The peer may be a container that is probed: what it sends must not fill the memory of the node agent."""
    with pytest.raises(MalformedResponseError, match="headers of the response are longer than 1048576 bytes"):
        await _exchange(_connection(*answers))


async def test_a_long_body_is_no_header() -> None:
    chunks = [b"400\r\n%s\r\n" % (b"x" * 1024)] * (2 * MAX_HEADER_BYTES // 1024)
    status, body = await _exchange(_connection(_CHUNKED, *chunks, b"0\r\n\r\n"))
    assert (status, len(body)) == (200, 2 * MAX_HEADER_BYTES)
