"""The gRPC server: answers, streams, statuses; no client holds up another one."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import stat
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote

import pytest

from plimsoll.net.grpc import frames as f
from plimsoll.net.grpc.client import GrpcClient
from plimsoll.net.grpc.frames import FrameReader
from plimsoll.net.grpc.hpack import Decoder, encoded
from plimsoll.net.grpc.server import GrpcServer
from plimsoll.net.grpc.server_connection import MAX_CONNECTIONS, ServerConnection, deadline_s
from plimsoll.net.grpc.status import DEADLINE_EXCEEDED, INTERNAL, UNIMPLEMENTED, UNKNOWN, GrpcError
from tests.unit.net.grpc.pipe import Pipe

LONG_S = 10.0


async def echo(request: bytes) -> bytes:
    return b"<" + request + b">"


async def refuse(_: bytes) -> bytes:
    raise GrpcError(9, "nö: 100 %\nnever")


async def crash(_: bytes) -> bytes:
    raise ZeroDivisionError


async def hang(_: bytes) -> bytes:
    await asyncio.Event().wait()
    return b""


async def count(request: bytes) -> AsyncGenerator[bytes, None]:
    for number in range(int(request)):
        yield str(number).encode()


async def large(_: bytes) -> AsyncGenerator[bytes, None]:
    yield b"x" * (3 << 20)
    yield b"y"


def request_to(path: str) -> bytes:
    return encoded([(":method", "POST"), (":scheme", "http"), (":path", path), ("content-type", "application/grpc")])


@asynccontextmanager
async def serving(path: Path) -> AsyncIterator[tuple[GrpcServer, GrpcClient]]:
    server = GrpcServer(
        {"/t/Echo": echo, "/t/Refuse": refuse, "/t/Crash": crash, "/t/Hang": hang},
        {"/t/Count": count, "/t/Large": large},
        max_message=1 << 20,
    )
    await server.listen(path)
    client = GrpcClient(str(path))
    try:
        yield server, client
    finally:
        client.close()
        await server.close()


async def test_answers_and_streams(tmp_path: Path) -> None:
    async with serving(tmp_path / "s") as (_, client):
        assert await client.unary("/t/Echo", b"hello", LONG_S) == b"<hello>"
        assert await client.unary("/t/Echo", b"", LONG_S) == b"<>"
        assert [each async for each in client.stream("/t/Count", b"3")] == [b"0", b"1", b"2"]
        assert [each async for each in client.stream("/t/Count", b"0")] == []
        # larger than the client's window: sent in parts
        assert [len(each) async for each in client.stream("/t/Large", b"")] == [3 << 20, 1]
        assert len(await client.unary("/t/Echo", b"z" * 1_000_000, LONG_S)) == 1_000_002


STATUSES = [
    pytest.param("/t/Refuse", b"", 9, "nö: 100 %\nnever", id="the handler's status"),
    pytest.param("/t/Crash", b"", UNKNOWN, "the server failed; see its log", id="a defect"),
    pytest.param("/t/None", b"", UNIMPLEMENTED, "unknown method /t/None", id="no such method"),
    pytest.param(
        "/t/Echo", b"z" * (1 << 21), 8, "grpc: received message larger than max (2097152 vs. 1048576)", id="too large"
    ),
]


@pytest.mark.parametrize(("method", "request_bytes", "code", "message"), STATUSES)
async def test_statuses(tmp_path: Path, method: str, request_bytes: bytes, code: int, message: str) -> None:
    async with serving(tmp_path / "s") as (_, client):
        with pytest.raises(GrpcError) as caught:
            await client.unary(method, request_bytes, LONG_S)
        assert (caught.value.code, caught.value.message) == (code, message)
        assert await client.unary("/t/Echo", b"still", LONG_S) == b"<still>"  # the connection survives


FLAGS = [
    pytest.param(1, UNIMPLEMENTED, "compressed messages are not supported", id="compressed"),
    pytest.param(7, INTERNAL, "grpc: received unexpected payload format 7", id="other flags"),
]


@pytest.mark.parametrize(("flags", "code", "message"), FLAGS)
async def test_flags_of_a_request(flags: int, code: int, message: str) -> None:
    connection = ServerConnection(GrpcServer({"/t/Echo": echo}))
    pipe = Pipe(connection)
    connection.connection_made(pipe)
    body = f.frame(f.DATA, f.END_STREAM, 1, bytes((flags, 0, 0, 0, 1)) + b"x")
    connection.data_received(f.PREFACE + f.settings_frame([]) + f.header_frames(1, request_to("/t/Echo"), 0) + body)
    (call,) = connection.streams.values()
    assert call.task is not None
    await call.task
    await asyncio.sleep(0)
    blocks = [payload for kind, _, _, payload in FrameReader().frames(pipe.emptied()) if kind == f.HEADERS]
    assert [dict(Decoder(4096).decoded(each)) for each in blocks] == [
        {
            b":status": b"200",
            b"content-type": b"application/grpc",
            b"grpc-status": str(code).encode(),
            b"grpc-message": quote(message, safe=" ").encode(),
        }
    ]


async def test_a_call_that_hangs_holds_up_no_other(tmp_path: Path) -> None:
    async with serving(tmp_path / "s") as (_, client):
        hanging = asyncio.create_task(client.unary("/t/Hang", b"", LONG_S))
        assert await client.unary("/t/Echo", b"x", LONG_S) == b"<x>"
        hanging.cancel()
        with pytest.raises(GrpcError) as caught:
            await client.unary("/t/Hang", b"", 0.05)
        assert caught.value.code == DEADLINE_EXCEEDED


async def test_a_client_that_does_not_read_holds_up_no_other(tmp_path: Path) -> None:
    async with serving(tmp_path / "s") as (_, client):
        unread = client.stream("/t/Large", b"")
        await anext(unread)
        other = GrpcClient(str(tmp_path / "s"))
        assert await other.unary("/t/Echo", b"x", LONG_S) == b"<x>"
        other.close()


async def test_the_socket(tmp_path: Path) -> None:
    path = tmp_path / "s"
    left = socket.socket(socket.AF_UNIX)
    left.bind(os.fspath(path))  # of a process that was killed
    left.close()
    async with serving(path):
        mode = os.stat(path).st_mode
        assert stat.S_ISSOCK(mode) and stat.S_IMODE(mode) == 0o600
    assert not path.exists()
    path.write_text("a file of another program")
    with pytest.raises(OSError, match="in use"):
        async with serving(path):
            pass
    assert path.read_text() == "a file of another program"


async def test_garbage_and_many_connections(tmp_path: Path) -> None:
    async with serving(tmp_path / "s") as (server, client):
        reader, writer = await asyncio.open_unix_connection(tmp_path / "s")
        writer.write(b"GET / HTTP/1.1\r\n\r\n" * 10)
        await reader.read()  # the server hangs up
        writer.close()
        many = [await asyncio.open_unix_connection(tmp_path / "s") for _ in range(MAX_CONNECTIONS + 5)]
        refused, _ = many[-1]
        assert await refused.read() == b""
        assert len(server.connections) <= MAX_CONNECTIONS
        for _, each in many:
            each.close()
        async with asyncio.timeout(LONG_S):
            while server.connections:  # noqa: ASYNC110 - no event reports it
                await asyncio.sleep(0)
        assert await client.unary("/t/Echo", b"x", LONG_S) == b"<x>"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("250m", 0.25), ("3S", 3.0), ("1H", 3600.0), ("", None), ("x", None), ("12", None), ("999999999S", None)],
)
def test_the_header_of_the_deadline(text: str, seconds: float | None) -> None:
    assert deadline_s(text) == seconds


async def test_a_client_that_does_not_read_is_not_read_either() -> None:
    connection = ServerConnection(GrpcServer({}))
    pipe = Pipe(connection, fills=[True])
    connection.connection_made(pipe)
    assert not pipe.is_reading()
    pipe.emptied()
    assert pipe.is_reading()


async def test_an_end_does_not_wait_for_a_client_that_does_not_read(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    async with serving(tmp_path / "s") as (server, _):
        with socket.socket(socket.AF_UNIX) as deaf:
            deaf.setblocking(False)
            await loop.sock_connect(deaf, os.fspath(tmp_path / "s"))
            settings = f.settings_frame([(f.INITIAL_WINDOW_SIZE, f.MAX_WINDOW)]) + f.window_update(0, 1 << 30)
            call = f.header_frames(1, request_to("/t/Large"), 0) + f.frame(f.DATA, f.END_STREAM, 1, bytes(5))
            await loop.sock_sendall(deaf, f.PREFACE + settings + call)
            async with asyncio.timeout(LONG_S):
                while not any(each.is_full for each in server.connections):  # noqa: ASYNC110 - no event reports it
                    await asyncio.sleep(0)
                (connection,) = server.connections
                connection.fail("for the test")
                assert server.connections  # it still has a file descriptor
                with pytest.raises((BrokenPipeError, ConnectionResetError)):
                    await loop.sock_sendall(deaf, bytes(10_000_000))
        assert not server.connections


@pytest.mark.parametrize("how", ["reset", "deadline", "lost"])
async def test_a_stream_that_is_not_read_ends_with_its_call(how: str) -> None:
    ended = asyncio.Event()

    async def endless(_: bytes) -> AsyncGenerator[bytes, None]:
        try:
            while True:
                yield bytes(50_000)
        finally:
            ended.set()

    connection = ServerConnection(GrpcServer({}, {"/t/Endless": endless}))
    connection.connection_made(Pipe(connection))
    timeout = encoded([("grpc-timeout", "20m")]) if how == "deadline" else b""
    call = f.header_frames(1, request_to("/t/Endless") + timeout, 0) + f.frame(f.DATA, f.END_STREAM, 1, bytes(5))
    connection.data_received(f.PREFACE + f.settings_frame([]) + call)
    (begun,) = connection.streams.values()
    gc.disable()
    try:
        for _ in range(4):
            await asyncio.sleep(0)
        assert begun.unsent
        if how == "reset":
            connection.data_received(f.rst_stream(1, f.CANCEL))
        elif how == "lost":
            connection.connection_lost(None)
        async with asyncio.timeout(LONG_S):
            await ended.wait()
    finally:
        gc.enable()
