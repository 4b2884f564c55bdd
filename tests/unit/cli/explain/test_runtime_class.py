"""A RuntimeClass in the input: its overhead counts, and explain says so (05 B6)."""

from __future__ import annotations

import json
from pathlib import Path

from plimsoll import explain
from tests.unit.console import run

ROOM = ("--capacity", "cpu=8,memory=16Gi", "--cgroup", "v2")
POD = """
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  runtimeClassName: kata
  containers:
  - name: app
    image: i
    resources: {limits: {cpu: 500m, memory: 64Mi}}
"""
CLASS = """
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: kata}
handler: kata-qemu
overhead: {podFixed: {cpu: 250m, memory: 120Mi}}
"""


def test_overhead_is_added_whatever_the_order(tmp_path: Path) -> None:
    """500m + 250m = 750m, 64Mi + 120Mi = 184Mi = 192937984 bytes for the pod; the container keeps its own."""
    file = tmp_path / "pod.yaml"
    for text in (f"{POD}---{CLASS}", f"{CLASS}---{POD}"):
        file.write_text(text)
        ran = run("explain", str(file), *ROOM)
        assert ran.code == 0, ran.err
        assert "overhead, counted in both: cpu 250m · memory 120Mi (RuntimeClass kata)" in ran.out
        assert "effective requests: cpu 750m · memory 184Mi" in ran.out
        assert ran.err == f"note: {file}: RuntimeClass kata of web: overhead cpu 250m, memory 120Mi\n"
        rows = [line.split() for line in run("explain", str(file), *ROOM, "-o", "table").out.splitlines()]
        assert {row[0]: row[-1] for row in rows if row[-2] == "memory.max"} == {
            "pods": str(16 << 30),
            "pod": str(184 << 20),
            "container": str(64 << 20),
        }
    assert explain(f"{POD}---{CLASS}", capacity={"cpu": 8, "memory": "16Gi"}).pods[0].requests["memory"] == "184Mi"


def test_overhead_alone_is_no_limit(tmp_path: Path) -> None:
    """E-1: it is added to limits that exist."""
    file = tmp_path / "pod.yaml"
    file.write_text(f"{POD.replace('limits', 'requests')}---{CLASS}")
    ran = run("explain", str(file), *ROOM)
    assert "effective limits" not in ran.out
    assert "overhead, counted in requests: cpu 250m · memory 120Mi (RuntimeClass kata)" in ran.out
    file.write_text(f"{POD.replace('cpu: 500m, ', '')}---{CLASS}")
    assert "overhead, counted in requests and the memory limit: cpu 250m" in run("explain", str(file), *ROOM).out


def test_a_class_that_is_not_there(tmp_path: Path) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text(POD)
    ran = run("explain", str(file), *ROOM)
    assert (ran.code, "RuntimeClass kata of web is not in the input: no overhead is assumed" in ran.err) == (0, True)


def test_refusals(tmp_path: Path) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text(f"{POD}  overhead: {{cpu: 1}}\n---{CLASS}")
    ran = run("explain", str(file), *ROOM)
    assert ran.code == 2
    assert "spec.runtimeClassName: Forbidden: pod rejected: Pod's Overhead doesn't match" in ran.err
    file.write_text(f"{POD}---{CLASS.replace('kata-qemu', 'Kata')}")
    ran = run("explain", str(file), *ROOM)
    assert ran.code == 2
    assert f'{file}:15: document 2: handler: Invalid value: "Kata"' in ran.err


def test_overhead_without_a_class_is_a_warning(tmp_path: Path) -> None:
    document = {"containers": [{"name": "app", "image": "i"}], "overhead": {"cpu": "1"}}
    file = tmp_path / "pod.json"
    file.write_text(json.dumps({"kind": "Pod", "metadata": {"name": "web"}, "spec": document}))
    assert (
        "spec.overhead without spec.runtimeClassName: an API server rejects the pod"
        in run("explain", str(file), *ROOM).out
    )
