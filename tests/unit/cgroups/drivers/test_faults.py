"""Each operation fails once, and the process is killed before and after each: all old or all new, never between."""

from __future__ import annotations

import asyncio
import copy
import errno
import shutil
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from plimsoll.cgroups.drivers.simulated import SimulatedHolders, SimulatedKernel
from plimsoll.cgroups.engine.executor import StepError
from plimsoll.rules.cgroups.reconcile import MEMORY_LIMITS
from plimsoll.rules.cgroups.steps import Write
from plimsoll.rules.model.cgroup_names import Driver as DriverName
from plimsoll.rules.model.kernel import CgroupVersion
from tests.faulty_driver import FaultyDriver, Killed
from tests.node_scenarios import RESERVED, RESIZE, SCENARIOS, Scenario, Tree, node_setting, node_tree, tree_now

ERRNOS = (errno.EBUSY, errno.EINVAL, errno.ENOENT, errno.EACCES, errno.EIO)
KINDS: list[tuple[CgroupVersion, DriverName]] = [(2, "cgroupfs"), (1, "cgroupfs"), (2, "systemd"), (1, "systemd")]
ROOTS = {"cgroupfs": ("/plimsoll-test", RESERVED), "systemd": ("/plimsoll_test.slice", RESERVED)}
kinds = pytest.mark.parametrize(("version", "name"), KINDS, ids=str)
scenarios = pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS.keys())


def _code(number: int) -> int:
    """One of the errnos for each operation; on a real kernel the proof takes all of them."""
    return ERRNOS[number % len(ERRNOS)]


setting_of = cache(node_setting)  # the same for thousands of starts


class Bench:
    """A simulated node with a state directory of its own."""

    def __init__(self, kernel: SimulatedKernel, holders: SimulatedHolders | None, state_dir: Path) -> None:
        self.kernel, self.holders, self.state_dir = kernel, holders, state_dir
        self.setting = setting_of(kernel.version, kernel.name)
        self.start()

    def start(self) -> None:
        """As a new process, with only the state directory and the kernel."""
        self.driver = FaultyDriver(self.kernel)
        self.tree = node_tree(self.driver, self.setting, self.state_dir, self.holders)

    def now(self) -> Tree:
        return tree_now(self.kernel, ROOTS[self.kernel.name])

    def copy(self, state_dir: Path) -> Bench:
        shutil.rmtree(state_dir, ignore_errors=True)
        if self.state_dir.exists():
            shutil.copytree(self.state_dir, state_dir)
        kernel, holders = copy.deepcopy((self.kernel, self.holders))
        return Bench(kernel, holders, state_dir)


class Rehearsal:
    """One run of a scenario: the number of its operations, the node before it, the tree before and after."""

    def __init__(self, version: CgroupVersion, name: DriverName, scenario: Scenario, state_dir: Path) -> None:
        kernel = SimulatedKernel(version, name, swap=False)
        self.scenario, self._state_dir = scenario, state_dir
        self._before = Bench(kernel, SimulatedHolders(kernel) if name == "systemd" else None, state_dir / "before")

    async def take(self) -> None:
        await self._before.kernel.make(RESERVED)
        if self.scenario.before is not None:
            await self.scenario.before(self._before.tree)
        self.old = self._before.now()
        bench = self.bench()
        await self.scenario.deed(bench.tree)
        self.count, self.new = len(bench.driver.made), bench.now()
        bench.start()
        await self.scenario.again(bench.tree)
        assert bench.driver.made == []
        assert self.count > 4 and len(self.old) + len(self.new) > 5 and self.old != self.new

    def bench(self) -> Bench:
        """The node as it was before, fresh each time."""
        return self._before.copy(self._state_dir / "bench")


@pytest.fixture
def state_dir(tmp_path: Path) -> Iterator[Path]:
    """In memory where that is possible: it is synced thousands of times."""
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else tmp_path) as directory:
        yield Path(directory)


