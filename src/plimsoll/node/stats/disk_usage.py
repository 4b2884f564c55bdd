"""Disk usage of directory trees and of file systems, and of the writable layers of containers (04 §1.2).

Measuring a directory walks every file, so results are cached and measured again when they are older than the caller's
max_age, in a thread: a large volume may be slow, and the agent must not wait for it. Nothing is measured without a
request, and a measurement whose caller was cancelled is stopped.

Writable layers are measured by the runtime, about every ten seconds, and read from it on request. A slow answer is
waited for a short time only and used when it arrives. Without an answer the agent logs a warning and counts the layers
as empty.
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

MAX_AGE_S = 60.0
MAX_OPEN = 32  # directories of one walk; deeper ones are opened again on the way back
_BLOCK = 512  # the unit of st_blocks on every file system
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
    """The file system of `path`; None where the path does not exist."""
    try:
        status = os.statvfs(path)
    except FileNotFoundError:
        return None
    size = status.f_frsize
    return FileSystem(
        status.f_blocks * size,
        status.f_bavail * size,
        (status.f_blocks - status.f_bfree) * size,
        status.f_files,
        status.f_ffree,
    )


def tree_usage(path: str, stop: threading.Event | None = None) -> FsUsage | None:
    """Counts each file once, however many names it has; does not enter other file systems nor follow links.

    What cannot be read, or is removed meanwhile, is skipped. Raises OSError where `path` itself cannot be read; None
    where it does not exist. `stop` ends the walk early, with the count so far.
    """
    try:
        top = os.open(path, _OPEN)
    except (FileNotFoundError, NotADirectoryError):
        return None
    with _Walk(top, stop or threading.Event()) as walk:
        return walk.usage()


class _Level(msgspec.Struct):
    """A directory between the top and the current position, and its subdirectories that are still to be entered."""

    fd: int | None  # None: closed on the way down, opened again from below
    ino: int
    todo: list[tuple[str, int]]  # name, inode


class _Walk:
    """Depth first, by names in open directories: a volume may be nested deeper than any path can be long.

    The upper directories stay open, and of those below them only the current one: from there the way back is `..`,
    which is checked to be the directory that the walk came from.
    """

    def __init__(self, top: int, stop: threading.Event) -> None:
        self._stop = stop
        status = os.fstat(top)
        self._device, self._used, self._inodes = status.st_dev, status.st_blocks * _BLOCK, {status.st_ino}
        self._levels = [_Level(top, status.st_ino, [])]

    def __enter__(self) -> _Walk:
        return self

    def __exit__(self, *_: object) -> None:
        for level in self._levels:
            _close(level)

    def usage(self) -> FsUsage:
        self._read(self._levels[-1])
        while self._levels and not self._stop.is_set():
            level = self._levels[-1]
            if level.fd is None or not level.todo:
                self._leave()
            else:
                self._enter(level.fd, *level.todo.pop())
        return FsUsage(self._used, len(self._inodes))

    def _enter(self, parent: int, name: str, ino: int) -> None:
        fd = self._open(name, parent, ino)
        if fd is None:
            return
        level = _Level(fd, ino, [])
        self._read(level)
        if not level.todo:
            os.close(fd)
            return
        if len(self._levels) >= MAX_OPEN:
            _close(self._levels[-1])
        self._levels.append(level)

    def _leave(self) -> None:
        level = self._levels.pop()
        above = self._levels[-1] if self._levels else None
        if above is not None and above.fd is None and level.fd is not None:
            above.fd = self._open("..", level.fd, above.ino)
        _close(level)

    def _open(self, name: str, parent: int, ino: int) -> int | None:
        """Open the directory only if it is still the same one: it may have been moved or replaced."""
        try:
            fd = os.open(name, _OPEN, dir_fd=parent)
        except OSError:
            return None
        status = os.fstat(fd)
        if (status.st_dev, status.st_ino) == (self._device, ino):
            return fd
        os.close(fd)
        return None

    def _read(self, level: _Level) -> None:
        assert level.fd is not None
        try:
            with os.scandir(level.fd) as entries:
                for entry in entries:
                    if self._stop.is_set():
                        return
                    self._count(entry, level.todo)
        except OSError as error:
            log.debug("a directory is only partly counted: %s", error)

    def _count(self, entry: os.DirEntry[str], todo: list[tuple[str, int]]) -> None:
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError:
            return
        if status.st_dev != self._device or status.st_ino in self._inodes:
            return
        self._inodes.add(status.st_ino)
        self._used += status.st_blocks * _BLOCK
        if stat.S_ISDIR(status.st_mode):
            todo.append((entry.name, status.st_ino))


def _close(level: _Level) -> None:
    if level.fd is not None:
        os.close(level.fd)
        level.fd = None


class DiskUsage:
    """Cached usage of directories. `of` never waits; `refresh` measures what is missing or old."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._cache: dict[str, tuple[float, FsUsage]] = {}
        self._unreadable: set[str] = set()  # logged once

    def of(self, path: str) -> FsUsage:
        cached = self._cache.get(path)
        return NO_FS_USAGE if cached is None else cached[1]

    async def refresh(self, paths: Iterable[str], max_age_s: float = MAX_AGE_S) -> None:
        """Cache exactly these from now on; one that cannot be read keeps its last usage."""
        wanted = dict.fromkeys(paths)
        now_s = self._clock()
        old = [path for path in wanted if now_s - self._cache.get(path, (float("-inf"),))[0] >= max_age_s]
        results = await _measure_in_thread(old) if old else {}
        cache = {path: self._cache[path] for path in wanted if path in self._cache}
        for path, result in results.items():
            if isinstance(result, FsUsage):
                cache[path] = (now_s, result)
            elif result is None:
                cache.pop(path, None)
            elif path not in self._unreadable:
                log.warning("%s cannot be measured, using its last usage: %s", path, result)
        failed = {path for path, result in results.items() if isinstance(result, OSError)}
        self._unreadable = {path for path in self._unreadable if path in wanted and path not in results} | failed
        self._cache = cache


