"""The channels of exec, between a played process and a played WebSocket; test_server.py has real ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
import pytest

from plimsoll.node.server.exec import ExecOptions, exec_options, run_exec
from plimsoll.node.server.http import HttpError
from plimsoll.node.server.idle import IdleClock
from plimsoll.runtime.interface import ExecSession, RuntimeCallError
from tests.unit.node.played_session import PlayedSession

Piece = tuple[bytes, bool]


class PlayedSocket:
    """`say` plays the client; None from it means that it has left."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.closed_with: int | None = None
        self._said: asyncio.Queue[Piece | None] = asyncio.Queue()
        self._gone = asyncio.Event()
        self.broken = False

    def say(self, *messages: bytes) -> None:
        for each in messages:
            self._said.put_nowait((each, True))

    def say_in_pieces(self, *pieces: bytes) -> None:
        for each in pieces[:-1]:
            self._said.put_nowait((each, False))
        self._said.put_nowait((pieces[-1], True))

    def leave(self) -> None:
        self._said.put_nowait(None)

    def break_off(self) -> None:
        self.broken = True
        self._gone.set()

    async def pieces(self) -> AsyncIterator[Piece]:
        while (piece := await self._said.get()) is not None:
            yield piece

    async def send(self, data: bytes) -> None:
        if self.broken:
            raise ConnectionResetError
        self.sent.append(data)

    async def close(self, code: int = 1000) -> None:
        self.closed_with = code

    async def gone(self) -> None:
        await self._gone.wait()

    def output(self, channel: int) -> bytes:
        return b"".join(each[1:] for each in self.sent if each[0] == channel)

    @property
    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.json.decode(self.output(3))
        return found


def _attach(session: PlayedSession) -> Callable[[], Awaitable[ExecSession]]:
    async def attach() -> ExecSession:
        return session

    return attach


async def _until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not true():  # noqa: ASYNC110  there is no event to wait for
            await asyncio.sleep(0)


ALL = ExecOptions(("sh",), stdin=True)


async def test_streams_are_forwarded_and_success_is_reported() -> None:
    socket, session = PlayedSocket(), PlayedSession()
    running = asyncio.create_task(run_exec(socket, ALL, _attach(session)))
    socket.say(b"\0in", b"\0")
    socket.say_in_pieces(b"\0a ", b"long ", b"one")
    socket.say(b"\xff\x00", b"\0too late", b"\x04{}", b"")
    await session.put(b"out 1")
    await session.put(b"err", stderr=True)
    await session.put(b"out 2")
    await _until(session.stdin_closed.is_set)
    await session.end(0)
    await running
    assert socket.sent[0] == b"\x01"  # it stands
    assert (socket.output(1), socket.output(2)) == (b"out 1out 2", b"err")
    assert session.got == b"ina long one"
    assert socket.status == {"metadata": {}, "status": "Success"}
    assert socket.closed_with == 1000
    assert session.closed.is_set()
    assert socket.sent[-1][0] == 3  # after everything else


async def test_an_exit_code_is_reported() -> None:
    socket, session = PlayedSocket(), PlayedSession()
    running = asyncio.create_task(run_exec(socket, ALL, _attach(session)))
    await session.end(3)
    await running
    assert (socket.status["status"], socket.status["reason"]) == ("Failure", "NonZeroExitCode")
    assert socket.status["details"] == {"causes": [{"reason": "ExitCode", "message": "3"}]}


@pytest.mark.parametrize("how", ["leave", "break_off"])
async def test_a_client_that_leaves_ends_the_session(how: str) -> None:
    socket, session = PlayedSocket(), PlayedSession()
    running = asyncio.create_task(run_exec(socket, ALL, _attach(session)))
    await session.put(b"something")
    await _until(lambda: bool(socket.output(1)))
    getattr(socket, how)()
    async with asyncio.timeout(60):
        await running
    assert session.closed.is_set()
    assert not socket.output(3)


async def test_a_client_that_breaks_off_while_it_is_written_to_ends_the_session() -> None:
    socket, session = PlayedSocket(), PlayedSession()
    running = asyncio.create_task(run_exec(socket, ALL, _attach(session)))
    await _until(lambda: bool(socket.sent))
    socket.broken = True
    await session.put(b"something")
    async with asyncio.timeout(60):
        await running
    assert session.closed.is_set()


