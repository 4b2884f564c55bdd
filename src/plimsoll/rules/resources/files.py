"""`Values` as the kernel's control files, cgroup v1 and v2 (02 §4.6).

Encoded, the fields have the kernel's file names, in reading order. A file at the kernel's default is absent. The names
of huge page files contain the page size, so these files are a separate map. On v1 each file is in the hierarchy of its
controller (`controller_of`).

Kernel: Documentation/admin-guide/cgroup-v2.rst, Documentation/admin-guide/cgroup-v1/.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from plimsoll.rules.model.kernel import DEFAULT_PERIOD_US, CgroupVersion, Weight
from plimsoll.rules.resources.cpu import weight_linear, weight_quadratic
from plimsoll.rules.resources.memory import page_label
from plimsoll.rules.resources.values import UNLIMITED, Values

MAX = "max"


def _file_name(field: str) -> str:
    return _FILE_NAMES[field]


_FILE_NAMES = {
    "cpu_weight": "cpu.weight",
    "cpu_max": "cpu.max",
    "memory_min": "memory.min",
    "memory_low": "memory.low",
    "memory_high": "memory.high",
    "memory_max": "memory.max",
    "swap_max": "memory.swap.max",
    "oom_group": "memory.oom.group",
    "pids_max": "pids.max",
    "cpu_shares": "cpu.shares",
    "cfs_period_us": "cpu.cfs_period_us",
    "cfs_quota_us": "cpu.cfs_quota_us",
    "limit_in_bytes": "memory.limit_in_bytes",
    "memsw_limit_in_bytes": "memory.memsw.limit_in_bytes",
}


class FilesV2(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, rename=_file_name):
    cpu_weight: int | None = None
    cpu_max: str | None = None
    memory_min: int | None = None
    memory_low: int | None = None
    memory_high: int | str | None = None
    memory_max: int | None = None
    swap_max: int | str | None = None
    oom_group: int | None = None
    pids_max: int | None = None


class FilesV1(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, rename=_file_name):
    cpu_shares: int | None = None
    cfs_period_us: int | None = None
    cfs_quota_us: int | None = None
    limit_in_bytes: int | None = None
    memsw_limit_in_bytes: int | None = None
    pids_max: int | None = None


Files = FilesV1 | FilesV2


def files(values: Values, version: CgroupVersion, weight: Weight = "linear") -> Files:
    """`weight` applies to v2 only: linear for the kubelet's own cgroups, the runtime's formula for containers."""
    return files_v2(values, weight) if version == 2 else files_v1(values)


def files_v2(values: Values, weight: Weight) -> FilesV2:
    cpu_shares, pids = values.cpu_shares, values.pids
    return FilesV2(
        None if cpu_shares is None else cpu_weight(cpu_shares, weight),
        cpu_max(values.cpu_quota_us, values.cpu_period_us),
        values.memory_min_bytes,
        values.memory_low_bytes,
        or_max(values.memory_high_bytes),
        values.memory_bytes or None,  # writers of cgroups take 0 as "not set" (02 §5)
        swap_max(values),
        values.oom_group,
        None if pids is None else pids or 1,
    )


def or_max(amount: int | None) -> int | str | None:
    return MAX if amount == UNLIMITED else amount


def swap_max(values: Values) -> int | str | None:
    """v2 has no file for memory and swap together: the runtime subtracts the memory limit."""
    together = values.memory_and_swap_bytes
    if values.swap_bytes is not None or not together:
        return or_max(values.swap_bytes)
    return MAX if together == UNLIMITED else together - (values.memory_bytes or 0)


def files_v1(values: Values) -> FilesV1:
    period, pids = values.cpu_period_us, values.pids
    return FilesV1(
        values.cpu_shares,
        period,
        None if period is None else values.cpu_quota_us or None,
        values.memory_bytes or None,
        values.memory_and_swap_bytes or None,
        None if pids is None else pids or 1,
    )


def hugetlb_files(values: Values, version: CgroupVersion) -> dict[str, int] | None:
    return hugepage_files(values.hugetlb, version)


def hugepage_files(limits: dict[int, int] | None, version: CgroupVersion) -> dict[str, int] | None:
    if limits is None:
        return None
    return {hugepage_file(size, version): limit for size, limit in limits.items()}


@lru_cache(maxsize=256)
def hugepage_file(page_bytes: int, version: CgroupVersion) -> str:
    return f"hugetlb.{page_label(page_bytes)}.{'max' if version == 2 else 'limit_in_bytes'}"


def file_map(values: Values, version: CgroupVersion, weight: Weight = "linear") -> dict[str, int | str]:
    """All files of one cgroup, by name."""
    return {**msgspec.to_builtins(files(values, version, weight)), **(hugetlb_files(values, version) or {})}


def cpu_weight(cpu_shares: int, weight: Weight) -> int:
    return weight_quadratic(cpu_shares) if weight == "quadratic" else weight_linear(cpu_shares)


def cpu_max(quota_us: int | None, period_us: int | None) -> str | None:
    """`50000 100000`; `max 100000` without a quota (02 §4.3), None without a period."""
    if period_us is None:
        return None
    return f"{quota_us if quota_us and quota_us > 0 else MAX} {period_us or DEFAULT_PERIOD_US}"


def controller_of(file_name: str) -> str:
    """The part before the first dot; on v1 also the file's hierarchy."""
    return file_name.partition(".")[0]
