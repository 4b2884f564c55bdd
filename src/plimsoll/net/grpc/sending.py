"""What one HTTP/2 connection sends, without its socket: streams, the windows of the peer, and bytes in `output`.

What is to be sent gathers in `output` until the socket takes it. Data that the peer's windows or the socket do not take
yet waits in its stream (`unsent`), and goes out with `pump`.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from plimsoll.net.grpc import frames as f
from plimsoll.net.grpc.header_blocks import Block
from plimsoll.net.grpc.hpack import NO_TABLE

MAX_OUTPUT_BYTES = 262_144  # data waits in its stream beyond that
STREAMS_BEFORE_SETTINGS = 100  # a server that allows fewer refuses the others


class Stream:
    """What the peer sends on one stream, in this order: headers, data, perhaps trailers, the end; or a reset."""

    __slots__ = ("ended_here", "ended_there", "id", "is_closed", "is_last", "receive_window", "send_window", "unsent")

    def __init__(self) -> None:
        self.id = self.send_window = self.receive_window = 0  # until it starts
        self.ended_here = self.ended_there = self.is_closed = self.is_last = False
        self.unsent = bytearray()

    def take_headers(self, block: Block, *, is_end: bool) -> None:
        """This and `take_data` may raise StreamFaultError."""

    def take_data(self, data: bytes) -> None: ...

    def take_end(self) -> None: ...

    def take_reset(self, code: int, why: str) -> None: ...

    def drained(self) -> None:
        """Nothing is unsent any more."""


S = TypeVar("S", bound=Stream)


class Sending(Generic[S]):
    def __init__(self, *, is_client: bool, window: int) -> None:
        self._window = window  # of ours for each stream
        self.output = bytearray()
        self.is_full = False  # the socket takes no more
        self.streams: dict[int, S] = {}
        self.peer_streams = STREAMS_BEFORE_SETTINGS  # how many of ours the peer allows at once
        self._newest = -1 if is_client else 0  # stream of ours
        self._blocked: dict[int, S] = {}
        self._send_window = self._peer_window = f.DEFAULT_WINDOW  # of the connection, of each new stream
        self._prefix = NO_TABLE  # of the next block
        self._replies = self._resets = 0

    # --- what subclasses do ---

    def wrote(self) -> None:
        """There is output."""

    def room_for_streams(self) -> None:
        """A stream has closed, or the peer allows more."""

    # --- sending ---

    @property
    def ids_left(self) -> int:
        return (f.MAX_STREAM - self._newest) // 2

    def begin(self, stream: S, block: bytes) -> None:
        """Our next stream, with what is unsent on it."""
        self._newest += 2
        self._add(stream, self._newest)
        self.send_headers(stream, block)
        if stream.unsent:
            self._blocked[stream.id] = stream
            self.pump()

    def send_headers(self, stream: S, block: bytes, *, is_last: bool = False) -> None:
        if stream.is_closed:
            return
        if self._prefix:
            block, self._prefix = self._prefix + block, b""
        self.output += f.header_frames(stream.id, block, f.END_STREAM if is_last else 0)
        if is_last:
            self._end_here(stream)
        self.wrote()

    def send(self, stream: S, data: bytes, *, is_last: bool = False) -> None:
        """Some bytes, at once or when there is room for them."""
        if stream.is_closed:
            return
        size = len(data)
        if (
            stream.id
            and not stream.unsent
            and size <= f.FRAME_BYTES
            and size <= stream.send_window
            and size <= self._send_window
            and not self.is_full
            and len(self.output) < MAX_OUTPUT_BYTES
        ):
            self._send_data(stream, data, is_last=is_last)
        else:
            stream.unsent += data
            stream.is_last = is_last
            if not stream.id:
                return
            self._blocked[stream.id] = stream
            self.pump()
        self.wrote()

    def pump(self) -> None:
        """One frame of each stream that has unsent data, again and again, as long as there is room."""
        is_moving = True
        while is_moving and self._blocked:
            is_moving = False
            for stream in [*self._blocked.values()]:
                if self.is_full or len(self.output) >= MAX_OUTPUT_BYTES:
                    return
                if stream.id not in self._blocked:  # a stream has ended here, and the one that waited for it was sent
                    continue
                room = min(stream.send_window, self._send_window, f.FRAME_BYTES)
                if room <= 0:
                    continue
                is_moving = True
                data = bytes(stream.unsent[:room])
                del stream.unsent[:room]
                if not stream.unsent:
                    del self._blocked[stream.id]
                self._send_data(stream, data, is_last=stream.is_last and not stream.unsent)
                if not stream.unsent:
                    stream.drained()

    def reset(self, stream: S, code: int) -> None:
        """We want no more of it."""
        if not stream.is_closed:
            self.output += f.rst_stream(stream.id, code)
            self._close(stream)
            self.wrote()

    def taken(self) -> bytearray:
        """The output, which the socket takes now."""
        output, self.output, self._replies = self.output, bytearray(), 0
        return output

    def _send_data(self, stream: S, data: bytes, *, is_last: bool) -> None:
        size = len(data)
        stream.send_window -= size
        self._send_window -= size
        self.output += f.HEAD.pack(size >> 8, size & 0xFF, f.DATA, f.END_STREAM if is_last else 0, stream.id)
        self.output += data
        if is_last:
            self._end_here(stream)

    # --- streams ---

    def _add(self, stream: S, number: int) -> None:
        stream.id, stream.send_window, stream.receive_window = number, self._peer_window, self._window
        self.streams[number] = stream

    def _end_here(self, stream: S) -> None:
        stream.ended_here = True
        self._drop_unsent(stream)
        if stream.ended_there:
            self._complete(stream)

    def _end_there(self, stream: S) -> None:
        if stream.ended_here:
            self._complete(stream)
        stream.take_end()

    def _complete(self, stream: S) -> None:
        self._resets = max(0, self._resets - 1)
        self._close(stream)

    def _close(self, stream: S) -> None:
        stream.is_closed = True
        self.streams.pop(stream.id, None)
        self._drop_unsent(stream)
        self.room_for_streams()

    def _drop_unsent(self, stream: S) -> None:
        if stream.unsent:
            self._blocked.pop(stream.id, None)
            stream.unsent.clear()
            stream.drained()
