"""Eviction signals, on a node of plain files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from plimsoll.node.pressure.signals import MemoryFrom, Signals, UsageThreshold
from plimsoll.node.stats.stats import NodePlace
from plimsoll.rules.config.thresholds import parsed_thresholds
from tests.unit.node.played_node import MIB, PODS, PlayedCgroups

HERE, ELSEWHERE = Path(), Path("/proc")  # another device than any directory of a test
HARD = parsed_thresholds({"memory.available": "100Mi"}, enforce_node_allocatable=("pods",))


@pytest.fixture
def cgroups(tmp_path: Path) -> PlayedCgroups:
    found = PlayedCgroups(tmp_path / "cgroup")
    found.use(PODS, cpu_us=0, memory_bytes=300 * MIB, limit=str(512 * MIB))
    found.use("/", cpu_us=0, memory_bytes=400 * MIB)
    proc = tmp_path / "proc"
    (proc / "sys/kernel").mkdir(parents=True)
    (proc / "meminfo").write_text(f"MemTotal: {1 << 20} kB\nMemAvailable: {200 << 10} kB\n")
    (proc / "sys/kernel/pid_max").write_text("4000\n")
    (proc / "sys/kernel/threads-max").write_text("3000\n")
    (proc / "loadavg").write_text("0.1 0.1 0.1 2/500 77\n")
    return found


def signals(
    cgroups: PlayedCgroups,
    tmp_path: Path,
    *,
    node_path: str = "/",
    imagefs: Path | None = None,
    containerfs: Path | None = None,
    capacity_bytes: int = 1024 * MIB,
    memory_from: MemoryFrom = "cgroup",
) -> Signals:
    place = NodePlace("n1", PODS, str(tmp_path), str(imagefs or tmp_path), str(containerfs or ""), node_path)
    return Signals(
        cgroups,
        place,
        capacity_bytes=capacity_bytes,
        memory_from=memory_from,
        proc=tmp_path / "proc",
        clock=lambda: 7.0,
    )


def test_the_top_of_v2_and_the_pods(cgroups: PlayedCgroups, tmp_path: Path) -> None:
    """Two MiB are inactive page cache in each of them, and do not count as used."""
    found = signals(cgroups, tmp_path).memory()
    assert found["memory.available"].available.value == (1024 - 400 + 2) * MIB
    assert found["allocatableMemory.available"].available.value == (512 - 300 + 2) * MIB
    assert {each.time_s for each in found.values()} == {7.0}


def test_a_declared_node_is_its_pods(cgroups: PlayedCgroups, tmp_path: Path) -> None:
    found = signals(cgroups, tmp_path, node_path=PODS, capacity_bytes=600 * MIB).memory()
    assert found["memory.available"].available.value == (600 - 300 + 2) * MIB


@pytest.mark.parametrize(("capacity_mib", "mib"), [(1024, 200), (100, 100)], ids=["the machine", "less is declared"])
def test_from_meminfo(capacity_mib: int, mib: int, cgroups: PlayedCgroups, tmp_path: Path) -> None:
    found = signals(cgroups, tmp_path, memory_from="meminfo", capacity_bytes=capacity_mib * MIB).memory()
    assert found["memory.available"].available.value == mib * MIB


def test_without_a_limit_there_is_no_such_signal(cgroups: PlayedCgroups, tmp_path: Path) -> None:
    cgroups.use(PODS, cpu_us=0, memory_bytes=300 * MIB)
    assert "allocatableMemory.available" not in signals(cgroups, tmp_path).memory()


def test_cgroups_that_are_not_there_give_nothing(tmp_path: Path, cgroups: PlayedCgroups) -> None:
    place = NodePlace("n1", "/no", str(tmp_path), str(tmp_path), node_path="/no")
    found = Signals(cgroups, place, capacity_bytes=1, clock=lambda: 0.0).memory()
    assert found == {}


def test_usage_thresholds_follow_the_limit(cgroups: PlayedCgroups, tmp_path: Path) -> None:
    seen = signals(cgroups, tmp_path)
    assert seen.usage_thresholds(HARD) == {
        UsageThreshold("/", (1024 - 100 + 2) * MIB),
        UsageThreshold(PODS, (512 - 100 + 2) * MIB),
    }
    cgroups.use(PODS, cpu_us=0, memory_bytes=300 * MIB, limit=str(400 * MIB))
    assert UsageThreshold(PODS, (400 - 100 + 2) * MIB) in seen.usage_thresholds(HARD)


def test_process_numbers_and_file_systems(cgroups: PlayedCgroups, tmp_path: Path) -> None:
    seen = signals(cgroups, tmp_path)
    found = seen.others()
    assert (found["pid.available"].available.value, found["pid.available"].capacity.value) == (2500, 3000)
    assert found["nodefs.available"].capacity == found["imagefs.available"].capacity
    assert seen.layout == "single"


@pytest.mark.parametrize(
    ("images", "containers", "layout"),
    [
        pytest.param(HERE, None, "single", id="single"),
        pytest.param(HERE, ELSEWHERE, "single", id="a-split-needs-an-imagefs"),
        pytest.param(ELSEWHERE, None, "dedicated", id="not-reported"),
        pytest.param(ELSEWHERE, ELSEWHERE, "dedicated", id="dedicated"),
        pytest.param(ELSEWHERE, HERE, "split", id="split"),
    ],
)
def test_the_layout_is_the_runtimes(
    cgroups: PlayedCgroups, tmp_path: Path, images: Path, containers: Path | None, layout: str
) -> None:
    places = {HERE: tmp_path, ELSEWHERE: ELSEWHERE, None: None}
    seen = signals(cgroups, tmp_path, imagefs=places[images], containerfs=places[containers])
    assert seen.layout == layout
    home = os.statvfs(places[containers] or places[images] or tmp_path)
    assert seen.others()["containerfs.available"].capacity.value == home.f_blocks * home.f_frsize


def test_what_cannot_be_read_has_no_observation_and_is_logged_once(
    cgroups: PlayedCgroups, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    images = tmp_path / "images"
    found = signals(cgroups, tmp_path, imagefs=images)
    for _ in range(3):
        assert {each.partition(".")[0] for each in found.others()} == {"nodefs", "pid"}
    assert [str(images) in each.message for each in caplog.records] == [True]
    images.mkdir()
    (tmp_path / "proc/loadavg").unlink()
    for _ in range(3):
        assert {each.partition(".")[0] for each in found.others()} == {"nodefs", "imagefs", "containerfs"}
    assert len([each for each in caplog.records if each.levelname == "WARNING"]) == 2
