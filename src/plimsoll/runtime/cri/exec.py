"""The live streams of exec and attach, over the runtime's streaming server: Exec and Attach return its URL.

The server speaks SPDY/3.1 with the remote command protocol, version 4: one stream each for stdin, stdout, stderr, the
size of the terminal, and how it ended (a Status). It also has a WebSocket form, in which containerd before 2.0 has no
message for the end of stdin. One task reads.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import msgspec

from plimsoll.codec.spdy import (
    PROTOCOL,
    VERSION_HEADER,
    PingReceived,
    SpdyConnection,
    SpdyError,
    StreamAccepted,
    StreamData,
    StreamReset,
)
from plimsoll.runtime.interface import RuntimeCallError

V4 = "v4.channel.k8s.io"
ERROR, STDIN, STDOUT, STDERR, RESIZE = 1, 3, 5, 7, 9  # the streams of a client have odd numbers
NAMES = {ERROR: "error", STDIN: "stdin", STDOUT: "stdout", STDERR: "stderr", RESIZE: "resize"}
CONNECT_S = 10.0
CHUNK = 32 << 10
STATUS_BYTES = 64 << 10
AHEAD = 64  # pieces that are queued for a slow reader
END = b""


class ExecStream:
    """Use `connect`. Read both stdout and stderr: an unread one blocks the other."""

    def __init__(self, call: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._call, self._reader, self._writer = call, reader, writer
        self._spdy = SpdyConnection()
        self._open: set[int] = set()  # streams that this side may still send on
        self._output = {stream: asyncio.Queue[bytes](AHEAD) for stream in (STDOUT, STDERR)}
        self._status = b""
        self._exit: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[None] | None = None

    @classmethod
    async def connect(cls, call: str, url: str, *, stdin: bool, tty: bool) -> ExecStream:
        """`call`: what returned the URL, for messages."""
        where = urlsplit(url)
        if where.scheme != "http":
            raise RuntimeCallError(
                call, f"{url}: only plain HTTP on this machine is supported; disable TLS of the stream server"
            )
        writer = None
        try:
            async with asyncio.timeout(CONNECT_S):
                reader, writer = await asyncio.open_connection(where.hostname or "127.0.0.1", where.port or 80)
                stream = cls(call, reader, writer)
                await stream._upgrade(where.netloc, f"{where.path}?{where.query}" if where.query else where.path)
                await stream._begin((ERROR, *((STDIN,) if stdin else ()), STDOUT, RESIZE if tty else STDERR))
        except (OSError, EOFError, SpdyError, asyncio.LimitOverrunError) as error:
            if writer is not None:
                writer.close()
            raise RuntimeCallError(call, f"{url}: {error}") from error
        stream._task = asyncio.create_task(stream._read(), name=f"{call} stream")
        return stream

    async def write(self, data: bytes) -> None:
        for at in range(0, len(data), CHUNK):
            await self._send(STDIN, data[at : at + CHUNK])

    async def close_stdin(self) -> None:
        await self._send(STDIN, b"", is_last=True)

    async def resize(self, columns: int, rows: int) -> None:
        await self._send(RESIZE, msgspec.json.encode({"Width": columns, "Height": rows}))

    def stdout(self) -> AsyncIterator[bytes]:
        return self._chunks(STDOUT)

    def stderr(self) -> AsyncIterator[bytes]:
        return self._chunks(STDERR)

    async def wait(self) -> int:
        return await asyncio.shield(self._exit)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        self._fail("closed before the command ended")
        for queue in self._output.values():
            if not queue.full():
                queue.put_nowait(END)
        self._writer.close()

    async def _upgrade(self, host: str, target: str) -> None:
        lines = (
            f"POST {target} HTTP/1.1", f"Host: {host}", "Connection: Upgrade", f"Upgrade: {PROTOCOL}",
            f"{VERSION_HEADER}: {V4}", "Content-Length: 0", "", "",
        )  # fmt: skip
        self._writer.write("\r\n".join(lines).encode("latin-1"))
        await self._writer.drain()
        status = (await self._reader.readuntil(b"\r\n\r\n")).split(b"\r\n", 1)[0]
        if b" 101 " not in status + b" ":
            raise ConnectionError(f"the stream server answered {status.decode('latin-1')}")

    async def _begin(self, streams: tuple[int, ...]) -> None:
        """Open the streams and wait until all are accepted: before that, the server may not know what data is for."""
        self._open = {stream for stream in streams if stream in (STDIN, RESIZE)}
        self._writer.write(b"".join(self._spdy.open(stream, {"streamType": NAMES[stream]}) for stream in streams))
        missing = set(streams)
        while missing:
            data = await self._reader.read(CHUNK)
            if not data:
                raise ConnectionError("the stream server closed the connection")
            for event in self._spdy.receive(data):
                if isinstance(event, StreamAccepted):
                    missing.discard(event.stream)
                else:
                    await self._take(event)

    async def _chunks(self, stream: int) -> AsyncIterator[bytes]:
        while data := await self._output[stream].get():
            yield data
        yield END

    async def _read(self) -> None:
        """Read until the server is done, then end every stream."""
        why = "the stream broke"
        try:
            while not self._exit.done():
                data = await self._reader.read(CHUNK)
                if not data:
                    why = "the stream broke: the runtime closed the connection"
                    if self._status:  # containerd closes without ending the stream
                        self._ended()
                    break
                for event in self._spdy.receive(data):
                    await self._take(event)
        except (OSError, SpdyError) as error:
            why = f"the stream broke: {error}"
        finally:
            self._fail(why)
            for queue in self._output.values():
                await queue.put(END)

    async def _take(self, event: object) -> None:
        match event:
            case StreamData(stream=stream, data=data) if stream in self._output and data:
                await self._output[stream].put(data)
            case StreamData(stream=1, data=data, is_last=is_last):
                self._status += data[: STATUS_BYTES - len(self._status)]
                if is_last:
                    self._ended()
            case StreamReset(stream=stream):
                self._open.discard(stream)
            case PingReceived(number=number):
                self._writer.write(self._spdy.pong(number))

    def _ended(self) -> None:
        """By the Status; a server that sends none is content."""
        if self._exit.done():
            return
        try:
            self._exit.set_result(exit_code(msgspec.json.decode(self._status or b'{"status":"Success"}')))
        except RuntimeCallError as error:
            self._fail(error.reason)
        except msgspec.DecodeError:
            self._fail(self._status.decode(errors="replace"))

    def _fail(self, why: str) -> None:
        """Only while there is no exit code. `wait` may never be called."""
        if not self._exit.done():
            self._exit.set_exception(RuntimeCallError(self._call, why))
        self._exit.exception()

    async def _send(self, stream: int, data: bytes, *, is_last: bool = False) -> None:
        """On a stream that was not asked for, or that has ended, nothing is sent."""
        if stream not in self._open:
            return
        if is_last:
            self._open.discard(stream)
        try:
            self._writer.write(self._spdy.data(stream, data, is_last=is_last))
            await self._writer.drain()
        except OSError as error:
            raise RuntimeCallError(self._call, f"the stream has ended: {error}") from error


def exit_code(status: dict[str, Any]) -> int:
    """From the Status that ends an exec: the code is listed among the causes of a NonZeroExitCode."""
    if status.get("status") == "Success":
        return 0
    if status.get("reason") == "NonZeroExitCode":
        for cause in (status.get("details") or {}).get("causes") or ():
            if cause.get("reason") == "ExitCode" and str(cause.get("message", "")).isdecimal():
                return int(cause["message"])
    raise RuntimeCallError("Exec", str(status.get("message") or status))
