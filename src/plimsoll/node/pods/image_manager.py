"""The image manager: ensures that the image of a container is present, with the kubelet's events."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable

import msgspec

from plimsoll.aio import cancel_all
from plimsoll.node.pods.services import NodeServices
from plimsoll.rules.lifecycle.events import ContainerEvents, never_pull_message
from plimsoll.rules.model.observed import Start
from plimsoll.rules.model.runnable import RunContainer, RunPod, container_named
from plimsoll.runtime.interface import Image, ImageError

ERR_NEVER_PULL = "ErrImageNeverPull"
IMAGE_IGNORED = "ImageIgnored"  # in place of Pulled: the embedded runtime runs something of this machine


class PodImages:
    """Of one pod."""

    def __init__(self, node: NodeServices) -> None:
        self._node = node
        self._prefetched: dict[str, asyncio.Task[Image]] = {}

    def prefetch(self, pod: RunPod, starts: Iterable[Start]) -> None:
        """Begin to pull while the runtime creates the sandbox; `ensure` awaits the result, `cancel` gives up."""
        if not self._node.is_remote:  # the embedded runtime never pulls
            return
        for start in starts:
            container = container_named(pod, start.name)
            if container is not None and not start.resume_id and start.name not in self._prefetched:
                events = ContainerEvents(container.name, self._node.profile, start.kind)
                self._prefetched[start.name] = asyncio.create_task(self._ensure(pod, container, events))

    async def cancel(self) -> None:
        tasks = list(self._prefetched.values())
        self._prefetched.clear()
        await cancel_all(tasks)

    async def ensure(self, pod: RunPod, container: RunContainer, events: ContainerEvents) -> Image:
        """Raises ImageError if it cannot be had."""
        prefetched = self._prefetched.pop(container.name, None)
        return await (self._ensure(pod, container, events) if prefetched is None else prefetched)

    async def of_volume(self, reference: str, policy: str) -> Image:
        """The image of an image volume. Raises ImageError."""
        if policy != "Always" or self._node.keeps_images:
            try:
                return await self._node.runtime.image(reference, has_command=True, pull=False)
            except ImageError:
                if policy == "Never":
                    raise ImageError(reference, never_pull_message(reference), ERR_NEVER_PULL) from None
        return await self._node.runtime.image(reference, has_command=True, pull=True)

    async def _ensure(self, pod: RunPod, container: RunContainer, events: ContainerEvents) -> Image:
        return await (self._pulled if self._node.is_remote else self._local)(pod, container, events)

    async def _local(self, pod: RunPod, container: RunContainer, events: ContainerEvents) -> Image:
        image = await self._node.runtime.image(
            container.image, has_command=bool(container.command), pull=container.image_pull_policy != "Never"
        )
        event = events.present(container.image)
        if image.note:
            event = msgspec.structs.replace(event, reason=IMAGE_IGNORED, message=image.note)
        self._node.events.emit_lifecycle(pod, event)
        return image

    async def _pulled(self, pod: RunPod, container: RunContainer, events: ContainerEvents) -> Image:
        name, has_command, policy = container.image, bool(container.command), container.image_pull_policy
        if policy != "Always" or self._node.keeps_images:
            try:
                image = await self._node.runtime.image(name, has_command=has_command, pull=False)
            except ImageError:
                if policy == "Never":
                    raise ImageError(name, never_pull_message(name), ERR_NEVER_PULL) from None
            else:
                self._node.events.emit_lifecycle(pod, events.present(name))
                return image
        self._node.events.emit_lifecycle(pod, events.pulling(name))
        began_s = time.monotonic()
        image = await self._node.runtime.image(name, has_command=has_command, pull=True)
        took_s = time.monotonic() - began_s
        self._node.events.emit_lifecycle(pod, events.pulled(name, took_s, took_s, image.size_bytes))
        return image
