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
