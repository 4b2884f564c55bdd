"""CPU conversions between what Kubernetes says (milli-cores) and what the kernel reads (spec 02 §4, 01 §11).

Requests become a weight among siblings: `cpu.shares` (v1) or `cpu.weight` (v2). Limits become a quota of microseconds
per period: `cpu.cfs_quota_us` / `cpu.max`.
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
    """1024 per core, between 2 and 262144. A request of 0 is 2, never the kernel's default of 1024."""
    amount = cpu_milli * 1024 // 1000
    if amount < MIN_SHARES:
        return MIN_SHARES
    return amount if amount < MAX_SHARES else MAX_SHARES


def weight_linear(cpu_shares: int) -> int:
    """[2, 262144] → [1, 10000] in a straight line: the kubelet for its own cgroups, runc < 1.3.2, crun < 1.23."""
    if cpu_shares >= MAX_SHARES:
        return 10000
    return 1 + (cpu_shares - 2) * 9999 // 262142


@lru_cache(maxsize=8192)
def weight_quadratic(cpu_shares: int) -> int:
    """The curve through (2, 1), (1024, 100) and (262144, 10000): what newer runtimes write for containers."""
    if cpu_shares <= MIN_SHARES:
        return 1
    if cpu_shares >= MAX_SHARES:
        return 10000
    log = math.log2(cpu_shares)
    return math.ceil(10 ** ((log * log + 125 * log) / 612.0 - 7.0 / 34.0))


def shares_from_weight(weight: int) -> int:
    """The kubelet's way back when it reads a pod cgroup; lossy: 39 → 998, not 1024."""
    return (weight - 1) * 262142 // 9999 + 2


def quota_us(cpu_milli: int, period_us: int = DEFAULT_PERIOD_US) -> int:
    """0 means none. Never below 1000 µs, the least the kernel takes: so the least limit at 100 ms is 10m."""
    if cpu_milli <= 0:
        return 0
    amount = cpu_milli * period_us // 1000
    return amount if amount > MIN_QUOTA_US else MIN_QUOTA_US


def milli_from_shares(cpu_shares: int) -> int:
    """S-1; exact for what people write (102 → 100m)."""
    return 0 if cpu_shares < MIN_SHARES else -(-cpu_shares * 1000 // 1024)


def milli_from_quota(quota: int, period_us: int) -> int:
    """S-1; unlimited (−1) is reported as 0."""
    return 0 if quota == -1 or period_us == 0 else quota * 1000 // period_us


def systemd_quota_per_second_us(quota: int, period_us: int) -> int:
    """How systemd keeps a quota: µs per second in steps of 1 %, rounded up (02 §2.3)."""
    per_second = quota * 1_000_000 // period_us
    return -(-per_second // SYSTEMD_STEP_US) * SYSTEMD_STEP_US


def systemd_quota_us(quota: int, period_us: int) -> int:
    """The quota that systemd makes of that again for the kernel; with an odd period not below what the kernel takes."""
    if quota <= 0:
        return quota
    return max(systemd_quota_per_second_us(quota, period_us) * period_us // 1_000_000, MIN_QUOTA_US)
