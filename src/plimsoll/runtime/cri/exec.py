"""A process beside a container with live streams, over the runtime's streaming server (Exec gives the URL).

The server speaks WebSocket with the remote command protocol: the first byte of every message is a channel, 0 stdin,
1 stdout, 2 stderr, 3 how it ended (a Status), 4 the terminal's size. Version 5 can say that stdin has ended, version 4
(containerd before 2.0) cannot: there a command that reads stdin to its end does not end before the session is closed.
One task reads.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import msgspec

from plimsoll.net.websocket import CHUNK, WebSocket
from plimsoll.runtime.interface import RuntimeCallError

V5, V4 = "v5.channel.k8s.io", "v4.channel.k8s.io"
STDIN, STDOUT, STDERR, ENDED, SIZE, CLOSE = 0, 1, 2, 3, 4, 255
AHEAD = 64  # messages that are queued for a slow reader
END = b""


class ExecStream:
    """Use `connect`. Read both stdout and stderr: an unread one blocks the other."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket, self.version = socket, socket.subprotocol
        self._output = {channel: asyncio.Queue[bytes](AHEAD) for channel in (STDOUT, STDERR)}
        self._exit: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._read(), name="exec stream")

    @classmethod
    async def connect(cls, url: str) -> ExecStream:
        where = urlsplit(url)
        if where.scheme != "http":
            raise RuntimeCallError(
                "Exec", f"{url}: only plain HTTP on this machine is supported; disable TLS of the stream server"
            )
        target = f"{where.path}?{where.query}" if where.query else where.path
        try:
            socket = await WebSocket.connect(
                where.hostname or "127.0.0.1", where.port or 80, target, subprotocols=(V5, V4)
            )
        except OSError as error:
            raise RuntimeCallError("Exec", f"{url}: {error}") from error
        return cls(socket)

    async def write(self, data: bytes) -> None:
        for at in range(0, len(data), CHUNK):
            await self._send(STDIN, data[at : at + CHUNK])

    async def close_stdin(self) -> None:
        if self.version == V5:
            await self._send(CLOSE, bytes((STDIN,)))

    async def resize(self, columns: int, rows: int) -> None:
        await self._send(SIZE, msgspec.json.encode({"Width": columns, "Height": rows}))

    def stdout(self) -> AsyncIterator[bytes]:
        return self._chunks(STDOUT)

    def stderr(self) -> AsyncIterator[bytes]:
        return self._chunks(STDERR)

    async def wait(self) -> int:
        return await asyncio.shield(self._exit)

    async def close(self) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        self._fail("closed before the command ended")
        for queue in self._output.values():
            if not queue.full():
                queue.put_nowait(END)
        self._socket.abort()

    async def _chunks(self, channel: int) -> AsyncIterator[bytes]:
        while data := await self._output[channel].get():
            yield data
        yield END

    async def _read(self) -> None:
        """Read until the server is done, then end every stream."""
        why = "the stream broke"
        channel: int | None = None  # of the message whose parts arrive
        try:
            async for data, is_last in self._socket.pieces():
                if channel is None and data:
                    channel, data = data[0], data[1:]
                if channel is not None:
                    await self._take(channel, data)
                channel = None if is_last else channel
        except OSError as error:
            why = f"the stream broke: {error}"
        finally:
            self._fail(why)
            for queue in self._output.values():
                await queue.put(END)

    async def _take(self, channel: int, data: bytes) -> None:
        if channel in self._output and data:
            await self._output[channel].put(data)
        elif channel == ENDED and data and not self._exit.done():
            try:
                self._exit.set_result(exit_code(msgspec.json.decode(data)))
            except RuntimeCallError as error:
                self._fail(error.reason)
            except msgspec.DecodeError:
                self._fail(data.decode(errors="replace"))

    def _fail(self, why: str) -> None:
        """Only while there is no exit code. `wait` may never be called."""
        if not self._exit.done():
            self._exit.set_exception(RuntimeCallError("Exec", why))
        self._exit.exception()

    async def _send(self, channel: int, data: bytes) -> None:
        try:
            await self._socket.send(bytes((channel,)) + data)
        except OSError as error:
            raise RuntimeCallError("Exec", f"the stream has ended: {error}") from error


def exit_code(status: dict[str, Any]) -> int:
    """From the Status that ends an exec: the code is listed among the causes of a NonZeroExitCode."""
    if status.get("status") == "Success":
        return 0
    if status.get("reason") == "NonZeroExitCode":
        for cause in (status.get("details") or {}).get("causes") or ():
            if cause.get("reason") == "ExitCode" and str(cause.get("message", "")).isdecimal():
                return int(cause["message"])
    raise RuntimeCallError("Exec", str(status.get("message") or status))
