"""Back-off of restarts and pulls (04 §11)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.rules.lifecycle.backoff import (
    DEFAULT_LIMITS,
    REDUCED_LIMITS,
    BackoffLimits,
    backoff_key,
    crash_limits,
    crash_message,
    next_backoff,
    next_pull_backoff,
    pull_message,
    pull_waits_until_s,
    waits_until_s,
)
from plimsoll.rules.model.objects import Container, Metadata, Resources
from plimsoll.rules.model.observed import Backoff
from plimsoll.rules.profile import profile_named
from plimsoll.rules.quantity import QUANTITIES

GATES = {"ReduceDefaultCrashLoopBackOffDecay": False, "KubeletCrashLoopBackOffMax": True}
FIXED, REDUCED = {**GATES, "KubeletCrashLoopBackOffMax": False}, {**GATES, "ReduceDefaultCrashLoopBackOffDecay": True}

SEQUENCES = [
    pytest.param(DEFAULT_LIMITS, [10, 20, 40, 80, 160, 300, 300], id="default"),
    pytest.param(REDUCED_LIMITS, [1, 2, 4, 8, 16, 32, 60, 60], id="reduced"),
    pytest.param(crash_limits(GATES, 5), [5, 5, 5], id="max below the first"),
    pytest.param(crash_limits(FIXED, 25), [10, 20, 40], id="not configurable"),
    pytest.param(crash_limits(REDUCED, 300), [1, 2, 4, 8, 16, 32, 60, 60], id="reduced by its gate"),
    pytest.param(crash_limits(REDUCED, 5), [1, 2, 4, 5, 5], id="reduced, max 5 s"),
    pytest.param(crash_limits(GATES, 25), [10, 20, 25, 25], id="max 25 s"),
]


@pytest.mark.parametrize(("limits", "delays"), SEQUENCES)
def test_sequences(limits: BackoffLimits, delays: list[float]) -> None:
    entry, now_s = None, 1000.0
    for delay_s in delays:
        entry = next_backoff(entry, now_s, now_s, limits)
        assert (entry.delay_s, entry.updated_s) == (delay_s, now_s)
        assert waits_until_s(entry, now_s + 1, limits) == now_s + 1 + delay_s
        now_s += 1 + delay_s


def test_the_first_restart_is_immediate() -> None:
    assert waits_until_s(None, 77.0) == 77.0


@pytest.mark.parametrize(("ran_s", "delay_s", "waits_s"), [(600, 160, 80), (600.1, 10, 0)])
def test_reset(ran_s: float, delay_s: float, waits_s: float) -> None:
    """Twice the maximum after the entry was set it expires: that restart is immediate, the next waits 10 s."""
    entry = Backoff(80, 1000)
    finished_s = 1000 + ran_s
    assert waits_until_s(entry, finished_s) == finished_s + waits_s
    assert next_backoff(entry, finished_s, finished_s).delay_s == delay_s


def test_pulls_count_from_their_failure() -> None:
    entry = next_pull_backoff(None, 50.0)
    assert pull_waits_until_s(None, 50.0) == 50.0
    assert pull_waits_until_s(entry, 55.0) == 60.0
    assert pull_waits_until_s(next_pull_backoff(entry, 61.0), 62.0) == 81.0
    assert pull_waits_until_s(entry, 700.0) == 700.0


@given(st.lists(st.integers(0, 16_000).map(lambda eighths: eighths / 8), max_size=30))
def test_bounds(runs_s: list[float]) -> None:
    """However long the runs are, a delay is one of the sequence, and never more than double the one before."""
    entry: Backoff | None = None
    now_s = 0.0
    for ran_s in runs_s:
        finished_s = now_s + ran_s
        now_s = max(finished_s, waits_until_s(entry, finished_s))
        before, entry = entry, next_backoff(entry, finished_s, now_s)
        assert entry.delay_s in (10, 20, 40, 80, 160, 300)
        assert entry.delay_s <= (2 * before.delay_s if before is not None else 10)
        assert now_s - finished_s <= 300


KEYS = [
    pytest.param(Container("b", "i"), id="name"),
    pytest.param(Container("a", "j"), id="image"),
    pytest.param(Container("a", "i", Resources({"cpu": QUANTITIES["2"]})), id="request"),
    pytest.param(Container("a", "i", Resources({"cpu": QUANTITIES["1"]}, {"cpu": QUANTITIES["1"]})), id="limit"),
]


@pytest.mark.parametrize("other", KEYS)
def test_keys(other: Container) -> None:
    one = Container("a", "i", Resources({"cpu": QUANTITIES["1"]}))
    assert backoff_key(one) != backoff_key(other)
    assert backoff_key(one) == backoff_key(Container("a", "i", Resources({"cpu": QUANTITIES["1"]}, {})))


@pytest.mark.parametrize(("delay_s", "words"), [(10, "10s"), (80, "1m20s"), (300, "5m0s")])
def test_messages(delay_s: float, words: str) -> None:
    pod = Metadata(name="web", namespace="default", uid="u-1")
    assert crash_message("c", pod, delay_s) == f"back-off {words} restarting failed container=c pod=web_default(u-1)"


@pytest.mark.parametrize(
    ("profile", "last_error", "message"),
    [
        ("1.36", "ErrImagePull: no such image", 'Back-off pulling image "web": ErrImagePull: no such image'),
        ("1.36", "", 'Back-off pulling image "web"'),
        ("documents", "ErrImagePull: no such image", 'Back-off pulling image "web"'),
        ("documents", "", 'Back-off pulling image "web"'),
    ],
)
def test_the_message_of_a_pull_back_off(profile: str, last_error: str, message: str) -> None:
    assert pull_message("web", last_error, profile_named(profile)) == message
