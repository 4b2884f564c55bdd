"""Random histories of a node: pods are created, resized, crash and are deleted, the agent is killed, memory is in use.

The agent and the API server are the real ones, in this process; the kernel is simulated and the runtime is a fake, so
that a history takes a second. Some things must always hold (03 §6, §10): never more is allocated than the node has; no
process is killed for a resize; a container restarts only if it has died or its policy says so; and in the end every
control file has the value that a fresh start with the final sizes writes.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from plimsoll.cgroups.drivers.simulated import SimulatedKernel
from plimsoll.cgroups.engine.manager import CgroupManager
from plimsoll.cgroups.engine.observe import every_file, walk
from plimsoll.cgroups.engine.shrink import usage_bytes
from plimsoll.node.resize import actuator
from plimsoll.node.resources.workloads import lean_pod_of
from plimsoll.rules.model.objects import NO_RESOURCES
from plimsoll.rules.quantity import ZERO, from_milli, parse
from plimsoll.rules.resize.allocation import all_containers, allocated_pod, is_allocated, same_resources
from plimsoll.rules.resources.effective import pod_requests
from tests.examples import examples
from tests.unit.node.played_life import PODS, QUIET_S, RESIZE_CONDITIONS, Life

MIB = 1 << 20
MOST_USED = 100 * MIB  # by one container: all of them together stay below what the node has
UNLIMITED = 1 << 60
Document = dict[str, Any]

cpus = st.sampled_from(["50m", "500m", "1", "2", "3", "5"])
memories = st.sampled_from([16, 32, 64, 256, 1024])
sizes = st.tuples(cpus, memories)
policies = st.sampled_from(["NotRequired", "RestartContainer"])
# Limits are so many times the requests (1 is Guaranteed); "no limits", "nothing" (BestEffort), all of it for the pod.
kinds = st.sampled_from([1, 2, "no limits", "nothing", "pod level"])


def resources(size: tuple[str, int], kind: int | str) -> Document:
    if kind == "nothing":
        return {}
    cpu, memory = size
    requests = {"cpu": cpu, "memory": f"{memory}Mi"}
    if kind == "no limits":
        return {"requests": requests}
    factor = kind if isinstance(kind, int) else 2
    limits = {"cpu": str(from_milli(parse(cpu).milli * factor)), "memory": f"{memory * factor}Mi"}
    return {"requests": requests, "limits": limits}


class Made(msgspec.Struct):
    """A pod of this life."""

    kind: int | str
    containers: list[str]
    sidecars: list[str]
    restarts: bool  # where its memory changes
    resizes: int = 0
    deaths: Counter[str] = msgspec.field(default_factory=Counter)


class NodeLife(RuleBasedStateMachine):
    names = Bundle("names")

    @initialize(profile=st.sampled_from(["documents", "1.36"]), version=st.sampled_from([1, 2]))
    def begin(self, profile: str, version: int) -> None:
        self.patched = pytest.MonkeyPatch()
        self.patched.setattr(actuator, "USAGE_POLL_S", 0.05)
        self.directory = Path(tempfile.mkdtemp(prefix="plimsoll-model-"))
        self.life = Life(self.directory, profile, version)
        self.number = 0
        self.pods: dict[str, Made] = {}
        self.runner = asyncio.Runner()
        self.runner.run(self.life.begin())

    @property
    def kernel(self) -> SimulatedKernel:
        return self.life.kernel

    # --- what happens ---

    @rule(
        target=names,
        kind=kinds,
        wanted=st.lists(sizes, min_size=1, max_size=3),
        beside=st.lists(sizes, max_size=1),
        policy=policies,
    )
    def create(self, kind: int | str, wanted: list[tuple[str, int]], beside: list[tuple[str, int]], policy: str) -> str:
        self.number += 1
        name = f"p{self.number}"
        own = "nothing" if kind == "pod level" else kind
        containers, sidecars = (
            [
                {
                    "name": f"{letter}{index}",
                    "image": "i",
                    "command": ["run"],
                    "resources": resources(size, own),
                    "resizePolicy": [{"resourceName": "memory", "restartPolicy": policy}],
                }
                for index, size in enumerate(each)
            ]
            for letter, each in (("c", wanted), ("s", beside))
        )
        more: Document = {"initContainers": [{**each, "restartPolicy": "Always"} for each in sidecars]}
        if kind == "pod level":
            more["resources"] = resources(wanted[0], kind)
        self.runner.run(self.life.create(name, containers, **more))
        named = [[str(each["name"]) for each in group] for group in (containers, sidecars)]
        self.pods[name] = Made(kind, *named, restarts=policy == "RestartContainer")
        return name

    @rule(name=names, wanted=st.lists(sizes, min_size=4, max_size=4))
    def resize(self, name: str, wanted: list[tuple[str, int]]) -> None:
        made = self.pods[name]
        if made.kind == "nothing":
            return  # BestEffort stays so
        if made.kind == "pod level":
            spec: Document = {"resources": resources(wanted[0], made.kind)}
        else:
            new = iter(wanted)
            spec = {
                field: [{"name": each, "resources": resources(next(new), made.kind)} for each in group]
                for field, group in (("containers", made.containers), ("initContainers", made.sidecars))
                if group
            }
        plain = self.life.profile == "documents" and set(spec) == {"containers"}
        answer = self.runner.run(self.life.patch(name, spec, "" if plain else "resize"))
        too_large = self.life.profile == "1.36" and answer.code == 403
        assert answer.code == 200 or too_large, answer
        made.resizes += not too_large

    @rule(name=names, seconds=st.integers(10_000, 20_000))
    def change_something_else(self, name: str, seconds: int) -> None:
        """The generation moves, and nothing else; a deadline may only come nearer."""
        answer = self.runner.run(self.life.patch(name, {"activeDeadlineSeconds": seconds}))
        assert answer.code in (200, 422), answer

    @rule(name=consumes(names))
    def delete(self, name: str) -> None:
        self.runner.run(self.life.ask("DELETE", f"{PODS}/{name}"))
        self.pods.pop(name)

    @rule(is_lost=st.booleans())
    def kill_the_agent(self, is_lost: bool) -> None:
        self.runner.run(self._restart(is_lost))

    async def _restart(self, is_lost: bool) -> None:
        if is_lost:
            await self.life.lose_the_checkpoint()
        else:
            await self.life.kill()
            await self.life.start()

    @rule(number=st.integers(0, 20))
    def crash(self, number: int) -> None:
        runtime = self.life.runtime
        running = sorted(key for key, each in runtime.containers.items() if each.phase == "running")
        if running:
            self.runner.run(self._end(running[number % len(running)]))

    async def _end(self, container_id: str) -> None:
        found = self.life.runtime.containers[container_id]
        pod = self.life.runtime.sandboxes[found.sandbox_id].name
        if pod in self.pods:
            self.pods[pod].deaths[found.name] += 1
        self.life.runtime.end(container_id, 1)

    @rule(full=st.booleans())
    def fill_the_disk(self, full: bool) -> None:
        self.life.conditions = ("DiskPressure",) if full else ()

    @rule(number=st.integers(0, 20), used=st.integers(1, 900))
    def use_memory(self, number: int, used: int) -> None:
        """So much of its limit, in thousandths: what is lowered below that has to wait."""
        paths = self._container_paths()
        if paths:
            self._use(paths[number % len(paths)], used)

    @rule(target=names, kind=st.sampled_from([1, 2, "pod level"]), used=st.integers(500, 900))
    def create_and_squeeze(self, kind: int | str, used: int) -> str:
        name = self.create(kind, [("500m", 256)], [], "NotRequired")
        self.squeeze(name, used)
        return name

    @rule(name=names, used=st.integers(500, 900))
    def squeeze(self, name: str, used: int) -> None:
        """Request the smallest size for a pod whose memory is in use, and wait until that was tried."""
        self.runner.run(self.life.until(name, lambda status: status["phase"] != "Pending"))
        worker = self.life.agent.pods.named("default", name)
        for path in self._container_paths():
            if worker is not None and f"/pod{worker.uid}/" in path:
                self._use(path, used)
        self.resize(name, [("50m", 16)] * 4)
        self.runner.run(self._tried(name))

    async def _tried(self, name: str) -> None:
        """Accepted or not, actuated or refused."""
        document = await self.life.ask.ok("GET", f"{PODS}/{name}")
        wanted, deadline_s = document["metadata"]["generation"], time.monotonic() + QUIET_S
        while (worker := self.life.agent.pods.named("default", name)) is not None and not worker.is_over:
            progress = self.life.agent.pods.resizes.conditions(worker.uid).progress
            if worker.pod.metadata.generation == wanted and (progress is None or progress.error):
                return
            assert time.monotonic() < deadline_s, progress
            await asyncio.sleep(0.005)

    def _use(self, path: str, used: int) -> None:
        """Of what its own limit leaves, and of what the rest of the pod does: the test itself must not cause a kill."""
        pod = path.rpartition("/")[0]
        rest = self._limit(pod) - usage_bytes(self.kernel, pod) + usage_bytes(self.kernel, path)
        self.kernel.use(path, anon_bytes=min(MOST_USED, self._limit(path), rest) * used // 1000)

    def _limit(self, path: str) -> int:
        limit = "memory.max" if self.kernel.version == 2 else "memory.limit_in_bytes"
        seen = self.kernel.read(path, (limit,))
        assert seen is not None
        return int(seen.files[limit]) if seen.files[limit].isdigit() else UNLIMITED

    @rule(pause_s=st.sampled_from([0.0, 0.005, 0.05]))
    def go_on(self, pause_s: float) -> None:
        self.runner.run(asyncio.sleep(pause_s))

    # --- what must hold ---

    @invariant()
    def no_process_is_killed(self) -> None:
        if hasattr(self, "life"):
            assert not self.life.runtime.killed

    @invariant()
    def never_more_than_there_is(self) -> None:
        if not hasattr(self, "life"):
            return
        agent, setting = self.life.agent, self.life.setting
        total = {"cpu": ZERO, "memory": ZERO}
        active = []
        for worker in agent.pods:
            record, is_gone = agent.checkpoint.get(worker.uid), worker.is_over or worker.is_removed
            if record.allocation is not None and record.verdict is None and not is_gone:
                active.append(allocated_pod(worker.pod, record.allocation))
                requests = pod_requests(active[-1])
                total = {name: amount + requests.get(name, ZERO) for name, amount in total.items()}
        assert all(amount <= setting.allocatable[name] for name, amount in total.items()), total
        load = agent.pods.load()  # the sum that verdicts go by
        assert agent.pods.allocated() == active
        assert {name: load.requested.get(name, 0) for name in total} == {
            "cpu": total["cpu"].milli,
            "memory": total["memory"].value,
        }

    def teardown(self) -> None:
        if not hasattr(self, "runner"):
            return
        try:
            if hasattr(self.life, "agent"):
                self.runner.run(self._at_last())
        finally:
            self.runner.run(self.life.close())
            self.runner.close()
            self.patched.undo()
            shutil.rmtree(self.directory, ignore_errors=True)

    async def _at_last(self) -> None:
        try:
            self.life.conditions = ()
            for path in self._container_paths():
                self.kernel.use(path)
            self.life.agent.pods.resizes.retry("periodic_retry")
            deadline_s = time.monotonic() + QUIET_S
            while (noise := await self._noise()) is not None:
                assert time.monotonic() < deadline_s, f"not quiet: {noise}"
                await asyncio.sleep(0.02)
            # A resize that was retried just now may be reported before the rest of its transaction is done.
            while (fresh := await self._fresh()) != self._files(self.kernel, self.kernel):
                assert time.monotonic() < deadline_s, (fresh, self._files(self.kernel, self.kernel))
                await asyncio.sleep(0.02)
            self.no_process_is_killed()
        finally:
            await self.life.kill()

    async def _noise(self) -> str | None:
        """What is still going on, or not as it should be in the end."""
        agent, found = self.life.agent, await self.life.pods()
        if {each["metadata"]["name"] for each in found} != self.pods.keys():
            return "deleted pods are still there"
        uids = {each["metadata"]["uid"] for each in found}
        if not agent.pods.workers.keys() <= uids:
            return "deleted pods still have workers"
        if not agent.cgroups.known().keys() <= uids:
            return "cgroups of deleted pods are still there"
        for document in found:
            if (noise := self._noise_of(document)) is not None:
                return f"{document['metadata']['name']}: {noise}"
        return None

    def _noise_of(self, document: Document) -> str | None:
        agent, status, meta = self.life.agent, document["status"], document["metadata"]
        if status.get("phase") == "Failed":  # there was no room for it
            # from before the agent was killed
            return "its cgroups are still there" if meta["uid"] in agent.cgroups.known() else None
        worker = agent.pods.named("default", meta["name"])
        record = agent.checkpoint.get(meta["uid"])
        if (
            worker is None
            or record.allocation is None
            or worker.pod.metadata.generation != document["metadata"].get("generation")
        ):
            return "not known as it is"
        if record.verdict is not None:
            return f"it is to end: {record.verdict.reason}"
        conditions = agent.pods.resizes.conditions(worker.uid)
        if conditions.pending is not None and "The node had condition" in conditions.pending.message:
            return "deferred for a condition that the node no longer has"
        if conditions.progress is not None or (conditions.pending is None) != is_allocated(
            worker.pod, record.allocation
        ):
            return f"{conditions}"
        types = {each["type"] for each in status.get("conditions", ())} & RESIZE_CONDITIONS
        if types != ({"PodResizePending"} if conditions.pending is not None else set()):
            return f"{types} are reported"
        word = (
            conditions.pending.reason if conditions.pending is not None and self.life.profile == "documents" else None
        )
        if status.get("resize") != word:
            return f"status.resize is {status.get('resize')}"
        block, level = record.allocation.pod_level, status.get("resources")
        if (level is not None) != record.allocation.holds_pod_level:
            return f"{level} is shown of the pod"
        for kind, amounts in msgspec.to_builtins(block or NO_RESOURCES, enc_hook=str).items():
            if any((level or {}).get(kind, {}).get(name) != amount for name, amount in (amounts or {}).items()):
                return f"{block} is allocated to the pod, {level} is shown"
        statuses = (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ()))
        shown: dict[str, Document] = {each["name"]: each for each in statuses}
        for container in all_containers(worker.pod.spec):
            name = container.name
            allocated, actuated = record.allocation.containers[name], record.actuated.get(name)
            if not shown.get(name, {}).get("state", {}).get("running"):
                return f"{name} does not run: {shown}"
            if not same_resources(actuated or NO_RESOURCES, allocated):
                return f"{name}: {allocated} is allocated, {actuated} is actuated"
            if shown[name].get("resources") != msgspec.to_builtins(allocated, enc_hook=str):
                return f"{name}: {allocated} is allocated, {shown[name].get('resources')} is shown"
            made = self.pods[meta["name"]]
            least = made.deaths[name]
            most = least + (made.resizes if made.restarts else 0)
            if not least <= shown[name]["restartCount"] <= most:
                return f"{name} has restarted {shown[name]['restartCount']} times: {made}"
        return None

    async def _fresh(self) -> dict[str, dict[str, str]]:
        """The files of a node that starts with just these pods, each as large as is allocated to it."""
        kernel = SimulatedKernel(self.kernel.version)
        with tempfile.TemporaryDirectory() as state:
            tree = CgroupManager(kernel, self.life.setting, Path(state))
            await tree.setup()
            pods, ids = [], {}
            for worker in self.life.agent.pods:
                allocation = self.life.agent.checkpoint.get(worker.uid).allocation
                if allocation is None or worker.is_over or worker.uid not in self.life.agent.cgroups.known():
                    continue
                pods.append(lean_pod_of(allocated_pod(worker.pod, allocation)))
                ids[worker.uid] = {
                    e.name: e.id
                    for e in self.life.runtime.containers.values()
                    if e.pod_uid == worker.uid and e.phase == "running"
                }
            if pods:
                await tree.add(pods, containers=ids)
        return self._files(kernel, self.kernel)

    @staticmethod
    def _files(kernel: SimulatedKernel, like: SimulatedKernel) -> dict[str, dict[str, str]]:
        found = {}
        for path in walk(kernel, "/"):
            seen = kernel.read(path, every_file(like.version))
            assert seen is not None
            found[path] = dict(seen.files)
        return found

    def _container_paths(self) -> list[str]:
        running = {each.id for each in self.life.runtime.containers.values() if each.phase == "running"}
        return [path for path in walk(self.kernel, "/") if path.rpartition("/")[2] in running]


TestNodeLife = NodeLife.TestCase
TestNodeLife.settings = settings(
    max_examples=examples(10), stateful_step_count=15, deadline=None, suppress_health_check=list(HealthCheck)
)
