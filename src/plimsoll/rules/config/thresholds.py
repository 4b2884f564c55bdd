"""Eviction thresholds: from the four maps of the kubelet's configuration to values that can be compared (04 §2).

A threshold is met while less of a signal is available than its value: a quantity or a share of the capacity. A share is
a float32, as in the kubelet, so 10% of 100Gi is 10737418400 bytes (N-5). *Hard* means a grace period of zero, in either
map. Hard memory thresholds also apply to the cgroup of all pods (§2.4), and the first pass of the eviction manager
derives the containerfs thresholds from the file systems (§1).

Every error is an InvalidConfigError with the kubelet's message as `reason` and the map's entry as `path`.

Kubernetes: pkg/kubelet/eviction/helpers.go, ParseThresholdConfig.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from plimsoll.errors import InvalidConfigError, InvalidQuantityError
from plimsoll.rules.gotext import duration_seconds, nearest_float32, parsed_float32
from plimsoll.rules.model.objects import EPHEMERAL_STORAGE, MEMORY, ResourceList
from plimsoll.rules.quantity import MAX_INT64, ZERO, Quantity, from_units, parse

MEMORY_AVAILABLE = "memory.available"
ALLOCATABLE_MEMORY_AVAILABLE = "allocatableMemory.available"
NODEFS_AVAILABLE = "nodefs.available"
NODEFS_INODES_FREE = "nodefs.inodesFree"
IMAGEFS_AVAILABLE = "imagefs.available"
IMAGEFS_INODES_FREE = "imagefs.inodesFree"
CONTAINERFS_AVAILABLE = "containerfs.available"
CONTAINERFS_INODES_FREE = "containerfs.inodesFree"
PID_AVAILABLE = "pid.available"

# The same nine names in all four maps, the derived one included (§2.1).
SIGNALS = frozenset(
    {
        MEMORY_AVAILABLE,
        ALLOCATABLE_MEMORY_AVAILABLE,
        NODEFS_AVAILABLE,
        NODEFS_INODES_FREE,
        IMAGEFS_AVAILABLE,
        IMAGEFS_INODES_FREE,
        CONTAINERFS_AVAILABLE,
        CONTAINERFS_INODES_FREE,
        PID_AVAILABLE,
    }
)

# §2.2, for Linux; there are no soft defaults.
DEFAULT_EVICTION_HARD: Mapping[str, str] = {
    MEMORY_AVAILABLE: "100Mi",
    NODEFS_AVAILABLE: "10%",
    NODEFS_INODES_FREE: "5%",
    IMAGEFS_AVAILABLE: "15%",
    IMAGEFS_INODES_FREE: "5%",
}
EVICTION_HARD_1_27 = {signal: text for signal, text in DEFAULT_EVICTION_HARD.items() if signal != IMAGEFS_INODES_FREE}
DEFAULT_TRANSITION_PERIOD_S = 300.0

ENFORCE_PODS = "pods"

_CONTAINERFS_OF = {
    NODEFS_AVAILABLE: CONTAINERFS_AVAILABLE,
    NODEFS_INODES_FREE: CONTAINERFS_INODES_FREE,
    IMAGEFS_AVAILABLE: CONTAINERFS_AVAILABLE,
    IMAGEFS_INODES_FREE: CONTAINERFS_INODES_FREE,
}

FsLayout = Literal["single", "dedicated", "split"]


class ThresholdValue(msgspec.Struct, frozen=True):
    """Either a quantity or a share of the capacity (0.1 is 10%, a float32)."""

    quantity: Quantity | None = None
    percentage: float = 0.0

    def of(self, capacity: Quantity) -> Quantity:
        """§3 step 4: the quantity, or the share of the capacity, truncated: 10% of 100Gi is 10737418400."""
        if self.quantity is not None:
            return self.quantity
        return from_units(int(min(capacity.value, MAX_INT64) * self.percentage), "BinarySI")


class Threshold(msgspec.Struct, frozen=True):
    """Met while less than `value` of `signal` is available; acted upon after `grace_s`."""

    signal: str
    value: ThresholdValue
    grace_s: float = 0.0
    min_reclaim: ThresholdValue | None = None

    @property
    def hard(self) -> bool:
        return self.grace_s == 0


def parsed_thresholds(
    hard: Mapping[str, str],
    soft: Mapping[str, str] | None = None,
    soft_grace_period: Mapping[str, str] | None = None,
    minimum_reclaim: Mapping[str, str] | None = None,
    enforce_node_allocatable: Iterable[str] = (),
) -> tuple[Threshold, ...]:
    """The thresholds of a configuration: hard ones, soft ones, then the derived allocatable ones (§2.1, §2.4)."""
    hard_values = _values(hard, "evictionHard")
    soft_values = _values(soft or {}, "evictionSoft")
    grace = {name: _grace(name, text) for name, text in (soft_grace_period or {}).items()}
    reclaim = {name: _reclaim(name, text) for name, text in (minimum_reclaim or {}).items()}
    for signal in soft_values:
        if signal not in grace:
            reason = f"grace period must be specified for the soft eviction threshold {signal}"
            raise InvalidConfigError(f"evictionSoftGracePeriod[{signal}]", reason)
    thresholds = [Threshold(signal, value, 0.0, reclaim.get(signal)) for signal, value in hard_values.items()]
    thresholds += [
        Threshold(signal, value, grace[signal], reclaim.get(signal)) for signal, value in soft_values.items()
    ]
    if ENFORCE_PODS in enforce_node_allocatable:
        thresholds += [
            Threshold(ALLOCATABLE_MEMORY_AVAILABLE, threshold.value, 0.0, threshold.min_reclaim)
            for threshold in thresholds
            if threshold.signal == MEMORY_AVAILABLE and threshold.hard
        ]
    return tuple(thresholds)


def eviction_hard(
    configured: Mapping[str, str] | None,
    *,
    merge_defaults: bool = False,
    defaults: Mapping[str, str] = DEFAULT_EVICTION_HARD,
) -> Mapping[str, str]:
    """The effective map: a configured one replaces all defaults unless `mergeDefaultEvictionSettings` (§2.2)."""
    if configured is None:
        return defaults
    return {**defaults, **configured} if merge_defaults else configured


def flag_map(text: str, separator: Literal["<", "="]) -> dict[str, str]:
    """The command line's form of a map: `memory.available<500Mi,nodefs.available<10%` or `memory.available=1m30s`."""
    result = {}
    for pair in filter(None, text.split(",")):
        signal, found, value = pair.partition(separator)
        if not found:
            raise InvalidConfigError("", f"malformed pair, expect string{separator}string")
        result[signal.strip()] = value.strip()
    return result


