"""A PriorityClass in the input: its value is the priority of its pods, as after admission (05 B6)."""

from __future__ import annotations

from pathlib import Path

import pytest

from plimsoll import explain
from tests.unit.console import run

ROOM = ("--capacity", "cpu=8,memory=16Gi", "--cgroup", "v2")
POD = """
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  priorityClassName: high
  containers: [{name: app, image: i}]
"""
PLAIN = POD.replace("web", "plain").replace("  priorityClassName: high\n", "")
CLASS = """
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: high}
value: 100000
"""


@pytest.mark.parametrize("text", [f"{POD}---{CLASS}", f"{CLASS}---{POD}"])
def test_its_value_is_the_priority_whatever_the_order(tmp_path: Path, text: str) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text(text)
    ran = run("explain", str(file), *ROOM)
    assert ran.code == 0, ran.err
    assert "lower priority first (this one: 100000)" in ran.out
    assert ran.err == f"note: {file}: PriorityClass high of web: priority 100000\n"
    assert "100000" in str(explain(text, capacity={"cpu": 8, "memory": "16Gi"}).pods[0].eviction)


def test_eviction_order_ranks_by_it(tmp_path: Path) -> None:
    """Both exceed their request of 0; `web` uses more, but its priority is higher."""
    file = tmp_path / "pods.yaml"
    file.write_text(f"{POD}---{PLAIN}---{CLASS}")
    ran = run("explain", "eviction-order", str(file), "--usage", "web=900Mi,plain=1Mi", *ROOM)
    assert [line.split()[1:3] for line in ran.out.splitlines() if line[:1].isdigit()] == [
        ["default/plain", "0"],
        ["default/web", "100000"],
    ]
    file.write_text(f"{POD}---{PLAIN}")
    ran = run("explain", "eviction-order", str(file), "--usage", "web=900Mi,plain=1Mi", *ROOM)
    assert "PriorityClass high of web is not in the input: priority 0 is assumed" in ran.out + ran.err


def test_a_global_default_is_for_pods_without_a_class(tmp_path: Path) -> None:
    file = tmp_path / "pods.yaml"
    default = CLASS.replace("high", "usual").replace("100000", "7") + "globalDefault: true\n"
    file.write_text(f"{POD}---{PLAIN}---{CLASS}---{default}---{PLAIN.replace('plain', 'own')}  priority: 3\n")
    ran = run("explain", str(file), *ROOM)
    shown = [line.rpartition("(this one: ")[2].split(")")[0] for line in ran.out.splitlines() if "this one" in line]
    assert sorted(shown) == ["100000", "3", "7"]


def test_a_value_that_is_no_number(tmp_path: Path) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text(f"{POD}---{CLASS.replace('100000', 'much')}")
    ran = run("explain", str(file), *ROOM)
    assert (ran.code, f"{file}:12: document 2: value: Invalid value" in ran.err) == (2, True), ran.err
    assert "this one: unknown" in ran.out


def test_what_is_not_applied_is_named(tmp_path: Path) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text(
        f"{PLAIN}---\napiVersion: v1\nkind: LimitRange\nmetadata: {{name: l}}\n---{PLAIN.replace('Pod', 'pod')}"
    )
    notes = run("explain", str(file), *ROOM).err
    assert "LimitRange is not applied here: the API server fills in its defaults when it creates a pod" in notes
    assert "pod is no kind; did you mean Pod?" in notes
