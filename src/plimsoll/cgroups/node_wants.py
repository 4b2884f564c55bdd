"""The pods that are known on this node → what every cgroup shall hold. What was computed for a pod is kept."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from plimsoll.cgroups.marks import KnownPod
from plimsoll.errors import FieldError, InvalidObject
from plimsoll.rules.desired import Shown, Workload, desired_tree, workload
from plimsoll.rules.hierarchy import uid_errors
from plimsoll.rules.objects import Pod
from plimsoll.rules.setting import Setting
from plimsoll.rules.wanted import WantedCgroup, derived_id, wanted

Containers = Mapping[str, Mapping[str, str]]  # pod uid → container name → id


class NodeWants:
    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._works: dict[str, Workload] = {}
        self._pods: dict[str, Pod] = {}

    def known(self, pods: Iterable[Pod], containers: Containers | None = None) -> dict[str, KnownPod]:
        """By uid; a pod that `containers` does not name has a cgroup for each container, with an id of our own."""
        found: dict[str, KnownPod] = {}
        for pod in pods:
            uid = pod.metadata.uid
            errors = uid_errors(uid)
            if not uid:
                errors = [FieldError("FieldValueRequired", "metadata.uid", "the pod's cgroup is named after it")]
            if uid in found:
                errors = [FieldError("FieldValueDuplicate", "metadata.uid", value=uid)]
            if errors:
                raise InvalidObject(errors)
            every = pod.spec.init_containers + pod.spec.containers
            ids = (containers or {}).get(uid)
            found[uid] = KnownPod(
                pod, dict(ids) if ids is not None else {c.name: derived_id(uid, c.name) for c in every}
            )
        return found

    def wanted(self, pods: Mapping[str, KnownPod], only: Collection[str] | None = None) -> dict[str, WantedCgroup]:
        """With `only`, those pods are laid out; the sums above count all of them."""
        shown = Shown(
            lambda uid: only is None or uid in only,
            lambda uid, container: pods[uid].containers.get(container),
        )
        return wanted(desired_tree([self._work(each) for each in pods.values()], self._setting, shown))

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
        if self._pods.get(uid) != known.pod:
            self._works[uid] = workload(known.pod, self._setting)
            self._pods[uid] = known.pod
        return self._works[uid]
