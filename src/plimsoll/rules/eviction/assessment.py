"""One pass of the eviction manager: which thresholds are met, since when, and which to act on (04 §1, §3, §4, §8).

A pass compares the thresholds with the node's observations. A threshold is *met* while less is available than its
value: memory.available<100Mi is met with 99Mi available. Met thresholds set node conditions at once, and a condition
stays reported for the transition period after it was last observed. Action starts later: after the threshold's grace
period of continuous shortage, on observations newer than those of the previous pass, and then until the minimum
reclaim is reached as well.

`Pressure` is the state that one pass leaves for the next. Times are seconds of the caller's clock.

Kubernetes: pkg/kubelet/eviction/eviction_manager.go, pkg/kubelet/eviction/helpers.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from plimsoll.rules.config.thresholds import (
    ALLOCATABLE_MEMORY_AVAILABLE,
    DEFAULT_TRANSITION_PERIOD_S,
    MEMORY_AVAILABLE,
    PID_AVAILABLE,
    SIGNALS,
    FsLayout,
    Threshold,
)
from plimsoll.rules.eviction.ranking import INODES, PIDS
from plimsoll.rules.eviction.usage import UNLIMITED_ABOVE_BYTES
from plimsoll.rules.model.gates import DEFAULT_GATES, Gates
from plimsoll.rules.model.objects import EPHEMERAL_STORAGE, MEMORY, Pod, Taint, is_critical
from plimsoll.rules.profile import EvictionGrace
from plimsoll.rules.quantity import Quantity, from_units
from plimsoll.rules.resources.qos import BEST_EFFORT, qos_class
from plimsoll.rules.scheduling.fit import MEMORY_PRESSURE_KEY, NO_SCHEDULE
from plimsoll.rules.scheduling.selectors import is_tolerated

NodeCondition = Literal["MemoryPressure", "DiskPressure", "PIDPressure"]
Reclaim = Literal["delete dead containers", "delete unused images"]

# In the order of a Node's status (04 §8).
NODE_CONDITIONS: tuple[NodeCondition, ...] = ("MemoryPressure", "DiskPressure", "PIDPressure")

# 04 §1: the resource of each signal in messages, and the condition of each resource.
RESOURCE_OF: dict[str, str] = {
    **{signal: INODES if signal.endswith(".inodesFree") else EPHEMERAL_STORAGE for signal in SIGNALS},
    MEMORY_AVAILABLE: MEMORY,
    ALLOCATABLE_MEMORY_AVAILABLE: MEMORY,
    PID_AVAILABLE: PIDS,
}
_CONDITION_OF: dict[str, NodeCondition] = {
    MEMORY: "MemoryPressure",
    EPHEMERAL_STORAGE: "DiskPressure",
    INODES: "DiskPressure",
    PIDS: "PIDPressure",
}

# 04 §4. Memory and process numbers have no node-level reclaim.
_BOTH: tuple[Reclaim, ...] = ("delete dead containers", "delete unused images")
_RECLAIM: dict[tuple[FsLayout, str], tuple[Reclaim, ...]] = {
    ("single", "nodefs"): _BOTH,
    ("single", "imagefs"): _BOTH,
    ("single", "containerfs"): _BOTH,
    ("dedicated", "imagefs"): _BOTH,
    ("dedicated", "containerfs"): _BOTH,
    ("split", "nodefs"): ("delete dead containers",),
    ("split", "imagefs"): ("delete unused images",),
    ("split", "containerfs"): ("delete dead containers",),
}

EVICTED = "Evicted"
_MEMORY_PRESSURE = Taint(MEMORY_PRESSURE_KEY, "", NO_SCHEDULE)
HARD_GRACE_S = 1
CLEANUP_WAIT_S = 30.0


class Observation(msgspec.Struct, frozen=True):
    """One signal's figures; without a time they are new in every pass."""

    available: Quantity
    capacity: Quantity
    time_s: float | None = None


