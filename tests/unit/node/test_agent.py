"""The whole agent on a simulated kernel, with the real embedded runtime and short real processes, without a server."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from plimsoll.cgroups.drivers.simulated import SimulatedKernel
from plimsoll.cgroups.engine.manager import CgroupManager
from plimsoll.codec.defaults.objects import with_kind_defaults
from plimsoll.codec.schema.schema import KINDS
from plimsoll.kube.client import Client
from plimsoll.node.agent import Agent
from plimsoll.node.standalone import OnePodApi
from plimsoll.node.volumes.pod_dirs import pod_directory, pods_on_disk
from plimsoll.runtime.embedded.runtime import ProcessRuntime
from tests.unit.node.resources.test_pod_cgroups import SETTING

Document = dict[str, Any]
POD = next(kind for kind in KINDS if kind.name == "Pod")
NODE = "n1"
WAIT_S = 180.0


def pod(*containers: Document, **spec: Any) -> Document:
    document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web"},
        "spec": {"containers": list(containers)},
    }
    made = with_kind_defaults(POD, document)
    metadata = {"name": "web", "namespace": "default", "uid": "u-1", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {**made, "metadata": metadata, "spec": {**made["spec"], "nodeName": NODE, **spec}, "status": {}}


def shell(name: str, script: str, **more: Any) -> Document:
    return {"name": name, "image": "busybox", "command": ["sh", "-c", script], **more}


class World:
    """One agent and the API of its one pod; the kernel and the supervisor outlive an agent."""

    def __init__(self, directory: Path, document: Document) -> None:
        self.directory, self.kernel = directory, SimulatedKernel(2)
        self.events: list[Document] = []
        self.statuses: list[Document] = []
        self.changed = asyncio.Event()
        self.api = OnePodApi(document, on_status=self._status, on_event=self.events.append)

    def _status(self, document: Document) -> None:
        self.statuses.append(document["status"])
        self.changed.set()

    def agent(self, clock: Callable[[], float] = time.time) -> Agent:
        runtime = ProcessRuntime(self.directory / "runtime", lambda _: ())
        tree = CgroupManager(self.kernel, SETTING, self.directory / "cgroups")
        return Agent(SETTING, runtime, self.kernel, tree, Client(self.api), self.directory, NODE, clock=clock)

    @contextlib.asynccontextmanager
    async def running(self, *, ends: bool = True) -> AsyncIterator[Agent]:
        agent = self.agent()
        task = asyncio.create_task(agent.run())
        try:
            yield agent
        finally:
            try:
                await (agent.end() if ends else agent.stop())
                await asyncio.wait_for(task, WAIT_S)
            finally:
                task.cancel()
                await asyncio.wait([task])
                if ends:
                    await agent.runtime.open()
                    await agent.runtime.shutdown()  # type: ignore[attr-defined]

    async def until(self, seen: Callable[[Document], Any]) -> Any:
        status: Document = {}
        try:
            async with asyncio.timeout(WAIT_S):
                while True:
                    self.changed.clear()
                    status = self.api.pod["status"] if self.api.pod is not None else {}
                    if found := seen(status):
                        return found
                    await self.changed.wait()
        except TimeoutError:
            raise AssertionError(f"not within {WAIT_S:g} s; last status: {status}; events: {self.events}") from None

    def reasons(self) -> list[str]:
        return [each["reason"] for each in self.events]


async def eventually(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while True:
            if is_so():
                return
            await asyncio.sleep(0.02)


def backing_off(status: Document) -> Document | None:
    waiting = container(status).get("state", {}).get("waiting", {})
    return waiting if waiting.get("reason") == "CrashLoopBackOff" else None


def phase(wanted: str) -> Callable[[Document], bool]:
    return lambda status: status.get("phase") == wanted


def container(status: Document, name: str = "c") -> Document:
    return next((each for each in status.get("containerStatuses", ()) if each["name"] == name), {})


async def test_a_pod_succeeds_and_reports_how(tmp_path: Path) -> None:
    world = World(tmp_path, pod(shell("c", "echo done > /dev/termination-log"), restartPolicy="Never"))
    async with world.running() as agent:
        await world.until(phase("Succeeded"))
        ended = container(world.statuses[-1])["state"]["terminated"]
        assert (ended["exitCode"], ended["reason"], ended["message"]) == (0, "Completed", "done\n")
        assert ended["containerID"].startswith("plimsoll://")
        await agent.recorder.drained(5.0)
    assert {"ImageIgnored", "Created", "Started"} <= set(world.reasons())
    assert "Pulled" not in world.reasons(), "one event for the image: nothing was pulled"
    assert world.kernel.children("/") == []


async def test_limits_without_effect_are_reported(tmp_path: Path) -> None:
    world = World(tmp_path, pod(shell("c", "sleep 1000")))
    async with world.running():
        await world.until(phase("Running"))
        (enforced,) = [each for each in world.statuses[-1]["conditions"] if each["type"] == "Enforced"]
        assert (enforced["status"], enforced["reason"]) == ("False", "CgroupsNotWritable")


async def test_a_restarted_agent_finds_its_container_running(tmp_path: Path) -> None:
    world = World(tmp_path, pod(shell("c", "sleep 1000")))
    async with world.running(ends=False) as agent:
        await world.until(phase("Running"))
        before = container(world.statuses[-1])
    reported = len(world.statuses)
    async with world.running() as agent:
        await agent.ready.wait()
        parts = await agent.view.pod("u-1")
        assert [each.id for each in parts.containers] == [before["containerID"].removeprefix("plimsoll://")]
        assert parts.containers[0].phase == "running"
        # Nothing has changed, so nothing is reported: the next status is that of the end.
        assert len(world.statuses) == reported


async def test_an_exit_while_no_agent_ran_is_reported(tmp_path: Path) -> None:
    world = World(tmp_path, pod(shell("c", "sleep 0.3; exit 9"), restartPolicy="Never"))
    async with world.running(ends=False) as agent:
        await world.until(phase("Running"))
        pid = (await agent.view.pod("u-1")).containers[0].pid
    await eventually(lambda: not Path(f"/proc/{pid}").exists())
    async with world.running():
        await world.until(phase("Failed"))
        assert container(world.statuses[-1])["state"]["terminated"]["exitCode"] == 9


async def test_a_lost_checkpoint_keeps_containers_running(tmp_path: Path) -> None:
    world = World(tmp_path, pod(shell("c", "sleep 1000")))
    async with world.running(ends=False):
        await world.until(phase("Running"))
        before = container(world.statuses[-1])["containerID"]
    (tmp_path / "agent.jsonl").write_bytes(b"\0" * 64)
    async with world.running() as agent:
        await agent.ready.wait()
        assert [f"plimsoll://{each.id}" for each in (await agent.view.pod("u-1")).containers] == [before]
        assert agent.checkpoint.get("u-1").allocation is not None
        assert (tmp_path / "agent.damaged").exists()


async def test_a_deleted_pod_is_removed_completely(tmp_path: Path) -> None:
    script = "trap 'exit 3' TERM; touch /tmp/up; while :; do sleep 0.02; done"
    probe = {"exec": {"command": ["test", "-f", "/tmp/up"]}, "periodSeconds": 1}
    world = World(tmp_path, pod(shell("c", script, readinessProbe=probe), terminationGracePeriodSeconds=10))
    async with world.running() as agent:
        await world.until(lambda status: container(status).get("ready"))  # only then it handles TERM
        world.api.delete(10, time.time())
        await asyncio.wait_for(world.api.gone.wait(), WAIT_S)
        assert container(world.statuses[-1])["state"]["terminated"]["exitCode"] == 3
        assert world.statuses[-1]["phase"] == "Failed"
        assert await agent.view.all() == {}
        assert agent.cgroups.known() == {}
        assert os.listdir(tmp_path / "pods") == []
        assert os.listdir(tmp_path / "logs") == []
        await agent.recorder.drained(5.0)
        assert "Killing" in world.reasons()


async def test_a_shorter_grace_period_ends_a_stop_in_progress(tmp_path: Path) -> None:
    world = World(
        tmp_path, pod(shell("c", "trap '' TERM; while :; do sleep 0.05; done"), terminationGracePeriodSeconds=600)
    )
    async with world.running():
        await world.until(phase("Running"))
        world.api.delete(600, time.time())
        await eventually(lambda: "Killing" in world.reasons())
        world.api.delete(1, time.time())
        await asyncio.wait_for(world.api.gone.wait(), WAIT_S)
        assert container(world.statuses[-1])["state"]["terminated"]["exitCode"] == 137


async def test_a_crash_waits_before_the_next_start(tmp_path: Path) -> None:
    world = World(tmp_path, pod(shell("c", "exit 3")))
    async with world.running():
        waiting = await world.until(backing_off)
        assert waiting["message"].startswith("back-off 10s restarting failed container=c pod=web_default(u-1)")
        assert container(world.statuses[-1])["restartCount"] == 1


async def test_an_unsupported_volume_is_reported_and_retried(tmp_path: Path) -> None:
    mounts = {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    world = World(
        tmp_path, pod(shell("c", "true", **mounts), volumes=[{"name": "v", "nfs": {"server": "x", "path": "/"}}])
    )
    async with world.running() as agent:
        await eventually(lambda: "FailedMount" in world.reasons())
        assert container(world.statuses[-1])["state"]["waiting"]["reason"] == "ContainerCreating"
        assert (await agent.view.pod("u-1")).containers == ()


async def test_the_agent_sends_only_requests_that_a_kubelet_sends(tmp_path: Path) -> None:
    """05 B9: LIST and WATCH of its own pods, status patches, deletion with a uid, events."""
    world = World(tmp_path, pod(shell("c", "exit 1"), restartPolicy="Never"))
    asked: set[tuple[str, str]] = set()
    send, lines = world.api.send, world.api.lines

    async def noted(request: Any) -> Any:
        asked.add((request.method, request.path.partition("?")[0]))
        return await send(request)

    def watched(request: Any) -> Any:
        asked.add(("WATCH", request.path))
        return lines(request)

    world.api.send, world.api.lines = noted, watched  # type: ignore[method-assign]
    async with world.running() as agent:
        await world.until(phase("Failed"))
        world.api.delete(0, time.time())
        await asyncio.wait_for(world.api.gone.wait(), WAIT_S)
        await agent.recorder.drained(5.0)
    pods = "/api/v1/namespaces/default/pods/web"
    watches = {path for method, path in asked if method == "WATCH"}
    assert all("fieldSelector=spec.nodeName%3Dn1" in path and path.startswith("/api/v1/pods?") for path in watches)
    assert {each for each in asked if each[0] != "WATCH"} == {
        ("GET", "/api/v1/pods"),
        ("PATCH", f"{pods}/status"),
        ("DELETE", pods),
        ("POST", "/api/v1/namespaces/default/events"),
        ("GET", "/api/v1/namespaces/default/services"),  # for the variables of containers
        ("GET", "/api/v1/namespaces/default/services/kubernetes"),
    }


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        pytest.param({"nodeSelector": {"disk": "ssd"}}, "NodeAffinity", id="selector"),
        pytest.param({"containers": [shell("c", "true", resources={"requests": {"cpu": "9"}})]}, "OutOfcpu", id="cpu"),
    ],
)
async def test_a_pod_that_does_not_fit_is_refused_for_good(tmp_path: Path, spec: Document, reason: str) -> None:
    world = World(tmp_path, pod(shell("c", "true"), **spec))
    async with world.running() as agent:
        await world.until(phase("Failed"))
        assert world.statuses[-1]["reason"] == reason
        assert await agent.view.all() == {}


async def test_a_crashed_worker_is_restarted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The agent and all other pods continue; the log has the traceback."""
    world = World(tmp_path, pod(shell("c", "sleep 1000")))
    async with world.running() as agent:
        await world.until(phase("Running"))
        worker = agent.pods.workers["u-1"]
        observe, calls = worker._observer.observe, 0

        def broken_once(*args: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == 1:
                raise ZeroDivisionError("a defect")
            return observe(*args)

        worker._observer.observe = broken_once  # type: ignore[method-assign, assignment]
        worker.wake()
        await eventually(lambda: calls > 1)
        assert agent.pods.workers["u-1"] is worker
    assert "worker crashed" in caplog.text
    assert "ZeroDivisionError" in caplog.text


async def test_files_of_a_pod_that_could_not_be_stopped_are_removed_at_the_end(tmp_path: Path) -> None:
    world = World(tmp_path, pod(shell("c", "trap 'exit 0' TERM; while :; do sleep 0.1; done")))
    left = pod_directory(tmp_path, "u-left") / "files" / "etc"
    async with world.running():
        await world.until(phase("Running"))
        left.mkdir(parents=True)
        (left / "hosts").write_text("127.0.0.1 localhost\n")
    assert pods_on_disk(tmp_path) == []
