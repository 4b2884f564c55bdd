"""Which images may be removed when disk space is needed."""

from __future__ import annotations

import pytest

from plimsoll.node.pods.image_gc import unused
from plimsoll.runtime.cri.answers import StoredImage
from plimsoll.runtime.interface import ObservedContainer

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
