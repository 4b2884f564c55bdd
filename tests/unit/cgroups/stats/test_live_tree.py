"""Figures of a live tree: from the texts of both versions, and from a simulated kernel."""

from __future__ import annotations

import asyncio

import pytest

from plimsoll.cgroups.drivers.simulated import SimulatedKernel
from plimsoll.cgroups.stats.live_tree import is_sandbox, live_tree, standing, task_states
from plimsoll.rules.cgroups.view import CpuUsageView, IoView, MemoryParts, MemoryUsageView, Standing
from plimsoll.rules.model.kernel import CgroupVersion

PRESSURE = b"some avg10=12.50 avg60=1.00 avg300=0.00 total=7\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
V2 = {
    "memory.current": b"1000\n",
    "memory.stat": b"anon 600\ninactive_file 300\n",
    "memory.min": b"10\n",
    "memory.low": b"20\n",
    "memory.high": b"max\n",
    "memory.max": b"4096\n",
    "memory.events": b"low 0\nhigh 0\nmax 0\noom 3\noom_kill 2\n",
    "cpu.weight": b"39\n",
    "cpu.max": b"50000 100000\n",
    "cpu.stat": b"usage_usec 1\nnr_periods 10\nnr_throttled 4\nthrottled_usec 900\n",
    "pids.current": b"5\n",
    "pids.max": b"max\n",
    "memory.pressure": PRESSURE,
}
V1 = {
    "memory.usage_in_bytes": b"1000\n",
    "memory.stat": b"inactive_file 1\ntotal_inactive_file 300\n",
    "memory.limit_in_bytes": b"9223372036854771712\n",
    "memory.oom_control": b"oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
    "cpu.shares": b"1024\n",
    "cpu.cfs_quota_us": b"-1\n",
    "cpu.cfs_period_us": b"100000\n",
    "cpu.stat": b"nr_periods 10\nnr_throttled 4\nthrottled_time 900000\n",
    "cpuacct.usage": b"7000\n",
    "pids.current": b"5\n",
    "pids.max": b"100\n",
}
ROWS: list[tuple[str, CgroupVersion, dict[str, bytes], Standing]] = [
    ("v2", 2, V2, Standing(MemoryUsageView(700, 1000, 10, 20, None, 4096), CpuUsageView(500, 39, 10, 4, 900, 1), 5, None, {"memory": 12.5}, 2, parts=MemoryParts(600, None, 300, None, 0))),
    ("v1", 1, V1, Standing(MemoryUsageView(700, 1000), CpuUsageView(None, 1024, 10, 4, 900, 7), 5, 100, {}, 2, parts=MemoryParts(inactive_file_bytes=300))),
    ("v1 with a quota", 1, V1 | {"cpu.cfs_quota_us": b"25000\n"}, Standing(MemoryUsageView(700, 1000), CpuUsageView(250, 1024, 10, 4, 900, 7), 5, 100, {}, 2, parts=MemoryParts(inactive_file_bytes=300))),
    ("the root of v2 has few files", 2, {"cpu.stat": b"usage_usec 1\n"}, Standing(cpu=CpuUsageView(usage_us=1))),
    ("nothing", 1, {}, Standing()),
    ("I/O at its defaults", 2, {"io.weight": b"default 100\n", "io.max": b"", "io.latency": b""}, Standing()),
    ("I/O of v2", 2, {"io.weight": b"default 500\n", "io.max": b"254:0 rbps=max wbps=5 riops=max wiops=max\n", "io.latency": b"254:0 target=7\n"}, Standing(io=IoView(500, {"254:0": {"wbps": 5}}, {"254:0": 7}))),
    ("I/O of v1", 1, {"blkio.bfq.weight": b"10\n", "blkio.throttle.read_iops_device": b"7:1 9\n", "blkio.throttle.write_bps_device": b"7:1 8\n"}, Standing(io=IoView(10, {"7:1": {"wbps": 8, "riops": 9}}))),
]  # fmt: skip


@pytest.mark.parametrize(("version", "texts", "wanted"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_standing(version: CgroupVersion, texts: dict[str, bytes], wanted: Standing) -> None:
    assert standing(texts, version) == wanted


@pytest.mark.parametrize("version", [1, 2])
def test_a_simulated_kernel(version: CgroupVersion) -> None:
    kernel = SimulatedKernel(version)
    limit = "memory.max" if version == 2 else "memory.limit_in_bytes"

    async def made() -> None:
        await kernel.make("/kubepods")
        await kernel.make("/kubepods/poda")
        await kernel.write("/kubepods/poda", limit, str(1 << 20))

    asyncio.run(made())
    found = live_tree(kernel, "/kubepods")
    assert list(found) == ["/kubepods", "/kubepods/poda"]
    memory = found["/kubepods/poda"].memory
    assert memory is not None
    assert memory.max_bytes == 1 << 20
    assert live_tree(kernel, "/nothing") == {}
    assert task_states(kernel, found) == {}


@pytest.mark.parametrize(
    ("command", "score", "verdict"), [("pause", 0, True), ("x", -998, True), ("x", 0, False), ("pause2", None, False)]
)
def test_sandbox(command: str, score: int | None, verdict: bool) -> None:
    assert is_sandbox(command, score) == verdict
