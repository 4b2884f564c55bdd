"""The cgroups of the pods on this node: asked for by many workers, made in few turns, and asked what they have counted.

`CgroupManager` takes one turn at a time, and most of a turn (looking at the classes, the journal, the state) costs the
same for one pod as for several. So workers put down what they want and wait; whoever waits when a turn begins shares
it. A turn that is refused is taken again for each pod by itself: one impossible pod is nobody else's trouble.

A container's cgroup is named after its attempt, so its counters are its own from birth: an `oom_kill` in them means
that this very run was hit. Under systemd the scope may be gone with its last process; then the pod's slice, which
counts for all below it, tells by how much it has risen.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import Mapping
from typing import Protocol

import msgspec

from plimsoll.cgroups.drivers.interface import CgroupDriver, CgroupError
from plimsoll.cgroups.engine.desired import CpusOf
from plimsoll.cgroups.engine.manager import CgroupManager
from plimsoll.cgroups.engine.shrink import SetLimit, Shrinker, usage_bytes
from plimsoll.cgroups.engine.transaction import Applied
from plimsoll.codec.kernel.files import flat_keyed
from plimsoll.errors import PlimsollError
from plimsoll.linux.processes import oom_score_adj, set_oom_score_adj, signal_members
from plimsoll.node.resources.cri_cgroups import RuntimeCgroups
from plimsoll.rules.cgroups.desired import Workload, workload
from plimsoll.rules.cgroups.reconcile import Unmet
from plimsoll.rules.cgroups.shrink import ShrinkPolicy
from plimsoll.rules.model.cgroup_names import cgroup_path
from plimsoll.rules.model.kernel import CgroupVersion, Weight
from plimsoll.rules.model.objects import Container, Metadata, Pod, PodSpec
from plimsoll.rules.node.node_config import NodeConfig
from plimsoll.rules.resize.status import STATUS_FILES, kernel_values
from plimsoll.rules.resources.files import file_map
from plimsoll.rules.resources.values import Values

log = logging.getLogger(__name__)

RESCORE_ROUNDS = 5
QUICK = ShrinkPolicy(
    deadline_s=0.5, pause_s=0.05
)  # while one limit comes down nobody else has a turn; it is tried again
TOGETHER_MOST = 8  # a turn keeps the event loop for some milliseconds per pod
_OOM_FILES = ("memory.events.local", "memory.events", "memory.oom_control")


class CgroupRequest(msgspec.Struct, frozen=True):
    """`pod` None: remove it. `containers`: name → id of those that run or are about to."""

    pod: Pod | None
    containers: Mapping[str, str] = {}


class CgroupListener(Protocol):
    """Who looks at cgroups that others make and remove."""

    def changing(self, uid: str) -> None:
        """Some of this pod's may go now, and what they have counted with them."""

    def changed(self) -> None:
        """There are others than before."""


