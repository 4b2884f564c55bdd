"""Tables and texts on a terminal: they fit it; in a pipe they keep their width."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.cli import terminal
from plimsoll.cli.terminal import LEAST_CELL, aligned, display_width, fitted, hanging, table

ROW = ("web-7d4b9c6f5-x2k5z", "a message of several words that does not fit into one line of the terminal")


def on(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setattr(terminal, "screen_width", lambda: columns)


def test_a_pipe_has_the_full_width() -> None:
    assert list(table([ROW])) == ["  ".join(ROW)]
    assert hanging(ROW[1], 10) == ROW[1]


def test_the_last_column_is_wrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    on(monkeypatch, 60)
    assert list(table([ROW], ("NAME", "MESSAGE"))) == [
        "NAME                 MESSAGE",
        "web-7d4b9c6f5-x2k5z  a message of several words that does",
        "                     not fit into one line of the terminal",
    ]


def test_other_cells_are_cut_in_the_middle(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a pod's name tells it from others."""
    on(monkeypatch, 30)
    (line,) = table([(ROW[0], ROW[0], "1")])
    assert display_width(line) <= 30
    assert line.count("…") == 2
    assert all(word.startswith("web-") and word.endswith("z") for word in line.split()[:2])


@given(st.lists(st.integers(0, 60), min_size=1, max_size=8), st.integers(20, 200))
def test_columns_fit_or_stay(widths: list[int], screen: int) -> None:
    found = fitted(widths, screen)
    assert len(found) == len(widths)
    assert all(new <= old for new, old in zip(found, widths, strict=True))
    if found != widths:
        assert sum(found) + 2 * (len(found) - 1) <= max(screen, 24 + 8 * LEAST_CELL)
        assert all(new == old or new >= LEAST_CELL for new, old in zip(found, widths, strict=True))


@given(
    st.lists(st.lists(st.text("ab cd-…名", min_size=1, max_size=60), min_size=3, max_size=3), min_size=1, max_size=4)
)
def test_no_line_is_wider_than_the_terminal(rows: list[list[str]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(terminal, "screen_width", lambda: 80)
        widths = [max(display_width(row[column]) for row in rows) for column in range(3)]
        assert all(display_width(line) <= 80 for line in aligned(rows, widths, "   "))


def test_a_long_value_continues_below_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    on(monkeypatch, 40)
    assert hanging("one two three four five six seven", 14) == "one two three four five\n              six seven"