async def test_a_window_has_a_size_only_with_a_terminal() -> None:
    sizes = [
        b'\x04{"Width":80,"Height":24}',
        b"\x04nonsense",
        b'\x04{"Width":-1,"Height":0}',
        b'\x04{"Width":132,"Height":43}',
    ]
    for tty, expected in ((True, [(80, 24), (132, 43)]), (False, [])):
        socket, session = PlayedSocket(), PlayedSession()
        options = ExecOptions(("sh",), stdin=True, stderr=False, tty=tty)
        running = asyncio.create_task(run_exec(socket, options, _attach(session)))
        socket.say(*sizes, b"\0x")
        await _until(lambda session=session: session.got == b"x")  # type: ignore[misc]
        await session.end(0)
        await running
        assert session.sizes == expected


async def test_stdin_that_was_not_asked_for_is_not_passed_on() -> None:
    socket, session = PlayedSocket(), PlayedSession()
    running = asyncio.create_task(run_exec(socket, ExecOptions(("sh",)), _attach(session)))
    socket.say(b"\0x", b"\xff\x00")
    await session.put(b"o")
    await session.end(0)
    await running
    assert session.got == b""
    assert not session.stdin_closed.is_set()


async def test_output_that_was_not_asked_for_does_not_hold_the_process_up() -> None:
    socket, session = PlayedSocket(), PlayedSession()
    running = asyncio.create_task(run_exec(socket, ExecOptions(("sh",), stdout=False), _attach(session)))
    for _ in range(10):
        await session.put(b"not read")
    await session.put(b"e", stderr=True)
    await session.end(0)
    await running
    assert (socket.sent[0], socket.output(1), socket.output(2)) == (b"\x02", b"", b"e")


async def test_a_process_that_reads_no_more_is_no_reason_to_end() -> None:
    socket, session = PlayedSocket(), PlayedSession()
    session.error = RuntimeCallError("write", "closed")
    running = asyncio.create_task(run_exec(socket, ALL, _attach(session)))
    socket.say(b"\0x", b"\0y")
    await session.put(b"still here")
    await session.end(0)
    await running
    assert socket.output(1) == b"still here"


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (HttpError(404, 'container not found ("c")'), 'unable to upgrade connection: container not found ("c")'),
        (RuntimeCallError("attach", "no such file"), "Internal error occurred: error executing command in container: attach: no such file"),
    ],
)  # fmt: skip
async def test_errors_are_sent_on_the_error_channel(error: Exception, message: str) -> None:
    async def attach() -> ExecSession:
        raise error

    socket = PlayedSocket()
    await run_exec(socket, ALL, attach)
    assert (socket.status["status"], socket.status["message"]) == ("Failure", message)
    assert socket.closed_with == 1000


@pytest.mark.parametrize(
    ("query", "options"),
    [
        pytest.param({"command": ["ls", "-l"], "stdout": ["true"], "stderr": ["true"]}, ExecOptions(("ls", "-l")), id="plain"),
        pytest.param({"command": ["sh"], "stdin": ["1"], "stdout": ["1"], "stderr": ["1"], "tty": ["1"]}, ExecOptions(("sh",), True, True, False, True), id="terminal"),
        pytest.param({"command": ["sh"], "input": ["1"], "output": ["1"]}, ExecOptions(("sh",), True, True, False), id="a kubelet's names"),
    ],
)  # fmt: skip
def test_options(query: dict[str, list[str]], options: ExecOptions) -> None:
    assert exec_options(query) == options


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ({"stdout": ["true"]}, "you must specify at least 1 command for the container"),
        ({"command": ["ls"]}, "you must specify at least 1 of stdin, stdout, stderr"),
        ({"command": ["a\0b"], "stdout": ["1"]}, "the command is too long or contains a NUL byte"),
    ],
)
def test_options_that_make_no_sense(query: dict[str, list[str]], sentence: str) -> None:
    with pytest.raises(HttpError) as refused:
        exec_options(query)
    assert (refused.value.status, str(refused.value)) == (400, sentence)


async def test_a_session_without_traffic_ends() -> None:
    socket, session = PlayedSocket(), PlayedSession()
    async with asyncio.timeout(60):
        await run_exec(socket, ALL, _attach(session), IdleClock(0.05))
    assert session.closed.is_set() and not socket.output(3)


async def test_an_attached_session_names_what_failed() -> None:
    async def attach() -> ExecSession:
        raise RuntimeCallError("attach", "no such container")

    socket = PlayedSocket()
    await run_exec(socket, ExecOptions(stdin=True), attach)
    assert socket.status["message"] == (
        "Internal error occurred: error attaching to container: attach: no such container"
    )
