"""A process beside a container with live streams, over the runtime's streaming server (Exec gives the URL).

The server speaks WebSocket with the remote command protocol: the first byte of every message is a channel, 0 stdin,
1 stdout, 2 stderr, 3 how it ended (a Status), 4 the terminal's size. Version 5 can say that stdin has ended, version 4
(containerd before 2.0) cannot: there a command that reads stdin to its end does not end before the session is closed.
wsproto implements the protocol; one task reads.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import msgspec
from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Ping,
    RejectConnection,
    RejectData,
    Request,
    TextMessage,
)
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from plimsoll.runtime.interface import RuntimeCallError

V5, V4 = "v5.channel.k8s.io", "v4.channel.k8s.io"
STDIN, STDOUT, STDERR, ENDED, SIZE, CLOSE = 0, 1, 2, 3, 4, 255
CONNECT_S = 10.0
CHUNK = 1 << 16
AHEAD = 64  # messages that are queued for a slow reader
END = b""


class ExecStream:
    """Use `connect`. Read both stdout and stderr: an unread one blocks the other."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._protocol = WSConnection(ConnectionType.CLIENT)
        self._output = {channel: asyncio.Queue[bytes](AHEAD) for channel in (STDOUT, STDERR)}
        self._exit: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[None] | None = None
        self.version = ""

    @classmethod
    async def connect(cls, url: str) -> ExecStream:
        where = urlsplit(url)
        host, port = where.hostname or "127.0.0.1", where.port or 80
        if where.scheme != "http":
            raise RuntimeCallError(
                "Exec", f"{url}: only plain HTTP on this machine is supported; disable TLS of the stream server"
            )
        writer = None
        try:
            async with asyncio.timeout(CONNECT_S):
                reader, writer = await asyncio.open_connection(host, port)
                found = cls(reader, writer)
                target = f"{where.path}?{where.query}" if where.query else where.path
                await found._handshake(f"{host}:{port}", target)
        except BaseException as error:
            if writer is not None:
                writer.close()
            if isinstance(error, TimeoutError):
                raise RuntimeCallError("Exec", f"{url}: no answer within {CONNECT_S:g} s") from None
            if isinstance(error, OSError | RemoteProtocolError):
                raise RuntimeCallError("Exec", f"{url}: {error}") from error
            raise
        found._task = asyncio.create_task(found._read(), name="exec stream")
        return found

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
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        if not self._exit.done():
            self._exit.set_exception(RuntimeCallError("Exec", "closed before the command ended"))
        self._exit.exception()
        for queue in self._output.values():
            if not queue.full():
                queue.put_nowait(END)
        with suppress(LocalProtocolError, OSError):
            self._writer.write(self._protocol.send(CloseConnection(1000)))
        self._writer.close()

    async def _chunks(self, channel: int) -> AsyncIterator[bytes]:
        while data := await self._output[channel].get():
            yield data
        yield END

    async def _handshake(self, host: str, target: str) -> None:
        request = Request(host=host, target=target, subprotocols=[V5, V4])
        self._writer.write(self._protocol.send(request))
        refused, body = 0, b""
        while True:
            await self._feed()
            for event in self._protocol.events():
                if isinstance(event, AcceptConnection):
                    self.version = event.subprotocol or ""
                    return
                if isinstance(event, RejectConnection):
                    refused = event.status_code
                    if event.has_body:
                        continue
                elif isinstance(event, RejectData):
                    body += event.data
                    if not event.body_finished:
                        continue
                else:
                    continue
                raise OSError(f"HTTP status {refused}: {body.decode(errors='replace').strip()}")

    async def _read(self) -> None:
        """Read until the server is done, then end every stream."""
        why = "the stream broke"
        try:
            while True:
                for event in self._protocol.events():  # some may have come with the handshake
                    if await self._take(event):
                        return
                await self._feed()
        except (OSError, RemoteProtocolError, LocalProtocolError) as error:
            why = f"the stream broke: {error}"
        finally:
            if not self._exit.done():
                self._exit.set_exception(RuntimeCallError("Exec", why))
                self._exit.exception()  # there may be no waiter
            for queue in self._output.values():
                await queue.put(END)

    async def _take(self, event: Event) -> bool:
        """True if it was the last one."""
        if isinstance(event, BytesMessage | TextMessage):
            await self._message(event)
        elif isinstance(event, Ping):
            self._writer.write(self._protocol.send(event.response()))
        elif isinstance(event, CloseConnection):
            with suppress(LocalProtocolError, OSError):
                self._writer.write(self._protocol.send(event.response()))
            return True
        return False

    _channel: int | None = None  # of a message whose next part is still to come

    async def _message(self, event: BytesMessage | TextMessage) -> None:
        data = event.data.encode() if isinstance(event, TextMessage) else bytes(event.data)
        channel = self._channel
        if channel is None:
            if not data:
                return
            channel, data = data[0], data[1:]
        self._channel = None if event.message_finished else channel
        if channel in self._output and data:
            await self._output[channel].put(data)
        elif channel == ENDED and data and not self._exit.done():
            self._ended(data)

    def _ended(self, data: bytes) -> None:
        try:
            self._exit.set_result(exit_code(msgspec.json.decode(data)))
        except (RuntimeCallError, msgspec.DecodeError) as error:
            error = (
                error
                if isinstance(error, RuntimeCallError)
                else RuntimeCallError("Exec", data.decode(errors="replace"))
            )
            self._exit.set_exception(error)
            self._exit.exception()

    async def _send(self, channel: int, data: bytes) -> None:
        try:
            self._writer.write(self._protocol.send(BytesMessage(bytes((channel,)) + data)))
            await self._writer.drain()
        except (OSError, LocalProtocolError) as error:
            raise RuntimeCallError("Exec", f"the stream has ended: {error}") from error

    async def _feed(self) -> None:
        data = await self._reader.read(CHUNK)
        if not data:
            raise OSError("closed by the server")
        self._protocol.receive_data(data)


def exit_code(status: dict[str, Any]) -> int:
    """From the Status that ends an exec: the code is listed among the causes of a NonZeroExitCode."""
    if status.get("status") == "Success":
        return 0
    if status.get("reason") == "NonZeroExitCode":
        for cause in (status.get("details") or {}).get("causes") or ():
            if cause.get("reason") == "ExitCode" and str(cause.get("message", "")).isdecimal():
                return int(cause["message"])
    raise RuntimeCallError("Exec", str(status.get("message") or status))
