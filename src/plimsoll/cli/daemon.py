"""Long-running verbs, and the processes that `up` starts for them.

A daemon ends on SIGINT and SIGTERM, and when its terminal is closed (SIGHUP). A child of `up` prints a line on its
standard output when it is ready, and writes its log to a file. Its standard input is a pipe that is never written: it
is closed when the parent ends for whatever reason, and the child ends with it (`--while-stdin`). Each child has its own
process group, so that Ctrl-C in a terminal reaches only `up`, which ends the children in order.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import resource
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from plimsoll.cli import console
from plimsoll.errors import PlimsollError

LOG_LINES = 8


class DaemonFailedError(PlimsollError):
    """A child ended unexpectedly or did not become ready; the message contains the end of its log."""


class DaemonProcess:
    """`plimsoll ARGUMENTS…` as a process. Error messages contain the end of `log`."""

    def __init__(self, name: str, arguments: list[str], log: Path) -> None:
        self.name, self.log = name, log
        self._command = [sys.executable, "-I", "-m", "plimsoll", *arguments, "--while-stdin"]
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        handle = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=handle,
                process_group=0,
            )
        finally:
            os.close(handle)

    async def line(self) -> str:
        """The next line of its output. Raises DaemonFailedError if it ends instead."""
        assert self._process is not None and self._process.stdout is not None
        text = await self._process.stdout.readline()
        if not text:
            code = await self._process.wait()
            raise DaemonFailedError(self._message(f"did not start (exit code {code})"))
        return text.decode(errors="replace").strip()

    async def ended(self) -> NoReturn:
        """Waits until the child ends by itself, which is an error."""
        assert self._process is not None
        code = await self._process.wait()
        raise DaemonFailedError(self._message(f"ended (exit code {code})"))

    async def end(self, patience_s: float) -> bool:
        """Send SIGTERM, and SIGKILL after `patience_s`; whether SIGTERM was enough. Can be called before the start."""
        process = self._process
        if process is None or process.returncode is not None:
            return True
        with suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(patience_s):
                await process.wait()
            return True
        except TimeoutError:
            await self.kill()
            return False

    async def kill(self) -> None:
        process = self._process
        if process is not None and process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()

    def _message(self, problem: str) -> str:
        try:
            lines = self.log.read_text(errors="replace").splitlines()[-LOG_LINES:]
        except OSError:
            lines = []
        texts = list(dict.fromkeys(map(_log_text, lines)))
        return "\n".join([f"the {self.name} {problem}; the end of {self.log}:", *(f"  {line}" for line in texts)])


def _log_text(line: str) -> str:
    """The message of a log entry without its JSON; any other line unchanged."""
    try:
        entry = json.loads(line)
    except ValueError:
        return line
    return str(entry["message"]).split("\n", 1)[0] if isinstance(entry, dict) and "message" in entry else line


def stop_signals() -> list[signal.Signals]:
    """What ends a long-running verb. `nohup` ignores SIGHUP, which stays so."""
    closed_terminal = [] if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else [signal.SIGHUP]
    return [signal.SIGINT, signal.SIGTERM, *closed_terminal]


def notify(text: str) -> None:
    """Print to stderr, which may be a terminal that was closed."""
    with suppress(OSError):
        console.echo(text, err=True)


def stop_event(*, while_stdin: bool = False) -> asyncio.Event:
    """An event that is set when the process must end. Call it in the running loop."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in stop_signals():
        loop.add_signal_handler(number, stop.set)
    if while_stdin:
        handle = sys.stdin.fileno()
        os.set_blocking(handle, False)

        def on_readable() -> None:
            try:
                ended = not os.read(handle, 4096)
            except BlockingIOError:
                return
            if ended:
                loop.remove_reader(handle)
                stop.set()

        loop.add_reader(handle, on_readable)
    return stop


def allow_many_files() -> None:
    """Raise the soft limit to the hard one: every watch is an open file."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def freeze_garbage() -> None:
    """Exclude what is loaded now from later garbage collections: it stays."""
    gc.collect()
    gc.freeze()


def host_and_port(text: str, option: str = "--listen") -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise console.UsageError(f"{option} {text}: must be HOST:PORT, for example 127.0.0.1:6443")
    return host.strip("[]") or "127.0.0.1", int(port)
