"""A bounded ring of frames: what the node looked like, back to as long as fits into a few megabytes.

A block is one frame as compressed JSON. A block whose frame is complete begins a group; the oldest group is dropped as
a whole, so that the ring always begins with a complete frame. Nothing is written to disk.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Iterator

import msgspec

from plimsoll.codec.live_page import Frame, HistoryPage

MOST_BYTES = 6 << 20
GROUP = 60  # frames; a complete one is about ten times as large as another
PAGE_BYTES = 4 << 20
_LEVEL = 1
_BLOCK_BYTES = 200  # of a Python object beside its bytes
_decoder = msgspec.json.Decoder(Frame)


class _Block(msgspec.Struct, frozen=True):
    at_s: float
    begins: bool
    packed: bytes


class History:
    def __init__(self, most_bytes: int = MOST_BYTES, group: int = GROUP) -> None:
        self._most, self._group = most_bytes, group
        self._blocks: deque[_Block] = deque()
        self._bytes = 0
        self._in_group = 0

    @property
    def bytes(self) -> int:
        """How much it holds."""
        return self._bytes

    @property
    def wants_complete(self) -> bool:
        """Whether the next frame must be complete."""
        return not self._blocks or self._in_group >= self._group

    def add(self, frame: Frame) -> None:
        begins = frame.since == 0
        block = _Block(frame.at, begins, zlib.compress(msgspec.json.encode(frame), _LEVEL))
        self._blocks.append(block)
        self._bytes += len(block.packed) + _BLOCK_BYTES
        self._in_group = 1 if begins else self._in_group + 1
        while self._bytes > self._most and self._drop_group():
            pass

    def _drop_group(self) -> bool:
        """Whether there was an older group than the present one."""
        if sum(block.begins for block in self._blocks) < 2:
            return False
        while True:
            block = self._blocks.popleft()
            self._bytes -= len(block.packed) + _BLOCK_BYTES
            if self._blocks[0].begins:
                return True

    def page(self, from_s: float = 0.0, to_s: float = float("inf"), most_bytes: int = PAGE_BYTES) -> HistoryPage:
        """The frames from the last complete one at or before `from_s`, as many as fit into one page."""
        if not self._blocks:
            return HistoryPage()
        frames: list[Frame] = []
        size, more = 0, False
        for block in self._from(from_s):
            if block.at_s > to_s:
                break
            if size > most_bytes:
                more = True
                break
            text = zlib.decompress(block.packed)
            if block.at_s > from_s:  # what leads to it does not count: a page always has something new
                size += len(text)
            frames.append(_decoder.decode(text))
        return HistoryPage(frames, self._blocks[0].at_s, self._blocks[-1].at_s, more)

    def _from(self, from_s: float) -> Iterator[_Block]:
        first = 0
        for index, block in enumerate(self._blocks):
            if block.at_s > from_s:
                break
            if block.begins:
                first = index
        for index, block in enumerate(self._blocks):
            if index >= first:
                yield block
