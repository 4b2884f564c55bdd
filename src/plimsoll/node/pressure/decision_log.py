"""Why each pod was evicted, in a small file: one line of JSON per decision, the newest at the end.

A line is appended when the decision is made, so that it survives an agent that is killed during the eviction. Once the
file has twice as many lines as are kept, the older half is dropped. A line that cannot be read is skipped, since the
file is only a record. A full disk loses the line, never the eviction.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import msgspec

from plimsoll.linux.files.safe_tree import closing_fd
from plimsoll.linux.files.state_dir import replace_private
from plimsoll.rules.eviction.decision import EvictionDecision

KEPT = 64
log = logging.getLogger(__name__)
_DECODER = msgspec.json.Decoder(EvictionDecision)


class DecisionLog:
    def __init__(self, file: Path | None = None) -> None:
        """Without a file decisions are kept in memory only."""
        self._file, self._lines = file, 0
        self._decisions: deque[EvictionDecision] = deque(maxlen=KEPT)
        if file is not None:
            for line in _lines(file):
                self._lines += 1
                try:
                    self._keep(_DECODER.decode(line))
                except msgspec.DecodeError as error:
                    log.info("%s: skipping a line that cannot be read: %s", file, error)

    def _keep(self, decision: EvictionDecision) -> None:
        """One decision per pod: an agent that was killed before it acted on one decides again."""
        victim = decision.victim
        if victim is not None:
            same = [one for one in self._decisions if one.victim is not None and one.victim.uid == victim.uid]
            for earlier in same:
                self._decisions.remove(earlier)
        self._decisions.append(decision)

    def __iter__(self) -> Iterator[EvictionDecision]:
        return iter(self._decisions)

    def __len__(self) -> int:
        return len(self._decisions)

    def __getitem__(self, index: int) -> EvictionDecision:
        return self._decisions[index]

    def add(self, decision: EvictionDecision) -> None:
        self._keep(decision)
        if self._file is None:
            return
        try:
            if self._lines >= 2 * KEPT:
                replace_private(self._file, b"".join(map(_line, self._decisions)))
                self._lines = len(self._decisions)
            else:
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
                with closing_fd(os.open(self._file, flags, 0o600)) as descriptor:
                    os.write(descriptor, _line(decision))
                self._lines += 1
        except OSError as error:
            log.warning("eviction decision not written to %s: %s", self._file, error)


def _line(decision: EvictionDecision) -> bytes:
    return msgspec.json.encode(decision) + b"\n"


def _lines(file: Path) -> list[bytes]:
    try:
        return file.read_bytes().splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        log.warning("%s cannot be read, starting with an empty log: %s", file, error)
        return []
