"""Values that `plimsoll attach` has set are no differences; others still are. The journal as the audit reads it."""

from __future__ import annotations

from pathlib import Path

import pytest

from plimsoll.attach.journal import AttachJournal
from plimsoll.audit import attached
from plimsoll.rules.attach.writes import Entry
from tests.unit.rules.audit.nodes import answer, bent, healthy, path_of, with_file, with_record


@pytest.mark.parametrize(
    ("observed", "wanted", "found"),
    [
        ("400000000", {"memory.high": "400001024"}, 0),
        ("400000000", {"memory.high": "500000000"}, 1),
        ("400000000", {}, 1),
    ],
    ids=["ours", "overwritten", "not ours"],
)
def test_values_of_attach_are_not_reported(observed: str, wanted: dict[str, str], found: int) -> None:
    """400000000 and 400001024 are the same number of pages."""
    node = bent(healthy(), with_file("container", "memory.high", observed))
    node = bent(node, with_record(attached={path_of(node, "container"): wanted}))
    assert len(answer(node, "A04").findings) == found


def test_the_journal_of_this_boot(tmp_path: Path) -> None:
    state = tmp_path / "s"
    assert attached.attached_values(state) == {}
    journal = AttachJournal(state)
    journal.open(attached.BOOT_ID.read_text().strip())
    journal.record([Entry("/kubepods", "memory.low", "0", "4096", 1)])
    assert attached.attached_values(state) == {"/kubepods": {"memory.low": "4096"}}  # while attach runs
    journal.close()
    journal.open("another boot")
    assert attached.attached_values(state) == {}
    (state / "journal").write_bytes(b"nonsense\n")
    assert attached.attached_values(state) == {}
