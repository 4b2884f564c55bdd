"""Waiting for something to happen in a directory: a file of it is written, made, moved or removed.

One inotify instance for the process, made when somebody waits for the first time. Many may wait for one directory.
An event only means "look again", so a directory that cannot be watched (the user has no watches left) is no error:
whoever waits has a timeout anyway.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from plimsoll.linux.inotify import (
    IN_CREATE,
    IN_DELETE,
    IN_IGNORED,
    IN_MODIFY,
    IN_MOVED_FROM,
    IN_MOVED_TO,
    IN_ONLYDIR,
    IN_Q_OVERFLOW,
    Inotify,
)

_MASK = IN_MODIFY | IN_CREATE | IN_MOVED_FROM | IN_MOVED_TO | IN_DELETE | IN_ONLYDIR

log = logging.getLogger(__name__)


class Stirring:
    """What one waiter holds: `wait` returns when something happened since the last return, or after the timeout."""

    def __init__(self) -> None:
        self.happened = asyncio.Event()

    async def wait(self, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self.happened.wait()
        except TimeoutError:
            return
        self.happened.clear()


class DirectoryWatch:
    def __init__(self) -> None:
        self._inotify: Inotify | None = None
        self._waiting: dict[int, set[Stirring]] = {}

    @contextmanager
    def stirring(self, directory: Path) -> Iterator[Stirring]:
        waiter = Stirring()
        watch = self._watch(directory)
        if watch is None:
            yield waiter
            return
        self._waiting.setdefault(watch, set()).add(waiter)
        try:
            yield waiter
        finally:
            left = self._waiting.get(watch, set())
            left.discard(waiter)
            if not left:
                self._waiting.pop(watch, None)
                if self._inotify is not None:
                    self._inotify.remove(watch)

    def close(self) -> None:
        if self._inotify is not None:
            asyncio.get_running_loop().remove_reader(self._inotify.fileno())
            self._inotify.close()
            self._inotify = None

    def _watch(self, directory: Path) -> int | None:
        try:
            if self._inotify is None:
                self._inotify = Inotify()
                asyncio.get_running_loop().add_reader(self._inotify.fileno(), self._take)
            return self._inotify.add(str(directory), _MASK)
        except OSError as error:
            log.debug("cannot watch %s: %s", directory, error)
            return None

    def _take(self) -> None:
        assert self._inotify is not None
        for each in self._inotify.read():
            if each.mask & IN_Q_OVERFLOW:
                for waiters in self._waiting.values():
                    _wake(waiters)
                continue
            _wake(self._waiting.get(each.watch, set()))
            if each.mask & IN_IGNORED:
                self._waiting.pop(each.watch, None)


def _wake(waiters: set[Stirring]) -> None:
    for each in waiters:
        each.happened.set()
