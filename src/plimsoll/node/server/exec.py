"""`kubectl exec` and `attach` between a WebSocket and a process in a container: channel.k8s.io, v4 and v5 of it.

The first byte of every message is its channel: 0 stdin, 1 stdout, 2 stderr, 3 the result (a Status as JSON), 4 the size
of the terminal; v5 adds 255, which closes the channel that its second byte names. Without a version, a failure is only
its text, and a success is not reported. Nothing is buffered: a slow reader
slows down the writer. When the client disconnects, a process of exec is killed; a container only loses its reader.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, Protocol

import msgspec

from plimsoll.aio import cancel_all
from plimsoll.errors import PlimsollError
from plimsoll.node.server.http import HttpError, HttpRequest
from plimsoll.node.server.idle import IdleClock
from plimsoll.node.server.logs import Query, flag
from plimsoll.runtime.interface import ExecSession

V5, V4, V1 = "v5.channel.k8s.io", "v4.channel.k8s.io", "channel.k8s.io"
SUBPROTOCOLS: Final = (V5, V4, V1)
STDIN, STDOUT, STDERR, ERROR, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
SHORT_BYTES = 4096  # of a message on another channel than stdin
MAX_COMMAND_BYTES = 128 << 10  # the kernel's limit for one argument

log = logging.getLogger(__name__)

Attach = Callable[[], Awaitable[ExecSession]]


class ChannelSocket(Protocol):
    """The part of a WebSocket that is needed here."""

    def pieces(self) -> AsyncIterator[tuple[bytes, bool]]: ...
    async def send(self, data: bytes) -> None: ...
    async def close(self, code: int = 1000) -> None: ...
    async def gone(self) -> None: ...


class ExecOptions(msgspec.Struct, frozen=True):
    """Without a command: attach to the container's own process."""

    command: tuple[str, ...] = ()
    stdin: bool = False
    stdout: bool = True
    stderr: bool = True
    tty: bool = False

    @property
    def doing(self) -> str:
        """For messages."""
        return "executing command in container" if self.command else "attaching to container"


class _Size(msgspec.Struct, frozen=True, rename="pascal"):
    width: int
    height: int


def exec_options(query: Query) -> ExecOptions:
    """Raises HttpError(400) with the kubelet's messages."""
    command = tuple(query.get("command") or ())
    if not command:
        raise HttpError(400, "you must specify at least 1 command for the container")
    if any("\0" in word for word in command) or sum(map(len, command)) > MAX_COMMAND_BYTES:
        raise HttpError(400, "the command is too long or contains a NUL byte")
    return msgspec.structs.replace(attach_options(query), command=command)


def attach_options(query: Query) -> ExecOptions:
    """With a terminal there is no separate stderr."""
    stdin, stdout, stderr, tty = (_is_set(query, name) for name in ("stdin", "stdout", "stderr", "tty"))
    if not (stdin or stdout or stderr):
        raise HttpError(400, "you must specify at least 1 of stdin, stdout, stderr")
    return ExecOptions((), stdin, stdout, stderr and not tty, tty)


def _is_set(query: Query, name: str) -> bool:
    """By the API's parameter names and by the kubelet's."""
    return flag(query, name) or flag(query, {"stdin": "input", "stdout": "output", "stderr": "error"}.get(name, name))


async def run_exec(
    socket: ChannelSocket,
    options: ExecOptions,
    attach: Attach,
    idle: IdleClock | None = None,
    *,
    has_status: bool = True,
) -> None:
    """Run the whole session. Errors are sent on the error channel, since kubectl shows no other.

    `has_status`: the subprotocol has results as Status. Like the kubelet, it starts with an empty message to confirm
    the connection.
    """
    first = STDOUT if options.stdout else STDERR if options.stderr else ERROR
    with suppress(OSError):
        await socket.send(bytes([first]))
        try:
            session = await attach()
        except HttpError as error:
            await _finish(socket, failure(f"unable to upgrade connection: {error}"), has_status)
            return
        except PlimsollError as error:
            await _finish(socket, failure(f"Internal error occurred: error {options.doing}: {error}"), has_status)
            return
        try:
            status = await _bridge(socket, options, session, idle or IdleClock())
            if status is not None:
                await _finish(socket, status, has_status)
        finally:
            await session.close()


