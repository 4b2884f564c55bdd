"""Fields that the API servers of old releases drop: sidecars before 1.29, pod-level resources before 1.34."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.console import run
from tests.unit.strategies import Json

ROOM = ("--capacity", "cpu=8,memory=16Gi", "--cgroup", "v2")


def container(name: str, cpu: str, **fields: str) -> Json:
    return {"name": name, "image": "i", "resources": {"requests": {"cpu": cpu}}, **fields}


# 01 §6: the worked pod, with the sidecar before the init containers.
SPEC = {
    "initContainers": [container("s", "50m", restartPolicy="Always"), container("i1", "500m"), container("i2", "400m")],
    "containers": [container("a", "100m"), container("b", "200m")],
}


@pytest.fixture
def worked(tmp_path: Path) -> str:
    file = tmp_path / "pod.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "worked"}, "spec": SPEC}))
    return str(file)


@pytest.mark.parametrize(("release", "cpu"), [("1.27", "500m"), ("1.28", "500m"), ("1.29", "550m"), ("1.37", "550m")])
def test_sidecars_count_since_the_release_that_has_them(worked: str, release: str, cpu: str) -> None:
    """E-4: max(100 + 200, 50, 500, 400) = 500; with sidecars max(300 + 50, 500 + 50, 400 + 50) = 550."""
    ran = run("explain", worked, "--profile", release, *ROOM)
    assert f"effective requests: cpu {cpu}\n" in ran.out
    note = "worked: spec.initContainers[0].restartPolicy (s) is dropped: the feature gate SidecarContainers is off"
    assert (note in ran.err) is (cpu == "500m")
    planned = json.loads(run("plan", worked, "--profile", release, *ROOM).out)
    assert planned["requests"]["cpu"] == int(cpu[:-1])


def test_pod_level_resources_are_named_where_they_do_not_count(tmp_path: Path) -> None:
    file = tmp_path / "pod.json"
    spec = {"resources": {"limits": {"memory": "1Gi"}}, "containers": [{"name": "c", "image": "i"}]}
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "whole"}, "spec": spec}))
    for release, is_dropped in (("1.33", True), ("1.34", False)):
        ran = run("explain", str(file), "--profile", release, *ROOM)
        assert ("whole: spec.resources is dropped" in ran.err) is is_dropped


@pytest.mark.parametrize(("release", "amount"), [("1.31", "536870912"), ("1.33", "536870912"), ("1.34", "2147483648")])
def test_dropped_pod_level_resources_are_in_no_sum(tmp_path: Path, release: str, amount: str) -> None:
    """02 §6.2: memory.min of kubepods and of its only pod, which requests 512Mi in its container and 2Gi at pod level."""
    file, config = tmp_path / "pod.json", tmp_path / "kubelet.json"
    inner = {"name": "c", "image": "i", "resources": {"requests": {"memory": "512Mi"}}}
    spec = {"resources": {"requests": {"memory": "2Gi"}}, "containers": [inner]}
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "whole"}, "spec": spec}))
    config.write_text(json.dumps({"kind": "KubeletConfiguration", "featureGates": {"MemoryQoS": True}}))
    ran = run("explain", str(file), "--profile", release, "--config", str(config), *ROOM)
    found = [
        line.split()[line.split().index("memory.min") + 1] for line in ran.out.splitlines() if "memory.min  " in line
    ]
    assert found == [amount, amount, amount, "536870912"]  # kubepods, Burstable, the pod, its container
