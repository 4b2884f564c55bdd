"""Batches of every size are on disk as they were given, in one statement or in several."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path

import msgspec
import pytest

from plimsoll.store.records import Change, Record
from plimsoll.store.sqlite.batch import Batch
from plimsoll.store.sqlite.disk import Contents, Disk
from plimsoll.store.sqlite.files import DATABASE, make_directory


class Written:
    """A database, and what it must contain."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        make_directory(directory)
        self.disk, _ = Disk.open(directory)
        self.records: dict[str, Record] = {}
        self.changes: list[Change] = []
        self.version = self.disk.state.version

    def change(self, key: str, *, deletes: bool = False) -> Change:
        """The next one of a key."""
        self.version += 1
        version, was = self.version, self.records.pop(key, None)
        body = f"{version} of {key}".encode() * 100
        if was is None:
            change = Change(version, "ADDED", key, body, None, 0, version)
        elif deletes:
            change = Change(version, "DELETED", key, body, was.body, was.version, was.created)
        else:
            change = Change(version, "MODIFIED", key, body, was.body, was.version, was.created)
        if change.kind != "DELETED":
            self.records[key] = Record(key, version, body, change.created)
        self.changes.append(change)
        return change

    def write(self, changes: list[Change], forgotten: int = 0) -> None:
        oldest = max(self.disk.state.oldest, forgotten)
        state = msgspec.structs.replace(self.disk.state, version=self.version, oldest=oldest, objects=len(self.records))
        self.disk.write(Batch(changes, state))
        self.changes = [each for each in self.changes if each.version > oldest]

    def check(self) -> None:
        self.disk.abandon()
        self.disk, found = Disk.open(self.directory)
        assert {each.key: each for each in found.records} == self.records
        assert found.changes == self.changes
        assert found.state.objects == len(self.records)
        assert self.disk.lost == ""


@pytest.mark.parametrize("forgets", [False, True])
@pytest.mark.parametrize("size", [1, 2, 15, 16, 17, 33, 64, 65, 150])
def test_batches(tmp_path: Path, size: int, forgets: bool) -> None:
    written, chance = Written(tmp_path / "store"), random.Random(size)
    for _ in range(4):
        some = [
            written.change(f"/pods/default/p{chance.randrange(size)}", deletes=chance.random() < 0.4)
            for _ in range(size)
        ]
        written.write(some, written.version - size // 2 if forgets else 0)
    written.check()


def test_one_key_many_times_in_a_batch(tmp_path: Path) -> None:
    written = Written(tmp_path / "store")
    some = [written.change("/pods/default/p", deletes=deletes) for deletes in (False, False, True, False, True, False)]
    assert [each.kind for each in some] == ["ADDED", "MODIFIED", "DELETED", "ADDED", "DELETED", "ADDED"]
    written.write(some)
    written.check()


@pytest.mark.parametrize("size", [3, 40])
def test_a_batch_that_fails_leaves_nothing(tmp_path: Path, size: int) -> None:
    written = Written(tmp_path / "store")
    written.write([written.change("/pods/default/first")])
    version, records, changes = written.version, {**written.records}, [*written.changes]
    some = [written.change(f"/pods/default/p{number}") for number in range(size)]
    with pytest.raises(sqlite3.IntegrityError):  # the last one has the version of the one before it
        written.write([*some, msgspec.structs.replace(some[-1], key="/pods/default/other")])
    written.disk.abandon()
    found = Contents(tmp_path / "store" / DATABASE)
    assert found.state.version == version
    assert {each.key: each for each in found.records} == records
    assert found.changes == changes
