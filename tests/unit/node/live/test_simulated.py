"""Figures of a node whose cgroups are simulated."""

from __future__ import annotations

from plimsoll.cgroups.stats.usage import CgroupUsage, CpuUsage, MemoryUsage, Pids
from plimsoll.codec.live_page import COLUMN, NONE
from plimsoll.node.live.simulated import simulated_rows
from plimsoll.node.stats.stats import (
    ContainerPlace,
    ContainerSample,
    Measured,
    NodePlace,
    NodeSample,
    PodPlace,
    PodSample,
    StatsSnapshot,
)
from plimsoll.rules.eviction.usage import NO_FS_USAGE


def measured(memory_bytes: int, nanocores: int | None = None) -> Measured:
    usage = CgroupUsage(MemoryUsage(memory_bytes, memory_bytes), cpu=CpuUsage(1), pids=Pids(2))
    return Measured(usage, nanocores)


def test_processes_fill_the_vessels_and_classes_are_sums() -> None:
    place = NodePlace("n", "", "/", "/")
    pods = []
    for uid, memory_bytes in (("u1", 100), ("u2", 50)):
        sample = ContainerSample(
            ContainerPlace("app", "id"), measured(memory_bytes, 2_000_000), NO_FS_USAGE, NO_FS_USAGE
        )
        pods.append(PodSample(PodPlace(uid, uid, "default"), measured(memory_bytes), (sample,), {}))
    node = NodeSample(place, measured(0), None, {}, 1, None, None, None, NO_FS_USAGE, 1, 1)
    vessels = {"root": {"level": "pods", "parent": ""}, "class": {"level": "class", "parent": "root"}}
    for uid in ("u1", "u2"):
        vessels[uid] = {"level": "pod", "parent": "class", "uid": uid}
        vessels[f"{uid}-app"] = {"level": "container", "parent": uid, "uid": uid, "name": "app"}
    rows = simulated_rows(StatsSnapshot(1.0, node, tuple(pods)), vessels)
    usage, cpu, limit = COLUMN["usage"], COLUMN["cpuMilli"], COLUMN["max"]
    assert {name: row[usage] for name, row in rows.items()} == {
        "u1": 100, "u1-app": 100, "u2": 50, "u2-app": 50, "class": 150, "root": 150,
    }  # fmt: skip
    assert rows["u1-app"][cpu] == 2
    assert {row[limit] for row in rows.values()} == {NONE}
