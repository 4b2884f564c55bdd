"""Image garbage collection by disk use and by age (04 §4; https://kubernetes.io/docs/concepts/architecture/garbage-collection/#containers-images).

At the high threshold, unused images are removed until the use is at the low threshold: those that were used longest ago
first, and of these the ones that came first. An image younger than the minimum age stays. Images that nothing has used
for the maximum age are removed whatever the use is.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec


class ImageGcPolicy(msgspec.Struct, frozen=True):
    high_percent: int = 85
    low_percent: int = 80
    min_age_s: float = 120.0
    max_age_s: float = 0.0  # 0: none


class ImageRecord(msgspec.Struct, frozen=True):
    """An image as the node knows it; `used_s` is 0 if no container has used it since it was first seen, and `seen_s` if
    it was there before."""

    ref: str
    size_bytes: int
    seen_s: float
    used_s: float = 0.0
    is_used: bool = False  # now, or pinned


def bytes_to_free(capacity_bytes: int, available_bytes: int, policy: ImageGcPolicy) -> int:
    """0 below the high threshold. 100 GiB with 10 available, 85 % and 80 %: 20 − 10 = 10 GiB."""
    if capacity_bytes <= 0:
        return 0
    used_percent = 100 - available_bytes * 100 // capacity_bytes
    if used_percent < policy.high_percent:
        return 0
    return capacity_bytes * (100 - policy.low_percent) // 100 - available_bytes


def removable(images: Iterable[ImageRecord], policy: ImageGcPolicy, now_s: float) -> list[ImageRecord]:
    """Unused and old enough, in the order of their removal."""
    unused = (image for image in images if not image.is_used and now_s - image.seen_s >= policy.min_age_s)
    return sorted(unused, key=lambda image: (image.used_s, image.seen_s, image.ref))


def too_old(images: Iterable[ImageRecord], policy: ImageGcPolicy, began_s: float, now_s: float) -> list[ImageRecord]:
    """`began_s`: when the node first looked at its images."""
    if policy.max_age_s <= 0:
        return []

    def age_s(image: ImageRecord) -> float:
        return now_s - max(image.used_s, image.seen_s, began_s)

    return [image for image in images if not image.is_used and age_s(image) > policy.max_age_s]


def failure_message(wanted_bytes: int, freed_bytes: int) -> str:
    """Of the event Warning `FreeDiskSpaceFailed`."""
    return (
        "Failed to garbage collect required amount of images. "
        f"Attempted to free {wanted_bytes} bytes, but only found {freed_bytes} bytes eligible to free."
    )
