"""`kubectl exec` and `attach` on the embedded runtime: the streams of a process that the supervisor has started.

Those of an exec are the pipes or the terminal of that process itself: no other process copies data in between. Input of
an attached container, too, goes straight into its stdin or terminal; its output is copied by the supervisor, which also
writes it to the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import struct
import termios
from collections.abc import AsyncIterator, Awaitable, Callable

_CHUNK_BYTES = 32 << 10
_END_OF_FILE = b"\x04"

Ending = asyncio.Future[tuple[int, bool]]


class StreamEnd:
    """One end of a pipe or terminal. Closing it wakes its waiters, because its number may soon be another file's."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self.fd = fd
        self._closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def close(self) -> None:
        if self.fd >= 0:
            loop = asyncio.get_running_loop()
            loop.remove_reader(self.fd)
            loop.remove_writer(self.fd)
            os.close(self.fd)
            self.fd = -1
            self._closed.set_result(None)

    async def chunks(self, ending: Ending) -> AsyncIterator[bytes]:
        """The data until the end. A background process may keep a pipe open longer than the command runs: then the end
        of the command ends the data."""
        while self.fd >= 0:
            over = ending.done()
            try:
                data = os.read(self.fd, _CHUNK_BYTES)
            except BlockingIOError:
                if over:
                    return
                await self._until(ending, asyncio.get_running_loop().add_reader)
                continue
            except OSError:  # EIO: the terminal's other side is closed
                return
            if not data:
                return
            yield data

    async def collected(self, limit_bytes: int, ending: Ending) -> bytes:
        """Read everything and return the first bytes, so that the process does not stall on a full pipe."""
        output = bytearray()
        async for data in self.chunks(ending):
            output += data[: max(0, limit_bytes - len(output))]
        return bytes(output)

    async def write(self, data: bytes, ending: Ending) -> bool:
        """False where the reader is gone."""
        left = memoryview(data)
        while left:
            if self.fd < 0 or ending.done():
                return False
            try:
                left = left[os.write(self.fd, left) :]
            except BlockingIOError:
                await self._until(ending, asyncio.get_running_loop().add_writer)
            except OSError:
                return False
        return True

    async def _until(self, ending: Ending, watch: Callable[[int, Callable[[], None]], None]) -> None:
        """Wait until the fd is ready, the process has ended, or this end was closed."""
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()

        def wake(*_: object) -> None:
            ready.set()

        watch(self.fd, ready.set)
        ending.add_done_callback(wake)
        self._closed.add_done_callback(wake)
        try:
            await ready.wait()
        finally:
            ending.remove_done_callback(wake)
            self._closed.remove_done_callback(wake)
            if self.fd >= 0:
                (loop.remove_reader if watch == loop.add_reader else loop.remove_writer)(self.fd)


class PipeSession:
    """Without a terminal: three pipes."""

    def __init__(
        self, stdin: int, stdout: int, stderr: int, ending: Ending, kill: Callable[[], Awaitable[None]]
    ) -> None:
        self._stdin, self._stdout, self._stderr = StreamEnd(stdin), StreamEnd(stdout), StreamEnd(stderr)
        self._ending, self._kill = ending, kill

    async def write(self, data: bytes) -> None:
        """Data for a process that has closed its stdin is dropped."""
        if not await self._stdin.write(data, self._ending):
            self._stdin.close()

    async def close_stdin(self) -> None:
        self._stdin.close()

    async def resize(self, columns: int, rows: int) -> None:
        """A pipe has no size."""

    def stdout(self) -> AsyncIterator[bytes]:
        return self._stdout.chunks(self._ending)

    def stderr(self) -> AsyncIterator[bytes]:
        return self._stderr.chunks(self._ending)

    async def wait(self) -> int:
        return (await asyncio.shield(self._ending))[0]

    async def close(self) -> None:
        await self._kill()
        for end in (self._stdin, self._stdout, self._stderr):
            end.close()


class TerminalSession:
    """With a terminal: one fd for everything; stderr is empty."""

    def __init__(self, terminal: int, ending: Ending, kill: Callable[[], Awaitable[None]], *, stdin: bool) -> None:
        self._terminal, self._takes_input = StreamEnd(terminal), stdin
        self._ending, self._kill = ending, kill

    async def write(self, data: bytes) -> None:
        if self._takes_input:
            await self._terminal.write(data, self._ending)

    async def close_stdin(self) -> None:
        """The end of a terminal's input is its end-of-file character."""
        if self._takes_input:
            self._takes_input = False
            await self._terminal.write(_END_OF_FILE, self._ending)

    async def resize(self, columns: int, rows: int) -> None:
        if self._terminal.fd >= 0:
            _set_size(self._terminal.fd, columns, rows)

    def stdout(self) -> AsyncIterator[bytes]:
        return self._terminal.chunks(self._ending)

    async def stderr(self) -> AsyncIterator[bytes]:
        return
        yield b""

    async def wait(self) -> int:
        return (await asyncio.shield(self._ending))[0]

    async def close(self) -> None:
        await self._kill()
        self._terminal.close()


class AttachSession:
    """`inward`: the container's terminal, or where its stdin is written; −1 where this client has neither.
    `stdin_once`: no one else can write there, so the container's stdin ends with this client."""

    def __init__(
        self, inward: int, stdout: int, stderr: int, *, stdin: bool, stdin_once: bool = False, tty: bool = False
    ) -> None:
        self._inward = StreamEnd(inward) if inward >= 0 else None
        self._stdout, self._stderr = StreamEnd(stdout), StreamEnd(stderr)
        self._takes_input, self._stdin_once, self._tty = stdin, stdin_once, tty
        self._closed: Ending = asyncio.get_running_loop().create_future()

    async def write(self, data: bytes) -> None:
        if self._inward is not None and self._takes_input:
            self._takes_input = await self._inward.write(data, self._closed)

    async def close_stdin(self) -> None:
        """A terminal stays open for the next client, and so does a stdin that may have many: then the session ends."""
        if not self._takes_input or self._tty:
            return
        self._takes_input = False
        if self._inward is not None:
            self._inward.close()
        if not self._stdin_once:
            self._end_output()

    def _end_output(self) -> None:
        self._stdout.close()
        self._stderr.close()

    async def resize(self, columns: int, rows: int) -> None:
        if self._inward is not None and self._tty and self._inward.fd >= 0:
            _set_size(self._inward.fd, columns, rows)

    def stdout(self) -> AsyncIterator[bytes]:
        return self._stdout.chunks(self._closed)

    def stderr(self) -> AsyncIterator[bytes]:
        return self._stderr.chunks(self._closed)

    async def wait(self) -> int:
        """The container's exit code is in its status."""
        return 0

    async def close(self) -> None:
        if not self._closed.done():
            self._closed.set_result((0, False))
        self._end_output()
        if self._inward is not None:
            self._inward.close()


def _set_size(terminal: int, columns: int, rows: int) -> None:
    size = struct.pack("4H", min(max(rows, 0), 0xFFFF), min(max(columns, 0), 0xFFFF), 0, 0)
    with contextlib.suppress(OSError):
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, size)
