"""Stops a pod, or some of its containers, and releases everything that was created for it.

Containers stop side by side; a sidecar waits for the containers it serves. The preStop hook runs once per container,
even if the sync is repeated, and its time counts against the grace period.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence

from plimsoll.errors import PlimsollError
from plimsoll.node.pods.container_start import Starter
from plimsoll.node.pods.services import NodeServices
from plimsoll.node.volumes.pod_dirs import log_directory, remove_logs, remove_pod_files
from plimsoll.rules.lifecycle.events import ContainerEvents
from plimsoll.rules.lifecycle.termination import Stop, TerminationVerdict, pod_grace_s, stop_grace_s, stops
from plimsoll.rules.model.observed import Kill, ObservedPod
from plimsoll.rules.model.runnable import RunPod, container_kind, container_named

log = logging.getLogger(__name__)


class PodEnd:
    """Of one pod."""

    def __init__(self, node: NodeServices, starter: Starter) -> None:
        self._node, self._starter = node, starter
        self._grace_s = 0
        self._since: dict[str, float] = {}  # container id → when its stop began
        self._hooked: set[str] = set()
        self._is_released = False

    def stops(
        self, pod: RunPod, observed: ObservedPod, verdict: TerminationVerdict | None, *, by_itself: bool
    ) -> tuple[Stop, ...]:
        if by_itself and verdict is None and pod.metadata.deletion_timestamp is None:
            return stops(pod, observed)
        self._grace_s = pod_grace_s(pod, verdict, self._grace_s)
        return stops(pod, observed, self._grace_s)

    async def kill(self, pod: RunPod, observed: ObservedPod, kills: Iterable[Kill]) -> None:
        """Stop some containers of a pod that stays."""
        wanted = []
        for kill in kills:
            container = container_named(pod, kill.name)
            lifecycle = container.lifecycle if container is not None and kill.grace_s > 0 else None
            hook = lifecycle.pre_stop if lifecycle is not None else None
            wanted.append(Stop(kill.id, kill.name, kill.grace_s, hook))
        await self.stop(pod, observed, wanted, {kill.id: kill.message for kill in kills})

    async def stop(
        self, pod: RunPod, observed: ObservedPod, wanted: Sequence[Stop], messages: dict[str, str] | None = None
    ) -> None:
        """Returns when all have ended; raises the runtime's error about the first that could not be stopped."""
        ended = {stop.name: asyncio.Event() for stop in wanted}
        errors: list[PlimsollError | OSError] = []

        async def one(stop: Stop) -> None:
            try:
                await self._stop_one(pod, observed, stop, ended, (messages or {}).get(stop.id, ""))
            except (PlimsollError, OSError) as error:
                errors.append(error)
            finally:
                ended[stop.name].set()

        async with asyncio.TaskGroup() as group:
            for stop in wanted:
                group.create_task(one(stop))
        for error in errors:
            raise error

    async def _stop_one(
        self, pod: RunPod, observed: ObservedPod, stop: Stop, ended: dict[str, asyncio.Event], message: str
    ) -> None:
        clock = self._node.clock
        is_new = stop.id not in self._since
        began_s = self._since.setdefault(stop.id, clock())
        container = container_named(pod, stop.name)
        events = ContainerEvents(stop.name, self._node.profile, container_kind(pod, stop.name))
        if is_new:
            self._node.events.emit_lifecycle(pod, events.killing(message))
        waits = [ended[name] for name in stop.after if name in ended]
        if waits:
            left_s = max(0.0, stop.grace_s - (clock() - began_s))
            try:
                async with asyncio.timeout(left_s):
                    for each in waits:
                        await each.wait()
            except TimeoutError:
                log.debug("%s has waited for its whole grace period", stop.name)
        sandbox = observed.sandbox()
        if stop.pre_stop is not None and container is not None and sandbox is not None and stop.id not in self._hooked:
            self._hooked.add(stop.id)
            left_s = max(1.0, stop.grace_s - (clock() - began_s))
            ips = self._node.pod_ips(pod, observed)
            if not await self._starter.hook(pod, container, stop.id, sandbox.id, ips, stop.pre_stop, left_s):
                self._node.events.emit_lifecycle(pod, events.pre_stop_failed())
        await self._node.runtime.stop_container(stop.id, stop_grace_s(stop.grace_s, clock() - began_s))

    async def stop_sandboxes(self, observed: ObservedPod) -> None:
        for sandbox in observed.sandboxes:
            if sandbox.ready:
                await self._node.runtime.stop_sandbox(sandbox.id)

    async def release(self, pod: RunPod, observed: ObservedPod) -> None:
        """Network, cgroups and volumes; the records of how it ended stay."""
        await self.stop_sandboxes(observed)
        if self._is_released:
            return
        self._node.objects.forget(pod.metadata.uid)
        await self._node.cgroups.remove(pod.metadata.uid)
        # In a thread: a large volume takes seconds to remove.
        await asyncio.to_thread(remove_pod_files, self._node.paths.state, pod.metadata.uid)
        self._is_released = True

    async def remove_containers(self, container_ids: Iterable[str]) -> None:
        for container_id in container_ids:
            await self._node.runtime.remove_container(container_id)

    async def forget(self, pod: RunPod, observed: ObservedPod) -> None:
        """Remove the records and logs, too."""
        await self.remove_containers(container.id for container in observed.containers)
        for sandbox in observed.sandboxes:
            await self._node.runtime.remove_sandbox(sandbox.id)
        remove_logs(self._node.paths.logs, log_directory(self._node.paths.logs, pod.metadata).name)
