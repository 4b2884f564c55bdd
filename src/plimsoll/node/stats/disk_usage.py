"""What a directory and all below it take on disk, and how full its file system is.

Counting walks every file, so figures are kept and counted anew only when they are older than whoever asks can bear, in
a thread: a large volume takes as long as its disk needs, and the agent must not wait for it. Nobody asks, nothing is
counted; whoever asked and is gone, as at the agent's end, is waited for no longer.

What containers have written into their own root file systems, as the runtime that keeps those counts it (04 §1.2).

It is asked only when somebody wants to know, and seldom: a runtime counts by itself, every ten seconds or so. One that
takes its time is waited for a moment, and what it says later counts later; so nobody who must act stands still for it.
One that does not answer is told of, and its containers count as having written nothing until it does.
"""

from __future__ import annotations

import asyncio
import logging
import os
import stat
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping

import msgspec

from plimsoll.rules.eviction.usage import NO_FS_USAGE, FsUsage
from plimsoll.runtime.interface import RuntimeCallError

KEPT_S = 60.0
KEPT_OPEN = 32  # directories of one walk; deeper ones are opened again on the way back
_BLOCK = 512  # st_blocks counts these, whatever the file system's own are
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
log = logging.getLogger(__name__)


class FileSystem(msgspec.Struct, frozen=True):
    capacity_bytes: int
    available_bytes: int
    used_bytes: int
    inodes: int
    inodes_free: int

    @property
    def inodes_used(self) -> int:
        return self.inodes - self.inodes_free


def file_system(path: str) -> FileSystem | None:
    """The one that holds `path`; None where that is gone."""
    try:
        found = os.statvfs(path)
    except FileNotFoundError:
        return None
    size = found.f_frsize
    return FileSystem(
        found.f_blocks * size,
        found.f_bavail * size,
        (found.f_blocks - found.f_bfree) * size,
        found.f_files,
        found.f_ffree,
    )


def tree_usage(path: str, stop: threading.Event | None = None) -> FsUsage | None:
    """Each file once, however many names it has; other file systems below are not entered, no link is followed.

    What cannot be read, or goes meanwhile, is left out. OSError where `path` itself cannot be read; None where it is
    gone. `stop` ends it early, with what was counted so far.
    """
    try:
        top = os.open(path, _OPEN)
    except (FileNotFoundError, NotADirectoryError):
        return None
    with _Walk(top, stop or threading.Event()) as walk:
        return walk.usage()


class _Level(msgspec.Struct):
    """A directory on the way from the top to where the walk is, and what is still to be entered in it."""

    fd: int | None  # None: closed on the way down, to be found again from below
    ino: int
    todo: list[tuple[str, int]]  # name, inode


class _Walk:
    """Depth first, by names in open directories: whoever fills a volume may nest deeper than any path can say.

    The upper directories stay open, and of those below them only the one that is looked at: from there the way back is
    `..`, believed where it leads to the directory that we came from.
    """

    def __init__(self, top: int, stop: threading.Event) -> None:
        self._stop = stop
        found = os.fstat(top)
        self._device, self._used, self._seen = found.st_dev, found.st_blocks * _BLOCK, {found.st_ino}
        self._way = [_Level(top, found.st_ino, [])]

    def __enter__(self) -> _Walk:
        return self

    def __exit__(self, *_: object) -> None:
        for level in self._way:
            _close(level)

    def usage(self) -> FsUsage:
        self._look(self._way[-1])
        while self._way and not self._stop.is_set():
            level = self._way[-1]
            if level.fd is None or not level.todo:
                self._leave()
            else:
                self._enter(level.fd, *level.todo.pop())
        return FsUsage(self._used, len(self._seen))

    def _enter(self, parent: int, name: str, ino: int) -> None:
        fd = self._opened(name, parent, ino)
        if fd is None:
            return
        level = _Level(fd, ino, [])
        self._look(level)
        if not level.todo:
            os.close(fd)
            return
        if len(self._way) >= KEPT_OPEN:
            _close(self._way[-1])
        self._way.append(level)

    def _leave(self) -> None:
        left = self._way.pop()
        above = self._way[-1] if self._way else None
        if above is not None and above.fd is None and left.fd is not None:
            above.fd = self._opened("..", left.fd, above.ino)
        _close(left)

    def _opened(self, name: str, parent: int, ino: int) -> int | None:
        """The directory that was seen there, and no other: it may have been moved or replaced since."""
        try:
            fd = os.open(name, _OPEN, dir_fd=parent)
        except OSError:
            return None
        found = os.fstat(fd)
        if (found.st_dev, found.st_ino) == (self._device, ino):
            return fd
        os.close(fd)
        return None

    def _look(self, level: _Level) -> None:
        assert level.fd is not None
        try:
            with os.scandir(level.fd) as entries:
                for entry in entries:
                    if self._stop.is_set():
                        return
                    self._count(entry, level.todo)
        except OSError as error:
            log.debug("a directory is counted in part: %s", error)

    def _count(self, entry: os.DirEntry[str], todo: list[tuple[str, int]]) -> None:
        try:
            found = entry.stat(follow_symlinks=False)
        except OSError:
            return
        if found.st_dev != self._device or found.st_ino in self._seen:
            return
        self._seen.add(found.st_ino)
        self._used += found.st_blocks * _BLOCK
        if stat.S_ISDIR(found.st_mode):
            todo.append((entry.name, found.st_ino))