async def _finish(socket: ChannelSocket, status: dict[str, Any], has_status: bool) -> None:
    if has_status:
        await socket.send(bytes([ERROR]) + msgspec.json.encode(status))
    elif status["status"] != "Success":
        await socket.send(bytes([ERROR]) + status["message"].encode())
    await socket.close(1000)


async def _bridge(
    socket: ChannelSocket, options: ExecOptions, session: ExecSession, idle: IdleClock
) -> dict[str, Any] | None:
    """The result; None where the client disconnected before, or nothing happened for too long."""
    result = asyncio.create_task(_result(socket, options, session, idle))
    disconnects = [
        asyncio.create_task(_forward_input(socket, options, session, idle)),
        asyncio.create_task(socket.gone()),
        asyncio.create_task(idle.expired()),
    ]
    try:
        await asyncio.wait((result, *disconnects), return_when=asyncio.FIRST_COMPLETED)
        if result.done():
            return result.result()
        for disconnect in disconnects:
            if disconnect.done():
                disconnect.result()
        return None
    finally:
        await cancel_all((result, *disconnects))


async def _result(socket: ChannelSocket, options: ExecOptions, session: ExecSession, idle: IdleClock) -> dict[str, Any]:
    wanted = STDOUT if options.stdout else None
    outputs = [asyncio.create_task(_forward_output(socket, wanted, session.stdout(), idle))]
    if not options.tty:
        wanted = STDERR if options.stderr else None
        outputs.append(asyncio.create_task(_forward_output(socket, wanted, session.stderr(), idle)))
    try:
        await asyncio.gather(*outputs)
        code = await session.wait()
    except PlimsollError as error:
        return failure(f"Internal error occurred: error {options.doing}: {error}")
    finally:
        await cancel_all(outputs)
    return exit_status(code)


async def _forward_output(
    socket: ChannelSocket, channel: int | None, chunks: AsyncIterator[bytes], idle: IdleClock
) -> None:
    """Until the end. Output that was not requested is read and dropped, so that the process does not block."""
    prefix = b"" if channel is None else bytes([channel])
    async for chunk in chunks:
        if not chunk:
            return
        idle.touch()
        if channel is not None:
            await socket.send(prefix + chunk)


async def _forward_input(socket: ChannelSocket, options: ExecOptions, session: ExecSession, idle: IdleClock) -> None:
    """Until the client disconnects."""
    channel: int | None = None
    short = b""
    stdin_open = options.stdin
    async for data, is_last in socket.pieces():
        idle.touch()
        if channel is None and data:
            channel, data = data[0], data[1:]
        if channel == STDIN:
            if stdin_open and data:
                stdin_open = await _write(session, data)
        elif channel is not None:
            short += data[: SHORT_BYTES - len(short)]
        if not is_last:
            continue
        if channel == RESIZE and options.tty:
            await _resize(session, short)
        elif channel == CLOSE and short[:1] == bytes([STDIN]) and stdin_open:
            stdin_open = False
            await session.close_stdin()
        channel, short = None, b""


async def _write(session: ExecSession, data: bytes) -> bool:
    """Whether the process still reads."""
    try:
        await session.write(data)
    except (OSError, PlimsollError) as error:
        log.debug("stdin of an exec: %s", error)
        return False
    return True


async def _resize(session: ExecSession, text: bytes) -> None:
    try:
        size = msgspec.json.decode(text, type=_Size)
    except msgspec.DecodeError:
        return
    if 0 < size.width < 65536 and 0 < size.height < 65536:
        await session.resize(size.width, size.height)


def exit_status(code: int) -> dict[str, Any]:
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: {code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }


def failure(message: str) -> dict[str, Any]:
    return {"metadata": {}, "status": "Failure", "message": message, "reason": "InternalError", "code": 500}


def offered_subprotocols(request: HttpRequest) -> list[str]:
    values = [value for name, value in request.headers if name == b"sec-websocket-protocol"]
    return [name.strip() for value in values for name in value.decode("latin-1").split(",") if name.strip()]


def handshake_problem(request: HttpRequest) -> str:
    """Why this is not a WebSocket request; empty where it is one."""
    upgrade = request.header(b"upgrade").lower()
    if not request.wants_upgrade or not upgrade:
        return "Upgrade request required"
    if request.method != "GET" or upgrade != b"websocket" or request.header(b"sec-websocket-version") != b"13":
        return "streams need a GET request for a WebSocket of version 13"
    if not request.header(b"sec-websocket-key") or not request.header(b"host"):
        return "the WebSocket request lacks Sec-WebSocket-Key or Host"
    return ""
