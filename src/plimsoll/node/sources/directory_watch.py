"""Wait for changes in a directory: a file of it is written, created, moved or removed.

There is one inotify instance per object, created by the first waiter. Many may wait for one directory. An event only
means "read again" and every waiter has a timeout, so a directory that cannot be watched (the user has no watches left)
is no error.
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


class DirectoryWaiter:
    """`wait` returns when the directory has changed since the last return, or after the timeout."""

    def __init__(self) -> None:
        self.changed = asyncio.Event()

    async def wait(self, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self.changed.wait()
        except TimeoutError:
            return
        self.changed.clear()


class DirectoryWatch:
    def __init__(self) -> None:
        self._inotify: Inotify | None = None
        self._waiting: dict[int, set[DirectoryWaiter]] = {}

    @contextmanager
    def watch(self, directory: Path) -> Iterator[DirectoryWaiter]:
        waiter = DirectoryWaiter()
        watch = self._add(directory)
        if watch is None:
            yield waiter
            return
        self._waiting.setdefault(watch, set()).add(waiter)
        try:
            yield waiter
        finally:
            others = self._waiting.get(watch, set())
            others.discard(waiter)
            if not others:
                self._waiting.pop(watch, None)
                if self._inotify is not None:
                    self._inotify.remove(watch)

    def close(self) -> None:
        if self._inotify is not None:
            asyncio.get_running_loop().remove_reader(self._inotify.fileno())
            self._inotify.close()
            self._inotify = None

    def _add(self, directory: Path) -> int | None:
        try:
            if self._inotify is None:
                self._inotify = Inotify()
                asyncio.get_running_loop().add_reader(self._inotify.fileno(), self._read_events)
            return self._inotify.add(str(directory), _MASK)
        except OSError as error:
            log.debug("cannot watch %s: %s", directory, error)
            return None

    def _read_events(self) -> None:
        assert self._inotify is not None
        for event in self._inotify.read():
            if event.mask & IN_Q_OVERFLOW:
                for waiters in self._waiting.values():
                    _wake(waiters)
                continue
            _wake(self._waiting.get(event.watch, set()))
            if event.mask & IN_IGNORED:
                self._waiting.pop(event.watch, None)


def _wake(waiters: set[DirectoryWaiter]) -> None:
    for waiter in waiters:
        waiter.changed.set()
