"""Notes beside values that differ from what documents say (docs/documents.md)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from plimsoll.cgroups.drivers.detect import Hierarchies, Mounted
from plimsoll.cli.explain.reserved_cgroups import missing_cgroups
from plimsoll.rules.cgroups.desired import Cgroup, DesiredFile, Reason
from tests.unit.cli.test_questions import pod, written
from tests.unit.console import run

DOCUMENTS = Path(__file__).resolve().parents[4] / "examples" / "documents"
ROOM = ("--capacity", "cpu=8,memory=16Gi")
QOS = (*ROOM, "--cgroup", "v2", "--feature-gates", "MemoryQoS=true")


@pytest.mark.parametrize(
    ("used", "note"),
    [
        ("burstable=300Mi,none=50Mi", "burstable (Burstable) comes before none (BestEffort) because of: larger excess"),
        ("burstable=120Mi,none=50Mi", None),
    ],
    ids=["the larger excess first", "as the classes"],
)
def test_the_order_of_eviction(tmp_path: Path, used: str, note: str | None) -> None:
    """001-03: 200Mi above its request go before 50Mi above none; 20Mi do not."""
    file = written(tmp_path / "pods.json", pod("none"), pod("burstable", "100Mi"))
    ran = run("explain", "eviction-order", file, "--usage", used, *ROOM)
    assert ("the QoS class is no key of this order" in ran.out) is (note is not None)
    assert note is None or note in ran.out


MEMORY_HIGH = [
    ("000-22 no limit", "000-burstable-request-only.yaml", "documents",
     "(allocatable without the eviction threshold: not the amount that the Node object shows)"),
    ("000-37 request = limit", "000-example.yaml", "documents",
     "note: spec.containers[0] (nginx): memory.high is not set, because the memory request equals the limit"),
    ("000-36 neither, 1.36", "002-besteffort.yaml", "1.36",
     "note: spec.containers[0] (foo): memory.high is not set, because it has neither memory request nor limit"),
    ("000-36 neither, documents", "002-besteffort.yaml", "documents", "(documented; real 1.27 did not:"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("file", "profile", "note"), [row[1:] for row in MEMORY_HIGH], ids=[row[0] for row in MEMORY_HIGH]
)
def test_memory_high(file: str, profile: str, note: str) -> None:
    assert note in run("explain", str(DOCUMENTS / file), *QOS, "--profile", profile).out
    assert note not in run("explain", str(DOCUMENTS / file), *ROOM, "--cgroup", "v2", "--profile", profile).out


def resized(*options: str) -> str:
    words = [str(DOCUMENTS / name) for name in ("003-demo.yaml", "003-patch-cpu-3.json")]
    return run("explain", "resize", *words, *ROOM, "--cgroup", "v2", *options).out


def test_notes_of_a_resize() -> None:
    """003-01, 003-60: the gate and LimitRanges."""
    documented, later = resized(), resized("--profile", "1.36")
    for note in (
        "note: feature gate InPlacePodVerticalScaling is on by default here; a real 1.27 needs it set",
        "note: a LimitRange is checked when a pod is created, not on a resize",
    ):
        assert note in documented
        assert note not in later


def test_the_cpuset_of_a_resize() -> None:
    """003-76: one CPU of eight is reserved, the pod has the next one and gets two more; the shared pool loses them."""
    out = resized("--cpu-manager-policy", "static", "--reserved-cpus", "0")
    assert "  demo         cpuset.cpus  1 → 1-3\n  shared pool  cpuset.cpus  0,2-7 → 0,4-7\n" in out
    assert "real 1.27 did not: it changed the quota and left the cpuset" in out
    assert "cpuset" not in resized()
    found = json.loads(resized("--cpu-manager-policy", "static", "--reserved-cpus", "0", "-o", "json"))
    assert found["cpus"][0] == {"name": "demo", "before": "1", "after": "1-3"}


def tree(*names: str) -> Cgroup:
    files = tuple(DesiredFile(name, 1, "", Reason()) for name in names)
    return Cgroup("node", "n", "/", children=(Cgroup("reserved", "system-reserved", "/system.slice", files),))


MOUNTS = {name: Mounted(f"/cg/{name}") for name in ("cpu", "memory")}
MISSING: list[tuple[str, Hierarchies, set[str], str | None]] = [
    ("everywhere", Hierarchies(1, MOUNTS), {"/cg/cpu/system.slice", "/cg/memory/system.slice"}, None),
    ("not in memory", Hierarchies(1, MOUNTS), {"/cg/cpu/system.slice"}, "which does not exist in memory on this machine"),
    ("not at all", Hierarchies(1, MOUNTS), set(), "which does not exist in cpu, memory on this machine"),
    ("v2", Hierarchies(2, unified=Mounted("/cg")), set(), "which does not exist on this machine"),
]  # fmt: skip


@pytest.mark.parametrize(("host", "there", "text"), [row[1:] for row in MISSING], ids=[row[0] for row in MISSING])
def test_reserved_cgroups_that_are_missing(host: Hierarchies, there: set[str], text: str | None) -> None:
    """004-33: by hierarchy on v1."""
    found: list[Any] = list(missing_cgroups(tree("cpu.shares", "memory.limit_in_bytes"), host, there.__contains__))
    assert len(found) == (text is not None)
    assert text is None or text in found[0]


@pytest.mark.parametrize(("profile", "is_noted"), [("documents", True), ("1.36", True), ("1.37", False)])
def test_the_gate_of_memory_qos(profile: str, is_noted: bool) -> None:
    """000-01: the documents turn it on; a node does so by default from 1.37 on."""
    shown = run("explain", "memory-high", "--request", "64Mi", "--limit", "128Mi", "--profile", profile).out
    assert ("note: feature gate MemoryQoS is off by default here" in shown) is is_noted
