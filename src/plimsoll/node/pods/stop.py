"""How a pod, or some of its containers, is stopped, and how everything that was made for it is given back.

Containers stop side by side; a sidecar waits for those it serves. The hook before the stop runs once per container,
also when the turn is taken again, and its time counts against the grace.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterable, Sequence

from plimsoll.errors import PlimsollError
from plimsoll.linux.safe_tree import remove_tree
from plimsoll.node.dependencies import Dependencies
from plimsoll.node.pods.container_start import Starter
from plimsoll.node.volumes.pod_dirs import log_directory, remove_pod_files
from plimsoll.rules.lifecycle.events import ContainerEvents
from plimsoll.rules.lifecycle.termination import Stop, TerminationVerdict, pod_grace_s, stop_grace_s, stops
from plimsoll.rules.model.observed import Kill, ObservedPod
from plimsoll.rules.model.runnable import RunPod, container_named

log = logging.getLogger(__name__)


class PodEnd:
    """Of one pod."""

    def __init__(self, tools: Dependencies, starter: Starter) -> None:
        self._tools, self._starter = tools, starter
        self._grace_s = 0
        self._since: dict[str, float] = {}  # container id → when its end began
        self._hooked: set[str] = set()
        self._is_released = False

    def stops(
        self, pod: RunPod, seen: ObservedPod, verdict: TerminationVerdict | None, *, by_itself: bool
    ) -> tuple[Stop, ...]:
        if by_itself and verdict is None and pod.metadata.deletion_timestamp is None:
            return stops(pod, seen)
        self._grace_s = pod_grace_s(pod, verdict, self._grace_s)
        return stops(pod, seen, self._grace_s)

    async def kill(self, pod: RunPod, seen: ObservedPod, kills: Iterable[Kill]) -> None:
        """Some containers of a pod that lives on."""
        wanted = []
        for kill in kills:
            container = container_named(pod, kill.name)
            hook = container.lifecycle.pre_stop if container is not None and container.lifecycle is not None else None
            wanted.append(Stop(kill.id, kill.name, kill.grace_s, hook))
        await self.stop(pod, seen, wanted, {kill.id: kill.message for kill in kills})

    async def stop(
        self, pod: RunPod, seen: ObservedPod, wanted: Sequence[Stop], messages: dict[str, str] | None = None
    ) -> None:
        """Returns when all have ended; raises what the runtime said about the first that could not be stopped."""
        ended = {each.name: asyncio.Event() for each in wanted}
        errors: list[PlimsollError | OSError] = []

        async def one(each: Stop) -> None:
            try:
                await self._one(pod, seen, each, ended, (messages or {}).get(each.id, ""))
            except (PlimsollError, OSError) as error:
                errors.append(error)
            finally:
                ended[each.name].set()

        async with asyncio.TaskGroup() as group:
            for each in wanted:
                group.create_task(one(each))
        for error in errors:
            raise error

    async def _one(
        self, pod: RunPod, seen: ObservedPod, stop: Stop, ended: dict[str, asyncio.Event], message: str
    ) -> None:
        clock, runtime = self._tools.clock, self._tools.runtime
        is_new = stop.id not in self._since
        began_s = self._since.setdefault(stop.id, clock())
        container = container_named(pod, stop.name)
        is_init = any(each.name == stop.name for each in pod.spec.init_containers)
        if is_new:
            about = ContainerEvents(stop.name, self._tools.setting.profile, is_init=is_init)
            self._tools.tell_lifecycle(pod, about.killing(message))
        waits = [ended[name] for name in stop.after if name in ended]
        if waits:
            left_s = max(0.0, stop.grace_s - (clock() - began_s))
            try:
                async with asyncio.timeout(left_s):
                    for each in waits:
                        await each.wait()
            except TimeoutError:
                log.debug("%s has waited for its whole grace", stop.name)
        sandbox = seen.sandbox()
        if stop.pre_stop is not None and container is not None and sandbox is not None and stop.id not in self._hooked:
            self._hooked.add(stop.id)
            left_s = max(1.0, stop.grace_s - (clock() - began_s))
            answer = await self._starter.hook(container, stop.id, sandbox.id, stop.pre_stop, left_s)
            if not answer.is_success:
                about = ContainerEvents(stop.name, self._tools.setting.profile, is_init=is_init)
                self._tools.tell_lifecycle(pod, about.pre_stop_failed())
        await runtime.stop_container(stop.id, stop_grace_s(stop.grace_s, clock() - began_s))

    async def stop_sandboxes(self, seen: ObservedPod) -> None:
        for each in seen.sandboxes:
            if each.ready:
                await self._tools.runtime.stop_sandbox(each.id)

    async def release(self, pod: RunPod, seen: ObservedPod) -> None:
        """Network, cgroups and volumes; what tells how it ended stays."""
        await self.stop_sandboxes(seen)
        if self._is_released:
            return
        await self._tools.cgroups.remove(pod.metadata.uid)
        # In a thread: a large volume takes seconds to remove.
        await asyncio.to_thread(remove_pod_files, self._tools.state_dir, pod.metadata.uid)
        self._is_released = True

    async def forget(self, pod: RunPod, seen: ObservedPod) -> None:
        """The records and logs, too."""
        runtime = self._tools.runtime
        for container in seen.containers:
            await runtime.remove_container(container.id)
        for sandbox in seen.sandboxes:
            await runtime.remove_sandbox(sandbox.id)
        remove_logs(self._tools, log_directory(self._tools.logs, pod.metadata).name)


def remove_logs(tools: Dependencies, name: str) -> None:

    try:
        parent = os.open(tools.logs, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        remove_tree(parent, name)
    finally:
        os.close(parent)