@kinds
@scenarios
def test_a_refused_step_leaves_everything_as_it_was(
    version: CgroupVersion, name: DriverName, scenario: Scenario, state_dir: Path
) -> None:
    async def faults() -> None:
        rehearsal = Rehearsal(version, name, scenario, state_dir)
        await rehearsal.take()
        for number in range(1, rehearsal.count + 1):
            code = _code(number)
            bench = rehearsal.bench()
            bench.driver.fail_at = {number: code}
            try:
                await scenario.deed(bench.tree)
            except StepError as error:
                assert "everything was rolled back" in str(error)
                assert bench.now() == rehearsal.old, (number, code)
                assert bench.tree.status().unfinished is None
            else:
                # A limit of a class that is in use is tried once more (02 §8.5).
                failed = bench.driver.made[number - 1]
                assert isinstance(failed, Write) and code == errno.EBUSY and failed.file in MEMORY_LIMITS
                assert bench.now() == rehearsal.new, (number, code)
            await scenario.again(bench.tree)
            assert bench.now() == rehearsal.new, (number, code)
            bench.start()
            await scenario.again(bench.tree)
            assert bench.driver.made == []

    asyncio.run(faults())


@kinds
@scenarios
@pytest.mark.parametrize("moment", ["before", "after"])
def test_after_a_kill_the_next_start_leaves_nothing_half_done(
    version: CgroupVersion, name: DriverName, scenario: Scenario, moment: str, state_dir: Path
) -> None:
    async def kills() -> None:
        rehearsal = Rehearsal(version, name, scenario, state_dir)
        await rehearsal.take()
        for number in range(1, rehearsal.count + 1):
            bench = rehearsal.bench()
            setattr(bench.driver, f"die_{moment}", number)
            with pytest.raises(Killed):
                await scenario.deed(bench.tree)
            bench.start()
            unfinished = bench.tree.status().unfinished
            assert unfinished is not None and unfinished.subject
            await bench.tree.recover()
            assert bench.now() == rehearsal.old, number
            assert bench.tree.status().unfinished is None
            bench.start()
            await scenario.again(bench.tree)
            assert bench.now() == rehearsal.new, number
            bench.start()
            await scenario.again(bench.tree)
            assert bench.driver.made == []

    asyncio.run(kills())


def states(tree: Tree, rehearsal: Rehearsal) -> dict[str, str]:
    """For each container of the resize: old, new, or between."""
    old, new = rehearsal.old, rehearsal.new
    return {
        path: "old" if tree[path] == old[path] else "new" if tree[path] == new[path] else "between"
        for path in old
        if old[path] != new[path] and "dba294ab" in path.rpartition("/")[0]
    }


@kinds
def test_a_resize_is_all_or_nothing_for_each_container(
    version: CgroupVersion, name: DriverName, state_dir: Path
) -> None:
    async def faults() -> None:
        rehearsal = Rehearsal(version, name, RESIZE, state_dir)
        await rehearsal.take()
        assert len(states(rehearsal.old, rehearsal)) == 2
        kept = 0
        for number in range(1, rehearsal.count + 1):
            code = _code(number)
            bench = rehearsal.bench()
            bench.driver.fail_at = {number: code}
            try:
                await RESIZE.deed(bench.tree)
            except StepError as error:
                assert not error.left
                kept += len(error.done)
                found = states(bench.now(), rehearsal)
                assert "between" not in found.values(), (number, code)
                assert {path for path in found if found[path] == "new"} == set(error.done)
            bench.start()
            await bench.tree.refresh()
            assert bench.now() == rehearsal.new, (number, code)
            bench.start()
            await bench.tree.refresh()
            assert bench.driver.made == []
        assert kept > 0

    asyncio.run(faults())


@kinds
def test_an_interrupted_resize_continues(version: CgroupVersion, name: DriverName, state_dir: Path) -> None:
    async def kills() -> None:
        rehearsal = Rehearsal(version, name, RESIZE, state_dir)
        await rehearsal.take()
        for number in range(1, rehearsal.count + 1):
            bench = rehearsal.bench()
            bench.driver.die_after = number
            with pytest.raises(Killed):
                await RESIZE.deed(bench.tree)
            bench.start()
            await bench.tree.recover()
            assert "between" not in states(bench.now(), rehearsal).values()
            await bench.tree.refresh()
            assert bench.now() == rehearsal.new, number
            bench.start()
            await bench.tree.refresh()
            assert bench.driver.made == []

    asyncio.run(kills())
