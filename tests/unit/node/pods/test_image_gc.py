"""Which images may be removed when disk space is needed."""

from __future__ import annotations

import pytest

from plimsoll.node.pods.image_gc import ImageCollector, unused
from plimsoll.rules.lifecycle.image_gc import ImageGcPolicy
from plimsoll.runtime.cri.answers import StoredImage
from plimsoll.runtime.interface import ObservedContainer, RuntimeSnapshot

PAUSE = "registry.k8s.io/pause:3.6"
IMAGES = [
    StoredImage("sha256:aa", ("docker.io/library/nginx:1.25", "docker.io/library/nginx@sha256:11"), 100),
    StoredImage("sha256:bb", ("docker.io/library/busybox:1",), 10),
    StoredImage("sha256:cc", (PAUSE,), 1),
    StoredImage("sha256:dd", ("quay.io/base:2",), 50, pinned=True),
]


def container(image: str = "", image_id: str = "") -> ObservedContainer:
    return ObservedContainer(
        id="1", sandbox_id="2", pod_uid="3", name="c", attempt=0, phase="exited", image=image, image_id=image_id
    )


@pytest.mark.parametrize(
    ("containers", "expected"),
    [
        ([], ["sha256:aa", "sha256:bb"]),
        ([container("docker.io/library/nginx:1.25")], ["sha256:bb"]),
        ([container(image_id="docker.io/library/nginx@sha256:11")], ["sha256:bb"]),
        ([container(image_id="sha256:bb"), container("docker.io/library/nginx:1.25")], []),
    ],
    ids=["unused", "by tag", "by digest", "by id, and by tag"],
)
def test_unused(containers: list[ObservedContainer], expected: list[str]) -> None:
    assert [each.ref for each in unused(IMAGES, containers, PAUSE)] == expected


def test_an_unnamed_sandbox_image_is_only_kept_if_it_is_pinned() -> None:
    assert [each.ref for each in unused(IMAGES, [], "")] == ["sha256:aa", "sha256:bb", "sha256:cc"]


class Images:
    """A runtime with images of 10 bytes each, on a disk of 100."""

    sandbox_image = PAUSE

    def __init__(self, *names: str) -> None:
        self.stored = {name: StoredImage(name, (name,), 10) for name in names}
        self.used: set[str] = set()
        self.other_bytes = 0
        self.now_s = 1000.0
        self.events: list[str] = []

    async def seen(self) -> RuntimeSnapshot:
        return RuntimeSnapshot((), tuple(container(name) for name in self.used))

    async def images(self) -> tuple[StoredImage, ...]:
        return tuple(self.stored.values())

    async def remove_image(self, ref: str) -> None:
        del self.stored[ref]

    def add(self, name: str) -> None:
        self.stored[name] = StoredImage(name, (name,), 10)

    def collector(self, policy: ImageGcPolicy) -> ImageCollector:
        def disk() -> tuple[int, int]:
            return 100, 100 - self.other_bytes - 10 * len(self.stored)

        def event(kind: str, reason: str, message: str) -> None:
            self.events.append(f"{kind} {reason}: {message}")

        return ImageCollector(self, policy, disk, event, lambda: self.now_s)


async def test_the_least_recently_used_images_go_until_the_low_threshold() -> None:
    runtime = Images("a", "b", "c", "d")
    collector = runtime.collector(ImageGcPolicy(85, 70, min_age_s=120))
    runtime.used = {"a", "d"}
    runtime.other_bytes = 44  # 84 % used
    await collector.collect()
    assert set(runtime.stored) == {"a", "b", "c", "d"}
    runtime.now_s += 300
    runtime.used = {"d"}
    runtime.other_bytes = 45  # 85 %: free 15 bytes, two images
    await collector.collect()
    assert set(runtime.stored) == {"a", "d"}, "a was used later than b and c; d is in use"
    assert runtime.events == []


async def test_a_young_image_stays_and_a_failure_is_an_event() -> None:
    runtime = Images("old")
    collector = runtime.collector(ImageGcPolicy(85, 70, min_age_s=120))
    await collector.collect()
    runtime.add("young")
    runtime.other_bytes = 70  # 90 %: free 20 bytes
    runtime.now_s += 60
    await collector.collect()
    assert set(runtime.stored) == {"young"}
    (event,) = runtime.events
    assert event.startswith("Warning FreeDiskSpaceFailed") and "20 bytes, but only found 10 bytes" in event


async def test_an_image_that_nothing_uses_for_the_maximum_age_goes_whatever_the_disk() -> None:
    runtime = Images("a", "b", "never used")
    collector = runtime.collector(ImageGcPolicy(max_age_s=3600))
    runtime.used = {"a", "b"}
    await collector.collect()
    runtime.now_s += 3600
    assert len(runtime.stored) == 3
    await collector.collect()
    runtime.used = {"b"}
    runtime.now_s += 3601
    await collector.collect()
    assert set(runtime.stored) == {"b"}
