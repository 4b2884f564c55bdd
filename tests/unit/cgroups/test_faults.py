"""Each single operation made to fail in turn, and a kill placed before and after each: all old or all new, never between."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

from plimsoll.cgroups.executor import StepRefused
from plimsoll.cgroups.simulated import SimulatedHolders, SimulatedKernel
from plimsoll.rules.hierarchy import Driver as DriverName
from plimsoll.rules.policy import CgroupVersion
from plimsoll.rules.reconcile import MEMORY_LIMITS
from plimsoll.rules.steps import Write
from tests.faulty_driver import FaultyDriver, Killed
from tests.node_scenarios import RESERVED, RESIZE, SCENARIOS, Scenario, Tree, node_setting, node_tree, tree_now

ERRNOS = (errno.EBUSY, errno.EINVAL, errno.ENOENT, errno.EACCES, errno.EIO)
KINDS: list[tuple[CgroupVersion, DriverName]] = [(2, "cgroupfs"), (1, "cgroupfs"), (2, "systemd"), (1, "systemd")]
ROOTS = {"cgroupfs": ("/plimsoll-test", RESERVED), "systemd": ("/plimsoll_test.slice", RESERVED)}
kinds = pytest.mark.parametrize(("version", "name"), KINDS, ids=str)
scenarios = pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS.keys())


class Bench:
    """A simulated node in a state directory of its own."""

    def __init__(self, version: CgroupVersion, name: DriverName, state_dir: Path) -> None:
        self.setting = node_setting(version, name)
        self.kernel = SimulatedKernel(version, name, swap=False)
        self.holders = SimulatedHolders(self.kernel) if name == "systemd" else None
        self.driver = FaultyDriver(self.kernel)
        self.state_dir = state_dir

    def start(self) -> None:
        """As a new process: nothing is known but what the state directory and the kernel say."""
        self.tree = node_tree(self.driver, self.setting, self.state_dir, self.holders)
        self.driver.made.clear()
        self.driver.fail_at, self.driver.die_before, self.driver.die_after = {}, None, None

    def now(self) -> Tree:
        return tree_now(self.kernel, ROOTS[self.kernel.name])

    async def prepared(self, scenario: Scenario) -> Tree:
        await self.kernel.make(RESERVED)
        self.start()
        if scenario.before is not None:
            await scenario.before(self.tree)
        self.start()
        return self.now()


async def rehearse(
    version: CgroupVersion, name: DriverName, state_dir: Path, scenario: Scenario
) -> tuple[int, Tree, Tree]:
    """How many operations it takes, and the tree before and after."""
    bench = Bench(version, name, state_dir)
    old = await bench.prepared(scenario)
    await scenario.deed(bench.tree)
    count = len(bench.driver.made)
    new = bench.now()
    bench.start()
    await scenario.again(bench.tree)
    assert bench.driver.made == []
    return count, old, new


@kinds
@scenarios
def test_a_refused_step_leaves_everything_as_it_was(
    version: CgroupVersion, name: DriverName, scenario: Scenario, tmp_path: Path
) -> None:
    async def faults() -> None:
        count, old, new = await rehearse(version, name, tmp_path / "rehearsal", scenario)
        assert count > 4 and len(old) + len(new) > 5
        refused = 0
        for number in range(1, count + 1):
            for code in ERRNOS:
                bench = Bench(version, name, tmp_path / f"{number}-{code}")
                assert await bench.prepared(scenario) == old
                bench.driver.fail_at = {number: code}
                try:
                    await scenario.deed(bench.tree)
                except StepRefused as error:
                    refused += 1
                    assert "everything was undone" in str(error)
                    assert bench.now() == old, (number, code)
                    assert bench.tree.status().unfinished is None
                else:
                    # A limit of a class that is in use is tried once more (02 §8.5).
                    failed = bench.driver.made[number - 1]
                    assert isinstance(failed, Write) and code == errno.EBUSY and failed.file in MEMORY_LIMITS
                    assert bench.now() == new, (number, code)
                bench.start()
                await scenario.again(bench.tree)
                assert bench.now() == new, (number, code)
                bench.start()
                await scenario.again(bench.tree)
                assert bench.driver.made == []
        assert refused >= count * (len(ERRNOS) - 1)

    asyncio.run(faults())


@kinds
@scenarios
@pytest.mark.parametrize("moment", ["before", "after"])
def test_after_a_kill_the_next_start_leaves_nothing_half_done(
    version: CgroupVersion, name: DriverName, scenario: Scenario, moment: str, tmp_path: Path
) -> None:
    async def kills() -> None:
        count, old, new = await rehearse(version, name, tmp_path / "rehearsal", scenario)
        for number in range(1, count + 1):
            bench = Bench(version, name, tmp_path / str(number))
            await bench.prepared(scenario)
            setattr(bench.driver, f"die_{moment}", number)
            with pytest.raises(Killed):
                await scenario.deed(bench.tree)
            bench.start()
            unfinished = bench.tree.status().unfinished
            assert unfinished is not None and unfinished.subject
            await bench.tree.refresh() if scenario.before is not None else await bench.tree.setup()
            assert bench.now() in ((old, new) if scenario.before is not None else (new,)), number
            assert bench.tree.status().unfinished is None
            bench.start()
            await bench.tree.refresh()
            assert bench.driver.made == [], number
            await scenario.again(bench.tree)
            assert bench.now() == new, number

    asyncio.run(kills())


def container_states(tree: Tree, old: Tree, new: Tree) -> dict[str, str]:
    """Of every cgroup that the resize is about: old, new, or between."""
    return {
        path: "old" if tree[path] == old[path] else "new" if tree[path] == new[path] else "between"
        for path in old
        if old[path] != new[path]
    }


@kinds
def test_a_resize_is_all_or_nothing_for_each_container(
    version: CgroupVersion, name: DriverName, tmp_path: Path
) -> None:
    async def faults() -> None:
        count, old, new = await rehearse(version, name, tmp_path / "rehearsal", RESIZE)
        kept = 0
        for number in range(1, count + 1):
            for code in ERRNOS:
                bench = Bench(version, name, tmp_path / f"{number}-{code}")
                await bench.prepared(RESIZE)
                bench.driver.fail_at = {number: code}
                try:
                    await RESIZE.deed(bench.tree)
                except StepRefused as error:
                    assert not error.left
                    kept += len(error.done)
                    states = container_states(bench.now(), old, new)
                    containers = [path for path in states if "dba294ab" in path.rpartition("/")[0]]
                    assert len(containers) == 2 and "between" not in {states[path] for path in containers}
                    assert {path for path in containers if states[path] == "new"} == set(error.done)
                bench.start()
                await bench.tree.refresh()
                assert bench.now() == new, (number, code)
                bench.start()
                await bench.tree.refresh()
                assert bench.driver.made == []
        assert kept > 0

    async def kills() -> None:
        count, _, new = await rehearse(version, name, tmp_path / "kills", RESIZE)
        for number in range(1, count + 1):
            bench = Bench(version, name, tmp_path / str(number))
            await bench.prepared(RESIZE)
            bench.driver.die_after = number
            with pytest.raises(Killed):
                await RESIZE.deed(bench.tree)
            bench.start()
            await bench.tree.refresh()
            assert bench.now() == new, number
            bench.start()
            await bench.tree.refresh()
            assert bench.driver.made == []

    asyncio.run(faults())
    asyncio.run(kills())
