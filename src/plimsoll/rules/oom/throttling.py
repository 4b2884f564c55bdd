"""Whether a container is parked at memory.high, and what to do about it.

memory.high throttles a process by making it reclaim. With nothing to reclaim, the process sleeps repeatedly, and an
allocation of one second can take an hour. It is not killed, makes no progress, and nothing is reported: it hangs. The
symptom is usage that stays flat at memory.high while the kernel counts `high` events; PSI, where available, also shows
how long the cgroup stalled.

One sample per container and second is enough: parked means flat and throttled for `PARKED_AFTER_S`.

The policy decides the action: report it (`event`), raise memory.high by a step (`raise`), reclaim pages (`reclaim`), or
remove memory.high so that memory.max decides (`release`). A failed action is reported and retried.

Kernel: Documentation/admin-guide/cgroup-v2.rst, memory.high; mm/memcontrol.c, mem_cgroup_handle_over_high.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from plimsoll.rules.resources.files import MAX

Action = Literal["event", "raise", "reclaim", "release"]
Policy = Literal["off", "event", "raise", "reclaim", "release"]

PARKED_AFTER_S = 2.0  # with one sample per second and the action: less than 5 s in all
FLAT_SHARE = 0.02  # of memory.high: smaller changes are no progress
NEAR_SHARE = 0.98  # of memory.high: usage hovers just below or above it
RAISE_SHARE = 0.1  # of the gap between memory.high and memory.max, per step
RAISE_LEAST_BYTES = 4 << 20
AGAIN_S = 10.0  # until a failed action is retried
STALLED_SHARE = 0.2  # of the time since the last sample, if PSI is available


class ThrottleSample(msgspec.Struct, frozen=True):
    time_s: float
    usage_bytes: int
    high_bytes: int | None  # None: no memory.high
    max_bytes: int | None
    high_events: int
    stalled_us: int | None = None  # memory.pressure, "some" or "full" total


class Throttled(msgspec.Struct, frozen=True):
    """The state of one container between samples."""

    last: ThrottleSample
    since_s: float | None = None  # flat and throttled since then
    from_bytes: int = 0  # usage at that moment
    reported: bool = False
    again_s: float | None = None  # when a failed action is retried
    failure: str = ""  # why it failed


class ThrottleFinding(msgspec.Struct, frozen=True):
    """`high_bytes`: the new memory.high for `raise`, None for `release`. `reclaim_bytes`: how much to reclaim."""

    action: Action
    parked_s: float
    usage_bytes: int
    was_bytes: int
    high_bytes: int | None = None
    reclaim_bytes: int = 0

    @property
    def lifts_to(self) -> str:
        """The new text of memory.high; "" if it does not change."""
        return {"raise": str(self.high_bytes), "release": MAX}.get(self.action, "")


def watched(
    before: Throttled | None, sample: ThrottleSample, policy: Policy
) -> tuple[Throttled, ThrottleFinding | None]:
    """The state for the next sample, and the action to take; the caller passes its outcome to `helped`."""
    if before is None or not _is_throttled(before.last, sample):
        return Throttled(sample), None
    since_s, from_bytes = before.since_s, before.from_bytes
    if since_s is None:
        since_s, from_bytes = before.last.time_s, before.last.usage_bytes
    assert sample.high_bytes is not None
    if abs(sample.usage_bytes - from_bytes) > FLAT_SHARE * sample.high_bytes:
        return Throttled(sample, before.last.time_s, sample.usage_bytes), None
    parked_s = sample.time_s - since_s
    state = msgspec.structs.replace(before, last=sample, since_s=since_s, from_bytes=from_bytes)
    is_too_soon = parked_s < PARKED_AFTER_S or (before.again_s is not None and sample.time_s < before.again_s)
    if is_too_soon or policy == "off" or before.reported:
        return state, None
    return state, _finding(sample, policy, parked_s)


def helped(state: Throttled, finding: ThrottleFinding, failure: str = "") -> Throttled:
    """The state after the action of `finding`, or after it failed for that reason."""
    if failure:
        return msgspec.structs.replace(state, again_s=state.last.time_s + AGAIN_S, failure=failure)
    if finding.action == "event":
        return msgspec.structs.replace(state, reported=True)
    # Observation starts again: the next step follows if this one was not enough.
    return Throttled(state.last)


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
        "reclaim": f"{found.reclaim_bytes} bytes are reclaimed",
        "release": "memory.high is removed, so that memory.max decides",
    }[found.action]
    if failure:
        tried = {
            "event": "report it",
            "raise": f"raise memory.high to {found.high_bytes}",
            "reclaim": f"reclaim {found.reclaim_bytes} bytes",
            "release": "remove memory.high",
        }[found.action]
        done = f"failed to {tried}, which is retried: {failure}"
    return (
        f"Container {container} has been parked at memory.high ({found.was_bytes}) for {found.parked_s:.1f} s without "
        f"progress: usage {found.usage_bytes}; {done}"
    )
