"""`plimsoll explain --topology`: what each pod gets on a machine, and why one is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.console import run

PODS = """
apiVersion: v1
kind: Pod
metadata: {name: a}
spec:
  containers:
  - {name: c, image: x, resources: {limits: {cpu: "2", memory: 4Gi, example.com/gpu: "1"}}}
---
apiVersion: v1
kind: Pod
metadata: {name: b}
spec:
  containers:
  - {name: c, image: x, resources: {limits: {cpu: "4", memory: 1Gi, example.com/gpu: "1"}}}
"""
MACHINE = {
    "cpus": [{"cpu": cpu, "core": cpu % 4, "socket": cpu % 4 // 2, "node": cpu % 4 // 2} for cpu in range(8)],
    "memory": {"0": {"memory": "8Gi"}, "1": {"memory": "8Gi"}},
    "devices": {"example.com/gpu": [{"id": "g0", "nodes": [1]}, {"id": "g1", "nodes": [1]}]},
}
NODE = [
    "--capacity", "cpu=8,memory=16Gi", "--profile", "1.36", "--cpu-manager-policy", "static",
    "--system-reserved", "cpu=1,memory=1948Mi", "--memory-manager-policy", "Static",
    "--reserved-memory", "0:memory=1Gi;1:memory=1Gi",
]  # fmt: skip


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    (tmp_path / "pods.yaml").write_text(PODS)
    (tmp_path / "machine.json").write_text(json.dumps(MACHINE))
    return str(tmp_path / "pods.yaml"), str(tmp_path / "machine.json")


def test_the_only_node_with_devices(files: tuple[str, str]) -> None:
    pods, machine = files
    single = ["--topology-manager-policy", "single-numa-node"]
    done = run("explain", pods, "--topology", machine, *NODE, *single, "-o", "json")
    found = json.loads(done.out)
    first, second = found["pods"]
    assert first["containers"] == [
        {"name": "c", "cpus": "2,6", "memory": "1", "devices": {"example.com/gpu": ["g0"]}, "hint": "{[1] T}"}
    ]
    assert (second["reason"], done.code) == ("TopologyAffinityError", 1)
    assert "example.com/gpu needs NUMA node 1" in second["why"]
    assert (found["reserved"], found["shared"]) == ("0", "0-1,3-5,7")
    table = run("explain", pods, "--topology", machine, *NODE, *single)
    assert "b: Resources cannot be allocated with Topology locality (" in table.out


def test_without_a_policy_everything_fits(files: tuple[str, str]) -> None:
    pods, machine = files
    done = run("explain", pods, "--topology", machine, *NODE)
    assert done.code == 0
    assert "topology manager: none" in done.out


@pytest.mark.parametrize(
    ("text", "words"), [("{", "not JSON"), ("{}", "cpus: required"), (None, "No such file")], ids=str
)
def test_a_file_that_is_no_topology(files: tuple[str, str], tmp_path: Path, text: str | None, words: str) -> None:
    wrong = tmp_path / "wrong.json"
    if text is not None:
        wrong.write_text(text)
    done = run("explain", files[0], "--topology", str(wrong))
    assert done.code != 0 and words in done.err, done


ONE_AND_TWO = """
apiVersion: v1
kind: Pod
metadata: {name: one}
spec: {containers: [{name: c, image: x, resources: {limits: {cpu: "1", memory: 1Gi}}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: two}
spec: {containers: [{name: c, image: x, resources: {limits: {cpu: "2", memory: 1Gi}}}]}
"""


@pytest.mark.parametrize(
    ("profile", "cpus", "notes"),
    [
        ("1.36", "0,4", ["kubelet 1.36 assigns CPU 0 to two containers: c and c of pod one"]),
        ("documents", "1,4", []),
    ],
)
def test_a_cpu_of_two_containers(tmp_path: Path, profile: str, cpus: str, notes: list[str]) -> None:
    """CM-2: CPU 7 is offline, so a core has one thread on average, and core {0, 4} looks free without 0."""
    pods, machine = tmp_path / "pods.yaml", tmp_path / "machine.json"
    pods.write_text(ONE_AND_TWO)
    machine.write_text(json.dumps({"cpus": [{"cpu": each, "core": each % 4} for each in range(7)]}))
    node = ["--capacity", "cpu=7,memory=16Gi", "--profile", profile, "--cpu-manager-policy", "static", "--system-reserved", "cpu=1"]  # fmt: skip
    first, second = json.loads(run("explain", str(pods), "--topology", str(machine), *node, "-o", "json").out)["pods"]
    assert first["containers"][0]["cpus"] == "0"
    assert second["containers"][0]["cpus"] == cpus
    assert second.get("notes", []) == notes
    table = run("explain", str(pods), "--topology", str(machine), *node).out
    assert [line for line in table.splitlines() if "warning" in line] == [f"two: warning: {note}" for note in notes]