class Pressure(msgspec.Struct, frozen=True):
    """The state that one pass leaves for the next."""

    conditions: tuple[NodeCondition, ...] = ()  # as reported
    active: tuple[Threshold, ...] = ()  # met for longer than their grace period
    first_met_s: dict[Threshold, float] = {}
    last_seen_s: dict[NodeCondition, float] = {}
    observations: dict[str, Observation] = {}


NO_PRESSURE = Pressure()


class Assessment(msgspec.Struct, frozen=True):
    """The state for the next pass, and the thresholds to act on, the most urgent first."""

    pressure: Pressure
    urgent: tuple[Threshold, ...] = ()


def memory_observation(
    limit_bytes: int, working_set_bytes: int, time_s: float | None = None, hugepages_bytes: int = 0
) -> Observation | None:
    """memory.available, 8Gi − 7Gi = 1Gi: of a cgroup, or of the node with MemTotal as the limit; None: no limit.

    `hugepages_bytes`: of the node, which no other memory can use (feature gate HugepageAwareEviction). The capacity,
    available + working set, lacks them too: 10% of 8Gi with 2Gi of huge pages is 10% of 6Gi.
    """
    if limit_bytes > UNLIMITED_ABOVE_BYTES:
        return None
    rest = limit_bytes - working_set_bytes
    if not hugepages_bytes:
        return Observation(from_units(rest, "BinarySI"), from_units(limit_bytes, "BinarySI"), time_s)
    available = max(rest - hugepages_bytes, 0)
    return Observation(from_units(available, "BinarySI"), from_units(available + working_set_bytes, "BinarySI"), time_s)


def met_thresholds(
    thresholds: Iterable[Threshold], observations: Mapping[str, Observation], *, with_min_reclaim: bool = False
) -> tuple[Threshold, ...]:
    """The thresholds with less available than their value; one without an observation is not met (§3.4, §3.5)."""
    return tuple(
        threshold
        for threshold in thresholds
        if (observed := observations.get(threshold.signal)) is not None
        and wanted(threshold, observed.capacity, with_min_reclaim=with_min_reclaim) > observed.available
    )


def wanted(threshold: Threshold, capacity: Quantity, *, with_min_reclaim: bool = False) -> Quantity:
    """How much must be available: 10% of 100Gi, minimum reclaim 5Gi: 10Gi, or 15Gi with the minimum reclaim."""
    value = threshold.value.of(capacity)
    if with_min_reclaim and threshold.min_reclaim is not None:
        return value + threshold.min_reclaim.of(capacity)
    return value


def node_conditions(thresholds: Iterable[Threshold]) -> tuple[NodeCondition, ...]:
    raised = {_CONDITION_OF[RESOURCE_OF[threshold.signal]] for threshold in thresholds}
    return tuple(condition for condition in NODE_CONDITIONS if condition in raised)


def assess(
    thresholds: Iterable[Threshold],
    observations: Mapping[str, Observation],
    before: Pressure,
    now_s: float,
    transition_period_s: float = DEFAULT_TRANSITION_PERIOD_S,
) -> Assessment:
    """Steps 4 to 9 and 12 of a pass (§3)."""
    unresolved = met_thresholds(before.active, observations, with_min_reclaim=True)
    met = tuple(dict.fromkeys((*met_thresholds(thresholds, observations), *unresolved)))
    first_met_s = {threshold: before.first_met_s.get(threshold, now_s) for threshold in met}
    last_seen_s = {**before.last_seen_s, **dict.fromkeys(node_conditions(met), now_s)}
    active = tuple(threshold for threshold in met if now_s - first_met_s[threshold] >= threshold.grace_s)
    reported = tuple(
        condition
        for condition in NODE_CONDITIONS
        if condition in last_seen_s and now_s - last_seen_s[condition] < transition_period_s
    )
    fresh = [
        threshold
        for threshold in active
        if _is_fresh(observations[threshold.signal], before.observations.get(threshold.signal))
    ]
    return Assessment(
        Pressure(reported, active, first_met_s, last_seen_s, dict(observations)),
        tuple(sorted(fresh, key=lambda threshold: RESOURCE_OF[threshold.signal] != MEMORY)),
    )


