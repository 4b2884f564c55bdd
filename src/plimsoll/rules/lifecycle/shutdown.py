"""Graceful node shutdown: in which order pods end when the machine shuts down, and how long they have
(https://kubernetes.io/docs/concepts/cluster-administration/node-shutdown/).

`shutdownGracePeriod` is the whole time; its last part, `shutdownGracePeriodCriticalPods`, is for critical pods. With
30 s and 10 s, ordinary pods have 20 s, then critical pods 10 s. A pod with a shorter grace period keeps that.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from plimsoll.rules.config.kubelet import KubeletConfig
from plimsoll.rules.lifecycle.termination import TerminationVerdict
from plimsoll.rules.model.runnable import RunPod, grace_period_s

CRITICAL_PRIORITY = 2_000_000_000
NOT_READY = "node is shutting down"
REJECTED_REASON, REJECTED_MESSAGE = "NodeShutdown", "Pod was rejected as the node is shutting down."
_REASON, _MESSAGE = "Terminated", "Pod was terminated in response to imminent node shutdown."


class ShutdownPeriods(msgspec.Struct, frozen=True):
    total_s: float = 0.0
    critical_s: float = 0.0

    @property
    def is_enabled(self) -> bool:
        return self.total_s > 0


def shutdown_periods(config: KubeletConfig) -> ShutdownPeriods:
    return ShutdownPeriods(config.shutdown_grace_s, config.shutdown_critical_grace_s)


class ShutdownGroup(msgspec.Struct, frozen=True):
    """Pods that end together, and the time that they have."""

    grace_s: int
    pods: tuple[RunPod, ...]


def shutdown_groups(pods: Iterable[RunPod], periods: ShutdownPeriods) -> tuple[ShutdownGroup, ...]:
    """In the order in which they end; groups without pods are left out."""
    every = tuple(pods)
    critical = tuple(pod for pod in every if (pod.spec.priority or 0) >= CRITICAL_PRIORITY)
    ordinary = tuple(pod for pod in every if pod not in critical)
    groups = (
        ShutdownGroup(int(periods.total_s - periods.critical_s), ordinary),
        ShutdownGroup(int(periods.critical_s), critical),
    )
    return tuple(group for group in groups if group.pods)


def shutdown_verdict(pod: RunPod, group: ShutdownGroup) -> TerminationVerdict:
    return TerminationVerdict(_REASON, _MESSAGE, grace_s=min(group.grace_s, grace_period_s(pod)), is_disruption=True)


def delay_warning(allowed_s: float, periods: ShutdownPeriods) -> str:
    """If logind does not wait long enough; "" if it does."""
    if allowed_s >= periods.total_s:
        return ""
    return (
        f"systemd-logind delays a shutdown for {allowed_s:g} s only, shutdownGracePeriod is {periods.total_s:g} s: "
        f"set InhibitDelayMaxSec={periods.total_s:g} in logind.conf"
    )
