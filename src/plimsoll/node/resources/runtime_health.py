"""How a CRI runtime is, asked again and again: whether it and its network are ready, and which images it has.

The node's status is made of plain values, so what was last heard is kept here. A runtime that does not answer makes the
node NotReady with the kubelet's words; whoever shows the node is woken when anything has changed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from plimsoll.rules.node.node_object import ImageOnNode
from plimsoll.runtime.cri.answers import Health, StoredImage
from plimsoll.runtime.interface import RuntimeCallError

STATUS_S, IMAGES_S = 5.0, 30.0  # as the kubelet: updateRuntimeUp, and its image list
DOWN = "container runtime is down"

log = logging.getLogger(__name__)


class RuntimeStatusSource(Protocol):
    async def health(self) -> Health: ...
    async def images(self) -> tuple[StoredImage, ...]: ...


class RuntimeHealth:
    def __init__(self, runtime: RuntimeStatusSource, changed: Callable[[], None]) -> None:
        self._runtime, self._changed = runtime, changed
        self.troubles: tuple[str, ...] = ()
        self.images: tuple[ImageOnNode, ...] = ()

    async def run(self) -> None:
        """For ever."""
        clock = asyncio.get_running_loop().time
        images_s = clock()
        while True:
            before = (self.troubles, self.images)
            try:
                self.troubles = (await self._runtime.health()).sentences
                if clock() >= images_s:
                    self.images = tuple(map(_shown, await self._runtime.images()))
                    images_s = clock() + IMAGES_S
            except RuntimeCallError as trouble:
                if DOWN not in self.troubles:
                    log.warning("the container runtime does not answer: %s", trouble)
                self.troubles = (DOWN,)
            if before != (self.troubles, self.images):
                self._changed()
            await asyncio.sleep(STATUS_S)


def _shown(image: StoredImage) -> ImageOnNode:
    """Digests before tags, as a kubelet lists them."""
    digests = [each for each in image.names if "@" in each]
    return ImageOnNode((*digests, *(each for each in image.names if "@" not in each)), image.size_bytes)
