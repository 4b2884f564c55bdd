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


async def test_only_so_many_requests_are_on_their_way_at_one_time() -> None:
    """More would each open a connection; a stream that stays open does not count."""
    connections, streams, most = 0, 0, 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections, streams, most
        connections += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                if head.startswith(b"GET /stream"):
                    streams += 1
                    writer.write(b"HTTP/1.1 200 OK\r\n\r\nbegun")
                    continue
                most = max(most, connections - streams)
                await asyncio.sleep(0)
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        except asyncio.IncompleteReadError:
            pass
        finally:
            connections -= 1
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    transport = HttpTransport(Access(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"), at_once=3)
    open_streams = [transport.stream(Request("GET", f"/stream{number}")) for number in range(4)]
    try:
        for stream in open_streams:
            await anext(stream)
        answers = await asyncio.gather(*(transport.send(Request("GET", f"/{number}")) for number in range(30)))
    finally:
        for stream in open_streams:
            await stream.aclose()
        await transport.close()
        server.close()
    assert [answer.body for answer in answers] == [b"ok"] * 30
    assert (streams, most) == (4, 3)
