"""What is left of pods that nobody knows any more: after a restart, after a pod was deleted while we were away.

A pod leaves traces in four places: containers and sandboxes in the runtime, cgroups, files, and our checkpoint. A uid
in any of them that is not among our pods is ended with the grace it was started with, and everything of it removed. A
runtime may serve others, too: sandboxes whose cgroup is not below our kubepods are theirs.
The list of pods must have come before: without it every pod would look unknown.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Iterable

from plimsoll.errors import PlimsollError
from plimsoll.node.dependencies import Dependencies
from plimsoll.node.pods.container_spec import GRACE_PERIOD
from plimsoll.node.pods.manager import Pods
from plimsoll.node.pods.stop import remove_logs
from plimsoll.node.resources.pleg import NOTHING, PodParts
from plimsoll.node.volumes.pod_dirs import log_directory, pods_on_disk, remove_pod_files
from plimsoll.rules.model.runnable import DEFAULT_GRACE_S
from plimsoll.runtime.interface import ContainerStateSeen

log = logging.getLogger(__name__)

HURRIED_GRACE_S = 1.0


class Cleanup:
    def __init__(self, tools: Dependencies, pods: Pods) -> None:
        self._tools, self._pods = tools, pods
        self._one_at_a_time = asyncio.Lock()

    async def leftovers(self) -> None:
        """End what belongs to no pod of ours. One that cannot be ended is tried again next time."""
        async with self._one_at_a_time:
            await self._leftovers()

    async def _leftovers(self) -> None:
        tools = self._tools
        seen = await self._seen()
        found = {*seen, *tools.cgroups.known(), *pods_on_disk(tools.state_dir), *tools.checkpoint.all()}
        unknown = sorted(found - self._pods.workers.keys())
        await _side_by_side(self._end(uid, seen.get(uid, NOTHING)) for uid in unknown)
        await tools.cgroups.sweep()
        self._remove_old_logs({*seen, *self._pods.workers})

    async def dead_containers(self) -> None:
        """The records and logs of containers that have ended in pods that have ended: their disk space is wanted."""
        seen = await self._tools.view.all()
        for worker in list(self._pods):
            if worker.is_over:
                for container in seen.get(worker.uid, NOTHING).containers:
                    if container.phase == "exited":
                        await self._tools.runtime.remove_container(container.id)
                remove_logs(self._tools, log_directory(self._tools.logs, worker.pod.metadata).name)

    async def all_pods(self) -> None:
        """Known or not, in a hurry. Their cgroups go with the node's own."""
        tools = self._tools
        seen = await self._seen()
        found = {*seen, *tools.cgroups.known(), *pods_on_disk(tools.state_dir), *tools.checkpoint.all()}
        await _side_by_side(self._end(uid, seen.get(uid, NOTHING), HURRIED_GRACE_S) for uid in sorted(found))
        self._remove_old_logs(())

    async def _seen(self) -> dict[str, PodParts]:
        """What the runtime has of our pods, known or not."""
        elsewhere = self._tools.cgroups.is_elsewhere
        return {
            uid: parts
            for uid, parts in (await self._tools.view.all()).items()
            if uid in self._pods.workers or not any(elsewhere(each.cgroup_parent) for each in parts.sandboxes)
        }

    async def _end(self, uid: str, parts: PodParts, grace_s: float | None = None) -> None:
        runtime = self._tools.runtime
        if parts.alive():
            log.info("ending %d containers of a pod that is not known here (%s)", len(parts.alive()), uid)
        await _side_by_side(
            runtime.stop_container(each.id, grace_of(each) if grace_s is None else grace_s) for each in parts.alive()
        )
        for container in parts.containers:
            await runtime.remove_container(container.id)
        for sandbox in parts.sandboxes:
            await runtime.stop_sandbox(sandbox.id)
            await runtime.remove_sandbox(sandbox.id)
        if grace_s is None and uid in self._tools.cgroups.known():  # in a hurry they all go in one turn, later
            await self._tools.cgroups.remove(uid)
        await asyncio.to_thread(remove_pod_files, self._tools.state_dir, uid)
        self._tools.checkpoint.forget(uid)

    def _remove_old_logs(self, uids: Iterable[str]) -> None:
        """A pod's log directory is `<namespace>_<name>_<uid>`."""
        kept = set(uids)
        try:
            names = os.listdir(self._tools.logs)
        except FileNotFoundError:
            return
        for name in names:
            if name.rpartition("_")[2] not in kept:
                remove_logs(self._tools, name)


def grace_of(container: ContainerStateSeen) -> float:
    text = container.annotations.get(GRACE_PERIOD, "")
    return float(text) if text.isdigit() else float(DEFAULT_GRACE_S)


async def _side_by_side(doing: Iterable[Awaitable[None]]) -> None:
    """All of them, whatever happens to one."""

    async def one(each: Awaitable[None]) -> None:
        try:
            await each
        except (PlimsollError, OSError) as error:
            log.warning("cleaning up: %s", error)

    async with asyncio.TaskGroup() as group:
        for each in doing:
            group.create_task(one(each))
