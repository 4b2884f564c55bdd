"""Graceful node shutdown: in which order pods end when the machine shuts down, and how long they have
(https://kubernetes.io/docs/concepts/cluster-administration/node-shutdown/).

`shutdownGracePeriodByPodPriority` has one entry per range of priorities: the entries end one after the other, lowest
priority first, and a pod belongs to the highest entry that is not above it, or to the lowest entry. Entries without
pods take no time. `shutdownGracePeriod` is the form with two entries: its last part,
`shutdownGracePeriodCriticalPods`, is for critical pods. With 30 s and 10 s, ordinary pods have 20 s, then critical pods
10 s. A pod with a shorter grace period keeps that.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

import msgspec

from plimsoll.rules.config.kubelet import KubeletConfig, PriorityPeriod
from plimsoll.rules.lifecycle.termination import TerminationVerdict
from plimsoll.rules.model.runnable import RunPod, grace_period_s

CRITICAL_PRIORITY = 2_000_000_000
NOT_READY = "node is shutting down"
REJECTED_REASON, REJECTED_MESSAGE = "NodeShutdown", "Pod was rejected as the node is shutting down."
_REASON, _MESSAGE = "Terminated", "Pod was terminated in response to imminent node shutdown."

ShutdownPeriods = tuple[PriorityPeriod, ...]  # the lowest priority first; empty: shutdowns are not delayed


def shutdown_periods(config: KubeletConfig) -> ShutdownPeriods:
    if not config.gate("GracefulNodeShutdown"):
        return ()
    if config.shutdown_by_priority:
        return tuple(sorted(config.shutdown_by_priority, key=lambda period: period.priority))
    if not config.shutdown_grace_s:
        return ()
    ordinary_s = config.shutdown_grace_s - config.shutdown_critical_grace_s
    return (
        PriorityPeriod(0, int(ordinary_s)),
        PriorityPeriod(CRITICAL_PRIORITY, int(config.shutdown_critical_grace_s)),
    )


def total_s(periods: ShutdownPeriods) -> int:
    return sum(period.grace_s for period in periods)


class ShutdownGroup(msgspec.Struct, frozen=True):
    """Pods that end together, and the time that they have."""

    grace_s: int
    pods: tuple[RunPod, ...]


def shutdown_groups(pods: Iterable[RunPod], periods: ShutdownPeriods) -> tuple[ShutdownGroup, ...]:
    """In the order in which they end; groups without pods are left out."""
    members: list[list[RunPod]] = [[] for _ in periods]
    priorities = [period.priority for period in periods]
    for pod in pods:
        members[_place(pod.spec.priority or 0, priorities)].append(pod)
    groups = (ShutdownGroup(period.grace_s, tuple(found)) for period, found in zip(periods, members, strict=True))
    return tuple(group for group in groups if group.pods)


def _place(priority: int, priorities: list[int]) -> int:
    """Of equal entries the first, as in the kubelet."""
    index = bisect_left(priorities, priority)
    if index < len(priorities) and priorities[index] == priority:
        return index
    return max(index - 1, 0)


def shutdown_verdict(pod: RunPod, group: ShutdownGroup) -> TerminationVerdict:
    return TerminationVerdict(_REASON, _MESSAGE, grace_s=min(group.grace_s, grace_period_s(pod)), is_disruption=True)


def delay_warning(allowed_s: float, periods: ShutdownPeriods) -> str:
    """If logind does not wait long enough; "" if it does."""
    needed_s = total_s(periods)
    if allowed_s >= needed_s:
        return ""
    return (
        f"systemd-logind delays a shutdown for {allowed_s:g} s only, pods may need {needed_s} s: "
        f"set InhibitDelayMaxSec={needed_s} in logind.conf"
    )
