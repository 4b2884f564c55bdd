"""The eviction manager on a fake node: order of passes, conditions, waits, reclaim before eviction."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pytest

from plimsoll.node.pressure.decision_log import DecisionLog
from plimsoll.node.pressure.eviction_manager import EvictionConfig, EvictionManager
from plimsoll.node.pressure.signals import Observations, UsageThreshold
from plimsoll.rules.config.thresholds import Threshold, parsed_thresholds
from plimsoll.rules.eviction.assessment import Observation
from plimsoll.rules.eviction.decision import EvictionDecision, LimitFinding
from plimsoll.rules.eviction.usage import FsUsage, PodUsage
from plimsoll.rules.model.objects import Container, EmptyDir, Metadata, Pod, PodSpec, Volume
from plimsoll.rules.quantity import from_units, parse
from plimsoll.runtime.interface import RuntimeCallError

MIB = 1 << 20
CAPACITY = 1024 * MIB


class Node:
    """A node of 1 GiB: what its pods use is what is missing. An evicted pod's memory is free at once."""

    def __init__(self, **usage_mib: int) -> None:
        self.now_s = 1000.0
        self.used = {name: mib * MIB for name, mib in usage_mib.items()}
        self.evictions: list[tuple[str, float]] = []
        self.limited: list[LimitFinding] = []
        self.events: list[tuple[str, str, str]] = []
        self.reclaimable = 0
        self.volumes: dict[str, FsUsage] = {}
        self.spec = PodSpec((Container("c"),))
        self.condition_changes = 0
        self.reclaims_memory = False
        self.counted: list[str] = []
        self.leaving: dict[str, list[int]] = {}  # terminating pod → its grace periods
        self.walk_s = 0.0  # how long measuring disks takes
        self.reclaims: list[str] = []

    # SignalSource

    def memory(self) -> Observations:
        left = CAPACITY - sum(self.used.values())
        return {"memory.available": Observation(from_units(left, "BinarySI"), from_units(CAPACITY), self.now_s)}

    def others(self) -> Observations:
        return {"pid.available": Observation(parse("1000"), parse("4000"), self.now_s)}

    def usage_thresholds(self, thresholds: Iterable[Threshold]) -> set[UsageThreshold]:
        return set()

    # EvictionSink

    def event(self, kind: str, reason: str, message: str, /) -> None:
        self.events.append((kind, reason, message))

    def condition_changed(self) -> None:
        self.condition_changes += 1

    def evicted(self, signal: str, age_s: float, /) -> None:
        self.counted.append(signal)

    # EvictablePods

    def active(self) -> Sequence[Pod]:
        return [Pod(Metadata(name, "ns", name), self.spec) for name in self.used]

    async def usage(self, *, disks: bool) -> Mapping[str, PodUsage]:
        await asyncio.sleep(self.walk_s if disks else 0.0)
        return {name: PodUsage(used, volumes=self.volumes) for name, used in self.used.items()}

    async def evict(self, uid: str, decision: EvictionDecision) -> None:
        self.evictions.append((uid, decision.grace_s))
        del self.used[uid]

    def terminating(self) -> Sequence[Pod]:
        return [Pod(Metadata(name, "ns", name), self.spec) for name in self.leaving]

    async def one_terminated(self) -> None:
        raise AssertionError("not expected to be called")

    async def shorten_grace(self, uid: str, grace_s: int) -> None:
        self.leaving[uid].append(grace_s)

    async def evict_for_limit(self, finding: LimitFinding, grace_s: int) -> None:
        self.limited.append(finding)
        del self.used[finding.pod.metadata.uid]

    async def reclaim(self, action: str) -> None:
        """None of it can be done."""
        self.reclaims.append(action)
        raise RuntimeCallError("images", "deadline exceeded")

    async def reclaim_memory(self, wanted_bytes: int) -> int:
        gained = min(self.reclaimable, wanted_bytes) if self.reclaims_memory else 0
        largest = max(self.used, key=lambda name: self.used[name])
        self.used[largest] -= gained
        return gained


def loop(
    node: Node, thresholds: tuple[Threshold, ...], *, reclaims: bool = False, decisions: DecisionLog | None = None
) -> EvictionManager:
    node.reclaims_memory = reclaims
    config = EvictionConfig(thresholds, transition_period_s=300)
    return EvictionManager(
        node, node, config, node, clock=lambda: node.now_s, wall=lambda: node.now_s, decisions=decisions
    )


