"""Our own section of a node's configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from plimsoll.errors import InvalidConfigsError
from plimsoll.rules.blockio.entries import limit_entries
from plimsoll.rules.blockio.policy import IoCeiling, IoDevice, IoPolicy, IoWeights
from plimsoll.rules.config.extras import API_VERSION, KIND, ROWS, NodeExtras, extras_reading, is_extras
from plimsoll.rules.profile import PROFILE_DOCUMENTS, profile_named
from plimsoll.rules.quantity import parse
from tests.unit.console import run


def extras(**settings: Any) -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": KIND, **settings}


def io(**settings: Any) -> dict[str, Any]:
    return extras(ioControl={"devices": ["/dev/a"], **settings})


FINE: list[tuple[str, dict[str, Any], NodeExtras]] = [
    ("nothing", {}, NodeExtras()),
    ("null is not set", {"images": None}, NodeExtras()),
    ("capacity", {"capacity": {"cpu": 8, "memory": "4Gi"}}, NodeExtras(capacity={"cpu": parse("8"), "memory": parse("4Gi")})),
    ("a command", {"images": {"web:1": ["python3", "-m", "http.server"]}}, NodeExtras(images={"web:1": ("python3", "-m", "http.server")})),
    ("a directory", {"images": {"mine": "dir:/srv/root"}}, NodeExtras(images={"mine": "dir:/srv/root"})),
    ("kill at once", {"evictionHardGraceSeconds": 0}, NodeExtras(eviction_hard_grace_s=0)),
    ("sources", {"memoryAvailableFrom": "meminfo", "throttleWatchdog": "raise"}, NodeExtras(memory_available_from="meminfo", throttle_watchdog="raise")),
    ("I/O", {"ioControl": {"devices": ["/dev/vda"], "weights": {"BestEffort": 1}, "ceilings": {"*": {"max": "wbps=1"}}}},
     NodeExtras(io_control=IoPolicy((IoDevice("/dev/vda"),), IoWeights(besteffort=1), {"*": IoCeiling(limit_entries("wbps=1"))}))),
    ("switches", {"evictionReclaimFirst": False, "pageCacheSafeMin": True}, NodeExtras(eviction_reclaim_first=False, page_cache_safe_min=True)),
]  # fmt: skip


@pytest.mark.parametrize(("settings", "wanted"), [row[1:] for row in FINE], ids=[row[0] for row in FINE])
def test_reading(settings: dict[str, Any], wanted: NodeExtras) -> None:
    assert extras_reading(extras(**settings)) == wanted


WRONG: list[tuple[str, Any, str, str]] = [
    ("unknown", extras(capcity={}), "capcity", "unknown setting; known: capacity"),
    ("no object", [], "", "must be an object"),
    ("version", {"apiVersion": "plimsoll.dev/v9", "kind": KIND}, "apiVersion", "must be plimsoll.dev/v1"),
    ("kind", {"apiVersion": API_VERSION}, "kind", "must be NodeExtras, not null"),
    ("amount", extras(capacity={"cpu": "many"}), "capacity[cpu]", "quantities must match"),
    ("amounts", extras(capacity=8), "capacity", "must be a map"),
    ("relative root", extras(images={"a": "dir:srv"}), "images[a]", "must be dir:/PATH or a list of words"),
    ("no command", extras(images={"a": []}), "images[a]", "must be dir:/PATH or a list of words"),
    ("words", extras(images={"a": ["sh", 1]}), "images[a][1]", "must be a text"),
    ("images", extras(images=["a"]), "images", "must be a map from image"),
    ("negative", extras(evictionHardGraceSeconds=-1), "evictionHardGraceSeconds", "must not be less than 0"),
    ("choice", extras(throttleWatchdog="bark"), "throttleWatchdog", "must be off or event"),
    ("switch", extras(pageCacheSafeMin="yes"), "pageCacheSafeMin", "must be true or false"),
    (
        "I/O without a disk",
        extras(ioControl={}),
        "ioControl.devices",
        "must list the disks to control, such as [/dev/vda], not nothing",
    ),
    ("I/O on no disk", extras(ioControl={"devices": ["vda"]}), "ioControl.devices[0]", "must be a path below /dev"),
    ("the same disk", io(devices=["/dev/a", "/dev/a"]), "ioControl.devices[1]", "/dev/a is listed twice"),
    ("an unknown part of I/O", io(weight=1), "ioControl.weight", "unknown setting; known: devices, weights, ceilings"),
    ("an unknown class", io(weights={"Gold": 1}), "ioControl.weights.Gold", "unknown setting; known: kubepods"),
    ("a weight beyond BFQ's", io(weights={"kubepods": 1001}), "ioControl.weights.kubepods", "from 1 to 1000, not 1001"),
    ("a true weight", io(weights={"kubepods": True}), "ioControl.weights.kubepods", "from 1 to 1000"),
    ("a ceiling for no namespace", io(ceilings={"A b": {}}), "ioControl.ceilings[A b]", "is not a namespace"),
    ("an unknown ceiling", io(ceilings={"*": {"min": "wbps=1"}}), "ioControl.ceilings[*].min", "known: max, latency"),
    ("a wrong ceiling", io(ceilings={"a": {"max": "wbps=x"}}), "ioControl.ceilings[a].max", "is not a number of bytes"),
    (
        "a ceiling of another disk",
        io(ceilings={"a": {"max": "/dev/b wbps=1"}}),
        "ioControl.ceilings[a].max",
        "/dev/b is not a device that this node controls",
    ),
    ("a number as a ceiling", io(ceilings={"a": {"max": 5}}), "ioControl.ceilings[a].max", "must be a text"),
]


@pytest.mark.parametrize(("document", "path", "reason"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_refusals(document: Any, path: str, reason: str) -> None:
    with pytest.raises(InvalidConfigsError) as raised:
        extras_reading(document)
    (found,) = raised.value.errors
    assert (found.path, reason in found.reason) == (path, True), found


def test_every_problem_at_once() -> None:
    with pytest.raises(InvalidConfigsError) as raised:
        extras_reading(extras(a=1, b=2, memoryAvailableFrom="guess"))
    assert [each.path for each in raised.value.errors] == ["a", "b", "memoryAvailableFrom"]


def test_reclaim_first_is_the_profiles() -> None:
    assert NodeExtras().reclaims_first(PROFILE_DOCUMENTS)
    assert not NodeExtras().reclaims_first(profile_named("1.36"))
    assert NodeExtras(eviction_reclaim_first=True).reclaims_first(profile_named("1.36"))


def test_rows_are_the_attributes() -> None:
    assert {row.attribute for row in ROWS} == set(NodeExtras.__struct_fields__)


@pytest.mark.parametrize(
    ("document", "ours"),
    [({"kind": KIND}, True), ({"apiVersion": "plimsoll.dev/v2"}, True), ({"kind": "KubeletConfiguration"}, False), ([], False)],
    ids=["kind", "group", "kubelet", "list"],
)  # fmt: skip
def test_kind_of_document(document: Any, ours: bool) -> None:
    assert is_extras(document) == ours


# --- beside a KubeletConfiguration, in one file ---

CONFIG = """\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
systemReserved: {memory: 1Gi}
---
apiVersion: plimsoll.dev/v1
kind: NodeExtras
capacity: {cpu: 8, memory: 4Gi}
"""


def test_the_same_file_serves_explain(tmp_path: Path) -> None:
    file = tmp_path / "node.yaml"
    file.write_text(CONFIG)
    ran = run("explain", "allocatable", "--config", str(file))
    assert ran.code == 0, ran.err
    assert "4Gi − 1Gi − 100Mi" in ran.out
    other = run("explain", "allocatable", "--config", str(file), "--capacity", "cpu=2,memory=2Gi")
    assert "2Gi − 1Gi − 100Mi" in other.out


def test_a_mistake_has_its_line(tmp_path: Path) -> None:
    file = tmp_path / "node.yaml"
    file.write_text(CONFIG + "imges: {}\n")
    ran = run("explain", "allocatable", "--config", str(file))
    assert ran.code == 2
    assert f"{file}:8: imges: unknown setting" in ran.err


def test_two_of_a_kind(tmp_path: Path) -> None:
    file = tmp_path / "node.yaml"
    file.write_text(CONFIG + "---\n" + CONFIG)
    ran = run("explain", "allocatable", "--config", str(file))
    assert (ran.code, "at most one NodeExtras" in ran.err) == (2, True)


def test_the_page_has_every_setting() -> None:
    page = (Path(__file__).parents[4] / "docs" / "node.md").read_text()
    for row in ROWS:
        assert f"| `{row.name}` | {row.values} | {row.description} |" in page
