"""`kubectl port-forward` over SPDY/3.1 (portforward.k8s.io): every local connection is a pair of streams.

The client opens an error stream and a data stream, with the headers `streamType`, `port` and `requestID`; both together
are one connection to that port on the pod's loopback address. Each direction ends by itself. What went wrong is one
sentence on the error stream.

kubectl sends data whatever the windows say, so data for a pod that does not read is kept here, up to a limit for the
whole connection; then the connection is not read until some of it was taken. A stream of which nothing was taken for
ten seconds meanwhile is reset, so that it holds up the others no longer.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress

from plimsoll.aio import cancel_all
from plimsoll.codec.spdy import (
    PROTOCOL,
    REFUSED_STREAM,
    VERSION_HEADER,
    GoneAway,
    PingReceived,
    SpdyConnection,
    SpdyError,
    StreamData,
    StreamOpened,
    StreamReset,
)
from plimsoll.errors import PlimsollError
from plimsoll.node.server.idle import IdleClock

PORT_FORWARD = "portforward.k8s.io"
CREATION_S = 30.0  # how long one stream of a pair waits for the other, as in the kubelet
CHUNK = 32 << 10
KEPT_BYTES = 4 << 20  # of a connection: data that no pod has taken yet
STALLED_S = 10.0
MAX_PAIRS = 1000

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[int], Awaitable[Streams]]


class PortRefusedError(PlimsollError):
    """Nothing accepts connections on this port."""


class StreamHeaders:
    """Of a new stream; `problem` says why it cannot be used."""

    def __init__(self, event: StreamOpened) -> None:
        headers, self.problem, self.port = event.headers, "", 0
        self.kind = headers.get("streamtype", "")
        text = headers.get("port", "")
        if not text:
            self.problem = '"port" header is required'
        elif not (text.isascii() and text.isdecimal() and 0 < int(text) < 65536):
            self.problem = f'unable to parse "{text}" as a port'
        elif self.kind not in ("error", "data"):
            self.problem = f'invalid stream type "{self.kind}"' if self.kind else '"streamType" header is required'
        else:
            self.port = int(text)
        # Clients without request ids open the error stream first, and the data stream next.
        self.request = headers.get("requestid") or str(event.stream - (2 if self.kind == "data" else 0))


class Pair:
    """The streams of one forwarded connection."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.error = self.data = 0
        self.complete = asyncio.Event()
        self.kept: deque[bytes] = deque()
        self.kept_bytes = 0
        self.has_ended = False  # the client's half of the data stream
        self.is_answered = False  # the pod's half has ended
        self.taken_s = 0.0  # when the pod took something last
        self.arrived = asyncio.Event()

    def feed(self, data: bytes, *, is_last: bool) -> None:
        if data:
            self.kept.append(data)
            self.kept_bytes += len(data)
        self.has_ended |= is_last
        self.arrived.set()