HARD = parsed_thresholds({"memory.available": "100Mi"})
SCRATCH = PodSpec((Container("c"),), volumes=(Volume("scratch", EmptyDir(size_limit=parse("10Mi"))),))


async def test_one_pod_per_pass_and_only_while_it_is_needed() -> None:
    node = Node(small=100, large=500, middle=400)
    pressure = loop(node, HARD)
    assert await pressure.sync()
    assert node.evictions == [("large", 1.0)]
    assert pressure.conditions == ("MemoryPressure",)
    assert node.events == [("Warning", "EvictionThresholdMet", "Attempting to reclaim memory")]
    node.now_s += 1
    assert not await pressure.sync()
    assert len(node.evictions) == 1
    assert pressure.decisions[0].order[1].name == "middle"
    assert node.counted == ["memory.available"]


async def test_the_first_decision_of_a_node_is_kept_in_its_file(tmp_path: Path) -> None:
    file = tmp_path / "evictions.jsonl"
    await loop(Node(large=1000), HARD, decisions=DecisionLog(file)).sync()
    assert [each.victim.name for each in DecisionLog(file) if each.victim is not None] == ["large"]


async def test_the_condition_lasts_for_the_transition_period_and_is_reported_twice() -> None:
    node = Node(large=1000)
    pressure = loop(node, HARD)
    await pressure.sync()
    node.now_s += 299
    await pressure.sync()
    assert (pressure.conditions, node.condition_changes) == (("MemoryPressure",), 1)
    node.now_s += 2
    await pressure.sync()
    assert (pressure.conditions, node.condition_changes) == ((), 2)


async def test_a_soft_threshold_waits_and_starts_again() -> None:
    node = Node(large=950)
    pressure = loop(node, parsed_thresholds({}, {"memory.available": "100Mi"}, {"memory.available": "90s"}))
    assert not await pressure.sync()
    assert pressure.conditions == ("MemoryPressure",)
    assert pressure.pause_s() <= 1.0
    node.now_s += 40
    node.used["large"] = 800 * MIB
    assert not await pressure.sync()
    node.now_s += 60
    node.used["large"] = 950 * MIB
    assert not await pressure.sync()
    node.now_s += 89
    assert not await pressure.sync()
    node.now_s += 1
    assert await pressure.sync()
    assert [uid for uid, _ in node.evictions] == ["large"]


@pytest.mark.parametrize(("reclaimable_mib", "evicted"), [(500, []), (10, ["large"])], ids=["enough", "too little"])
async def test_reclaim_comes_first(reclaimable_mib: int, evicted: list[str]) -> None:
    node = Node(large=950, small=10)
    node.reclaimable = reclaimable_mib * MIB
    assert await loop(node, HARD, reclaims=True).sync()
    assert [uid for uid, _ in node.evictions] == evicted


async def test_who_is_back_at_once_after_a_reclaim_is_evicted() -> None:
    node = Node(large=950)
    pressure = loop(node, HARD, reclaims=True)
    for later_s, evicted in ((0.0, []), (11.0, []), (0.5, ["large"])):
        node.now_s += later_s
        node.used["large"], node.reclaimable = 950 * MIB, 500 * MIB
        assert await pressure.sync()
        assert [uid for uid, _ in node.evictions] == evicted


async def test_a_pod_above_its_own_storage_limit_is_evicted_without_pressure() -> None:
    node = Node(filler=1)
    node.spec = SCRATCH
    node.volumes = {"scratch": FsUsage(11 * MIB, 3)}
    pressure = loop(node, HARD)
    assert pressure.limits is not None
    await pressure.limits.sync()
    assert [found.message for found in node.limited] == [
        'Usage of EmptyDir volume "scratch" exceeds the limit "10Mi". '
    ]
    assert node.counted == ["emptydirfs.limit"]
    assert (pressure.conditions, node.evictions) == ((), [])


async def test_several_pods_above_their_limits_go_at_once() -> None:
    node = Node(one=1, two=2)
    node.spec = SCRATCH
    node.volumes = {"scratch": FsUsage(11 * MIB, 3)}
    pressure = loop(node, HARD)
    assert pressure.limits is not None
    await pressure.limits.sync()
    assert [found.pod.metadata.name for found in node.limited] == ["one", "two"]


