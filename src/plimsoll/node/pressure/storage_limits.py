"""Evict pods that exceed a storage limit of their own, whether or not the node is under pressure (04 §6).

Disk usage is measured by walking volumes and logs, which may be slow. So this is a task beside the eviction manager, at
the kubelet's interval and only while a pod declares a limit: memory never waits for it. The eviction manager waits for
a pod that was evicted here as for any terminating pod (§3.10).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from plimsoll.errors import PlimsollError
from plimsoll.node.pressure.config import EvictionConfig, EvictionSink
from plimsoll.rules.eviction.decision import LimitFinding, limit_finding
from plimsoll.rules.eviction.usage import PodUsage
from plimsoll.rules.model.objects import EPHEMERAL_STORAGE, Pod

EVERY_S = 10.0
LIMIT_GRACE_S = 1
_LOG = logging.getLogger(__name__)


class LimitedPods(Protocol):
    def active(self) -> Sequence[Pod]: ...
    async def usage(self, *, disks: bool) -> Mapping[str, PodUsage]: ...
    async def evict_for_limit(self, finding: LimitFinding, grace_s: int) -> None: ...


class StorageLimits:
    def __init__(
        self, pods: LimitedPods, config: EvictionConfig, sink: EvictionSink, *, clock: Callable[[], float]
    ) -> None:
        self._pods, self._config, self._sink, self._clock = pods, config, sink, clock

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                await self.sync()
            except (PlimsollError, OSError) as error:
                _LOG.error("storage limits: %s", error)
            await asyncio.sleep(EVERY_S)

    async def sync(self) -> None:
        """Evict every pod that is above a limit now."""
        if not any(_limits_storage(pod) for pod in self._pods.active()):
            return
        start_s = self._clock()
        usage = await self._pods.usage(disks=True)
        for pod in self._pods.active():
            if not _limits_storage(pod):
                continue
            config = self._config
            finding = limit_finding(pod, usage.get(pod.metadata.uid), config.layout, gates=config.gates)
            if finding is not None:
                self._sink.evicted(finding.signal, self._clock() - start_s)
                await self._pods.evict_for_limit(finding, LIMIT_GRACE_S)


def _limits_storage(pod: Pod) -> bool:
    """Whether any storage limit is declared: measuring disks is expensive."""
    return any(
        EPHEMERAL_STORAGE in (container.resources.limits or {})
        for container in (*pod.spec.containers, *pod.spec.init_containers)
    ) or any(volume.empty_dir is not None and volume.empty_dir.size_limit is not None for volume in pod.spec.volumes)
