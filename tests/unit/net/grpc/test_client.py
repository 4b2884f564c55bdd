"""The gRPC client against a server that behaves, and against servers that do not."""

from __future__ import annotations

import asyncio
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from plimsoll.net.grpc.client import GrpcClient
from plimsoll.net.grpc.status import GrpcError, GrpcUnavailableError
from tests.unit.net.grpc.grpc_server import GoAwayError, Handler, HangUpError, RawAnswerError, Server, answering

OK_HEADERS = [(":status", "200"), ("content-type", "application/grpc")]
METHOD = "/some.Service/Do"


@pytest.fixture
def at() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="plimsoll-grpc-") as directory:  # a socket's path must be short
        yield Path(directory) / "s"


async def echo(server: Server, request: bytes) -> bytes:
    return request


@pytest.mark.parametrize("size", [0, 1, 16_379, 16_384, 65_535, 65_536, 1_000_000, 5_000_000])
async def test_messages_of_any_size_go_both_ways(at: Path, size: int) -> None:
    async with answering(at, Do=echo) as server:
        client = GrpcClient(server.socket_path)
        message = bytes(range(256)) * (size // 256) + bytes(size % 256)
        assert await client.unary(METHOD, message, 30) == message
        client.close()


async def test_a_server_with_little_room_gets_it_in_parts(at: Path) -> None:
    async with Server(at, window=100) as server:
        server.handlers["Do"] = echo
        client = GrpcClient(server.socket_path)
        message = bytes(10_000)
        assert await asyncio.gather(*(client.unary(METHOD, message, 30) for _ in range(5))) == [message] * 5
        client.close()


async def test_what_is_sent(at: Path) -> None:
    async with answering(at, Do=echo) as server:
        client = GrpcClient(server.socket_path)
        await client.unary(METHOD, b"", 1.5)
        sent = server.headers
        assert (sent[":path"], sent["te"], sent["content-type"]) == (METHOD, "trailers", "application/grpc")
        assert (sent["grpc-timeout"], sent[":authority"]) == ("1500m", "localhost")
        client.close()


async def test_many_calls_at_once_get_their_own_answers(at: Path) -> None:
    async def later(server: Server, request: bytes) -> bytes:
        await asyncio.sleep(0.05 - int(request) / 1000)
        return request

    async with answering(at, Do=later) as server:
        client = GrpcClient(server.socket_path)
        requests = [str(number).encode() for number in range(50)]
        assert await asyncio.gather(*(client.unary(METHOD, each, 30) for each in requests)) == requests
        client.close()


def failing(error: Exception) -> Handler:
    async def fail(server: Server, request: bytes) -> bytes:
        raise error

    return fail


WRONG = [
    pytest.param(GrpcError(5, "no such: 100 %25 \n sure"), 5, "no such: 100 % \n sure", id="a-status"),
    pytest.param(HangUpError(), 14, "the connection ", id="hangs-up"),
    pytest.param(GoAwayError(), 14, "the server is going away", id="goes-away"),
    pytest.param(
        RawAnswerError(OK_HEADERS, trailers=[("grpc-status", "0")]), 13, "an answer without a message", id="no-message"
    ),
    pytest.param(RawAnswerError([(":status", "302")], b"there"), 2, "HTTP status 302", id="no-grpc"),
    pytest.param(RawAnswerError([(":status", "400")], b"bad"), 13, "HTTP status 400", id="http-400"),
    pytest.param(RawAnswerError([(":status", "401")], b"who"), 16, "HTTP status 401", id="http-401"),
    pytest.param(RawAnswerError([(":status", "403")], b"no"), 7, "HTTP status 403", id="http-403"),
    pytest.param(RawAnswerError([(":status", "404")], b"not found"), 12, "HTTP status 404", id="http-404"),
    pytest.param(RawAnswerError([(":status", "503")], b"later"), 14, "HTTP status 503", id="http-503"),
    pytest.param(RawAnswerError(OK_HEADERS, b"\1\0\0\0\1x", trailers=[]), 13, "compressed flag set", id="compressed"),
    pytest.param(RawAnswerError(OK_HEADERS, b"\7\0\0\0\1x", trailers=[]), 13, "payload format 7", id="flags"),
    pytest.param(
        RawAnswerError(OK_HEADERS, b"\0\xff\xff\xff\xffx", trailers=[]),
        8,
        "grpc: received message larger than max (4294967295 vs. 67108864)",
        id="too-large",
    ),
    pytest.param(
        RawAnswerError(OK_HEADERS, b"\0\0\0\0\5x", trailers=[("grpc-status", "0")]), 13, "without a message", id="cut"
    ),
    pytest.param(RawAnswerError(OK_HEADERS, b"\0\0\0\0\1x", trailers=[("grpc-status", "8")]), 8, "", id="fails-late"),
    pytest.param(RawAnswerError(OK_HEADERS, b"\0\0\0\0\1x", trailers=[("grpc-status", "x")]), 2, "", id="no-number"),
]


@pytest.mark.parametrize(("wrong", "code", "text"), WRONG)
async def test_wrong_answers_are_errors_and_the_next_call_works(
    at: Path, wrong: Exception, code: int, text: str
) -> None:
    async with answering(at, Do=failing(wrong), Echo=echo) as server:
        client = GrpcClient(server.socket_path)
        with pytest.raises(GrpcError) as failed:
            await client.unary(METHOD, b"", 10)
        assert failed.value.code == code
        assert text in failed.value.message
        assert not isinstance(failed.value, GrpcUnavailableError)
        assert await client.unary("/some.Service/Echo", b"still", 10) == b"still"
        client.close()


async def test_no_http_at_all(at: Path) -> None:
    is_closed = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 10)
        await reader.read()
        writer.close()
        is_closed.set()

    server = await asyncio.start_unix_server(talk, at)
    client = GrpcClient(str(at))
    with pytest.raises(GrpcError, match=r"no HTTP/2|no answer within"):
        await client.unary(METHOD, b"", 0.2)
    client.close()
    await is_closed.wait()
    server.close()


