"""A second check of SQLite's log, for damage that SQLite takes for its end.

SQLite reads a WAL up to the first frame with a wrong checksum. After a crash that is right: only the last transaction
can be torn, because each was on disk before the next began. To SQLite a flipped bit in the middle is the same and
silently undoes all that follows. So: frames of one generation (same salts) behind the readable end that commit more
than the one torn transaction are acknowledged changes that are lost.

Formats: SQLite's file format, sections "WAL File Format" and "WAL-Index Format".
"""

from __future__ import annotations

import struct
from pathlib import Path

_WAL_HEADER = struct.Struct(">8I")  # magic, format, page size, checkpoint number, salt 1, salt 2, checksum (2)
_FRAME_HEADER = struct.Struct(">6I")  # page, database size after a commit else 0, salt 1, salt 2, checksum (2)
_LAST_FRAME = struct.Struct("=I")  # number of valid frames: in the first header of the WAL-index, native order
_LAST_FRAME_OFFSET = 16
_MAGIC = {0x377F0682: "<", 0x377F0683: ">"}  # byte order of the words that are summed


def lost_commits(database: Path, page_bytes: int) -> int:
    """Transactions behind the readable end of the log, not counting one that may be torn.

    A connection must have started to read, so that SQLite has recovered the log and noted its end in the WAL-index.
    """
    try:
        wal = database.with_name(f"{database.name}-wal").open("rb")
        index = database.with_name(f"{database.name}-shm").read_bytes()
    except FileNotFoundError:
        return 0
    with wal:
        header = wal.read(_WAL_HEADER.size)
        if len(header) < _WAL_HEADER.size or len(index) < _LAST_FRAME_OFFSET + _LAST_FRAME.size:
            return 0
        # With a damaged header SQLite reads nothing at all; then the first frame has the generation.
        salts = _WAL_HEADER.unpack(header)[4:6] if _header_is_sound(header) else None
        (frame,) = _LAST_FRAME.unpack_from(index, _LAST_FRAME_OFFSET)
        commits = 0
        while True:
            wal.seek(_WAL_HEADER.size + frame * (_FRAME_HEADER.size + page_bytes))
            head = wal.read(_FRAME_HEADER.size)
            if len(head) < _FRAME_HEADER.size:
                return max(0, commits - 1)
            _, committed_pages, *frame_salts, _, _ = _FRAME_HEADER.unpack(head)
            salts = salts or tuple(frame_salts)
            commits += bool(committed_pages) and tuple(frame_salts) == salts
            frame += 1


def _header_is_sound(header: bytes) -> bool:
    *fields, sum_0, sum_1 = _WAL_HEADER.unpack(header)
    order = _MAGIC.get(fields[0])
    if order is None:
        return False
    first = second = 0
    words = struct.unpack(f"{order}6I", header[:24])
    for x, y in zip(words[::2], words[1::2], strict=True):
        first = (first + x + second) & 0xFFFFFFFF
        second = (second + y + first) & 0xFFFFFFFF
    return (first, second) == (sum_0, sum_1)
