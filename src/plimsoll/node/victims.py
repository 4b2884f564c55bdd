"""The agent's pods as eviction sees them: who can go, what each uses, and how one is ended (04 §5 to §7)."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

from plimsoll.cgroups.driver import CgroupError
from plimsoll.node.pod_cgroups import PodCgroups
from plimsoll.node.pods import Pods
from plimsoll.node.stats import Stats
from plimsoll.rules.eviction import EVICTED
from plimsoll.rules.eviction_decision import Decision
from plimsoll.rules.eviction_reasons import LimitFinding
from plimsoll.rules.objects import Pod
from plimsoll.rules.termination import Verdict
from plimsoll.rules.usage import PodUsage

DISK_AGE_S = 5.0
log = logging.getLogger(__name__)


class PodVictims:
    def __init__(
        self, pods: Pods, cgroups: PodCgroups, stats: Stats, reclaims: Mapping[str, Callable[[], Awaitable[None]]]
    ) -> None:
        """`reclaims`: what frees disk space without ending a pod, by its name."""
        self._pods, self._cgroups, self._stats, self._reclaims = pods, cgroups, stats, reclaims

    def active(self) -> Sequence[Pod]:
        return list(self._pods.allocated())

    async def usage(self, *, disks: bool) -> Mapping[str, PodUsage]:
        if disks:
            await self._stats.measure_disks(DISK_AGE_S)
        return self._stats.sample().pod_usage()

    async def evict(self, uid: str, found: Decision) -> None:
        verdict = Verdict(EVICTED, found.message, int(found.grace_s), is_disruption=True)
        await self._ended(uid, verdict, found.annotations, at_once=found.hard and not found.grace_s)

    async def evict_for_limit(self, found: LimitFinding, grace_s: float) -> None:
        await self._ended(found.pod.metadata.uid, Verdict(EVICTED, found.message, int(grace_s)))

    async def reclaim(self, action: str) -> None:
        if (reclaim := self._reclaims.get(action)) is not None:
            await reclaim()

    async def _ended(
        self, uid: str, verdict: Verdict, annotations: Mapping[str, str] | None = None, *, at_once: bool = False
    ) -> None:
        worker = self._pods.end(uid, verdict, annotations)
        if worker is None:
            return
        if at_once:
            try:
                await self._cgroups.kill(uid)
            except CgroupError as error:
                log.info("pod %s could not be killed at once, its worker ends it: %s", worker.title, error)
        await worker.released.wait()