async def test_a_deadline_ends_the_call_on_both_sides(at: Path) -> None:
    arrived = asyncio.Queue[None]()

    async def never(server: Server, request: bytes) -> bytes:
        arrived.put_nowait(None)
        await asyncio.Event().wait()
        raise AssertionError

    async with answering(at, Do=never, Echo=echo) as server:
        client = GrpcClient(server.socket_path)
        with pytest.raises(GrpcError) as late:
            await client.unary(METHOD, b"", 0.05)
        assert late.value.code == 4
        await arrived.get()
        assert await client.unary("/some.Service/Echo", b"", 10) == b""  # so the cancellation has arrived
        assert server.cancelled == ["Do"]
        task = asyncio.create_task(client.unary(METHOD, b"", 10))
        await arrived.get()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert await client.unary("/some.Service/Echo", b"", 10) == b""
        assert server.cancelled == ["Do", "Do"]
        client.close()


async def test_no_server_listens(at: Path) -> None:
    client = GrpcClient(str(at))
    with pytest.raises(GrpcUnavailableError, match="No such file"):
        await client.unary(METHOD, b"", 10)
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(at))
        with pytest.raises(GrpcUnavailableError, match="refused"):
            await client.unary(METHOD, b"", 10)


async def test_a_new_connection_after_the_old_one(at: Path) -> None:
    async with answering(at, Do=echo) as server:
        client = GrpcClient(server.socket_path)
        for _ in range(3):
            assert await client.unary(METHOD, b"x", 10) == b"x"
            await server.stop()
            with pytest.raises(GrpcError):
                await client.unary(METHOD, b"x", 10)
            await server.start()
        client.close()


async def test_a_stream_of_answers(at: Path) -> None:
    async def several(server: Server, request: bytes) -> list[bytes]:
        return [b"a", b"", b"c" * 100_000]

    async with answering(at, Do=several, No=failing(GrpcError(12, "not here"))) as server:
        client = GrpcClient(server.socket_path)
        assert [each async for each in client.stream(METHOD, b"")] == [b"a", b"", b"c" * 100_000]
        with pytest.raises(GrpcError, match="Unimplemented desc = not here"):
            async for _ in client.stream("/some.Service/No", b""):
                pass
        client.close()
