"""Polls a CRI runtime: whether it and its network are ready, and which images it has.

The node's status is built from plain values, so the last answer is kept here. A runtime that does not answer makes the
node NotReady with the kubelet's message. `changed` is called when anything has changed.
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
