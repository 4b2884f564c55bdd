"""What is computed from one change for all of its watchers: the fields of selectors, the encoded lines."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable

import msgspec

from plimsoll.api.machinery.selectors import Selectable
from plimsoll.store.records import Change

LINES_BYTES = 8 * 1024 * 1024


class Shared(msgspec.Struct):
    """Of one change; the store forgets it when there have been a few hundred newer ones."""

    before: Selectable | None = None
    after: Selectable | None = None
    lines: dict[Hashable, bytes] = {}  # by the kind of event and the form


class SharedLines:
    """Keeps the newest lines: those of a few hundred large objects would fill the memory."""

    def __init__(self, most_bytes: int = LINES_BYTES) -> None:
        self._most_bytes, self._bytes = most_bytes, 0
        self._kept: deque[tuple[Shared, Hashable]] = deque()

    def keep(self, shared: Shared, which: Hashable, line: bytes) -> None:
        shared.lines[which] = line
        self._kept.append((shared, which))
        self._bytes += len(line)
        while self._bytes > self._most_bytes:
            oldest, its_line = self._kept.popleft()
            self._bytes -= len(oldest.lines.pop(its_line))


def shared_with(change: Change) -> Shared:
    shared = change.shared
    if not isinstance(shared, Shared):
        shared = change.shared = Shared()
    return shared
