"""`./dev bench node`: what a whole node costs, and how soon it acts.

A real API server and a real node on this machine's kernel, as in the end-to-end tests. Times are what a client sees: from
sending the POST to the watch event with phase Running, from the DELETE to the event that says it is gone. Pods are bound
already, so the scheduler's time is not in them. Containers end at TERM.

Memory is PSS (`smaps_rollup`) of the agent and of the supervisor; CPU is the scheduler's own count of nanoseconds over a
time without requests. One reconcile of an unchanged node is every worker woken once, with nothing to do:
the agent is started by a few lines (`woken_node.py`) that do so on a signal, and count its CPU time.

`--quick`: a few rounds, and five seconds of idling in place of sixty. `--first`: on a machine that others use, too, the
server, the agent and this client go before all others (SCHED_FIFO), the supervisor has nice −20, and its containers
the largest share of the CPU: then times are about the node again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from plimsoll.cgroups.drivers.detect import this_host  # noqa: E402
from plimsoll.kube.http import HttpTransport  # noqa: E402
from plimsoll.kube.kubeconfig import load  # noqa: E402
from plimsoll.kube.request import ApiResponse, Request  # noqa: E402
from tests.e2e.real_node import NODE, RealNode, real_node  # noqa: E402

PODS = "/api/v1/namespaces/default/pods"
ENDS_AT_TERM = "trap 'exit 0' TERM; echo up; sleep 100000 & wait"
RUNNING_GOAL_MS, GONE_GOAL_MS = 60.0, 150.0
CPU_GOAL, MEMORY_GOAL_MIB, FURTHER_POD_GOAL_MIB = 1.0, 60.0, 0.1
POSTED_GOAL_S = 0.16
KEPT_CONNECTIONS = 25  # as client-go keeps
WAIT_S = 120.0
Document = dict[str, Any]


def manifest(name: str) -> bytes:
    resources = {"requests": {"memory": "2Mi"}, "limits": {"cpu": "1", "memory": "16Mi"}}
    container = {"name": "c", "image": "busybox", "command": ["sh", "-c", ENDS_AT_TERM], "resources": resources}
    spec = {"nodeName": NODE, "containers": [container], "terminationGracePeriodSeconds": 10}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}).encode()


class Seen:
    """When the watch reported each pod as running, and as gone."""

    def __init__(self) -> None:
        self.running: dict[str, float] = {}
        self.gone: dict[str, float] = {}
        self._news = asyncio.Event()

    def take(self, line: bytes) -> None:
        event = msgspec.json.decode(line)
        now = time.perf_counter()
        name = event["object"].get("metadata", {}).get("name", "")
        if event["type"] == "DELETED":
            self.gone[name] = now
        elif event["object"].get("status", {}).get("phase") == "Running":
            self.running.setdefault(name, now)
        self._news.set()

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not true():
                self._news.clear()
                await self._news.wait()


class Bench:
    def __init__(self, node: RealNode, transport: HttpTransport, seen: Seen, *, quick: bool) -> None:
        self.node, self.transport, self.seen = node, transport, seen
        self.rounds, self.idle_s = (10, 5.0) if quick else (60, 60.0)
        self._number = 0
        self.present: list[str] = []

    def fresh(self) -> str:
        self._number += 1
        return f"p{self._number}"

    async def post(self, name: str) -> None:
        answer = await self.transport.send(Request("POST", PODS, manifest(name), "application/json"))
        assert answer.status == 201, answer

    async def delete(self, name: str) -> None:
        answer = await self.transport.send(Request("DELETE", f"{PODS}/{name}"))
        assert answer.status in (200, 202), answer

    async def have(self, count: int) -> None:
        """That many pods, all running."""
        names = [self.fresh() for _ in range(count - len(self.present))]
        for begin in range(0, len(names), 20):
            part = names[begin : begin + 20]
            await asyncio.gather(*(self.post(name) for name in part))
            await self.seen.until(lambda part=part: all(name in self.seen.running for name in part))  # type: ignore[misc]
        self.present += names

    async def one_at_a_time(self) -> tuple[list[float], list[float], list[float]]:
        """Milliseconds to Running and to gone, and CPU milliseconds of server, agent and supervisor for each pod."""
        started, ended = [], []
        assert self.node.api is not None
        pids = (self.node.api.pid, *self.pids())
        before = [cpu_s(pid) for pid in pids]
        for _ in range(self.rounds):
            name = self.fresh()
            begun = time.perf_counter()
            await self.post(name)
            await self.seen.until(lambda name=name: name in self.seen.running)  # type: ignore[misc]
            started.append((self.seen.running[name] - begun) * 1e3)
            await self.up(name)
            begun = time.perf_counter()
            await self.delete(name)
            await self.seen.until(lambda name=name: name in self.seen.gone)  # type: ignore[misc]
            ended.append((self.seen.gone[name] - begun) * 1e3)
        spent = [(cpu_s(pid) - was) * 1e3 / self.rounds for pid, was in zip(pids, before, strict=True)]
        return started, ended, spent

    async def up(self, name: str) -> None:
        """Its shell has come to its trap: before that it would not end at TERM."""
        async with asyncio.timeout(WAIT_S):
            while not any(file.stat().st_size for file in self.node.state.glob(f"**/default_{name}_*/c/0.log")):  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    async def at_once(self, count: int) -> tuple[float, float]:
        """Seconds until all are answered, while the agent starts the first of them, and until all are running."""
        names = [self.fresh() for _ in range(count)]
        begun = time.perf_counter()
        await asyncio.gather(*(self.post(name) for name in names))
        answered = time.perf_counter() - begun
        await self.seen.until(lambda: all(name in self.seen.running for name in names))
        took = max(self.seen.running[name] for name in names) - begun
        for name in names:
            await self.up(name)
        await asyncio.gather(*(self.delete(name) for name in names))
        await self.seen.until(lambda: all(name in self.seen.gone for name in names))
        return answered, took

    async def idle(self) -> tuple[float, float, float, float]:
        """Percent of a core and MiB, of the agent and of the supervisor."""
        agent, supervisor = self.pids()
        await asyncio.sleep(2.0)  # what the last change has set going ends by itself
        before = cpu_s(agent), cpu_s(supervisor)
        begun = time.monotonic()
        await asyncio.sleep(self.idle_s)
        took = time.monotonic() - begun
        spent = cpu_s(agent) - before[0], cpu_s(supervisor) - before[1]
        return spent[0] / took * 100, spent[1] / took * 100, pss_mib(agent), pss_mib(supervisor)

    async def reconcile(self) -> tuple[float, int]:
        """CPU milliseconds of one sync of everything, the least of five; and of how many pods."""
        best, pods = float("inf"), 0
        for _ in range(5):
            answer = self.node.directory / "woken.json"
            answer.unlink(missing_ok=True)
            os.kill(self.pids()[0], signal.SIGUSR2)
            async with asyncio.timeout(WAIT_S):
                while not answer.exists():  # noqa: ASYNC110  another process makes it
                    await asyncio.sleep(0.05)
            result = json.loads(answer.read_bytes())
            best, pods = min(best, result["cpu_ms"]), result["pods"]
        return best, pods

    def pids(self) -> tuple[int, int]:
        assert self.node.node is not None
        return self.node.node.pid, self.node.supervisor_pid()


def cpu_s(pid: int) -> float:
    """Of all its threads, in the scheduler's nanoseconds."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def pss_mib(pid: int) -> float:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")) / 1024


