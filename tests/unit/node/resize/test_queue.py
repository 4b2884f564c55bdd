"""Pending resizes: verdicts in order, one checkpoint, events; and the node's part of the timeline of 03 §5."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from plimsoll.codec.lean.runnable import run_pod_from_json
from plimsoll.node.checkpoint import Checkpoint
from plimsoll.node.metrics import NodeMeters
from plimsoll.node.pods.allocated import Allocated
from plimsoll.node.resize import queue
from plimsoll.node.resize.queue import ResizeDecision, Resizes
from plimsoll.rules.model.gates import Gates
from plimsoll.rules.model.objects import Metadata, Node, NodeStatus
from plimsoll.rules.model.observed import LifecycleEvent
from plimsoll.rules.model.pod_status import RunCondition
from plimsoll.rules.model.runnable import RunPod
from plimsoll.rules.profile import profile_named
from plimsoll.rules.quantity import parse
from plimsoll.rules.resize.allocation import Allocation, allocated_pod, allocation_of
from plimsoll.rules.resize.conditions import priority_bucket, resize_conditions, resize_word
from plimsoll.rules.resize.verdict import ResizeSetting
from plimsoll.rules.scheduling.fit import EMPTY, NodeLoad, allocated_load
from plimsoll.rules.timestamps import rfc3339
from tests.unit.strategies import lean
from tests.virtual_time import run_in_virtual_time


def pod(name: str, cpu: str, generation: int = 1, **spec: Any) -> RunPod:
    resources = {"requests": {"cpu": cpu, "memory": "64Mi"}}
    document = {
        "metadata": {"name": name, "namespace": "default", "uid": name, "generation": generation},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": resources}], **spec},
    }
    return run_pod_from_json(msgspec.json.encode(document))


class World:
    """A node of eight cores with the pods of the test."""

    def __init__(self, directory: Path, profile: str = "documents", cores: str = "8") -> None:
        self.checkpoint = Checkpoint(directory / "agent.jsonl")
        self.profile = profile_named(profile)
        self.pods: dict[str, RunPod] = {}
        self.events: list[tuple[str, str]] = []
        self.woken: list[str] = []
        self.awake = asyncio.Event()
        self.cores = cores
        self.now_s = 100.0
        self.meters = NodeMeters("n", self.profile)
        gates = Gates()
        self.resizes = Resizes(
            ResizeSetting(
                EMPTY, self.profile, gates, absolute_allocatable={"cpu": parse(cores), "memory": parse("8Gi")}
            ),
            self.checkpoint,
            self,
            tuple,
            lambda: self.now_s,
            self.meters,
        )
        self.carry_out(self.resizes.begin())

    def node(self) -> Node:
        amounts = {"cpu": parse(self.cores), "memory": parse("8Gi"), "pods": parse("110")}
        return Node(Metadata("n"), status=NodeStatus(amounts, amounts))

    def run(self, *pods: RunPod) -> None:
        for each in pods:
            self.pods[each.metadata.uid] = each
            self.checkpoint.put(each.metadata.uid, allocation=allocation_of(each))

    def ask(self, desired: RunPod) -> None:
        self.pods[desired.metadata.uid] = desired
        self.carry_out(self.resizes.changed(desired.metadata.uid))

    def evaluate(self, trigger: queue.Trigger) -> None:
        self.carry_out(self.resizes.evaluate(trigger))

    async def run_resizes(self) -> None:
        async for decision in self.resizes.run():
            self.carry_out([decision])

    def carry_out(self, decisions: Iterable[ResizeDecision]) -> None:
        for decision in decisions:
            assert not decision.victims
            self.emit(decision.uid, decision.event)
            if decision.requeue:
                self.woken.append(decision.uid)
                self.awake.set()

    def emit(self, uid: str, event: LifecycleEvent | None) -> None:
        if event is not None:
            self.events.append((uid, event.reason))

    def done(self, pod: RunPod) -> None:
        self.emit(pod.metadata.uid, self.resizes.done(pod))

    def failed(self, pod: RunPod, error: str) -> None:
        self.emit(pod.metadata.uid, self.resizes.failed(pod, error))

    def end(self, uid: str) -> None:
        del self.pods[uid]
        self.checkpoint.forget(uid)

    # what Resizes reads

    def load(self) -> NodeLoad:
        allocations = ((pod, self.checkpoint.get(uid).allocation) for uid, pod in self.pods.items())
        return allocated_load(self.node(), [allocated_pod(pod, each) for pod, each in allocations if each is not None])

    def desired(self, uid: str) -> RunPod | None:
        return self.pods.get(uid)

    # what the test reads

    def cpu(self, uid: str) -> str:
        allocation = self.checkpoint.get(uid).allocation
        assert allocation is not None
        return str((allocation.containers["c"].requests or {})["cpu"])

    def conditions(self, uid: str) -> tuple[RunCondition, ...]:
        return resize_conditions(self.resizes.conditions(uid), self.profile)

    def word(self, uid: str) -> str:
        return resize_word(self.resizes.conditions(uid), self.pods[uid], self.profile)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_the_timeline_of_the_document(world: World) -> None:
    """T=3 … T=12 (03 §5): A is what is allocated, Z is status.resize."""
    world.run(pod("web", "1"), pod("other", "6100m"))
    world.ask(pod("web", "1500m", 2))
    assert (world.cpu("web"), world.word("web")) == ("1500m", "InProgress")  # T=4
    world.ask(pod("web", "2", 3))
    world.done(pod("web", "1500m", 2))
    assert (world.cpu("web"), world.word("web")) == ("1500m", "Deferred")  # T=7
    world.ask(pod("web", "1600m", 4))
    assert (world.cpu("web"), world.word("web")) == ("1600m", "InProgress")  # T=9
    world.done(world.pods["web"])
    assert world.word("web") == ""  # T=10
    world.ask(pod("web", "100", 5))
    assert (world.cpu("web"), world.word("web")) == ("1600m", "Infeasible")  # T=12
    assert [reason for _, reason in world.events] == [
        "ResizeStarted",
        "ResizeDeferred",
        "ResizeCompleted",
        "ResizeStarted",
        "ResizeCompleted",
        "ResizeInfeasible",
    ]


def test_both_conditions_may_hold_at_once(tmp_path: Path) -> None:
    world = World(tmp_path, "1.36")
    world.run(pod("web", "1"), pod("other", "6100m"))
    world.ask(pod("web", "1500m", 2))
    world.ask(pod("web", "2", 3))
    conditions = resize_conditions(world.resizes.conditions("web"), world.profile)
    assert [(each.type, each.reason, each.observed_generation) for each in conditions] == [
        ("PodResizePending", "Deferred", 3),
        ("PodResizeInProgress", "", 2),
    ]
    assert conditions[0].message == "Node didn't have enough resource: cpu, requested: 2000, used: 6100, capacity: 8000"
    assert world.word("web") == ""


def test_an_event_is_not_repeated(world: World) -> None:
    world.run(pod("web", "1"), pod("other", "6"))
    world.ask(pod("web", "3", 2))
    for _ in range(3):
        world.evaluate("periodic_retry")
    assert world.events == [("web", "ResizeDeferred")]
    world.ask(pod("web", "4", 3))
    assert len(world.events) == 2


@pytest.mark.parametrize(("cpu", "word"), [("3", "Deferred"), ("100", "Infeasible")])
def test_another_change_of_the_spec_keeps_the_verdict(world: World, cpu: str, word: str) -> None:
    """A deadline, an image, a toleration: the generation moves, the sizes that were judged do not (03 §7)."""
    world.run(pod("web", "1"), pod("other", "6"))
    world.ask(pod("web", cpu, 2))
    assert world.word("web") == word
    world.pods["web"] = pod("web", cpu, 3, activeDeadlineSeconds=100)
    assert (world.word("web"), len(world.events)) == (word, 1)
    pending = world.resizes.conditions("web").pending
    assert pending is not None
    assert pending.generation == 2  # the one that was judged
    world.pods["web"] = pod("web", "4", 4)
    assert world.word("web") == "Proposed"  # not judged yet


@pytest.mark.parametrize(("stored", "word"), [("Infeasible", "Infeasible"), ("Proposed", "Proposed")])
def test_the_verdict_of_an_earlier_agent_is_kept_as_the_status_has_it(world: World, stored: str, word: str) -> None:
    world.run(pod("web", "1"), pod("other", "6"))
    world.ask(pod("web", "3", 2))
    conditions = [msgspec.structs.replace(each, reason="Infeasible") for each in world.conditions("web")]
    asked = pod("web", "3", 3)
    world.pods["web"] = msgspec.structs.replace(asked, status=msgspec.structs.replace(asked.status, resize=stored))
    world.resizes.known("web", conditions, 3)
    assert world.word("web") == word


def test_the_condition_says_when_a_resize_was_last_judged(world: World) -> None:
    world.run(pod("web", "1"), pod("other", "6"))
    world.ask(pod("web", "3", 2))
    (condition,) = world.conditions("web")
    assert (condition.last_probe_time, condition.last_transition_time) == (rfc3339(100.0), rfc3339(100.0))
    world.woken.clear()
    world.now_s = 300.0
    world.evaluate("periodic_retry")
    (condition,) = world.conditions("web")
    assert (condition.last_probe_time, condition.last_transition_time) == (rfc3339(300.0), rfc3339(100.0))
    assert world.woken == []  # nothing new to report


def test_reverting_clears_it(world: World) -> None:
    world.run(pod("web", "1"), pod("other", "6"))
    world.ask(pod("web", "3", 2))
    world.ask(pod("web", "1", 3))
    assert world.resizes.conditions("web").pending is None
    assert world.word("web") == ""


def test_free_resources_are_allocated_in_queue_order(world: World) -> None:
    """Higher priority first, then the longest pending; each is judged with what the one before has left."""
    world.run(pod("low", "1"), pod("high", "1", priority=9), pod("late", "1"), pod("big", "5"))
    world.ask(pod("low", "3", 2))
    world.now_s += 1
    world.ask(pod("late", "3", 2))
    world.now_s += 1
    world.ask(pod("high", "3", 2, priority=9))
    assert world.resizes.pending() == {("deferred",): 3, ("infeasible",): 0}
    world.end("big")
    world.evaluate("pods_removed")
    assert (world.cpu("high"), world.cpu("low"), world.cpu("late")) == ("3", "3", "1")
    assert world.resizes.pending() == {("deferred",): 1, ("infeasible",): 0}


@pytest.mark.parametrize(("profile", "reconsidered"), [("documents", True), ("1.36", True)])
def test_an_infeasible_resize_is_retried_when_the_node_grows(tmp_path: Path, profile: str, reconsidered: bool) -> None:
    world = World(tmp_path, profile)
    world.run(pod("web", "1"))
    world.ask(pod("web", "100", 2))
    assert world.cpu("web") == "1"
    world.cores = "128"
    world.resizes._setting = msgspec.structs.replace(
        world.resizes._setting, absolute_allocatable={"cpu": parse("128"), "memory": parse("8Gi")}
    )
    world.evaluate("periodic_retry")
    assert (world.cpu("web") == "100") is reconsidered


def test_an_accepted_resize_is_saved_before_the_worker_is_woken(world: World, tmp_path: Path) -> None:
    world.run(pod("web", "1"))
    world.ask(pod("web", "2", 2))
    again = Checkpoint(tmp_path / "agent.jsonl")
    again.load()
    allocation = again.get("web").allocation
    assert allocation is not None
    assert str((allocation.containers["c"].requests or {})["cpu"]) == "2"
    assert world.woken == ["web"]


def test_errors_are_reported_once_and_end_with_success(world: World) -> None:
    world.run(pod("web", "1"))
    world.ask(pod("web", "2", 2))
    for _ in range(2):
        world.failed(world.pods["web"], "the kernel said no")
    (condition,) = resize_conditions(world.resizes.conditions("web"), world.profile)
    assert (condition.reason, condition.message) == ("Error", "the kernel said no")
    world.done(world.pods["web"])
    assert [reason for _, reason in world.events] == ["ResizeStarted", "ResizeError", "ResizeCompleted"]


def test_resize_conditions_survive_a_restart_in_the_status(world: World, tmp_path: Path) -> None:
    world.run(pod("web", "1"), pod("other", "6"))
    world.ask(pod("web", "3", 2))
    conditions = resize_conditions(world.resizes.conditions("web"), profile_named("1.36"))
    other = World(tmp_path / "again", "1.36")
    other.resizes.known("web", conditions, 2)
    pending = other.resizes.conditions("web").pending
    assert pending is not None
    assert (pending.reason, pending.generation) == ("Deferred", 2)


async def test_a_removed_pod_lets_a_deferred_resize_fit(world: World) -> None:
    world.run(pod("web", "1"), pod("other", "6"))
    world.ask(pod("web", "3", 2))
    world.awake.clear()
    running = asyncio.create_task(world.run_resizes())
    try:
        world.end("other")
        world.resizes.retry("pods_removed")
        async with asyncio.timeout(10):
            await world.awake.wait()
    finally:
        running.cancel()
    assert (world.cpu("web"), world.resizes.in_progress()) == ("3", 1)


def test_a_resize_that_cannot_be_saved_is_deferred(tmp_path: Path) -> None:
    world = World(tmp_path / "gone")
    world.run(pod("web", "1"))
    world.ask(pod("web", "2", 2))
    assert (world.cpu("web"), world.word("web")) == ("1", "Deferred")
    assert world.events == [("web", "ResizeDeferred")]
    pending = world.resizes.conditions("web").pending
    assert pending is not None and "free some space" in pending.message
    (tmp_path / "gone").mkdir()
    world.evaluate("periodic_retry")
    assert (world.cpu("web"), world.word("web")) == ("2", "InProgress")


def test_the_periodic_retry_comes_a_full_interval_after_the_last_evaluation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """03 §7: each evaluation restarts the interval, also one for a new document."""
    retried_s: list[float] = []

    async def main() -> None:
        world, loop = World(tmp_path), asyncio.get_running_loop()
        world.run(pod("web", "1"), pod("other", "6"))
        evaluate = world.resizes.evaluate

        def observed(trigger: queue.Trigger) -> Iterator[ResizeDecision]:
            yield from evaluate(trigger)
            if trigger == "periodic_retry":
                retried_s.append(loop.time())

        monkeypatch.setattr(world.resizes, "evaluate", observed)
        running = asyncio.create_task(world.run_resizes())
        await asyncio.sleep(queue.RETRY_FIRST_S / 2)
        world.ask(pod("web", "3", 2))
        await asyncio.sleep(2.5 * queue.RETRY_S)
        running.cancel()

    run_in_virtual_time(main())
    first_s = queue.RETRY_FIRST_S / 2 + queue.RETRY_S
    assert retried_s == pytest.approx([first_s, first_s + queue.RETRY_S])


@pytest.mark.parametrize(("profile", "pending"), [("1.36", {("deferred",): 2, ("infeasible",): 0}), (
    "1.37", {("deferred", "normal"): 1, ("deferred", "medium"): 1})])  # fmt: skip
def test_r8_pending_resizes_are_counted_by_priority(tmp_path: Path, profile: str, pending: Any) -> None:
    world = World(tmp_path, profile)
    world.run(pod("low", "1"), pod("high", "1", priority=9), pod("big", "6"))
    world.ask(pod("low", "3", 2))
    world.ask(pod("high", "3", 2, priority=9))
    assert world.resizes.pending() == pending
    world.meters.see_resizes(world.resizes.pending(), 0)
    label = ',priority_bucket="medium"' if profile == "1.37" else ""
    count = 1 if profile == "1.37" else 2
    assert f'kubelet_pod_pending_resizes{{reason="deferred"{label}}} {count}\n' in world.meters.page()
    assert ("kubelet_pod_level_resources_admission_total" in world.meters.page()) == (profile == "1.37")


def test_r8_the_time_that_a_resize_was_deferred(tmp_path: Path) -> None:
    """Accepted after 7 s, reverted after 12 s, terminated after 40 s: buckets 10, 15 and 45."""
    world = World(tmp_path, "1.37")
    world.run(pod("web", "1"), pod("back", "1"), pod("gone", "1", priority=100_000), pod("big", "5"))
    for name in ("web", "back"):
        world.ask(pod(name, "4", 2))
    world.ask(pod("gone", "8", 2, priority=100_000))
    world.now_s += 7
    world.end("big")
    world.evaluate("pods_removed")
    assert world.cpu("web") == "4"
    world.now_s += 5
    world.ask(pod("back", "1", 3))
    world.now_s += 28
    world.resizes.over("gone")
    page = world.meters.page()
    name = "kubelet_pod_deferred_resize_duration_seconds"
    for resolution, bucket, seconds in (
        ("accepted", "normal", 7),
        ("reverted", "normal", 12),
        ("terminated", "high", 40),
    ):
        labels = f'resolution="{resolution}",priority_bucket="{bucket}"'
        assert f"{name}_sum{{{labels}}} {seconds}\n" in page, page
    assert "_duration_seconds_" not in World(tmp_path / "old", "1.36").meters.page().partition(name)[1]


BUCKETS = [(None, "normal"), (0, "normal"), (2_000_000_000, "system-critical"), (1_999_999_999, "high"), (100_000, "high"),
           (99_999, "medium"), (1, "medium"), (-1, "low"), (-999, "low"), (-1000, "very-low")]  # fmt: skip


@pytest.mark.parametrize(("priority", "bucket"), BUCKETS)
def test_r8_priority_buckets(priority: int | None, bucket: str) -> None:
    assert priority_bucket(lean({"metadata": {"name": "p"}, "spec": {"priority": priority}})) == bucket
    assert priority_bucket(None) == "unknown"


class Admitted:
    """A pod of the node, as far as `Allocated` reads it."""

    status, is_over, is_removed = None, False, False

    def __init__(self, pod: RunPod) -> None:
        self.pod = pod

    def allocated_pod(self, allocation: Allocation) -> RunPod:
        return allocated_pod(self.pod, allocation)


def test_r2_only_pods_with_an_allocation_occupy_the_node(tmp_path: Path) -> None:
    """A pod that may yet be refused takes no room, neither from another pod nor from a resize."""
    checkpoint = Checkpoint(tmp_path / "agent.jsonl")
    workers: Any = {name: Admitted(pod(name, "3")) for name in ("undecided", "admitted")}
    checkpoint.put("admitted", allocation=allocation_of(workers["admitted"].pod))
    known = Allocated(checkpoint, workers)
    assert list(known.load().residents) == ["admitted"]
    checkpoint.put("undecided", allocation=allocation_of(workers["undecided"].pod))
    assert list(known.load().residents) == ["admitted", "undecided"]
