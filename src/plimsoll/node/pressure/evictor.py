"""The agent's pods as eviction sees them: candidates, their usage, and how one is evicted (04 §5 to §7).

A pod without statistics ranks before all others, so statistics must not be missing only because the runtime was not
read yet: it is read before each choice, and a pod without running containers is no candidate, since evicting it frees
nothing. Otherwise an agent that has just started would evict an arbitrary pod.

A pod that the node terminates is no longer a candidate, but uses memory until it is dead. Eviction waits for it as long
as Kubernetes does: until its grace period is over (then the event ExceededGracePeriod), and half a minute for what is
left of it. Which agent decided that, and why, makes no difference. A pod that was only deleted remains a candidate, as
in Kubernetes.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from plimsoll.cgroups.drivers.interface import CgroupError
from plimsoll.node.checkpoint import Checkpoint
from plimsoll.node.pods.manager import Pods
from plimsoll.node.pods.worker import PodWorker
from plimsoll.node.pressure.oom_ledger import MonitoredContainer
from plimsoll.node.resources.pleg import NOTHING, RuntimeView
from plimsoll.node.resources.pod_cgroups import PodCgroups
from plimsoll.node.stats.stats import Stats
from plimsoll.rules.cgroups.cgroup_owner import owner_of
from plimsoll.rules.eviction.assessment import EVICTED, Reclaim, is_waited_for, kill_timeout_s
from plimsoll.rules.eviction.decision import EVICTION_DECISION, EvictionDecision, LimitFinding, why_sentence
from plimsoll.rules.eviction.usage import PodUsage
from plimsoll.rules.lifecycle.events import exceeded_grace
from plimsoll.rules.lifecycle.termination import TerminationVerdict, pod_grace_s
from plimsoll.rules.model.objects import Pod
from plimsoll.rules.model.observed import LifecycleEvent, ObservedContainer
from plimsoll.rules.model.runnable import RunPod, container_kind
from plimsoll.runtime.interface import RuntimeCallError

DISK_AGE_S = 5.0
LIST_TIMEOUT_S = 1.0  # a machine that runs out of memory often has a runtime that hangs
log = logging.getLogger(__name__)

RecordEvent = Callable[[RunPod, LifecycleEvent], None]


class Reclaimers(msgspec.Struct, frozen=True):
    """What frees resources without evicting a pod; None where the node cannot do it."""

    dead_containers: Callable[[], Awaitable[None]] | None = None
    unused_images: Callable[[], Awaitable[None]] | None = None
    memory: Callable[[int], Awaitable[int]] | None = None  # bytes wanted → bytes gained


NO_RECLAIM = Reclaimers()


class _Termination(msgspec.Struct):
    """The progress of a pod's termination."""

    since_s: float
    grace_s: int
    dead_s: float | None = None
    is_abandoned: bool = False


