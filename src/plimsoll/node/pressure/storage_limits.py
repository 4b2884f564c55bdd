"""Pods above a storage limit of their own are ended, whether or not the node is short of anything (04 §6).

Usage on disk is counted by walking volumes and logs, which takes as long as the disk needs. So this is a task beside
the eviction loop, as often as a kubelet looks, and only where some pod declares a limit: memory never waits for it. Who
was ended here counts there as being ended, and so goes before anybody else (§3.10).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from plimsoll.errors import PlimsollError
from plimsoll.rules.config.thresholds import FsLayout
from plimsoll.rules.eviction.decision import LimitFinding, limit_finding
from plimsoll.rules.eviction.usage import PodUsage
from plimsoll.rules.model.gates import DEFAULT_GATES, Gates
from plimsoll.rules.model.objects import EPHEMERAL_STORAGE, Pod

EVERY_S = 10.0
LIMIT_GRACE_S = 1
_LOG = logging.getLogger(__name__)


class LimitedPods(Protocol):
    def active(self) -> Sequence[Pod]: ...
    async def usage(self, *, disks: bool) -> Mapping[str, PodUsage]: ...
    async def evict_for_limit(self, found: LimitFinding, grace_s: int) -> None: ...


class StorageLimits:
    def __init__(
        self,
        pods: LimitedPods,
        layout: FsLayout,
        *,
        clock: Callable[[], float],
        counted: Callable[[str, float], None],
        gates: Gates = DEFAULT_GATES,
    ) -> None:
        """`counted`: a pod goes for this signal, on figures that are so many seconds old."""
        self._pods, self._layout, self._clock, self._counted, self._gates = pods, layout, clock, counted, gates

    async def run(self) -> None:
        """For ever."""
        while True:
            try:
                await self.turn()
            except (PlimsollError, OSError) as error:
                _LOG.error("looking at the pods' storage limits: %s", error)
            await asyncio.sleep(EVERY_S)

    async def turn(self) -> None:
        """Everybody who is above a limit now, several at once."""
        if not any(_limits_storage(pod) for pod in self._pods.active()):
            return
        began_s = self._clock()
        usage = await self._pods.usage(disks=True)
        for pod in self._pods.active():
            if not _limits_storage(pod):
                continue
            found = limit_finding(pod, usage.get(pod.metadata.uid), self._layout, gates=self._gates)
            if found is not None:
                self._counted(found.signal, self._clock() - began_s)
                await self._pods.evict_for_limit(found, LIMIT_GRACE_S)


def _limits_storage(pod: Pod) -> bool:
    """Whether any storage limit is declared at all; looking at disks is not free."""
    return any(
        EPHEMERAL_STORAGE in (each.resources.limits or {}) for each in (*pod.spec.containers, *pod.spec.init_containers)
    ) or any(volume.empty_dir is not None and volume.empty_dir.size_limit is not None for volume in pod.spec.volumes)
