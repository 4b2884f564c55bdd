"""CPU conversions between milli-cores and the kernel's control files (02 §4, 01 §11).

A request becomes a weight among siblings: `cpu.shares` (v1) or `cpu.weight` (v2). A limit becomes a quota of
microseconds per period: `cpu.cfs_quota_us` or `cpu.max`.

Kubernetes: pkg/kubelet/cm/helpers_linux.go. Kernel: Documentation/admin-guide/cgroup-v2.rst, "CPU Interface Files".
"""

from __future__ import annotations

import math
from functools import lru_cache

from plimsoll.rules.model.kernel import DEFAULT_PERIOD_US

MIN_SHARES = 2
MAX_SHARES = 262144
MIN_QUOTA_US = 1000
LEAST_LIMIT_MILLI = MIN_QUOTA_US * 1000 // DEFAULT_PERIOD_US
SYSTEMD_STEP_US = 10_000  # per second: whole hundredths of a core
SYSTEMD_STEP_MILLI = SYSTEMD_STEP_US // 1000


def shares(cpu_milli: int) -> int:
    """250m: ⌊250 · 1024 / 1000⌋ = 256, between 2 and 262144 (02 §4.1). A request of 0 is 2, not the kernel's 1024."""
    amount = cpu_milli * 1024 // 1000
    if amount < MIN_SHARES:
        return MIN_SHARES
    return amount if amount < MAX_SHARES else MAX_SHARES


def weight_linear(cpu_shares: int) -> int:
    """[2, 262144] → [1, 10000], linear: 256 → 1 + ⌊254 · 9999 / 262142⌋ = 10 (02 §4.2).

    For the kubelet's own cgroups, and for containers with runc < 1.3.2 or crun < 1.23.
    """
    if cpu_shares >= MAX_SHARES:
        return 10000
    return 1 + (cpu_shares - 2) * 9999 // 262142


@lru_cache(maxsize=8192)
def weight_quadratic(cpu_shares: int) -> int:
    """The curve through (2, 1), (1024, 100) and (262144, 10000), as newer runtimes write it: 256 → 35 (02 §4.2)."""
    if cpu_shares <= MIN_SHARES:
        return 1
    if cpu_shares >= MAX_SHARES:
        return 10000
    log = math.log2(cpu_shares)
    return math.ceil(10 ** ((log * log + 125 * log) / 612.0 - 7.0 / 34.0))


def shares_from_weight(weight: int) -> int:
    """The inverse that the kubelet uses to read a pod cgroup. It is lossy: 1024 shares → weight 39 → 998."""
    return (weight - 1) * 262142 // 9999 + 2


def quota_us(cpu_milli: int, period_us: int = DEFAULT_PERIOD_US) -> int:
    """500m at 100 ms: 500 · 100000 / 1000 = 50000 µs (02 §4.3). 0 means no quota.

    The kernel accepts no less than 1000 µs, so the smallest limit at 100 ms is 10m.
    """
    if cpu_milli <= 0:
        return 0
    amount = cpu_milli * period_us // 1000
    return amount if amount > MIN_QUOTA_US else MIN_QUOTA_US


def milli_from_shares(cpu_shares: int) -> int:
    """S-1: ⌈102 · 1000 / 1024⌉ = 100m."""
    return 0 if cpu_shares < MIN_SHARES else -(-cpu_shares * 1000 // 1024)


def milli_from_quota(quota: int, period_us: int) -> int:
    """S-1: 50000 of 100000 µs is 500m; unlimited (−1) is reported as 0."""
    return 0 if quota == -1 or period_us == 0 else quota * 1000 // period_us


def systemd_quota_per_second_us(quota: int, period_us: int) -> int:
    """systemd stores µs per second in steps of 1 %, rounded up: 12345 of 100000 → 130000 (02 §2.3)."""
    per_second = quota * 1_000_000 // period_us
    return -(-per_second // SYSTEMD_STEP_US) * SYSTEMD_STEP_US


def systemd_quota_us(quota: int, period_us: int) -> int:
    """The quota that systemd writes to the kernel: 12345 of 100000 → 13000; at least the kernel's 1000 µs."""
    if quota <= 0:
        return quota
    return max(systemd_quota_per_second_us(quota, period_us) * period_us // 1_000_000, MIN_QUOTA_US)
