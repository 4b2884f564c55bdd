"""A container that memory.high holds fast is found, one that only brushes against it is not."""

from __future__ import annotations

from itertools import pairwise

import pytest

from plimsoll.rules.oom.throttling import (
    AGAIN_S,
    PARKED_AFTER_S,
    Policy,
    Throttled,
    ThrottleFinding,
    ThrottleSample,
    helped,
    throttle_sentence,
    watched,
)

MIB = 1 << 20
HIGH, MAX = 100 * MIB, 200 * MIB


def run(
    samples: list[ThrottleSample], policy: Policy = "event", failure: str = ""
) -> list[tuple[float, ThrottleFinding]]:
    """`failure`: how every help ends."""
    state: Throttled | None = None
    found = []
    for sample in samples:
        state, finding = watched(state, sample, policy)
        if finding is not None:
            found.append((sample.time_s, finding))
            state = helped(state, finding, failure)
    return found


def parked(seconds: int, *, usage: int = HIGH, stalled: bool | None = None) -> list[ThrottleSample]:
    return [
        ThrottleSample(
            float(at), usage, HIGH, MAX, at * 50, None if stalled is None else at * (800_000 if stalled else 1000)
        )
        for at in range(seconds)
    ]


def test_parked_is_found_within_five_seconds_and_reported_once() -> None:
    ((at_s, finding),) = run(parked(20))
    assert PARKED_AFTER_S <= at_s <= 5
    assert finding.action == "event"
    assert "parked at memory.high (104857600)" in throttle_sentence("c", finding)


@pytest.mark.parametrize(
    "samples",
    [
        parked(20, usage=90 * MIB),
        parked(20, stalled=False),
        [ThrottleSample(float(at), HIGH, HIGH, MAX, 7) for at in range(20)],
        [ThrottleSample(float(at), HIGH, None, MAX, at) for at in range(20)],
        [ThrottleSample(float(at), HIGH + at * 3 * MIB, HIGH, MAX, at * 50) for at in range(20)],
    ],
    ids=["below the mark", "no stalls", "no events", "no mark", "it still grows"],
)
def test_what_is_not_parked(samples: list[ThrottleSample]) -> None:
    assert run(samples) == []


def test_with_stalls_it_is_parked() -> None:
    assert len(run(parked(20, stalled=True))) == 1


def test_raising_goes_on_until_the_limit_decides() -> None:
    state: Throttled | None = None
    high: int | None = HIGH
    steps = []
    for at in range(200):
        state, finding = watched(state, ThrottleSample(float(at), high or 0, high, MAX, at * 50), "raise")
        if finding is not None:
            steps.append(finding.action)
            state = helped(state, finding)
            high = finding.high_bytes
        if high is None:
            break
    assert steps[-1] == "release"
    assert steps[:-1] == ["raise"] * (len(steps) - 1)
    assert len(steps) > 3


@pytest.mark.parametrize(("policy", "count"), [("off", 0), ("release", 1)])
def test_policies(policy: Policy, count: int) -> None:
    assert len(run(parked(4), policy)) == count


@pytest.mark.parametrize("policy", ["raise", "reclaim", "release"])
def test_a_failed_action_is_retried(policy: Policy) -> None:
    found = run(parked(40), policy, "the kernel said no")
    assert len(found) == 4
    assert all(later - earlier == AGAIN_S for (earlier, _), (later, _) in pairwise(found))
    sentence = throttle_sentence("c", found[0][1], "the kernel said no")
    assert sentence.endswith("which is retried: the kernel said no")
    assert not any(words in sentence for words in ("is raised", "is removed", "are reclaimed"))


def test_reclaim_is_asked_again() -> None:
    found = run(parked(12), "reclaim")
    assert len(found) >= 2
    assert all(finding.reclaim_bytes == 10 * MIB for _, finding in found)


# --- the arithmetic, at its edges ---


def two(first: ThrottleSample, *others: ThrottleSample) -> Throttled:
    """The state after these samples."""
    state, _ = watched(None, first, "event")
    for sample in others:
        state, _ = watched(state, sample, "event")
    return state


@pytest.mark.parametrize(
    ("usage", "is_flat"),
    [
        (HIGH, True),
        (HIGH + 2 * MIB, True),  # exactly FLAT_SHARE of memory.high
        (HIGH + 2 * MIB + 1, False),
        (HIGH - 2 * MIB, True),
    ],
)
def test_usage_is_flat_within_two_per_cent_of_memory_high(usage: int, is_flat: bool) -> None:
    """100 Mi × 0.02 = 2 Mi, against the usage at which the container began to be throttled."""
    first, second = ThrottleSample(0.0, HIGH, HIGH, MAX, 0), ThrottleSample(1.0, HIGH, HIGH, MAX, 1)
    state = two(first, second, ThrottleSample(2.0, usage, HIGH, MAX, 2))
    assert (state.since_s, state.from_bytes) == ((0.0, HIGH) if is_flat else (1.0, usage))


def test_usage_that_falls_is_progress_too() -> None:
    start = HIGH + 10 * MIB
    samples = [ThrottleSample(float(at), start - at * 3 * MIB, HIGH, MAX, at) for at in range(4)]
    assert two(*samples).from_bytes == start - 9 * MIB


@pytest.mark.parametrize(
    ("last_us", "now_us", "is_throttled"),
    [
        (1_000_000, 1_400_000, True),  # 0.4 s of 2 s: exactly STALLED_SHARE
        (1_000_000, 1_399_999, False),
        (None, 5, True),  # without a figure the events decide
        (1_000_000, None, True),
        (None, None, True),
    ],
)
def test_stalled_for_a_fifth_of_the_time_since_the_last_sample(
    last_us: int | None, now_us: int | None, is_throttled: bool
) -> None:
    first = ThrottleSample(10.0, HIGH, HIGH, MAX, 0, last_us)
    state = two(first, ThrottleSample(12.0, HIGH, HIGH, MAX, 1, now_us))
    assert (state.since_s is not None) is is_throttled


@pytest.mark.parametrize(
    ("high", "limit", "action", "raised"),
    [
        (100 * MIB, 200 * MIB, "raise", 110 * MIB),  # a tenth of the gap of 100 Mi
        (100 * MIB, 110 * MIB, "raise", 104 * MIB),  # at least 4 Mi
        (100 * MIB, 104 * MIB, "release", None),  # the step would reach memory.max
        (100 * MIB, None, "raise", 110 * MIB),  # without a limit: a tenth of memory.high
    ],
)
def test_how_far_memory_high_is_raised(high: int, limit: int | None, action: str, raised: int | None) -> None:
    samples = [ThrottleSample(float(at), high, high, limit, at) for at in range(4)]
    _, finding = run(samples, "raise")[0]
    assert (finding.action, finding.high_bytes) == (action, raised)
