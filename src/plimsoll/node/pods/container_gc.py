"""Removes what is left of pods that are not known here: after a restart, or if a pod was deleted meanwhile.

A pod leaves traces in four places: containers and sandboxes in the runtime, cgroups, files, and our checkpoint. A uid
in any of them that is not one of our pods is terminated with the grace period it was started with, and everything of
it is removed. A runtime may serve other clients, too: sandboxes whose cgroup is not below our kubepods are theirs.
The list of pods must have arrived before: without it every pod would be unknown.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Iterable, Mapping

from plimsoll.errors import PlimsollError
from plimsoll.node.pods.container_spec import GRACE_PERIOD
from plimsoll.node.pods.manager import Pods
from plimsoll.node.pods.services import NodeServices
from plimsoll.node.resources.pleg import NOTHING
from plimsoll.node.volumes.pod_dirs import log_directory, pods_on_disk, remove_logs, remove_pod_files
from plimsoll.rules.model.observed import ObservedContainer, ObservedPod
from plimsoll.rules.model.runnable import DEFAULT_GRACE_S

log = logging.getLogger(__name__)

SHORT_GRACE_S = 1.0


class Cleanup:
    def __init__(self, node: NodeServices, pods: Pods) -> None:
        self._node, self._pods = node, pods
        self._lock = asyncio.Lock()

    async def leftovers(self) -> None:
        """Terminate what belongs to no pod of ours. What cannot be terminated is retried next time."""
        async with self._lock:
            observed = await self._observed()
            unknown = sorted(self._uids(observed) - self._pods.workers.keys())
            await _side_by_side(self._terminate(uid, observed.get(uid, NOTHING)) for uid in unknown)
            await self._node.cgroups.sweep()
            self._remove_old_logs({*observed, *self._pods.workers})

    async def dead_containers(self) -> None:
        """Remove the records and logs of ended containers in ended pods, to free disk space."""
        observed = await self._node.view.all()
        for worker in list(self._pods):
            if worker.is_over:
                for container in observed.get(worker.uid, NOTHING).containers:
                    if container.phase == "exited":
                        await self._node.runtime.remove_container(container.id)
                remove_logs(self._node.paths.logs, log_directory(self._node.paths.logs, worker.pod.metadata).name)

    async def all_pods(self) -> None:
        """Known or not, with a short grace period. Their cgroups are removed with the node's own."""
        observed = await self._observed()
        await _side_by_side(
            self._terminate(uid, observed.get(uid, NOTHING), SHORT_GRACE_S) for uid in sorted(self._uids(observed))
        )
        self._remove_old_logs(())

    def _uids(self, observed: Mapping[str, ObservedPod]) -> set[str]:
        return {
            *observed,
            *self._node.cgroups.known(),
            *pods_on_disk(self._node.paths.state),
            *self._node.checkpoint.all(),
        }

    async def _observed(self) -> dict[str, ObservedPod]:
        """What the runtime has of our pods, known or not."""
        is_foreign = self._node.cgroups.is_foreign
        return {
            uid: observed
            for uid, observed in (await self._node.view.all()).items()
            if uid in self._pods.workers or not any(is_foreign(each.cgroup_parent) for each in observed.sandboxes)
        }

    async def _terminate(self, uid: str, observed: ObservedPod, grace_s: float | None = None) -> None:
        live = observed.live()
        if live:
            log.info("stopping %d containers of a pod that is not known here (%s)", len(live), uid)
        await _side_by_side(
            self._node.runtime.stop_container(each.id, grace_of(each) if grace_s is None else grace_s) for each in live
        )
        for container in observed.containers:
            await self._node.runtime.remove_container(container.id)
        for sandbox in observed.sandboxes:
            await self._node.runtime.stop_sandbox(sandbox.id)
            await self._node.runtime.remove_sandbox(sandbox.id)
        if grace_s is None and uid in self._node.cgroups.known():  # `all_pods`: they are removed together, later
            await self._node.cgroups.remove(uid)
        await asyncio.to_thread(remove_pod_files, self._node.paths.state, uid)
        self._node.checkpoint.forget(uid)

    def _remove_old_logs(self, uids: Iterable[str]) -> None:
        """A pod's log directory is `<namespace>_<name>_<uid>`."""
        known = set(uids)
        try:
            names = os.listdir(self._node.paths.logs)
        except FileNotFoundError:
            return
        for name in names:
            if name.rpartition("_")[2] not in known:
                remove_logs(self._node.paths.logs, name)


def grace_of(container: ObservedContainer) -> float:
    text = container.annotations.get(GRACE_PERIOD, "")
    return float(text) if text.isdigit() else float(DEFAULT_GRACE_S)


async def _side_by_side(calls: Iterable[Awaitable[None]]) -> None:
    """Await all of them; one that fails does not stop the others."""

    async def one(call: Awaitable[None]) -> None:
        try:
            await call
        except (PlimsollError, OSError) as error:
            log.warning("container garbage collection: %s", error)

    async with asyncio.TaskGroup() as group:
        for call in calls:
            group.create_task(one(call))
