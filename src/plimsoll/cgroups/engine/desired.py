"""The pods that are known on this node → what every cgroup shall hold. What was computed for a pod is kept."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

import msgspec

from plimsoll.cgroups.engine.ownership import KnownPod
from plimsoll.errors import FieldError, InvalidObjectError
from plimsoll.rules.cgroups.desired import Shown, Workload, desired_tree, workload
from plimsoll.rules.cgroups.desired_files import DesiredCgroup, derived_id, wanted
from plimsoll.rules.model.cgroup_names import uid_errors
from plimsoll.rules.model.objects import Pod
from plimsoll.rules.node.allocatable import added_sums, class_values
from plimsoll.rules.node.node_config import NodeConfig

HIGH, CPUS = "memory.high", "cpuset.cpus"
Containers = Mapping[str, Mapping[str, str]]  # pod uid → container name → id
CpusOf = Callable[[str, str], str]  # pod uid, container name → the list of CPUs it runs on


class DesiredState:
    def __init__(self, setting: NodeConfig) -> None:
        self._setting = setting
        self._works: dict[str, Workload] = {}
        self._pods: dict[str, Pod] = {}

    def known(
        self,
        pods: Iterable[Pod],
        containers: Containers | None = None,
        before: Mapping[str, KnownPod] | None = None,
    ) -> dict[str, KnownPod]:
        """By uid; a pod that `containers` does not name has a cgroup for each container, with an id of our own.

        `before`: how they were known so far; a container that runs on keeps what was lifted for it.
        """
        found: dict[str, KnownPod] = {}
        for pod in pods:
            uid = pod.metadata.uid
            errors = uid_errors(uid)
            if not uid:
                errors = [FieldError("FieldValueRequired", "metadata.uid", "the pod's cgroup is named after it")]
            if uid in found:
                errors = [FieldError("FieldValueDuplicate", "metadata.uid", value=uid)]
            if errors:
                raise InvalidObjectError(errors)
            every = pod.spec.init_containers + pod.spec.containers
            ids = (containers or {}).get(uid)
            kept = dict(ids) if ids is not None else {c.name: derived_id(uid, c.name) for c in every}
            known = before.get(uid) if before is not None else None
            lifted, cpus = (known.lifted, known.cpus) if known is not None else ({}, {})
            found[uid] = KnownPod(pod, kept, {key: high for key, high in lifted.items() if key in kept.values()}, cpus)
        return found

    def wanted(self, pods: Mapping[str, KnownPod], only: Collection[str] | None = None) -> dict[str, DesiredCgroup]:
        """With `only`, those pods are laid out; the sums above count all of them."""
        shown = Shown(
            lambda uid: only is None or uid in only,
            lambda uid, container: pods[uid].containers.get(container),
            reasons=False,
        )
        found = wanted(desired_tree([self._work(each) for each in pods.values()], self._setting, shown))
        for known in pods.values():
            if known.lifted and (only is None or known.uid in only):
                found |= self._lifted(known, found)
            if known.cpus and (only is None or known.uid in only):
                found |= self._pinned(known, found)
        return found

    def forget(self, uids: Iterable[str]) -> None:
        """Nothing more will be asked about these pods."""
        for uid in uids:
            self._works.pop(uid, None)
            self._pods.pop(uid, None)

    def own(self, known: KnownPod) -> dict[str, DesiredCgroup]:
        """The cgroups of one pod: they do not depend on the others."""
        found = self.wanted({known.uid: known})
        return {path: each for path, each in found.items() if each.level in ("pod", "container")}

    def changed_above(self, before: KnownPod, pods: Mapping[str, KnownPod]) -> dict[str, DesiredCgroup] | None:
        """Which cgroups above the pods hold something else than when this one was as `before`.

        None where that depends on more than sums: limits and protections that follow what is there.
        """
        setting = self._setting
        if setting.policy.memory_qos or setting.config.gate("QOSReserved"):
            return None
        uid = before.uid
        old, work = self._work(before).share, self._work(pods[uid])
        if old == work.share:
            return {}
        others = added_sums([self._work(each).share for key, each in pods.items() if key != uid])
        before_and_after = (class_values(added_sums([others, each]), setting.policy) for each in (old, work.share))
        if next(before_and_after) == next(before_and_after):
            return {}
        tree = desired_tree([work], setting, Shown(lambda _uid: False, reasons=False), beside=others)
        return {path: each for path, each in wanted(tree).items() if each.level in ("pods", "class")}

    def _pinned(self, known: KnownPod, plan: Mapping[str, DesiredCgroup]) -> dict[str, DesiredCgroup]:
        """Containers that run on certain CPUs only. The cgroups above them are never bound to any (02 §10)."""
        lists = {known.containers[name]: cpus for name, cpus in known.cpus.items() if known.containers.get(name)}
        changed = {}
        for path, each in plan.items():
            cpus = next((cpus for key, cpus in lists.items() if key in path.rpartition("/")[2]), None)
            if each.level == "container" and cpus is not None:
                changed[path] = msgspec.structs.replace(each, files={**each.files, CPUS: cpus})
        return changed

    def _lifted(self, known: KnownPod, plan: Mapping[str, DesiredCgroup]) -> dict[str, DesiredCgroup]:
        """Containers whose memory.high was moved: theirs, where the rules give them one at all."""
        changed = {}
        ids = {container_id: high for container_id, high in known.lifted.items() if container_id}
        for path, each in plan.items():
            high = next((high for key, high in ids.items() if key in path.rpartition("/")[2]), None)
            if each.level == "container" and high is not None and HIGH in each.files:
                changed[path] = msgspec.structs.replace(each, files={**each.files, HIGH: high})
        return changed

    def pod_paths(self, known: KnownPod) -> dict[str, str]:
        """container name → path of its cgroup; "" → the pod's own."""
        tree = self.wanted({known.uid: known})
        return {
            each.name if each.level == "container" else "": path
            for path, each in tree.items()
            if each.level in ("pod", "container")
        }

    def _work(self, known: KnownPod) -> Workload:
        uid = known.uid
        cached = self._pods.get(uid)
        if cached is not known.pod and cached != known.pod:
            self._works[uid] = workload(known.pod, self._setting)
            self._pods[uid] = known.pod
        return self._works[uid]
