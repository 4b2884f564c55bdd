from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.rules.cgroups.shrink import (
    MARGIN_BYTES,
    Approach,
    GiveUp,
    Move,
    Pause,
    ReclaimBytes,
    ShrinkPolicy,
    ShrinkProgress,
    Throttle,
    TryLimit,
    nearest_limit,
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
    "then-as-far-as-it-goes": (2, ShrinkProgress(OVER, reclaims=2), Approach()),
    "also-where-reclaim-took-all-the-time": (2, ShrinkProgress(OVER, 10.0, 1), Approach()),
    "then-throttle": (2, ShrinkProgress(OVER, reclaims=2, approached=True), Throttle()),
    "then-wait": (2, ShrinkProgress(OVER, reclaims=2, throttled=True, approached=True), Pause(0.1)),
    "time-is-up": (2, ShrinkProgress(OVER, 10.0, 2, True, approached=True), GiveUp("1.0 GiB are still in use after 10.0 s, not less than 1.0 GiB")),
    "fits-at-the-last-moment": (2, ShrinkProgress(UNDER, 10.0, 2, True), TryLimit()),
    "after-a-failed-try-a-pause": (2, ShrinkProgress(UNDER, refused=True), Pause(0.1)),
    "never-frozen-in-time": (2, ShrinkProgress(UNDER, 10.0, refused=True), GiveUp),
    "v1-fits": (1, ShrinkProgress(UNDER), TryLimit()),
    "v1-asks-the-kernel-which-reclaims": (1, ShrinkProgress(OVER), TryLimit()),
    "v1-as-far-as-it-goes": (1, ShrinkProgress(OVER, refused=True), Approach()),
    "v1-not-yet": (1, ShrinkProgress(OVER, refused=True, approached=True), Pause(0.1)),
    "v1-time-is-up": (1, ShrinkProgress(OVER, 10.0, refused=True, approached=True), GiveUp),
}  # fmt: skip


@pytest.mark.parametrize(("version", "progress", "expected"), ROWS.values(), ids=ROWS.keys())
def test_next_move(version: CgroupVersion, progress: ShrinkProgress, expected: Move | type[GiveUp]) -> None:
    move = next_move(TARGET, progress, version, LADDER)
    assert isinstance(move, expected) if isinstance(expected, type) else move == expected


MIB = 1 << 20
NEAREST: dict[str, tuple[int, int, float, int | None]] = {
    "a-sixteenth-above-the-usage": (100 * MIB, 160 * MIB, 300 * MIB, 170 * MIB),
    "at-least-4-MiB": (10 * MIB, 16 * MIB, 300 * MIB, 20 * MIB),
    "from-no-limit": (100 * MIB, 160 * MIB, math.inf, 170 * MIB),
    "whole-pages": (100 * MIB, 160 * MIB + 1, 300 * MIB, 170 * MIB),
    "never-below-the-target": (100 * MIB, 90 * MIB, 300 * MIB, 100 * MIB),
    "already-there": (100 * MIB, 160 * MIB, 170 * MIB, None),
    "never-raised": (100 * MIB, 169 * MIB, 170 * MIB, None),
}


@pytest.mark.parametrize(("target", "usage", "limit", "expected"), NEAREST.values(), ids=NEAREST)
def test_the_nearest_limit(target: int, usage: int, limit: float, expected: int | None) -> None:
    assert nearest_limit(target, usage, limit) == expected


@given(st.integers(4096, 1 << 40), st.integers(0, 1 << 40), st.integers(1, 1 << 40))
def test_the_nearest_limit_leaves_room_and_is_between_target_and_limit(target: int, usage: int, more: int) -> None:
    limit = max(target, usage + usage // 16 + 5 * MIB) + more
    found = nearest_limit(target, usage, limit)
    assert found is not None and target <= found < limit and found - usage >= 3 * MIB
