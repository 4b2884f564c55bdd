"""Lower the memory limit of a live cgroup in steps, without an OOM kill.

v2: reclaim what is above the target, and no more; then set memory.high to the target, so that the cgroup is throttled
and reclaims; then freeze it and write the limit if usage is below the target. v1: write the limit; the kernel reclaims
as much as the limit needs, and refuses a limit below what is left (EBUSY).

If that is not enough, the limit is lowered as far as usage allows (`nearest_limit`), before the cgroup is throttled:
throttled processes cannot be frozen. After the time-out the shrink fails with a reason, and the limit stays there. The
next attempt continues from it, so the limit follows the usage down to the target. `ShrinkProgress` records what was
tried; this module only decides.
"""

from __future__ import annotations

import msgspec

from plimsoll.rules.cgroups.reasons import human_bytes
from plimsoll.rules.model.kernel import CgroupVersion

MARGIN_BYTES = 1 << 16  # reclaimed beyond the target, as room for the next few pages
# Left above the usage while the target is not reached: a container at its limit is killed with its next page.
HEADROOM_BYTES, HEADROOM_DIVISOR = 4 << 20, 16


class ShrinkPolicy(msgspec.Struct, frozen=True):
    deadline_s: float = 10.0
    pause_s: float = 0.1
    frozen_s: float = 0.05  # the longest freeze of a cgroup
    reclaims: int = 3


class ShrinkProgress(msgspec.Struct, frozen=True):
    usage_bytes: int
    elapsed_s: float = 0.0
    reclaims: int = 0  # how often the kernel was asked to reclaim
    throttled: bool = False
    refused: bool = False  # the limit was refused since the last pause
    approached: bool = False  # the limit was lowered as far as possible, or that was tried


class ReclaimBytes(msgspec.Struct, frozen=True):
    bytes: int


class Throttle(msgspec.Struct, frozen=True):
    pass


class TryLimit(msgspec.Struct, frozen=True):
    pass


class Approach(msgspec.Struct, frozen=True):
    """Set the limit to `nearest_limit`."""


class Pause(msgspec.Struct, frozen=True):
    seconds: float


class GiveUp(msgspec.Struct, frozen=True):
    reason: str


Move = ReclaimBytes | Throttle | TryLimit | Approach | Pause | GiveUp


def next_move(target_bytes: int, progress: ShrinkProgress, version: CgroupVersion, ladder: ShrinkPolicy) -> Move:
    fits = progress.usage_bytes < target_bytes
    if not progress.refused and (fits or version == 1):
        return TryLimit()
    is_late = progress.elapsed_s >= ladder.deadline_s
    is_reclaimed = version == 1 or progress.reclaims >= ladder.reclaims
    if not fits and not progress.approached and (is_reclaimed or is_late):
        return Approach()
    if is_late:
        used, target = human_bytes(progress.usage_bytes), human_bytes(target_bytes)
        if fits and version == 2:
            return GiveUp(f"it could not be frozen within {ladder.frozen_s * 1000:.0f} ms, {used} of {target} in use")
        return GiveUp(f"{used} are still in use after {progress.elapsed_s:.1f} s, not less than {target}")
    if version == 2 and not fits and progress.reclaims < ladder.reclaims:
        return ReclaimBytes(progress.usage_bytes - target_bytes + MARGIN_BYTES)
    if version == 2 and not progress.throttled and not fits:
        return Throttle()
    return Pause(ladder.pause_s)


def nearest_limit(target_bytes: int, usage_bytes: int, limit_bytes: float, page_size: int = 4096) -> int | None:
    """The limit to set while the target is below the usage; None if that is not below the present limit.

    Worked: 300 MiB to 100 MiB with 160 MiB in use: 160 + 160/16 = 170 MiB.
    """
    headroom = max(HEADROOM_BYTES, usage_bytes // HEADROOM_DIVISOR)
    nearest = max(target_bytes, (usage_bytes + headroom) // page_size * page_size)
    return nearest if nearest < limit_bytes else None
