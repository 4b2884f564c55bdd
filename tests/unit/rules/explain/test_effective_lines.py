"""Lines that hold in an observed tree, and the time until one is reached."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.rules.explain.effective_lines import Lines, Slope, effective_lines, seconds_to

GI = 1 << 30


def test_protection_is_capped_and_divided() -> None:
    """Claims of 2Gi and 6Gi below a parent with 4Gi: 1Gi and 3Gi."""
    found = effective_lines(
        {"/k": Lines(4 * GI), "/k/a": Lines(2 * GI), "/k/b": Lines(6 * GI), "/k/b/c": Lines(8 * GI)}
    )
    assert [found[path].min_bytes // GI for path in ("/k", "/k/a", "/k/b", "/k/b/c")] == [4, 1, 3, 3]


def test_the_lowest_limit_above_holds() -> None:
    found = effective_lines({"/k": Lines(max_bytes=4), "/k/a": Lines(max_bytes=9, high_bytes=3), "/k/a/b": Lines()})
    assert (found["/k/a"].max_bytes, found["/k/a/b"].max_bytes, found["/k/a/b"].high_bytes) == (4, 4, 3)


_lines = st.builds(
    Lines, st.integers(0, GI), st.integers(0, GI), st.none() | st.integers(1, GI), st.none() | st.integers(1, GI)
)


@given(st.dictionaries(st.sampled_from(["/a", "/a/b", "/a/c", "/a/b/d", "/a/b/e"]), _lines, min_size=1))
def test_nothing_holds_more_than_it_declares_or_than_its_parent(declared: dict[str, Lines]) -> None:
    found = effective_lines(declared)
    assert found.keys() == declared.keys()
    for path, lines in found.items():
        assert lines.min_bytes <= declared[path].min_bytes and lines.low_bytes <= declared[path].low_bytes
        above = path.rpartition("/")[0]
        children = [found[each] for each in found if each.rpartition("/")[0] == path]
        assert sum(each.min_bytes for each in children) <= lines.min_bytes or not children
        if above in found and found[above].max_bytes is not None:
            assert lines.max_bytes is not None and lines.max_bytes <= found[above].max_bytes


@pytest.mark.parametrize(
    ("line", "used", "slope", "expected"),
    [(200, 100, 2.0, 50.0), (200, 100, 0.0, None), (100, 200, 5.0, None), (200, 100, -1.0, None)],
)
def test_seconds_to_a_line(line: int, used: int, slope: float, expected: float | None) -> None:
    assert seconds_to(line, used, slope) == expected


def test_slope_over_at_least_ten_seconds() -> None:
    state = Slope(0.0, 100, 0.0, 100)
    state, slope = state.read(0.5, 200)
    assert slope is None  # too soon
    state, slope = state.read(5.0, 150)
    assert slope == 10.0  # a first estimate
    state, slope = state.read(10.0, 200)
    assert slope == 10.0
    state, slope = state.read(20.0, 200)
    assert slope == 0.0  # since the reading ten seconds before, not since the start
    _, slope = state.read(1.0, 300)
    assert slope is None  # the clock was set back
