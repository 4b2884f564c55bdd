"""What the runtime has, looked at once for all workers that ask at the same time.

A worker needs the truth as it is after its last action, so an answer never comes from a look that began before the
question. Looks follow each other; whoever asks while one is under way shares the next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec

from plimsoll.errors import PlimsollError
from plimsoll.runtime.interface import ContainerRuntime, ContainerStateSeen, RuntimeSnapshot, SandboxStateSeen


class PodParts(msgspec.Struct, frozen=True):
    """One pod's sandboxes, newest first, and containers, newest attempt first."""

    sandboxes: tuple[SandboxStateSeen, ...] = ()
    containers: tuple[ContainerStateSeen, ...] = ()

    def newest(self, name: str) -> ContainerStateSeen | None:
        return next((each for each in self.containers if each.name == name), None)

    def alive(self) -> list[ContainerStateSeen]:
        return [each for each in self.containers if each.phase in ("created", "running", "unknown")]


NOTHING = PodParts()


class RuntimeView:
    def __init__(self, runtime: ContainerRuntime) -> None:
        self._runtime = runtime
        self._asking: list[asyncio.Future[Mapping[str, PodParts]]] = []
        self._wake = asyncio.Event()
        self._seen: RuntimeSnapshot | None = None
        self.last: Mapping[str, PodParts] = {}  # for whoever only shows it

    async def all(self) -> Mapping[str, PodParts]:
        """By pod uid. RuntimeTrouble where the runtime does not answer."""
        answer: asyncio.Future[Mapping[str, PodParts]] = asyncio.get_running_loop().create_future()
        self._asking.append(answer)
        self._wake.set()
        return await answer

    async def pod(self, uid: str) -> PodParts:
        return (await self.all()).get(uid, NOTHING)

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            asking, self._asking = self._asking, []
            try:
                self.last = await self._look()
            except (PlimsollError, OSError) as error:
                for each in asking:
                    if not each.done():
                        each.set_exception(error)
                continue
            for each in asking:
                if not each.done():
                    each.set_result(self.last)

    async def _look(self) -> Mapping[str, PodParts]:
        seen = await self._runtime.seen()
        if seen is self._seen:
            return self.last
        self._seen = seen
        sandboxes: dict[str, list[SandboxStateSeen]] = {}
        containers: dict[str, list[ContainerStateSeen]] = {}
        for sandbox in seen.sandboxes:
            sandboxes.setdefault(sandbox.pod_uid, []).append(sandbox)
        for container in seen.containers:
            containers.setdefault(container.pod_uid, []).append(container)
        return {
            uid: PodParts(
                tuple(sorted(sandboxes.get(uid, ()), key=lambda each: (-each.attempt, -each.created_s))),
                tuple(sorted(containers.get(uid, ()), key=lambda each: (-each.attempt, -each.created_s))),
            )
            for uid in sandboxes.keys() | containers.keys()
        }
