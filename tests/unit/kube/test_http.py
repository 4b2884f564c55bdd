"""Answers that end too early, at a real socket."""

from __future__ import annotations

import asyncio

import pytest

from plimsoll.kube.http import HttpTransport
from plimsoll.kube.kubeconfig import Access
from plimsoll.kube.request import Request, UnreachableError


async def answered(data: bytes) -> bytes:
    """What `send` makes of these bytes, after which the server hangs up."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(data)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    transport = HttpTransport(Access(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"))
    try:
        return (await transport.send(Request("GET", "/x"))).body
    finally:
        await transport.close()
        server.close()


async def test_an_answer_without_a_length_ends_with_the_connection() -> None:
    assert await answered(b"HTTP/1.1 200 OK\r\n\r\nall of it") == b"all of it"


@pytest.mark.parametrize(
    "data",
    [b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", b"HTTP/1.1 200 OK\r\nConte", b""],
    ids=["in its body", "in its head", "before it"],
)
async def test_a_truncated_response_is_an_error(data: bytes) -> None:
    with pytest.raises(UnreachableError):
        await answered(data)
