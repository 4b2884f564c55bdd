"""Whom the kernel kills first: share in thousandths plus the adjustment."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.rules.oom.order import OomCandidate, oom_order

GIB = 1 << 30


def candidate(name: str, used: int | None, adj: int) -> OomCandidate:
    return OomCandidate(name, used, adj)


ROWS = [
    ("the larger", [candidate("a", GIB, 0), candidate("b", 2 * GIB, 0)], ["b", "a"]),
    ("BestEffort before a much larger Guaranteed", [candidate("g", 7 * GIB, -997), candidate("b", 1, 1000)], ["b", "g"]),
    ("within its request: killed last", [candidate("in", GIB, 875), candidate("over", 2 * GIB, 875)], ["over", "in"]),
    ("exempt at the end", [candidate("e", 8 * GIB, -1000), candidate("k", 1, -999)], ["k", "e"]),
    ("equal keep their order", [candidate("a", GIB, 0), candidate("b", GIB, 0)], ["a", "b"]),
    ("unknown counts as nothing", [candidate("a", None, 0), candidate("b", GIB, 0)], ["b", "a"]),
]  # fmt: skip


@pytest.mark.parametrize(("given_", "order"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_order(given_: list[OomCandidate], order: list[str]) -> None:
    assert [rank.candidate.name for rank in oom_order(given_, 8 * GIB)] == order


def test_points() -> None:
    (rank,) = oom_order([candidate("a", GIB, 875)], 8 * GIB)
    assert (rank.share, rank.points, rank.exempt) == (125, 1000, False)


@given(st.lists(st.tuples(st.integers(0, 1 << 40), st.integers(-1000, 1000))), st.integers(1, 1 << 45))
def test_all_candidates_are_listed_by_points(amounts: list[tuple[int, int]], memory: int) -> None:
    order = oom_order([candidate(str(index), *each) for index, each in enumerate(amounts)], memory)
    assert sorted(int(rank.candidate.name) for rank in order) == list(range(len(amounts)))
    points = [rank.points for rank in order if not rank.exempt]
    assert points == sorted(points, reverse=True)
