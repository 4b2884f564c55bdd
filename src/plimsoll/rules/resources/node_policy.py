"""Everything about a node and its kubelet that the values of a pod's cgroups depend on, resolved once.

`NodePolicy` is built from a KubeletConfig, a profile and the machine. The formulas use nothing else of the node.

Two annotations change the policy for one pod:

    plimsoll.dev/oom-group: "true"    the kernel kills whole containers of this pod, "false": single processes
    plimsoll.dev/memory-qos: "off"    no memory.min, memory.low and memory.high for this pod

The first overrides `singleProcessOOMKill`, the second the gate MemoryQoS. Both need cgroup v2. Other values are
ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

import msgspec

from plimsoll.rules.model.gates import DEFAULT_GATES, Gates
from plimsoll.rules.model.kernel import DEFAULT_PERIOD_US, CgroupVersion, Weight
from plimsoll.rules.model.objects import Pod

if TYPE_CHECKING:
    from plimsoll.rules.blockio.policy import IoPolicy

# Which protection requests give with Memory QoS on (02 §6.2): none (both files are written as 0), memory.min for
# Guaranteed and memory.low for Burstable, memory.min for both, or memory.min for whatever requests memory.
Reservation = Literal["none", "tiered", "requests", "every request"]


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
    high_of_pod: bool = (
        False  # pod-level resources: the pod has a memory.high, and containers without a limit have none
    )
    high_reset: bool = False  # the gate is off: memory.high is written as max
    low_of_kubepods: bool = False
    throttling_factor: float | None = 0.9
    page_size: int = 4096
    page_cache_safe: bool = False  # extension: memory.min stays below memory.max
    oom_group: bool = False  # singleProcessOOMKill is false, and cgroup v2
    limited_swap: bool = False  # containers may use a share of the swap
    unlimited_swap: bool = False  # … or all of it
    swap_with_memory: bool = False  # the rule of 1.27: memory and swap together
    critical_pods_swap: bool = False
    swap_controller: bool = True
    hugepage_sizes: tuple[int, ...] = ()
    pod_pids_limit: int = -1
    gates: Gates = DEFAULT_GATES
    pod_level_oom_share: bool = True
    pod_level_oom_share_floored: bool = False
    sidecar_oom_rule: bool = True
    pod_level_hugepages_inherited: bool = True
    quota_with_exclusive_cpus: bool = False
    static_cpus: bool = False  # cpuManagerPolicy: static
    pod_level_unmanaged: bool = True  # the CPU and memory managers leave out pods with pod-level resources
    weight: Weight = "quadratic"  # what the runtime writes for containers
    io: IoPolicy | None = None  # extension: weights, limits and latency targets of block I/O

    quota_period_us: int = DEFAULT_PERIOD_US  # derived: the period that quotas are computed with (02 §4.3)
    other_pod_level: bool = False  # derived: pod-level resources have other rules than in 1.36

    def __post_init__(self) -> None:
        """Without the gate the default period applies. Stored, because every container or pod reads them."""
        used = self.period_us if self.custom_period else DEFAULT_PERIOD_US
        msgspec.structs.force_setattr(self, "quota_period_us", used)
        gates = self.gates
        other = gates.fixed_defaulting or gates.fixed_class or self.high_of_pod or self.pod_level_oom_share_floored
        msgspec.structs.force_setattr(self, "other_pod_level", other or not gates.pod_level_hugepages)


OOM_GROUP = "plimsoll.dev/oom-group"
MEMORY_QOS = "plimsoll.dev/memory-qos"
OFF = "off"
_TRUTH = {"true": True, "false": False}


def asked_oom_group(annotations: Mapping[str, str] | None) -> bool | None:
    """None without the annotation."""
    return _TRUTH.get(annotations[OOM_GROUP]) if annotations and OOM_GROUP in annotations else None


def declines_memory_qos(annotations: Mapping[str, str] | None) -> bool:
    return bool(annotations) and (annotations or {}).get(MEMORY_QOS) == OFF


def is_plain(pod: Pod) -> bool:
    """Whether the node's policy applies to the pod unchanged."""
    annotations = pod.metadata.annotations
    return not annotations or (OOM_GROUP not in annotations and MEMORY_QOS not in annotations)


def pod_policy(pod: Pod, policy: NodePolicy) -> NodePolicy:
    if is_plain(pod) or policy.cgroup_version == 1:
        return policy
    group = asked_oom_group(pod.metadata.annotations)
    return msgspec.structs.replace(
        policy,
        memory_qos=policy.memory_qos and not declines_memory_qos(pod.metadata.annotations),
        oom_group=policy.oom_group if group is None else group,
    )