class ForwardedConnection:
    """`connect` opens a connection to a port of the pod, or raises PortRefusedError. `pod`: its name for messages."""

    def __init__(self, pod: str, connect: Connect, idle: IdleClock, client: Streams) -> None:
        self._pod, self._connect, self._idle = pod, connect, idle
        self._reader, self._writer = client
        self._spdy = SpdyConnection()
        self._pairs: dict[str, Pair] = {}
        self._by_data: dict[int, Pair] = {}
        self._tasks: dict[Pair, asyncio.Task[None]] = {}
        self._room = asyncio.Event()

    async def run(self) -> None:
        """Answer the upgrade, then forward until the client leaves."""
        head = f"HTTP/1.1 101 Switching Protocols\r\nUpgrade: {PROTOCOL}\r\nConnection: Upgrade\r\n"
        tasks: tuple[asyncio.Task[None], ...] = ()
        try:
            await self._send(f"{head}{VERSION_HEADER}: {PORT_FORWARD}\r\n\r\n".encode())
            tasks = (asyncio.create_task(self._receive()), asyncio.create_task(self._idle.expired()))
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if tasks[0].done():
                tasks[0].result()
        except (OSError, SpdyError):
            pass  # the client has left, or speaks something else
        finally:
            await cancel_all((*tasks, *self._tasks.values()))

    async def _receive(self) -> None:
        while data := await self._reader.read(CHUNK):
            self._idle.touch()
            for event in self._spdy.receive(data):
                match event:
                    case StreamOpened():
                        await self._opened(event)
                    case StreamData(stream=stream, data=piece, is_last=is_last) if stream in self._by_data:
                        self._by_data[stream].feed(piece, is_last=is_last)
                    case StreamReset(stream=stream) if stream in self._by_data:
                        await cancel_all([self._tasks[self._by_data[stream]]])
                    case PingReceived(number=number):
                        await self._send(self._spdy.pong(number))
                    case GoneAway():
                        pass  # the streams that are open go on
            await self._wait_for_room()

    async def _wait_for_room(self) -> None:
        """Until less than the limit is kept. Reset the fullest stream if its pod takes nothing for a while."""
        while sum(pair.kept_bytes for pair in self._tasks) > KEPT_BYTES:
            fullest = max(self._tasks, key=lambda pair: pair.kept_bytes)
            before_s = fullest.taken_s
            self._room.clear()
            try:
                async with asyncio.timeout(STALLED_S):
                    await self._room.wait()
            except TimeoutError:
                if fullest.taken_s == before_s and fullest in self._tasks:
                    await cancel_all([self._tasks[fullest]])

    async def _opened(self, event: StreamOpened) -> None:
        headers = StreamHeaders(event)
        pair = self._pairs.get(headers.request)
        if pair is None and not headers.problem and len(self._tasks) < MAX_PAIRS:
            pair = self._pairs[headers.request] = Pair(headers.port)
            task = self._tasks[pair] = asyncio.create_task(self._run(headers.request, pair))
            task.add_done_callback(lambda _: self._forget(headers.request, pair))
        if headers.problem or pair is None or pair.port != headers.port or getattr(pair, headers.kind):
            await self._send(self._spdy.reset(event.stream, REFUSED_STREAM))
            return
        setattr(pair, headers.kind, event.stream)
        if headers.kind == "data":
            self._by_data[event.stream] = pair
            pair.has_ended = event.is_last
        if pair.error and pair.data:
            pair.complete.set()
        await self._send(self._spdy.accept(event.stream))

    def _forget(self, request: str, pair: Pair) -> None:
        self._pairs.pop(request, None)
        self._by_data.pop(pair.data, None)
        self._tasks.pop(pair, None)
        self._room.set()

    async def _run(self, request: str, pair: Pair) -> None:
        """One forwarded connection, from its two streams to the end of both directions."""
        has_ended = False
        try:
            problem = await self._forwarded(request, pair)
            end = self._spdy.data(pair.data, b"", is_last=True) if pair.data and not pair.is_answered else b""
            if pair.error:
                end += self._spdy.data(pair.error, problem.encode(), is_last=True)
            await self._send(end)
            has_ended = True
        except OSError:
            has_ended = True  # the client has left, `run` notices it
        finally:
            if not has_ended:
                self._writer.write(b"".join(self._spdy.reset(each) for each in (pair.data, pair.error) if each))

    async def _forwarded(self, request: str, pair: Pair) -> str:
        """What went wrong, in one sentence."""
        try:
            async with asyncio.timeout(CREATION_S):
                await pair.complete.wait()
        except TimeoutError:
            return f"timed out waiting for the streams of request {request}"
        try:
            reader, writer = await self._connect(pair.port)
        except (PlimsollError, OSError) as error:
            return f"error forwarding port {pair.port} to pod {self._pod}: {error}"
        inward = asyncio.create_task(self._to_pod(pair, writer))
        try:
            problem = await self._to_client(pair, reader)
            if not problem:
                pair.is_answered = True
                await self._send(self._spdy.data(pair.data, b"", is_last=True))
                await inward
        finally:
            await cancel_all([inward])
            writer.close()
        return f"error forwarding port {pair.port} to pod {self._pod}: {problem}" if problem else ""

    async def _to_client(self, pair: Pair, reader: asyncio.StreamReader) -> str:
        while True:
            try:
                data = await reader.read(CHUNK)
            except OSError as error:
                return str(error)
            if not data:
                return ""
            self._idle.touch()
            await self._send(self._spdy.data(pair.data, data))

    async def _to_pod(self, pair: Pair, writer: asyncio.StreamWriter) -> None:
        """Until the client's half ends. Data for a pod that has closed is dropped: its own half says how it ended."""
        clock, is_open = asyncio.get_running_loop().time, True
        while True:
            while pair.kept:
                data = pair.kept[0]
                if is_open:
                    try:
                        writer.write(data)
                        await writer.drain()
                    except OSError:
                        is_open = False
                pair.kept.popleft()
                pair.kept_bytes, pair.taken_s = pair.kept_bytes - len(data), clock()
                self._room.set()
                await self._send(b"".join(self._spdy.window_update(each, len(data)) for each in (pair.data, 0)))
            if pair.has_ended:
                break
            pair.arrived.clear()
            await pair.arrived.wait()
        with suppress(OSError):
            if is_open and writer.can_write_eof():
                writer.write_eof()

    async def _send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()
