"""Torn, cut, garbled and foreign files: opened with what was durable, or reported; never wrong data, never replaced."""

from __future__ import annotations

import asyncio
import hashlib
import random
import shutil
import sqlite3
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from plimsoll.store.errors import ExpiredError, StoreCorruptError, StoreNewerError, StoreUnavailableError
from plimsoll.store.records import Record
from plimsoll.store.sqlite.log import SqliteLog
from plimsoll.store.store import Store
from tests.unit.store.bodies import crashed, delete, log_end, put

FRAME_BYTES = 4096 + 24
Contents = tuple[int, tuple[Record, ...]]


async def _left_behind(directory: Path) -> list[Contents]:
    """A server that dies after some work, half of it moved out of the log; returns what there was at each version."""
    store = await Store.open(directory)
    states: list[Contents] = []

    async def work(count: int) -> None:
        for number in range(count):
            key = f"/pods/default/p{number % 17}"
            await store.change(key, delete if number % 11 == 10 else put(f"{number} " + "x" * (number * 37 % 3000)))
            states.append((store.version, tuple(store.list("")[1])))

    await work(30)
    assert isinstance(store._log, SqliteLog)
    await asyncio.to_thread(store._log._writer._disk.move_log)
    await work(90)
    crashed(directory, directory.with_name("crashed"))
    await store.close()
    return states


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Contents]]:
    root = tmp_path_factory.mktemp("damage")
    states = asyncio.run(_left_behind(root / "store"))
    return root / "crashed", states


def opened(directory: Path) -> Contents:
    async def read() -> Contents:
        store = await Store.open(directory)
        contents = store.version, tuple(store.list("")[1])
        await store.close()
        return contents

    return asyncio.run(read())


@pytest.fixture
def copy(left: tuple[Path, list[Contents]], tmp_path: Path) -> Iterator[Path]:
    directory = tmp_path / "copy"
    shutil.copytree(left[0], directory)
    yield directory


def test_after_a_crash_everything_is_there_and_versions_continue_above(
    copy: Path, left: tuple[Path, list[Contents]]
) -> None:
    async def check() -> None:
        (last, records), (earlier, then) = left[1][-1], left[1][-10]
        store = await Store.open(copy)
        assert tuple(store.list("")[1]) == records
        assert tuple(store.list_at("", earlier)[1]) == then
        assert len(await store.watch("", earlier).changes()) == 9
        assert store.version > last
        for lost in (last + 1, store.version - 1):  # a client has a version that this store does not know
            with pytest.raises(ExpiredError):
                store.watch("", lost)
            with pytest.raises(ExpiredError):
                store.list_at("", lost)
        record = await store.change("/pods/default/new", put(1))
        assert record is not None
        assert record.version == store.version > last
        assert [c.version for c in await store.watch("", last).changes()] == [record.version]
        version = store.version
        await store.close()
        store = await Store.open(copy)  # after a clean end there is no jump
        assert store.version == version
        with pytest.raises(ExpiredError):
            store.watch("", last + 1)
        await store.close()

    asyncio.run(check())


def test_a_log_cut_anywhere_leaves_a_state_that_once_was(copy: Path, left: tuple[Path, list[Contents]]) -> None:
    states = {records for _, records in left[1]}
    versions = {records: version for version, records in left[1]}
    wal = copy / "objects.db-wal"
    end = log_end(wal)
    whole = wal.read_bytes()
    assert len(whole) > end, "space behind the last frame"
    files = {file: file.read_bytes() for file in copy.iterdir()}
    found = []
    for keep in [0, 10, 32, 40, *range(32 + FRAME_BYTES, end, FRAME_BYTES * 7 + 1000), end - 1]:
        for file, data in files.items():
            file.write_bytes(data)
        wal.write_bytes(whole[:keep])
        version, records = opened(copy)
        assert records in states
        assert version > left[1][-1][0]  # a lost version is never used again
        found.append(versions[records])
    assert found == sorted(found)
    assert found[0] >= left[1][29][0]  # what had been moved out of the log does not depend on it
    assert found[-1] >= left[1][-2][0]  # cutting the last byte costs the last transaction at most


def test_a_torn_last_transaction_is_ignored(copy: Path, left: tuple[Path, list[Contents]]) -> None:
    with (copy / "objects.db-wal").open("r+b") as wal:
        wal.seek(log_end(copy / "objects.db-wal") - 2000)
        wal.write(random.Random(1).randbytes(2000))
    assert opened(copy)[1] == left[1][-2][1]


@pytest.mark.parametrize("place", [pytest.param(20, id="header"), pytest.param(32 + FRAME_BYTES * 9 + 500, id="frame")])
def test_damage_in_the_middle_of_the_log_is_not_taken_for_its_end(copy: Path, place: int) -> None:
    wal = copy / "objects.db-wal"
    with wal.open("r+b") as file:
        file.seek(place)
        (byte,) = file.read(1)
        file.seek(place)
        file.write(bytes([byte ^ 0x10]))
    before = {file.name: file.read_bytes() for file in copy.iterdir() if file.name.startswith("objects.db")}
    with pytest.raises(
        StoreCorruptError, match=r"objects.db-wal is damaged: [0-9]+ transactions behind a damaged place"
    ):
        opened(copy)
    assert {name: (copy / name).read_bytes() for name in before} == before


