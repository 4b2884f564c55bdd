"""The kernel's files of both cgroup versions as one row of figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from plimsoll.codec.live_page import COLUMN, COLUMNS, NONE
from plimsoll.node.live.readers import FULL_EVERY, CgroupReaders, _figures, _limits
from tests.unit.node.played_node import MIB, PlayedCgroups

V2 = {
    "memory.current": b"104857600\n",
    "memory.stat": b"anon 52428800\nfile 41943040\nkernel 4194304\nshmem 1048576\ninactive_file 30000000\nactive_file 10000000\n",
    "memory.max": b"134217728\n",
    "memory.high": b"max\n",
    "memory.low": b"0\n",
    "memory.min": b"67108864\n",
    "memory.events": b"low 0\nhigh 2\nmax 9\noom 1\noom_kill 3\n",
    "cpu.max": b"20000 100000\n",
    "cpu.weight": b"39\n",
    "cpu.stat": b"usage_usec 5000\nnr_periods 40\nnr_throttled 7\nthrottled_usec 9000\n",
    "pids.current": b"4\n",
    "pids.max": b"max\n",
    "memory.pressure": b"some avg10=1.25 avg60=0.00 avg300=0.00 total=5\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
}
V1 = {
    "memory.usage_in_bytes": b"104857600\n",
    "memory.stat": b"cache 1\nrss 2\ntotal_cache 41943040\ntotal_rss 52428800\ntotal_shmem 1048576\ntotal_inactive_file 30000000\ntotal_active_file 10000000\n",
    "memory.kmem.usage_in_bytes": b"4194304\n",
    "memory.limit_in_bytes": b"134217728\n",
    "memory.oom_control": b"oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
    "cpu.cfs_quota_us": b"20000\n",
    "cpu.cfs_period_us": b"100000\n",
    "cpu.shares": b"39\n",
    "cpu.stat": b"nr_periods 40\nnr_throttled 7\nthrottled_time 9000000\n",
    "pids.current": b"4\n",
    "pids.max": b"max\n",
}
COMMON = {
    "usage": 104857600,
    "anon": 52428800,
    "shmem": 1048576,
    "kernel": 4194304,
    "activeFile": 10000000,
    "inactiveFile": 30000000,
    "max": 134217728,
    "quotaMilli": 200,
    "weight": 39,
    "periods": 40,
    "throttledPeriods": 7,
    "throttledUs": 9000,
    "oomKills": 3,
    "pids": 4,
    "pidsMax": NONE,
}


@pytest.mark.parametrize(
    ("version", "texts", "more"),
    [
        pytest.param(2, V2, {"high": NONE, "low": 0, "min": 67108864, "memoryStall": 125, "ioStall": NONE}, id="v2"),
        pytest.param(1, V1, {"high": NONE, "low": NONE, "min": NONE, "memoryStall": NONE}, id="v1"),
        pytest.param(
            1, {**V1, "memory.limit_in_bytes": b"9223372036854771712\n", "cpu.cfs_quota_us": b"-1\n"},
            {"max": NONE, "quotaMilli": NONE}, id="v1 without limits",
        ),
    ],
)  # fmt: skip
def test_files_as_a_row(version: int, texts: dict[str, bytes], more: dict[str, int]) -> None:
    row = [NONE] * len(COLUMNS)
    _limits(row, texts, version)
    _figures(row, texts, version)
    expected = {**COMMON, **more}
    assert {name: row[COLUMN[name]] for name in expected} == expected


def test_what_is_not_read_keeps_its_figure() -> None:
    """An idle cgroup: only its limits and its usage are read."""
    row = [NONE] * len(COLUMNS)
    _figures(row, V1, 1)
    _figures(row, {"memory.usage_in_bytes": b"104857600\n"}, 1)
    assert row[COLUMN["anon"]] == 52428800


def test_an_idle_cgroup_keeps_its_row_until_a_limit_changes_or_all_is_read_again(tmp_path: Path) -> None:
    cgroups = PlayedCgroups(tmp_path)
    cgroups.use("/c", cpu_us=1_000_000, limit=str(64 * MIB))
    readers = CgroupReaders(cgroups)

    def read(now_s: float, **wanted: int) -> list[int]:
        row = readers.read("/c", now_s)
        assert row is not None
        assert {name: row[COLUMN[name]] for name in wanted} == wanted
        return row

    read(1.0, max=64 * MIB, usage=10 * MIB)
    cgroups.use("/c", cpu_us=1_500_000, limit=str(64 * MIB))
    read(2.0, cpuMilli=500)
    idle = read(3.0, cpuMilli=0)
    assert read(4.0, cpuMilli=0) is idle, "nothing has changed"
    cgroups.put("/c", memory_max=str(32 * MIB))
    assert read(5.0, max=32 * MIB, usage=10 * MIB) is not idle
    cgroups.put("/c", pids_current="9")  # neither usage nor a limit
    rows = [readers.read("/c", 6.0 + number) for number in range(FULL_EVERY)]
    assert [row[COLUMN["pids"]] for row in rows if row is not None][-1] == 9
    readers.close()
