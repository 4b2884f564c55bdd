"""What a directory and all below it take on disk, and how full its file system is.

Counting walks every file, so figures are kept and counted anew after a minute at the earliest, in a thread: a large
volume takes as long as its disk needs, and the agent must not wait for it. Nobody asks, nothing is counted.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable

import msgspec

from plimsoll.rules.usage import NO_FS_USAGE, FsUsage

KEPT_S = 60.0
_BLOCK = 512  # st_blocks counts these, whatever the file system's own are


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


def tree_usage(path: str) -> FsUsage | None:
    """Each file once, however many names it has; other file systems below are not entered, no link is followed."""
    try:
        top = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return None
    used, seen, todo = top.st_blocks * _BLOCK, {top.st_ino}, [path]
    while todo:
        try:
            entries = os.scandir(todo.pop())
        except (FileNotFoundError, NotADirectoryError):
            continue
        with entries:
            for entry in entries:
                try:
                    found = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                if found.st_dev != top.st_dev or found.st_ino in seen:
                    continue
                seen.add(found.st_ino)
                used += found.st_blocks * _BLOCK
                if entry.is_dir(follow_symlinks=False):
                    todo.append(entry.path)
    return FsUsage(used, len(seen))


class DiskUsage:
    """The kept figures. `of` never waits; `refresh` counts what is missing or old."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._kept: dict[str, tuple[float, FsUsage]] = {}

    def of(self, path: str) -> FsUsage:
        kept = self._kept.get(path)
        return NO_FS_USAGE if kept is None else kept[1]

    async def refresh(self, paths: Iterable[str], kept_s: float = KEPT_S) -> None:
        """Exactly these are kept from now on."""
        wanted = dict.fromkeys(paths)
        now_s = self._clock()
        old = [path for path in wanted if now_s - self._kept.get(path, (float("-inf"),))[0] >= kept_s]
        counted = await asyncio.to_thread(_counted, old) if old else {}
        kept = {path: self._kept[path] for path in wanted if path in self._kept and path not in counted}
        self._kept = kept | {path: (now_s, found) for path, found in counted.items() if found is not None}


def _counted(paths: list[str]) -> dict[str, FsUsage | None]:
    return {path: tree_usage(path) for path in paths}
