"""Counting directories that others fill: nested without end, moved meanwhile, unreadable. `test_stats.py` has the rest."""

from __future__ import annotations

import asyncio
import os
import resource
import threading
from pathlib import Path

import pytest

from plimsoll.linux.files.safe_tree import remove_tree
from plimsoll.node.stats import disk_usage
from plimsoll.node.stats.disk_usage import MAX_OPEN, DiskUsage, _Walk, tree_usage
from plimsoll.rules.eviction.usage import NO_FS_USAGE


def nested(directory: Path, depth: int, name: str) -> None:
    """Directories in each other, deeper than a path can say, with a file in the last and one in the middle."""
    here = os.open(directory, os.O_RDONLY)
    for level in range(depth):
        os.mkdir(name, dir_fd=here)
        if level in (depth // 2, depth - 1):
            os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=here))
        below = os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)


@pytest.mark.parametrize(("depth", "name"), [(25, "a" * 200), (3000, "d")], ids=["long names", "very deep"])
def test_directories_nested_deeper_than_a_path_are_counted(depth: int, name: str, tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    (volume / "beside").mkdir(parents=True)
    (volume / "beside" / "file").touch()
    nested(volume, depth, name)
    open_before = len(os.listdir("/proc/self/fd"))
    try:
        found = tree_usage(str(volume))
        assert found is not None and found.inodes == 1 + 2 + depth + 2
        assert len(os.listdir("/proc/self/fd")) == open_before
    finally:
        parent = os.open(tmp_path, os.O_RDONLY)
        remove_tree(parent, "volume")  # no other can
        os.close(parent)


def test_a_walk_keeps_few_directories_open(tmp_path: Path) -> None:
    nested(tmp_path, 300, "d")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + MAX_OPEN + 5, hard))
    try:
        found = tree_usage(str(tmp_path))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert found is not None and found.inodes == 1 + 300 + 2


async def test_a_directory_that_cannot_be_read_keeps_its_figures_and_the_others_are_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    now_s, above, fine = 0.0, tmp_path / "above", tmp_path / "fine"
    bad = above / "bad"
    bad.mkdir(parents=True)
    fine.mkdir()
    disks = DiskUsage(lambda: now_s)
    await disks.refresh([str(bad), str(fine)])
    known = disks.of(str(bad))
    assert known.inodes == 1
    bad.rmdir()
    above.rmdir()
    above.symlink_to("above")  # whatever is asked for below it: too many levels of links
    (fine / "more").touch()
    for _ in range(2):
        now_s += 60.0
        await disks.refresh([str(bad), str(fine)])
        assert disks.of(str(fine)).inodes == 2
        assert disks.of(str(bad)) == known
    assert [str(bad) in each.message for each in caplog.records] == [True]
    above.unlink()
    await disks.refresh([str(bad)], 0.0)
    assert disks.of(str(bad)) == NO_FS_USAGE


def test_a_directory_that_is_moved_during_the_walk_is_counted_once(tmp_path: Path) -> None:
    """Below the directories that stay open, where the way back is opened again."""
    nested(tmp_path, MAX_OPEN + 20, "d")
    walk = _Walk(os.open(tmp_path, os.O_RDONLY), threading.Event())
    deep = tmp_path.joinpath(*["d"] * (MAX_OPEN + 10))
    real_enter, entered = walk._enter, 0

    def enter(parent: int, name: str, ino: int) -> None:
        nonlocal entered
        entered += 1
        real_enter(parent, name, ino)
        if entered == MAX_OPEN + 15:
            deep.rename(tmp_path / "elsewhere")

    walk._enter = enter  # type: ignore[method-assign]
    with walk:
        found = walk.usage()
    assert found.inodes == 1 + MAX_OPEN + 20 + 2


async def test_who_asked_and_is_gone_ends_the_walk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    began, stopped = threading.Event(), threading.Event()

    def slow(path: str, stop: threading.Event) -> None:
        began.set()
        if stop.wait(20):
            stopped.set()

    monkeypatch.setattr(disk_usage, "tree_usage", slow)
    asking = asyncio.create_task(DiskUsage(lambda: 0.0).refresh([str(tmp_path)]))
    await asyncio.to_thread(began.wait, 20)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert await asyncio.to_thread(stopped.wait, 20)


def test_a_stopped_walk_reads_nothing_more(tmp_path: Path) -> None:
    nested(tmp_path, 3, "d")
    stop = threading.Event()
    stop.set()
    found = tree_usage(str(tmp_path), stop)
    assert found is not None and found.inodes == 1
