"""Image garbage collection: removes the images that no container uses, when their disk space is needed (04 §4)."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Protocol

from plimsoll.runtime.cri.answers import StoredImage
from plimsoll.runtime.interface import ObservedContainer, RuntimeCallError, RuntimeSnapshot

log = logging.getLogger(__name__)


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
        try:
            await runtime.remove_image(image.ref)
        except RuntimeCallError as error:
            log.warning("image %s stays: %s", image.ref, error)
        else:
            log.info("removed unused image %s, %d bytes", image.names or image.ref, image.size_bytes)
