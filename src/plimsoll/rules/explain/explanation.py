"""Everything that `plimsoll explain` prints about a node and its pods, as values."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from plimsoll.rules.cgroups.desired import EVERYTHING, Cgroup, Shown, Workload, desired_tree
from plimsoll.rules.cgroups.reasons import human_bytes
from plimsoll.rules.config.manager_options import cpu_options
from plimsoll.rules.eviction.ranking import ranking_request
from plimsoll.rules.eviction.storage_limits import storage_limits
from plimsoll.rules.explain.advice import (
    AdvisedChange,
    guaranteed_changes,
    pod_warnings,
    qos_sentence,
    setting_warnings,
)
from plimsoll.rules.explain.contention import with_effective
from plimsoll.rules.explain.departures import memory_high_notes
from plimsoll.rules.model.objects import CPU, MEMORY, QoSClass, ResourceList, is_critical
from plimsoll.rules.node.node_config import NodeConfig, reserved_cpus, withheld_hugepages


class EvictionKeys(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The keys that rank the pod in a memory shortage (04 §5): over its request, priority, excess."""

    memory_request_bytes: int
    priority: int | None  # None: set by a PriorityClass of the cluster
    exempt: bool = False
    cannot_exceed: bool = False  # its memory limit equals its request

    def place(self) -> str:
        """By the first key alone."""
        if self.exempt:
            return "exempt: static, mirror and system-critical pods are never evicted by the node"
        if self.cannot_exceed:
            return "after all pods that use more than their request: its limit prevents that"
        if self.memory_request_bytes == 0:
            return "among the first as soon as it uses any: its request is 0"
        return f"among the first once it uses more than {human_bytes(self.memory_request_bytes)}"

    def sentence(self) -> str:
        if self.exempt:
            return self.place()
        number = "unknown: set by a PriorityClass of the cluster" if self.priority is None else str(self.priority)
        return f"{self.place()}; within that, lower priority first (this one: {number}), then the larger excess"


class PodExplanation(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    name: str
    namespace: str
    qos_class: QoSClass
    because: str
    requests: dict[str, str]
    limits: dict[str, str]
    eviction: EvictionKeys
    overhead: dict[str, str] = {}
    runtime_class: str = ""
    exclusive_cpus: int = 0
    storage_limits: dict[str, str] = {}  # container → the ephemeral-storage limit that eviction enforces
    advice: tuple[AdvisedChange, ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class NodeExplanation(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    name: str
    profile: str
    cgroup_version: int
    driver: str
    runtime: str
    capacity: dict[str, str]
    allocatable: dict[str, str]
    steps: dict[str, str]
    shared_cpus: int | None = None
    warnings: tuple[str, ...] = ()
    profile_reason: str = ""
    withheld_memory: str = ""  # what memory.available does not contain: huge pages


class Explanation(msgspec.Struct, frozen=True, omit_defaults=True):
    node: NodeExplanation
    pods: tuple[PodExplanation, ...]
    tree: Cgroup


def explanation(
    workloads: Sequence[Workload], setting: NodeConfig, *, advise: bool = False, shown: Shown = EVERYTHING
) -> Explanation:
    tree = desired_tree(workloads, setting, shown)
    return Explanation(
        _node(workloads, setting, reasons=shown.reasons),
        tuple(pod_explanation(work, setting, advise=advise, reasons=shown.reasons) for work in workloads),
        with_effective(tree, setting.absolute[CPU].milli, _shared_cpus(workloads, setting)),
    )


def _node(workloads: Sequence[Workload], setting: NodeConfig, *, reasons: bool) -> NodeExplanation:
    return NodeExplanation(
        setting.machine.name,
        setting.profile.name,
        setting.policy.cgroup_version,
        setting.driver,
        setting.runtime,
        texts(setting.capacity),
        texts(setting.allocatable),
        {name: allocatable_steps(setting, name) for name in (CPU, MEMORY)} if reasons else {},
        _shared_cpus(workloads, setting),
        (*setting_warnings(setting), *_cpu_warnings(workloads, setting)) if reasons else (),
        setting.profile_reason,
        human_bytes(withheld) if (withheld := withheld_hugepages(setting)) else "",
    )


def _shared_cpus(workloads: Sequence[Workload], setting: NodeConfig) -> int | None:
    """The CPUs that are not exclusive; None without the static policy."""
    if not setting.policy.static_cpus:
        return None
    options = cpu_options(setting.config.cpu_manager_policy_options)
    reserved = reserved_cpus(setting.config) if options.strict_cpu_reservation else 0
    return max(setting.machine.cores - reserved - sum(work.exclusive_cpus for work in workloads), 0)


def _cpu_warnings(workloads: Sequence[Workload], setting: NodeConfig) -> list[str]:
    wanted = sum(work.exclusive_cpus for work in workloads)
    offered = setting.machine.cores - reserved_cpus(setting.config)
    if not setting.policy.static_cpus or wanted <= offered:
        return []
    return [
        f"{wanted} exclusive CPUs are requested but only {offered} are available: the last of these pods are rejected"
    ]


def allocatable_steps(setting: NodeConfig, name: str) -> str:
    """capacity − systemReserved − kubeReserved − evictionHard, without the terms that are not set (N-8)."""
    terms = [str(setting.capacity[name])]
    reserved = setting.reserved
    for part in (reserved.system, reserved.kube, reserved.eviction):
        if part and part.get(name):
            terms.append(str(part[name]))
    if name == MEMORY:
        terms += [str(q) for key, q in setting.capacity.items() if key.startswith("hugepages-") and q]
    if len(terms) == 1:
        return terms[0]
    rest = " − ".join(terms)
    return f"{rest} = {setting.allocatable[name]}" if setting.allocatable[name] else f"max(0, {rest}) = 0"


def pod_explanation(
    work: Workload, setting: NodeConfig, *, advise: bool = False, reasons: bool = True
) -> PodExplanation:
    pod = work.pod
    return PodExplanation(
        work.title,
        pod.metadata.namespace or "default",
        work.qos,
        qos_sentence(work, setting) if reasons else "",
        texts(work.counted),
        texts(work.limits),
        EvictionKeys(
            ranking_request(pod, MEMORY, gates=setting.policy.gates).value,
            None if pod.spec.priority is None and pod.spec.priority_class_name else pod.spec.priority or 0,
            is_critical(pod),
            work.qos == "Guaranteed",
        ),
        texts(pod.spec.overhead or {}),
        pod.spec.runtime_class_name or "",
        work.exclusive_cpus,
        texts(storage_limits(pod, setting.policy.gates)),
        tuple(guaranteed_changes(work, setting)) if advise else (),
        tuple(pod_warnings(work, setting)) if reasons else (),
        tuple(memory_high_notes(work, setting)) if reasons else (),
    )


def texts(resources: ResourceList) -> dict[str, str]:
    return {name: str(quantity) for name, quantity in resources.items()}
