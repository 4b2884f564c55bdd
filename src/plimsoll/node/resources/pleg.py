"""The runtime's pods, read once for all workers that ask at the same time.

A worker needs the state after its own last action, so an answer never comes from a read that began before the request.
Reads follow each other; requests that arrive during a read share the next one. A request that finds no read in progress
reads by itself: where the runtime's state is known here (the embedded one), it does not even wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from plimsoll.aio import Wakeup
from plimsoll.errors import PlimsollError
from plimsoll.rules.model.observed import ObservedContainer, ObservedPod, ObservedSandbox
from plimsoll.rules.node.node_object import ImageOnNode
from plimsoll.runtime.cri.answers import Health, StoredImage
from plimsoll.runtime.interface import ContainerRuntime, RuntimeCallError, RuntimeSnapshot

log = logging.getLogger(__name__)

STATUS_S, IMAGES_S = 5.0, 30.0  # as the kubelet: updateRuntimeUp, and its image list
DOWN = "container runtime is down"
NOTHING = ObservedPod()


class RuntimeView:
    """Sandboxes and containers of each pod come newest first."""

    def __init__(self, runtime: ContainerRuntime) -> None:
        self._runtime = runtime
        self._requests: list[asyncio.Future[Mapping[str, ObservedPod]]] = []
        self._wake = Wakeup()
        self._is_reading = False
        self._snapshot: RuntimeSnapshot | None = None
        self.last: Mapping[str, ObservedPod] = {}  # as last read; for readers that need no fresh state

    async def all(self) -> Mapping[str, ObservedPod]:
        """By pod uid. Raises RuntimeCallError if the runtime does not answer."""
        if not self._is_reading and not self._requests:
            return await self._read()
        answer: asyncio.Future[Mapping[str, ObservedPod]] = asyncio.get_running_loop().create_future()
        self._requests.append(answer)
        return await answer

    async def pod(self, uid: str) -> ObservedPod:
        return (await self.all()).get(uid, NOTHING)

    async def run(self) -> None:
        """Read for the requests that have arrived during a read."""
        while True:
            await self._wake.wait()
            requests, self._requests = self._requests, []
            try:
                await self._read()
            except (PlimsollError, OSError) as error:
                for request in requests:
                    if not request.done():
                        request.set_exception(error)
                continue
            for request in requests:
                if not request.done():
                    request.set_result(self.last)

    async def _read(self) -> Mapping[str, ObservedPod]:
        self._is_reading = True
        try:
            snapshot = await self._runtime.seen()
        finally:
            self._is_reading = False
            if self._requests:
                self._wake.set()
        if snapshot is not self._snapshot:
            self.last, self._snapshot = self._pods(snapshot), snapshot
        return self.last

    def _pods(self, snapshot: RuntimeSnapshot) -> dict[str, ObservedPod]:
        sandboxes: dict[str, list[ObservedSandbox]] = {}
        containers: dict[str, list[ObservedContainer]] = {}
        for sandbox in snapshot.sandboxes:
            sandboxes.setdefault(sandbox.pod_uid, []).append(sandbox)
        for container in snapshot.containers:
            containers.setdefault(container.pod_uid, []).append(container)
        pods: dict[str, ObservedPod] = {}
        for uid in sandboxes.keys() | containers.keys():
            pod = ObservedPod(_newest_first(sandboxes.get(uid, ())), _newest_first(containers.get(uid, ())))
            before = self.last.get(uid)
            pods[uid] = before if before == pod else pod  # the same object while nothing has changed
        return pods


_Run = TypeVar("_Run", ObservedSandbox, ObservedContainer)


def _newest_first(runs: Sequence[_Run]) -> tuple[_Run, ...]:
    if len(runs) < 2:
        return tuple(runs)
    return tuple(sorted(runs, key=lambda each: (-each.attempt, -each.created_s)))


class RuntimeStatusSource(Protocol):
    async def health(self) -> Health: ...
    async def images(self) -> tuple[StoredImage, ...]: ...


class RuntimeHealth:
    """Polls a CRI runtime: whether it and its network are ready, and which images it has.

    The node's status is built from plain values, so the last answer is kept here. A runtime that does not answer makes
    the node NotReady with the kubelet's message. `changed` is called when anything has changed.
    """

    def __init__(self, runtime: RuntimeStatusSource, changed: Callable[[], None]) -> None:
        self._runtime, self._changed = runtime, changed
        self.errors: tuple[str, ...] = ()
        self.images: tuple[ImageOnNode, ...] = ()

    async def run(self) -> None:
        """Until cancelled."""
        clock = asyncio.get_running_loop().time
        images_s = clock()
        while True:
            before = (self.errors, self.images)
            try:
                self.errors = (await self._runtime.health()).sentences
                if clock() >= images_s:
                    self.images = tuple(map(_image_on_node, await self._runtime.images()))
                    images_s = clock() + IMAGES_S
            except RuntimeCallError as error:
                if DOWN not in self.errors:
                    log.warning("the container runtime does not answer: %s", error)
                self.errors = (DOWN,)
            if before != (self.errors, self.images):
                self._changed()
            await asyncio.sleep(STATUS_S)


def _image_on_node(image: StoredImage) -> ImageOnNode:
    """Digests before tags, as a kubelet lists them."""
    digests = [name for name in image.names if "@" in name]
    return ImageOnNode((*digests, *(name for name in image.names if "@" not in name)), image.size_bytes)
