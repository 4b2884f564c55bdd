"""The protocol between agent and supervisor: JSON messages with a length prefix, and file descriptors.

A message is four bytes of length (network order) and that much JSON. Descriptors travel as ancillary data of the bytes
that begin a message, so when a message is complete its descriptors have arrived; `fds` in it says how many.
No I/O except `receive` and `send_some`, which both sides use on their sockets.
"""

from __future__ import annotations

import array
import json
import os
import socket
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

PROTOCOL = 1
MAX_MESSAGE_BYTES = 16 << 20
MAX_FDS = 64
_CHUNK_BYTES = 256 << 10

Message = dict[str, Any]


class MessageFormatError(ValueError):
    """Bytes that are no message; the connection has to be closed."""


def encoded(message: Message) -> bytes:
    body = json.dumps(message, separators=(",", ":")).encode()
    if len(body) > MAX_MESSAGE_BYTES:
        raise MessageFormatError(f"a message of {len(body)} bytes; {MAX_MESSAGE_BYTES} are allowed")
    return len(body).to_bytes(4, "big") + body


class FrameReader:
    """Assembles messages from received data. Descriptors that no message claims are closed by `close`."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._fds: deque[int] = deque()

    def feed(self, data: bytes, fds: Sequence[int] = ()) -> list[tuple[Message, list[int]]]:
        self._data += data
        self._fds.extend(fds)
        done: list[tuple[Message, list[int]]] = []
        while len(self._data) >= 4:
            length = int.from_bytes(self._data[:4], "big")
            if length > MAX_MESSAGE_BYTES:
                raise MessageFormatError(f"a message of {length} bytes; {MAX_MESSAGE_BYTES} are allowed")
            if len(self._data) < 4 + length:
                break
            try:
                message = json.loads(self._data[4 : 4 + length])
            except ValueError as problem:
                raise MessageFormatError(f"no JSON: {problem}") from None
            del self._data[: 4 + length]
            if not isinstance(message, dict):
                raise MessageFormatError("a message that is not a JSON object")
            count = message.get("fds", 0)
            if not isinstance(count, int) or not 0 <= count <= len(self._fds):
                raise MessageFormatError(f"{count!r} descriptors were announced, {len(self._fds)} came")
            done.append((message, [self._fds.popleft() for _ in range(count)]))
        return done

    def receive(self, connection: socket.socket) -> list[tuple[Message, list[int]]] | None:
        """The messages that are complete now; None where the connection has to be closed."""
        try:
            data, fds = receive(connection)
            return self.feed(data, fds) if data else None
        except BlockingIOError:
            return []
        except (OSError, MessageFormatError):
            return None

    def close(self) -> None:
        close_fds(self._fds)
        self._fds.clear()


class SendQueue:
    """What the socket has not taken yet. The descriptors are duplicated; the caller still closes its own."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._waiting: deque[tuple[memoryview, list[int]]] = deque()
        self.waiting_bytes = 0

    def add(self, message: Message, fds: Sequence[int]) -> None:
        data = encoded({**message, "fds": len(fds)} if fds else message)
        self._waiting.append((memoryview(data), [os.dup(fd) for fd in fds]))
        self.waiting_bytes += len(data)

    def flush(self) -> bool:
        """Whether everything is sent. OSError where the connection is lost."""
        while self._waiting:
            data, fds = self._waiting[0]
            try:
                done = send_some(self._socket, data, fds)
            except BlockingIOError:
                return False
            close_fds(fds)
            self.waiting_bytes -= done
            if done == len(data):
                self._waiting.popleft()
            else:
                self._waiting[0] = (data[done:], [])
        return True

    def close(self) -> None:
        for _, fds in self._waiting:
            close_fds(fds)
        self._waiting.clear()


def close_fds(fds: Iterable[int]) -> None:
    for fd in fds:
        os.close(fd)


def receive(connection: socket.socket) -> tuple[bytes, list[int]]:
    """The received data and its descriptors, all close-on-exec; b"" when the peer has closed."""
    room = socket.CMSG_SPACE(MAX_FDS * 4)
    data, ancillary, _flags, _address = connection.recvmsg(_CHUNK_BYTES, room, socket.MSG_CMSG_CLOEXEC)
    fds = array.array("i")
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(content[: len(content) - len(content) % fds.itemsize])
    return data, list(fds)


def send_some(connection: socket.socket, data: bytes | memoryview, fds: Sequence[int]) -> int:
    """Send as much as the socket takes; the descriptors are sent with the first byte."""
    if not fds:
        return connection.send(data)
    rights = array.array("i", fds)
    return connection.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
