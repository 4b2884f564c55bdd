"""The engine's plans on the simulated kernel: complete, nothing twice, and safe after every single step."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.cgroups.drivers.simulated import SimulatedHolders, SimulatedKernel
from plimsoll.cgroups.engine.observe import files_to_read, observe
from plimsoll.rules.cgroups.desired import Shown, desired_tree, workload
from plimsoll.rules.cgroups.desired_files import DesiredCgroup, DesiredFiles, derived_id, parent_path, protected, wanted
from plimsoll.rules.cgroups.limits_in_use import fitted
from plimsoll.rules.cgroups.reconcile import LIMIT_V1, QUOTA_V1, Plan, amount, reconcile
from plimsoll.rules.cgroups.rollback import completed, undo, undo_halves
from plimsoll.rules.cgroups.rounding import same_value
from plimsoll.rules.cgroups.steps import Make, ObservedCgroup, Remove, Snapshot, Step, Write
from plimsoll.rules.node.node_config import NodeConfig
from tests.node_scenarios import node_setting, pod, sized
from tests.unit.strategies import lean, node_settings, valid_pods

UIDS = [f"dba294ab-05fe-4314-a6d0-00000000000{digit}" for digit in range(4)]


def kernel_of(setting: NodeConfig) -> SimulatedKernel:
    return SimulatedKernel(
        setting.policy.cgroup_version,
        setting.driver,
        page_size=setting.machine.page_size,
        hugepage_sizes=setting.policy.hugepage_sizes,
        swap=setting.machine.swap_controller,
    )


def wanted_of(documents: Iterable[dict[str, Any]], setting: NodeConfig) -> dict[str, DesiredCgroup]:
    works = [workload(lean(document), setting) for document in documents]
    plan = wanted(desired_tree(works, setting, Shown(container_id=derived_id)))
    full = protected(plan, [path for path, each in plan.items() if each.level == "root"])
    return dict(fitted(full, {}).plan)


async def prepared(kernel: SimulatedKernel, plan: DesiredFiles) -> None:
    """The reserved cgroups must exist before; no plan creates them."""
    for path, each in plan.items():
        if each.level == "reserved" and kernel.read(path, ()) is None:
            await kernel.make(path)


async def carry_out(kernel: SimulatedKernel, steps: Iterable[Step], after_each: Any = None) -> None:
    holders = SimulatedHolders(kernel)
    for step in steps:
        match step:
            case Make(path):
                await kernel.make(path, pid=holders.start(path) if path.endswith(".scope") else None)
            case Remove(path):
                await kernel.kill(path)
                if kernel.read(path, ()) is not None:
                    await kernel.remove(path)
            case Write(path, file, value):
                await kernel.write(path, file, value)
        if after_each is not None:
            after_each()


def planned(kernel: SimulatedKernel, plan: DesiredFiles, setting: NodeConfig, ours: Iterable[str] = ()) -> Plan:
    files = files_to_read(plan, kernel.version)
    snapshot = observe(kernel, {*plan, *ours}, files)
    lacking = {file: reason for file in files if (reason := kernel.has(file))}
    return reconcile(plan, snapshot, ours=list(ours), lacking=lacking, page_size=setting.machine.page_size)


@settings(deadline=None)
@given(st.lists(valid_pods(), max_size=4, unique_by=lambda each: each["metadata"]["uid"]), node_settings())
def test_from_nothing_everything_is_as_wanted_and_a_second_plan_is_empty(
    documents: list[dict[str, Any]], setting: NodeConfig
) -> None:
    async def scenario() -> None:
        kernel, plan = kernel_of(setting), wanted_of(documents, setting)
        await prepared(kernel, plan)
        first = planned(kernel, plan, setting)
        await carry_out(kernel, first.steps)
        missed = {(each.path, each.file): each.have for each in first.unmet}
        for path, cgroup in plan.items():
            seen = kernel.read(path, cgroup.files)
            assert seen is not None
            for file, text in cgroup.files.items():
                if (path, file) in missed:
                    assert seen.files.get(file) == missed[path, file]
                else:
                    assert same_value(file, text, seen.files[file], setting.machine.page_size), (path, file, text)
        assert planned(kernel, plan, setting).steps == ()

    asyncio.run(scenario())


@st.composite
def two_plans(draw: st.DrawFn) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The same few uids before and after: pods that stay, change, change class, come and go."""

    def some() -> list[dict[str, Any]]:
        found = []
        for uid in UIDS:
            if draw(st.integers(0, 3)):
                document = draw(valid_pods())
                document["metadata"]["uid"] = uid
                found.append(document)
        return found

    return some(), some()