class Evictor:
    def __init__(
        self,
        pods: Pods,
        cgroups: PodCgroups,
        view: RuntimeView,
        checkpoint: Checkpoint,
        stats: Stats,
        record: RecordEvent,
        reclaimers: Reclaimers = NO_RECLAIM,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`record`: emit an event about a pod."""
        self._pods, self._cgroups, self._view, self._checkpoint = pods, cgroups, view, checkpoint
        self._stats, self._record, self._reclaimers, self._clock = stats, record, reclaimers, clock
        self._terminations: dict[str, _Termination] = {}

    def active(self) -> Sequence[Pod]:
        """Pods with running containers (§3.2), as of the last read of the runtime."""
        return [pod for pod in self._pods.allocated() if self._is_alive(pod.metadata.uid)]

    async def usage(self, *, disks: bool) -> Mapping[str, PodUsage]:
        try:
            async with asyncio.timeout(LIST_TIMEOUT_S):
                await self._view.all()
        except RuntimeCallError as error:
            log.warning("runtime list failed; using the last known state: %s", error)
        except TimeoutError:
            log.warning("runtime list timed out after %g s; using the last known state", LIST_TIMEOUT_S)
        if disks:
            await self._stats.measure_disks(DISK_AGE_S)
        return self._stats.sample().pod_usage()

    def terminating(self) -> Sequence[Pod]:
        """As of the last read of the runtime."""
        now_s = self._clock()
        pods = [worker.pod for worker in self._pods if self._is_waited_for(worker, now_s)]
        for uid in self._terminations.keys() - self._pods.workers.keys():
            del self._terminations[uid]
        return pods

    async def one_terminated(self) -> None:
        workers = [self._pods.workers[pod.metadata.uid] for pod in self.terminating()]
        waits = [asyncio.ensure_future(worker.released.wait()) for worker in workers]
        try:
            if waits:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def shorten_grace(self, uid: str, grace_s: int) -> None:
        worker = self._pods.shorten_grace(uid, grace_s) if self._is_alive(uid) else None
        if worker is None:
            # A pod that ends by itself may take longer; eviction waits no longer than this.
            if (termination := self._terminations.get(uid)) is not None:
                termination.grace_s = min(termination.grace_s, grace_s)
            return
        self._start(worker)
        if not grace_s:
            await self._kill(worker)

    async def evict(self, uid: str, decision: EvictionDecision) -> None:
        verdict = TerminationVerdict(EVICTED, decision.message, int(decision.grace_s), is_disruption=True)
        worker = self._pods.terminate(uid, verdict, decision.annotations)
        if worker is None:
            return
        self._start(worker)
        if decision.hard and not decision.grace_s:
            await self._kill(worker)
        self._record(worker.pod, LifecycleEvent(EVICTION_DECISION, why_sentence(decision)))

    async def evict_for_limit(self, finding: LimitFinding, grace_s: int) -> None:
        worker = self._pods.terminate(finding.pod.metadata.uid, TerminationVerdict(EVICTED, finding.message, grace_s))
        if worker is not None:
            self._start(worker)

    async def reclaim(self, action: Reclaim) -> None:
        reclaimers = self._reclaimers
        reclaim = reclaimers.unused_images if action == "delete unused images" else reclaimers.dead_containers
        if reclaim is not None:
            await reclaim()

    async def reclaim_memory(self, wanted_bytes: int) -> int:
        return 0 if self._reclaimers.memory is None else await self._reclaimers.memory(wanted_bytes)

    async def _kill(self, worker: PodWorker) -> None:
        try:
            await self._cgroups.kill(worker.uid)
        except CgroupError as error:
            log.info("pod %s: cgroup kill failed, its worker terminates it: %s", worker.title, error)

    # --- terminating pods ---

    def _is_waited_for(self, worker: PodWorker, now_s: float) -> bool:
        is_terminated_by_node = self._checkpoint.get(worker.uid).verdict is not None or worker.is_over
        if worker.released.is_set() or not is_terminated_by_node:
            return False
        termination, is_alive = self._terminations.get(worker.uid), self._is_alive(worker.uid)
        if termination is None:
            if not is_alive:
                return False  # what is left of it uses no memory
            termination = self._start(worker)
        if not is_alive and termination.dead_s is None:
            termination.dead_s = now_s
        if is_waited_for(now_s, termination.since_s, termination.grace_s, termination.dead_s):
            return True
        if not termination.is_abandoned:
            termination.is_abandoned = True
            log.warning("pod %s is still terminating after %.0f s", worker.title, now_s - termination.since_s)
        return False

    def _is_alive(self, uid: str) -> bool:
        return bool(self._view.last.get(uid, NOTHING).live())

    def _start(self, worker: PodWorker) -> _Termination:
        grace_s = pod_grace_s(worker.pod, self._checkpoint.get(worker.uid).verdict)
        termination = self._terminations[worker.uid] = _Termination(self._clock(), grace_s)
        asyncio.get_running_loop().call_later(kill_timeout_s(grace_s), self._grace_exceeded, worker, termination)
        return termination

    def _grace_exceeded(self, worker: PodWorker, termination: _Termination) -> None:
        """§7.2. If the grace was shortened since, a later call applies."""
        if worker.released.is_set() or self._terminations.get(worker.uid) is not termination:
            return
        if self._is_alive(worker.uid) and self._checkpoint.get(worker.uid).verdict is not None:
            self._record(worker.pod, exceeded_grace())


class MonitoredPods:
    """The agent's pods as OOM kills and throttling concern them: cgroups of containers, events, memory.high."""

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
        self._seen: dict[str, _Seen] = {}  # by uid: each change of one pod asks for the containers of all

    def containers(self) -> Iterator[MonitoredContainer]:
        """Every container that has a cgroup of its own, running or not."""
        observed, known = self._view.last, self._cgroups.known()
        for uid in self._seen.keys() - known.keys():
            del self._seen[uid]
        for uid, title in known.items():
            runs, paths = observed.get(uid, NOTHING).containers, self._cgroups.paths(uid)
            seen = self._seen.get(uid)
            if seen is None or seen.runs is not runs or seen.paths != paths:
                seen = self._seen[uid] = _Seen(runs, dict(paths), tuple(_monitored(uid, title, runs, paths)))
            yield from seen.containers

    def warn(self, uid: str, container: str, reason: str, message: str) -> None:
        """Emit a Warning about the pod or, where `container` is not empty, about that container; then sync the pod."""
        worker = self._pods.workers.get(uid)
        if worker is not None:
            kind = container_kind(worker.pod, container)
            self._record(worker.pod, LifecycleEvent(reason, message, "Warning", container, kind))
            worker.wake()


class _Seen(msgspec.Struct, frozen=True):
    """What the containers of one pod were computed from."""

    runs: tuple[ObservedContainer, ...]
    paths: dict[str, str]
    containers: tuple[MonitoredContainer, ...]


def _monitored(
    uid: str, title: str, runs: Iterable[ObservedContainer], paths: Mapping[str, str]
) -> Iterator[MonitoredContainer]:
    namespace, _, pod_name = title.partition("/")
    pids = {container.id: container.pid for container in runs}
    for name, path in paths.items():
        if name and (container_id := owner_of(path).container_id):
            yield MonitoredContainer(container_id, name, uid, namespace, pod_name, path, pids.get(container_id, 0))