def _is_fresh(observed: Observation, last: Observation | None) -> bool:
    """§3.9: the same observation does not evict a second pod."""
    if last is None or observed.time_s is None or last.time_s is None:
        return True
    return observed.time_s > last.time_s


def node_reclaim(signal: str, layout: FsLayout) -> tuple[Reclaim, ...]:
    """What can free the resource without evicting a pod, in order (§4)."""
    return _RECLAIM.get((layout, signal.partition(".")[0]), ())


def reclaimed(thresholds: Iterable[Threshold], observations: Mapping[str, Observation]) -> bool:
    """Whether no threshold is met after node-level reclaim, minimum reclaim included (§3.14)."""
    return not met_thresholds(thresholds, observations, with_min_reclaim=True)


def eviction_grace_s(
    threshold: Threshold,
    pod: Pod,
    max_pod_grace_s: int,
    hard_grace_s: int | None = None,
    rule: EvictionGrace = "least",
) -> int:
    """The victim's grace period (§7.2), at most the pod's own: soft, maximum 60, pod's own 30: 30 s; hard: 1 s.

    Up to 1.31 a soft eviction with maximum 60 gives 60 s, up to 1.30 a hard one gives the pod's own. `hard_grace_s` is
    an extension: None is what Kubernetes gives, 0 is no grace period.
    """
    if rule != "least" and not (threshold.hard and hard_grace_s is not None):
        return _older_grace_s(pod, 0 if threshold.hard else max_pod_grace_s, rule)
    most = max_pod_grace_s
    if threshold.hard:
        if not hard_grace_s:
            return HARD_GRACE_S if hard_grace_s is None else 0
        most = hard_grace_s
    own = pod.spec.termination_grace_period_seconds
    return max(HARD_GRACE_S, most if own is None else min(most, own))


def limit_grace_s(pod: Pod, rule: EvictionGrace = "least") -> int:
    """The grace period of a pod that exceeds a storage limit of its own (§6)."""
    return _older_grace_s(pod, 0, rule) if rule == "own" else HARD_GRACE_S


def _older_grace_s(pod: Pod, most: int, rule: EvictionGrace) -> int:
    """Up to 1.30 the kubelet takes a grace period of 0 as none, so the pod's own counts."""
    if rule == "own" and most == 0:
        most = pod.spec.termination_grace_period_seconds or 0
    return max(HARD_GRACE_S, most)


def kill_timeout_s(grace_s: int) -> float:
    """How long an eviction waits before it reports ExceededGracePeriod: 30 s grace: max(10, 1.5 · 30) = 45 s (§7.2)."""
    return max(10.0, 1.5 * grace_s)


def is_waited_for(now_s: float, since_s: float, grace_s: int, dead_s: float | None) -> bool:
    """Whether the next victim must wait until this one has terminated and is cleaned up (§3.15).

    `dead_s`: since when no container of it runs, None while one does.
    """
    killed_s = since_s + kill_timeout_s(grace_s)
    return now_s < (killed_s if dead_s is None else min(dead_s, killed_s)) + CLEANUP_WAIT_S


def notifier_usage_bytes(threshold: Threshold, capacity_bytes: int, inactive_file_bytes: int) -> int:
    """The usage at which a v1 memcg notifier must fire: 8Gi − 100Mi + 1Gi inactive files = 9116Mi (§2.5)."""
    return capacity_bytes - threshold.value.of(from_units(capacity_bytes)).value + inactive_file_bytes


def pressure_refusal(pod: Pod, conditions: Iterable[NodeCondition], *, gates: Gates = DEFAULT_GATES) -> str | None:
    """Why a node under pressure rejects the pod, or None if it admits it (§8)."""
    present = tuple(conditions)
    if not present or is_critical(pod):
        return None
    if present == ("MemoryPressure",) and (
        qos_class(pod, gates=gates) != BEST_EFFORT or is_tolerated(_MEMORY_PRESSURE, pod.spec.tolerations)
    ):
        return None
    return f"The node had condition: [{' '.join(present)}]. "
