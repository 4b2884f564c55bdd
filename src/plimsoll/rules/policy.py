"""Everything about a node and its kubelet that the values of a pod's cgroups depend on, resolved once.

Built from a KubeletConfig, a profile and the facts of the machine; the formulas below it ask no other questions.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from plimsoll.rules.cpu import DEFAULT_PERIOD_US

CgroupVersion = Literal[1, 2]
Weight = Literal["linear", "quadratic"]
# Who gets memory.min or memory.low from requests, with Memory QoS on (02 §6.2): nobody (and both are written as 0),
# Guaranteed min and Burstable low, or everybody min.
Reservation = Literal["none", "tiered", "requests"]


class NodePolicy(msgspec.Struct, frozen=True):
    memory_capacity_bytes: int
    allocatable_memory_bytes: int | None = None  # absolute: capacity − reservations, no eviction term (N-9)
    swap_capacity_bytes: int = 0
    cgroup_version: CgroupVersion = 2
    cfs_quota: bool = True
    period_us: int = DEFAULT_PERIOD_US
    custom_period: bool = True  # gate CustomCPUCFSQuotaPeriod
    memory_qos: bool = False  # the gate, and cgroup v2
    reservation: Reservation = "none"
    high_without_request: bool = False
    throttling_factor: float = 0.9
    page_size: int = 4096
    page_cache_safe: bool = False  # our extra: memory.min stays below memory.max
    oom_group: bool = False  # singleProcessOOMKill is false, and cgroup v2
    limited_swap: bool = False  # memorySwap.swapBehavior: LimitedSwap
    swap_controller: bool = True
    hugepage_sizes: tuple[int, ...] = ()
    pod_pids_limit: int = -1
    pod_level: bool = True  # gate PodLevelResources
    pod_level_oom_share: bool = True
    sidecar_oom_rule: bool = True
    quota_with_exclusive_cpus: bool = False
    static_cpus: bool = False  # cpuManagerPolicy: static
    weight: Weight = "quadratic"  # what the runtime writes for containers

    quota_period_us: int = DEFAULT_PERIOD_US  # derived, never given: what quotas are computed with (02 §4.3)

    def __post_init__(self) -> None:
        """The gate off forces the default period; derived here because every container asks for it."""
        used = self.period_us if self.custom_period else DEFAULT_PERIOD_US
        msgspec.structs.force_setattr(self, "quota_period_us", used)
