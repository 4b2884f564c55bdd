"""Space behind the log: written before SQLite needs it, bounded, and never in the way of what SQLite writes."""

from __future__ import annotations

import itertools
import resource
import shutil
import signal
from pathlib import Path

import pytest

from plimsoll.store.sqlite.log import SqliteLog
from plimsoll.store.sqlite.log_space import LogSpace
from plimsoll.store.store import Store
from tests.unit.store.bodies import crashed, delete, log_end, put, value_of

KIB = 1024


async def test_most_commits_do_not_make_the_file_longer(tmp_path: Path) -> None:
    log = tmp_path / "objects.db-wal"
    store = await Store.open(tmp_path)
    sizes = []
    for number in range(200):
        await store.change(f"/pods/default/p{number}", put("x" * 3000))
        sizes.append(log.stat().st_size)
    end = log_end(log)
    assert log.read_bytes()[end:].count(0) == log.stat().st_size - end > 0, "zeros, of which SQLite makes nothing"
    grown = sum(before != after for before, after in itertools.pairwise(sizes))
    assert grown <= 2 * (end // (64 * KIB)).bit_length(), "the space is doubled each time, not made for each commit"
    killed = crashed(tmp_path, tmp_path / "killed")
    await store.close()
    assert not log.exists(), "a clean end leaves no log"
    store = await Store.open(killed)
    assert (store.count(), store.fault) == (200, "")
    await store.close()


@pytest.mark.parametrize(
    ("size_kib", "room_kib"),
    [
        pytest.param(1, 65, id="at-least-64-KiB"),
        pytest.param(300, 600, id="as-much-again"),
        pytest.param(3000, 4024, id="at-most-1-MiB"),
    ],
)
def test_how_much_is_written(tmp_path: Path, size_kib: int, room_kib: int) -> None:
    log = tmp_path / "objects.db-wal"
    log.write_bytes(b"")
    space = LogSpace(tmp_path / "objects.db")
    log.write_bytes(b"x" * size_kib * KIB)
    space.extend()
    assert log.stat().st_size == room_kib * KIB
    space.extend()
    assert log.stat().st_size == room_kib * KIB, "there is enough until a commit makes it longer"
    log.write_bytes(b"x" * KIB)  # a checkpoint has made it shorter
    space.extend()
    assert log.stat().st_size == KIB
    space.close()


async def test_a_file_that_may_not_grow_is_left_as_sqlite_made_it(tmp_path: Path) -> None:
    store = await Store.open(tmp_path)
    await store.change("/pods/default/a", put("x"))
    limits, ignored = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    log = tmp_path / "objects.db-wal"
    space, size = LogSpace(tmp_path / "objects.db"), log.stat().st_size
    with log.open("ab") as file:
        file.write(bytes(KIB))
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + KIB, limits[1]))
        space.extend()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    assert log.stat().st_size == size + KIB
    space.close()
    await store.change("/pods/default/b", put("y"))
    assert store.count() == 2
    await store.close()


async def test_it_is_used_again_after_a_checkpoint(tmp_path: Path) -> None:
    store = await Store.open(tmp_path)
    for number in range(30):
        await store.change("/pods/default/a", put(f"{number}" + "x" * 3000))
    assert isinstance(store._log, SqliteLog)
    disk = store._log._writer._disk
    disk.move_log()
    disk.move_rest()
    size = (tmp_path / "objects.db-wal").stat().st_size
    await store.change("/pods/default/b", put("first of the second pass"))
    await store.change("/pods/default/a", delete)
    assert (tmp_path / "objects.db-wal").stat().st_size == size
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path, copy, ignore=shutil.ignore_patterns("copy", "lock"))
    await store.close()
    store = await Store.open(copy)
    assert [value_of(each) for each in store.list("")[1]] == ["first of the second pass"]
    await store.close()
