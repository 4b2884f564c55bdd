"""Memory values: Memory QoS (`memory.min`, `low`, `high`) and swap (02 §5, §6).

Kubernetes: pkg/kubelet/kuberuntime/kuberuntime_container_linux.go, KEP-2570 (Memory QoS), KEP-2400 (swap).
Kernel: Documentation/admin-guide/cgroup-v2.rst, "Memory Interface Files".
"""

from __future__ import annotations

from math import floor


def memory_high(
    request_bytes: int,
    limit_bytes: int,
    allocatable_bytes: int | None,
    factor: float | None,
    page_size: int = 4096,
    without_request: bool = False,
) -> int | None:
    """Where the kernel starts to throttle a container, or None for not set (02 §6.1).

    request + (limit − request) · factor, rounded down to a page; without a limit, node allocatable is used.
    Request 1Gi, limit 2Gi, factor 0.9: 1Gi + 1Gi · 0.9 = 2040109465 → 2040107008 bytes. A request equal to the limit
    gives None, and so does a container with neither, unless `without_request` is set. Without a factor there is none.
    """
    if factor is None or (request_bytes == limit_bytes and not (without_request and limit_bytes == 0)):
        return None
    base = limit_bytes or allocatable_bytes
    if not base:
        return None
    request = float(request_bytes)
    high = floor(request + (base - request) * factor) // page_size * page_size
    return high if high and high > request_bytes else None


FIRST_FACTOR = 0.8  # memoryThrottlingFactor of 1.22 to 1.26


def memory_high_1_22(
    request_bytes: int, limit_bytes: int, allocatable_bytes: int | None, factor: float = FIRST_FACTOR
) -> int | None:
    """memory.high as 1.22 to 1.26 computed it, for comparison (02 §6.1): limit · factor, or node allocatable · factor.

    300Mi and 400Mi: 0.8 · 400Mi = 335544320. The request counts only in the last step, so a request close to the limit
    gives None (350Mi and 400Mi: 320Mi is below the request) and a low one is throttled early.
    """
    base = limit_bytes or allocatable_bytes
    high = int(float(base) * factor) if base else 0
    return high if high > request_bytes else None


PAGE_CACHE_PERCENT = 10  # of the limit that memory.min leaves for page cache


def page_cache_safe_min(min_bytes: int | None, limit_bytes: int | None, page_size: int = 4096) -> int | None:
    """memory.min below memory.max: min(request, 90 % of the limit), rounded down to a page; 1Gi and 1Gi → 966365184.

    Memory below memory.min cannot be reclaimed, page cache included. If all of a container's memory is protected, the
    kernel cannot reclaim the cache of files that it writes and kills the writer. An extension of Plimsoll.
    """
    if not min_bytes or not limit_bytes:
        return min_bytes
    return min(min_bytes, limit_bytes * (100 - PAGE_CACHE_PERCENT) // 100 // page_size * page_size)


def swap_limit_bytes(request_bytes: int, memory_capacity_bytes: int, swap_capacity_bytes: int) -> int:
    """LimitedSwap: 1Gi of 8Gi memory, 4Gi swap: 1/8 · 4Gi = 512Mi; computed in doubles, truncated (02 §5)."""
    if memory_capacity_bytes <= 0 or request_bytes > memory_capacity_bytes:
        return 0
    return int(float(request_bytes) / float(memory_capacity_bytes) * float(swap_capacity_bytes))


def page_label(page_bytes: int) -> str:
    """A huge page size as in the kernel's file names: 2097152 → `2MB` (02 §7)."""
    for unit in ("", "K", "M", "G", "T"):
        if page_bytes < 1024 or page_bytes % 1024:
            return f"{page_bytes}{unit}B"
        page_bytes //= 1024
    return f"{page_bytes}PB"
