"""A node of 512 MiB whose containers containerd runs, brought under pressure within its own cgroups (cgroup v1)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.containerd_node import inside, node_options, own_containerd
from tests.kernel import pressure_checks as checks
from tests.kernel.pressure_world import Document, PressureWorld, container, memory, pod, pressure_world

pytestmark = pytest.mark.xdist_group("pressure")

# A mebibyte at a time, and never back: by busybox, as the images have nothing else.
HOG = 'BEGIN { piece = sprintf("%1048576s", "x"); for (n = 0; ; n++) { held[n] = piece n; system("sleep 0.02") } }'
HOLDS = "trap 'exit 0' TERM; while :; do sleep 0.05; done"


@pytest.fixture
def world(tmp_path: Path, exercised: Callable[[str, str], None]) -> Iterator[PressureWorld]:
    with own_containerd() as daemon:
        words, before = node_options(daemon), inside(daemon)
        with pressure_world(tmp_path / "world", checks.SETTINGS, options=words, before=before) as made:
            exercised("node agent", "this machine, cgroup v1, containerd and runc, eviction")
            yield made


def calm(name: str, **resources: Document) -> Document:
    return pod(name, container("c", ("sh", "-c", HOLDS), **resources))


def test_a_hog_goes_with_its_message_and_its_neighbours_stay(world: PressureWorld) -> None:
    world.create(calm("neighbour", **memory("20Mi")), calm("plain"))
    world.running("neighbour", "plain")
    world.create(pod("hog", container("c", ("awk", HOG)), restartPolicy="Always"))
    world.running("hog")
    container_id = world.container("hog")["containerID"].removeprefix("containerd://")
    world.until(lambda: world.is_evicted("hog"), 60)
    said = world.status("hog")
    assert said["message"].startswith("The node was low on resource: memory. Threshold quantity: 100Mi, available: ")
    assert said["message"].endswith(", request is 0, has larger consumption of memory. ")
    world.until(lambda: "terminated" in world.container("hog")["state"])
    ended = world.container("hog")["state"]["terminated"]
    assert (ended["containerID"], ended["exitCode"]) in [
        (f"containerd://{container_id}", 137),
        (f"containerd://{container_id}", 143),
    ]
    assert ended["reason"] == "Error", "it was evicted, not killed by the kernel"
    uid = world.pod("hog")["metadata"]["uid"]
    world.until(lambda: not [each for each in world.pod_cgroups() if uid in each.name])
    checks.untouched(world, "neighbour", "plain")
    (event,) = world.until(lambda: world.events("Evicted", "hog"))
    assert event["message"] == said["message"]
    assert world.kills() == []