async def test_memory_does_not_wait_for_disks() -> None:
    """The loop itself, with a walk over the volumes that outlives the test."""
    node = Node(large=800, small=1)
    node.spec, node.walk_s = SCRATCH, 60.0
    pressure = loop(node, HARD)
    running = asyncio.create_task(pressure.run(None, "/kubepods"))
    try:
        await asyncio.sleep(0.05)  # the walk has started
        node.now_s, node.used["large"] = node.now_s + 10, 1000 * MIB
        async with asyncio.timeout(10.0):
            while True:
                if node.evictions:
                    break
                node.now_s += 0.01
                await asyncio.sleep(0.001)
        assert [uid for uid, _ in node.evictions] == ["large"]
    finally:
        running.cancel()
        await asyncio.wait([running])


async def test_memory_does_not_wait_for_what_is_done_about_a_full_disk() -> None:
    node = Node(large=500, small=1)
    node.walk_s = 60.0
    node.others = lambda: {"nodefs.available": Observation(parse("1"), parse("100Gi"), node.now_s)}  # type: ignore[method-assign]
    pressure = loop(node, parsed_thresholds({"memory.available": "100Mi", "nodefs.available": "10%"}))
    turning = asyncio.create_task(pressure.sync())
    try:
        await asyncio.sleep(0.05)  # the walk has started
        node.used["large"] = 1000 * MIB
        async with asyncio.timeout(10.0):
            while True:
                if node.evictions:
                    break
                node.now_s += 0.01
                await asyncio.sleep(0.001)
        assert not turning.done()
        assert [each.signal for each in pressure.decisions] == ["memory.available"]
        assert pressure.conditions == ("MemoryPressure", "DiskPressure")
        assert len(node.reclaims) == 2  # once, however many passes there were
    finally:
        turning.cancel()
        await asyncio.wait([turning])


async def test_process_numbers_do_not_wait_for_disks() -> None:
    node = Node(one=1)
    node.walk_s = 60.0
    async with asyncio.timeout(10.0):
        assert await loop(node, parsed_thresholds({"pid.available": "2000"})).sync()
    assert [uid for uid, _ in node.evictions] == ["one"]


async def test_a_terminating_pod_is_waited_for_before_another_is_chosen() -> None:
    node = Node(large=1000)
    node.leaving["victim"] = []
    pressure = loop(node, HARD)
    for _ in range(3):
        node.now_s += 1
        assert not await pressure.sync()
    assert (node.evictions, node.events) == ([], [])
    assert node.leaving == {"victim": [1, 1, 1]}
    assert pressure.conditions == ("MemoryPressure",)
    node.leaving.clear()
    node.now_s += 1
    assert await pressure.sync()
    assert [uid for uid, _ in node.evictions] == ["large"]


async def test_who_is_ending_is_known_only_after_the_runtime_was_asked() -> None:
    node = Node(large=1000)

    async def usage(*, disks: bool) -> Mapping[str, PodUsage]:
        node.leaving.setdefault("victim", [])
        return {}

    node.usage = usage  # type: ignore[method-assign]
    assert not await loop(node, HARD).sync()
    assert node.evictions == []


async def test_what_cannot_be_reclaimed_leaves_the_choice_of_a_pod() -> None:
    node = Node(one=1, two=2)
    node.others = lambda: {"nodefs.available": Observation(parse("1"), parse("100Gi"), node.now_s)}  # type: ignore[method-assign]
    assert await loop(node, parsed_thresholds({"nodefs.available": "10%"})).sync()
    assert node.reclaims == ["delete dead containers", "delete unused images"]
    assert len(node.evictions) == 1


async def test_everybody_is_exempt() -> None:
    node = Node(critical=1000)
    node.spec = PodSpec((Container("c"),), priority=2_000_000_000)
    pressure = loop(node, HARD)
    assert not await pressure.sync()
    assert node.evictions == []
    assert pressure.pause_s() <= 1.0


async def test_without_candidates_eviction_retries_after_ten_seconds_or_with_a_new_pod() -> None:
    node = Node(critical=1000)
    node.spec = PodSpec((Container("c"),), priority=2_000_000_000)
    pressure = loop(node, HARD)
    until_s = node.now_s + 30
    while node.now_s < until_s:
        assert not await pressure.sync()
        assert pressure.pause_s() <= 1.0
        node.now_s += pressure.pause_s()
    assert len(node.events) == 3
    node.used["another"] = MIB
    node.spec = PodSpec((Container("c"),))
    assert await pressure.sync()
    assert len(node.events) == 4


async def test_an_idle_node_is_not_polled_often() -> None:
    node = Node()
    node.used = {}
    pressure = loop(node, HARD)
    assert not await pressure.sync()
    assert pressure.pause_s() > 1.0
