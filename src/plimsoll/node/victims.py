"""The agent's pods as eviction sees them: who can go, what each uses, and how one is ended (04 §5 to §7).

A pod without statistics ranks before all others, so nobody may lack them only because we have not looked yet: the
runtime is asked before each choice, and a pod of which nothing runs there is no candidate, since ending it frees
nothing. An agent that has just been started would otherwise evict whomever it thinks of first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

from plimsoll.cgroups.driver import CgroupError
from plimsoll.node.pod_cgroups import PodCgroups
from plimsoll.node.pod_worker import PodWorker
from plimsoll.node.pods import Pods
from plimsoll.node.runtime_view import NOTHING
from plimsoll.node.stats import Stats
from plimsoll.node.tools import Tools
from plimsoll.rules.eviction import EVICTED, kill_timeout_s
from plimsoll.rules.eviction_decision import EVICTION_DECISION, Decision, why_sentence
from plimsoll.rules.eviction_reasons import LimitFinding
from plimsoll.rules.objects import Pod
from plimsoll.rules.termination import Verdict
from plimsoll.rules.usage import PodUsage
from plimsoll.runtime.runtime import RuntimeTrouble

DISK_AGE_S = 5.0
EXCEEDED_GRACE = "ExceededGracePeriod"
EXCEEDED_TEXT = "Container runtime did not kill the pod within specified grace period."
log = logging.getLogger(__name__)


class PodVictims:
    def __init__(
        self,
        tools: Tools,
        pods: Pods,
        cgroups: PodCgroups,
        stats: Stats,
        reclaims: Mapping[str, Callable[[], Awaitable[None]]],
    ) -> None:
        """`reclaims`: what frees disk space without ending a pod, by its name."""
        self._tools, self._pods, self._cgroups, self._stats, self._reclaims = tools, pods, cgroups, stats, reclaims

    def active(self) -> Sequence[Pod]:
        """Of which something may run (§3.2); as of the last look at the runtime."""
        seen = self._tools.view.last
        return [each for each in self._pods.allocated() if seen.get(each.metadata.uid, NOTHING).alive()]

    async def usage(self, *, disks: bool) -> Mapping[str, PodUsage]:
        try:
            await self._tools.view.all()
        except RuntimeTrouble as trouble:
            log.warning("the runtime does not say what runs, its last word counts: %s", trouble)
        if disks:
            await self._stats.measure_disks(DISK_AGE_S)
        return self._stats.sample().pod_usage()

    async def evict(self, uid: str, found: Decision) -> None:
        verdict = Verdict(EVICTED, found.message, int(found.grace_s), is_disruption=True)
        worker = self._pods.end(uid, verdict, found.annotations)
        if worker is None:
            return
        if found.hard and not found.grace_s:
            await self._kill(worker)
        self._tools.tell(worker.pod, "Normal", EVICTION_DECISION, why_sentence(found))
        await self._ended(worker, int(found.grace_s))

    async def evict_for_limit(self, found: LimitFinding, grace_s: float) -> None:
        worker = self._pods.end(found.pod.metadata.uid, Verdict(EVICTED, found.message, int(grace_s)))
        if worker is not None:
            await self._ended(worker, int(grace_s))

    async def reclaim(self, action: str) -> None:
        if (reclaim := self._reclaims.get(action)) is not None:
            await reclaim()

    async def _kill(self, worker: PodWorker) -> None:
        try:
            await self._cgroups.kill(worker.uid)
        except CgroupError as error:
            log.info("pod %s could not be killed at once, its worker ends it: %s", worker.title, error)

    async def _ended(self, worker: PodWorker, grace_s: int) -> None:
        """Until what it held is free; one that takes longer than it may is told of (§7.2)."""
        try:
            async with asyncio.timeout(kill_timeout_s(grace_s)):
                await worker.released.wait()
        except TimeoutError:
            self._tools.tell(worker.pod, "Warning", EXCEEDED_GRACE, EXCEEDED_TEXT)
            await worker.released.wait()
