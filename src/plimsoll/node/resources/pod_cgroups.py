"""kubepods, its QoS classes and the cgroups of pods; also those of containers that the agent creates itself."""

from __future__ import annotations

import logging
import signal
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import Protocol

from plimsoll.cgroups.drivers.interface import CgroupDriver, CgroupError
from plimsoll.cgroups.engine.desired import CpusOf, MemsOf
from plimsoll.cgroups.engine.manager import CgroupManager
from plimsoll.cgroups.engine.transaction import Applied
from plimsoll.linux.processes import oom_score_adj, set_oom_score_adj, signal_members
from plimsoll.node.resources.cgroup_locator import CgroupLocator
from plimsoll.node.resources.cgroup_queue import CgroupQueue, CgroupRequest
from plimsoll.node.resources.cgroup_readings import CgroupReadings
from plimsoll.node.resources.workloads import Workloads
from plimsoll.rules.cgroups.reconcile import Unmet
from plimsoll.rules.cgroups.repair import Repair
from plimsoll.rules.cgroups.shrink import ShrinkPolicy
from plimsoll.rules.model.cgroup_names import cgroup_path
from plimsoll.rules.model.objects import Pod
from plimsoll.rules.node.node_config import NodeConfig

log = logging.getLogger(__name__)

RESCORE_ROUNDS = 5
QUICK = ShrinkPolicy(deadline_s=0.5, pause_s=0.05)  # a shrink blocks all other transactions; it is retried later


class CgroupListener(Protocol):
    """Is notified about cgroups that others create and remove."""

    def changing(self, uid: str) -> None:
        """Some of this pod's may be removed now, and their counters with them."""

    def changed(self) -> None:
        """The set of cgroups has changed."""


