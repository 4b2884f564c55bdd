"""The agent's pods as eviction sees them: who can go, what each uses, and how one is ended (04 §5 to §7).

A pod without statistics ranks before all others, so nobody may lack them only because we have not looked yet: the
runtime is asked before each choice, and a pod of which nothing runs there is no candidate, since ending it frees
nothing. An agent that has just been started would otherwise evict whomever it thinks of first.

A pod that the node itself ends is no candidate any more but holds its memory until it is dead. It is waited for as long
as Kubernetes waits: until its time to die is over (then the event ExceededGracePeriod), and half a minute for what is
left of it. Who decided on its end, this agent or one before it, and for which reason, makes no difference. A pod that
was only deleted is a candidate like any other, as in Kubernetes.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec

from plimsoll.cgroups.drivers.interface import CgroupError
from plimsoll.node.checkpoint import Checkpoint
from plimsoll.node.pods.events import PodEvents
from plimsoll.node.pods.manager import Pods
from plimsoll.node.pods.worker import PodWorker
from plimsoll.node.resources.pleg import NOTHING, RuntimeView
from plimsoll.node.resources.pod_cgroups import PodCgroups
from plimsoll.node.stats.stats import Stats
from plimsoll.rules.eviction.assessment import EVICTED, is_waited_for, kill_timeout_s
from plimsoll.rules.eviction.decision import EVICTION_DECISION, EvictionDecision, LimitFinding, why_sentence
from plimsoll.rules.eviction.usage import PodUsage
from plimsoll.rules.lifecycle.events import exceeded_grace
from plimsoll.rules.lifecycle.termination import TerminationVerdict, pod_grace_s
from plimsoll.rules.model.objects import Pod
from plimsoll.runtime.interface import RuntimeCallError

DISK_AGE_S = 5.0
ASKED_S = 1.0  # a runtime that hangs is typical of a machine that runs out of memory
log = logging.getLogger(__name__)


class _End(msgspec.Struct):
    """How a pod's end goes on."""

    since_s: float
    grace_s: int
    dead_s: float | None = None
    is_given_up: bool = False


class Evictor:
    def __init__(
        self,
        view: RuntimeView,
        checkpoint: Checkpoint,
        events: PodEvents,
        pods: Pods,
        cgroups: PodCgroups,
        stats: Stats,
        reclaims: Mapping[str, Callable[[], Awaitable[None]]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`reclaims`: what frees disk space without ending a pod, by its name."""
        self._clock = clock
        self._ends: dict[str, _End] = {}
        self._view, self._checkpoint, self._events = view, checkpoint, events
        self._pods, self._cgroups, self._stats, self._reclaims = pods, cgroups, stats, reclaims

    def active(self) -> Sequence[Pod]:
        """Of which something may run (§3.2); as of the last look at the runtime."""
        seen = self._view.last
        return [each for each in self._pods.allocated() if seen.get(each.metadata.uid, NOTHING).live()]

    async def usage(self, *, disks: bool) -> Mapping[str, PodUsage]:
        try:
            async with asyncio.timeout(ASKED_S):
                await self._view.all()
        except (RuntimeCallError, TimeoutError) as trouble:
            said = trouble if isinstance(trouble, RuntimeCallError) else f"no answer within {ASKED_S:g} s"
            log.warning("the runtime does not say what runs, its last word counts: %s", said)
        if disks:
            await self._stats.measure_disks(DISK_AGE_S)
        return self._stats.sample().pod_usage()

    def ending(self) -> Sequence[Pod]:
        """As of the last look at the runtime."""
        now_s = self._clock()
        found = [worker.pod for worker in self._pods if self._is_waited_for(worker, now_s)]
        for uid in self._ends.keys() - self._pods.workers.keys():
            del self._ends[uid]
        return found

    async def one_is_gone(self) -> None:
        waits = [asyncio.ensure_future(self._pods.workers[pod.metadata.uid].released.wait()) for pod in self.ending()]
        try:
            if waits:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()

    async def hurry(self, uid: str, grace_s: int) -> None:
        worker = self._pods.shorten_grace(uid, grace_s) if self._is_alive(uid) else None
        if worker is None:
            if (end := self._ends.get(uid)) is not None:  # one that ends by itself takes its time; we do not
                end.grace_s = min(end.grace_s, grace_s)
            return
        self._begin(worker)
        if not grace_s:
            await self._kill(worker)

    async def evict(self, uid: str, found: EvictionDecision) -> None:
        verdict = TerminationVerdict(EVICTED, found.message, int(found.grace_s), is_disruption=True)
        worker = self._pods.terminate(uid, verdict, found.annotations)
        if worker is None:
            return
        self._begin(worker)
        if found.hard and not found.grace_s:
            await self._kill(worker)
        self._events.emit(worker.pod, "Normal", EVICTION_DECISION, why_sentence(found))

    async def evict_for_limit(self, found: LimitFinding, grace_s: int) -> None:
        worker = self._pods.terminate(found.pod.metadata.uid, TerminationVerdict(EVICTED, found.message, grace_s))
        if worker is not None:
            self._begin(worker)

    async def reclaim(self, action: str) -> None:
        if (reclaim := self._reclaims.get(action)) is not None:
            await reclaim()

    async def _kill(self, worker: PodWorker) -> None:
        try:
            await self._cgroups.kill(worker.uid)
        except CgroupError as error:
            log.info("pod %s could not be killed at once, its worker ends it: %s", worker.title, error)

    # --- pods that are being ended ---

    def _is_waited_for(self, worker: PodWorker, now_s: float) -> bool:
        if worker.released.is_set() or not self._is_ended_by_node(worker):
            return False
        end, is_alive = self._ends.get(worker.uid), self._is_alive(worker.uid)
        if end is None:
            if not is_alive:
                return False  # what is left of it holds no memory
            end = self._begin(worker)
        if not is_alive and end.dead_s is None:
            end.dead_s = now_s
        if is_waited_for(now_s, end.since_s, end.grace_s, end.dead_s):
            return True
        if not end.is_given_up:
            end.is_given_up = True
            log.warning("pod %s is not gone %.0f s after its end began", worker.title, now_s - end.since_s)
        return False

    def _is_ended_by_node(self, worker: PodWorker) -> bool:
        return self._checkpoint.get(worker.uid).verdict is not None or worker.is_over

    def _is_alive(self, uid: str) -> bool:
        return bool(self._view.last.get(uid, NOTHING).live())

    def _begin(self, worker: PodWorker) -> _End:
        grace_s = pod_grace_s(worker.pod, self._checkpoint.get(worker.uid).verdict)
        end = self._ends[worker.uid] = _End(self._clock(), grace_s)
        asyncio.get_running_loop().call_later(kill_timeout_s(grace_s), self._time_is_over, worker, end)
        return end

    def _time_is_over(self, worker: PodWorker, end: _End) -> None:
        """§7.2. Where it was hurried since, another end counts."""
        if worker.released.is_set() or self._ends.get(worker.uid) is not end:
            return
        if self._is_alive(worker.uid) and self._checkpoint.get(worker.uid).verdict is not None:
            self._events.emit_lifecycle(worker.pod, exceeded_grace())
