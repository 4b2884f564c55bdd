"""Resizes that are refused, and those of pods as a whole, on a node that lowers memory as Kubernetes does (1.36)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from tests.e2e.kubectl import Kubectl
from tests.e2e.manifests import pod
from tests.e2e.real_node import RealNode, pod_of, real_node, reasons, running, status_of
from tests.e2e.resized_pods import MIB, files, patch_of, resources, settled, shell
from tests.e2e.waiting import until

HOLDS = "head -c 60000000 /dev/zero >/data/file; echo holding; trap 'exit 0' TERM; while :; do sleep 0.05; done"
IN_MEMORY = {"volumes": [{"name": "data", "emptyDir": {"medium": "Memory"}}]}
MOUNTED = {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}

pytestmark = pytest.mark.xdist_group("resize refusals")  # one node for all


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, exercised: Callable[[str, str], None]) -> Iterator[RealNode]:
    with real_node(tmp_path_factory.mktemp("refusals") / "cluster", "1.36", options=("--shrink", "kubernetes")) as made:
        exercised("resize by the node agent", "this machine, cgroup v1, memory lowered as Kubernetes does")
        yield made


@pytest.fixture
def kube(kube: Kubectl) -> Iterator[Kubectl]:
    """The shared one; afterwards there are no quotas or limit ranges any more."""
    yield kube
    kube("delete", "quota,limits", "--all")


def resized(kube: Kubectl, name: str, patch: str) -> None:
    kube("patch", "pod", name, "--subresource", "resize", "-p", patch)


def refused(kube: Kubectl, name: str, patch: str) -> str:
    return kube.refused("patch", "pod", name, "--subresource", "resize", "-p", patch)


def test_quota_and_limit_range_refuse_and_nothing_changes(node: RealNode, kube: Kubectl) -> None:
    kube("create", "-f", "-", stdin=pod("bounded", shell("c", resources("100m", "32Mi"))))
    running(kube, "bounded")
    before = pod_of(kube, "bounded")
    kube("create", "quota", "rq", "--hard=requests.cpu=150m")
    until(lambda: "requests.cpu: 100m/150m" in kube("get", "quota", "rq").out)
    said = refused(kube, "bounded", patch_of(c=resources("200m", "32Mi")))
    assert said == (
        'Error from server (Forbidden): pods "bounded" is forbidden: exceeded quota: rq, requested: requests.cpu=100m, '
        "used: requests.cpu=100m, limited: requests.cpu=150m"
    )
    largest = {"type": "Container", "max": {"memory": "48Mi"}}
    limits = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "lr"}, "spec": {"limits": [largest]}}
    kube("create", "-f", "-", stdin=json.dumps(limits))
    said = refused(kube, "bounded", patch_of(c=resources("100m", "64Mi")))
    assert said == (
        'Error from server (Forbidden): pods "bounded" is forbidden: maximum memory usage per Container is 48Mi, '
        "but limit is 64Mi"
    )
    after = pod_of(kube, "bounded")
    assert (after["spec"], after["metadata"]["generation"]) == (before["spec"], before["metadata"]["generation"])
    found = files(node, kube, "bounded", "c")
    assert (found["cpu.cfs_quota_us"], found["memory.limit_in_bytes"]) == (10_000, 32 * MIB)
    assert not [each for each in reasons(kube, "bounded") if each.startswith("Resize")]
    resized(kube, "bounded", patch_of(c=resources("150m", "48Mi")))  # up to the bounds is fine
    settled(kube, "bounded", "c", resources("150m", "48Mi"))


def test_memory_in_use_is_compared_first(node: RealNode, kube: Kubectl) -> None:
    """A kubelet reads usage, and writes nothing where the new limit would be below it (03 §10)."""
    kube("create", "-f", "-", stdin=pod("full", shell("c", resources("500m", "160Mi"), HOLDS, **MOUNTED), **IN_MEMORY))
    before = running(kube, "full")["containerStatuses"][0]
    until(lambda: "holding" in kube("logs", "full").out)
    resized(kube, "full", patch_of(c=resources("500m", "48Mi")))
    until(lambda: any(each.get("reason") == "Error" for each in status_of(kube, "full")["conditions"]))
    (reported,) = [each for each in status_of(kube, "full")["conditions"] if each["type"] == "PodResizeInProgress"]
    assert "attempting to set" in reported["message"] and "below current usage" in reported["message"], reported
    assert files(node, kube, "full", "c")["memory.limit_in_bytes"] == 160 * MIB
    kube("exec", "full", "--", "rm", "/data/file")
    after = settled(kube, "full", "c", resources("500m", "48Mi"))
    assert (after["containerID"], after["restartCount"]) == (before["containerID"], 0)
    assert files(node, kube, "full", "c")["memory.limit_in_bytes"] == 48 * MIB


def test_a_pod_as_a_whole(node: RealNode, kube: Kubectl) -> None:
    """Pod level has its own size; the containers share it and keep what they have."""
    whole = resources("400m", "64Mi")
    kube(
        "create", "-f", "-", stdin=pod("whole", shell("a", {}), shell("b", resources("100m", "16Mi")), resources=whole)
    )
    before = running(kube, "whole")["containerStatuses"]
    assert files(node, kube, "whole")["cpu.cfs_quota_us"] == 40_000
    resized(kube, "whole", json.dumps({"spec": {"resources": resources("600m", "96Mi")}}))
    until(lambda: status_of(kube, "whole").get("resources") == resources("600m", "96Mi"))
    found = files(node, kube, "whole")
    assert (found["cpu.cfs_quota_us"], found["memory.limit_in_bytes"]) == (60_000, 96 * MIB)
    own = files(node, kube, "whole", "b")
    assert (own["cpu.cfs_quota_us"], own["memory.limit_in_bytes"]) == (10_000, 16 * MIB)
    after = status_of(kube, "whole")["containerStatuses"]
    assert [(each["containerID"], each["restartCount"]) for each in after] == [(e["containerID"], 0) for e in before]