class PodCgroups:
    def __init__(
        self,
        manager: CgroupManager,
        driver: CgroupDriver,
        config: NodeConfig,
        *,
        cpus: CpusOf | None = None,
        mems: MemsOf | None = None,
        locator: CgroupLocator | None = None,
    ) -> None:
        """`cpus`, `mems`: of a container, under the static CPU and memory policies. `locator`: if the runtime
        creates container cgroups."""
        self.listeners: list[CgroupListener] = []
        self._manager, self._driver, self._config = manager, driver, config
        self._cpus, self._mems, self._locator = cpus, mems, locator
        manager.set_shrink_policy(QUICK)
        self.workloads = Workloads(config)
        self.readings = CgroupReadings(driver, config, self.workloads, self.paths)
        self._queue = CgroupQueue(self._apply, self.notify_changed)
        self._current: dict[str, CgroupRequest] = {}  # uid → the request that its cgroups were last made for
        self._sized: set[str] = set()  # uids whose cgroups this agent has sized, with the node's present settings
        self._paths: dict[str, dict[str, str]] = {}
        self.unmet: dict[str, tuple[Unmet, ...]] = {}  # uid → values that this kernel could not provide

    @property
    def enforced(self) -> bool:
        """False on a simulated kernel, where limits have no effect."""
        return not self._driver.simulated

    @property
    def shrinks_safely(self) -> bool:
        return self._manager.shrinks_safely

    def lacks(self, file: str) -> str | None:
        """Why cgroups of this kernel do not have a file; None if they do."""
        return self._driver.has(file)

    async def setup(self) -> Applied:
        """Create kubepods and its classes; refuse a tree that is not ours. Pods of an earlier run keep their cgroups
        until their workers size them: a limit that cannot come down then fails that pod alone."""
        applied = await self._manager.setup(pods=False)
        self._current.clear()
        return applied

    async def teardown(self) -> None:
        """Remove everything that this node created, and kill what still runs in it."""
        await self.sweep()
        await self._manager.teardown(kill=True)

    async def sweep(self) -> None:
        """Remove empty cgroups of deleted pods that a runtime has created once more."""
        try:
            removed = await self._manager.sweep()
        except CgroupError as error:
            log.info("a cgroup of a deleted pod is not removed yet: %s", error)
        else:
            for path in removed:
                log.info("removed %s, which the runtime had created after its pod was deleted", path)

    async def run(self) -> None:
        await self._queue.run()

    # --- one pod ---

    async def ensure(self, pod: Pod, containers: Mapping[str, str]) -> Mapping[str, str]:
        """Container name → path of its cgroup, "" → the pod's; created and sized when this returns."""
        uid = pod.metadata.uid
        request = CgroupRequest(pod, dict(containers))
        if self._current.get(uid) != request or uid in self._queue:
            await self._queue.submit(uid, request)
        return self._paths.get(uid, {})

    async def resize(self, pod: Pod) -> None:
        """New sizes for the cgroups that it has; raises StepError if the kernel refuses one of them.

        At once, in a transaction of its own, and not in the queue."""
        uid = pod.metadata.uid
        before = self._current.pop(uid, None)
        self._sized.discard(uid)
        applied = await self._manager.resize(pod)
        self._sized.add(uid)
        if before is not None:
            self._current[uid] = CgroupRequest(pod, before.containers)
        paths = self.paths(uid)
        self.unmet[uid] = tuple(each for each in applied.unmet if each.path in paths.values())

    def resizing(self, uid: str) -> None:
        """Its size is changed step by step from now on: nothing is repaired in its cgroups until `resize` succeeds."""
        self._sized.discard(uid)

    def settled(self, uids: Iterable[str]) -> set[str]:
        """Those whose cgroups have the size that they should have: no start, resize or removal is under way."""
        return {uid for uid in uids if uid in self._sized and uid not in self._queue}

    def sized_pod(self, uid: str) -> Pod | None:
        """The pod as its cgroups were last sized."""
        return self._manager.sized_for(uid)

    async def repair(self, uids: Collection[str]) -> list[Repair]:
        """Write what another process has changed in the node's own cgroups and in those of these pods."""
        repaired = await self._manager.repair(partial(self.settled, uids))
        owners = {path: uid for uid in uids for path in self.paths(uid).values()}
        every = [(difference, "") for difference in repaired.done] + list(repaired.refused)
        return [Repair(owners.get(each.path, ""), each, refusal) for each, refusal in every]

    def node_paths(self) -> list[str]:
        """kubepods, its classes and the reserved cgroups."""
        return self._manager.node_paths()

    async def lift(self, uid: str, container_id: str, high: str) -> None:
        """Set another memory.high for a container than the rules compute, until it ends."""
        await self._manager.lift(uid, container_id, high)

    async def pin(self, *, every: bool = False) -> None:
        """Move containers whose CPUs have changed; with `every`, also compare all with the kernel."""
        if self._cpus is not None:
            await self._manager.pin(self._cpus, every=every)

    async def remove(self, uid: str) -> None:
        """Processes that still run in them are killed."""
        await self._queue.submit(uid, CgroupRequest(None))

    async def kill(self, uid: str) -> None:
        """Kill every process of the pod now; the cgroups stay until they are removed."""
        if path := self.paths(uid).get("", ""):
            if self._driver.version == 1 and not self._driver.simulated:
                # v1 freezes before it kills, so that no process escapes; that is slow on a busy machine.
                signal_members(lambda: self._driver.members(path, deep=True), signal.SIGKILL)
            await self._driver.kill(path)

    def known(self) -> dict[str, str]:
        """uid → namespace/name of the pods that have cgroups."""
        return self._manager.known()

    def is_sized_for(self, pod: Pod) -> bool:
        """Whether its cgroups, if it has some, were last sized for exactly this pod, and by this agent."""
        sized = self._manager.sized_for(pod.metadata.uid)
        return sized is None or (sized == pod and pod.metadata.uid in self._sized)

    def paths(self, uid: str) -> Mapping[str, str]:
        """Container name → path of the cgroups that exist; "" → the pod's own."""
        own = self._paths.get(uid) or self._manager.paths(uid)
        if own:
            self._paths[uid] = own
        return own if self._locator is None else {**own, **self._locator.paths(uid)}

    def planned_path(self, pod: Pod) -> str:
        """Of the pod's own cgroup, whether it exists or not; "" if pods have none."""
        return self._manager.planned_paths(pod).get("", "")

    def is_foreign(self, path: str) -> bool:
        """Not below our kubepods. A runtime that reports no path has only our pods."""
        top = cgroup_path(self._config.pods_root, self._config.driver)
        return bool(path) and not f"/{path.strip('/')}/".startswith(f"{top.rstrip('/')}/")

    def rescore(self, before: Pod, after: Pod) -> None:
        """Set the new oom_score_adj of processes that have the old one; a process that chose another keeps it."""
        old, new = self.workloads.scores(before), self.workloads.scores(after)
        paths = {} if self._driver.simulated else self.paths(after.metadata.uid)
        for name, path in paths.items():
            if not name or old.get(name) == new.get(name):
                continue
            for _ in range(RESCORE_ROUNDS):  # processes forked meanwhile inherit the old score
                stale = [pid for pid in self._driver.members(path, deep=True) if oom_score_adj(pid) == old[name]]
                if not stale:
                    break
                for pid in stale:
                    set_oom_score_adj(pid, new[name])

    # --- transactions ---

    def notify_changed(self) -> None:
        for listener in self.listeners:
            listener.changed()

    async def _apply(self, requests: Mapping[str, CgroupRequest]) -> None:
        for uid in requests:
            if self.paths(uid):  # a new pod has none that could be removed
                for listener in self.listeners:
                    listener.changing(uid)
            self._current.pop(uid, None)
            self._paths.pop(uid, None)
            self._sized.discard(uid)
        pods = [request.pod for request in requests.values() if request.pod is not None]
        if not pods:
            await self._manager.remove(*requests)
            for uid in requests:
                self._paths.pop(uid, None)  # may have been read again meanwhile
                self.unmet.pop(uid, None)
                self.workloads.forget(uid)
                if self._locator is not None:
                    self._locator.forget(uid)
            return
        containers = {uid: request.containers for uid, request in requests.items()}
        applied = await self._manager.add(pods, containers=containers, cpus=self._cpus, mems=self._mems)
        self._sized |= requests.keys()
        for uid, request in requests.items():
            self._current[uid] = request
            paths = self._paths[uid] = self._manager.paths(uid)
            self.unmet[uid] = tuple(each for each in applied.unmet if each.path in paths.values())
