"""Is a container parked above memory.high, and what shall be done about it?

memory.high slows a process down by making it reclaim; where there is nothing to reclaim it is put to sleep again and
again, and an allocation that takes a second may then take an hour. It is not killed, makes no progress, and nothing is
reported: from outside it hangs. It shows as usage that stays flat at memory.high while the kernel counts `high` events,
sharper where the kernel tells how long the cgroup stalled (PSI).

One sample per container and second is enough: parked means flat and throttled for `PARKED_AFTER_S`.

What is done is policy: tell (`event`), lift the mark by a step (`raise`), have pages reclaimed (`reclaim`), or take the
mark away so that the container goes on to memory.max and lives or dies by it (`release`).
"""

from __future__ import annotations

from typing import Literal

import msgspec

Action = Literal["event", "raise", "reclaim", "release"]
Policy = Literal["off", "event", "raise", "reclaim", "release"]

PARKED_AFTER_S = 2.5
FLAT_SHARE = 0.02  # of memory.high: moves by less are no progress
NEAR_SHARE = 0.98  # of memory.high: the kernel lets usage hover just below or above it
RAISE_SHARE = 0.1  # of the gap between memory.high and memory.max, per step
RAISE_LEAST_BYTES = 4 << 20
STALLED_SHARE = 0.2  # of the time since the last sample, where PSI tells


class ThrottleSample(msgspec.Struct, frozen=True):
    time_s: float
    usage_bytes: int
    high_bytes: int | None  # None: no mark
    max_bytes: int | None
    high_events: int
    stalled_us: int | None = None  # memory.pressure, "some" or "full" total


class Throttled(msgspec.Struct, frozen=True):
    """What is remembered of one container between samples."""

    last: ThrottleSample
    since_s: float | None = None  # it has been flat and throttled since then
    from_bytes: int = 0  # usage at that moment
    told: bool = False


class ThrottleFinding(msgspec.Struct, frozen=True):
    """`high_bytes`: the new mark for `raise`, None for `release`. `reclaim_bytes`: how much to ask for."""

    action: Action
    parked_s: float
    usage_bytes: int
    was_bytes: int
    high_bytes: int | None = None
    reclaim_bytes: int = 0


def watched(
    before: Throttled | None, sample: ThrottleSample, policy: Policy
) -> tuple[Throttled, ThrottleFinding | None]:
    """The memory for the next sample, and what to do now."""
    if before is None or not _is_throttled(before.last, sample):
        return Throttled(sample), None
    since_s, from_bytes = before.since_s, before.from_bytes
    if since_s is None:
        since_s, from_bytes = before.last.time_s, before.last.usage_bytes
    assert sample.high_bytes is not None
    if abs(sample.usage_bytes - from_bytes) > FLAT_SHARE * sample.high_bytes:
        return Throttled(sample, before.last.time_s, sample.usage_bytes), None
    parked_s = sample.time_s - since_s
    if parked_s < PARKED_AFTER_S or policy == "off" or before.told:
        return Throttled(sample, since_s, from_bytes, before.told), None
    finding = _finding(sample, policy, parked_s)
    # After a raise or a reclaim it is watched anew: the next step comes if that was not enough.
    again = finding.action in ("raise", "reclaim")
    return Throttled(sample, None if again else since_s, sample.usage_bytes, told=not again), finding


def _is_throttled(last: ThrottleSample, sample: ThrottleSample) -> bool:
    if sample.high_bytes is None or last.high_bytes != sample.high_bytes:
        return False
    if sample.usage_bytes < NEAR_SHARE * sample.high_bytes or sample.high_events <= last.high_events:
        return False
    if sample.stalled_us is None or last.stalled_us is None:
        return True
    return sample.stalled_us - last.stalled_us >= STALLED_SHARE * (sample.time_s - last.time_s) * 1e6


def _finding(sample: ThrottleSample, policy: Policy, parked_s: float) -> ThrottleFinding:
    assert sample.high_bytes is not None
    base = ThrottleFinding("event", parked_s, sample.usage_bytes, sample.high_bytes)
    if policy == "raise":
        room = sample.max_bytes - sample.high_bytes if sample.max_bytes is not None else sample.high_bytes
        raised = sample.high_bytes + max(int(room * RAISE_SHARE), RAISE_LEAST_BYTES)
        if sample.max_bytes is not None and raised >= sample.max_bytes:
            return msgspec.structs.replace(base, action="release")
        return msgspec.structs.replace(base, action="raise", high_bytes=raised)
    if policy == "reclaim":
        return msgspec.structs.replace(base, action="reclaim", reclaim_bytes=max(sample.high_bytes // 10, 1 << 20))
    if policy == "release":
        return msgspec.structs.replace(base, action="release")
    return base


def throttle_sentence(container: str, found: ThrottleFinding) -> str:
    """For an event on the pod."""
    done = {
        "event": "nothing is changed (throttleWatchdog: event)",
        "raise": f"memory.high is raised to {found.high_bytes}",
        "reclaim": f"{found.reclaim_bytes} bytes are asked back from it",
        "release": "memory.high is lifted, so that memory.max decides",
    }[found.action]
    return (
        f"Container {container} has been parked at memory.high ({found.was_bytes}) for {found.parked_s:.1f} s without "
        f"progress: usage {found.usage_bytes}; {done}"
    )
