"""The simulated kernel: its defaults, what it accepts, rounds and refuses, as Linux 6 does."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Coroutine
from typing import Any

import pytest

from plimsoll.cgroups.drivers.interface import CgroupError, CgroupGoneError
from plimsoll.cgroups.drivers.simulated import SimulatedHolders, SimulatedKernel

MI = 1 << 20


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


def text(kernel: SimulatedKernel, path: str, file: str) -> str:
    seen = kernel.read(path, (file,))
    assert seen is not None
    return seen.files[file]


async def refusal(deed: Coroutine[Any, Any, None]) -> int:
    with pytest.raises(CgroupError) as caught:
        await deed
    return caught.value.errno


DEFAULTS = [
    (2, "memory.max", "max"),
    (2, "memory.min", "0"),
    (2, "memory.high", "max"),
    (2, "cpu.weight", "100"),
    (2, "cpu.max", "max 100000"),
    (2, "memory.oom.group", "0"),
    (2, "pids.max", "max"),
    (2, "hugetlb.2MB.max", "max"),
    (1, "memory.limit_in_bytes", "9223372036854771712"),
    (1, "memory.memsw.limit_in_bytes", "9223372036854771712"),
    (1, "cpu.shares", "1024"),
    (1, "cpu.cfs_quota_us", "-1"),
    (1, "cpu.cfs_period_us", "100000"),
    (1, "hugetlb.2MB.limit_in_bytes", "9223372036852678656"),
]


@pytest.mark.parametrize(("version", "file", "expected"), DEFAULTS, ids=str)
def test_a_new_cgroup_has_the_kernels_defaults(version: Any, file: str, expected: str) -> None:
    kernel = SimulatedKernel(version, hugepage_sizes=(2 * MI,))
    run(kernel.make("/a"))
    assert text(kernel, "/a", file) == expected
    assert kernel.has(file) is None


VALUES = [
    (1, "cpu.shares", "0", "2"),
    (1, "cpu.shares", "999999", "262144"),
    (1, "cpu.shares", "abc", errno.EINVAL),
    (1, "cpu.shares", "-5", errno.EINVAL),
    (1, "cpu.cfs_period_us", "999", errno.EINVAL),
    (1, "cpu.cfs_period_us", "1000001", errno.EINVAL),
    (1, "cpu.cfs_quota_us", "999", errno.EINVAL),
    (1, "cpu.cfs_quota_us", "0", errno.EINVAL),
    (1, "cpu.cfs_quota_us", "-7", "-1"),
    (1, "memory.limit_in_bytes", "1000001", "999424"),
    (1, "memory.limit_in_bytes", "-2", errno.EINVAL),
    (1, "memory.limit_in_bytes", "9223372036854775807", "9223372036854771712"),
    (1, "memory.limit_in_bytes", "0", "0"),
    (1, "pids.max", "-1", errno.EINVAL),
    (1, "pids.max", "99999999", errno.EINVAL),
    (1, "cpuset.cpus", "99", errno.ERANGE),
    (2, "memory.max", "1M", "1048576"),
    (2, "memory.max", "-1", errno.EINVAL),
    (2, "memory.max", "lots", errno.EINVAL),
    (2, "memory.min", "4097", "4096"),
    (2, "cpu.weight", "0", errno.ERANGE),
    (2, "cpu.weight", "10001", errno.ERANGE),
    (2, "cpu.max", "50000", "50000 100000"),
    (2, "cpu.max", "999 100000", errno.EINVAL),
    (2, "cpu.max", "max 50000", "max 50000"),
    (2, "cpu.max", "1 2 3", errno.EINVAL),
    (2, "memory.oom.group", "2", errno.EINVAL),
    (2, "pids.max", "max", "max"),
    (2, "hugetlb.2MB.max", str(3 * MI), str(2 * MI)),
    (2, "hugetlb.1GB.max", "0", errno.ENOENT),
    (2, "cpu.shares", "2", errno.ENOENT),
]


@pytest.mark.parametrize(("version", "file", "value", "expected"), VALUES, ids=str)
def test_values_are_accepted_as_by_the_kernel(version: Any, file: str, value: str, expected: str | int) -> None:
    async def scenario() -> None:
        kernel = SimulatedKernel(version, hugepage_sizes=(2 * MI,))
        await kernel.make("/a")
        if isinstance(expected, int):
            before = kernel.read("/a", (file,))
            assert await refusal(kernel.write("/a", file, value)) == expected
            assert kernel.read("/a", (file,)) == before
        else:
            await kernel.write("/a", file, value)
            assert text(kernel, "/a", file) == expected

    run(scenario())


def test_v1_binds_quotas_to_the_parent_and_memory_to_memory_and_swap() -> None:
    async def scenario() -> None:
        kernel = SimulatedKernel(1)
        for path in ("/a", "/a/b", "/a/b/c"):
            await kernel.make(path)
        await kernel.write("/a", "cpu.cfs_quota_us", "50000")
        assert await refusal(kernel.write("/a/b/c", "cpu.cfs_quota_us", "60000")) == errno.EINVAL
        await kernel.write("/a/b/c", "cpu.cfs_quota_us", "40000")
        assert await refusal(kernel.write("/a", "cpu.cfs_quota_us", "30000")) == errno.EINVAL
        assert await refusal(kernel.write("/a", "cpu.cfs_period_us", "200000")) == errno.EINVAL
        await kernel.write("/a", "memory.limit_in_bytes", "4096")
        assert await refusal(kernel.write("/a", "memory.memsw.limit_in_bytes", "0")) == errno.EINVAL
        await kernel.write("/a", "memory.memsw.limit_in_bytes", "8192")
        assert await refusal(kernel.write("/a", "memory.limit_in_bytes", "12288")) == errno.EINVAL

    run(scenario())


def test_cgroups_in_use_stay_and_missing_ones_are_gone() -> None:
    async def scenario() -> None:
        kernel = SimulatedKernel(2)
        assert isinstance((await _caught(kernel.make("/a/b"))), CgroupGoneError)
        await kernel.make("/a")
        assert await refusal(kernel.make("/a")) == errno.EEXIST
        await kernel.make("/a/b")
        assert await refusal(kernel.remove("/a")) == errno.EBUSY
        pid = kernel.spawn()
        assert await refusal(kernel.move("/a", pid)) == errno.EBUSY
        await kernel.move("/a/b", pid)
        assert kernel.members("/a") == [] and kernel.members("/a", deep=True) == [pid]
        assert await refusal(kernel.remove("/a/b")) == errno.EBUSY
        assert await refusal(kernel.make("/a/b/c")) == errno.EBUSY
        await kernel.kill("/a")
        await kernel.remove("/a/b")
        assert isinstance(await _caught(kernel.remove("/a/b")), CgroupGoneError)
        assert kernel.children("/a") == [] and kernel.read("/a/b", ()) is None
        assert await refusal(kernel.make("/" + "x" * 256)) == errno.ENAMETOOLONG
        assert await refusal(kernel.make("/x\ny")) == errno.EINVAL
        assert await refusal(kernel.move("/a", 1)) == errno.ESRCH

    run(scenario())


async def _caught(deed: Coroutine[Any, Any, None]) -> CgroupError:
    with pytest.raises(CgroupError) as caught:
        await deed
    return caught.value


def test_a_scope_lives_as_long_as_its_process() -> None:
    async def scenario() -> None:
        kernel = SimulatedKernel(2, "systemd")
        await kernel.make("/a.slice")
        assert await refusal(kernel.make("/a.slice/x.scope")) == errno.EINVAL
        holders = SimulatedHolders(kernel)
        pid = holders.start("/a.slice/x.scope")
        await kernel.make("/a.slice/x.scope", pid=pid)
        assert holders.scope_of(pid) == "/a.slice/x.scope"
        kernel.exit(pid)
        assert kernel.read("/a.slice/x.scope", ()) is None

    run(scenario())


def test_v2_takes_a_limit_below_usage_and_kills_when_nothing_can_be_reclaimed() -> None:
    async def scenario() -> None:
        kernel = SimulatedKernel(2)
        for path in ("/a", "/a/big", "/a/small"):
            await kernel.make(path)
        big, small = kernel.spawn("/a/big"), kernel.spawn("/a/small")
        kernel.use("/a/big", anon_bytes=60 * MI, cache_bytes=30 * MI)
        kernel.use("/a/small", anon_bytes=10 * MI)
        await kernel.write("/a", "memory.max", str(80 * MI))
        assert kernel.members("/a", deep=True) == [big, small] and text(kernel, "/a", "memory.current") == str(80 * MI)
        await kernel.write("/a", "memory.max", str(50 * MI))
        assert kernel.members("/a", deep=True) == [small]
        assert "oom_kill 1" in text(kernel, "/a", "memory.events").splitlines()
        assert "oom_kill 0" in text(kernel, "/a/small", "memory.events").splitlines()

    run(scenario())


def test_v1_refuses_a_limit_below_what_cannot_be_reclaimed() -> None:
    async def scenario() -> None:
        kernel = SimulatedKernel(1)
        await kernel.make("/a")
        kernel.spawn("/a")
        kernel.use("/a", anon_bytes=60 * MI, cache_bytes=30 * MI)
        assert await refusal(kernel.write("/a", "memory.limit_in_bytes", str(50 * MI))) == errno.EBUSY
        await kernel.write("/a", "memory.limit_in_bytes", str(60 * MI))
        assert text(kernel, "/a", "memory.usage_in_bytes") == str(60 * MI)

    run(scenario())


def test_reclaim_reports_a_shortfall_and_freezing_is_shown() -> None:
    async def scenario() -> None:
        kernel = SimulatedKernel(2)
        await kernel.make("/a")
        kernel.use("/a", anon_bytes=4 * MI, cache_bytes=2 * MI)
        assert await refusal(kernel.write("/a", "memory.reclaim", "3M")) == errno.EAGAIN
        assert text(kernel, "/a", "memory.current") == str(4 * MI)
        await kernel.freeze("/a", frozen=True)
        assert text(kernel, "/a", "cgroup.events") == "populated 0\nfrozen 1"
        kernel.report("/a", "memory.pressure", "some avg10=99.00")
        assert text(kernel, "/a", "memory.pressure") == "some avg10=99.00"

    run(scenario())


def test_lacking_files_do_not_exist() -> None:
    async def scenario() -> None:
        kernel = SimulatedKernel(2, lacking={"memory.swap.max": "no swap accounting"})
        await kernel.make("/a")
        assert kernel.has("memory.swap.max") == "no swap accounting"
        assert kernel.read("/a", ("memory.swap.max",)).files == {}  # type: ignore[union-attr]
        error = await _caught(kernel.write("/a", "memory.swap.max", "0"))
        assert str(error) == "write /a/memory.swap.max '0': ENOENT (no swap accounting)"

    run(scenario())