class Moments:
    """What must hold after every step of the way from one plan to another."""

    def __init__(self, kernel: SimulatedKernel, old: DesiredFiles, new: DesiredFiles, page_size: int) -> None:
        self.kernel = kernel
        self.page_size = page_size
        self.paths = {**old, **new}
        self.old, self.new = old, new
        self.before: Mapping[str, Mapping[str, float]] = {}
        self.count = 0

    def values(self) -> dict[str, dict[str, float]]:
        found = {}
        names = ("memory.max", LIMIT_V1, "memory.min", "memory.low")
        for path in self.paths:
            seen = self.kernel.read(path, (*names, "cpu.max", QUOTA_V1, "cpu.cfs_period_us"))
            if seen is None:
                continue
            values = {
                name: amount(name, text, self.page_size)
                for name, text in seen.files.items()
                if name in (*names, "cpu.max")
            }
            if QUOTA_V1 in seen.files:
                quota = int(seen.files[QUOTA_V1])
                values["cpu.max"] = quota / int(seen.files["cpu.cfs_period_us"]) if quota >= 0 else math.inf
            found[path] = values
        return found

    def broken(self, now: Mapping[str, Mapping[str, float]]) -> set[tuple[str, ...]]:
        found: set[tuple[str, ...]] = set()
        for path, values in now.items():
            level = self.paths[path].level
            if level == "container":
                above = now[parent_path(path)]
                for name in ("memory.max", LIMIT_V1, "cpu.max"):
                    if above.get(name, math.inf) < values.get(name, 0) < math.inf:  # `max` is no limit of its own
                        found.add((path, name))
            if level in ("pods", "class"):
                for name in ("memory.min", "memory.low"):
                    below = [each for other, each in now.items() if parent_path(other) == path]
                    if name in values and values[name] < sum(each[name] for each in below):
                        found.add((path, name))
        return found

    def check(self, allowed: set[tuple[str, ...]]) -> None:
        self.count += 1
        assert self.broken(self.values()) - allowed == set()


async def rehearsed(old: DesiredFiles, steps: Iterable[Step], setting: NodeConfig) -> SimulatedKernel:
    """Another kernel on which all of it has happened: what is broken in the end is so by the new plan itself."""
    kernel = kernel_of(setting)
    await prepared(kernel, old)
    await carry_out(kernel, planned(kernel, old, setting).steps)
    await carry_out(kernel, steps)
    return kernel


@settings(deadline=None)
@given(two_plans(), node_settings())
def test_on_the_way_from_one_plan_to_another_no_moment_is_unsafe(
    plans: tuple[list[dict[str, Any]], list[dict[str, Any]]], setting: NodeConfig
) -> None:
    async def scenario() -> None:
        kernel = kernel_of(setting)
        old, new = (wanted_of(documents, setting) for documents in plans)
        await prepared(kernel, old)
        await carry_out(kernel, planned(kernel, old, setting).steps)
        moments = Moments(kernel, old, new, setting.machine.page_size)
        plan = planned(kernel, new, setting, ours=[path for path in old if path not in new])
        end = await rehearsed(old, plan.steps, setting)
        allowed = moments.broken(moments.values()) | moments.broken(
            Moments(end, old, new, setting.machine.page_size).values()
        )
        await carry_out(kernel, plan.steps, lambda: moments.check(allowed))
        assert moments.count == len(plan.steps)
        assert planned(kernel, new, setting, ours=[path for path in old if path not in new]).steps == ()

    asyncio.run(scenario())


