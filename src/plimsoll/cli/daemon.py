"""Processes that `up` starts, and that end with it.

A child says on its standard output when it is ready (no sleeping, no polling), writes its log to a file, and gets a
pipe as standard input that nobody writes to: when it ends, whoever started the child has ended, and so does the child.
Each is in a process group of its own, so that Ctrl-C in a terminal reaches `up` alone, which ends them in
order.

What every long-running verb does alike: how it is told to end, how many files it may open, what it need not collect.

A daemon ends on SIGINT and SIGTERM. One that was started by another (`up` starts two) is given a pipe as
standard input and ends with it too, so that it never outlives whoever has started it, whatever becomes of them.
"""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import click

from plimsoll.errors import PlimsollError

LOG_LINES = 8


class DaemonFailedError(PlimsollError):
    """A process ended that should not have, or was never ready; the message has the end of its log."""


class DaemonProcess:
    """`plimsoll WORDS…` as a process. `log` is kept; the end of it is shown where something goes wrong."""

    def __init__(self, name: str, words: list[str], log: Path) -> None:
        self.name, self.log = name, log
        self._command = [sys.executable, "-I", "-m", "plimsoll.cli.main", *words, "--while-stdin"]
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
        """The next line of its output; ChildFailed where it ends instead."""
        assert self._process is not None and self._process.stdout is not None
        text = await self._process.stdout.readline()
        if not text:
            code = await self._process.wait()
            raise DaemonFailedError(self._story(f"did not start (exit code {code})"))
        return text.decode(errors="replace").strip()

    async def ended(self) -> NoReturn:
        """A child that ends by itself is a fault."""
        assert self._process is not None
        code = await self._process.wait()
        raise DaemonFailedError(self._story(f"ended (exit code {code})"))

    async def end(self, patience_s: float) -> bool:
        """SIGTERM, then SIGKILL; whether it ended by itself. May be called at any time, also before the start."""
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

    def _story(self, what: str) -> str:
        try:
            lines = self.log.read_text(errors="replace").splitlines()[-LOG_LINES:]
        except OSError:
            lines = []
        return "\n".join([f"the {self.name} {what}; the end of {self.log}:", *(f"  {line}" for line in lines)])


def stop_event(*, while_stdin: bool = False) -> asyncio.Event:
    """Set once the process shall end. To be called in the running loop."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    if while_stdin:
        handle = sys.stdin.fileno()
        os.set_blocking(handle, False)

        def heard() -> None:
            try:
                ended = not os.read(handle, 4096)
            except BlockingIOError:
                return
            if ended:
                loop.remove_reader(handle)
                stop.set()

        loop.add_reader(handle, heard)
    return stop


def allow_many_files() -> None:
    """Every watcher is one; the usual soft limit is there for programs that use select()."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def settle() -> None:
    """What is loaded stays: it need not be looked at again with every collection."""
    gc.collect()
    gc.freeze()


def host_and_port(text: str, option: str = "--listen") -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise click.UsageError(f"{option} {text}: must be HOST:PORT, e.g. 127.0.0.1:6443")
    return host.strip("[]") or "127.0.0.1", int(port)
