"""Calls of one connection: how many are sent at once, what a server has not done, and when the connection is used up."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import pytest

from plimsoll.net.grpc import frames as f
from plimsoll.net.grpc.client import GrpcClient, GrpcStream
from plimsoll.net.grpc.client_connection import ClientConnection, ForeignConnection
from plimsoll.net.grpc.frames import FrameReader
from plimsoll.net.grpc.hpack import encoded
from plimsoll.net.grpc.status import (
    DEADLINE_EXCEEDED,
    INTERNAL,
    UNAVAILABLE,
    UNKNOWN,
    GrpcError,
    GrpcUnavailableError,
)
from tests.unit.net.grpc.grpc_server import Server, answering
from tests.unit.net.grpc.pipe import Pipe

METHOD = "/some.Service/Do"
OK, DONE = encoded([(":status", "200")]), encoded([("grpc-status", "0")])


def connected(max_streams: int) -> tuple[ClientConnection, Pipe]:
    connection = ClientConnection()
    pipe = Pipe(connection)
    connection.connection_made(pipe)
    pipe.emptied()
    connection.data_received(f.settings_frame([(f.MAX_CONCURRENT_STREAMS, max_streams)]))
    return connection, pipe


def answer(number: int, message: bytes) -> bytes:
    data = f.frame(f.DATA, 0, number, b"\0" + len(message).to_bytes(4) + message)
    return f.header_frames(number, OK, 0) + data + f.header_frames(number, DONE, f.END_STREAM)


async def begun(pipe: Pipe) -> list[int]:
    """The streams of new HEADERS."""
    await asyncio.sleep(0)
    frames = FrameReader().frames(pipe.emptied())
    return [number for kind, _, number, _ in frames if kind == f.HEADERS]


async def test_more_calls_than_the_server_allows_wait() -> None:
    connection, pipe = connected(2)
    calls = [connection.unary(METHOD, b"", 5.0) for _ in range(4)]
    assert await begun(pipe) == [1, 3]
    connection.data_received(answer(3, b"three"))
    assert await calls[1].answer == b"three"
    assert await begun(pipe) == [5]
    calls[0].leave()  # resets it, which makes room, too
    assert await begun(pipe) == [7]
    connection.data_received(f.settings_frame([(f.MAX_CONCURRENT_STREAMS, 3)]))
    connection.unary(METHOD, b"", 5.0)
    assert await begun(pipe) == [9]


async def test_a_deadline_includes_the_wait() -> None:
    connection, pipe = connected(0)
    call = connection.unary(METHOD, b"", 0.01, left_s=0.01)
    late = await call.answer
    assert isinstance(late, GrpcError) and late.code == DEADLINE_EXCEEDED
    call.leave()
    connection.data_received(f.settings_frame([(f.MAX_CONCURRENT_STREAMS, 9)]))
    assert await begun(pipe) == []


async def test_what_was_not_sent_is_known_when_the_connection_breaks() -> None:
    connection, pipe = connected(1)
    sent, waiting = (connection.unary(METHOD, b"", 5.0) for _ in range(2))
    connection.connection_lost(None)
    ends = [await sent.answer, await waiting.answer]
    assert [isinstance(each, GrpcUnavailableError) for each in ends] == [False, True]
    assert all(isinstance(each, GrpcError) and each.code == UNAVAILABLE for each in ends)
    with pytest.raises(GrpcUnavailableError):
        connection.unary(METHOD, b"", 5.0)
    assert pipe.is_closed


async def test_a_server_that_goes_away_answers_what_it_has_begun() -> None:
    """RFC 9113, section 6.8. Nothing was done of later streams, nor of calls that wait."""
    connection, pipe = connected(3)
    calls = [connection.unary(METHOD, b"", 5.0) for _ in range(4)]
    connection.data_received(f.goaway(f.MAX_STREAM, f.NO_ERROR, ""))  # first, as grpc-go does
    assert not connection.is_usable
    with pytest.raises(GrpcUnavailableError, match="the server is going away"):
        connection.unary(METHOD, b"", 5.0)
    connection.data_received(f.goaway(3, f.NO_ERROR, "") + answer(3, b"three"))
    assert await calls[1].answer == b"three"
    for call in calls[2:]:
        assert isinstance(await call.answer, GrpcUnavailableError)
    assert not pipe.is_closed
    connection.data_received(answer(1, b"one"))
    assert await calls[0].answer == b"one"
    assert connection.lost and pipe.is_closed
    assert await begun(pipe) == [1, 3, 5]


async def test_a_server_that_goes_away_and_breaks() -> None:
    connection, _ = connected(9)
    call = connection.unary(METHOD, b"", 5.0)
    connection.data_received(f.goaway(1, f.ENHANCE_YOUR_CALM, "too_many_pings"))
    connection.connection_lost(None)
    end = await call.answer
    assert isinstance(end, GrpcError) and not isinstance(end, GrpcUnavailableError)
    assert (end.code, end.message) == (UNAVAILABLE, "the server is going away: too_many_pings (error 11)")


async def test_streams_of_a_server_that_goes_away_end_at_once() -> None:
    """They may have no end of their own."""
    connection, pipe = connected(9)
    stream = GrpcStream(connection.open(METHOD))
    call = connection.unary(METHOD, b"", 5.0)
    connection.data_received(f.header_frames(1, OK, 0) + f.frame(f.DATA, 0, 1, b"\0\0\0\0\1x"))
    pipe.emptied()
    connection.data_received(f.goaway(f.MAX_STREAM, f.NO_ERROR, ""))
    assert await stream.received() == b"x"
    with pytest.raises(GrpcError, match="the server is going away") as caught:
        await stream.received()
    assert caught.value.code == UNAVAILABLE
    assert [*FrameReader().frames(pipe.emptied())] == [(f.RST_STREAM, 0, 1, f.CANCEL.to_bytes(4))]
    assert not connection.lost
    connection.data_received(answer(3, b"y"))
    assert await call.answer == b"y"
    assert connection.lost


async def test_a_server_without_calls_goes_away() -> None:
    connection, pipe = connected(9)
    connection.data_received(f.goaway(0, f.NO_ERROR, ""))
    assert connection.lost and pipe.is_closed


async def test_new_calls_get_a_new_connection_while_an_old_one_ends() -> None:
    """Also those of a client that is left for another endpoint meanwhile."""
    writers: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()
    ends: asyncio.Queue[bytes] = asyncio.Queue()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(f.settings_frame([]))
        writers.put_nowait(writer)
        ends.put_nowait(await reader.read())

    with tempfile.TemporaryDirectory(prefix="plimsoll-grpc-") as directory:
        server = await asyncio.start_unix_server(talk, Path(directory) / "s")
        client = GrpcClient(str(Path(directory) / "s"))
        async with asyncio.timeout(20):
            stream = await client.open(METHOD)
            old = asyncio.create_task(client.unary(METHOD, b"", 10))
            first = await writers.get()
            first.write(f.goaway(f.MAX_STREAM, f.NO_ERROR, ""))
            with pytest.raises(GrpcError, match="going away"):
                await stream.received()
            new = asyncio.create_task(client.unary(METHOD, b"", 10))
            (await writers.get()).write(answer(1, b"new"))
            assert await new == b"new"
            client.leave("another endpoint is used")
            await ends.get()
            assert not old.done()
            first.write(answer(3, b"old"))
            assert await old == b"old"
            await ends.get()
            assert client.connections == 2
        client.close()
        server.close()


RESETS = [
    pytest.param(f.REFUSED_STREAM, UNAVAILABLE, True, id="8.7 refused: nothing was done"),
    pytest.param(f.CANCEL, 1, False, id="cancelled"),
    pytest.param(2, UNAVAILABLE, False, id="an internal error"),
]


@pytest.mark.parametrize(("code", "status", "is_undone"), RESETS)
async def test_resets(code: int, status: int, is_undone: bool) -> None:
    connection, _ = connected(9)
    call = connection.unary(METHOD, b"", 5.0)
    connection.data_received(f.rst_stream(1, code))
    end = await call.answer
    assert isinstance(end, GrpcError)
    assert (end.code, isinstance(end, GrpcUnavailableError)) == (status, is_undone)


MALFORMED = [
    pytest.param(f.frame(f.DATA, 0, 1, bytes(5)), "data before headers", id="8.1 DATA first"),
    pytest.param(f.header_frames(1, DONE, f.END_STREAM), "trailers in a wrong place", id="8.1 trailers first"),
    pytest.param(f.header_frames(1, OK, 0) * 2, "response in a wrong place", id="8.1 two responses"),
    pytest.param(f.header_frames(1, OK, 0) + f.header_frames(1, DONE, 0), "trailers in a wrong place", id="8.1 no end"),
    pytest.param(
        f.header_frames(1, encoded([(":status", "100")]), f.END_STREAM), "HTTP status 100", id="8.1 nothing but 100"
    ),
]


@pytest.mark.parametrize(("data", "text"), MALFORMED)
async def test_malformed_answers(data: bytes, text: str) -> None:
    connection, _ = connected(9)
    call = connection.unary(METHOD, b"", 5.0)
    connection.data_received(data)
    end = await call.answer
    assert isinstance(end, GrpcError) and text in end.message
    assert not connection.lost


async def test_an_interim_answer_and_two_messages() -> None:
    connection, _ = connected(9)
    calls = [connection.unary(METHOD, b"", 5.0) for _ in range(2)]
    connection.data_received(f.header_frames(1, encoded([(":status", "103")]), 0) + answer(1, b"x"))
    two = f.frame(f.DATA, 0, 3, b"\0\0\0\0\1a") * 2
    connection.data_received(f.header_frames(3, OK, 0) + two)
    assert await calls[0].answer == b"x"
    end = await calls[1].answer
    assert isinstance(end, GrpcError) and end.code == INTERNAL


async def test_calls_of_one_iteration_share_one_write() -> None:
    connection, pipe = connected(99)
    writes: list[int] = []
    write = pipe.write

    def counted(data: bytes) -> None:
        writes.append(len(data))
        write(data)

    pipe.write = counted  # type: ignore[method-assign]
    for _ in range(10):
        connection.unary(METHOD, b"x", 5.0)
    assert await begun(pipe) == [*range(1, 20, 2)]
    assert len(writes) == 1


async def test_a_new_connection_when_stream_ids_are_used_up() -> None:
    waits = asyncio.Event()

    async def wait(server: Server, request: bytes) -> bytes:
        if request == b"long":
            await waits.wait()
        return request

    with tempfile.TemporaryDirectory(prefix="plimsoll-grpc-") as directory:
        async with answering(Path(directory) / "s", Do=wait) as server:
            client = GrpcClient(server.socket_path)
            assert await client.unary(METHOD, b"1", 10) == b"1"
            first = client._connection
            assert first is not None
            first._newest = f.MAX_STREAM - 4
            long = asyncio.create_task(client.unary(METHOD, b"long", 10))
            assert await client.unary(METHOD, b"2", 10) == b"2"
            assert client.connections == 1
            assert await client.unary(METHOD, b"3", 10) == b"3"
            assert client.connections == 2
            assert not first.lost
            waits.set()
            assert await long == b"long"
            assert first.lost
            client.close()


STATUSES = [
    pytest.param("00", 0, id="zero"),
    pytest.param("16", 16, id="a number"),
    pytest.param("9" * 5_000, UNKNOWN, id="more digits than Python reads"),
    pytest.param("-1", UNKNOWN, id="negative"),
    pytest.param("٣", UNKNOWN, id="other digits"),
    pytest.param("", UNKNOWN, id="empty"),
]


@pytest.mark.parametrize(("text", "code"), STATUSES)
async def test_the_number_of_a_status(text: str, code: int) -> None:
    connection, _ = connected(9)
    call = connection.unary(METHOD, b"", 5.0)
    status = f.header_frames(1, encoded([("grpc-status", text)]), f.END_STREAM)
    connection.data_received(f.header_frames(1, OK, 0) + f.frame(f.DATA, 0, 1, bytes(5)) + status)
    end = await call.answer
    assert (end.code if isinstance(end, GrpcError) else 0) == code


async def test_a_status_in_headers_that_do_not_end_the_call_is_none() -> None:
    """Only Trailers-Only has it there."""
    connection, _ = connected(9)
    call = connection.unary(METHOD, b"", 5.0)
    connection.data_received(f.header_frames(1, encoded([(":status", "200"), ("grpc-status", "5")]), 0))
    connection.data_received(f.frame(f.DATA, 0, 1, b"\0\0\0\0\1x") + f.header_frames(1, DONE, f.END_STREAM))
    assert await call.answer == b"x"


async def test_a_call_that_was_answered_early_makes_room_while_others_have_data() -> None:
    """The end of the first one begins the waiting one, and both have data that waited for the window."""
    connection, pipe = connected(2)
    requests = [bytes(65_535 + 100), bytes(10), bytes(10)]
    calls = [connection.unary(METHOD, each, 5.0) for each in requests]
    assert await begun(pipe) == [1, 3]
    connection.data_received(f.header_frames(1, encoded([(":status", "200"), ("grpc-status", "8")]), f.END_STREAM))
    connection.data_received(f.window_update(1, 1_000) + f.window_update(0, 1_000))
    await asyncio.sleep(0)
    ends: dict[int, list[int]] = {}
    for kind, flags, number, payload in FrameReader().frames(pipe.emptied()):
        if kind == f.DATA:
            ends.setdefault(number, []).append(len(payload) * (flags & f.END_STREAM))
    assert ends == {1: [105], 3: [15], 5: [15]}
    connection.data_received(answer(3, b"three") + answer(5, b"five"))
    assert [await call.answer for call in calls[1:]] == [b"three", b"five"]


async def test_a_sender_whose_call_has_not_begun_ends_with_it() -> None:
    connection, _ = connected(0)
    stream = GrpcStream(connection.open(METHOD))
    sending = asyncio.create_task(stream.send(b"x"))
    await asyncio.sleep(0)
    stream.leave()
    async with asyncio.timeout(5):
        await sending


async def test_calls_to_a_server_that_does_not_read_cost_nothing_after_their_deadline() -> None:
    connection, pipe = connected(f.MAX_STREAM)
    pipe.fill()
    for _ in range(1_000):
        call = connection.unary(METHOD, b"x", 0.01, left_s=0.0)
        end = await call.answer
        assert isinstance(end, GrpcError) and end.code == DEADLINE_EXCEEDED
        call.leave()
    assert not connection.output
    call = connection.unary(METHOD, b"x", 5.0)
    pipe.emptied()
    assert await begun(pipe) == [1]
    connection.data_received(answer(1, b"y"))
    assert await call.answer == b"y"


async def test_a_connection_without_ids_ends_after_the_calls_that_wait() -> None:
    connection, pipe = connected(f.MAX_STREAM)
    pipe.fill()
    call = connection.unary(METHOD, b"x", 5.0)
    connection.retire()
    pipe.emptied()
    assert await begun(pipe) == [1]
    connection.data_received(answer(1, b"y"))
    assert await call.answer == b"y"
    assert connection.lost


FLOODS = [
    pytest.param(f.header_frames(1, encoded([(":status", "103"), ("a", "b" * 1_000)]), 0), id="interim answers"),
    pytest.param(f.frame(f.DATA, 0, 1), id="empty DATA"),
    pytest.param(f.frame(f.DATA, f.PADDED, 1, bytes((255,)) + bytes(255)), id="padding"),
    pytest.param(f.frame(f.PING, f.ACK, 0, bytes(8)), id="answers to no PING"),
    pytest.param(f.frame(99, 0, 0, bytes(10_000)), id="unknown frames"),
    pytest.param(f.window_update(0, 1), id="windows"),
]


@pytest.mark.parametrize("frames", FLOODS)
async def test_a_foreign_server_cannot_keep_us_busy(frames: bytes) -> None:
    connection = ForeignConnection("a")
    pipe = Pipe(connection)
    connection.connection_made(pipe)
    call = connection.unary(METHOD, b"", 5.0, left_s=5.0)
    connection.data_received(f.settings_frame([]))
    if frames[3] == f.DATA:
        connection.data_received(f.header_frames(1, OK, 0))
    count = (1 << 18) // len(frames) - 10
    connection.data_received(frames * count)
    assert not connection.lost
    connection.data_received(frames * 11)
    end = await call.answer
    assert isinstance(end, GrpcError) and "more than 262144 bytes that are not of a message" in end.message
    assert pipe.is_closed


async def test_a_foreign_server_may_answer_with_4_mib_in_small_parts() -> None:
    connection = ForeignConnection("a")
    connection.connection_made(Pipe(connection))
    call = connection.unary(METHOD, b"", 5.0, left_s=5.0)
    message = bytes(4 << 20)
    framed = b"\0" + len(message).to_bytes(4) + message
    parts = [f.frame(f.DATA, 0, 1, framed[at : at + 200]) for at in range(0, len(framed), 200)]
    connection.data_received(f.settings_frame([]) + f.header_frames(1, OK, 0))
    for part in parts:
        connection.data_received(part)
    connection.data_received(f.header_frames(1, DONE, f.END_STREAM))
    assert await call.answer == message
