"""Pods + policy → the value of every control file that attach writes: container, pod, class, kubepods.

The values of containers and pods are those of `rules.resources`, with the policy of the pod's namespace in place of the
kubelet's. A protection is effective only if every ancestor has at least as much, so a class has the sum of its pods and
kubepods the sum of all, for memory.min and for memory.low. (A kubelet sets memory.low below kubepods only, where it has
no effect: 02 §6.2.)

Σ memory.min stays below allocatable less a reserve: memory below memory.min is never reclaimed, so a node whose pods
protect everything kills processes of the system. Pods are considered in the order of their creation; those that no
longer fit get memory.low in place of memory.min.

The values of block I/O are those of `rules.blockio`, as on a node that Plimsoll runs. A weight of kubepods or of a
class concerns all pods below it, so it is written only if all namespaces take part.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import msgspec

from plimsoll.errors import PlimsollError
from plimsoll.rules.attach.policy import AttachPolicy, Switches, annotation_problems, burst_percent
from plimsoll.rules.blockio.files import class_files, kubepods_files, latency_files, pod_files, smallest_targets
from plimsoll.rules.blockio.policy import NO_IO, PodIo, io_errors, pod_io
from plimsoll.rules.cgroups.desired import Workload, defaulted_on, pod_totals, sized
from plimsoll.rules.model.cgroup_names import cgroup_path, class_name, container_component, pod_name, uid_errors
from plimsoll.rules.model.objects import Pod, QoSClass
from plimsoll.rules.node.node_config import NodeConfig
from plimsoll.rules.resources.node_policy import NodePolicy, Reservation, asked_oom_group, pod_policy
from plimsoll.rules.resources.values import Values

Level = Literal["pods", "class", "pod", "container"]
MIN, LOW, HIGH, GROUP = "memory.min", "memory.low", "memory.high", "memory.oom.group"
BURST_V2, BURST_V1 = "cpu.max.burst", "cpu.cfs_burst_us"
BURSTS = (BURST_V2, BURST_V1)
_RESERVATION: dict[str, Reservation] = {"tiered": "tiered", "hard": "requests", "off": "none"}


class AttachedPod(msgspec.Struct, frozen=True):
    """A pod of this node, and the ids of its running containers as the runtime knows them."""

    pod: Pod
    containers: Mapping[str, str] = {}

    @property
    def title(self) -> str:
        return f"{self.pod.metadata.namespace or 'default'}/{self.pod.metadata.name}"


class Target(msgspec.Struct, frozen=True):
    """One cgroup and the values that it should have. `score`: of its processes, if it is repaired. `quota_us`: of its
    CPU limit; 0 if it has none."""

    path: str
    level: Level
    subject: str
    files: dict[str, str]
    container_id: str = ""
    score: int | None = None
    switches: Switches = Switches()
    quota_us: int = 0


class Decision(msgspec.Struct, frozen=True):
    targets: tuple[Target, ...]
    notes: tuple[str, ...] = ()  # what is not done, and why

    def at(self, path: str) -> Target | None:
        return next((target for target in self.targets if target.path == path), None)


class SizedPod(msgspec.Struct, frozen=True):
    """A pod with its protection, which the reserve of the node may still change."""

    attached: AttachedPod
    work: Workload
    switches: Switches
    burst: int
    min_bytes: int
    low_bytes: int
    io: PodIo = NO_IO
    problems: tuple[str, ...] = ()  # of annotations
    demoted: bool = False


KnownPods = dict[str, SizedPod]  # by uid: what was computed before, used again while pod and switches are the same


def switch_problems(policy: AttachPolicy, setting: NodeConfig, has_psi: bool = True) -> list[str]:
    """Switches that cannot work on this node, each with the reason. They are ignored."""
    used = [policy.default, *policy.namespaces.values()]
    found = []
    if any(each.memory_qos != "off" for each in used):
        if setting.policy.cgroup_version == 1:
            found.append("memoryQoS is ignored: cgroup v1 has no memory.min, memory.low and memory.high")
        elif setting.policy.memory_qos:
            found.append(
                "memoryQoS is ignored: the kubelet's feature gate MemoryQoS is on, it writes these files itself"
            )
    if setting.policy.cgroup_version == 1 and any(each.oom_group != "keep" for each in used):
        found.append("oomGroup is ignored: cgroup v1 has no memory.oom.group")
    if any(each.reclaim for each in used):
        if setting.policy.cgroup_version == 1:
            found.append("proactiveReclaim is ignored: cgroup v1 has no memory.reclaim")
        elif not has_psi:
            found.append("proactiveReclaim is ignored: this kernel has no PSI, which governs it (boot with psi=1)")
    return found


def decided(
    pods: Sequence[AttachedPod],
    policy: AttachPolicy,
    setting: NodeConfig,
    in_scope: Callable[[str], bool] | None = None,
    known: KnownPods | None = None,
) -> Decision:
    """`in_scope`: whether a namespace takes part (canary); None: all do. Pods of others are left as they are. `known`
    is updated; it must be of pods that were computed with the same block I/O."""
    notes: list[str] = []
    found: list[SizedPod] = []
    known = {} if known is None else known
    for each in sorted(pods, key=_age):
        if in_scope is not None and not in_scope(each.pod.metadata.namespace):
            continue
        errors = uid_errors(each.pod.metadata.uid)
        if errors or not each.pod.metadata.uid:
            notes.append(f"{each.title}: left as it is: {errors[0] if errors else 'it has no uid'}")
            continue
        try:
            found.append(_sized_pod(each, policy, setting, known))
        except PlimsollError as error:
            notes.append(f"{each.title}: left as it is: {error}")
    notes += [f"{pod.attached.title}: {problem}" for pod in found for problem in pod.problems]
    found = _fitting(found, policy, setting, notes)
    targets = [*_upper(found, setting, every_pod=in_scope is None)]
    for pod in found:
        targets += _of_pod(pod, setting)
    return Decision(tuple(target for target in targets if target.files or target.score is not None), tuple(notes))


def _age(each: AttachedPod) -> tuple[str, str]:
    return each.pod.metadata.creation_timestamp or "", each.pod.metadata.uid


def _sized_pod(each: AttachedPod, policy: AttachPolicy, setting: NodeConfig, known: KnownPods) -> SizedPod:
    switches = policy.of(each.pod.metadata.namespace)
    before = known.get(each.pod.metadata.uid)
    if before is not None and before.attached.pod is each.pod and before.switches == switches:
        return msgspec.structs.replace(before, attached=each)
    desired = defaulted_on(each.pod, setting)
    own = pod_policy(desired, _node_policy(switches, setting.policy))
    work = sized(pod_totals(desired, own.gates), own, setting.driver)
    burst, problem = burst_percent(desired.metadata.annotations, switches)
    min_bytes = _capped(work.values.memory_min_bytes, switches.most_min_bytes)
    low_bytes = _capped(work.values.memory_low_bytes, switches.most_low_bytes)
    io, version = setting.policy.io, setting.policy.cgroup_version
    problems = (
        *([problem] if problem else ()),
        *annotation_problems(desired.metadata.annotations),
        *(f"{error}; it is ignored" for error in io_errors(desired, io, version)),
    )
    allowed = NO_IO if io is None else pod_io(desired, io, version)
    found = SizedPod(each, work, switches, burst, min_bytes, low_bytes, allowed, problems)
    known[each.pod.metadata.uid] = found
    return found


def _node_policy(switches: Switches, policy: NodePolicy) -> NodePolicy:
    """The kubelet's policy with the switches; unchanged protection where the kubelet sets it itself."""
    on = switches.memory_qos != "off" and policy.cgroup_version == 2 and not policy.memory_qos
    return msgspec.structs.replace(
        policy,
        memory_qos=on,
        reservation=_RESERVATION[switches.memory_qos],
        throttling_factor=switches.factor,
        high_reset=False,
        page_cache_safe=True,
        oom_group=False,
    )


