"""How a memory limit comes down in a cgroup that lives, one move after the other, without anybody being killed.

v2: reclaim what can be reclaimed; then memory.high at the target, so that the cgroup is throttled and reclaims from
itself; then, while it is frozen, the limit is written if less than the target is in use. v1: pages are thrown out, and
the kernel itself refuses a limit below what is in use (EBUSY), so writing it is the question. When the time is up it is
given up, with the reason. What has been tried is in `ShrinkProgress`; nothing is done here.
"""

from __future__ import annotations

import msgspec

from plimsoll.rules.cgroups.reasons import human_bytes
from plimsoll.rules.model.kernel import CgroupVersion

MARGIN_BYTES = 1 << 16  # reclaimed beyond the target, so that the next few pages do not spoil it


class ShrinkPolicy(msgspec.Struct, frozen=True):
    deadline_s: float = 10.0
    pause_s: float = 0.1
    frozen_s: float = 0.05  # a cgroup is never frozen for longer
    reclaims: int = 3


class ShrinkProgress(msgspec.Struct, frozen=True):
    usage_bytes: int
    elapsed_s: float = 0.0
    reclaims: int = 0  # how often, as far as the kernel can be asked to
    throttled: bool = False
    refused: bool = False  # the limit was tried since the last pause, and it was not yet time


class ReclaimBytes(msgspec.Struct, frozen=True):
    bytes: int


class Throttle(msgspec.Struct, frozen=True):
    pass


class TryLimit(msgspec.Struct, frozen=True):
    pass


class Pause(msgspec.Struct, frozen=True):
    seconds: float


class GiveUp(msgspec.Struct, frozen=True):
    reason: str


Move = ReclaimBytes | Throttle | TryLimit | Pause | GiveUp


def next_move(target_bytes: int, progress: ShrinkProgress, version: CgroupVersion, ladder: ShrinkPolicy) -> Move:
    fits = progress.usage_bytes < target_bytes
    if not progress.refused and (fits or (version == 1 and progress.reclaims)):
        return TryLimit()
    if progress.elapsed_s >= ladder.deadline_s:
        used, target = human_bytes(progress.usage_bytes), human_bytes(target_bytes)
        if fits and version == 2:
            return GiveUp(f"it could not be frozen within {ladder.frozen_s * 1000:.0f} ms, {used} of {target} in use")
        return GiveUp(f"{used} are still in use after {progress.elapsed_s:.1f} s, not less than {target}")
    if not fits and progress.reclaims < (ladder.reclaims if version == 2 else 1):
        return ReclaimBytes(progress.usage_bytes - target_bytes + MARGIN_BYTES)
    if version == 2 and not progress.throttled and not fits:
        return Throttle()
    return Pause(ladder.pause_s)