def _close(level: _Level) -> None:
    if level.fd is not None:
        os.close(level.fd)
        level.fd = None


class DiskUsage:
    """The kept figures. `of` never waits; `refresh` counts what is missing or old."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._kept: dict[str, tuple[float, FsUsage]] = {}
        self._unreadable: set[str] = set()  # told once

    def of(self, path: str) -> FsUsage:
        kept = self._kept.get(path)
        return NO_FS_USAGE if kept is None else kept[1]

    async def refresh(self, paths: Iterable[str], kept_s: float = KEPT_S) -> None:
        """Exactly these are kept from now on; of one that cannot be read the last figures stay."""
        wanted = dict.fromkeys(paths)
        now_s = self._clock()
        old = [path for path in wanted if now_s - self._kept.get(path, (float("-inf"),))[0] >= kept_s]
        counted = await _counted_aside(old) if old else {}
        kept = {path: self._kept[path] for path in wanted if path in self._kept}
        for path, found in counted.items():
            if isinstance(found, FsUsage):
                kept[path] = (now_s, found)
            elif found is None:
                kept.pop(path, None)
            elif path not in self._unreadable:
                log.warning("%s cannot be counted, what was known of it counts on: %s", path, found)
        failed = {path for path, found in counted.items() if isinstance(found, OSError)}
        self._unreadable = {path for path in self._unreadable if path in wanted and path not in counted} | failed
        self._kept = kept


async def _counted_aside(paths: list[str]) -> dict[str, FsUsage | OSError | None]:
    stop = threading.Event()
    try:
        return await asyncio.to_thread(_counted, paths, stop)
    finally:
        stop.set()


def _counted(paths: list[str], stop: threading.Event) -> dict[str, FsUsage | OSError | None]:
    found: dict[str, FsUsage | OSError | None] = {}
    for path in paths:
        try:
            found[path] = tree_usage(path, stop)
        except OSError as error:
            found[path] = error
    return found


LAYERS_KEPT_S = 10.0
ANSWER_S = 1.0
NOTHING_USED = FsUsage(0, 0)

UsageRequest = Callable[[], Awaitable[Mapping[str, FsUsage]]]  # by container id


class WritableLayers:
    def __init__(self, ask: UsageRequest | None, clock: Callable[[], float]) -> None:
        """`ask` None: what containers write to their roots is on no disk."""
        self._ask, self._clock = ask, clock
        self._found: Mapping[str, FsUsage] = {}
        self._asked_s = float("-inf")
        self._asking: asyncio.Task[None] | None = None
        self._is_silent = False

    @property
    def unasked(self) -> FsUsage:
        """What is known of anybody without an answer."""
        return NOTHING_USED if self._ask is None else NO_FS_USAGE

    def of(self, container_id: str) -> FsUsage:
        return self._found.get(container_id, self.unasked)

    async def refresh(self, max_age_s: float) -> None:
        """New figures where those that are known are older than that; returns after a moment in any case."""
        if self._ask is None:
            return
        if self._asking is None:
            if 0 <= self._clock() - self._asked_s < min(max_age_s, LAYERS_KEPT_S):
                return
            self._asking = asyncio.create_task(self._answered(self._ask), name="writable layers")
        asking = self._asking
        await asyncio.wait([asking], timeout=ANSWER_S)
        if asking.done():
            self._asking = None
            asking.result()

    async def _answered(self, ask: UsageRequest) -> None:
        asked_s = self._clock()
        try:
            self._found = await ask()
        except RuntimeCallError as trouble:
            self._found = {}
            if not self._is_silent:
                log.warning("what containers have written to their own files counts as nothing: %s", trouble)
            self._is_silent = True
        else:
            self._is_silent = False
        self._asked_s = asked_s
