"""Is a container parked above memory.high, and what shall be done about it?

memory.high slows a process down by making it reclaim; where there is nothing to reclaim it is put to sleep again and
again, and an allocation that takes a second may then take an hour. It is not killed, makes no progress, and nothing is
reported: from outside it hangs. It shows as usage that stays flat at memory.high while the kernel counts `high` events,
sharper where the kernel tells how long the cgroup stalled (PSI).

One sample per container and second is enough: parked means flat and throttled for `PARKED_AFTER_S`.

What is done is policy: tell (`event`), lift the mark by a step (`raise`), have pages reclaimed (`reclaim`), or take the
mark away so that the container goes on to memory.max and lives or dies by it (`release`). What could not be done is
said as such and tried again.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from plimsoll.rules.resources.files import MAX

Action = Literal["event", "raise", "reclaim", "release"]
Policy = Literal["off", "event", "raise", "reclaim", "release"]

PARKED_AFTER_S = 2.0  # with a look each second and the help itself: less than five from the mark on
FLAT_SHARE = 0.02  # of memory.high: moves by less are no progress
NEAR_SHARE = 0.98  # of memory.high: the kernel lets usage hover just below or above it
RAISE_SHARE = 0.1  # of the gap between memory.high and memory.max, per step
RAISE_LEAST_BYTES = 4 << 20
AGAIN_S = 10.0  # after help that came to nothing
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
    again_s: float | None = None  # help came to nothing and is tried again then
    failure: str = ""  # what was said of that


class ThrottleFinding(msgspec.Struct, frozen=True):
    """`high_bytes`: the new mark for `raise`, None for `release`. `reclaim_bytes`: how much to ask for."""

    action: Action
    parked_s: float
    usage_bytes: int
    was_bytes: int
    high_bytes: int | None = None
    reclaim_bytes: int = 0

    @property
    def lifts_to(self) -> str:
        """What memory.high shall hold from now on; "" where it stays."""
        return {"raise": str(self.high_bytes), "release": MAX}.get(self.action, "")


def watched(
    before: Throttled | None, sample: ThrottleSample, policy: Policy
) -> tuple[Throttled, ThrottleFinding | None]:
    """The memory for the next sample, and what to do now; `helped` is to be told how that went."""
    if before is None or not _is_throttled(before.last, sample):
        return Throttled(sample), None
    since_s, from_bytes = before.since_s, before.from_bytes
    if since_s is None:
        since_s, from_bytes = before.last.time_s, before.last.usage_bytes
    assert sample.high_bytes is not None
    if abs(sample.usage_bytes - from_bytes) > FLAT_SHARE * sample.high_bytes:
        return Throttled(sample, before.last.time_s, sample.usage_bytes), None
    parked_s = sample.time_s - since_s
    kept = msgspec.structs.replace(before, last=sample, since_s=since_s, from_bytes=from_bytes)
    is_too_soon = parked_s < PARKED_AFTER_S or (before.again_s is not None and sample.time_s < before.again_s)
    if is_too_soon or policy == "off" or before.told:
        return kept, None
    return kept, _finding(sample, policy, parked_s)


def helped(memory: Throttled, found: ThrottleFinding, failure: str = "") -> Throttled:
    """The memory after `found` was carried out, or after it came to nothing for that reason."""
    if failure:
        return msgspec.structs.replace(memory, again_s=memory.last.time_s + AGAIN_S, failure=failure)
    if found.action == "event":
        return msgspec.structs.replace(memory, told=True)
    # It is watched anew: the next step comes if that was not enough.
    return Throttled(memory.last)


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


def throttle_sentence(container: str, found: ThrottleFinding, failure: str = "") -> str:
    """For an event on the pod."""
    done = {
        "event": "nothing is changed (throttleWatchdog: event)",
        "raise": f"memory.high is raised to {found.high_bytes}",
        "reclaim": f"{found.reclaim_bytes} bytes are asked back from it",
        "release": "memory.high is lifted, so that memory.max decides",
    }[found.action]
    if failure:
        tried = {
            "event": "tell of it",
            "raise": f"raise memory.high to {found.high_bytes}",
            "reclaim": f"ask {found.reclaim_bytes} bytes back from it",
            "release": "lift memory.high",
        }[found.action]
        done = f"it was not possible to {tried}, which is tried again: {failure}"
    return (
        f"Container {container} has been parked at memory.high ({found.was_bytes}) for {found.parked_s:.1f} s without "
        f"progress: usage {found.usage_bytes}; {done}"
    )
