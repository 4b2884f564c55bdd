"""The supervisor's journal: what is there after a crash at any byte."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from plimsoll.runtime.supervisor.journal import SupervisorJournal, latest


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path, os.O_RDONLY)
    yield fd
    os.close(fd)


def test_the_newest_record_of_each_id_is_read(directory: int, tmp_path: Path) -> None:
    journal = SupervisorJournal(directory)
    assert journal.read() == {}
    journal.begin([{"id": "a", "n": 1}, {"id": "b", "n": 1}])
    journal.append({"id": "a", "n": 2}, durable=True)
    journal.append({"id": "b", "gone": True})
    journal.sync()
    assert SupervisorJournal(directory).read() == {"a": {"id": "a", "n": 2}}
    assert (tmp_path / "journal").stat().st_mode & 0o777 == 0o600


def test_a_torn_end_loses_only_itself(directory: int, tmp_path: Path) -> None:
    journal = SupervisorJournal(directory)
    journal.begin([])
    journal.append({"id": "a", "code": 7})
    journal.append({"id": "b", "code": 8})
    whole = (tmp_path / "journal").read_bytes()
    first = whole.index(b"\n") + 1
    for length in range(first, len(whole) - 1):
        (tmp_path / "journal").write_bytes(whole[:length])
        assert SupervisorJournal(directory).read() == {"a": {"id": "a", "code": 7}}


@pytest.mark.parametrize("line", [b"\xff\xfe\n", b"[]\n", b"{}\n", b'{"id": 3}\n', b"\n", b"null\n"])
def test_foreign_lines_are_passed_over(line: bytes) -> None:
    assert latest([line, b'{"id": "a"}\n']) == {"a": {"id": "a"}}


def test_it_is_rewritten_when_most_of_it_is_stale(directory: int, tmp_path: Path) -> None:
    journal = SupervisorJournal(directory)
    journal.begin([])
    count = 0
    while not journal.is_stale(live=1):
        journal.append({"id": "a", "n": count})
        count += 1
    assert count < 1000
    journal.begin([{"id": "a", "n": count}])
    assert not journal.is_stale(live=1)
    assert SupervisorJournal(directory).read() == {"a": {"id": "a", "n": count}}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["journal"]
