"""Values that another process changed: what is repaired, what is reported, and what is left as a resize wants it.

On a simulated kernel; `tests/e2e/test_cgroup_repair.py` has a real one.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from plimsoll.cgroups.drivers.simulated import SimulatedKernel
from plimsoll.cgroups.engine.manager import CgroupManager
from plimsoll.errors import PlimsollError
from plimsoll.node.resources.cgroup_repair import CgroupRepair
from plimsoll.node.resources.container_cgroups import AgentCgroups
from plimsoll.node.resources.pod_cgroups import PodCgroups
from plimsoll.rules.cgroups.repair import Repair
from tests.unit.node.resources.test_pod_cgroups import SETTING, burstable, pod

MIB = 1 << 20


class World:
    def __init__(self, directory: Path, period_s: float) -> None:
        self.kernel = SimulatedKernel(2)
        self.pods = PodCgroups(CgroupManager(self.kernel, SETTING, directory), self.kernel, SETTING)
        self.repairs: list[Repair] = []
        self.reported = asyncio.Event()
        containers = AgentCgroups(self.pods, scopes_may_vanish=False)
        self.repair = CgroupRepair(self.pods, containers, self._report, files=None, period_s=period_s)

    def _report(self, repair: Repair) -> None:
        self.repairs.append(repair)
        self.reported.set()

    async def check(self) -> list[tuple[str, str, str]]:
        """uid, path and file of what one round reports."""
        self.repairs.clear()
        await self.repair.check(self.pods.known())
        return [(each.uid, each.difference.path, each.difference.file) for each in self.repairs]

    def text(self, path: str, file: str) -> str:
        seen = self.kernel.read(path, (file,))
        assert seen is not None
        return seen.files[file]


@contextlib.asynccontextmanager
async def world(directory: Path, period_s: float = 60.0) -> AsyncIterator[World]:
    made = World(directory, period_s)
    await made.pods.setup()
    task = asyncio.create_task(made.pods.run())
    try:
        yield made
    finally:
        task.cancel()
        await asyncio.wait([task])


LEVELS = {
    "kubepods": ("/kubepods", "memory.max", "max", ""),
    "class": ("/kubepods/burstable", "cpu.weight", "9", ""),
    "pod": ("/kubepods/burstable/podb", "memory.max", "max", "b"),
    "container": ("/kubepods/burstable/podb/id0", "cpu.weight", "7000", "b"),
    "limit-taken-off": ("/kubepods/burstable/podb/id0", "memory.max", "max", "b"),
    "limit-set-by-another": ("/kubepods/burstable/podb/id0", "cpu.max", "1000 100000", "b"),
}


@pytest.mark.parametrize(("path", "file", "value", "uid"), LEVELS.values(), ids=LEVELS)
async def test_a_value_that_another_process_wrote_is_repaired(
    tmp_path: Path, path: str, file: str, value: str, uid: str
) -> None:
    async with world(tmp_path) as here:
        await here.pods.ensure(burstable("900m", "64Mi"), {"c": "id0"})
        before = here.text(path, file)
        assert await here.check() == [] and before != value
        await here.kernel.write(path, file, value)
        assert await here.check() == [(uid, path, file)]
        assert here.text(path, file) == before
        (found,) = here.repairs
        assert found.difference.found == value and str(found.difference.path) in found.message
        assert await here.check() == []


async def test_every_cgroup_is_compared_once_in_a_period(tmp_path: Path) -> None:
    async with world(tmp_path, period_s=0.01) as here:
        await here.pods.ensure(burstable("900m", "64Mi"), {"c": "id0"})
        task = asyncio.create_task(here.repair.run())
        try:
            await here.kernel.write("/kubepods/burstable", "cpu.weight", "9")
            async with asyncio.timeout(30):
                await here.reported.wait()
            assert here.text("/kubepods/burstable", "cpu.weight") != "9"
        finally:
            task.cancel()
            await asyncio.wait([task])


async def test_what_a_refused_resize_left_is_not_repaired(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        paths = await here.pods.ensure(pod("u1"), {"c": "id0"})
        here.kernel.spawn(paths["c"])
        here.kernel.use(paths["c"], anon_bytes=48 * MIB)
        with pytest.raises(PlimsollError, match="still in use"):
            await here.pods.resize(pod("u1", "32Mi"))
        left = here.text(paths["c"], "memory.max")
        assert await here.check() == [] and here.text(paths["c"], "memory.max") == left


async def test_a_pod_whose_resize_is_under_way_is_skipped(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        paths = await here.pods.ensure(pod("u1"), {"c": "id0"})
        here.pods.resizing("u1")
        await here.kernel.write(paths[""], "memory.max", str(96 * MIB))
        assert await here.check() == []
        await here.pods.resize(pod("u1", "96Mi"))
        assert await here.check() == [] and here.text(paths[""], "memory.max") == str(96 * MIB)


async def test_a_value_that_is_refused_does_not_keep_the_others_from_being_repaired(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        paths = await here.pods.ensure(pod("u1"), {"c": "id0"})
        here.kernel.spawn(paths["c"])
        for file, value in (("memory.max", "max"), ("cpu.max", "max"), ("cpu.weight", "77")):
            await here.kernel.write(paths["c"], file, value)
        await here.kernel.write(paths[""], "memory.max", "max")
        here.kernel.use(paths["c"], anon_bytes=100 * MIB)
        await here.check()
        results = {(each.difference.path, each.difference.file): bool(each.refused) for each in here.repairs}
        assert results == {
            (paths["c"], "memory.max"): True,
            (paths[""], "memory.max"): True,
            (paths["c"], "cpu.max"): False,
            (paths["c"], "cpu.weight"): False,
        }
        assert here.kernel.members(paths["c"]) and here.text(paths["c"], "cpu.max") == "10000 100000"


async def test_the_cgroup_of_an_ended_container_is_not_created_again(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        paths = await here.pods.ensure(pod("u1"), {"c": "id0"})
        await here.kernel.remove(paths["c"])  # as systemd removes a scope with its last process
        assert await here.check() == [] and here.kernel.read(paths["c"], ()) is None


async def test_a_raised_memory_high_stays(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        paths = await here.pods.ensure(pod("u1"), {"c": "id0"})
        await here.pods.lift("u1", "id0", str(60 * MIB))
        before = here.text(paths["c"], "memory.high")
        assert await here.check() == [] and here.text(paths["c"], "memory.high") == before
