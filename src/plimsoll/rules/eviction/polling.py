"""When to poll a signal again: the nearer its threshold and the faster it falls, the sooner.

A kubelet polls every ten seconds. Memory that fills at 200 MiB/s reaches the kernel's OOM killer before that. One poll
costs a few file reads, so it can be frequent where it matters. A steady signal can start to fall at any moment, so a
minimum rate is assumed that few workloads exceed. The pause is a fraction of the time in which the threshold could be
reached, so that several polls come before it: 768 MiB away at 256 MiB/s and 3 polls: 768 / 256 / 3 = 1 s.

A node that has rested just above its threshold is polled less often, and still less where the kernel notifies of the
threshold itself (`kernel_notifies`: usage thresholds of v1). Such an event, or any fall, ends that at once.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

POLL_LEAST_S, POLL_MOST_S = 0.01, 10.0
RESTING_LEAST_S, RESTING_NOTIFIED_S = 0.25, 2.0  # for a node that rests near its threshold
RESTING_AFTER_S = 5.0
ASSUMED_BYTES_PER_S = 256 << 20
POLLS_BEFORE_THRESHOLD = 3
STILL_BYTES_PER_S = 1 << 20


class Trend(msgspec.Struct, frozen=True):
    """The distance between a signal and its nearest threshold, and how fast it shrinks."""

    distance: float
    time_s: float
    falling_per_s: float = 0.0
    moved_s: float = 0.0  # when it last fell faster than `STILL_BYTES_PER_S`


def trend(distance: float, now_s: float, before: Trend | None, still_per_s: float = STILL_BYTES_PER_S) -> Trend:
    """From the previous poll to this one. A fall counts at once and decays slowly, because bursts come in series."""
    if before is None or now_s <= before.time_s:
        return Trend(distance, now_s, 0.0, now_s)
    rate = (before.distance - distance) / (now_s - before.time_s)
    falling = max(rate, before.falling_per_s * 0.5 if rate > 0 else before.falling_per_s * 0.25, 0.0)
    return Trend(distance, now_s, falling, now_s if rate > still_per_s else before.moved_s)


def pause_s(trend: Trend, assumed_per_s: float = ASSUMED_BYTES_PER_S, *, kernel_notifies: bool = False) -> float:
    """Until the next poll of this signal."""
    if trend.distance < 0:
        return POLL_LEAST_S if trend.falling_per_s > 0 else RESTING_LEAST_S
    rate = max(2 * trend.falling_per_s, assumed_per_s)
    pause = trend.distance / rate / POLLS_BEFORE_THRESHOLD
    resting_s = RESTING_NOTIFIED_S if kernel_notifies else RESTING_LEAST_S
    least = resting_s if trend.time_s - trend.moved_s > RESTING_AFTER_S else POLL_LEAST_S
    return min(max(pause, least), POLL_MOST_S)


def next_poll_s(trends: Iterable[Trend], *, kernel_notifies: bool = False) -> float:
    """The shortest pause of several signals."""
    return min((pause_s(trend, kernel_notifies=kernel_notifies) for trend in trends), default=POLL_MOST_S)
