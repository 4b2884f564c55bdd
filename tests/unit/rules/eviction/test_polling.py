"""When to poll again: before memory can run out, and not more often than needed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.rules.eviction.polling import (
    ASSUMED_BYTES_PER_S,
    POLL_LEAST_S,
    POLL_MOST_S,
    RESTING_AFTER_S,
    RESTING_LEAST_S,
    RESTING_NOTIFIED_S,
    Trend,
    next_poll_s,
    pause_s,
    trend,
)

MIB, GIB = 1 << 20, 1 << 30


@pytest.mark.parametrize(
    ("found", "expected_s"),
    [
        (Trend(64 * GIB, 0.0), POLL_MOST_S),
        (Trend(768 * MIB, 0.0), 1.0),
        (Trend(768 * MIB, 0.0, falling_per_s=256 * MIB), 0.5),
        (Trend(1 * MIB, 1.0, moved_s=1.0), POLL_LEAST_S),
        (Trend(1 * MIB, 100.0, moved_s=1.0), RESTING_LEAST_S),
        (Trend(-1, 1.0, falling_per_s=1.0), POLL_LEAST_S),
        (Trend(-5 * MIB, 1.0), RESTING_LEAST_S),
    ],
    ids=[
        "far",
        "by the assumed rate",
        "twice the seen rate",
        "near",
        "near and at rest",
        "met, falling",
        "met, at rest",
    ],
)
def test_pause(found: Trend, expected_s: float) -> None:
    assert pause_s(found) == pytest.approx(expected_s)


def test_a_fall_is_believed_at_once_and_forgotten_slowly() -> None:
    first = trend(1000 * MIB, 0.0, None)
    falling = trend(800 * MIB, 1.0, first)
    assert falling.falling_per_s == 200 * MIB
    resting = trend(800 * MIB, 2.0, falling)
    assert resting.falling_per_s == 50 * MIB
    assert resting.moved_s == 1.0


def test_the_most_urgent_of_several_signals_decides() -> None:
    assert next_poll_s([Trend(64 * GIB, 0.0), Trend(768 * MIB, 0.0)]) == pytest.approx(1.0)
    assert next_poll_s([]) == POLL_MOST_S


@pytest.mark.parametrize(
    ("found", "expected_s"),
    [
        (Trend(64 * GIB, 0.0), POLL_MOST_S),
        (Trend(1 * MIB, 100.0, moved_s=1.0), RESTING_NOTIFIED_S),
        (Trend(1 * MIB, 1.0, moved_s=1.0), POLL_LEAST_S),
        (Trend(-5 * MIB, 100.0), RESTING_LEAST_S),
    ],
    ids=["far", "near and at rest", "near", "met"],
)
def test_pause_if_the_kernel_notifies_of_the_threshold(found: Trend, expected_s: float) -> None:
    assert pause_s(found, kernel_notifies=True) == expected_s
    assert next_poll_s([found], kernel_notifies=True) == expected_s


@given(distance=st.floats(0, 1e12), rate=st.floats(0, 1e12), rested_s=st.floats(0, 1000), kernel_notifies=st.booleans())
def test_several_polls_come_before_the_threshold(
    distance: float, rate: float, rested_s: float, kernel_notifies: bool
) -> None:
    found = Trend(distance, rested_s, rate, 0.0)
    pause = pause_s(found, kernel_notifies=kernel_notifies)
    assert POLL_LEAST_S <= pause <= POLL_MOST_S
    resting_s = RESTING_NOTIFIED_S if kernel_notifies else RESTING_LEAST_S
    least = resting_s if rested_s > RESTING_AFTER_S else POLL_LEAST_S
    assert pause <= max(least, distance / max(rate, ASSUMED_BYTES_PER_S) / 3 * (1 + 1e-9))