async def _measure_in_thread(paths: list[str]) -> dict[str, FsUsage | OSError | None]:
    stop = threading.Event()
    try:
        return await asyncio.to_thread(_measure, paths, stop)
    finally:
        stop.set()


def _measure(paths: list[str], stop: threading.Event) -> dict[str, FsUsage | OSError | None]:
    results: dict[str, FsUsage | OSError | None] = {}
    for path in paths:
        try:
            results[path] = tree_usage(path, stop)
        except OSError as error:
            results[path] = error
    return results


LAYERS_MAX_AGE_S = 10.0
ANSWER_S = 1.0
NOTHING_USED = FsUsage(0, 0)

UsageRequest = Callable[[], Awaitable[Mapping[str, FsUsage]]]  # by container id


class WritableLayers:
    def __init__(self, read: UsageRequest | None, clock: Callable[[], float]) -> None:
        """`read`: reads them from the runtime; None where root file systems are not on disk."""
        self._read, self._clock = read, clock
        self._layers: Mapping[str, FsUsage] = {}
        self._read_s = float("-inf")
        self._reading: asyncio.Task[None] | None = None
        self._has_failed = False

    @property
    def default(self) -> FsUsage:
        """The usage of a container that the runtime has not reported."""
        return NOTHING_USED if self._read is None else NO_FS_USAGE

    def of(self, container_id: str) -> FsUsage:
        return self._layers.get(container_id, self.default)

    async def refresh(self, max_age_s: float) -> None:
        """Read them again where they are older than that; returns within `ANSWER_S` in any case."""
        if self._read is None:
            return
        if self._reading is None:
            if 0 <= self._clock() - self._read_s < min(max_age_s, LAYERS_MAX_AGE_S):
                return
            self._reading = asyncio.create_task(self._update(self._read), name="writable layers")
        reading = self._reading
        await asyncio.wait([reading], timeout=ANSWER_S)
        if reading.done():
            self._reading = None
            reading.result()

    async def _update(self, read: UsageRequest) -> None:
        read_s = self._clock()
        try:
            self._layers = await read()
        except RuntimeCallError as error:
            self._layers = {}
            if not self._has_failed:
                log.warning("writable layers cannot be read and are counted as empty: %s", error)
            self._has_failed = True
        else:
            self._has_failed = False
        self._read_s = read_s
