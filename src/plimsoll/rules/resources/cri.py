"""A container's values as CRI's LinuxContainerResources (spec 02 §4.5): what a runtime is told at create and update.

In CRI zero and empty mean "not said": a runtime leaves the file as it is. So what stood before and shall stand no
longer must be taken back in words, quota −1, `max` or `0` (`cleared`); and an update always carries the complete set,
because some runtimes take what is missing for the default (03 §13, 12).
"""

from __future__ import annotations

import msgspec

from plimsoll.rules.model.observed import CriResources
from plimsoll.rules.resources.memory import page_label
from plimsoll.rules.resources.values import UNLIMITED, Values

# v2 files that travel in `unified`, and the text that makes each of them as if it had never been written.
KERNEL_DEFAULT = {
    "memory.min": "0",
    "memory.low": "0",
    "memory.high": "max",
    "memory.swap.max": "max",
    "memory.oom.group": "0",
}


def cri_resources(values: Values, oom_score_adj: int, *, cpuset_cpus: str = "", cpuset_mems: str = "") -> CriResources:
    """`values` as `values.container_values` gives them: the node's profile and cgroup version are in them."""
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
    """What only v2 has, file → text (02 §4.5, §6): on v1 the values lack them all."""
    files = {
        "memory.min": values.memory_min_bytes,
        "memory.low": values.memory_low_bytes,
        "memory.high": values.memory_high_bytes,
        "memory.swap.max": values.swap_bytes,
        "memory.oom.group": values.oom_group,
    }
    return {file: str(value) for file, value in files.items() if value is not None}


def cleared(before: CriResources, wanted: CriResources) -> CriResources:
    """The update that leads from one to the other: `wanted`, with words for all that `before` said and it does not."""
    given_up = {
        file: KERNEL_DEFAULT[file] for file in before.unified if file not in wanted.unified and file in KERNEL_DEFAULT
    }
    return msgspec.structs.replace(
        wanted,
        cpu_quota_us=_cleared(before.cpu_quota_us, wanted.cpu_quota_us),
        cpu_period_us=wanted.cpu_period_us or before.cpu_period_us,  # a quota is taken back with its period
        memory_limit_bytes=_cleared(before.memory_limit_bytes, wanted.memory_limit_bytes),
        memory_swap_limit_bytes=_cleared(before.memory_swap_limit_bytes, wanted.memory_swap_limit_bytes),
        unified={**given_up, **wanted.unified},
    )


def _cleared(before: int, wanted: int) -> int:
    return UNLIMITED if before > 0 and not wanted else wanted
