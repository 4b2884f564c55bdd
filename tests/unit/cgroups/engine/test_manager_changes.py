"""The cgroup manager: resizes, plans, interrupted transactions and recovery."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from plimsoll.cgroups.drivers.simulated import SimulatedKernel
from plimsoll.cgroups.engine.journal import Journal, StateWriteError
from plimsoll.cgroups.engine.manager import CgroupManager, UnfinishedError
from plimsoll.cgroups.engine.ownership import OtherNodeError
from plimsoll.cgroups.engine.shrink import ShrinkError
from plimsoll.errors import InvalidNameError, PlimsollError
from plimsoll.rules.cgroups.steps import Make, Remove, Step, Write
from plimsoll.rules.model.kernel import CgroupVersion
from plimsoll.rules.node.node_config import resolved
from plimsoll.rules.quantity import parse
from tests.faulty_driver import Killed
from tests.node_scenarios import (
    BEST_EFFORT,
    BURSTABLE,
    GUARANTEED,
    PODS,
    RESERVED,
    RESIZED,
    node_setting,
    pod,
    sized,
    tree_now,
)
from tests.unit.cgroups.engine.managed_node import BURSTABLE_POD, MI, TOP, Node


def test_a_missing_file_is_reported_even_if_only_the_write_shows_it(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.kernel = SimulatedKernel(2, swap=False, lacking={"memory.oom.group": "too old"})
    node.driver.inner = node.kernel
    asyncio.run(node.kernel.make(RESERVED))
    node.driver.has = lambda file: None  # type: ignore[method-assign]  # as before the first cgroup exists
    applied = asyncio.run(node.tree.add([BURSTABLE]))
    assert {each.file for each in applied.unmet} == {"memory.oom.group"} and "too old" in str(applied.unmet[0])
    node.driver.made.clear()
    node.run(lambda tree: tree.refresh())
    assert node.driver.made == []


@pytest.mark.parametrize("version", [2, 1], ids=["v2", "v1"])
def test_the_limit_of_a_class_is_not_below_its_usage(tmp_path: Path, version: CgroupVersion) -> None:
    """qosReserved would take memory from BestEffort pods that they have in use (02 §8.5)."""
    node = Node(tmp_path, version)
    file = "memory.max" if version == 2 else "memory.limit_in_bytes"
    node.run(lambda tree: tree.add([BEST_EFFORT]))
    used = 7000 * MI
    container = node.tree.paths(BEST_EFFORT.metadata.uid)["web"]
    pid = node.kernel.spawn(container)
    node.kernel.use(container, anon_bytes=used)
    applied = asyncio.run(node.tree.add([pod(7, big=sized("1", "4Gi"))]))
    wanted_bytes = (8192 - 256 - 2048) * MI
    assert node.text(f"{TOP}/besteffort", file) == str(used) and node.kernel.members(container) == [pid]
    assert [(each.path, each.want, each.have) for each in applied.unmet] == [
        (f"{TOP}/{name}", str(wanted_bytes), str(used)) for name in ("besteffort",)
    ]
    node.kernel.use(container, anon_bytes=MI)
    node.run(lambda tree: tree.refresh())
    assert node.text(f"{TOP}/besteffort", file) == str(wanted_bytes) and node.tree.status().unmet == ()


def test_protection_that_an_ancestor_caps_is_reported(tmp_path: Path) -> None:
    node = Node(tmp_path)
    asyncio.run(node.kernel.make("/plimsoll-test"))  # foreign, so it is not changed
    applied = asyncio.run(node.tree.add([GUARANTEED]))
    assert [str(each) for each in applied.unmet] == [
        f"/plimsoll-test memory.min: want {96 * MI}, have 0 "
        "(this cgroup is not owned by Plimsoll, and it caps the protection of all pods)"
    ]
    node.run(lambda tree: tree.teardown())
    assert node.kernel.children("/") == ["plimsoll-reserved", "plimsoll-test"]


def test_a_resize_that_does_not_fit_is_refused_without_killing(tmp_path: Path) -> None:
    async def no_time(_: float) -> None:
        node.seconds += 5

    node = Node(tmp_path)
    node.seconds = 0.0  # type: ignore[attr-defined]
    node.run(lambda tree: tree.add([BURSTABLE]))
    log = node.tree.paths(BURSTABLE.metadata.uid)["log"]
    pid = node.kernel.spawn(log)
    node.kernel.use(log, anon_bytes=50 * MI)
    before = tree_now(node.kernel, (log,))
    node.tree = node.another(clock=lambda: node.seconds, sleep=no_time)  # type: ignore[attr-defined]
    with pytest.raises(PlimsollError, match=r"50\.0 MiB are still in use after"):
        node.run(lambda tree: tree.resize(RESIZED))
    lowered = {**before[log], "memory.max": str(54 * MI)}
    assert node.kernel.members(log) == [pid] and tree_now(node.kernel, (log,)) == {**before, log: lowered}
    node.kernel.use(log, anon_bytes=5 * MI)
    node.run(lambda tree: tree.refresh())
    assert node.text(log, "memory.max") == str(32 * MI) and node.tree.status().drift == ()


def test_as_kubernetes_a_resize_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.run(lambda tree: tree.add([BURSTABLE]))
    log = node.tree.paths(BURSTABLE.metadata.uid)["log"]
    node.kernel.spawn(log)
    node.kernel.use(log, anon_bytes=50 * MI)
    node.tree = node.another(shrink="kubernetes")
    node.driver.made.clear()
    with pytest.raises(ShrinkError, match='cannot decrease memory limits: attempting to set container "log"'):
        node.run(lambda tree: tree.resize(RESIZED))
    assert node.driver.made == [] and node.tree.status().drift == ()


@pytest.mark.parametrize("version", [2, 1], ids=["v2", "v1"])
@pytest.mark.parametrize("shrink", ["safe", "kubernetes"])
def test_recovery_does_not_lower_a_limit_that_is_in_use(tmp_path: Path, version: CgroupVersion, shrink: str) -> None:
    async def no_time(_: float) -> None:
        seconds[0] += 5

    seconds = [0.0]
    file = "memory.max" if version == 2 else "memory.limit_in_bytes"
    node = Node(tmp_path, version)
    node.run(lambda tree: tree.add([BURSTABLE]))
    web = node.tree.paths(BURSTABLE.metadata.uid)["web"]
    pid = node.kernel.spawn(web)
    raised = (Write(web, file, str(192 * MI)), Write(web, file, str(192 * MI), str(128 * MI)))

    def die_when_raised(step: Step) -> None:
        if step in raised:
            raise Killed

    node.driver.after_each = die_when_raised
    with pytest.raises(Killed):
        node.run(lambda tree: tree.resize(RESIZED))
    node.driver.after_each = None
    node.kernel.use(web, anon_bytes=150 * MI)
    node.tree = node.another(clock=lambda: seconds[0], sleep=no_time, shrink=shrink)
    unfinished = node.tree.status().unfinished
    assert unfinished is not None and unfinished.subject == "pod shop/p2"
    node.run(lambda tree: tree.refresh())
    assert node.kernel.members(web) == [pid] and node.text(web, file) == str(192 * MI)
    assert node.tree.status().unfinished is None and node.tree.status().drift == ()


def test_only_a_known_pod_can_be_resized(tmp_path: Path) -> None:
    with pytest.raises(InvalidNameError, match="add it first"):
        Node(tmp_path).run(lambda tree: tree.resize(RESIZED))


def test_a_plan_changes_nothing(tmp_path: Path) -> None:
    node = Node(tmp_path)
    steps = node.tree.plan(PODS).steps
    assert node.driver.made == [] and not (tmp_path / "node.jsonl").exists()
    assert asyncio.run(node.tree.add(PODS)).steps == steps


@pytest.mark.parametrize("name", ["another container", "another class"])
def test_a_plan_names_what_would_be_removed(tmp_path: Path, name: str) -> None:
    node = Node(tmp_path)
    node.run(lambda tree: tree.add([BURSTABLE]))
    if name == "another class":
        changed = msgspec.structs.replace(BEST_EFFORT, metadata=BURSTABLE.metadata)
    else:
        kept = msgspec.structs.replace(BURSTABLE.spec, containers=BURSTABLE.spec.containers[:1])
        changed = msgspec.structs.replace(BURSTABLE, spec=kept)
    steps = node.tree.plan([changed]).steps
    assert any(isinstance(step, Remove) for step in steps)
    assert asyncio.run(node.tree.add([changed])).steps == steps


def _elsewhere(node: Node) -> CgroupManager:
    setting = node.setting
    config = msgspec.structs.replace(setting.config, cgroup_root="/plimsoll-test/elsewhere")
    return CgroupManager(node.driver, resolved(setting.machine, config, setting.profile), node.state_dir)


@pytest.mark.parametrize(
    "deed",
    [
        lambda tree: tree.setup(),
        lambda tree: tree.add([GUARANTEED]),
        lambda tree: tree.remove(BURSTABLE.metadata.uid),
        lambda tree: tree.refresh(),
        lambda tree: tree.teardown(),
    ],
    ids=["setup", "add", "remove", "refresh", "teardown"],
)
def test_a_state_directory_belongs_to_one_node(
    tmp_path: Path, deed: Callable[[CgroupManager], Awaitable[object]]
) -> None:
    """The pods of one node say nothing about cgroups at another path: nothing is made, forgotten or removed."""
    node = Node(tmp_path)
    node.run(lambda tree: tree.add([BURSTABLE]))
    before, made = tree_now(node.kernel, ("/plimsoll-test",)), len(node.driver.made)
    other = _elsewhere(node)
    with pytest.raises(OtherNodeError, match=f"the node at {TOP}, not of one at /plimsoll-test/elsewhere/kubepods"):
        node.tree = other
        node.run(deed)
    assert "--state-dir" in other.status().refusal and len(node.driver.made) == made
    assert tree_now(node.kernel, ("/plimsoll-test",)) == before and list(other.known()) == [BURSTABLE.metadata.uid]


def test_a_node_may_move_once_the_first_is_removed(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.run(lambda tree: tree.setup(), lambda tree: tree.teardown())
    other = _elsewhere(node)
    asyncio.run(other.setup())
    assert other.status().is_set_up


def test_an_interrupted_first_set_up_is_not_foreign(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.driver.die_after = 4
    with pytest.raises(Killed):
        node.run(lambda tree: tree.setup())
    node.driver.die_after = None
    node.tree = node.another()
    found = node.tree.status()
    assert found.unfinished is not None and not found.refusal and not found.in_progress
    with pytest.raises(UnfinishedError, match="an earlier run of node set-up was interrupted"):
        node.tree.plan()
    node.run(lambda tree: tree.setup())
    assert node.tree.status().is_set_up and node.tree.status().drift == ()


def test_an_unfinished_plan_of_an_earlier_boot_is_void(tmp_path: Path) -> None:
    node = Node(tmp_path)
    Journal(tmp_path / "journal.jsonl").begin("pod shop/old", "an earlier boot", [Make(TOP)], {})
    assert node.tree.status().unfinished is None
    node.tree.plan()


def test_status_reports_an_open_transaction(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.run(lambda tree: tree.setup())
    with Journal(tmp_path / "journal.jsonl").locked():
        assert node.another().status().in_progress
    assert not node.another().status().in_progress


@pytest.mark.parametrize(
    ("deed", "after"), [("add", 1), ("add", 5), ("add", 12), ("teardown", 1), ("teardown", 3), ("teardown", 5)]
)
def test_a_cancelled_transaction_is_rolled_back(tmp_path: Path, deed: str, after: int) -> None:
    node = Node(tmp_path)
    node.run(lambda tree: tree.add([GUARANTEED]))
    before = tree_now(node.kernel, ("/plimsoll-test",))
    made = len(node.driver.made)

    async def cancelled() -> None:
        task = asyncio.ensure_future(node.tree.add([BURSTABLE, BEST_EFFORT]) if deed == "add" else node.tree.teardown())

        def cancel(_: Step) -> None:
            if len(node.driver.made) == made + after:
                task.cancel()

        node.driver.after_each = cancel
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    node.driver.after_each = None
    assert tree_now(node.kernel, ("/plimsoll-test",)) == before
    status = node.another().status()
    assert status.unfinished is None and status.drift == () and status.is_set_up


def test_a_full_disk_rolls_the_plan_back(tmp_path: Path) -> None:
    node = Node(tmp_path)
    (tmp_path / "node.new").mkdir()  # where the state is written before it replaces the old one
    with pytest.raises(StateWriteError, match=r"node\.jsonl cannot be written"):
        node.run(lambda tree: tree.setup())
    assert node.kernel.read(TOP, ()) is None and node.tree.status().unfinished is None
    (tmp_path / "node.new").rmdir()
    node.run(lambda tree: tree.setup())
    assert node.tree.status().is_set_up


def test_several_pods_are_removed_in_one_transaction(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.run(lambda tree: tree.add(PODS))
    gone = asyncio.run(node.tree.remove(*(each.metadata.uid for each in PODS)))
    assert gone.subject.count("pod ") == len(PODS) and node.tree.known() == {}
    assert node.kernel.read(BURSTABLE_POD, ()) is None


def test_without_cgroups_per_qos_there_is_nothing_to_set_up(tmp_path: Path) -> None:
    setting = node_setting(2, "cgroupfs")
    config = msgspec.structs.replace(
        setting.config, cgroups_per_qos=False, enforce_node_allocatable=(), system_reserved={"cpu": parse("1")}
    )
    node = Node(tmp_path, setting=resolved(setting.machine, config, setting.profile))
    assert asyncio.run(node.tree.add(PODS)).steps == ()
