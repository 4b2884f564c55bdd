"""A transport in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any


class Pipe(asyncio.Transport):
    """Keeps what is written; full after the writes that `fills` names, until it is emptied."""

    def __init__(self, protocol: asyncio.Protocol, fills: Sequence[bool] = ()) -> None:
        super().__init__()
        self._protocol, self._fills, self._written, self._is_full = protocol, [*fills], bytearray(), False
        self.is_closed, self._is_reading = False, True

    def write(self, data: Any) -> None:
        self._written += data
        if self._fills and self._fills.pop():
            self.fill()

    def fill(self) -> None:
        self._is_full = True
        self._protocol.pause_writing()

    def emptied(self) -> bytes:
        data, self._written = bytes(self._written), bytearray()
        if self._is_full:
            self._is_full = False
            self._protocol.resume_writing()
        return data

    def is_closing(self) -> bool:
        return self.is_closed

    def get_write_buffer_size(self) -> int:
        return len(self._written) if self._is_full else 0

    def abort(self) -> None:
        self.close()

    def close(self) -> None:
        self.is_closed = True

    def is_reading(self) -> bool:
        return self._is_reading

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True