def _capped(amount: int | None, ceiling: int | None) -> int:
    return min(amount or 0, ceiling) if ceiling is not None else amount or 0


def _fitting(pods: Sequence[SizedPod], policy: AttachPolicy, setting: NodeConfig, notes: list[str]) -> list[SizedPod]:
    """The pods, with memory.low in place of memory.min for those that no longer fit."""
    allocatable = setting.policy.allocatable_memory_bytes
    budget = max((allocatable or setting.policy.memory_capacity_bytes) - policy.reserve_bytes, 0)
    used, found = 0, []
    for pod in pods:
        if used + pod.min_bytes <= budget:
            used += pod.min_bytes
        else:
            notes.append(
                f"{pod.attached.title}: memory.low in place of memory.min: Σ memory.min would be "
                f"{used + pod.min_bytes}, more than allocatable − memoryReserve = {budget}"
            )
            low = _capped(max(pod.low_bytes, pod.min_bytes), pod.switches.most_low_bytes)
            pod = msgspec.structs.replace(pod, low_bytes=low, min_bytes=0, demoted=True)
        found.append(pod)
    return found


def _upper(found: Sequence[SizedPod], setting: NodeConfig, *, every_pod: bool) -> list[Target]:
    kubepods = cgroup_path(setting.pods_root, setting.driver)
    targets = [Target(kubepods, "pods", "all pods", _sums(found) | _shared_io(found, None, setting, every_pod))]
    classes: tuple[QoSClass, ...] = ("Burstable", "BestEffort")
    for qos in classes:
        pods = [pod for pod in found if pod.work.qos == qos]
        path = cgroup_path(class_name(setting.pods_root, qos), setting.driver)
        targets.append(Target(path, "class", qos, _sums(pods) | _shared_io(pods, qos, setting, every_pod)))
    return targets


