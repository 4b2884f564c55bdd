"""Half an hour of pods that come and go, with exec, logs, resizes and kills: memory stays flat, nothing is left.

The agent and the API server are killed and started again in the first third only: growth is measured in the second
half, in processes that are warm by then. Processes of containers are killed all the time. A request may fail only while a process
that it needs is down: a log is then answered with 500, as a kube-apiserver does.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from plimsoll.kube.http import HttpTransport
from plimsoll.kube.kubeconfig import load
from plimsoll.kube.request import ApiError, ApiResponse, Request, UnreachableError, UnusableAnswerError
from tests.e2e.real_node import NODE, RealNode, real_node
from tests.e2e.soak import PODS, Books, read_books

EVENT_TTL = "5m"  # else events of an hour are kept, and memory grows until then
RUNS_S, LIVES_S, GONE_S, CALM_S, PARTS = 20.0, 3.0, 120.0, 90.0, 20
SHOWN = 5  # unexpected answers
# Of a process, from the middle to the end; kept history and events of the API server are bounded by time and count.
FLAT_MIB = {"api": 25.0, "agent": 6.0, "supervisor": 2.0}
SCRIPT = "trap 'exit 0' TERM; while :; do echo alive; sleep 1; done"
RESIZED = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "20m"}, "limits": {"cpu": "60m"}}}]}}
PASSING = (UnreachableError, UnusableAnswerError, ApiError, OSError, EOFError)  # while the API server or agent restarts


def manifest(name: str) -> bytes:
    resources = {"requests": {"cpu": "10m", "memory": "8Mi"}, "limits": {"cpu": "50m", "memory": "64Mi"}}
    container = {"name": "c", "image": "busybox", "command": ["sh", "-c", SCRIPT], "resources": resources}
    spec: dict[str, Any] = {"nodeName": NODE, "containers": [container], "terminationGracePeriodSeconds": 3}
    return json.dumps({"metadata": {"name": name}, "spec": spec}).encode()


class Churn:
    def __init__(self, node: RealNode, seconds: float, per_s: float, seed: int) -> None:
        self._node, self._seconds, self._per_s = node, seconds, per_s
        self._random = random.Random(seed)
        self._transport = HttpTransport(load(node.kubeconfig))
        self.counts: Counter[str] = Counter()
        self.books: list[Books] = []
        self.unexpected: list[str] = []
        self._restarts, self._is_down = 0, False

    async def run(self) -> None:
        started, number = time.monotonic(), 0
        for part in range(PARTS):
            async with asyncio.TaskGroup() as group:
                while time.monotonic() < started + (part + 1) * self._seconds / PARTS:
                    group.create_task(self._life(f"p{number}"))
                    number += 1
                    await asyncio.sleep(1 / self._per_s)  # what a wait has delayed is not made up for
                if part < PARTS // 3:  # while pods are alive
                    await self._restart("agent" if part % 3 else "api")
            self.counts["left"] += await self._left()
            self.books.append(await self._calm())
        self.counts["pods"] = number
        await self._transport.close()

    async def _life(self, name: str) -> None:
        await self._ask("POST", PODS, manifest(name))
        await self._runs(name)
        await self._exec(name)
        await self._ask(
            "PATCH", f"{PODS}/{name}", json.dumps(RESIZED).encode(), "application/strategic-merge-patch+json"
        )
        await self._ask("GET", f"{PODS}/{name}/log?tailLines=5")
        if self._random.random() < 0.2:
            self._kill_a_process()
        await asyncio.sleep(LIVES_S)
        while True:
            answer = await self._ask("DELETE", f"{PODS}/{name}")
            if answer is not None and answer.status in (200, 202, 404):
                return
            await asyncio.sleep(0.5)  # the API server restarts

    async def _runs(self, name: str) -> None:
        """Until it runs, or for a while: the agent may be down."""
        deadline = time.monotonic() + RUNS_S
        while time.monotonic() < deadline:
            answer = await self._ask("GET", f"{PODS}/{name}")
            if answer is not None and answer.status == 200 and b'"phase":"Running"' in answer.body:
                return
            await asyncio.sleep(0.5)

    async def _ask(
        self, method: str, path: str, body: bytes = b"", kind: str = "application/json"
    ) -> ApiResponse | None:
        was_down, restarts = self._is_down, self._restarts
        try:
            answer = await self._transport.send(Request(method, path, body, kind))
        except PASSING as error:
            answer, text = None, repr(error)
        else:
            text = f"{answer.status} {answer.body[:500].decode(errors='replace')}"
        may_fail = was_down or self._is_down or restarts != self._restarts
        outcome = f"{method} {'without an answer' if answer is None else answer.status}"
        if answer is None or answer.status >= 500:
            if not may_fail:
                self.unexpected.append(f"{method} {path}: {text}")
            outcome += " while a process was down" if may_fail else ", unexpectedly"
        self.counts[outcome] += 1
        return answer

    async def _exec(self, name: str) -> None:
        path = f"{PODS}/{name}/exec?command=echo&command={name}&stdout=true&stderr=true"
        try:
            socket = await self._transport.websocket(path, ("v5.channel.k8s.io",))
        except PASSING:
            self.counts["exec refused"] += 1
            return
        output = b""
        with contextlib.suppress(*PASSING):
            while (message := await socket.receive()) is not None:
                output += message[1:] if message[:1] == b"\x01" else b""
        await socket.close()
        self.counts["exec" if output == f"{name}\n".encode() else "exec cut off"] += 1

    def _kill_a_process(self) -> None:
        """One of a container, which then restarts by its policy."""
        pids = [
            int(pid)
            for cgroup in self._node.memory_cgroups()
            for pid in _pids(self._node.memory_root / cgroup.lstrip("/") / "cgroup.procs")
        ]
        if pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._random.choice(pids), signal.SIGKILL)
                self.counts["processes killed"] += 1

    async def _restart(self, what: str) -> None:
        kill, start = (
            (self._node.kill_node, self._node.start_node)
            if what == "agent"
            else (self._node.kill_api, self._node.start_api)
        )
        self._is_down = True
        await asyncio.to_thread(kill)
        await asyncio.to_thread(start)
        while True:  # until the API server reaches the node's endpoint, which has another port now
            answer = await self._ask("GET", f"/api/v1/nodes/{NODE}/proxy/healthz")
            if answer is not None and answer.status == 200:
                break
            await asyncio.sleep(0.2)
        self._is_down, self._restarts = False, self._restarts + 1
        self.counts[f"{what} killed"] += 1

    async def _left(self) -> int:
        deadline = time.monotonic() + GONE_S
        while True:
            answer = await self._ask("GET", f"{PODS}?limit=500")
            left = len(msgspec.json.decode(answer.body)["items"]) if answer is not None else 1
            if not left or time.monotonic() > deadline:
                return left
            await asyncio.sleep(0.2)

    async def _calm(self) -> Books:
        """When the agent has closed the cgroups of all pods: it keeps them until its next sample, so take some."""
        assert self._node.node is not None
        deadline = time.monotonic() + CALM_S
        while (kept := _pod_cgroups(self._node.node.pid)) and time.monotonic() < deadline:
            await self._ask("GET", f"/api/v1/nodes/{NODE}/proxy/stats/summary")
            await asyncio.sleep(1.0)
        self.counts["files of removed pods"] += kept
        return read_books(self._node)


def _pod_cgroups(pid: int) -> int:
    """How many files in cgroups of pods a process has open."""
    found = 0
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):  # closed meanwhile
            found += "/pod" in os.readlink(descriptor).partition("/kubepods")[2]
    return found


def _pids(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:  # the cgroup is gone
        return []


def judged(books: list[Books], cgroups_before: int) -> list[str]:
    faults = []
    middle, last = books[len(books) // 2], books[-1]
    for name, most in FLAT_MIB.items():
        grown = last.memory_mib[name] - middle.memory_mib[name]
        if grown > most:
            faults.append(f"{name} has grown by {grown:.1f} MiB: {[round(b.memory_mib[name], 1) for b in books]}")
        if last.descriptors[name] > middle.descriptors[name] + 10:
            faults.append(f"{name} has {last.descriptors[name]} descriptors: {[b.descriptors[name] for b in books]}")
    if last.cgroups != cgroups_before:
        faults.append(f"{last.cgroups} cgroups, there were {cgroups_before}")
    return faults


def run(directory: Path, seconds: float, per_s: float, seed: int) -> tuple[dict[str, Any], list[str]]:
    with real_node(directory / "cluster", api_options=("--event-ttl", EVENT_TTL)) as node:
        before = read_books(node)
        churn = Churn(node, seconds, per_s, seed)
        asyncio.run(churn.run())
        faults = judged(churn.books, before.cgroups)
        if left := list((node.state / "node").glob("pods/*")):
            faults.append(f"{len(left)} pods have left files")
        for log in ("node.log", "api.log"):
            text = (node.directory / log).read_text()
            if (start := text.find("Traceback")) >= 0:
                faults.append(f"a traceback in {log}:\n{text[start : start + 4000]}")
    counts = churn.counts
    if churn.unexpected:
        faults.append("\n".join([f"{len(churn.unexpected)} requests failed", *churn.unexpected[:SHOWN]]))
    if (
        counts["left"]
        or counts["files of removed pods"]
        or counts["exec"] < counts["pods"] // 2
        or not counts["processes killed"]
    ):
        faults.append(f"not all went well: {dict(counts)}")
    shown = {
        "memory_mib": {name: [round(b.memory_mib[name], 1) for b in churn.books] for name in FLAT_MIB},
        "descriptors": {name: [b.descriptors[name] for b in churn.books] for name in FLAT_MIB},
        "store_mib": [round(b.store_mib, 2) for b in churn.books],
    }
    return {**counts, **shown, "failed": len(faults)}, faults
