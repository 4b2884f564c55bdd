"""When to look at a signal again: the nearer its threshold and the faster it falls, the sooner.

A kubelet looks every ten seconds, and memory that fills at 200 MiB/s has long been the kernel's business by then. One
look costs a few file reads, so it can be had often where it matters. What has been still may still start to fall at any
moment: until kernel events say so, a rate is assumed that few workloads exceed. The pause is a fraction of the time in
which the threshold could be reached, so that several looks come before it.

A node that rests just above its threshold is looked at less often once it has rested, and still less where the kernel
tells of the threshold itself (`told`: usage marks of v1); such an event or any fall ends that at once.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

LOOK_LEAST_S, LOOK_MOST_S = 0.01, 10.0
RESTING_LEAST_S, RESTING_TOLD_S = 0.25, 2.0  # a node that rests near its threshold
RESTING_AFTER_S = 5.0
ASSUMED_BYTES_PER_S = 256 << 20
LOOKS_BEFORE_THRESHOLD = 3
STILL_BYTES_PER_S = 1 << 20


class Trend(msgspec.Struct, frozen=True):
    """What is left between a signal and the first threshold it would meet, and how fast that shrinks."""

    distance: float
    time_s: float
    falling_per_s: float = 0.0
    moved_s: float = 0.0  # when it last fell faster than `STILL_BYTES_PER_S`


def trend(distance: float, now_s: float, before: Trend | None, still_per_s: float = STILL_BYTES_PER_S) -> Trend:
    """With the look before. A fall is believed at once and forgotten slowly: bursts come in rows."""
    if before is None or now_s <= before.time_s:
        return Trend(distance, now_s, 0.0, now_s)
    rate = (before.distance - distance) / (now_s - before.time_s)
    falling = max(rate, before.falling_per_s * 0.5 if rate > 0 else before.falling_per_s * 0.25, 0.0)
    return Trend(distance, now_s, falling, now_s if rate > still_per_s else before.moved_s)


def pause_s(found: Trend, assumed_per_s: float = ASSUMED_BYTES_PER_S, *, told: bool = False) -> float:
    """How long nobody need look at this signal."""
    if found.distance < 0:
        return LOOK_LEAST_S if found.falling_per_s > 0 else RESTING_LEAST_S
    rate = max(2 * found.falling_per_s, assumed_per_s)
    pause = found.distance / rate / LOOKS_BEFORE_THRESHOLD
    resting_s = RESTING_TOLD_S if told else RESTING_LEAST_S
    least = resting_s if found.time_s - found.moved_s > RESTING_AFTER_S else LOOK_LEAST_S
    return min(max(pause, least), LOOK_MOST_S)


def next_look_s(trends: Iterable[Trend], *, told: bool = False) -> float:
    """The shortest pause of several signals."""
    return min((pause_s(each, told=told) for each in trends), default=LOOK_MOST_S)
