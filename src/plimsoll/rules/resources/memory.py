"""Memory values: Memory QoS (`memory.min`, `low`, `high`) and swap (spec 02 §5, §6)."""

from __future__ import annotations

from math import floor


def memory_high(
    request_bytes: int,
    limit_bytes: int,
    allocatable_bytes: int | None,
    factor: float,
    page_size: int = 4096,
    without_request: bool = False,
) -> int | None:
    """Where the kernel starts to throttle a container, or None for not set (02 §6.1).

    request + (limit − request) · factor, down to a page; node allocatable stands in for a missing limit. A request
    equal to the limit is exempt. Nothing and nothing are equal too: only with `without_request` (the documents' rule)
    does a container with neither get the formula with request 0.
    """
    if request_bytes == limit_bytes and not (without_request and limit_bytes == 0):
        return None
    base = limit_bytes or allocatable_bytes
    if not base:
        return None
    request = float(request_bytes)
    high = floor(request + (base - request) * factor) // page_size * page_size
    return high if high and high > request_bytes else None


PAGE_CACHE_PERCENT = 10  # of the limit, that memory.min leaves for page cache


def page_cache_safe_min(min_bytes: int | None, limit_bytes: int | None, page_size: int = 4096) -> int | None:
    """memory.min with room left below memory.max: min(request, 90 % of the limit), down to a page.

    Memory below memory.min cannot be reclaimed, page cache included. Where all of a container's memory is protected,
    the cache of the files that it writes has nowhere to go, and the kernel kills the writer. Ours, not Kubernetes'.
    """
    if not min_bytes or not limit_bytes:
        return min_bytes
    return min(min_bytes, limit_bytes * (100 - PAGE_CACHE_PERCENT) // 100 // page_size * page_size)


def swap_limit_bytes(request_bytes: int, memory_capacity_bytes: int, swap_capacity_bytes: int) -> int:
    """LimitedSwap: the request's share of the node's memory, taken of its swap; doubles, truncated (02 §5)."""
    if memory_capacity_bytes <= 0 or request_bytes > memory_capacity_bytes:
        return 0
    return int(float(request_bytes) / float(memory_capacity_bytes) * float(swap_capacity_bytes))


def page_label(page_bytes: int) -> str:
    """A huge page size as the kernel writes it in file names: 2097152 → `2MB` (02 §7)."""
    for unit in ("", "K", "M", "G", "T"):
        if page_bytes < 1024 or page_bytes % 1024:
            return f"{page_bytes}{unit}B"
        page_bytes //= 1024
    return f"{page_bytes}PB"
