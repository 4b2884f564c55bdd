"""Usage from the texts of the files, v1 and v2; a value that is not reported is None."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from plimsoll.cgroups.stats.usage import (
    CgroupUsage,
    CpuUsage,
    MemoryEvents,
    MemoryUsage,
    Part,
    Pids,
    UsageReader,
    from_texts,
    host_pressure,
    kept_files,
)
from plimsoll.linux.cgroup_files import CgroupError, CgroupGoneError, Directory
from plimsoll.rules.model.kernel import CgroupVersion
from tests.unit.node.played_node import PlayedCgroups

PRESSURE = b"some avg10=0.00 avg60=0.00 avg300=0.00 total=12\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=3\n"
V2 = {
    "memory.current": b"10000\n",
    "memory.stat": b"anon 4000\nfile 6000\nkernel 10\ninactive_file 2500\npgfault 7\npgmajfault 1\n",
    "memory.max": b"max\n",
    "memory.events": b"low 0\nhigh 5\nmax 9\noom 1\noom_kill 2\noom_group_kill 0\n",
    "memory.events.local": b"low 0\nhigh 0\nmax 9\noom 1\noom_kill 1\n",
    "cpu.stat": b"usage_usec 900\nuser_usec 600\nsystem_usec 300\nnr_periods 10\nnr_throttled 4\nthrottled_usec 55\n",
    "pids.current": b"3\n",
    "pids.max": b"100\n",
    "hugetlb.2MB.current": b"4194304\n",
}
V1 = {
    "memory.usage_in_bytes": b"10000\n",
    "memory.stat": b"cache 1\nrss 2\ninactive_file 3\ntotal_cache 6000\ntotal_rss 4000\ntotal_inactive_file 2500\ntotal_pgfault 7\ntotal_pgmajfault 1\n",
    "memory.limit_in_bytes": b"9223372036854771712\n",
    "memory.failcnt": b"9\n",
    "memory.oom_control": b"oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
    "cpuacct.usage": b"900999\n",
    "cpuacct.usage_user": b"600000\n",
    "cpuacct.usage_sys": b"300000\n",
    "cpu.stat": b"nr_periods 10\nnr_throttled 4\nthrottled_time 55000\n",
    "pids.current": b"3\n",
    "pids.max": b"100\n",
    "hugetlb.2MB.usage_in_bytes": b"4194304\n",
}
MEMORY = MemoryUsage(10000, 7500, None, 4000, 6000, 2500, 7, 1)
CPU = CpuUsage(900, 600, 300, 10, 4, 55)
HUGE = {"2MB": 4194304}

CASES: list[tuple[str, CgroupVersion, dict[str, bytes], CgroupUsage]] = [
    ("v2", 2, V2, CgroupUsage(MEMORY, MemoryEvents(0, 5, 9, 1, 2, 0), MemoryEvents(0, 0, 9, 1, 1), CPU, None, Pids(3, 100), HUGE)),
    ("v1", 1, V1, CgroupUsage(MEMORY, None, MemoryEvents(max=9, oom_kill=1), CPU, None, Pids(3, 100), HUGE)),
    ("v2, no controllers", 2, {}, CgroupUsage()),
    ("v1, no hierarchies", 1, {}, CgroupUsage()),
    ("v2, cpu.stat of a cgroup without the cpu controller", 2, {"cpu.stat": b"usage_usec 5\n"}, CgroupUsage(cpu=CpuUsage(5))),
    ("v2, no limit on pids", 2, {"pids.current": b"0", "pids.max": b"max"}, CgroupUsage(pids=Pids(0, None))),
    ("v1, a limit", 1, {"memory.usage_in_bytes": b"1", "memory.limit_in_bytes": b"4096"}, CgroupUsage(MemoryUsage(1, None, 4096))),
    ("more inactive than used", 2, {"memory.current": b"1000", "memory.stat": b"inactive_file 2500"}, CgroupUsage(MemoryUsage(1000, 0, inactive_file_bytes=2500))),
    ("no memory.stat", 2, {"memory.current": b"1000"}, CgroupUsage(MemoryUsage(1000, None))),
]  # fmt: skip


@pytest.mark.parametrize(("version", "texts", "usage"), [row[1:] for row in CASES], ids=[row[0] for row in CASES])
def test_usage(version: CgroupVersion, texts: dict[str, bytes], usage: CgroupUsage) -> None:
    assert from_texts(texts, version) == usage


@pytest.mark.parametrize(
    ("part", "version", "texts", "usage"),
    [
        ("failcnt", 2, V2, CgroupUsage(events_local=MemoryEvents(0, 0, 9, 1, 1))),
        ("failcnt", 1, V1, CgroupUsage(events_local=MemoryEvents(max=9, oom_kill=1))),
        ("pids_current", 2, V2, CgroupUsage(pids=Pids(3, 100))),
    ],
)
def test_a_part_of_a_part(part: Part, version: CgroupVersion, texts: dict[str, bytes], usage: CgroupUsage) -> None:
    """What it does not have comes from files that its reader does not open."""
    assert from_texts(texts, version, frozenset([part])) == usage


def test_a_reader_opens_only_the_files_of_its_parts_and_each_once(tmp_path: Path) -> None:
    cgroups = PlayedCgroups(tmp_path)
    cgroups.use("/pod", cpu_us=1)
    opened = {
        parts: set(UsageReader(cgroups, "/pod", parts)._files)
        for parts in (("failcnt", "pids_current"), ("events", "failcnt", "pids", "pids_current"))
    }
    local = {"memory.events.local", "pids.current"}
    assert list(opened.values()) == [local, local | {"memory.events", "pids.max"}]


class Counting(PlayedCgroups):
    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.opened: list[str] = []

    def directory(self, path: str, file: str) -> Directory:
        self.opened.append(path)
        return super().directory(path, file)


def test_a_directory_is_opened_once_for_all_its_files(tmp_path: Path) -> None:
    cgroups = Counting(tmp_path)
    cgroups.use("/pod", cpu_us=1)
    kept = kept_files(cgroups, "/pod", ("memory.current", "memory.stat", "memory.zswap", "pids.current", "cpu.stat"))
    assert sorted(kept) == ["cpu.stat", "memory.current", "memory.stat", "pids.current"]
    assert len(cgroups.opened) == 2, "one for the cgroup itself, one for the hierarchy"
    assert kept["pids.current"].read() == b"4"
    for file in kept.values():
        file.close()


def test_no_file_stays_open_of_a_cgroup_that_cannot_be_read(tmp_path: Path) -> None:
    cgroups = PlayedCgroups(tmp_path)
    cgroups.use("/pod", cpu_us=1)
    (tmp_path / "pod/link").symlink_to("pids.current")
    before = os.listdir("/proc/self/fd")
    with pytest.raises(CgroupError, match="ELOOP"):
        kept_files(cgroups, "/pod", ("memory.current", "link"))
    with pytest.raises(CgroupGoneError):
        kept_files(cgroups, "/other", ("memory.current",))
    assert len(os.listdir("/proc/self/fd")) == len(before)


def test_pressure_where_it_exists() -> None:
    found = from_texts({"memory.pressure": PRESSURE}, 2).pressure
    assert found
    assert found.cpu is None
    assert found.memory
    assert found.memory.full
    assert found.memory.full.total_us == 3


def test_pressure_of_the_machine(tmp_path: Path) -> None:
    assert host_pressure(str(tmp_path / "nothing")) is None
    for name in ("cpu", "memory", "io"):
        (tmp_path / name).write_bytes(PRESSURE)
    found = host_pressure(str(tmp_path))
    assert found
    assert found.io
    assert found.io.some
    assert found.io.some.total_us == 12
