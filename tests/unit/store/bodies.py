"""Bodies and decisions for tests of the store: small documents that carry their version, as the API server's do."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from plimsoll.store.records import Delete, Record
from plimsoll.store.store import Decide


def body(version: int, value: object) -> bytes:
    return json.dumps({"metadata": {"resourceVersion": str(version)}, "value": value}, separators=(",", ":")).encode()


def value_of(record: Record | None) -> object:
    return None if record is None else json.loads(record.body)["value"]


def put(value: object) -> Decide:
    return lambda current, version: body(version, value)


def delete(current: Record | None, version: int) -> Delete | None:
    return None if current is None else Delete(body(version, value_of(current)))


def log_end(log: Path) -> int:
    """Behind the last frame of SQLite's write-ahead log; what follows is space that it will use, or an earlier pass."""
    data = log.read_bytes()
    frame_bytes, salts, end = int.from_bytes(data[8:12]) + 24, data[16:24], 32
    while data[end + 8 : end + 16] == salts:
        end += frame_bytes
    return end


def crashed(directory: Path, copy: Path) -> Path:
    """What a killed server leaves: its files as they are, without the index of the log that other processes share."""
    copy.mkdir(mode=0o700)
    for file in directory.iterdir():
        if file.is_file() and not file.name.endswith("-shm"):
            shutil.copy(file, copy)
    return copy
