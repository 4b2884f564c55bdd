"""Our client with h2's server, and h2's client with ours, in memory: any calls, in any pieces, give what was sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from urllib.parse import quote, unquote

import msgspec
from h2 import events
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.settings import SettingCodes
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.net.grpc.client import GrpcStream, Headers
from plimsoll.net.grpc.client_connection import ClientConnection
from plimsoll.net.grpc.server import GrpcServer
from plimsoll.net.grpc.server_connection import ServerConnection
from plimsoll.net.grpc.status import GrpcError
from tests.unit.net.grpc.pipe import Pipe

MAX_ROUNDS = 20_000
Trailers = list[tuple[str, str]]


class Oracle:
    """One side of h2: `events` of a stream, and data and trailers that go out as the windows allow."""

    def __init__(self, *, is_client: bool, window: int, max_streams: int) -> None:
        self.h2 = H2Connection(H2Configuration(client_side=is_client, header_encoding="utf-8"))
        self.h2.initiate_connection()
        settings = {SettingCodes.INITIAL_WINDOW_SIZE: window}
        if not is_client:
            settings[SettingCodes.MAX_CONCURRENT_STREAMS] = max_streams
        self.h2.update_settings(settings)
        self._unsent: dict[int, tuple[bytes, int, Trailers | None]] = {}
        self.most_streams = 0

    def send(self, stream: int, data: bytes, trailers: Trailers | None, padding: int = 0) -> None:
        self._unsent[stream] = data, padding, trailers

    def pump(self) -> bytes:
        for stream, (data, padding, trailers) in [*self._unsent.items()]:
            while data:
                room = min(self.h2.local_flow_control_window(stream), self.h2.max_outbound_frame_size) - padding - 1
                if room <= 0:
                    break
                self.h2.send_data(
                    stream, data[:room], end_stream=trailers is None and room >= len(data), pad_length=padding
                )
                data = data[room:]
            if data:
                self._unsent[stream] = data, padding, trailers
                continue
            del self._unsent[stream]
            if trailers is not None:
                self.h2.send_headers(stream, trailers, end_stream=True)
        return self.h2.data_to_send()

    def receive(self, data: bytes) -> list[events.Event]:
        found = self.h2.receive_data(data)
        for event in found:
            if isinstance(event, events.DataReceived) and event.flow_controlled_length:
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id or 0)
        self.most_streams = max(self.most_streams, self.h2.open_inbound_streams)
        return found


def framed(message: bytes) -> bytes:
    return b"\0" + len(message).to_bytes(4) + message


class Expected(msgspec.Struct, frozen=True):
    """One call and its answer."""

    is_unary: bool
    request: bytes
    headers: Headers
    answers: list[bytes]
    status: int
    message: str
    padding: int
    is_late: bool  # answered after those that are not


def pieces(data: bytes, sizes: list[int]) -> list[bytes]:
    """Of these sizes, again and again."""
    found, at, number = [], 0, 0
    while at < len(data):
        size = sizes[number % len(sizes)]
        found.append(data[at : at + size])
        at, number = at + size, number + 1
    return found


MESSAGES = st.one_of(st.binary(max_size=20), st.sampled_from([11, 16_379, 16_380, 65_530, 65_531, 100_000]).map(bytes))
TEXTS = st.sampled_from(["", "no such thing", "schön: 100 %\n", "x" * 20_000])
CALLS = st.lists(
    st.builds(
        Expected,
        is_unary=st.booleans(),
        request=MESSAGES,
        headers=st.sampled_from([(), (("token", "t"),), (("token", "u" * 300), ("a-b", "ü"))]),
        answers=st.lists(MESSAGES, max_size=3),
        status=st.sampled_from([0, 0, 5]),
        message=TEXTS,
        padding=st.sampled_from([0, 0, 1, 255]),
        is_late=st.booleans(),
    ),
    max_size=6,
)
SIZES = st.lists(st.sampled_from([1, 7, 9, 100, 16_393, 1_000_000]), min_size=1, max_size=4).filter(
    lambda sizes: max(sizes) > 50
)
WINDOWS = st.sampled_from([300, 16_384, 65_535, 1_000_000])
FILLS = st.lists(st.booleans(), max_size=10)


async def exchange(
    pipe: Pipe,
    receive: Callable[[bytes], None],
    oracle: Oracle,
    sizes: list[int],
    is_done: Callable[[], bool],
    react: Callable[[events.Event], None],
) -> None:
    for _ in range(MAX_ROUNDS):
        for _ in range(3):  # flushes, tasks, their flushes
            await asyncio.sleep(0)
        for piece in pieces(pipe.emptied(), sizes):
            for event in oracle.receive(piece):
                react(event)
        for piece in pieces(oracle.pump(), sizes):
            receive(piece)
        if is_done():
            return
    raise AssertionError("nothing moves any more")


async def outcome(connection: ClientConnection, call: Expected) -> tuple[list[bytes], int, str]:
    answers: list[bytes] = []
    try:
        if call.is_unary:
            unary = connection.unary("/a.B/C", call.request, 10.0, call.headers)
            answer = await unary.answer
            unary.leave()
            if isinstance(answer, GrpcError):
                raise answer
            return [answer], 0, ""
        stream = GrpcStream(connection.open("/a.B/D", call.headers))
        await stream.send(call.request, is_last=True)
        while (answer_or_end := await stream.received()) is not None:
            answers.append(answer_or_end)
        stream.leave()
    except GrpcError as error:
        return answers, error.code, error.message
    return answers, 0, ""


def wanted(call: Expected) -> tuple[list[bytes], int, str]:
    if call.is_unary and len(call.answers) > 1:
        return [], 13, "an answer with more than one message"
    if call.status:
        return [] if call.is_unary else call.answers, call.status, call.message
    if call.is_unary and not call.answers:
        return [], 13, "an answer without a message"
    return call.answers, 0, ""


@given(CALLS, SIZES, WINDOWS, st.integers(1, 4), FILLS)
def test_our_client_with_the_oracle(
    calls: list[Expected], sizes: list[int], window: int, max_streams: int, fills: list[bool]
) -> None:
    async def run() -> None:
        connection = ClientConnection()
        pipe, oracle = Pipe(connection, fills), Oracle(is_client=False, window=window, max_streams=max_streams)
        connection.connection_made(pipe)
        connection.data_received(oracle.h2.data_to_send())  # so that the limit of streams is known
        by_stream: dict[int, tuple[Expected, bytearray]] = {}
        late: list[int] = []
        left = [*calls]

        def answer(number: int) -> None:
            call = by_stream[number][0]
            oracle.h2.send_headers(number, [(":status", "200"), ("content-type", "application/grpc")])
            trailers = [
                ("grpc-status", str(call.status)),
                *([("grpc-message", quote(call.message))] if call.message else []),
            ]
            oracle.send(number, b"".join(map(framed, call.answers)), trailers, call.padding)

        def react(event: events.Event) -> None:
            if isinstance(event, events.RequestReceived):
                found = {str(name): str(value) for name, value in event.headers or ()}
                path = {True: "/a.B/C", False: "/a.B/D"}
                call = next(
                    each
                    for each in left
                    if path[each.is_unary] == found[":path"]
                    and dict(each.headers).items() <= found.items()
                    and len(each.headers) == ("token" in found) + ("a-b" in found)
                )
                left.remove(call)
                by_stream[event.stream_id or 0] = call, bytearray()
            elif isinstance(event, events.DataReceived):
                by_stream[event.stream_id or 0][1].extend(event.data or b"")
            elif isinstance(event, events.StreamEnded):
                number = event.stream_id or 0
                if by_stream[number][0].is_late and len(late) < max_streams - 1:
                    late.append(number)
                else:
                    answer(number)

        def is_done() -> bool:
            if late and not left:
                answer(late.pop())
            return all(task.done() for task in tasks)

        tasks = [asyncio.create_task(outcome(connection, call)) for call in calls]
        await exchange(pipe, connection.data_received, oracle, sizes, is_done, react)
        assert oracle.most_streams <= max_streams
        assert sorted(task.result() for task in tasks) == sorted(map(wanted, calls))
        for call, body in by_stream.values():
            if not (call.is_unary and len(call.answers) > 1):
                assert body == framed(call.request)

    asyncio.run(run())


@given(CALLS, SIZES, WINDOWS, FILLS)
def test_the_oracle_with_our_server(calls: list[Expected], sizes: list[int], window: int, fills: list[bool]) -> None:
    async def run() -> None:
        def call_of(request: bytes) -> Expected:
            return calls[int(request[:1].hex(), 16)]

        async def one(request: bytes) -> bytes:
            call = call_of(request)
            assert request[1:] == call.request
            if call.is_late:
                await asyncio.sleep(0)
            if call.status:
                raise GrpcError(call.status, call.message)
            return b"".join(call.answers)

        async def several(request: bytes) -> AsyncGenerator[bytes, None]:
            call = call_of(request)
            assert request[1:] == call.request
            for answer in call.answers:
                yield answer
            if call.status:
                raise GrpcError(call.status, call.message)

        connection = ServerConnection(GrpcServer({"/a.B/C": one}, {"/a.B/D": several}))
        pipe, oracle = Pipe(connection, fills), Oracle(is_client=True, window=window, max_streams=100)
        connection.connection_made(pipe)
        found: dict[int, tuple[bytearray, dict[str, str]]] = {}
        for number, call in enumerate(calls):
            stream = 2 * number + 1
            path = "/a.B/C" if call.is_unary else "/a.B/D"
            fields = [
                (":method", "POST"),
                (":scheme", "http"),
                (":path", path),
                (":authority", "h"),
                ("content-type", "application/grpc"),
            ]
            oracle.h2.send_headers(stream, [*fields, *call.headers])
            oracle.send(stream, framed(bytes((number,)) + call.request), None, call.padding)
            found[stream] = bytearray(), {}
        ended: set[int] = set()

        def react(event: events.Event) -> None:
            stream = getattr(event, "stream_id", None) or 0
            if isinstance(event, events.ResponseReceived | events.TrailersReceived):
                found[stream][1].update({str(name): str(value) for name, value in event.headers or ()})
            elif isinstance(event, events.DataReceived):
                found[stream][0].extend(event.data or b"")
            elif isinstance(event, events.StreamEnded):
                ended.add(stream)

        await exchange(pipe, connection.data_received, oracle, sizes, lambda: len(ended) == len(calls), react)
        for (body, headers), call in zip(found.values(), calls, strict=True):
            answers = (
                [] if call.is_unary and call.status else [b"".join(call.answers)] if call.is_unary else call.answers
            )
            assert body == b"".join(map(framed, answers))
            assert headers[":status"] == "200"
            assert headers["grpc-status"] == str(call.status)
            assert unquote(headers.get("grpc-message", "")) == (call.message if call.status else "")

    asyncio.run(run())
