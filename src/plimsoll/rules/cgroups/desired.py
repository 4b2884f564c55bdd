"""Pods + node → the tree of cgroups with every file, its value and its reason (02 §1).

node → kubepods → QoS class → pod → container. The values come from `rules.resources.values` and
`rules.node.allocatable`; this module maps them to paths and file names and adds the reason for each (`reasons`).

    raw pod ─defaulted_on─▶ desired ─pod_totals─▶ PodTotals ─sized─▶ Workload ─desired_tree─▶ Cgroup

`Workload` is one pod with everything computed for it, so that printing, ranking and comparing compute nothing again.
This is the only way from a pod to its values; `rules.explain.plan` is a projection of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Literal

import msgspec

from plimsoll.rules.cgroups import reasons_by_level as why
from plimsoll.rules.cgroups.reasons import Reason, human_bytes
from plimsoll.rules.model.cgroup_names import (
    UNKNOWN_ID,
    UNKNOWN_UID,
    CgroupName,
    Driver,
    cgroup_path,
    class_name,
    container_component,
    pod_name,
)
from plimsoll.rules.model.gates import Gates
from plimsoll.rules.model.objects import Container, Pod, QoSClass, ResourceList, container_fields, is_sidecar
from plimsoll.rules.node.allocatable import (
    ClassSums,
    ClassValues,
    added_sums,
    class_sums,
    class_values,
    kubepods_values,
    reserved_values,
    started_class_values,
)
from plimsoll.rules.node.node_config import NodeConfig
from plimsoll.rules.resources.allocated_status import allocated_from_status
from plimsoll.rules.resources.defaulting import defaulted
from plimsoll.rules.resources.effective import pod_limits, pod_requests
from plimsoll.rules.resources.exclusive_cpus import exclusive_cpus, pod_exclusive_cpus
from plimsoll.rules.resources.files import file_map
from plimsoll.rules.resources.footprint import counted_requests
from plimsoll.rules.resources.node_policy import NodePolicy, declines_memory_qos, pod_policy
from plimsoll.rules.resources.oom_score import oom_scores
from plimsoll.rules.resources.qos import qos_class
from plimsoll.rules.resources.values import Values, as_kept, container_values, pod_values, with_host_pages

if TYPE_CHECKING:
    from plimsoll.rules.blockio.policy import IoPolicy, PodIo
    from plimsoll.rules.cgroups.io_files import Explained
    from plimsoll.rules.model.kernel import CgroupVersion

Level = Literal["node", "pods", "reserved", "class", "pod", "container"]


class DesiredFile(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    value: int | str
    human: str = ""
    reason: Reason = Reason()


class Effective(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """What one cgroup gets when all others on the node compete for it (`rules.explain.contention`)."""

    memory_min_bytes: int = 0
    memory_low_bytes: int = 0
    memory_limit_bytes: int | None = None
    memory_limit_from: str = ""  # which cgroup's limit is reached first: the lowest limit, of equal ones the topmost
    cpu_floor_milli: int = 0
    cpu_ceiling_milli: int | None = None
    cpu_ceiling_from: str = ""


class Cgroup(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    level: Level
    name: str  # for people: the pod's or container's name
    path: str
    files: tuple[DesiredFile, ...] = ()
    oom_score_adj: int | None = None
    oom_steps: str = ""
    exclusive_cpus: int = 0
    stage: Literal["", "init", "sidecar", "app"] = ""  # of a container: when it runs
    effective: Effective | None = None
    children: tuple[Cgroup, ...] = ()

    def value(self, file_name: str) -> int | str | None:
        return next((file.value for file in self.files if file.name == file_name), None)


class PodTotals(msgspec.Struct, frozen=True):
    """One defaulted pod and its sums: what the values are computed from."""

    desired: Pod  # as the spec requests it
    pod: Pod  # as the node allocated it: differs from `desired` only while a resize is pending
    qos: QoSClass
    requests: ResourceList
    limits: ResourceList


class Workload(PodTotals, frozen=True):
    """One pod with every value that the rules compute for it."""

    values: Values
    container_values: tuple[Values, ...]  # init containers first, ephemeral ones last
    scores: tuple[int, ...]
    exclusive_cpus: int
    counted: ResourceList = {}  # what the scheduler counts
    share: ClassSums = ClassSums()  # what the pod adds to the sums of its class
    io: PodIo | None = None  # None: the node does not control I/O
    base: str = "spec"  # where the pod's spec is in the manifest
    title: str = ""

    @property
    def containers(self) -> tuple[Container, ...]:
        return tuple(container for _, container in container_fields(self.pod.spec))


def pod_totals(desired: Pod, gates: Gates) -> PodTotals:
    """The sums of a defaulted pod."""
    pod = allocated_from_status(desired)
    qos = qos_class(desired, gates=gates)
    return PodTotals(desired, pod, qos, pod_requests(pod, gates=gates), pod_limits(pod, gates=gates))


def sized(totals: PodTotals, policy: NodePolicy, driver: Driver) -> Workload:
    """The values of the pod's cgroups and containers; `policy` is the pod's own (`pod_policy`)."""
    desired, pod, qos, requests, limits = msgspec.structs.astuple(totals)
    exclusive = pod_exclusive_cpus(pod, qos, policy)
    values = pod_values(pod, qos, requests, limits, policy, exclusive_cpus=exclusive > 0)
    return Workload(
        desired,
        pod,
        qos,
        requests,
        limits,
        as_kept(with_host_pages(values, policy), driver),
        tuple(
            as_kept(
                container_values(
                    pod, container, qos, policy, exclusive_cpus=exclusive_cpus(pod, container, qos, policy) > 0
                ),
                driver,
            )
            for _, container in container_fields(pod.spec)
        ),
        tuple(oom_scores(pod, qos, policy)),
        exclusive,
    )


def workload(raw: Pod, setting: NodeConfig, *, base: str = "spec", title: str = "") -> Workload:
    return defaulted_workload(defaulted_on(raw, setting), setting, base=base, title=title)


def defaulted_on(raw: Pod, setting: NodeConfig) -> Pod:
    """The pod as an API server with the node's gates and profile stores it: it drops pod-level resources, which a
    kubelet without the gate would still count in its sums of memory (02 §6.2)."""
    gates = setting.policy.gates
    if raw.spec.resources is not None and not gates.pod_level:
        raw = msgspec.structs.replace(raw, spec=msgspec.structs.replace(raw.spec, resources=None))
    return defaulted(raw, gates=gates, resize_policy=setting.profile.resize_policy_defaulted and gates.in_place)


def defaulted_workload(desired: Pod, setting: NodeConfig, *, base: str = "spec", title: str = "") -> Workload:
    policy = pod_policy(desired, setting.policy)
    work = sized(pod_totals(desired, policy.gates), policy, setting.driver)
    return msgspec.structs.replace(
        work,
        counted=work.requests
        if work.pod is desired
        else counted_requests(desired, setting.profile.resize_footprint, gates=policy.gates),
        share=class_sums([desired], gates=policy.gates),
        io=None if policy.io is None else _pod_io(desired, policy.io, policy.cgroup_version),
        base=base,
        title=title or desired.metadata.name,
    )


class Shown(msgspec.Struct, frozen=True):
    """Which pods of the node are in the tree (all of them count in the sums), and the ids of their containers.

    A container whose id is None has no cgroup: it has not started, or has terminated. Without `reasons` the tree is
    computed in less than half the time.
    """

    pod: Callable[[str], bool] = lambda _uid: True
    container_id: Callable[[str, str], str | None] = lambda _uid, _container: UNKNOWN_ID
    reasons: bool = True


EVERYTHING = Shown()
NO_SUMS = ClassSums()
NO_REASON = Reason()


def desired_tree(
    workloads: Sequence[Workload], setting: NodeConfig, shown: Shown = EVERYTHING, beside: ClassSums = NO_SUMS
) -> Cgroup:
    """The whole node with the pods on it; without cgroupsPerQOS only containers have cgroups (02 §1).

    `beside`: what further pods add to the sums; none of them declines Memory QoS.
    """
    name = setting.machine.name or "node"
    if not setting.config.cgroups_per_qos:
        return Cgroup("node", name, "/", children=tuple(_loose_pod(work, setting, shown) for work in workloads))
    return Cgroup(
        "node", name, "/", children=(_kubepods(workloads, setting, shown, beside), *_reserved_cgroups(setting))
    )


def _loose_pod(work: Workload, setting: NodeConfig, shown: Shown) -> Cgroup:
    """A pod without a cgroup: the runtime chooses where its containers are."""
    containers = _containers(work, (), setting, shown)
    return Cgroup("pod", work.title, "", exclusive_cpus=work.exclusive_cpus, children=containers)


def _kubepods(workloads: Sequence[Workload], setting: NodeConfig, shown: Shown, beside: ClassSums) -> Cgroup:
    config, policy = setting.config, setting.policy
    sums = added_sums([beside, *(work.share for work in workloads)])
    percent = config.qos_reserved_percent.get("memory") if config.gate("QOSReserved") else None
    protected = [work.share for work in workloads if not declines_memory_qos(work.desired.metadata.annotations)]
    shielded = added_sums([beside, *protected])
    classes = class_values(sums, policy, percent, shielded)
    enforced = "pods" in config.enforce_node_allocatable and config.cgroups_per_qos
    started = kubepods_values(
        setting.capacity, setting.reserved, enforce_pods=enforced, pid_capacity=setting.machine.pid_capacity
    )
    reset = started_class_values(policy).kubepods
    values = msgspec.structs.replace(
        started,
        memory_min_bytes=_first(classes.kubepods.memory_min_bytes, reset.memory_min_bytes),
        memory_low_bytes=_first(classes.kubepods.memory_low_bytes, reset.memory_low_bytes),
        hugetlb=classes.kubepods.hugetlb or started.hugetlb,
    )
    reasons = why.node_reasons(setting, values, shielded, enforced=enforced) if shown.reasons else {}
    by_class = {
        qos: [work for work in workloads if work.qos == qos] for qos in ("Guaranteed", "Burstable", "BestEffort")
    }
    return Cgroup(
        "pods",
        "all pods",
        cgroup_path(setting.pods_root, setting.driver),
        _files(
            values,
            setting,
            reasons,
            io=_io(setting, lambda io: io.kubepods_io(setting, _io_of(workloads), reasons=shown.reasons)),
        ),
        children=(
            *_pods(by_class["Guaranteed"], setting, shown),
            _class("Burstable", classes, sums, by_class["Burstable"], setting, percent, shown),
            _class("BestEffort", classes, sums, by_class["BestEffort"], setting, percent, shown),
        ),
    )


def _first(amount: int | None, otherwise: int | None) -> int | None:
    return otherwise if amount is None else amount


def _class(
    qos: QoSClass,
    classes: ClassValues,
    sums: ClassSums,
    members: Sequence[Workload],
    setting: NodeConfig,
    percent: int | None,
    shown: Shown,
) -> Cgroup:
    values = classes.burstable if qos == "Burstable" else classes.besteffort
    if qos == "Burstable" and values.memory_low_bytes is None:
        reset = started_class_values(setting.policy).burstable
        values = msgspec.structs.replace(values, memory_low_bytes=reset.memory_low_bytes)
    return Cgroup(
        "class",
        qos,
        cgroup_path(class_name(setting.pods_root, qos), setting.driver),
        _files(
            values,
            setting,
            _class_reasons(qos, sums, members, setting, percent) if shown.reasons else {},
            io=_io(setting, lambda io: io.class_io(setting, qos, _io_of(members), reasons=shown.reasons)),
        ),
        children=_pods(members, setting, shown),
    )


def _class_reasons(
    qos: QoSClass, sums: ClassSums, members: Sequence[Workload], setting: NodeConfig, percent: int | None
) -> dict[str, Reason]:
    gates = setting.policy.gates
    counted = [(pod_requests(work.desired, gates=gates), pod_requests(work.desired)) for work in members]
    shielded = [
        requests
        for work, (_, requests) in zip(members, counted, strict=True)
        if not declines_memory_qos(work.desired.metadata.annotations)
    ]
    return why.class_reasons(qos, setting, sums, counted, percent, shielded)


def _pods(members: Sequence[Workload], setting: NodeConfig, shown: Shown) -> tuple[Cgroup, ...]:
    return tuple(_pod(work, setting, shown) for work in members if shown.pod(work.pod.metadata.uid))


def desired_pod(work: Workload, setting: NodeConfig, shown: Shown = EVERYTHING) -> Cgroup:
    """One pod of the tree."""
    return (_pod if setting.config.cgroups_per_qos else _loose_pod)(work, setting, shown)


def _pod(work: Workload, setting: NodeConfig, shown: Shown) -> Cgroup:
    name = pod_name(setting.pods_root, work.qos, work.pod.metadata.uid or UNKNOWN_UID)
    reasons = (
        why.pod_reasons(work.pod, work.base, work.requests, work.limits, work.qos, work.values, setting)
        if shown.reasons
        else {}
    )
    return Cgroup(
        "pod",
        work.title,
        cgroup_path(name, setting.driver),
        _files(
            work.values,
            setting,
            reasons,
            io=_io(setting, lambda io: io.pod_io_files(setting, work.pod, work.qos, work.io, reasons=shown.reasons)),
        ),
        exclusive_cpus=work.exclusive_cpus,
        children=_containers(work, name, setting, shown),
    )


def _containers(work: Workload, parent: CgroupName, setting: NodeConfig, shown: Shown) -> tuple[Cgroup, ...]:
    uid, where = work.pod.metadata.uid, cgroup_path(parent, setting.driver) if parent else "<the runtime's choice>"
    found = []
    for index, container in enumerate(work.containers):
        own_id = shown.container_id(uid, container.name)
        if own_id is not None:
            component = container_component(own_id, setting.driver, setting.runtime)
            found.append(_container(work, index, container, f"{where}/{component}", setting, shown))
    return tuple(found)


def _container(
    work: Workload, index: int, container: Container, path: str, setting: NodeConfig, shown: Shown
) -> Cgroup:
    values = work.container_values[index]
    reasons: dict[str, Reason] = {}
    steps = ""
    if shown.reasons:
        reasons = why.container_reasons(work.pod, work.base, index, values, setting)
        steps = why.score_steps(work.pod, container, work.qos, work.scores[index], setting)
    return Cgroup(
        "container",
        container.name,
        path,
        _files(
            values,
            setting,
            reasons,
            weight=setting.policy.weight,
            io=_io(setting, lambda io: io.container_io(setting, work.pod, work.io, reasons=shown.reasons)),
        ),
        work.scores[index],
        steps,
        exclusive_cpus(work.pod, container, work.qos, setting.policy),
        _stage(container, index < len(work.pod.spec.init_containers)),
    )


def _stage(container: Container, is_init: bool) -> Literal["init", "sidecar", "app"]:
    if not is_init:
        return "app"
    return "sidecar" if is_sidecar(container) else "init"


def _reserved_cgroups(setting: NodeConfig) -> tuple[Cgroup, ...]:
    """system- and kube-reserved, if they are enforced (01 §10.4); the kubelet expects them to exist."""
    config, cgroups = setting.config, []
    for owner, resources, path in (
        ("system", config.system_reserved, config.system_reserved_cgroup),
        ("kube", config.kube_reserved, config.kube_reserved_cgroup),
    ):
        for suffix in ("", "-compressible"):
            if f"{owner}-reserved{suffix}" in config.enforce_node_allocatable:
                values = with_host_pages(
                    reserved_values(resources, compressible=bool(suffix), memory_qos=setting.policy.memory_qos),
                    setting.policy,
                )
                reasons = why.reserved_reasons(f"{owner}Reserved", resources)
                cgroups.append(Cgroup("reserved", f"{owner}-reserved", path, _files(values, setting, reasons)))
    return tuple(cgroups)


def _files(
    values: Values,
    setting: NodeConfig,
    reasons: dict[str, Reason],
    *,
    weight: Literal["linear", "quadratic"] = "linear",
    io: Explained = (),
) -> tuple[DesiredFile, ...]:
    own = tuple(
        DesiredFile(name, value, _human(name, value) if reasons else "", reasons.get(name, NO_REASON))
        for name, value in file_map(values, setting.policy.cgroup_version, weight).items()
    )
    return (*own, *(DesiredFile(*each) for each in io)) if io else own


def _pod_io(pod: Pod, policy: IoPolicy, version: CgroupVersion) -> PodIo:
    from plimsoll.rules.blockio.policy import pod_io  # most nodes do not control I/O

    return pod_io(pod, policy, version)


def _io(setting: NodeConfig, files: Callable[[ModuleType], Explained]) -> Explained:
    """The files of block I/O; nothing, and no import, while the node does not control it."""
    if setting.policy.io is None:
        return ()
    from plimsoll.rules.cgroups import io_files

    return files(io_files)


def _io_of(workloads: Sequence[Workload]) -> list[PodIo]:
    return [work.io for work in workloads if work.io is not None]


def _human(name: str, value: int | str) -> str:
    if isinstance(value, str):
        quota, _, period = value.partition(" ")
        return "no limit" if quota == "max" else f"{int(quota) / int(period):g} CPU"
    if name == "memory.oom.group":
        return "kill the whole container" if value else ""
    if name.startswith(("memory.", "hugetlb.")):
        return human_bytes(value) if value < 1 << 62 else "no limit"
    return ""
