"""One HTTP/2 connection without its socket, for either side (RFC 9113): bytes in, calls of `Stream` and bytes out.

`receive` takes bytes in any pieces, and gives a window back when half of it is used: data goes to its stream at once,
which limits it. A peer costs bounded memory: header blocks are limited by their size, and the answers that it makes us
send by MAX_REPLIES. A server also counts resets, because calls that are begun and reset at once are cheap for a client.
"""

from __future__ import annotations

from plimsoll.net.grpc import frames as f
from plimsoll.net.grpc.frames import ConnectionFaultError, FrameReader, StreamFaultError
from plimsoll.net.grpc.header_blocks import MAX_LIST_BYTES, BlockDecoder
from plimsoll.net.grpc.sending import S, Sending

MAX_REPLIES = 1_000  # to PING, SETTINGS and faults of streams, before the peer has read any
MAX_RESETS = 200  # more than there were complete calls
MAX_CONTINUATIONS = 64


class Http2(Sending[S]):
    def __init__(self, *, is_client: bool, settings: dict[int, int], window: int, connection_window: int) -> None:
        super().__init__(is_client=is_client, window=window)
        self._is_client, self._connection_window = is_client, connection_window
        self._peer_newest = 0  # stream of the peer
        self._reader, self._decoder = FrameReader(), BlockDecoder()
        self._receive_window = connection_window
        self._awaited = b"" if is_client else f.PREFACE
        self._has_settings = False
        self._open_block: tuple[int, int, bytearray, int] | None = None  # stream, flags, bytes, CONTINUATIONs
        if is_client:
            self.output += f.PREFACE
        settings = settings | {f.INITIAL_WINDOW_SIZE: window, f.MAX_HEADER_LIST_SIZE: MAX_LIST_BYTES}
        self.output += f.settings_frame(settings.items())
        if connection_window > f.DEFAULT_WINDOW:
            self.output += f.window_update(0, connection_window - f.DEFAULT_WINDOW)

    # --- what subclasses do ---

    def opened(self) -> S:
        """For a stream that the client begins. May raise StreamFaultError."""
        raise NotImplementedError

    def going_away(self, last_stream: int, code: int, text: str) -> None: ...

    # --- faults ---

    def _reply(self, frame: bytes) -> None:
        self.output += frame
        self._replies += 1
        if self._replies > MAX_REPLIES:
            raise ConnectionFaultError(f.ENHANCE_YOUR_CALM, f"{MAX_REPLIES} frames to be answered, and it reads none")

    def _fail(self, number: int, fault: StreamFaultError) -> None:
        self._reply(f.rst_stream(number, fault.code))
        stream = self.streams.get(number)
        if stream is not None:
            self._close(stream)
            stream.take_reset(fault.code, fault.message)
        if fault.code != f.REFUSED_STREAM:
            self._count_reset()

    def _count_reset(self) -> None:
        self._resets += 1
        if not self._is_client and self._resets > MAX_RESETS:
            raise ConnectionFaultError(f.ENHANCE_YOUR_CALM, f"{self._resets} streams were reset")

    def _check_begun(self, kind: int, number: int) -> None:
        """Frames of a stream that has ended may still be on their way (section 5.1); none may be of one to come."""
        if number > (self._newest if number % 2 == self._is_client else self._peer_newest) or not number:
            raise _fault(f"{f.NAMES[kind]} on stream {number}, which was not begun")

    # --- receiving ---

    def receive(self, data: bytes) -> None:
        """Raises ConnectionFaultError; then only `output` is left to be sent, and nothing is to be received."""
        try:
            if self._awaited:
                data = self._without_preface(data)
            for kind, flags, number, payload in self._reader.frames(data):
                if self._open_block is not None or not self._has_settings:
                    self._check_order(kind, flags, number)
                if kind == f.DATA:
                    self._take_data(flags, number, payload)
                elif kind == f.HEADERS:
                    self._take_headers(flags, number, payload)
                else:
                    self._take_other(kind, flags, number, payload)
        except ConnectionFaultError as error:
            is_other = self._is_client and not self._has_settings  # an HTTP/1 server, for example
            fault = _fault(f"{data[:40]!r} in place of SETTINGS") if is_other else error
            self.output += f.goaway(self._peer_newest, fault.code, fault.message)
            raise fault from None

    def _without_preface(self, data: bytes) -> bytes:
        part, rest = data[: len(self._awaited)], data[len(self._awaited) :]
        if not self._awaited.startswith(part):
            raise _fault(f"{data[:40]!r} in place of the preface")
        self._awaited = self._awaited[len(part) :]
        return rest

    def _check_order(self, kind: int, flags: int, number: int) -> None:
        if self._open_block is not None and (kind != f.CONTINUATION or number != self._open_block[0]):
            raise _fault(f"a frame of type {kind} on stream {number} inside the headers of {self._open_block[0]}")
        if not self._has_settings:
            if kind != f.SETTINGS or flags & f.ACK:
                raise _fault(f"a frame of type {kind} in place of SETTINGS")
            self._has_settings = True
            self.peer_streams = f.MAX_STREAM  # unless they limit it

    def _take_data(self, flags: int, number: int, payload: bytes) -> None:
        size = len(payload)
        self._receive_window -= size
        if self._receive_window <= self._connection_window // 2:
            self.output += f.window_update(0, self._connection_window - self._receive_window)
            self._receive_window = self._connection_window
        stream = self.streams.get(number)
        if stream is None:
            self._check_begun(f.DATA, number)
            return
        if flags & f.PADDED:
            payload = f.unpadded(f.DATA, flags, payload)
        try:
            if stream.ended_there:
                raise StreamFaultError(f.STREAM_CLOSED, "DATA after the end")
            stream.receive_window -= size
            if payload:
                stream.take_data(payload)
        except StreamFaultError as fault:
            self._fail(number, fault)
            return
        if flags & f.END_STREAM:
            stream.ended_there = True
            self._end_there(stream)
        elif stream.receive_window <= self._window // 2:
            self.output += f.window_update(number, self._window - stream.receive_window)
            stream.receive_window = self._window

    def _take_headers(self, flags: int, number: int, payload: bytes) -> None:
        if flags & (f.PADDED | f.HAS_PRIORITY):
            payload = f.unpadded(f.HEADERS, flags, payload)
        if flags & f.END_HEADERS:
            self._take_block(number, bool(flags & f.END_STREAM), payload)
        else:
            self._open_block = number, flags, bytearray(payload), 0

    def _take_continuation(self, flags: int, number: int, payload: bytes) -> None:
        if self._open_block is None:
            raise _fault(f"CONTINUATION on stream {number} without HEADERS")
        _, first_flags, block, count = self._open_block
        block += payload
        if len(block) > MAX_LIST_BYTES or count >= MAX_CONTINUATIONS:
            text = f"headers of more than {MAX_LIST_BYTES} bytes or {MAX_CONTINUATIONS} CONTINUATION frames"
            raise ConnectionFaultError(f.ENHANCE_YOUR_CALM, text)
        if flags & f.END_HEADERS:
            self._open_block = None
            self._take_block(number, bool(first_flags & f.END_STREAM), bytes(block))
        else:
            self._open_block = number, first_flags, block, count + 1

    def _take_block(self, number: int, is_end: bool, data: bytes) -> None:
        stream = self.streams.get(number)
        if is_new := not self._is_client and number % 2 == 1 and number > self._peer_newest:
            self._peer_newest = number
        elif stream is None:
            self._check_begun(f.HEADERS, number)
        try:
            block = self._decoder.decoded(data)
            if is_new:
                stream = self.opened()
                self._add(stream, number)
            elif stream is None:
                return
            elif stream.ended_there:
                raise StreamFaultError(f.STREAM_CLOSED, "HEADERS after the end")
            stream.ended_there = is_end
            stream.take_headers(block, is_end=is_end)
        except StreamFaultError as fault:
            self._fail(number, fault)
            return
        if is_end:
            self._end_there(stream)

    def _take_other(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        """Priorities and unknown types mean nothing to us (sections 5.3.2 and 5.5)."""
        size = len(payload)
        if size != f.SIZES.get(kind, size) or (kind == f.SETTINGS and size % 6) or (kind == f.GOAWAY and size < 8):
            raise ConnectionFaultError(f.FRAME_SIZE_ERROR, f"{f.NAMES[kind]} of {size} bytes")
        if number and kind in (f.SETTINGS, f.PING, f.GOAWAY):
            raise _fault(f"{f.NAMES[kind]} on stream {number}")
        match kind:
            case f.CONTINUATION:
                self._take_continuation(flags, number, payload)
            case f.WINDOW_UPDATE:
                self._take_window_update(number, int.from_bytes(payload) & f.MAX_WINDOW)
            case f.RST_STREAM:
                self._check_begun(kind, number)
                stream = self.streams.get(number)
                if stream is not None:
                    self._close(stream)
                    stream.take_reset(int.from_bytes(payload), "the call was reset")
                    self._count_reset()
            case f.SETTINGS if flags & f.ACK:
                if payload:
                    raise ConnectionFaultError(f.FRAME_SIZE_ERROR, f"an acknowledgement of {size} bytes")
            case f.SETTINGS:
                self._take_settings(payload)
            case f.PING if not flags & f.ACK:
                self._reply(f.frame(f.PING, f.ACK, 0, payload))
            case f.GOAWAY:
                text = payload[8:].decode("utf-8", "replace")
                self.going_away(int.from_bytes(payload[:4]) & f.MAX_STREAM, int.from_bytes(payload[4:8]), text)
            case f.PUSH_PROMISE:
                raise _fault("PUSH_PROMISE, which we do not allow")

    def _take_window_update(self, number: int, increment: int) -> None:
        stream = self.streams.get(number)
        if number and stream is None:
            self._check_begun(f.WINDOW_UPDATE, number)
            return
        window = (self._send_window if stream is None else stream.send_window) + increment
        code, text = 0, ""
        if not increment:
            code, text = f.PROTOCOL_ERROR, "WINDOW_UPDATE of 0 bytes"
        elif window > f.MAX_WINDOW:
            code, text = f.FLOW_CONTROL_ERROR, f"a window of {window} bytes"
        if stream is None:
            if code:
                raise ConnectionFaultError(code, text)
            self._send_window = window
        elif code:
            self._fail(number, StreamFaultError(code, text))
            return
        else:
            stream.send_window = window
        self.pump()

    def _take_settings(self, payload: bytes) -> None:
        for key, value in f.settings_of(payload):
            if key == f.INITIAL_WINDOW_SIZE:
                self._resize_windows(value)
            elif key == f.MAX_CONCURRENT_STREAMS:
                self.peer_streams = value
            elif key == f.MAX_FRAME_SIZE and not f.FRAME_BYTES <= value <= f.LARGEST_FRAME_BYTES:
                raise _fault(f"SETTINGS_MAX_FRAME_SIZE of {value}")
            elif key == f.ENABLE_PUSH and value > (0 if self._is_client else 1):
                raise _fault(f"SETTINGS_ENABLE_PUSH of {value}")
        self._reply(f.frame(f.SETTINGS, f.ACK, 0))
        self.room_for_streams()
        self.pump()

    def _resize_windows(self, value: int) -> None:
        """Also of streams that are open; a window may become negative (section 6.9.2)."""
        largest = max((stream.send_window for stream in self.streams.values()), default=0)
        grown = value - self._peer_window
        if value > f.MAX_WINDOW or largest + grown > f.MAX_WINDOW:
            raise ConnectionFaultError(f.FLOW_CONTROL_ERROR, f"SETTINGS_INITIAL_WINDOW_SIZE of {value}")
        self._peer_window = value
        for stream in self.streams.values():
            stream.send_window += grown


def _fault(text: str) -> ConnectionFaultError:
    return ConnectionFaultError(f.PROTOCOL_ERROR, text)
