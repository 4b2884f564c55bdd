"""A container's values as CRI's LinuxContainerResources, for create and update (02 §4.5).

In CRI, zero and empty mean "not set": the runtime leaves the file unchanged. To remove an earlier value, an update sets
it explicitly to −1, `max` or `0` (`cleared`). An update always carries the complete set, because some runtimes reset
missing fields to their defaults (03 §13, 12).

Kubernetes: staging/src/k8s.io/cri-api/pkg/apis/runtime/v1/api.proto.
"""

from __future__ import annotations

import msgspec

from plimsoll.rules.model.kernel import DEFAULT_PERIOD_US
from plimsoll.rules.model.observed import CriResources
from plimsoll.rules.resources.memory import page_label
from plimsoll.rules.resources.values import UNLIMITED, Values

# v2 files that `unified` carries, with the kernel's default for each.
KERNEL_DEFAULT = {
    "memory.min": "0",
    "memory.low": "0",
    "memory.high": "max",
    "memory.swap.max": "max",
    "memory.oom.group": "0",
}


def cri_resources(values: Values, oom_score_adj: int, *, cpuset_cpus: str = "", cpuset_mems: str = "") -> CriResources:
    """`values` come from `values.container_values`, which applies the node's profile and cgroup version."""
    return CriResources(
        cpu_shares=values.cpu_shares or 0,
        cpu_quota_us=values.cpu_quota_us or 0,
        cpu_period_us=values.cpu_period_us or 0,
        memory_limit_bytes=values.memory_bytes or 0,
        memory_swap_limit_bytes=values.memory_and_swap_bytes or 0,
        oom_score_adj=oom_score_adj,
        cpuset_cpus=cpuset_cpus,
        cpuset_mems=cpuset_mems,
        hugepage_limits={page_label(size): limit for size, limit in (values.hugetlb or {}).items()},
        unified=unified(values),
    )


def unified(values: Values) -> dict[str, str]:
    """The files that only v2 has, file → text (02 §4.5, §6)."""
    files = {
        "memory.min": values.memory_min_bytes,
        "memory.low": values.memory_low_bytes,
        "memory.high": values.memory_high_bytes,
        "memory.swap.max": values.swap_bytes,
        "memory.oom.group": values.oom_group,
    }
    return {file: "max" if value == UNLIMITED else str(value) for file, value in files.items() if value is not None}


def cleared(before: CriResources, desired: CriResources) -> CriResources:
    """The update from `before` to `desired`: `desired`, with explicit defaults for what only `before` sets."""
    defaults = {
        file: KERNEL_DEFAULT[file] for file in before.unified if file not in desired.unified and file in KERNEL_DEFAULT
    }
    return msgspec.structs.replace(
        desired,
        cpu_quota_us=_cleared(before.cpu_quota_us, desired.cpu_quota_us),
        cpu_period_us=desired.cpu_period_us or before.cpu_period_us,  # a quota is removed together with its period
        memory_limit_bytes=_cleared(before.memory_limit_bytes, desired.memory_limit_bytes),
        memory_swap_limit_bytes=_cleared(before.memory_swap_limit_bytes, desired.memory_swap_limit_bytes),
        unified={**defaults, **desired.unified},
    )


def with_every_limit(resources: CriResources) -> CriResources:
    """As if it had every limit, for `cleared`: the update then removes all that are not desired."""
    return msgspec.structs.replace(
        resources,
        cpu_quota_us=resources.cpu_quota_us or DEFAULT_PERIOD_US,
        cpu_period_us=resources.cpu_period_us or DEFAULT_PERIOD_US,
        memory_limit_bytes=resources.memory_limit_bytes or 1,
    )


def with_memory_limit(resources: CriResources, limit_bytes: int) -> CriResources:
    """The same with another memory limit, and no more swap than before."""
    swap = resources.memory_swap_limit_bytes - resources.memory_limit_bytes
    return msgspec.structs.replace(
        resources,
        memory_limit_bytes=limit_bytes,
        memory_swap_limit_bytes=limit_bytes + max(swap, 0) if resources.memory_swap_limit_bytes > 0 else 0,
    )


def _cleared(before: int, desired: int) -> int:
    return UNLIMITED if before > 0 and not desired else desired