def _shared_io(pods: Sequence[SizedPod], qos: QoSClass | None, setting: NodeConfig, every_pod: bool) -> dict[str, str]:
    """Of a class, or of kubepods. A latency target has an effect only if the cgroups above have it, too."""
    if (policy := setting.policy.io) is None:
        return {}
    ios = [pod.io for pod in pods]
    if not every_pod:
        return latency_files(policy, smallest_targets(ios))
    return kubepods_files(policy, ios) if qos is None else class_files(policy, qos, ios)


def _sums(pods: Sequence[SizedPod]) -> dict[str, str]:
    sums = {MIN: sum(pod.min_bytes for pod in pods), LOW: sum(pod.low_bytes for pod in pods)}
    return {file: str(amount) for file, amount in sums.items() if amount}


def _of_pod(pod: SizedPod, setting: NodeConfig) -> list[Target]:
    work, uid = pod.work, pod.work.pod.metadata.uid
    name = pod_name(setting.pods_root, work.qos, uid)
    path, title = cgroup_path(name, setting.driver), pod.attached.title
    protection = {MIN: pod.min_bytes, LOW: pod.low_bytes, HIGH: work.values.memory_high_bytes}
    files = {file: str(amount) for file, amount in protection.items() if amount}
    files |= _burst(work.values, pod.burst, setting)
    if setting.policy.io is not None:
        files |= pod_files(setting.policy.io, work.qos, pod.io, setting.policy.cgroup_version)
    quota_us = _limited(work.values.cpu_quota_us)
    targets = [Target(path, "pod", title, files, switches=pod.switches, quota_us=quota_us)]
    for index, container in enumerate(work.containers):
        container_id = pod.attached.containers.get(container.name)
        if container_id:
            component = container_component(container_id, setting.driver, setting.runtime)
            targets.append(
                Target(
                    f"{path}/{component}",
                    "container",
                    f"{title} / {container.name}",
                    container_files(pod, index, setting),
                    container_id,
                    work.scores[index] if pod.switches.repair_scores else None,
                    pod.switches,
                    _limited(work.container_values[index].cpu_quota_us),
                )
            )
    return targets


def container_files(pod: SizedPod, index: int, setting: NodeConfig) -> dict[str, str]:
    values, switches = pod.work.container_values[index], pod.switches
    min_bytes = min(_capped(values.memory_min_bytes, switches.most_min_bytes), pod.min_bytes)
    low = max(values.memory_low_bytes or 0, values.memory_min_bytes or 0 if pod.demoted else 0)
    low_bytes = min(_capped(low, switches.most_low_bytes), pod.low_bytes)
    amounts = {MIN: min_bytes, LOW: low_bytes, HIGH: values.memory_high_bytes}
    files = {file: str(amount) for file, amount in amounts.items() if amount}
    asked = asked_oom_group(pod.work.desired.metadata.annotations)
    if setting.policy.cgroup_version == 2 and (asked is not None or switches.oom_group != "keep"):
        files[GROUP] = str(int(switches.oom_group == "container" if asked is None else asked))
    return files | _burst(values, pod.burst, setting)


def _burst(values: Values, percent: int, setting: NodeConfig) -> dict[str, str]:
    quota_us = _limited(values.cpu_quota_us)
    if percent == 0 or quota_us == 0:
        return {}
    return {BURST_V2 if setting.policy.cgroup_version == 2 else BURST_V1: str(quota_us * percent // 100)}


def _limited(quota_us: int | None) -> int:
    return max(quota_us or 0, 0)
