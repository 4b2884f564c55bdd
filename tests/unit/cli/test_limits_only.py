"""A pod with limits only: every verb that reads manifests fills its requests first (01 D-1)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from plimsoll.cli.node.run import _manifest
from tests.unit.console import run

ROOM = ("--capacity", "cpu=8,memory=16Gi", "--cgroup", "v2")


def limited(name: str, cpu: str = "1", memory: str = "1Gi") -> dict[str, Any]:
    resources = {"limits": {"cpu": cpu, "memory": memory}}
    spec = {"containers": [{"name": "app", "image": "i", "resources": resources}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "shop"}, "spec": spec}


def requested(name: str, memory: str) -> dict[str, Any]:
    document = limited(name)
    document["spec"]["containers"][0]["resources"] = {"requests": {"memory": memory}}
    return document


def written(path: Path, *pods: dict[str, Any]) -> str:
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(pods)}))
    return str(path)


def test_eviction_order(tmp_path: Path) -> None:
    """900Mi of 1Gi is within the request that the limit sets; 200Mi of 100Mi is not."""
    file = written(tmp_path / "pods.json", limited("within"), requested("over", "100Mi"))
    ran = run("explain", "eviction-order", file, "--usage", "within=900Mi,over=200Mi", *ROOM, "-o", "json")
    order = json.loads(ran.out)["decision"]["order"]
    assert [(each["name"], each.get("exceeds", False)) for each in order] == [("over", True), ("within", False)]
    assert order[1]["request"] == "1Gi"


def test_oom_order(tmp_path: Path) -> None:
    ran = run("explain", "oom-order", written(tmp_path / "pods.json", limited("web")), *ROOM, "-o", "json")
    assert [each["candidate"]["oomScoreAdj"] for each in json.loads(ran.out)] == [-997]


def test_resize_beside_others(tmp_path: Path) -> None:
    """6 of 8 CPUs are requested beside it: 4 do not fit now."""
    old, new = (written(tmp_path / cpu, limited("web", cpu)) for cpu in ("1", "4"))
    others = written(tmp_path / "others.json", limited("other", "6"))
    ran = run("explain", "resize", old, new, *ROOM, "--others", others)
    assert (ran.code, "Deferred" in ran.out) == (1, True), ran.out


def test_plan(tmp_path: Path) -> None:
    file = tmp_path / "pods.jsonl"
    file.write_text(json.dumps(limited("web")))
    found = json.loads(run("plan", str(file), *ROOM).out)
    assert (found["qosClass"], found["requests"]) == ("Guaranteed", {"cpu": 1000, "memory": 1 << 30})


def test_cgroup_apply(tmp_path: Path) -> None:
    """1 CPU requested: cpu.shares 1024 = cpu.weight 39."""
    file = written(tmp_path / "pods.json", limited("web"))
    ran = run("cgroup", "apply", file, *ROOM, "--simulate", "--dry-run", "--state-dir", str(tmp_path / "state"))
    assert ran.code == 0, ran.err
    assert any("cpu.weight" in line and " 39" in line for line in ran.out.splitlines()), ran.out


@pytest.mark.parametrize(("class_name", "priority"), [("system-node-critical", 2_000_001_000), ("", None)])
def test_run(tmp_path: Path, class_name: str, priority: int | None) -> None:
    """Also with the priority that admission sets from a built-in class: its oom_score_adj depends on it."""
    document = limited("web")
    if class_name:
        document["spec"]["priorityClassName"] = class_name
    pod, _ = _manifest(written(tmp_path / "pod.json", document))
    assert pod["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1", "memory": "1Gi"}
    assert pod["spec"].get("priority") == priority