def fs_layout(dedicated_imagefs: bool, split_containerfs: bool) -> FsLayout:
    """Where images and writable layers are; a split needs a dedicated imagefs (§5)."""
    if not dedicated_imagefs:
        return "single"
    return "split" if split_containerfs else "dedicated"


def with_containerfs(thresholds: Iterable[Threshold], layout: FsLayout) -> tuple[Threshold, ...]:
    """§1: containerfs is part of another file system, so it has the thresholds of that one."""
    kept = [threshold for threshold in thresholds if threshold.signal not in _CONTAINERFS_OF.values()]
    home = "imagefs." if layout == "dedicated" else "nodefs."
    derived = [
        msgspec.structs.replace(threshold, signal=_CONTAINERFS_OF[threshold.signal])
        for threshold in kept
        if threshold.signal.startswith(home)
    ]
    return (*kept, *derived)


def eviction_reservation(thresholds: Iterable[Threshold], capacity: ResourceList) -> ResourceList:
    """N-5: what the hard thresholds subtract from allocatable memory and ephemeral storage.

    `thresholds` are those of `evictionHard`: soft ones never count.
    """
    resources = {MEMORY_AVAILABLE: MEMORY, NODEFS_AVAILABLE: EPHEMERAL_STORAGE}
    return {
        resources[threshold.signal]: threshold.value.of(capacity.get(resources[threshold.signal], ZERO))
        for threshold in thresholds
        if threshold.signal in resources
    }


def _values(statements: Mapping[str, str], path: str) -> dict[str, ThresholdValue]:
    """One map of thresholds; the texts `0%` and `100%` disable a signal."""
    values = {}
    for signal, text in statements.items():
        where = f"{path}[{signal}]"
        _check_signal(signal, where)
        if text not in ("0%", "100%"):
            values[signal] = _value(signal, text, where)
    return values


def _value(signal: str, text: str, path: str) -> ThresholdValue:
    if text.endswith("%"):
        share = _share(text, path)
        if share < 0:
            raise InvalidConfigError(path, f"eviction percentage threshold {signal} must be >= 0%: {text}")
        if share > 1:
            raise InvalidConfigError(path, f"eviction percentage threshold {signal} must be <= 100%: {text}")
        return ThresholdValue(percentage=share)
    quantity = _quantity(text, path)
    if quantity.nanos <= 0:
        raise InvalidConfigError(path, f"eviction threshold {signal} must be positive: {quantity}")
    return ThresholdValue(quantity)


def _grace(signal: str, text: str) -> float:
    path = f"evictionSoftGracePeriod[{signal}]"
    _check_signal(signal, path)
    seconds = duration_seconds(text, path)
    if seconds < 0:
        raise InvalidConfigError(path, f"invalid eviction grace period specified: {text}, must be a positive value")
    return seconds


def _reclaim(signal: str, text: str) -> ThresholdValue:
    path = f"evictionMinimumReclaim[{signal}]"
    _check_signal(signal, path)
    if text.endswith("%"):
        share = _share(text, path)
        if share <= 0:
            raise InvalidConfigError(path, f"eviction percentage minimum reclaim {signal} must be positive: {text}")
        if math.isinf(share):  # the kubelet accepts it, and its integers overflow
            raise InvalidConfigError(path, f"eviction percentage minimum reclaim {signal} must be finite: {text}")
        return ThresholdValue(percentage=share)
    quantity = _quantity(text, path)
    if quantity.nanos < 0:
        raise InvalidConfigError(path, f"negative eviction minimum reclaim specified for {signal}")
    return ThresholdValue(quantity)


def _check_signal(signal: str, path: str) -> None:
    if signal not in SIGNALS:
        raise InvalidConfigError(path, f"unsupported eviction signal {signal}")


def _share(text: str, path: str) -> float:
    """Parsed to float32, then divided by 100 in float32 (N-5). Go trims every trailing percent sign."""
    percent = parsed_float32(text.rstrip("%"), path)
    if math.isinf(percent):
        return percent
    numerator, denominator = percent.as_integer_ratio()
    return nearest_float32(numerator, 100 * denominator)


def _quantity(text: str, path: str) -> Quantity:
    try:
        return parse(text)  # not the cache of API objects: blanks are not dropped here
    except InvalidQuantityError as error:
        raise InvalidConfigError(path, error.reason) from None
