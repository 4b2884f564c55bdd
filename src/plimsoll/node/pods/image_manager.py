"""The image manager: ensures that the image of a container is present, with the kubelet's events."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from pathlib import Path

import msgspec

from plimsoll.aio import cancel_all
from plimsoll.node.pods.credential_plugins import CredentialPlugins, read_providers
from plimsoll.node.pods.services import NodeServices
from plimsoll.rules.config.kubelet import KubeletConfig
from plimsoll.rules.lifecycle.events import ContainerEvents, never_pull_message
from plimsoll.rules.lifecycle.registry_auth import credentials, keyring
from plimsoll.rules.model.observed import Start
from plimsoll.rules.model.runnable import RunContainer, RunPod, container_named
from plimsoll.runtime.interface import Image, ImageError

log = logging.getLogger(__name__)

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
        asked_s = time.monotonic()
        async with self._node.pulls or nullcontext():
            began_s = time.monotonic()
            image = await self._from_registry(pod, name, has_command=has_command)
        ended_s = time.monotonic()
        pulled = events.pulled(name, ended_s - began_s, ended_s - asked_s, image.size_bytes)
        self._node.events.emit_lifecycle(pod, pulled)
        return image

    async def _from_registry(self, pod: RunPod, name: str, *, has_command: bool) -> Image:
        """With each of the pod's credentials that fit, until one succeeds."""
        secrets = await self._node.objects.pull_secrets(pod) if pod.spec.image_pull_secrets else []
        found = [*credentials(name, keyring(secrets))]
        if self._node.plugins is not None:
            found += credentials(name, await self._node.plugins.keyring(name))
        for auth in found[:-1]:
            try:
                return await self._node.runtime.image(name, has_command=has_command, pull=True, auth=auth)
            except ImageError as error:
                log.debug("image %s with the credentials of %s: %s", name, auth.username, error.message)
        last = found[-1] if found else None
        return await self._node.runtime.image(name, has_command=has_command, pull=True, auth=last)


def plugins_of(config: KubeletConfig, clock: Callable[[], float]) -> CredentialPlugins | None:
    """None if no file is configured. Raises InvalidConfigError or OSError if the file cannot be used."""
    if not config.credential_provider_config:
        return None
    providers = read_providers(Path(config.credential_provider_config))
    return CredentialPlugins(providers, Path(config.credential_provider_directory), clock)


def pull_limit(config: KubeletConfig) -> asyncio.Semaphore | None:
    """`serializeImagePulls`, `maxParallelImagePulls`."""
    most = 1 if config.serialize_image_pulls else config.max_parallel_image_pulls
    return asyncio.Semaphore(most) if most else None
