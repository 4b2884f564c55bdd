"""Graceful node shutdown: the settings, and what the kubelet refuses of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from plimsoll.errors import InvalidConfigError

TOTAL, CRITICAL, BY_PRIORITY = (
    "shutdownGracePeriod",
    "shutdownGracePeriodCriticalPods",
    "shutdownGracePeriodByPodPriority",
)


class PriorityPeriod(msgspec.Struct, frozen=True):
    """Time for pods of this priority and above, up to the next entry."""

    priority: int
    grace_s: int


def shutdown_errors(
    total_s: float, critical_s: float, by_priority: Sequence[PriorityPeriod], *, gate: bool, priority_gate: bool
) -> Iterator[InvalidConfigError]:
    """`gate`: GracefulNodeShutdown, `priority_gate`: GracefulNodeShutdownBasedOnPodPriority."""
    is_set = total_s > 0 or critical_s > 0
    if gate:
        if critical_s > total_s:
            yield InvalidConfigError(CRITICAL, f"must be at most {TOTAL}, {total_s:g} s")
        for path, value in ((TOTAL, total_s), (CRITICAL, critical_s)):
            if value < 0 or 0 < value < 1:
                yield InvalidConfigError(path, "must be zero or at least 1s")
    elif is_set:
        yield InvalidConfigError(TOTAL if total_s > 0 else CRITICAL, "needs the feature gate GracefulNodeShutdown")
    if by_priority and not priority_gate:
        yield InvalidConfigError(BY_PRIORITY, "needs the feature gate GracefulNodeShutdownBasedOnPodPriority")
    elif by_priority and is_set:
        yield InvalidConfigError(BY_PRIORITY, f"cannot be used together with {TOTAL}: remove one of them")