class PodCgroups:
    def __init__(self, tree: CgroupManager, driver: CgroupDriver, setting: NodeConfig) -> None:
        self.witnesses: list[CgroupListener] = []
        self._tree, self._driver, self._setting = tree, driver, setting
        tree.set_shrink_policy(QUICK)
        self._waiting: dict[str, tuple[CgroupRequest, asyncio.Future[None]]] = {}
        self._have: dict[str, CgroupRequest] = {}
        self._sized: set[str] = (
            set()
        )  # uids of pods whose cgroups this agent has sized, with the node's present settings
        self._paths: dict[str, dict[str, str]] = {}
        self._works: dict[str, tuple[Pod, Workload]] = {}
        self._wake = asyncio.Event()
        self.unmet: dict[str, tuple[Unmet, ...]] = {}  # uid → what this kernel could not give
        self._shrinker = Shrinker(driver, clock=time.monotonic, sleep=asyncio.sleep)
        self.cpus: CpusOf | None = None  # under the static CPU policy: which CPUs containers run on
        self.stands: RuntimeCgroups | None = None  # where the runtime makes containers' cgroups: those

    @property
    def enforced(self) -> bool:
        """Whether limits are real; on a kernel in memory they are not."""
        return not self._driver.simulated

    async def setup(self) -> Applied:
        """kubepods and its classes; refuses a tree that is not ours. Pods of an earlier run keep their cgroups as they
        are until their workers come, for whom none of them is sized yet: a limit that cannot come down is then that
        pod's trouble alone."""
        applied = await self._tree.setup(pods=False)
        self._have.clear()
        return applied

    def known(self) -> dict[str, str]:
        """uid → namespace/name of the pods that have cgroups."""
        return self._tree.known()

    async def have(self, pod: Pod, containers: Mapping[str, str]) -> Mapping[str, str]:
        """Container name → path of its cgroup, "" → the pod's; made and sized when this returns."""
        uid = pod.metadata.uid
        wish = CgroupRequest(pod, dict(containers))
        if self._have.get(uid) != wish or uid in self._waiting:
            await self._asked(uid, wish)
        return self._paths.get(uid, {})

    async def resize(self, pod: Pod) -> None:
        """New sizes for the cgroups that it has; StepRefused where the kernel does not take one of them.

        At once, beside those who wait: this is a turn of its own, about this pod alone."""
        uid = pod.metadata.uid
        before = self._have.pop(uid, None)
        self._sized.discard(uid)
        applied = await self._tree.resize(pod)
        self._sized.add(uid)
        if before is not None:
            self._have[uid] = CgroupRequest(pod, before.containers)
        paths = self.paths(uid)
        self.unmet[uid] = tuple(each for each in applied.unmet if each.path in paths.values())

    async def pin(self, *, every: bool = False) -> None:
        """Containers onto their CPUs, where they have others than before; `every`: compared with the kernel."""
        if self.cpus is not None:
            await self._tree.pin(self.cpus, every=every)

    def lacks(self, file: str) -> str | None:
        """Why cgroups of this kernel do not have a file; None where they do."""
        return self._driver.has(file)

    async def lift(self, uid: str, container_id: str, high: str) -> None:
        """Another memory.high for a container than the rules give it, until it ends."""
        await self._tree.lift(uid, container_id, high)

    def is_sized_for(self, pod: Pod) -> bool:
        """Whether its cgroups, as far as it has some, were last sized for just this, and by this agent."""
        sized = self._tree.sized_for(pod.metadata.uid)
        return sized is None or (sized == pod and pod.metadata.uid in self._sized)

    def behind(self, uid: str) -> dict[str, Mapping[str, str]]:
        """Container id → Memory QoS that the runtime has not been told yet, since the node's settings were others."""
        return {} if self.stands is None else self.stands.behind(uid)

    def caught_up(self, uid: str) -> None:
        """It has been told, or could not be: that is read back."""
        if self.stands is not None:
            self.stands.retold(uid)

    async def remove(self, uid: str) -> None:
        """Whatever still runs in them is killed."""
        await self._asked(uid, CgroupRequest(None))

    async def kill(self, uid: str) -> None:
        """Everything that runs in the pod, now; the cgroups stay until they are removed."""
        if path := self.paths(uid).get("", ""):
            if self._driver.version == 1 and not self._driver.simulated:
                # v1 freezes before it kills, so that nobody escapes, and on a busy machine that takes its time.
                signal_members(lambda: self._driver.members(path, deep=True), signal.SIGKILL)
            await self._driver.kill(path)

    def paths(self, uid: str) -> Mapping[str, str]:
        """Container name → path, as far as they were made; "" → the pod's own."""
        own = self._paths.get(uid) or self._tree.paths(uid)
        if own:
            self._paths[uid] = own
        return own if self.stands is None else {**own, **self.stands.paths(uid)}

    def planned_path(self, pod: Pod) -> str:
        """Of the pod's own cgroup, whether it is there or not; "" where pods have none."""
        return self._tree.planned_paths(pod).get("", "")

    def is_elsewhere(self, path: str) -> bool:
        """Not below our kubepods; a runtime that does not tell has only ours."""
        top = cgroup_path(self._setting.pods_root, self._setting.driver)
        return bool(path) and not f"/{path.strip('/')}/".startswith(f"{top.rstrip('/')}/")

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                uids = list(self._waiting)[:TOGETHER_MOST]
                await self._turn({uid: self._waiting.pop(uid) for uid in uids})

    async def teardown(self) -> None:
        """Everything that we made on this node goes, with whatever runs in it."""
        await self.sweep()
        await self._tree.teardown(kill=True)

    async def sweep(self) -> None:
        """Empty cgroups of pods that are no longer there, which a runtime has made once more."""
        try:
            gone = await self._tree.sweep()
        except CgroupError as error:
            log.info("a cgroup of a pod that is gone stays for now: %s", error)
        else:
            for path in gone:
                log.info("removed %s, which the runtime had made after its pod was gone", path)

    # --- what was counted ---

    def oom_kills(self, uid: str, container: str, container_id: str) -> int | None:
        """How often the kernel killed somebody in this container's cgroup; None where nobody can tell."""
        path = self.paths(uid).get(container, "")
        return self._counted(path) if container_id in path.rpartition("/")[2] else None

    @property
    def scopes_may_vanish(self) -> bool:
        """systemd removes a scope with its last process, and its counters with it; so does a runtime."""
        return self._driver.name == "systemd" or self.stands is not None

    def pod_oom_kills(self, uid: str) -> int | None:
        """The same of the pod's cgroup with everything below it; v1 does not count that."""
        return self._counted(self.paths(uid).get("", ""), deep=True) if self._driver.version == 2 else None

    # --- sizes ---

    def work(self, pod: Pod) -> Workload:
        """All that the rules say of a pod; computed once for as long as it stays the same."""
        known = self._works.get(pod.metadata.uid)
        if known is None or known[0] != pod:
            known = self._works[pod.metadata.uid] = (pod, workload(pod, self._setting))
        return known[1]

    def workload_of(self, pod: Pod) -> Workload:
        """The same for a pod that is only imagined."""
        return workload(pod, self._setting)

    def kernel_values(self, pod: Pod, container: str, container_id: str) -> Values | None:
        """What the cgroup of a container holds now, which was made for this pod; None where it has none of ours."""
        uid = pod.metadata.uid
        path, version = self.paths(uid).get(container, ""), self._driver.version
        if not path or container_id not in path.rpartition("/")[2]:
            return None
        work = self.work(pod)
        given = next((v for c, v in zip(work.containers, work.container_values, strict=True) if c.name == container))
        return self._told(path, given, version, self._setting.policy.weight)

    def pod_kernel_values(self, pod: Pod) -> Values | None:
        path = self.paths(pod.metadata.uid).get("", "")
        return self._told(path, self.work(pod).values, self._driver.version, "linear") if path else None

    def _told(self, path: str, given: Values, version: CgroupVersion, weight: Weight) -> Values | None:
        try:
            seen = self._driver.read(path, STATUS_FILES[version])
        except CgroupError:
            return None
        page_size = self._setting.machine.page_size
        return None if seen is None else kernel_values(seen.files, given, version, weight, page_size)

    def memory_used(self, uid: str, container: str = "") -> int | None:
        """By one container, or by the whole pod."""
        path = self.paths(uid).get(container, "")
        return usage_bytes(self._driver, path) if path else None

    async def lower_memory(
        self, uid: str, container: str, limit_bytes: int, by_runtime: SetLimit | None = None
    ) -> None:
        """The limit of one container, or of the pod; ShrinkRefused where it does not fit. `by_runtime` writes it."""
        file = "memory.max" if self._driver.version == 2 else "memory.limit_in_bytes"
        await self._shrinker(self.paths(uid)[container], file, str(limit_bytes), by_runtime)

    @property
    def shrinks_safely(self) -> bool:
        return self._tree.shrinks_safely

    async def write_pod(self, uid: str, values: Values) -> None:
        """Only these values into the pod's own cgroup, for runtimes that write the containers' themselves."""
        path = self.paths(uid)[""]
        for file, text in file_map(values, self._driver.version).items():
            await self._driver.write(path, file, str(text))

    def scores(self, pod: Pod) -> dict[str, int]:
        """oom_score_adj by container."""
        work = self.work(pod)
        return {each.name: score for each, score in zip(work.containers, work.scores, strict=True)}

    def rescore(self, before: Pod, after: Pod) -> None:
        """Processes with the score that they were started with get the new one; who has chosen another keeps it."""
        old, new = self.scores(before), self.scores(after)
        paths = {} if self._driver.simulated else self.paths(after.metadata.uid)
        for name, path in paths.items():
            if not name or old.get(name) == new.get(name):
                continue
            for _ in range(RESCORE_ROUNDS):  # whoever is born meanwhile has the old one
                behind = [pid for pid in self._driver.members(path, deep=True) if oom_score_adj(pid) == old[name]]
                if not behind:
                    break
                for pid in behind:
                    set_oom_score_adj(pid, new[name])

    def _counted(self, path: str, *, deep: bool = False) -> int | None:
        if not path or self._driver.simulated:
            return None
        try:
            seen = self._driver.read(path, _OOM_FILES[1:] if deep else _OOM_FILES)
        except CgroupError:
            return None
        if seen is None:
            return None
        for file in _OOM_FILES:
            if file in seen.files:
                return flat_keyed(seen.files[file].encode()).get("oom_kill")
        return None

    # --- turns ---

    async def _asked(self, uid: str, wish: CgroupRequest) -> None:
        waiting = self._waiting.get(uid)
        if waiting is not None:  # a newer wish of the same worker: the one before was given up
            waiting[1].cancel()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[uid] = (wish, done)
        self._wake.set()
        await done

    async def _turn(self, batch: Mapping[str, tuple[CgroupRequest, asyncio.Future[None]]]) -> None:
        adds = {uid: wish for uid, (wish, _) in batch.items() if wish.pod is not None}
        removes = [uid for uid, (wish, _) in batch.items() if wish.pod is None]
        for part in (adds, dict.fromkeys(removes, CgroupRequest(None))):
            if not part:
                continue
            try:
                await self._take(part)
            except PlimsollError as error:
                if len(part) == 1:
                    _refuse(batch[next(iter(part))][1], error)
                    continue
                for uid, wish in part.items():
                    try:
                        await self._take({uid: wish})
                    except PlimsollError as own:
                        _refuse(batch[uid][1], own)
        for _, done in batch.values():
            if not done.done():
                done.set_result(None)

    async def _take(self, wishes: Mapping[str, CgroupRequest]) -> None:
        for witness in self.witnesses:
            for uid in wishes:
                witness.changing(uid)
        try:
            await self._made(wishes)
        finally:
            for witness in self.witnesses:
                witness.changed()

    async def _made(self, wishes: Mapping[str, CgroupRequest]) -> None:
        for uid in wishes:
            self._have.pop(uid, None)
            self._paths.pop(uid, None)
            self._sized.discard(uid)
        pods = [wish.pod for wish in wishes.values() if wish.pod is not None]
        if not pods:
            await self._tree.remove(*wishes)
            for uid in wishes:
                self._paths.pop(uid, None)  # somebody may have asked meanwhile
                self.unmet.pop(uid, None)
                self._works.pop(uid, None)
                if self.stands is not None:
                    self.stands.forget(uid)
            return
        containers = {uid: wish.containers for uid, wish in wishes.items()}
        applied = await self._tree.add(pods, containers=containers, cpus=self.cpus)
        self._sized |= wishes.keys()
        for uid, wish in wishes.items():
            self._have[uid] = wish
            paths = self._paths[uid] = self._tree.paths(uid)
            self.unmet[uid] = tuple(each for each in applied.unmet if each.path in paths.values())


def _refuse(done: asyncio.Future[None], error: PlimsollError) -> None:
    if not done.done():
        done.set_exception(error)


def lean_pod_of(pod: Pod) -> Pod:
    """What decides about cgroups, and no more: it is kept for as long as the pod has some."""
    meta, spec = pod.metadata, pod.spec
    return Pod(
        metadata=Metadata(name=meta.name, namespace=meta.namespace, uid=meta.uid, annotations=meta.annotations),
        spec=PodSpec(
            containers=tuple(_lean(each) for each in spec.containers),
            init_containers=tuple(_lean(each) for each in spec.init_containers),
            resources=spec.resources,
            overhead=spec.overhead,
            priority=spec.priority,
            priority_class_name=spec.priority_class_name,
            restart_policy=spec.restart_policy,
        ),
    )


def _lean(container: Container) -> Container:
    return Container(name=container.name, resources=container.resources, restart_policy=container.restart_policy)
