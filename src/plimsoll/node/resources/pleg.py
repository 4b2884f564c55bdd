"""The runtime's pods, read once for all workers that ask at the same time.

A worker needs the state after its own last action, so an answer never comes from a read that began before the request.
Reads follow each other; requests that arrive during a read share the next one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from plimsoll.errors import PlimsollError
from plimsoll.rules.model.observed import ObservedContainer, ObservedPod, ObservedSandbox
from plimsoll.runtime.interface import ContainerRuntime, RuntimeSnapshot

NOTHING = ObservedPod()


class RuntimeView:
    """Sandboxes and containers of each pod come newest first."""

    def __init__(self, runtime: ContainerRuntime) -> None:
        self._runtime = runtime
        self._requests: list[asyncio.Future[Mapping[str, ObservedPod]]] = []
        self._wake = asyncio.Event()
        self._snapshot: RuntimeSnapshot | None = None
        self.last: Mapping[str, ObservedPod] = {}  # as last read; for readers that need no fresh state

    async def all(self) -> Mapping[str, ObservedPod]:
        """By pod uid. Raises RuntimeCallError if the runtime does not answer."""
        answer: asyncio.Future[Mapping[str, ObservedPod]] = asyncio.get_running_loop().create_future()
        self._requests.append(answer)
        self._wake.set()
        return await answer

    async def pod(self, uid: str) -> ObservedPod:
        return (await self.all()).get(uid, NOTHING)

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            requests, self._requests = self._requests, []
            try:
                self.last = await self._read()
            except (PlimsollError, OSError) as error:
                for request in requests:
                    if not request.done():
                        request.set_exception(error)
                continue
            for request in requests:
                if not request.done():
                    request.set_result(self.last)

    async def _read(self) -> Mapping[str, ObservedPod]:
        snapshot = await self._runtime.seen()
        if snapshot is self._snapshot:
            return self.last
        self._snapshot = snapshot
        sandboxes: dict[str, list[ObservedSandbox]] = {}
        containers: dict[str, list[ObservedContainer]] = {}
        for sandbox in snapshot.sandboxes:
            sandboxes.setdefault(sandbox.pod_uid, []).append(sandbox)
        for container in snapshot.containers:
            containers.setdefault(container.pod_uid, []).append(container)
        return {
            uid: ObservedPod(
                tuple(sorted(sandboxes.get(uid, ()), key=lambda each: (-each.attempt, -each.created_s))),
                tuple(sorted(containers.get(uid, ()), key=lambda each: (-each.attempt, -each.created_s))),
            )
            for uid in sandboxes.keys() | containers.keys()
        }
