"""Terminating pods: waited for, with shortened grace, never evicted twice, with a real agent and API server.

Containers end only when the test says so. The node is short of memory as long as one of the pods called hog runs.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path

import pytest

from plimsoll.api.machinery.users import AUTHENTICATED, NODES, User
from plimsoll.api.server.in_process import InProcess
from plimsoll.cgroups.drivers.simulated import SimulatedKernel
from plimsoll.cgroups.engine.manager import CgroupManager
from plimsoll.kube.client import Client
from plimsoll.node.agent import Agent
from plimsoll.node.pods.manager import PREEMPTED
from plimsoll.node.pressure import evictor as victims_module
from plimsoll.node.pressure.eviction_manager import EvictionConfig, EvictionManager
from plimsoll.node.pressure.evictor import Evictor, MonitoredPods, Reclaimers
from plimsoll.node.pressure.oom_ledger import MonitoredContainer
from plimsoll.node.pressure.signals import Observations, UsageThreshold
from plimsoll.node.stats.stats import NodePlace, Stats
from plimsoll.rules.config.thresholds import Threshold, parsed_thresholds
from plimsoll.rules.eviction.assessment import Observation
from plimsoll.rules.eviction.decision import LimitFinding
from plimsoll.rules.quantity import parse
from tests.unit.api.api_client import ApiClient, api
from tests.unit.node.played_life import NODE, PODS, Document, setting_of
from tests.unit.node.played_runtime import PlayedRuntime

HARD = parsed_thresholds({"memory.available": "100Mi"})
SOFT = parsed_thresholds({"memory.available": "10Mi"}, {"memory.available": "100Mi"}, {"memory.available": "1s"})
WAIT_S = 20.0


class Stubborn(PlayedRuntime):
    """Every stop lasts until the test ends the container; what was asked for is kept."""

    def __init__(self) -> None:
        super().__init__()
        self.stops: list[tuple[str, float]] = []
        self.ended: dict[str, asyncio.Event] = {}

    async def stop_container(self, container_id: str, grace_s: float) -> None:
        self.stops.append((container_id, grace_s))
        await self.ended.setdefault(container_id, asyncio.Event()).wait()

    def end(self, container_id: str, exit_code: int) -> None:
        super().end(container_id, exit_code)
        self.ended.setdefault(container_id, asyncio.Event()).set()


class World:
    """One API server, kernel and runtime; an agent and its eviction loop at a time."""

    def __init__(self, directory: Path, ask: ApiClient, thresholds: tuple[Threshold, ...]) -> None:
        self.directory, self.ask, self.thresholds = directory, ask, thresholds
        self.setting, self.kernel, self.runtime = setting_of("1.36", 2), SimulatedKernel(2), Stubborn()
        self.now_s, self.available = 1000.0, "50Mi"
        self.agents = contextlib.AsyncExitStack()

    async def start(self) -> None:
        user = User(f"system:node:{NODE}", frozenset({NODES, AUTHENTICATED}))
        tree = CgroupManager(self.kernel, self.setting, self.directory / "cgroups")
        client = Client(InProcess(self.ask.app, user))
        self.agent = Agent(self.setting, self.runtime, self.kernel, tree, client, self.directory, NODE)
        self.task = asyncio.create_task(self.agent.run())
        place = NodePlace(NODE, "/kubepods", str(self.directory), str(self.directory))
        stats = Stats(None, place, tuple, clock=lambda: self.now_s)
        agent = self.agent
        self.victims = Evictor(
            agent.pods,
            agent.cgroups,
            agent.view,
            agent.checkpoint,
            stats,
            agent.events.emit_lifecycle,
            clock=lambda: self.now_s,
        )
        self.loop = EvictionManager(
            self,
            self.victims,
            EvictionConfig(self.thresholds, max_pod_grace_s=50),
            self,
            clock=lambda: self.now_s,
            wall=lambda: self.now_s,
        )
        await asyncio.wait_for(self.agent.ready.wait(), WAIT_S)

    async def kill(self) -> None:
        """Every task ends where it is."""
        self.task.cancel()
        await asyncio.wait([self.task])

    # EvictionSink

    def event(self, *event: str) -> None: ...
    def condition_changed(self) -> None: ...
    def evicted(self, *eviction: object) -> None: ...

    # SignalSource

    def memory(self) -> Observations:
        is_short = any(each.phase == "running" and "hog" in self.name(each.pod_uid) for each in self.containers())
        return {
            "memory.available": Observation(parse(self.available if is_short else "500Mi"), parse("1Gi"), self.now_s)
        }

    def others(self) -> Observations:
        return {}

    def usage_thresholds(self, thresholds: Iterable[Threshold]) -> set[UsageThreshold]:
        return set()

    # what there is

    def containers(self) -> list[object]:
        return list(self.runtime.containers.values())

    def name(self, uid: str) -> str:
        worker = self.agent.pods.workers.get(uid)
        return "" if worker is None else worker.pod.metadata.name

    def uid(self, name: str) -> str:
        worker = self.agent.pods.named("default", name)
        assert worker is not None
        return worker.uid

    def verdicts(self) -> dict[str, str]:
        found = {self.name(uid): each.verdict for uid, each in self.agent.checkpoint.all().items()}
        return {name: verdict.reason for name, verdict in found.items() if verdict is not None}

    def graces(self, name: str) -> list[float]:
        """The grace period of each stop."""
        return [
            grace_s for id_, grace_s in self.runtime.stops if self.runtime.containers[id_].pod_uid == self.uid(name)
        ]

    async def create(self, *names: str) -> None:
        for name in names:
            container = {"name": "c", "image": "i", "command": ["run"]}
            spec = {"containers": [container], "nodeName": NODE, "terminationGracePeriodSeconds": 30}
            await self.ask.ok(
                "POST", PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
            )
            await self.until(lambda name=name: self.is_running(name))

    def is_running(self, name: str) -> bool:
        worker = self.agent.pods.named("default", name)
        return worker is not None and any(
            each.phase == "running" and each.pod_uid == worker.uid for each in self.runtime.containers.values()
        )

    async def until(self, check: Callable[[], object]) -> None:
        async with asyncio.timeout(WAIT_S):
            while True:
                if check():
                    return
                await asyncio.sleep(0.005)

    async def passes(self, number: int = 5) -> None:
        """Of the loop, a moment after each other."""
        for _ in range(number):
            self.now_s += 0.1
            await self.loop.sync()
            await asyncio.sleep(0.01)

    async def end(self, name: str) -> None:
        """Its containers die at last."""
        worker = self.agent.pods.named("default", name)
        assert worker is not None
        for each in list(self.runtime.containers.values()):
            if each.pod_uid == worker.uid:
                self.runtime.end(each.id, 137)
        await asyncio.wait_for(worker.released.wait(), WAIT_S)

    async def events(self, reason: str) -> list[Document]:
        await self.agent.recorder.drained(5.0)
        found = (await self.ask.ok("GET", "/api/v1/namespaces/default/events"))["items"]
        return [each for each in found if each["reason"] == reason]


@contextlib.asynccontextmanager
async def world(directory: Path, thresholds: tuple[Threshold, ...] = HARD) -> AsyncIterator[World]:
    async with api(directory / "api", "1.36") as ask:
        made = World(directory, ask, thresholds)
        amounts = {name: str(amount) for name, amount in made.setting.allocatable.items()}
        metadata = {"name": NODE, "labels": {"kubernetes.io/os": "linux"}}
        status = {"capacity": amounts, "allocatable": amounts}
        await ask.ok(
            "POST", "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status}
        )
        await made.start()
        try:
            yield made
        finally:
            await made.kill()


async def test_after_a_kill_the_victim_of_the_agent_before_is_waited_for(tmp_path: Path) -> None:
    async with world(tmp_path) as node:
        await node.create("hog", "calm", "quiet")
        await node.passes(1)
        assert node.verdicts() == {"hog": "Evicted"}
        await node.until(lambda: node.graces("hog"))
        await node.kill()
        await node.start()
        await node.passes()
        assert node.verdicts() == {"hog": "Evicted"}
        assert not len(node.loop.decisions)
        assert node.is_running("hog")  # so that there was something to wait for
        await node.end("hog")
        await node.passes()
        assert node.verdicts() == {"hog": "Evicted"}
        assert node.is_running("calm") and node.is_running("quiet")


async def test_a_preempted_pod_is_waited_for_with_less_grace(tmp_path: Path) -> None:
    async with world(tmp_path) as node:
        await node.create("calm", "hog")
        node.agent.pods.terminate(node.uid("hog"), PREEMPTED)
        await node.until(lambda: node.graces("hog") == [30])
        await node.passes()
        await node.until(lambda: node.graces("hog") == [30, 2])
        assert node.verdicts() == {"hog": "Preempting"}
        await node.passes()
        assert node.graces("hog") == [30, 2]
        await node.end("hog")
        await node.passes()
        assert node.is_running("calm")


async def test_a_hard_threshold_hurries_the_victim_of_a_soft_one(tmp_path: Path) -> None:
    async with world(tmp_path, SOFT) as node:
        await node.create("hog", "calm")
        await node.passes(11)
        await node.until(lambda: node.graces("hog") == [30])
        node.now_s += 29
        await node.passes()
        assert node.graces("hog") == [30]
        node.available = "5Mi"
        await node.passes()
        await node.until(lambda: node.graces("hog") == [30, 2])
        assert node.verdicts() == {"hog": "Evicted"}


async def test_a_pod_above_its_own_limit_is_waited_for(tmp_path: Path) -> None:
    async with world(tmp_path) as node:
        await node.create("calm", "hog")
        worker = node.agent.pods.named("default", "hog")
        assert worker is not None
        await node.victims.evict_for_limit(LimitFinding(worker.pod, "emptydirfs.limit", "too much"), 1)
        await node.passes()
        assert node.verdicts() == {"hog": "Evicted"}


async def test_who_was_deleted_is_a_candidate(tmp_path: Path) -> None:
    async with world(tmp_path) as node:
        await node.create("hog", "calm")
        await node.ask.ok("DELETE", f"{PODS}/hog")
        await node.until(lambda: node.graces("hog") == [30])
        await node.passes(1)
        assert node.verdicts() == {"hog": "Evicted"}
        await node.until(lambda: node.graces("hog") == [30, 2])


@pytest.mark.parametrize(("thresholds", "kill_s"), [(HARD, 10), (SOFT, 45)], ids=["hard", "soft, 30 s of grace"])
async def test_no_other_pod_is_chosen_before_its_grace_and_the_cleanup_are_over(
    thresholds: tuple[Threshold, ...], kill_s: int, tmp_path: Path
) -> None:
    async with world(tmp_path, thresholds) as node:
        await node.create("hog", "calm")
        async with asyncio.timeout(WAIT_S):
            while not node.verdicts():
                await node.passes(1)
        node.now_s += kill_s + 30 - 1
        await node.passes()
        assert node.verdicts() == {"hog": "Evicted"}
        node.now_s += 1
        await node.passes(2)
        assert node.verdicts() == {"hog": "Evicted", "calm": "Evicted"}


async def test_a_pod_that_exceeds_its_grace_period_gets_an_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graces_s: list[float] = []

    def soon(grace_s: float) -> float:
        graces_s.append(grace_s)
        return 0.05

    monkeypatch.setattr(victims_module, "kill_timeout_s", soon)
    async with world(tmp_path, SOFT) as node:
        await node.create("hog")
        await node.passes(11)
        assert graces_s == [30]
        async with asyncio.timeout(WAIT_S):
            while True:
                if found := await node.events("ExceededGracePeriod"):
                    break
                await asyncio.sleep(0.05)
        assert [each["involvedObject"]["name"] for each in found] == ["hog"]


async def test_one_that_is_gone_ends_the_wait(tmp_path: Path) -> None:
    async with world(tmp_path) as node:
        await node.create("hog")
        await node.passes(1)
        waiting = asyncio.create_task(node.victims.one_terminated())
        done, _ = await asyncio.wait([waiting], timeout=0.1)
        assert not done
        await node.end("hog")
        await asyncio.wait_for(waiting, WAIT_S)
        assert not node.victims.terminating()


async def test_a_runtime_that_hangs_does_not_keep_memory_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(victims_module, "LIST_TIMEOUT_S", 0.05)
    async with world(tmp_path, HARD) as there:

        async def never() -> None:
            await asyncio.Event().wait()

        monkeypatch.setattr(there.agent.view, "all", never)
        async with asyncio.timeout(WAIT_S):
            assert await there.victims.usage(disks=False) == {}


async def test_reclaim_does_what_the_node_can(tmp_path: Path) -> None:
    calls: list[object] = []

    async def dead_containers() -> None:
        calls.append("dead containers")

    async def memory(wanted_bytes: int) -> int:
        calls.append(wanted_bytes)
        return 7

    async with world(tmp_path) as node:
        assert await node.victims.reclaim_memory(10) == 0, "without reclaimers nothing is gained"
        node.victims._reclaimers = Reclaimers(dead_containers, None, memory)
        await node.victims.reclaim("delete unused images")
        assert calls == []
        await node.victims.reclaim("delete dead containers")
        assert await node.victims.reclaim_memory(10) == 7
        assert calls == ["dead containers", 10]


async def test_monitored_containers_and_warnings_about_them(tmp_path: Path) -> None:
    async with world(tmp_path) as node:
        await node.create("calm")
        lifted: list[tuple[str, str]] = []

        async def lift(container: MonitoredContainer, high: str) -> None:
            lifted.append((container.name, high))

        agent, uid = node.agent, node.uid("calm")
        pods = MonitoredPods(agent.pods, agent.cgroups, agent.view, agent.events.emit_lifecycle, lift)
        (container,) = pods.containers()
        assert (container.name, container.pod, container.namespace, container.pod_uid) == ("c", "calm", "default", uid)
        assert container.path in agent.cgroups.paths(uid).values()
        await pods.lift(container, "max")
        assert lifted == [("c", "max")]
        pods.warn(uid, "c", "OOMKilling", "of a container")
        pods.warn(uid, "", "OOMKilling", "of a pod")
        pods.warn("no such pod", "c", "OOMKilling", "of no pod")
        events = {event["message"]: event["involvedObject"] for event in await node.events("OOMKilling")}
        assert {message: about.get("fieldPath") for message, about in events.items()} == {
            "of a container": "spec.containers{c}",
            "of a pod": None,
        }
