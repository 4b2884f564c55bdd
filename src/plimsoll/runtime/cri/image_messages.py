"""The messages of CRI's ImageService, and of what containers have on disk, that we send and read; see `messages`."""

from __future__ import annotations

from typing import Annotated

from plimsoll.codec.protobuf.structs import Unsigned
from plimsoll.runtime.cri.messages import ImageSpec, Int64Value, Message, UInt64Value


class AuthConfig(Message, frozen=True):
    username: Annotated[str, 1] = ""
    password: Annotated[str, 2] = ""


class ImageRequest(Message, frozen=True):
    """RemoveImageRequest."""

    image: Annotated[ImageSpec | None, 1] = None


class PullImageRequest(ImageRequest, frozen=True):
    auth: Annotated[AuthConfig | None, 2] = None


class ImageStatusRequest(ImageRequest, frozen=True):
    verbose: Annotated[bool, 2] = False


class CriImage(Message, frozen=True):
    id: Annotated[str, 1] = ""
    repo_tags: Annotated[tuple[str, ...], 2] = ()
    repo_digests: Annotated[tuple[str, ...], 3] = ()
    size: Annotated[Unsigned, 4] = Unsigned(0)
    uid: Annotated[Int64Value | None, 5] = None
    username: Annotated[str, 6] = ""
    pinned: Annotated[bool, 8] = False


class ImageStatusResponse(Message, frozen=True):
    image: Annotated[CriImage | None, 1] = None
    info: Annotated[dict[str, str], 2] = {}


class ListImagesResponse(Message, frozen=True):
    images: Annotated[tuple[CriImage, ...], 1] = ()


class PullImageResponse(Message, frozen=True):
    image_ref: Annotated[str, 1] = ""


class FilesystemIdentifier(Message, frozen=True):
    mountpoint: Annotated[str, 1] = ""


class FilesystemUsage(Message, frozen=True):
    fs_id: Annotated[FilesystemIdentifier | None, 2] = None
    used_bytes: Annotated[UInt64Value | None, 3] = None
    inodes_used: Annotated[UInt64Value | None, 4] = None


class ImageFsInfoResponse(Message, frozen=True):
    image_filesystems: Annotated[tuple[FilesystemUsage, ...], 1] = ()
    container_filesystems: Annotated[tuple[FilesystemUsage, ...], 2] = ()


class ContainerAttributes(Message, frozen=True):
    id: Annotated[str, 1] = ""


class ContainerStats(Message, frozen=True):
    attributes: Annotated[ContainerAttributes | None, 1] = None
    writable_layer: Annotated[FilesystemUsage | None, 4] = None


class ListContainerStatsResponse(Message, frozen=True):
    stats: Annotated[tuple[ContainerStats, ...], 1] = ()
