"""A gRPC server on a unix socket that a test controls: it answers, fails, is slow, sends garbage, hangs up.

With `forward_to` it is a proxy: calls without a handler go to a real runtime. Without a path it listens on a TCP port.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, RequestReceived, StreamEnded, StreamReset, WindowUpdated
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes

from plimsoll.net.grpc.client import GrpcClient
from plimsoll.net.grpc.status import GrpcError


class HangUpError(Exception):
    """Close the connection in the middle of the call."""


class GoAwayError(Exception):
    """Say that no more calls are taken, and close."""


class RawAnswerError(Exception):
    """Send these bytes and headers as they are."""

    def __init__(
        self, headers: list[tuple[str, str]], *parts: bytes, trailers: list[tuple[str, str]] | None = None
    ) -> None:
        self.headers, self.parts, self.trailers = headers, parts, trailers


Answer = bytes | list[bytes] | AsyncIterator[bytes]
Handler = Callable[["Server", bytes], Awaitable[Answer]]


class Server:
    """`calls` has the name of every call that came; `handlers` by name, the last part of its path."""

    def __init__(self, socket_path: Path | None, *, window: int = 65535, forward_to: str = "") -> None:
        self.socket_path, self.window, self.port = str(socket_path or ""), window, 0
        self.handlers: dict[str, Handler] = {}
        self.calls: list[str] = []
        self.cancelled: list[str] = []
        self.headers: dict[str, str] = {}
        self._forward = GrpcClient(forward_to) if forward_to else None
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Server:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
        if self._forward is not None:
            self._forward.close()

    async def start(self) -> None:
        if self.socket_path:
            self._server = await asyncio.start_unix_server(self._serve, self.socket_path)
            return
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """As a daemon that is killed: every connection breaks, the socket is gone."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in self._writers:
            writer.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.socket_path:
            Path(self.socket_path).unlink(missing_ok=True)  # noqa: ASYNC240

    async def forward(self, path: str, request: bytes) -> bytes:
        assert self._forward is not None
        return await self._forward.unary(path, request, 60)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = _Connection(self, reader, writer)
        task = asyncio.current_task()
        assert task is not None
        self._writers.add(writer)
        self._tasks.add(task)
        try:
            await connection.run()
        finally:
            self._writers.discard(writer)
            self._tasks.discard(task)
            writer.close()

    async def answer(self, path: str, request: bytes) -> Answer:
        name = path.rpartition("/")[2]
        self.calls.append(name)
        if name in self.handlers:
            return await self.handlers[name](self, request)
        if self._forward is not None:
            return await self.forward(path, request)
        raise GrpcError(12, f"unknown method {name}")


class _Connection:
    def __init__(self, server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._server, self._reader, self._writer = server, reader, writer
        self._h2 = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        self._requests: dict[int, tuple[str, bytearray]] = {}
        self._answering: dict[int, asyncio.Task[None]] = {}
        self._room = asyncio.Event()

    async def run(self) -> None:
        self._h2.initiate_connection()
        self._h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: self._server.window})
        self._flush()
        try:
            while data := await self._reader.read(1 << 16):
                for event in self._h2.receive_data(data):
                    self._take(event)
                self._flush()
        except (ProtocolError, OSError):
            return
        finally:
            for task in self._answering.values():
                task.cancel()
            await asyncio.gather(*self._answering.values(), return_exceptions=True)

    def _take(self, event: object) -> None:
        if isinstance(event, RequestReceived) and event.stream_id is not None:
            self._server.headers = {str(name): str(value) for name, value in event.headers or ()}
            self._requests[event.stream_id] = self._server.headers[":path"], bytearray()
        elif isinstance(event, DataReceived) and event.stream_id is not None:
            self._requests[event.stream_id][1].extend(event.data or b"")
            self._h2.acknowledge_received_data(event.flow_controlled_length or 0, event.stream_id)
        elif isinstance(event, StreamEnded) and event.stream_id is not None:
            path, body = self._requests[event.stream_id]
            task = asyncio.create_task(self._answer(event.stream_id, path, bytes(body[5:])))
            self._answering[event.stream_id] = task
        elif isinstance(event, StreamReset) and event.stream_id in self._answering:
            self._server.cancelled.append(self._requests[event.stream_id][0].rpartition("/")[2])
            self._answering[event.stream_id].cancel()
        elif isinstance(event, WindowUpdated):
            self._room.set()

    async def _answer(self, stream_id: int, path: str, request: bytes) -> None:
        ok = [(":status", "200"), ("content-type", "application/grpc")]
        try:
            answer = await self._server.answer(path, request)
            if isinstance(answer, AsyncIterator):
                self._h2.send_headers(stream_id, ok)
                self._flush()
                async for message in answer:
                    self._h2.send_data(stream_id, b"\0" + len(message).to_bytes(4) + message)
                    self._flush()
                self._h2.send_headers(stream_id, [("grpc-status", "0")], end_stream=True)
                self._flush()
                return
            messages = answer if isinstance(answer, list) else [answer]
            framed = [b"\0" + len(each).to_bytes(4) + each for each in messages]
            await self._send(stream_id, ok, framed, [("grpc-status", "0")])
        except GrpcError as error:
            status = [("grpc-status", str(error.code)), ("grpc-message", error.message.replace("\n", "%0A"))]
            await self._send(stream_id, [*ok, *status], [], None)
        except RawAnswerError as raw:
            await self._send(stream_id, raw.headers, list(raw.parts), raw.trailers)
        except HangUpError:
            self._writer.close()
        except GoAwayError:
            self._h2.close_connection()
            self._flush()
            self._writer.close()

    async def _send(
        self,
        stream_id: int,
        headers: list[tuple[str, str]],
        parts: list[bytes],
        trailers: list[tuple[str, str]] | None,
    ) -> None:
        self._h2.send_headers(stream_id, headers, end_stream=not parts and trailers is None)
        for part in parts:
            left = part
            while left:
                room = min(self._h2.local_flow_control_window(stream_id), self._h2.max_outbound_frame_size)
                if not room:
                    self._flush()
                    self._room.clear()
                    await self._room.wait()
                    continue
                self._h2.send_data(stream_id, left[:room])
                left = left[room:]
        if trailers is not None:
            self._h2.send_headers(stream_id, trailers, end_stream=True)
        elif parts:
            self._h2.end_stream(stream_id)
        self._flush()

    def _flush(self) -> None:
        if (data := self._h2.data_to_send()) and not self._writer.is_closing():
            self._writer.write(data)


@contextlib.asynccontextmanager
async def answering(socket_path: Path | None, **handlers: Handler) -> AsyncIterator[Server]:
    async with Server(socket_path) as server:
        server.handlers.update(handlers)
        yield server
