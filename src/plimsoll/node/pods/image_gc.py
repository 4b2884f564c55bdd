"""Images that no container uses, removed where their disk space is wanted (04 §4)."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Protocol

from plimsoll.runtime.cri.answers import StoredImage
from plimsoll.runtime.interface import ContainerStateSeen, RuntimeCallError, RuntimeSnapshot

log = logging.getLogger(__name__)


class ImageStore(Protocol):
    sandbox_image: str

    async def seen(self) -> RuntimeSnapshot: ...
    async def images(self) -> tuple[StoredImage, ...]: ...
    async def remove_image(self, ref: str) -> None: ...


def unused(
    images: Iterable[StoredImage], containers: Iterable[ContainerStateSeen], sandbox_image: str
) -> list[StoredImage]:
    """Also a container that has ended keeps its image, as long as it is there. Sandboxes have one of their own."""
    used = {sandbox_image, *(name for each in containers for name in (each.image, each.image_id))}
    return [each for each in images if not each.pinned and used.isdisjoint((each.ref, *each.names))]


async def remove_unused_images(runtime: ImageStore) -> None:
    """One that the runtime does not want to let go stays."""
    found = unused(await runtime.images(), (await runtime.seen()).containers, runtime.sandbox_image)
    for image in found:
        try:
            await runtime.remove_image(image.ref)
        except RuntimeCallError as trouble:
            log.warning("image %s stays: %s", image.ref, trouble)
        else:
            log.info("removed image %s, %d bytes, which no container uses", image.names or image.ref, image.size_bytes)
