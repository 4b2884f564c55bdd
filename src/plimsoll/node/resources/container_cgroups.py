"""The cgroups of containers: `ContainerCgroups`, and `AgentCgroups`, which creates and writes them itself.

With the embedded runtime the agent owns them: it creates one per container before the runtime starts a process in it.
A CRI runtime owns those of its containers; `runtime_cgroups.RuntimeCgroups` is the implementation for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Protocol

from plimsoll.aio import cancel_all
from plimsoll.cgroups.engine.executor import StepError
from plimsoll.node.resources.cgroup_locator import Finding
from plimsoll.node.resources.pod_cgroups import PodCgroups
from plimsoll.rules.cgroups.repair import Repair
from plimsoll.rules.model.objects import Pod
from plimsoll.rules.model.observed import ObservedContainer
from plimsoll.rules.resize.allocation import Allocation

MakeSandbox = Callable[[], Awaitable[str]]
MarkActuated = Callable[[str], None]  # is called with the name of each container that has its new size


class ContainerCgroups(Protocol):
    scopes_may_vanish: bool  # whether a container's cgroup, with its counters, may be removed with its last process

    async def start(
        self, pod: Pod, ids: Mapping[str, str], sandbox_id: str, make_sandbox: MakeSandbox
    ) -> tuple[Mapping[str, str], str]:
        """Prepare cgroups and sandbox for containers that are about to start: the paths, and the sandbox's id.

        `ids`: container name → id of all that run or start, as far as known. `sandbox_id`: the one that exists."""

    async def actuate(self, pod: Pod, actuated: Allocation, mark: MarkActuated) -> None:
        """Give the running containers of a pod the sizes it has now. `actuated`: the sizes they have."""

    def is_current(self, pod: Pod) -> bool:
        """Whether its cgroups were last sized for exactly this pod, with the node's present settings."""

    async def lift(self, pod: Pod, container: str, container_id: str, high: str) -> None:
        """Set another memory.high for a container than the rules compute, until it ends."""

    async def pin(self, *, every: bool = False) -> None:
        """Move containers onto their CPUs; with `every`, also compare all with the kernel."""

    async def repair(self, uids: Collection[str]) -> list[Repair]:
        """Write what another process has changed in the node's own cgroups and in those of these pods."""

    def observe(self, pod: Pod, containers: Iterable[ObservedContainer]) -> list[Finding]:
        """Take note of the pod's containers, and return faults that are new. `pod`: as its cgroups are sized."""

    def conditions(self) -> dict[str, str]:
        """Faults that exist now: condition type → message."""


class AgentCgroups:
    def __init__(self, pods: PodCgroups, *, scopes_may_vanish: bool) -> None:
        """`scopes_may_vanish`: systemd removes a scope with its last process."""
        self._pods, self.scopes_may_vanish = pods, scopes_may_vanish

    async def start(
        self, pod: Pod, ids: Mapping[str, str], sandbox_id: str, make_sandbox: MakeSandbox
    ) -> tuple[Mapping[str, str], str]:
        """The supervisor creates the sandbox while the agent creates the cgroups."""
        making = asyncio.ensure_future(make_sandbox())
        try:
            paths = await self._pods.ensure(pod, ids)
            return paths, await making
        finally:
            await cancel_all([making])

    async def actuate(self, pod: Pod, actuated: Allocation, mark: MarkActuated) -> None:
        """One transaction, which knows the safe order and never kills a process to lower a limit."""
        try:
            await self._pods.resize(pod)
        except StepError as error:
            names = {path: name for name, path in self._pods.paths(pod.metadata.uid).items() if name}
            for path in error.done:
                if path in names:
                    mark(names[path])
            raise

    def is_current(self, pod: Pod) -> bool:
        return self._pods.is_sized_for(pod)

    async def lift(self, pod: Pod, container: str, container_id: str, high: str) -> None:
        await self._pods.lift(pod.metadata.uid, container_id, high)

    async def pin(self, *, every: bool = False) -> None:
        await self._pods.pin(every=every)

    async def repair(self, uids: Collection[str]) -> list[Repair]:
        return await self._pods.repair(uids)

    def observe(self, pod: Pod, containers: Iterable[ObservedContainer]) -> list[Finding]:
        return []

    def conditions(self) -> dict[str, str]:
        return {}
