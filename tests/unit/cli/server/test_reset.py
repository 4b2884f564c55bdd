"""`plimsoll reset`: the question before anything is removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from plimsoll.cli.console import INTERRUPTED
from tests.unit.console import run

NOTHING = "nothing was changed"


@pytest.fixture
def state(tmp_path: Path) -> Path:
    (tmp_path / "store").mkdir()
    (tmp_path / "address").write_text("127.0.0.1:6443")
    return tmp_path


def test_no_removes_nothing(state: Path) -> None:
    ran = run("reset", "--state-dir", str(state), stdin="n\n")
    assert (ran.code, ran.err) == (1, f"{NOTHING}\n")
    assert (state / "address").exists()


def test_without_an_answer_it_says_how_to_give_one(state: Path) -> None:
    ran = run("reset", "--state-dir", str(state), stdin="")
    assert (ran.code, ran.err) == (INTERRUPTED, f"\n{NOTHING}; --yes removes it without a question\n")
    assert (state / "address").exists()


def test_yes_removes(state: Path) -> None:
    assert run("reset", "--state-dir", str(state), "--yes").code == 0
    assert not (state / "address").exists()