def spread(values: list[float]) -> str:
    ordered = sorted(values)
    last = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    return f"p50 {statistics.median(ordered):6.1f} ms   p99 {last:6.1f} ms   least {ordered[0]:6.1f} ms"


def go_first(node: RealNode) -> None:
    assert node.api is not None
    assert node.node is not None
    for pid in (node.api.pid, node.node.pid, os.getpid()):
        for task in Path(f"/proc/{pid}/task").iterdir():
            how = os.SCHED_FIFO | os.SCHED_RESET_ON_FORK
            os.sched_setscheduler(int(task.name), how, os.sched_param(1))
    os.setpriority(os.PRIO_PROCESS, node.supervisor_pid(), -20)  # not FIFO: its children could not enter a cgroup
    # Containers compete as one cgroup with everything else on the machine.
    Path(f"{this_host().v1['cpu'].mount_point}{node.cgroup_root}/cpu.shares").write_text("262144")


def verdict(value: float, goal: float) -> str:
    return f"(goal {goal:g}: {'yes' if value <= goal else 'NO'})"


SeenT = TypeVar("SeenT", bound=Seen)


@asynccontextmanager
async def watched(transport: HttpTransport, seen: SeenT) -> AsyncIterator[SeenT]:
    began = asyncio.Event()

    async def follow() -> None:
        async with aclosing(transport.lines(Request("GET", f"{PODS}?watch=true"))) as lines:
            async for line in lines:
                began.set()
                if not isinstance(line, ApiResponse):
                    seen.take(line)

    task = asyncio.create_task(follow())
    try:
        await began.wait()
        yield seen
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def measured(node: RealNode, sizes: list[int], *, quick: bool) -> None:
    transport = HttpTransport(load(node.kubeconfig), idle=KEPT_CONNECTIONS)
    async with watched(transport, Seen()) as seen:
        bench = Bench(node, transport, seen, quick=quick)
        memory: dict[int, float] = {}
        for size in sizes:
            await bench.have(size)
            if size <= 110:
                started, ended, spent = await bench.one_at_a_time()
                shown = f"{size:4d} pods   "
                print(f"{shown}Running  {spread(started)} {verdict(statistics.median(started), RUNNING_GOAL_MS)}")
                print(f"{shown}gone     {spread(ended)} {verdict(statistics.median(ended), GONE_GOAL_MS)}")
                server, agent, supervisor = spent
                print(f"{shown}CPU of a pod that comes and goes: server {server:.1f}, agent {agent:.1f}, ", end="")
                print(f"supervisor {supervisor:.1f} ms")
            if size == 1:
                tries = [await bench.at_once(49) for _ in range(5)]
                answered, took = min(each[0] for each in tries), min(each[1] for each in tries)
                median = statistics.median(each[0] for each in tries)
                print(
                    f"{size:4d} pods   49 more at once: answered after {median:.2f} s, {verdict(median, POSTED_GOAL_S)}, ",
                    end="",
                )
                print(f"the best of 5 {answered:.2f} s; all Running after {took:.2f} s, the best of 5")
            agent, supervisor, agent_mib, supervisor_mib = await bench.idle()
            memory[size] = agent_mib + supervisor_mib
            goals = f"{verdict(agent + supervisor, CPU_GOAL)} {verdict(memory[size], MEMORY_GOAL_MIB)}"
            print(
                f"{size:4d} pods   idle     {agent:.2f} + {supervisor:.2f} % of a core, {agent_mib:.1f} + "
                f"{supervisor_mib:.1f} MiB, agent + supervisor{' ' + goals if size == 50 else ''}"
            )
            spent_ms, pods = await bench.reconcile()
            print(f"{size:4d} pods   one reconcile of all {pods}, unchanged: {spent_ms:.1f} ms CPU", flush=True)
        few, most = (50 if 50 in memory else min(memory)), max(memory)
        if most > few:
            each = (memory[most] - memory[few]) / (most - few)
            print(f"each pod beyond {few}: {each:.3f} MiB {verdict(each, FURTHER_POD_GOAL_MIB)}")
        for begin in range(0, len(bench.present), 50):  # an agent that ends takes away only what it can in its time
            part = bench.present[begin : begin + 50]
            await asyncio.gather(*(bench.delete(name) for name in part))
            await seen.until(lambda part=part: all(name in seen.gone for name in part))  # type: ignore[misc]
    await transport.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--pods", type=lambda text: [int(each) for each in text.split(",")], default=[1, 50, 110, 500])
    parser.add_argument("--first", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="plimsoll-bench-") as directory:
        config = Path(directory) / "kubelet.json"
        kind = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}
        config.write_text(json.dumps({**kind, "maxPods": 600, "registryPullQPS": 0}))
        options = ("--config", str(config), "--capacity", "cpu=700,memory=8Gi,pods=600")
        before = (sys.executable, str(HERE / "woken_node.py"), f"{directory}/cluster/woken.json")
        with real_node(Path(directory) / "cluster", options=options, before=before) as node:
            print(f"load of the machine: {os.getloadavg()[0]:.1f}")
            if asked.first:
                go_first(node)
            asyncio.run(measured(node, asked.pods, quick=asked.quick))


if __name__ == "__main__":
    main()
