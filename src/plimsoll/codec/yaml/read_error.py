"""What the readers of YAML and JSON have in common: where a value is, and why it cannot be read."""

from __future__ import annotations

from typing import Final

Path = tuple[str | int, ...]

MAX_DUPLICATES: Final = 100  # reported for one document; bounded, because each has its whole path


class ReadError(Exception):
    """Why a value cannot be read, and where. `end` is the end of a value that is at least well-formed."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset
        self.end: int | None = None
