from __future__ import annotations

from pathlib import Path

import pytest

from plimsoll.cgroups.engine.journal import COMPACT_BYTES, Journal, JournalCorruptError, StateBusyError
from plimsoll.rules.cgroups.steps import Make, ObservedCgroup, Remove, Write

STEPS = (Make("/a"), Write("/a", "memory.max", "4096"), Write("/b", "cpu.weight", "5", "10"), Remove("/c"))
BEFORE = {"/c": ObservedCgroup({"memory.max": "max"}, 7)}


def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "state" / "journal.jsonl")


def test_an_unfinished_plan_is_read_with_all_old_values(tmp_path: Path) -> None:
    entry = journal(tmp_path).begin("pod shop/web", "boot", STEPS, BEFORE, ("/a",))
    found = journal(tmp_path).unfinished()
    assert found == entry and found is not None
    assert (found.subject, found.steps, found.before, found.containers) == ("pod shop/web", STEPS, BEFORE, ("/a",))


def test_an_ended_plan_is_not_unfinished_and_numbers_continue(tmp_path: Path) -> None:
    book = journal(tmp_path)
    assert book.unfinished() is None
    first = book.begin("a", "boot", STEPS, BEFORE)
    book.end(first, "made")
    assert book.unfinished() is None
    second = book.begin("b", "boot", STEPS, BEFORE)
    assert (first.number, second.number) == (1, 2)
    book.end(second, "undone")
    assert book.begin("c", "boot", (), {}, after=41).number == 42


def test_other_users_cannot_read_it(tmp_path: Path) -> None:
    book = journal(tmp_path)
    book.begin("a", "boot", STEPS, BEFORE)
    assert book.path.stat().st_mode & 0o777 == 0o600
    assert book.path.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("kept", [1, 40, -1], ids=["a-byte", "a-part", "all-but-the-newline"])
def test_an_incomplete_line_is_dropped(tmp_path: Path, kept: int) -> None:
    book = journal(tmp_path)
    first = book.begin("first", "boot", STEPS, BEFORE)
    book.end(first, "made")
    whole = book.path.read_bytes()
    book.begin("second", "boot", STEPS, BEFORE)
    torn = book.path.read_bytes()[len(whole) :][:kept]
    book.path.write_bytes(whole + torn)
    assert book.unfinished() is None
    third = book.begin("third", "boot", STEPS, BEFORE)
    assert book.unfinished() == third
    assert book.path.read_bytes().startswith(whole) and book.path.read_bytes().count(b"\n") == 3


def test_damage_in_the_middle_is_reported(tmp_path: Path) -> None:
    book = journal(tmp_path)
    book.end(book.begin("a", "boot", STEPS, BEFORE), "made")
    book.path.write_bytes(b'{"kind":"begin"}\n' + book.path.read_bytes())
    with pytest.raises(JournalCorruptError, match="line 1"):
        book.unfinished()


def test_a_long_journal_is_truncated_when_nothing_is_unfinished(tmp_path: Path) -> None:
    book = journal(tmp_path)
    many = tuple(Write(f"/cgroup-{number}", "memory.max", "4096", "max") for number in range(1000))
    for _ in range(3):
        book.end(book.begin("a", "boot", many, {}), "made")
    assert COMPACT_BYTES < book.path.stat().st_size < 2 * COMPACT_BYTES + 1000
    assert book.begin("b", "boot", (), {}).number == 4


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    assert not journal(tmp_path).is_locked()
    with journal(tmp_path).locked():
        assert journal(tmp_path).is_locked()
    assert not journal(tmp_path).is_locked()
    with (
        journal(tmp_path).locked(),
        pytest.raises(StateBusyError, match="another plimsoll"),
        journal(tmp_path).locked(),
    ):
        pass
    with journal(tmp_path).locked():
        pass