@settings(deadline=None)
@given(two_plans(), node_settings(), st.data())
def test_the_way_back_leads_back_from_anywhere(
    plans: tuple[list[dict[str, Any]], list[dict[str, Any]]], setting: NodeConfig, data: st.DataObject
) -> None:
    async def scenario() -> None:
        kernel = kernel_of(setting)
        old, new = (wanted_of(documents, setting) for documents in plans)
        await prepared(kernel, old)
        await carry_out(kernel, planned(kernel, old, setting).steps)
        files, paths = files_to_read({**old, **new}, kernel.version), {*old, *new}
        going = [path for path in old if path not in new]
        before = observe(kernel, paths, files)
        steps = planned(kernel, new, setting, ours=going).steps
        made = steps[: data.draw(st.integers(0, len(steps)))]
        await carry_out(kernel, made)
        back = undo(steps, before, observe(kernel, paths, files), setting.machine.page_size)
        await carry_out(kernel, back)
        after = observe(kernel, paths, files)
        assert _texts(after) == _texts(before)
        assert undo(steps, before, after, setting.machine.page_size) == ()

    asyncio.run(scenario())


def _texts(snapshot: Snapshot) -> dict[str, Mapping[str, str]]:
    return {path: seen.files for path, seen in snapshot.items()}


@pytest.mark.parametrize("limit", ["", "1Gi"], ids=["Guaranteed", "Burstable"])
@pytest.mark.parametrize("last", [200, 100, 400], ids=["same-sum", "less", "more"])
def test_protection_moves_between_pods_and_never_exceeds_what_stands_above(limit: str, last: int) -> None:
    """One pod shrinks while others grow: the sum of their memory.min or memory.low fits at every moment."""

    def plan_of(*mebibytes: int) -> dict[str, DesiredCgroup]:
        pods = [pod(n, app=sized("1", f"{each}Mi", "1", limit)) for n, each in enumerate(mebibytes)]
        works = [workload(each, setting) for each in pods]
        return protected(wanted(desired_tree(works, setting, Shown(container_id=derived_id))), ["/plimsoll-test"])

    async def scenario() -> None:
        kernel = kernel_of(setting)
        old, new = plan_of(100, 300, 200), plan_of(300, 100, last)
        await prepared(kernel, old)
        await carry_out(kernel, planned(kernel, old, setting).steps)
        moments = Moments(kernel, old, new, setting.machine.page_size)
        moments.check(set())
        await carry_out(kernel, planned(kernel, new, setting).steps, lambda: moments.check(set()))
        assert moments.count > 6 and planned(kernel, new, setting).steps == ()

    setting = node_setting(2, "cgroupfs")
    asyncio.run(scenario())


# --- single rules ---

POD, APP = "/kubepods/podx", "/kubepods/podx/app"


def two_levels(pod: dict[str, str], app: dict[str, str]) -> dict[str, DesiredCgroup]:
    return {POD: DesiredCgroup("pod", "x", pod), APP: DesiredCgroup("container", "app", app)}


def found(pod: dict[str, str], app: dict[str, str]) -> dict[str, ObservedCgroup]:
    return {POD: ObservedCgroup(pod, 1), APP: ObservedCgroup(app, 2)}


def lines(steps: Sequence[Step]) -> list[str]:
    return [f"{step.path.rpartition('/')[2]} {step.file}={step.value}" for step in steps if isinstance(step, Write)]


