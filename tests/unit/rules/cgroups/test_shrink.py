from __future__ import annotations

import pytest

from plimsoll.rules.cgroups.shrink import (
    MARGIN_BYTES,
    GiveUp,
    Move,
    Pause,
    ReclaimBytes,
    ShrinkPolicy,
    ShrinkProgress,
    Throttle,
    TryLimit,
    next_move,
)
from plimsoll.rules.model.kernel import CgroupVersion

TARGET = 1 << 30
LADDER = ShrinkPolicy(deadline_s=10, pause_s=0.1, frozen_s=0.05, reclaims=2)
OVER, UNDER = TARGET, TARGET - 1  # as much as the limit is already too much (02 §9.2)

ROWS: dict[str, tuple[CgroupVersion, ShrinkProgress, Move | type[GiveUp]]] = {
    "fits": (2, ShrinkProgress(UNDER), TryLimit()),
    "reclaim-first": (2, ShrinkProgress(OVER), ReclaimBytes(MARGIN_BYTES)),
    "reclaim-again": (2, ShrinkProgress(OVER + 5, reclaims=1), ReclaimBytes(MARGIN_BYTES + 5)),
    "then-throttle": (2, ShrinkProgress(OVER, reclaims=2), Throttle()),
    "then-wait": (2, ShrinkProgress(OVER, reclaims=2, throttled=True), Pause(0.1)),
    "time-is-up": (2, ShrinkProgress(OVER, 10.0, 2, True), GiveUp("1.0 GiB are still in use after 10.0 s, not less than 1.0 GiB")),
    "fits-at-the-last-moment": (2, ShrinkProgress(UNDER, 10.0, 2, True), TryLimit()),
    "after-a-failed-try-a-pause": (2, ShrinkProgress(UNDER, refused=True), Pause(0.1)),
    "never-frozen-in-time": (2, ShrinkProgress(UNDER, 10.0, refused=True), GiveUp),
    "v1-fits": (1, ShrinkProgress(UNDER), TryLimit()),
    "v1-throws-pages-out": (1, ShrinkProgress(OVER), ReclaimBytes(MARGIN_BYTES)),
    "v1-asks-the-kernel": (1, ShrinkProgress(OVER, reclaims=1), TryLimit()),
    "v1-not-yet": (1, ShrinkProgress(OVER, reclaims=1, refused=True), Pause(0.1)),
    "v1-time-is-up": (1, ShrinkProgress(OVER, 10.0, 1, refused=True), GiveUp),
}  # fmt: skip


@pytest.mark.parametrize(("version", "progress", "expected"), ROWS.values(), ids=ROWS.keys())
def test_next_move(version: CgroupVersion, progress: ShrinkProgress, expected: Move | type[GiveUp]) -> None:
    move = next_move(TARGET, progress, version, LADDER)
    assert isinstance(move, expected) if isinstance(expected, type) else move == expected