def test_a_garbled_database_is_reported_or_harmless_never_wrong(copy: Path, left: tuple[Path, list[Contents]]) -> None:
    """One to eight flipped bytes at 150 seeded places: either damage is reported or the contents are the true ones."""
    opened(copy)  # moves the log into the database
    path = copy / "objects.db"
    sound = path.read_bytes()
    truth = left[1][-1][1]
    chance = random.Random(7)
    reported = 0
    for _ in range(150):
        data = bytearray(sound)
        place = chance.randrange(len(data) - 8)
        data[place : place + 8] = chance.randbytes(8)
        for file in copy.iterdir():
            file.unlink()
        path.write_bytes(data)
        try:
            _, records = opened(copy)
        except StoreCorruptError as error:
            reported += 1
            assert "restore the newest backup with `plimsoll api restore FILE`" in str(error)
            assert path.read_bytes() == data, "a damaged store must stay as it is"
        else:
            assert records == truth
    assert reported > 30


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _missing(path: Path) -> None:
    path.unlink()


def _half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _text(path: Path) -> None:
    path.write_text("not a database, but long enough to be read as one" * 100)


def _foreign(path: Path) -> None:
    path.unlink()
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE song (title)")
    connection.commit()
    connection.close()


def _statement(statement: str) -> object:
    def execute(path: Path) -> None:
        connection = sqlite3.connect(path)
        connection.execute(statement)
        connection.commit()
        connection.close()

    return execute


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        pytest.param(_empty, "it is empty", id="empty file"),
        pytest.param(_missing, r"it is missing while objects.db-wal is there", id="missing beside its log"),
        pytest.param(_half, "malformed|Page", id="half of it"),
        pytest.param(_text, "malformed|not a database", id="text"),
        pytest.param(_foreign, "not a Plimsoll database", id="another program's"),
        pytest.param(_statement("DELETE FROM object WHERE id = (SELECT max(id) FROM object)"), "14 objects where 15 were written", id="a row is missing"),
        pytest.param(_statement("UPDATE object SET body = x'7b7d'"), "wrong checksum", id="another body"),
        pytest.param(_statement("UPDATE object SET body = 5"), "wrong checksum", id="a body of another type"),
        pytest.param(_statement("UPDATE object SET key = 7"), "wrong checksum", id="a key of another type"),
        pytest.param(_statement("UPDATE object SET key = CAST(x'ff' AS TEXT)"), "decode", id="a key that is no text"),
        pytest.param(_statement("UPDATE change SET before = NULL"), "wrong checksum", id="another past"),
        pytest.param(_statement("DELETE FROM change WHERE version % 2"), "does not lead to", id="half of the past"),
        pytest.param(_statement("DROP TABLE change"), "no such table", id="no past"),
        pytest.param(_statement("UPDATE state SET version = version - 50"), "state row", id="an older version"),
        pytest.param(_statement("DELETE FROM state"), "state row", id="no state"),
    ],
)  # fmt: skip
def test_damage_is_named_and_nothing_is_changed(copy: Path, damage: object, found: str) -> None:
    assert callable(damage)
    damage(copy / "objects.db")

    def digests() -> dict[str, str]:
        names = ("objects.db", "objects.db-wal")
        files = [copy / name for name in names if (copy / name).exists()]
        return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}

    before = digests()
    with pytest.raises(StoreCorruptError, match=found):
        opened(copy)
    if "objects.db-wal" in before:  # else SQLite may have made and removed an empty one
        assert digests() == before
    else:
        assert digests()["objects.db"] == before["objects.db"]


def test_a_newer_schema_is_left_to_the_newer_version(copy: Path) -> None:
    connection = sqlite3.connect(copy / "objects.db")
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(StoreNewerError, match="schema 99, this version knows up to 1: run the newer version again"):
        opened(copy)


def test_a_failing_open_releases_the_lock(copy: Path, left: tuple[Path, list[Contents]]) -> None:
    path = copy / "objects.db"
    sound = path.read_bytes()
    path.write_bytes(b"")
    with pytest.raises(StoreCorruptError):
        opened(copy)
    path.write_bytes(sound)
    assert opened(copy)[1] == left[1][-1][1]


def test_a_store_that_cannot_be_opened_is_not_called_damaged(tmp_path: Path) -> None:
    (tmp_path / "objects.db").mkdir()
    with pytest.raises(StoreUnavailableError, match=r"can't be opened: .*Check that its directory"):
        opened(tmp_path)


def test_frames_are_as_long_as_this_file_says(left: tuple[Path, list[Contents]]) -> None:
    header = (left[0] / "objects.db-wal").read_bytes()[:32]
    assert struct.unpack(">8I", header)[2] + 24 == FRAME_BYTES
