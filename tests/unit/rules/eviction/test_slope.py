"""How fast a signal falls and when it reaches its threshold."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from plimsoll.rules.eviction.slope import seconds_left, slope_per_s


@pytest.mark.parametrize(
    ("readings", "slope"),
    [
        pytest.param([], 0.0, id="none"),
        pytest.param([(5.0, 100.0)], 0.0, id="one"),
        pytest.param([(5.0, 100.0), (5.0, 50.0)], 0.0, id="one moment"),
        pytest.param([(0.0, 100.0), (10.0, 90.0), (20.0, 80.0)], -1.0, id="falls"),
        pytest.param([(0.0, 100.0), (10.0, 100.0), (20.0, 100.0)], 0.0, id="rests"),
        # Least squares by hand: Σ(t−10)(v−70) = −10·30 + 0·20 + 10·(−50) = −800; Σ(t−10)² = 200.
        pytest.param([(0.0, 100.0), (10.0, 90.0), (20.0, 20.0)], -4.0, id="burst at the end"),
    ],
)
def test_slope(readings: list[tuple[float, float]], slope: float) -> None:
    assert slope_per_s(readings) == pytest.approx(slope)


@pytest.mark.parametrize(
    ("distance", "slope", "left"),
    [
        pytest.param(30.0, -1.0, 30.0, id="falls"),
        pytest.param(30.0, 0.0, None, id="rests"),
        pytest.param(30.0, 2.0, None, id="rises"),
        pytest.param(0.0, 2.0, 0.0, id="met"),
        pytest.param(-5.0, -1.0, 0.0, id="beyond"),
    ],
)
def test_seconds_left(distance: float, slope: float, left: float | None) -> None:
    assert seconds_left(distance, slope) == left


@given(
    st.lists(st.integers(0, 10_000), min_size=2, max_size=20, unique=True),
    st.integers(-1000, 1000),
    st.integers(-(10**6), 10**6),
)
def test_the_slope_of_a_line_is_its_own(times: list[int], per_s: int, start: int) -> None:
    assume(max(times) - min(times) >= 1)
    readings = [(float(at), float(start + per_s * at)) for at in times]
    assert slope_per_s(readings) == pytest.approx(per_s, rel=1e-6, abs=1e-3)
