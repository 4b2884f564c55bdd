"""Which profile an answer has: by the node's version, by --profile, or the default; the first line says so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from plimsoll.rules.profile import PROFILE_NAMES
from tests.unit.console import run

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p"},
    "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]},
}
ROOM = ("--capacity", "cpu=4,memory=8Gi")


def written(folder: Path, name: str, value: object) -> str:
    path = folder / name
    path.write_text(json.dumps(value))
    return str(path)


def node(version: str) -> dict[str, Any]:
    capacity = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    info = {"kubeletVersion": version, "containerRuntimeVersion": "containerd://2.1.0"}
    return {"kind": "Node", "metadata": {"name": "worker-1"}, "status": {"capacity": capacity, "nodeInfo": info}}


VERSIONS = [
    ("v1.34.3", "profile 1.34: kubeletVersion of node worker-1"),
    ("v1.28.9-eks-1", "profile 1.28: kubeletVersion of node worker-1"),
    (
        "v1.40.0",
        "profile 1.37: kubeletVersion of node worker-1 is v1.40.0, newer than 1.37, the newest release with a profile",
    ),
    (
        "v1.24.0",
        "profile 1.27: kubeletVersion of node worker-1 is v1.24.0, older than 1.27, the oldest release with a profile",
    ),
    ("", "profile documents: no Kubernetes version is known; --node or --profile tells one"),
]


@pytest.mark.parametrize(("version", "line"), VERSIONS, ids=[each[0] or "none" for each in VERSIONS])
def test_the_node_s_version_chooses(tmp_path: Path, version: str, line: str) -> None:
    pods, machine = written(tmp_path, "p.json", POD), written(tmp_path, "n.json", node(version))
    assert run("explain", pods, "--node", machine).out.splitlines()[0] == line
    assert run("explain", "allocatable", "--node", machine).out.splitlines()[0] == line
    assert run("explain", "eviction-order", pods, "--usage", "p=1Mi", "--node", machine).out.splitlines()[0] == line
    assert run("explain", "oom-order", pods, "--usage", "p=1Mi", "--node", machine).out.splitlines()[0] == line
    assert run("explain", "resize", pods, pods, "--node", machine).out.splitlines()[0] == line
    found = json.loads(run("explain", pods, "--node", machine, "-o", "json").out)["node"]
    assert f"profile {found['profile']}: {found['profileReason']}" == line


def test_the_option_overrides_the_node(tmp_path: Path) -> None:
    pods, machine = written(tmp_path, "p.json", POD), written(tmp_path, "n.json", node("v1.34.3"))
    ran = run("explain", pods, "--node", machine, "--profile", "1.30")
    assert ran.out.splitlines()[0] == "profile 1.30: --profile"
    assert "the Node runs kubelet v1.34.3: its profile is 1.34" in ran.err
    assert "its profile is" not in run("explain", pods, "--node", machine).err


def test_plan_says_it_beside_its_lines(tmp_path: Path) -> None:
    ran = run("plan", written(tmp_path, "p.json", POD), "--node", written(tmp_path, "n.json", node("v1.36.1")))
    assert ran.err.splitlines()[0] == "profile 1.36: kubeletVersion of node worker-1"
    assert json.loads(ran.out)["qosClass"] == "Burstable"


@pytest.mark.parametrize("name", PROFILE_NAMES)
def test_every_profile_explains(tmp_path: Path, name: str) -> None:
    ran = run("explain", written(tmp_path, "p.json", POD), *ROOM, "--profile", name)
    assert (ran.code, ran.out.splitlines()[0]) == (0, f"profile {name}: --profile")


def test_any_two_profiles_are_compared(tmp_path: Path) -> None:
    pods = written(tmp_path, "p.json", POD)
    rows = json.loads(run("explain", pods, *ROOM, "--diff", "1.27,1.28", "-o", "json").out)
    # memory.oom.group is new, and without NodeSwap 1.28 writes memory.swap.max
    assert {(row["where"], row["what"], row["second"]) for row in rows} == {
        ("p / c", "memory.oom.group", "1"),
        ("p / c", "swap limit", "memory.swap.max 0"),
    }
    assert json.loads(run("explain", pods, *ROOM, "--diff", "1.30,1.31", "-o", "json").out) == []
    assert run("explain", pods, *ROOM, "--diff", "1.26,1.27").code == 2


def test_a_gate_is_refused_in_the_release_s_words(tmp_path: Path) -> None:
    pods = written(tmp_path, "p.json", POD)
    ran = run("explain", pods, *ROOM, "--profile", "1.34", "--feature-gates", "NodeSwap=false,Foo=true")
    assert ran.code != 0
    assert "cannot set feature gate NodeSwap to false, feature is locked to true" in ran.err
    assert "unrecognized feature gate: Foo" in ran.err
