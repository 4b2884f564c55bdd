"""A node of 512 MiB whose containers containerd runs, brought under pressure within its own cgroups (cgroup v1)."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from plimsoll.linux.mounts import NODEV, NOSUID, detach, mount
from tests.e2e.containerd_node import inside, node_options, own_containerd
from tests.kernel import pressure_checks as checks
from tests.kernel.pressure_node import MIB, Document, PressureNode, container, memory, pod, pressure_node

pytestmark = pytest.mark.xdist_group("pressure")

# A mebibyte at a time, and never back: by busybox, as the images have nothing else.
HOG = 'BEGIN { piece = sprintf("%1048576s", "x"); for (n = 0; ; n++) { taken[n] = piece n; system("sleep 0.02") } }'
DISK_MIB = 160
HOLDS = "trap 'exit 0' TERM; while :; do sleep 0.05; done"


@pytest.fixture
def small_disk() -> Iterator[str]:
    """A file system of its own for the runtime."""
    directory = tempfile.mkdtemp(prefix="plimsoll-fs-")
    mount("tmpfs", directory, "tmpfs", NODEV | NOSUID, f"size={DISK_MIB}m")
    try:
        yield directory
    finally:
        detach(directory)
        Path(directory).rmdir()


@pytest.fixture
def node(tmp_path: Path, exercised: Callable[[str, str], None]) -> Iterator[PressureNode]:
    with own_containerd() as daemon:
        words, before = node_options(daemon), inside(daemon)
        with pressure_node(tmp_path / "cluster", checks.SETTINGS, options=words, before=before) as made:
            exercised("node agent", "this machine, cgroup v1, containerd and runc, eviction")
            yield made


def calm(name: str, **resources: Document) -> Document:
    return pod(name, container("c", ("sh", "-c", HOLDS), **resources))


def test_a_hog_goes_with_its_message_and_its_neighbours_stay(node: PressureNode) -> None:
    node.create(calm("neighbour", **memory("20Mi")), calm("plain"))
    node.running("neighbour", "plain")
    node.create(pod("hog", container("c", ("awk", HOG)), restartPolicy="Always"))
    node.running("hog")
    container_id = node.container("hog")["containerID"].removeprefix("containerd://")
    node.until(lambda: node.is_evicted("hog"))
    said = node.status("hog")
    assert said["message"].startswith("The node was low on resource: memory. Threshold quantity: 100Mi, available: ")
    assert said["message"].endswith(", request is 0, has larger consumption of memory. ")
    node.until(lambda: "terminated" in node.container("hog")["state"])
    ended = node.container("hog")["state"]["terminated"]
    assert (ended["containerID"], ended["exitCode"]) in [
        (f"containerd://{container_id}", 137),
        (f"containerd://{container_id}", 143),
    ]
    assert ended["reason"] == "Error", "it was evicted, not killed by the kernel"
    uid = node.pod("hog")["metadata"]["uid"]
    node.until(lambda: not [each for each in node.pod_cgroups() if uid in each.name])
    checks.untouched(node, "neighbour", "plain")
    (event,) = node.until(lambda: node.events("Evicted", "hog"))
    assert event["message"] == said["message"]
    assert node.kills() == []


def test_on_an_imagefs_of_its_own_who_writes_to_its_root_goes_first(small_disk: str, tmp_path: Path) -> None:
    """04 §5: there writable layers count and nothing else, however much a neighbour has on the node's own disk."""
    settings = {"evictionHard": {"imagefs.available": "64Mi"}, "evictionPressureTransitionPeriod": "3s"}
    signs = tmp_path / "signs"
    signs.mkdir(mode=0o755)
    script = (
        "dd if=/dev/zero of=/first bs=1M count=16 2>/dev/null; until [ -e /signs/go ]; do sleep 0.05; done; "
        f"dd if=/dev/zero of=/second bs=1M count=96 2>/dev/null; {HOLDS}"
    )
    writer = container("c", ("sh", "-c", script), volumeMounts=[{"name": "signs", "mountPath": "/signs"}])
    large = f"dd if=/dev/zero of=/data/taken bs=1M count=64 2>/dev/null; {HOLDS}"
    holder = container("c", ("sh", "-c", large), volumeMounts=[{"name": "data", "mountPath": "/data"}])
    with own_containerd(small_disk) as daemon:
        words, before = node_options(daemon), inside(daemon)
        with pressure_node(tmp_path / "cluster", settings, options=words, before=before) as node:
            node.create(
                pod("writer", writer, volumes=[{"name": "signs", "hostPath": {"path": str(signs)}}]),
                pod("holder", holder, volumes=[{"name": "data", "emptyDir": {}}]),
            )
            node.running("writer", "holder")

            def counted() -> bool:
                pods = [each for each in node.page("stats/summary")["pods"] if each["containers"]]
                used = {each["podRef"]["name"]: each["containers"][0]["rootfs"].get("usedBytes") for each in pods}
                return (used.get("writer") or 0) >= 16 * MIB and used.get("holder") is not None

            node.until(counted)
            (signs / "go").touch()
            node.until(lambda: node.is_evicted("writer"))
            said = node.status("writer")["message"]
            assert said.startswith(
                "The node was low on resource: ephemeral-storage. Threshold quantity: 64Mi, available: "
            )
            assert said.endswith(", request is 0, has larger consumption of ephemeral-storage. ")
            checks.untouched(node, "holder")
            (found,) = node.page("pressure")["decisions"]
            assert found["signal"] == "imagefs.available"
            node.empty()
