"""The agent's pods as OOM kills and throttling concern them: cgroups of containers, events, memory.high."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from functools import lru_cache

from plimsoll.node.pods.manager import Pods
from plimsoll.node.pressure.oom_ledger import MonitoredContainer
from plimsoll.node.resources.pleg import NOTHING, RuntimeView
from plimsoll.node.resources.pod_cgroups import PodCgroups
from plimsoll.rules.cgroups.cgroup_owner import owner_of
from plimsoll.rules.model.observed import LifecycleEvent
from plimsoll.rules.model.runnable import RunPod

RecordEvent = Callable[[RunPod, LifecycleEvent], None]


class MonitoredPods:
    def __init__(
        self,
        pods: Pods,
        cgroups: PodCgroups,
        view: RuntimeView,
        record: RecordEvent,
        lift: Callable[[MonitoredContainer, str], Awaitable[None]],
    ) -> None:
        """`record`: emit an event about a pod. `lift`: give a container another memory.high until it ends."""
        self._pods, self._cgroups, self._view, self._record = pods, cgroups, view, record
        self.lift = lift

    def containers(self) -> Iterator[MonitoredContainer]:
        """Every container that has a cgroup of its own, running or not."""
        observed = self._view.last
        for uid, title in self._cgroups.known().items():
            namespace, _, pod_name = title.partition("/")
            pids = {container.id: container.pid for container in observed.get(uid, NOTHING).containers}
            for name, path in self._cgroups.paths(uid).items():
                if name and (container_id := _container_id(path)):
                    pid = pids.get(container_id, 0)
                    yield MonitoredContainer(container_id, name, uid, namespace, pod_name, path, pid)

    def warn(self, uid: str, container: str, reason: str, message: str) -> None:
        """Emit a Warning about the pod or, where `container` is not empty, about that container; then sync the pod."""
        worker = self._pods.workers.get(uid)
        if worker is not None:
            is_init = any(each.name == container for each in worker.pod.spec.init_containers)
            self._record(worker.pod, LifecycleEvent(reason, message, "Warning", container, is_init))
            worker.wake()


@lru_cache(4096)
def _container_id(path: str) -> str:
    """Cached: each change of one pod reads all of them."""
    return owner_of(path).container_id
