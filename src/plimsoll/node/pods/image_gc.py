"""Image garbage collection: removes images that no container uses, when their disk space is needed (04 §4).

Eviction removes all of them when the disk of the images is full (`remove_unused_images`). Before that, every five
minutes, `ImageCollector` keeps the use of that disk below its thresholds (`rules.lifecycle.image_gc`).
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec

from plimsoll.rules.config.kubelet import KubeletConfig
from plimsoll.rules.lifecycle.image_gc import (
    ImageGcPolicy,
    ImageRecord,
    bytes_to_free,
    failure_message,
    removable,
    too_old,
)
from plimsoll.runtime.cri.answers import StoredImage
from plimsoll.runtime.interface import ObservedContainer, RuntimeCallError, RuntimeSnapshot

log = logging.getLogger(__name__)

PERIOD_S = 300.0


class ImageStore(Protocol):
    sandbox_image: str

    async def seen(self) -> RuntimeSnapshot: ...
    async def images(self) -> tuple[StoredImage, ...]: ...
    async def remove_image(self, ref: str) -> None: ...


def unused(
    images: Iterable[StoredImage], containers: Iterable[ObservedContainer], sandbox_image: str
) -> list[StoredImage]:
    """An ended container keeps its image as long as its record exists. Sandboxes have an image of their own."""
    used = {sandbox_image, *(name for container in containers for name in (container.image, container.image_id))}
    return [image for image in images if not image.pinned and used.isdisjoint((image.ref, *image.names))]


async def remove_unused_images(runtime: ImageStore) -> None:
    """An image that the runtime refuses to remove stays."""
    for image in unused(await runtime.images(), (await runtime.seen()).containers, runtime.sandbox_image):
        await _removed(runtime, image.ref, image.size_bytes)


async def _removed(runtime: ImageStore, ref: str, size_bytes: int) -> bool:
    try:
        await runtime.remove_image(ref)
    except RuntimeCallError as error:
        log.warning("image %s is not removed: %s", ref, error)
        return False
    log.info("removed unused image %s, %d bytes", ref, size_bytes)
    return True


def disk_of(path: str) -> tuple[int, int]:
    """Capacity and available bytes."""
    found = os.statvfs(path)
    return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize


class ImageCollector:
    def __init__(
        self,
        runtime: ImageStore,
        policy: ImageGcPolicy,
        disk: Callable[[], tuple[int, int]],
        event: Callable[[str, str, str], None],
        clock: Callable[[], float],
    ) -> None:
        """`disk`: capacity and available bytes of the disk with the images. `event`: about the node."""
        self._runtime, self._policy, self._disk, self._event, self._clock = runtime, policy, disk, event, clock
        self._began_s = clock()
        self._known: dict[str, ImageRecord] | None = None  # by reference; None before the first look

    async def run(self) -> None:
        while True:
            try:
                await self.collect()
            except (RuntimeCallError, OSError) as error:
                log.warning("image garbage collection: %s", error)
            await asyncio.sleep(PERIOD_S)

    async def collect(self) -> None:
        now_s = self._clock()
        known = self._known = await self._observe(now_s)
        for image in too_old(known.values(), self._policy, self._began_s, now_s):
            await self._remove(known, image)
        capacity_bytes, available_bytes = self._disk()
        wanted = bytes_to_free(capacity_bytes, available_bytes, self._policy)
        freed = 0
        for image in removable(known.values(), self._policy, now_s):
            if freed >= wanted:
                break
            freed += image.size_bytes if await self._remove(known, image) else 0
        if freed < wanted:
            self._event("Warning", "FreeDiskSpaceFailed", failure_message(wanted, freed))

    async def _remove(self, known: dict[str, ImageRecord], image: ImageRecord) -> bool:
        is_removed = await _removed(self._runtime, image.ref, image.size_bytes)
        if is_removed:
            known.pop(image.ref, None)
        return is_removed

    async def _observe(self, now_s: float) -> dict[str, ImageRecord]:
        """Images that were there before the agent started have no minimum age."""
        before, seen_s = (self._known, now_s) if self._known is not None else ({}, 0.0)
        images = await self._runtime.images()
        containers = (await self._runtime.seen()).containers
        free = {image.ref for image in unused(images, containers, self._runtime.sandbox_image)}
        known: dict[str, ImageRecord] = {}
        for image in images:
            record = before.get(image.ref) or ImageRecord(image.ref, image.size_bytes, seen_s)
            is_used = image.ref not in free
            used_s = now_s if is_used else record.used_s
            known[image.ref] = msgspec.structs.replace(record, used_s=used_s, is_used=is_used)
        return known


async def collect_images(
    runtime: ImageStore,
    config: KubeletConfig,
    path: str,
    event: Callable[[str, str, str], None],
    ready: asyncio.Event,
) -> None:
    """From the moment when the node is `ready` until cancelled. `path`: on the disk with the images."""
    policy = ImageGcPolicy(
        config.image_gc_high_percent, config.image_gc_low_percent, config.image_min_age_s, config.image_max_age_s
    )
    await ready.wait()
    await ImageCollector(runtime, policy, lambda: disk_of(path), event, time.time).run()
