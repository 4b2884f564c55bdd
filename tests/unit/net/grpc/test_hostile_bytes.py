"""Peers that send anything at any time: no error but those of the protocol, no call hangs, memory is bounded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from plimsoll.net.grpc import frames as f
from plimsoll.net.grpc.client import GrpcStream
from plimsoll.net.grpc.client_connection import ClientCall, ClientConnection
from plimsoll.net.grpc.hpack import encoded
from plimsoll.net.grpc.server import GrpcServer
from plimsoll.net.grpc.server_connection import OK_HEADERS, ServerConnection
from plimsoll.net.grpc.status import GrpcError
from tests.unit.net.grpc.pipe import Pipe
from tests.unit.net.grpc.test_http2 import raw

METHOD = "/a.B/C"
LONG_S = 60.0
MOST_BYTES = 3_000_000  # of the answers below, and some

Step = tuple[str, Any]


def headers(*fields: tuple[str, str]) -> bytes:
    return encoded(fields)


RESPONSE = encoded(OK_HEADERS)
BLOCKS = [
    RESPONSE,
    headers((":status", "100")),
    headers((":status", "200"), ("grpc-status", "0")),
    headers((":status", "503")),
    headers(("grpc-status", "0")),
    headers(("grpc-status", "9" * 5_000), ("grpc-message", "%")),
    headers(("grpc-status", "5"), ("grpc-message", "%zz%e4")),
    headers((":method", "POST"), (":scheme", "http"), (":path", METHOD), ("content-type", "application/grpc")),
    headers((":method", "POST"), (":scheme", "http"), (":path", "/a.B/D"), ("content-type", "application/grpc"), ("grpc-timeout", "0n")),
    headers((":method", "GET"), (":scheme", "http"), (":path", METHOD)),
    b"\x3f\xe1\x1f" + RESPONSE,
    b"\x40\1a\1b\xbe",
    b"\xbe\xbf",
    b"\xff\xff\xff\xff\xff\xff\xff\x7f",
]  # fmt: skip
SETTING_KEYS = st.integers(0, 7)
SETTING_VALUES = st.sampled_from([0, 1, 2, 3, 16_384, 65_535, 2**31 - 1, 2**31, 2**32 - 1])
PAYLOADS = {
    f.DATA: st.one_of(
        st.sampled_from([b"", b"\0\0\0\0\1x", b"\1\0\0\0\1x", b"\0\0\0\0\0" * 9, b"\7\xff\xff\xff\xff", bytes(16_384)]),
        st.binary(max_size=30),
    ),
    f.HEADERS: st.one_of(st.sampled_from(BLOCKS), st.binary(max_size=30)),
    f.CONTINUATION: st.one_of(st.sampled_from(BLOCKS), st.binary(max_size=30)),
    f.SETTINGS: st.lists(st.tuples(SETTING_KEYS, SETTING_VALUES), max_size=3).map(
        lambda pairs: b"".join(key.to_bytes(2) + value.to_bytes(4) for key, value in pairs)
    ),
    f.WINDOW_UPDATE: st.sampled_from([0, 1, 5, 16_384, 100_000, 2**31 - 1]).map(lambda size: size.to_bytes(4)),
    f.RST_STREAM: st.sampled_from([0, 5, 7, 8, 99]).map(lambda code: code.to_bytes(4)),
    f.GOAWAY: st.tuples(st.sampled_from([0, 1, 3, 2**31 - 1]), st.integers(0, 13)).map(
        lambda pair: pair[0].to_bytes(4) + pair[1].to_bytes(4) + b"why"
    ),
    f.PING: st.just(b"12345678"),
}
ON_CONNECTION = (f.SETTINGS, f.GOAWAY, f.PING)


def frame_of(kind: int, streams: list[int], flags: list[int]) -> st.SearchStrategy[bytes]:
    stream = st.just(0) if kind in ON_CONNECTION else st.sampled_from(streams)
    return st.builds(raw, st.just(kind), st.sampled_from(flags), stream, PAYLOADS.get(kind, st.binary(max_size=9)))


OPEN = [1, 1, 3, 3, 5, 7]
PLAUSIBLE = [
    frame_of(f.HEADERS, OPEN, [f.END_HEADERS]),
    frame_of(f.HEADERS, OPEN, [f.END_HEADERS | f.END_STREAM]),
    st.builds(raw, st.just(f.HEADERS), st.just(f.END_HEADERS), st.sampled_from(OPEN), st.sampled_from(BLOCKS[:8])),
    frame_of(f.DATA, OPEN, [0, 0, f.END_STREAM]),
    frame_of(f.WINDOW_UPDATE, [0, *OPEN], [0]),
    frame_of(f.RST_STREAM, OPEN, [0]),
    frame_of(f.SETTINGS, [0], [0]),
    frame_of(f.GOAWAY, [0], [0]),
    frame_of(f.PING, [0], [0, 1]),
]
ANY = st.integers(0, 11).flatmap(
    lambda kind: frame_of(kind, [0, *OPEN, 2, 9], [0, 1, 4, 5, 8, 12, 0x2D])
)  # many end the connection
FRAME = st.one_of(*PLAUSIBLE, *PLAUSIBLE, ANY)
DAMAGED = st.tuples(FRAME, st.integers(0, 30), st.binary(max_size=3)).map(
    lambda part: part[0][: part[1]] + part[2] + part[0][part[1] + len(part[2]) :]
)
PARTS = st.lists(FRAME, min_size=1, max_size=4).map(b"".join)
RECEIVED = st.tuples(st.just("received"), st.one_of(*[PARTS] * 9, DAMAGED))


def steps(*ours: tuple[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[list[Step]]:
    own = [st.tuples(st.just(name), values) for name, values in ours]
    return st.lists(st.one_of(RECEIVED, RECEIVED, *own), max_size=25)


FILLS = st.lists(st.booleans(), max_size=10)
SIZES = st.sampled_from([0, 20_000, 100_000, 600_000])


def in_loop(run: Callable[[list[dict[str, Any]]], Any]) -> None:
    """An error that reaches the event loop counts."""

    async def watched() -> None:
        errors: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
        await run(errors)
        assert not errors

    asyncio.run(watched())


async def rounds(count: int = 4) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@given(
    steps(
        ("unary", SIZES),
        ("stream", SIZES),
        ("cancel", st.integers(0, 9)),
        ("emptied", st.none()),
        ("round", st.none()),
    ),
    FILLS,
)
def test_a_server_that_sends_anything(todo: list[Step], fills: list[bool]) -> None:
    async def run(_: list[dict[str, Any]]) -> None:
        connection = ClientConnection()
        pipe = Pipe(connection, fills)
        connection.connection_made(pipe)
        if not fills or fills[0]:
            connection.data_received(f.settings_frame([(f.MAX_CONCURRENT_STREAMS, 3)]))
        tasks: list[asyncio.Task[None]] = []
        calls: list[ClientCall] = []

        async def unary(size: int) -> None:
            try:
                call = connection.unary(METHOD, bytes(size), LONG_S, left_s=LONG_S)
            except GrpcError:
                return
            calls.append(call)
            try:
                await call.answer
            finally:
                call.leave()

        async def stream(size: int) -> None:
            try:
                call = connection.open("/a.B/D")
            except GrpcError:
                return
            calls.append(call)
            found = GrpcStream(call)
            tasks.append(asyncio.create_task(found.send(bytes(size))))
            try:
                while await found.received() is not None:
                    pass
            except GrpcError:
                pass
            finally:
                found.leave()

        for name, value in [("unary", 0), ("round", None), *todo]:
            if name == "unary":
                tasks.append(asyncio.create_task(unary(value)))
            elif name == "stream":
                tasks.append(asyncio.create_task(stream(value)))
            elif name == "cancel" and value < len(tasks):
                tasks[value].cancel()
            elif name == "emptied":
                assert len(pipe.emptied()) < MOST_BYTES
            elif name == "round":
                await rounds()
            elif name == "received" and not pipe.is_closed:
                connection.data_received(value)
        for call in calls:
            if not connection.lost:
                is_open = connection.streams.get(call.id) is call
                assert is_open == (bool(call.id) and not call.is_closed)
                assert not (call.is_closed and call.unsent)
        connection.connection_lost(None)
        await rounds()
        assert asyncio.all_tasks() == {asyncio.current_task()}, "something hangs"
        assert all(task.cancelled() or task.exception() is None for task in tasks)
        timers: list[asyncio.TimerHandle] = asyncio.get_running_loop()._scheduled  # type: ignore[attr-defined]
        assert all(timer.cancelled() for timer in timers)

    in_loop(run)


@given(steps(("emptied", st.none()), ("round", st.none())), FILLS, st.booleans())
def test_a_client_that_sends_anything(todo: list[Step], fills: list[bool], has_begun: bool) -> None:
    async def echo(request: bytes) -> bytes:
        await asyncio.sleep(0)
        return request + bytes(300_000)

    async def count(request: bytes) -> AsyncGenerator[bytes, None]:
        for _ in range(3):
            yield bytes(100_000)

    async def run(_: list[dict[str, Any]]) -> None:
        server = GrpcServer({METHOD: echo}, {"/a.B/D": count}, max_message=20_000)
        connection = ServerConnection(server)
        pipe = Pipe(connection, fills)
        connection.connection_made(pipe)
        if has_begun:
            connection.data_received(f.PREFACE + f.settings_frame([]))
        for name, value in todo:
            if name == "emptied":
                assert len(pipe.emptied()) < MOST_BYTES
            elif name == "round":
                await rounds(2)
            elif not pipe.is_closed and pipe.is_reading():
                connection.data_received(value)
        for number, call in connection.streams.items():
            assert call.id == number and not call.is_closed
            assert len(call.body) <= 20_000 + 5 + f.FRAME_BYTES
        connection.connection_lost(None)
        await rounds()
        assert not server.connections
        assert asyncio.all_tasks() == {asyncio.current_task()}

    in_loop(run)
