"""The pods known on this node → the desired files of every cgroup. The workload computed for a pod is cached."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

import msgspec

from plimsoll.cgroups.engine.ownership import KnownPod
from plimsoll.errors import FieldError, InvalidObjectError
from plimsoll.rules.cgroups.desired import Shown, Workload, desired_pod, desired_tree, workload
from plimsoll.rules.cgroups.desired_files import DesiredCgroup, derived_id, wanted
from plimsoll.rules.model.cgroup_names import uid_errors
from plimsoll.rules.model.objects import Pod, container_fields
from plimsoll.rules.node.allocatable import added_sums, class_values
from plimsoll.rules.node.node_config import NodeConfig

HIGH, CPUS, MEMS = "memory.high", "cpuset.cpus", "cpuset.mems"
Containers = Mapping[str, Mapping[str, str]]  # pod uid → container name → id
CpusOf = Callable[[str, str], str]  # pod uid, container name → the list of CPUs it runs on
MemsOf = Callable[[str, str], str]  # … → the NUMA nodes of its memory; empty: not bound


class WorkloadCache:
    """The workload of each pod, cached for as long as the pod stays the same.

    The cgroup manager and the agent each have an instance: during a resize one asks about the actuated pod and the
    other about the allocated one, so that a common entry would be computed again at every question. The cgroup manager
    also runs in a thread of its own.
    """

    def __init__(self, config: NodeConfig) -> None:
        self.config = config
        self._cache: dict[str, tuple[Pod, Workload]] = {}  # by uid

    def of(self, pod: Pod) -> Workload:
        cached = self._cache.get(pod.metadata.uid)
        if cached is None or (cached[0] is not pod and cached[0] != pod):
            cached = self._cache[pod.metadata.uid] = (pod, workload(pod, self.config))
        return cached[1]

    def forget(self, uid: str) -> None:
        self._cache.pop(uid, None)


class DesiredState:
    def __init__(self, node_config: NodeConfig) -> None:
        self._node_config = node_config
        self._workloads = WorkloadCache(node_config)

    def known_pods(
        self,
        pods: Iterable[Pod],
        containers: Containers | None = None,
        before: Mapping[str, KnownPod] | None = None,
    ) -> dict[str, KnownPod]:
        """By uid; a pod that `containers` does not name has a cgroup for each container, with a derived id.

        `before`: the pods as known so far; a container that continues keeps its memory.high override and its CPUs.
        """
        pods_by_uid: dict[str, KnownPod] = {}
        for pod in pods:
            uid = pod.metadata.uid
            errors = uid_errors(uid)
            if not uid:
                errors = [FieldError("FieldValueRequired", "metadata.uid", "the pod's cgroup is named after it")]
            if uid in pods_by_uid:
                errors = [FieldError("FieldValueDuplicate", "metadata.uid", value=uid)]
            if errors:
                raise InvalidObjectError(errors)
            every = [container for _, container in container_fields(pod.spec)]
            named = (containers or {}).get(uid)
            ids = dict(named) if named is not None else {c.name: derived_id(uid, c.name) for c in every}
            known = before.get(uid) if before is not None else None
            lifted, cpus, mems = (known.lifted, known.cpus, known.mems) if known is not None else ({}, {}, {})
            lifted = {container_id: high for container_id, high in lifted.items() if container_id in ids.values()}
            pods_by_uid[uid] = KnownPod(pod, ids, lifted, cpus, mems)
        return pods_by_uid

    def cgroups(self, pods: Mapping[str, KnownPod], only: Collection[str] | None = None) -> dict[str, DesiredCgroup]:
        """With `only`, the cgroups of those pods; the sums above always count all pods."""
        shown = Shown(
            lambda uid: only is None or uid in only,
            lambda uid, container: pods[uid].containers.get(container),
            reasons=False,
        )
        workloads = [self._workloads.of(known.pod) for known in pods.values()]
        cgroups = wanted(desired_tree(workloads, self._node_config, shown))
        for known in pods.values():
            if only is None or known.uid in only:
                cgroups |= _overrides(cgroups, known)
        return cgroups

    def forget(self, uids: Iterable[str]) -> None:
        """Drop what was computed for these pods."""
        for uid in uids:
            self._workloads.forget(uid)

    def pod_cgroups(self, known: KnownPod) -> dict[str, DesiredCgroup]:
        """The cgroups of one pod: they do not depend on other pods."""
        shown = Shown(container_id=lambda _uid, container: known.containers.get(container), reasons=False)
        cgroups = wanted(desired_pod(self._workloads.of(known.pod), self._node_config, shown))
        return cgroups | _overrides(cgroups, known)

    def changed_above(self, before: KnownPod, pods: Mapping[str, KnownPod]) -> dict[str, DesiredCgroup] | None:
        """The cgroups above the pods whose values change when `before` becomes the pod in `pods`.

        None where they depend on more than sums: limits and protections that follow the current usage, and latency
        targets.
        """
        node_config = self._node_config
        policy = node_config.policy
        if policy.memory_qos or policy.io is not None or node_config.config.gate("QOSReserved"):
            return None
        uid = before.uid
        old, new = self._workloads.of(before.pod).share, self._workloads.of(pods[uid].pod)
        if old == new.share:
            return {}
        others = added_sums([self._workloads.of(known.pod).share for key, known in pods.items() if key != uid])
        values = [class_values(added_sums([others, share]), node_config.policy) for share in (old, new.share)]
        if values[0] == values[1]:
            return {}
        tree = desired_tree([new], node_config, Shown(lambda _uid: False, reasons=False), beside=others)
        return {path: cgroup for path, cgroup in wanted(tree).items() if cgroup.level in ("pods", "class")}

    def pod_paths(self, known: KnownPod) -> dict[str, str]:
        """container name → path of its cgroup; "" → the pod's own."""
        cgroups = self.pod_cgroups(known)
        return {cgroup.name if cgroup.level == "container" else "": path for path, cgroup in cgroups.items()}


def _overrides(cgroups: Mapping[str, DesiredCgroup], known: KnownPod) -> dict[str, DesiredCgroup]:
    """The container cgroups of a pod that have other values than the rules compute."""
    changed: dict[str, DesiredCgroup] = {}
    if known.lifted:  # only where the rules set a memory.high at all
        changed |= _overridden(cgroups, known.lifted, HIGH, where=lambda cgroup: HIGH in cgroup.files)
    for values, file in ((known.cpus, CPUS), (known.mems, MEMS)):  # never of the cgroups above a container (02 §10)
        if values:
            by_id = {known.containers.get(name, ""): text for name, text in values.items()}
            changed |= _overridden({**cgroups, **changed}, by_id, file)
    return changed


def _overridden(
    cgroups: Mapping[str, DesiredCgroup],
    values: Mapping[str, str],
    file: str,
    where: Callable[[DesiredCgroup], bool] = lambda _cgroup: True,
) -> dict[str, DesiredCgroup]:
    """The container cgroups that get another value in `file`; `values`: container id → value."""
    changed = {}
    for path, cgroup in cgroups.items():
        name = path.rpartition("/")[2]
        value = next((value for container_id, value in values.items() if container_id and container_id in name), None)
        if cgroup.level == "container" and value is not None and where(cgroup):
            changed[path] = msgspec.structs.replace(cgroup, files={**cgroup.files, file: value})
    return changed
