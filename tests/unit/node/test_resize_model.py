"""Random lives of a node: pods come, grow, shrink, crash and go, the agent is killed, memory is in use, disks are full.

The agent is the real one with all its modules, the API server is the real one in this process; the kernel is in memory
and the runtime is played, so that a life takes a second. Two things must always hold (03 §6, §10): never is more
allocated than the node has; and when all is quiet every control file is what a fresh start with the final sizes makes.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from plimsoll.api.in_process import InProcess
from plimsoll.api.users import AUTHENTICATED, NODES, User
from plimsoll.cgroups.node_tree import NodeTree
from plimsoll.cgroups.observe import every_file, walk
from plimsoll.cgroups.simulated import SimulatedKernel
from plimsoll.kube.client import Client
from plimsoll.node.agent import Agent
from plimsoll.node.pod_cgroups import lean_pod_of
from plimsoll.rules.allocation import allocated_pod, is_allocated, same_resources
from plimsoll.rules.config_reading import reading
from plimsoll.rules.effective import pod_requests
from plimsoll.rules.eviction import NodeCondition
from plimsoll.rules.profile import profile_named
from plimsoll.rules.quantity import ZERO, from_milli, parse
from plimsoll.rules.setting import Setting, machine_from_capacity, resolved
from tests.examples import examples
from tests.unit.api.asking import STRATEGIC, Asker, api
from tests.unit.node.played_runtime import PlayedRuntime

NODE, PODS = "n1", "/api/v1/namespaces/default/pods"
QUIET_S = 30.0
MIB = 1 << 20
Document = dict[str, Any]

cpus = st.sampled_from(["50m", "500m", "1", "2", "3", "5"])
memories = st.sampled_from([16, 32, 64, 256, 1024])
sizes = st.tuples(cpus, memories)
policies = st.sampled_from(["NotRequired", "RestartContainer"])


def setting_of(profile: str, version: int) -> Setting:
    named = profile_named(profile)
    config = reading({"crashLoopBackOff": {"maxContainerRestartPeriod": "1s"}}, named, {}).config
    machine = machine_from_capacity({"cpu": parse("8"), "memory": parse("4Gi"), "pods": parse("20")})
    return resolved(machine, config, named, cgroup_version=2 if version == 2 else 1, runtime="process")


def resources(size: tuple[str, int], factor: int) -> Document:
    """`factor` 1: Guaranteed; 2: Burstable, limits being twice the requests."""
    cpu, memory = size
    limits = {"cpu": str(from_milli(parse(cpu).milli * factor)), "memory": f"{memory * factor}Mi"}
    return {"requests": {"cpu": cpu, "memory": f"{memory}Mi"}, "limits": limits}


class NodeLife(RuleBasedStateMachine):
    names = Bundle("names")

    @initialize(profile=st.sampled_from(["1.27", "1.36"]), version=st.sampled_from([1, 2]))
    def begin(self, profile: str, version: int) -> None:
        self.profile, self.setting = profile, setting_of(profile, version)
        self.directory = Path(tempfile.mkdtemp(prefix="plimsoll-model-"))
        self.kernel, self.runtime = SimulatedKernel(self.setting.policy.cgroup_version), PlayedRuntime()
        self.conditions: tuple[NodeCondition, ...] = ()
        self.number = 0
        self.pods: dict[str, tuple[int, list[str]]] = {}  # name → factor, containers
        self.runner = asyncio.Runner()
        self.stack = contextlib.AsyncExitStack()
        self.runner.run(self._begin())

    async def _begin(self) -> None:
        self.ask: Asker = await self.stack.enter_async_context(api(self.directory / "api", self.profile))
        amounts = {name: str(amount) for name, amount in self.setting.allocatable.items()}
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": NODE, "labels": {"kubernetes.io/os": "linux"}},
            "status": {"capacity": amounts, "allocatable": amounts},
        }
        await self.ask.ok("POST", "/api/v1/nodes", node)
        await self._start()

    async def _start(self) -> None:
        user = User(f"system:node:{NODE}", frozenset({NODES, AUTHENTICATED}))
        tree = NodeTree(self.kernel, self.setting, self.directory / "cgroups")
        self.agent = Agent(
            self.setting, self.runtime, self.kernel, tree, Client(InProcess(self.ask.app, user)),
            self.directory, NODE, conditions=lambda: self.conditions,
        )  # fmt: skip
        self.task = asyncio.create_task(self.agent.run())
        await asyncio.wait_for(self.agent.ready.wait(), QUIET_S)

    async def _kill(self) -> None:
        """Nothing is put in order: every task ends where it is."""
        self.task.cancel()
        await asyncio.wait([self.task])

    # --- what happens ---

    @rule(target=names, factor=st.sampled_from([1, 2]), wanted=st.lists(sizes, min_size=1, max_size=3), policy=policies)
    def create(self, factor: int, wanted: list[tuple[str, int]], policy: str) -> str:
        self.number += 1
        name = f"p{self.number}"
        containers = [
            {
                "name": f"c{index}",
                "image": "i",
                "command": ["run"],
                "resources": resources(size, factor),
                "resizePolicy": [{"resourceName": "memory", "restartPolicy": policy}],
            }
            for index, size in enumerate(wanted)
        ]
        spec = {"containers": containers, "nodeName": NODE, "terminationGracePeriodSeconds": 0}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        self.runner.run(self.ask.ok("POST", PODS, body))
        self.pods[name] = (factor, [each["name"] for each in containers])  # type: ignore[misc]
        return name

    @rule(name=names, wanted=st.lists(sizes, min_size=3, max_size=3))
    def resize(self, name: str, wanted: list[tuple[str, int]]) -> None:
        factor, containers = self.pods[name]
        changed = [
            {"name": each, "resources": resources(size, factor)} for each, size in zip(containers, wanted, strict=False)
        ]
        path = f"{PODS}/{name}" + ("" if self.profile == "1.27" else "/resize")
        answer = self.runner.run(self.ask("PATCH", path, {"spec": {"containers": changed}}, content_type=STRATEGIC))
        assert answer.code == 200 or (self.profile == "1.36" and answer.code == 403), answer  # larger than the node

    @rule(name=consumes(names))
    def delete(self, name: str) -> None:
        self.runner.run(self.ask("DELETE", f"{PODS}/{name}"))
        self.pods.pop(name)

    @rule()
    def kill_the_agent(self) -> None:
        self.runner.run(self._kill())
        self.runner.run(self._start())

    @rule(number=st.integers(0, 20))
    def crash(self, number: int) -> None:
        running = sorted(key for key, each in self.runtime.containers.items() if each.phase == "running")
        if running:
            self.runner.run(self._end(running[number % len(running)]))

    async def _end(self, container_id: str) -> None:
        self.runtime.end(container_id, 1)

    @rule(full=st.booleans())
    def fill_the_disk(self, full: bool) -> None:
        self.conditions = ("DiskPressure",) if full else ()

    @rule(number=st.integers(0, 20), used=st.integers(1, 900))
    def use_memory(self, number: int, used: int) -> None:
        """So much of its limit, in thousandths: what is lowered below that has to wait."""
        paths = self._container_paths()
        if paths:
            path = paths[number % len(paths)]
            limit = "memory.max" if self.kernel.version == 2 else "memory.limit_in_bytes"
            seen = self.kernel.look(path, (limit,))
            if seen is not None and seen.files[limit].isdigit():
                self.kernel.use(path, anon_bytes=min(int(seen.files[limit]), 512 * MIB) * used // 1000)

    @rule(pause_s=st.sampled_from([0.0, 0.005, 0.05]))
    def go_on(self, pause_s: float) -> None:
        self.runner.run(asyncio.sleep(pause_s))

    # --- what must hold ---

    @invariant()
    def never_more_than_there_is(self) -> None:
        if not hasattr(self, "agent"):
            return
        total = {"cpu": ZERO, "memory": ZERO}
        active = []
        for worker in self.agent.pods:
            record = self.agent.checkpoint.get(worker.uid)
            if record.allocation is not None and record.verdict is None and not worker.is_over:
                active.append(allocated_pod(worker.pod, record.allocation))
                requests = pod_requests(active[-1])
                total = {name: amount + requests.get(name, ZERO) for name, amount in total.items()}
        assert all(amount <= self.setting.allocatable[name] for name, amount in total.items()), total
        load = self.agent.pods.load()  # the sum that verdicts go by
        assert self.agent.pods.allocated() == active
        assert {name: load.requested.get(name, 0) for name in total} == {
            "cpu": total["cpu"].milli,
            "memory": total["memory"].value,
        }

    def teardown(self) -> None:
        if not hasattr(self, "runner"):
            return
        try:
            if hasattr(self, "agent"):
                self.runner.run(self._at_last())
        finally:
            self.runner.run(self.stack.aclose())
            self.runner.close()
            shutil.rmtree(self.directory, ignore_errors=True)

    async def _at_last(self) -> None:
        try:
            self.conditions = ()
            for path in self._container_paths():
                self.kernel.use(path)
            self.agent.pods.resizes.room("periodic_retry")
            deadline_s = time.monotonic() + QUIET_S
            while (noise := await self._noise()) is not None:
                assert time.monotonic() < deadline_s, f"not quiet: {noise}"
                await asyncio.sleep(0.02)
            assert self._files(self.kernel, self.kernel) == await self._fresh()
        finally:
            await self._kill()

    async def _noise(self) -> str | None:
        """What is still going on, or not as it should be in the end."""
        found = (await self.ask.ok("GET", PODS))["items"]
        if {each["metadata"]["name"] for each in found} != self.pods.keys():
            return "deleted pods are still there"
        uids = {each["metadata"]["uid"] for each in found}
        if not self.agent.pods.workers.keys() <= uids:
            return "deleted pods are still looked after"
        if not self.agent.cgroups.known().keys() <= uids:
            return "cgroups of deleted pods are still there"
        for document in found:
            status, name = document["status"], document["metadata"]["name"]
            if status.get("phase") == "Failed":  # there was no room for it
                if document["metadata"]["uid"] in self.agent.cgroups.known():  # from before the agent was killed
                    return f"cgroups of {name} are still there"
                continue
            worker = self.agent.pods.named("default", name)
            record = self.agent.checkpoint.get(document["metadata"]["uid"])
            if (
                worker is None
                or record.allocation is None
                or worker.pod.metadata.generation != document["metadata"].get("generation")
            ):
                return f"{name} is not known as it is"
            marks = self.agent.pods.resizes.marks(worker.uid)
            if marks.progress is not None or (marks.pending is None) != is_allocated(worker.pod, record.allocation):
                return f"{name}: {marks}"
            for container in worker.pod.spec.containers:
                allocated, given = record.allocation.containers[container.name], record.actuated.get(container.name)
                shown: Document = next(
                    (e for e in status.get("containerStatuses", ()) if e["name"] == container.name), {}
                )
                if not shown.get("state", {}).get("running"):
                    return f"{name} {container.name} does not run: {shown}"
                if given is None or not same_resources(given, allocated):
                    return f"{name} {container.name}: {allocated} is allocated, {given} was given"
                if shown.get("resources") != msgspec.to_builtins(allocated, enc_hook=str):
                    return f"{name} {container.name}: {allocated} is allocated, {shown.get('resources')} is shown"
            told = {each["type"] for each in status["conditions"]} & {"PodResizePending", "PodResizeInProgress"}
            if told != ({"PodResizePending"} if marks.pending is not None else set()):
                return f"{name}: {told} is told"
        return None

    async def _fresh(self) -> dict[str, dict[str, str]]:
        """The files of a node that starts with just these pods, each as large as is allocated to it."""
        kernel = SimulatedKernel(self.kernel.version)
        with tempfile.TemporaryDirectory() as state:
            tree = NodeTree(kernel, self.setting, Path(state))
            await tree.setup()
            pods, ids = [], {}
            for worker in self.agent.pods:
                allocation = self.agent.checkpoint.get(worker.uid).allocation
                if allocation is None or worker.is_over or worker.uid not in self.agent.cgroups.known():
                    continue
                pods.append(lean_pod_of(allocated_pod(worker.pod, allocation)))
                ids[worker.uid] = {
                    e.name: e.id
                    for e in self.runtime.containers.values()
                    if e.pod_uid == worker.uid and e.phase == "running"
                }
            if pods:
                await tree.add(pods, containers=ids)
        return self._files(kernel, self.kernel)

    @staticmethod
    def _files(kernel: SimulatedKernel, like: SimulatedKernel) -> dict[str, dict[str, str]]:
        found = {}
        for path in walk(kernel, "/"):
            seen = kernel.look(path, every_file(like.version))
            assert seen is not None
            found[path] = dict(seen.files)
        return found

    def _container_paths(self) -> list[str]:
        running = {each.id for each in self.runtime.containers.values() if each.phase == "running"}
        return [path for path in walk(self.kernel, "/") if path.rpartition("/")[2] in running]


TestNodeLife = NodeLife.TestCase
TestNodeLife.settings = settings(
    max_examples=examples(10), stateful_step_count=15, deadline=None, suppress_health_check=list(HealthCheck)
)
