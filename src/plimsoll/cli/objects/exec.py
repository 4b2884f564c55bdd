"""`plimsoll exec` and `attach`: a command in a container, or its own process, over a WebSocket with channels.

The first byte of a message is its channel: 0 stdin, 1 stdout, 2 stderr, 3 the final Status, 4 the size of the terminal,
255 close of a channel. With -t the local terminal is in raw mode during the session and is restored afterwards; output
is not escaped.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import msgspec

from plimsoll.cli import console
from plimsoll.cli.client import ClusterClient, PodName, answered, cluster_options
from plimsoll.cli.terminal import inert
from plimsoll.kube.request import PODS
from plimsoll.net.websocket import WebSocket

STDIN, STDOUT, STDERR, STATUS, SIZE, CLOSED = 0, 1, 2, 3, 4, 255
SUBPROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
CHUNK = 1 << 15
BROKEN = 1


class ExecOptions(msgspec.Struct, frozen=True):
    pod: str
    container: str
    command: tuple[str, ...]
    stdin: bool
    tty: bool


async def executed(cluster: ClusterClient, options: ExecOptions) -> int:
    """Execute the command; its exit code. Without a command: attach to the container's own process."""
    query = [("command", argument) for argument in options.command]
    query += [("container", options.container)] if options.container else []
    query += [("stdin", "true")] if options.stdin else []
    query += [("stdout", "true"), *([("tty", "true")] if options.tty else [("stderr", "true")])]
    what = "exec" if options.command else "attach"
    path = f"{PODS.path(cluster.namespace, options.pod, what)}?{urlencode(query)}"
    socket = await cluster.transport.websocket(path, SUBPROTOCOLS)
    try:
        with raw_terminal() if options.tty else contextlib.nullcontext():
            if options.tty:
                _send_sizes(socket)
            reading = asyncio.create_task(_input(socket)) if options.stdin else None
            try:
                return await _output(socket)
            finally:
                if reading is not None:
                    reading.cancel()
                    await asyncio.gather(reading, return_exceptions=True)
    finally:
        await socket.close()


async def _output(socket: WebSocket) -> int:
    """Print the output until the Status arrives; its exit code."""
    streams = {STDOUT: sys.stdout.buffer, STDERR: sys.stderr.buffer}
    while (message := await socket.receive()) is not None:
        if not message:
            continue
        channel, data = message[0], message[1:]
        if channel in streams:
            streams[channel].write(data)
            streams[channel].flush()
        elif channel == STATUS:
            return exit_code(data)
    console.echo("plimsoll: the connection was closed before the command ended", err=True)
    return BROKEN


def exit_code(data: bytes) -> int:
    """The exit code in the final Status; prints the message if there is none."""
    try:
        status = msgspec.json.decode(data)
    except msgspec.DecodeError:
        status = {"status": "Failure", "message": data.decode("utf-8", "replace")}
    if status.get("status") == "Success":
        return 0
    for cause in (status.get("details") or {}).get("causes") or ():
        if cause.get("reason") == "ExitCode" and str(cause.get("message")).isdecimal():
            return int(cause["message"])
    console.echo(f"plimsoll: {inert(str(status.get('message') or 'the command could not be executed'))}", err=True)
    return BROKEN


async def _input(socket: WebSocket) -> None:
    """Send standard input until it ends: a file is read in a thread, a terminal or pipe when it is readable."""
    source = sys.stdin.buffer
    try:
        number = source.fileno()
    except OSError:  # standard input may have no file descriptor
        number = -1
    while True:
        data = await _read(number) if number >= 0 else await asyncio.to_thread(source.read, CHUNK)
        if not data:
            break
        await socket.send(bytes([STDIN]) + data)
    if socket.subprotocol == SUBPROTOCOLS[0]:
        await socket.send(bytes([CLOSED, STDIN]))


async def _read(number: int) -> bytes:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    try:
        loop.add_reader(number, _resolve, ready)
    except PermissionError:  # epoll does not support regular files
        return await asyncio.to_thread(os.read, number, CHUNK)
    try:
        await ready
    finally:
        loop.remove_reader(number)
    return os.read(number, CHUNK)


def _resolve(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


async def _send_size(socket: WebSocket, size: bytes) -> None:
    with contextlib.suppress(ConnectionError):  # the session may have ended
        await socket.send(bytes([SIZE]) + size)


def _send_sizes(socket: WebSocket) -> None:
    """Send the size of the terminal now and on every change."""
    loop, sending = asyncio.get_running_loop(), set[asyncio.Task[None]]()

    def send() -> None:
        found = os.get_terminal_size(sys.stdin.fileno())
        size = msgspec.json.encode({"Width": found.columns, "Height": found.lines})
        task = loop.create_task(_send_size(socket, size))
        sending.add(task)
        task.add_done_callback(sending.discard)

    send()
    loop.add_signal_handler(signal.SIGWINCH, send)


@contextlib.contextmanager
def raw_terminal() -> Iterator[None]:
    import termios
    import tty as terminal

    number = sys.stdin.fileno()
    before = termios.tcgetattr(number)
    try:
        terminal.setraw(number)
        yield
    finally:
        termios.tcsetattr(number, termios.TCSADRAIN, before)


@console.command("exec", allow_interspersed_args=False)
@cluster_options
@console.option("-c", "--container", default="", help="The container. [default: the only one]")
@console.option("-i", "--stdin", "with_input", is_flag=True, help="Pass standard input to the container.")
@console.option("-t", "--tty", is_flag=True, help="Allocate a terminal for the command; needs -i and a local terminal.")
@console.argument("pod", type=PodName(), metavar="POD")
@console.argument("command", nargs=-1, required=True, metavar="[--] COMMAND...")
def exec_(pod: str, command: tuple[str, ...], container: str, with_input: bool, tty: bool, **options: Any) -> int:
    """Execute a command in a container and exit with its exit code. Options precede POD.

    \b
    Examples:
      plimsoll exec web -- cat /sys/fs/cgroup/memory.max
      plimsoll exec -it web -- sh
      echo hi | plimsoll exec -i -c app web -- cat
    """
    if command[0] == "--":
        command = command[1:]
    if not command:
        raise console.UsageError("specify a command: plimsoll exec POD -- COMMAND")
    session = ExecOptions(pod, container, command, with_input, _may_be_raw(tty, with_input))
    return answered(options, lambda cluster: executed(cluster, session))


def attached_to(pod: str, *, container: str, with_input: bool, tty: bool, **options: Any) -> int:
    """`plimsoll attach POD`: the output of the container's process from now on and, with input, its input."""
    session = ExecOptions(pod, container, (), with_input, _may_be_raw(tty, with_input))
    return answered(options, lambda cluster: executed(cluster, session))


def _may_be_raw(tty: bool, with_input: bool) -> bool:
    if tty and not (sys.stdin.isatty() and with_input):
        console.echo("plimsoll: -t is ignored: it needs -i and a terminal", err=True)
        return False
    return tty
