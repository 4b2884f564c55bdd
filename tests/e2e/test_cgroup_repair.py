"""UpdateCgroups (004-68): values that another process writes into cgroups of a real node are found and repaired."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.containerd_node import containerd_node
from tests.e2e.kubectl import Kubectl
from tests.e2e.real_node import NODE, Document, RealNode, kubectl_for, pod_of, real_node, running
from tests.e2e.waiting import until

MIB = 1 << 20
RESOURCES = {"requests": {"cpu": "100m", "memory": "32Mi"}, "limits": {"cpu": "500m", "memory": "64Mi"}}
NEVER = {"cgroupCheckPeriod": "60s"}  # longer than the test waits: only a notification can be in time

pytestmark = pytest.mark.xdist_group("cgroup repair")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, exercised: Callable[[str, str], None]) -> Iterator[RealNode]:
    with real_node(tmp_path_factory.mktemp("repair") / "cluster", extras=NEVER) as made:
        exercised("cgroup repair", "this machine, cgroup v1, embedded runtime")
        yield made


@pytest.fixture
def kube(node: RealNode, tmp_path: Path) -> Iterator[Kubectl]:
    with kubectl_for(node, tmp_path) as made:
        yield made


def started(kubectl: Kubectl, name: str, image: str = "busybox") -> str:
    """The path of its container's cgroup below kubepods."""
    container = {"name": "c", "image": image, "command": ["sleep", "1000"], "resources": RESOURCES}
    spec = {"terminationGracePeriodSeconds": 1, "containers": [container]}
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    kubectl("apply", "-f", "-", stdin=json.dumps(document))
    running(kubectl, name)
    found = pod_of(kubectl, name)
    container_id = found["status"]["containerStatuses"][0]["containerID"].rpartition("/")[2]
    return f"burstable/pod{found['metadata']['uid']}/{container_id}"


def control(node: RealNode, path: str, file: str) -> Path:
    return Path(f"/sys/fs/cgroup/{file.partition('.')[0]}{node.cgroup_root}/kubepods/{path}/{file}")


def repairs(kubectl: Kubectl, involved: str) -> list[Document]:
    query = f"fieldSelector=involvedObject.name%3D{involved},reason%3DCgroupRepaired"
    return kubectl.api("GET", f"/api/v1/events?{query}")["items"]  # type: ignore[no-any-return]


def check(node: RealNode, kubectl: Kubectl, involved: str, path: str, file: str, value: str) -> None:
    """Write another value, wait until it is what it was, and find the event that says so."""
    where = control(node, path, file)
    before = where.read_text().strip()
    assert before != value
    where.write_text(value)
    until(lambda: where.read_text().strip() == before, lambda: f"{where}: {where.read_text()}")
    text = f"{file} of {node.cgroup_root}/kubepods/{path}".rstrip("/")
    until(lambda: [each for each in repairs(kubectl, involved) if each["message"].startswith(text)])


def test_a_changed_value_is_repaired_at_every_level(node: RealNode, kube: Kubectl) -> None:
    container = started(kube, "repaired")
    pod = container.rpartition("/")[0]
    check(node, kube, NODE, "burstable", "cpu.shares", "1000")
    check(node, kube, NODE, "", "memory.limit_in_bytes", "-1")
    check(node, kube, "repaired", pod, "memory.limit_in_bytes", str(256 * MIB))
    check(node, kube, "repaired", container, "cpu.cfs_quota_us", "-1")
    check(node, kube, "repaired", container, "memory.memsw.limit_in_bytes", "-1")
    (found,) = [each for each in repairs(kube, "repaired") if "cfs_quota_us" in each["message"]]
    assert found["type"] == "Warning" and "was max instead of 50000" in found["message"]
    page = kube("get", "--raw", f"/api/v1/nodes/{NODE}/proxy/metrics").out
    assert 'plimsoll_cgroup_repairs_total{level="class",file="cpu.shares",result="repaired"} 1' in page


def test_a_file_that_its_writer_keeps_open_is_found_in_the_next_period(tmp_path: Path) -> None:
    with (
        real_node(tmp_path / "cluster", extras={"cgroupCheckPeriod": "1s"}) as node,
        kubectl_for(node, tmp_path) as kubectl,
    ):
        started(kubectl, "kept-open")
        shares = control(node, "burstable", "cpu.shares")
        before = shares.read_text()
        with shares.open("w") as file:
            file.write("1000")
            file.flush()
            until(lambda: shares.read_text() == before)


def test_containerd_writes_the_values_of_its_containers_again(
    tmp_path: Path, exercised: Callable[[str, str], None]
) -> None:
    with (
        containerd_node(tmp_path / "cluster", extras=NEVER) as (node, _),
        kubectl_for(node, tmp_path) as kubectl,
    ):
        container = started(kubectl, "owned", "localhost/busybox:1")
        check(node, kubectl, "owned", container, "cpu.shares", "1000")
        check(node, kubectl, "owned", container, "memory.memsw.limit_in_bytes", "-1")
        check(node, kubectl, "owned", container, "memory.limit_in_bytes", str(32 * MIB))
        check(node, kubectl, "owned", container, "cpu.cfs_quota_us", "-1")
        check(node, kubectl, "owned", container.rpartition("/")[0], "cpu.shares", "1000")
        exercised("cgroup repair", "this machine, cgroup v1, containerd")