ROWS: dict[str, tuple[dict[str, str], dict[str, str], dict[str, str], dict[str, str], list[str]]] = {
    "raising-pod-first": (
        {"memory.max": "4096"}, {"memory.max": "4096"}, {"memory.max": "8192"}, {"memory.max": "8192"},
        ["podx memory.max=8192", "app memory.max=8192"],
    ),
    "lowering-container-first": (
        {"memory.max": "8192"}, {"memory.max": "8192"}, {"memory.max": "4096"}, {"memory.max": "4096"},
        ["app memory.max=4096", "podx memory.max=4096"],
    ),
    "no-limit-is-the-largest": (
        {"memory.max": "max"}, {"memory.max": "max"}, {"memory.max": "4096"}, {"memory.max": "4096"},
        ["app memory.max=4096", "podx memory.max=4096"],
    ),
    "memory-before-cpu": (
        {"cpu.max": "1000 100000", "memory.max": "4096"}, {"cpu.max": "1000 100000", "memory.max": "4096"},
        {"cpu.max": "2000 100000", "memory.max": "8192"}, {"cpu.max": "2000 100000", "memory.max": "8192"},
        ["podx memory.max=8192", "app memory.max=8192", "podx cpu.max=2000 100000", "app cpu.max=2000 100000"],
    ),
    "cpu-by-share-of-the-period": (
        {"cpu.max": "2000 100000"}, {"cpu.max": "2000 100000"}, {"cpu.max": "1500 50000"}, {"cpu.max": "1500 50000"},
        ["podx cpu.max=1500 50000", "app cpu.max=1500 50000"],
    ),
    "whole-pages-are-the-same": ({"memory.max": "4096"}, {"memory.max": "4096"}, {"memory.max": "4097"}, {"memory.max": "8191"}, []),
    "a-pod-keeps-its-limit": ({"memory.max": "4096"}, {"memory.max": "4096"}, {}, {}, ["app memory.max=max"]),
    "memory-high-is-reset": ({}, {"memory.high": "4096"}, {}, {}, ["app memory.high=max"]),
    "protection-is-reset": ({"memory.min": "4096"}, {"memory.min": "4096"}, {}, {}, ["app memory.min=0", "podx memory.min=0"]),
    "memsw-first-when-raised": (
        {}, {"memory.limit_in_bytes": "4096", "memory.memsw.limit_in_bytes": "4096"},
        {}, {"memory.limit_in_bytes": "8192", "memory.memsw.limit_in_bytes": "8192"},
        ["app memory.memsw.limit_in_bytes=8192", "app memory.limit_in_bytes=8192"],
    ),
    "memsw-last-when-lowered": (
        {}, {"memory.limit_in_bytes": "8192", "memory.memsw.limit_in_bytes": "8192"},
        {}, {"memory.limit_in_bytes": "4096", "memory.memsw.limit_in_bytes": "4096"},
        ["app memory.limit_in_bytes=4096", "app memory.memsw.limit_in_bytes=4096"],
    ),
    "first-quota-after-its-period": (
        {}, {"cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000"},
        {}, {"cpu.cfs_quota_us": "5000", "cpu.cfs_period_us": "50000"},
        ["app cpu.cfs_period_us=50000", "app cpu.cfs_quota_us=5000"],
    ),
    "container-passes-below-with-a-shorter-period": (
        {}, {"cpu.cfs_quota_us": "5000", "cpu.cfs_period_us": "100000"},
        {}, {"cpu.cfs_quota_us": "4000", "cpu.cfs_period_us": "50000"},
        ["app cpu.cfs_quota_us=4000", "app cpu.cfs_period_us=50000"],
    ),
    "pod-passes-above-with-a-shorter-period": (
        {"cpu.cfs_quota_us": "5000", "cpu.cfs_period_us": "100000"}, {},
        {"cpu.cfs_quota_us": "4000", "cpu.cfs_period_us": "50000"}, {},
        ["podx cpu.cfs_period_us=50000", "podx cpu.cfs_quota_us=4000"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("pod_has", "app_has", "pod", "app", "expected"), ROWS.values(), ids=ROWS.keys())
def test_order(
    pod_has: dict[str, str], app_has: dict[str, str], pod: dict[str, str], app: dict[str, str], expected: list[str]
) -> None:
    assert lines(reconcile(two_levels(pod, app), found(pod_has, app_has)).steps) == expected


def test_siblings_shrink_in_reverse_order_before_others_grow_in_order() -> None:
    names, old, new = "abcd", (1, 9, 5, 2), (3, 5, 2, 6)
    plan = {
        f"{POD}/{name}": DesiredCgroup("container", name, {"memory.max": str(n * 4096)})
        for name, n in zip(names, new, strict=True)
    }
    there = {f"{POD}/{name}": ObservedCgroup({"memory.max": str(n * 4096)}) for name, n in zip(names, old, strict=True)}
    assert [step.path[-1] for step in reconcile(plan, there).steps] == ["c", "b", "a", "d"]


def test_what_the_kernel_lacks_is_named_not_planned() -> None:
    plan = two_levels({"memory.swap.max": "0"}, {"memory.swap.max": "0", "memory.max": "4096"})
    outcome = reconcile(plan, {POD: ObservedCgroup({})}, lacking={"memory.swap.max": "no swap here"})
    assert outcome.steps == (Make(APP), Write(APP, "memory.max", "4096"))
    assert [str(each) for each in outcome.unmet] == [
        f"{POD} memory.swap.max: want 0, have nothing (no swap here)",
        f"{APP} memory.swap.max: want 0, have nothing (no swap here)",
    ]


def test_only_ours_is_removed_and_children_first() -> None:
    there = {path: ObservedCgroup({}) for path in ("/kubepods", POD, APP, "/kubepods/foreign")}
    steps = reconcile({"/kubepods": DesiredCgroup("pods", "", {})}, there, ours=[POD, APP]).steps
    assert steps == (Remove(APP), Remove(POD))


@pytest.mark.parametrize(
    ("has", "pod_has", "pod_shall", "first"),
    [
        ("60000", "70000", "20000", [Write(APP, QUOTA_V1, "-1", "60000")]),
        ("60000", "-1", "20000", [Write(APP, QUOTA_V1, "-1", "60000")]),
        ("20000", "70000", "20000", []),
        ("-1", "70000", "20000", []),
    ],
    ids=["above-what-the-pod-keeps", "the-pods-first-quota", "no-more-than-the-pod-keeps", "no-quota"],
)
def test_what_goes_from_a_pod_that_becomes_smaller_loses_its_quota_first(
    has: str, pod_has: str, pod_shall: str, first: list[Step]
) -> None:
    """The kernel counts a removed cgroup for a while yet."""
    plan, period = {POD: DesiredCgroup("pod", "x", {QUOTA_V1: pod_shall})}, {"cpu.cfs_period_us": "100000"}
    there = found({QUOTA_V1: pod_has, **period}, {QUOTA_V1: has, **period})
    steps = reconcile(plan, there, ours=[APP]).steps
    assert steps == (*first, Remove(APP), Write(POD, QUOTA_V1, pod_shall, pod_has))


def test_on_the_way_back_too() -> None:
    steps = (Write(POD, QUOTA_V1, "70000", "20000"), Make(APP), Write(APP, QUOTA_V1, "60000"))
    period = {"cpu.cfs_period_us": "100000"}
    for has, first in (("60000", [Write(APP, QUOTA_V1, "-1", "60000")]), ("-1", [])):
        now = found({QUOTA_V1: "70000", **period}, {QUOTA_V1: has, **period})
        assert undo(steps, {}, now) == (*first, Remove(APP), Write(POD, QUOTA_V1, "20000", "70000"))


def test_a_resize_takes_back_the_half_done_container_and_keeps_the_others() -> None:
    one, two = f"{POD}/one", f"{POD}/two"
    steps = (
        Write(one, "memory.max", "4096", "8192"),
        Write(two, "memory.max", "4096", "8192"),
        Write(POD, "memory.max", "8192", "16384"),
        Write(one, "cpu.weight", "5", "10"),
        Write(two, "cpu.weight", "5", "10"),
    )
    small = {"memory.max": "4096", "cpu.weight": "5"}
    now = {
        POD: ObservedCgroup({"memory.max": "8192"}),
        one: ObservedCgroup(small),
        two: ObservedCgroup({**small, "cpu.weight": "10"}),
    }
    assert completed(steps, (one, two), now) == (one,)
    assert undo_halves(steps, (one, two), {}, now) == (
        Write(POD, "memory.max", "16384", "8192"),
        Write(two, "memory.max", "8192", "4096"),
    )
