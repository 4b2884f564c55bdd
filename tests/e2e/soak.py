"""Pods made and deleted at a steady pace, and what is left of them: memory, descriptors, cgroups, the store's size.

A pod lives for a second or so. After each tenth of them the figures are read; when all are gone, nothing may be left
but what was there before, and what is kept on purpose (the store keeps history and events for a while, and packs them).
The first fifth is for warming up: growth is counted from there.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from plimsoll.kube.http import HttpTransport
from plimsoll.kube.kubeconfig import load
from plimsoll.kube.request import Request
from tests.e2e.real_node import NODE, RealNode, real_node

PODS = "/api/v1/namespaces/default/pods"
LIVES_S, GONE_S, CALM_S = 1.0, 120.0, 30.0
SCRIPT = "trap 'exit 0' TERM; echo up; sleep 100000 & wait"
PART = 10  # the figures are read so often
# Beyond warming up, for every thousand pods.
MEMORY_MIB_PER_1000 = {"api": 25.0, "agent": 6.0, "supervisor": 2.0}
STORE_MIB_MOST = 64.0


class Books(msgspec.Struct, frozen=True):
    memory_mib: dict[str, float]
    descriptors: dict[str, int]
    cgroups: int
    store_mib: float


def read_books(node: RealNode) -> Books:
    assert node.api is not None
    assert node.node is not None
    pids = {"api": node.api.pid, "agent": node.node.pid, "supervisor": node.supervisor_pid()}
    store = sum(path.stat().st_size for path in node.api_state.rglob("*") if path.is_file())
    return Books(
        {name: pss_mib(pid) for name, pid in pids.items()},
        {name: len(os.listdir(f"/proc/{pid}/fd")) for name, pid in pids.items()},
        len(node.memory_cgroups()),
        store / (1 << 20),
    )


def pss_mib(pid: int) -> float:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")) / 1024


def manifest(name: str) -> bytes:
    container = {"name": "c", "image": "busybox", "command": ["sh", "-c", SCRIPT]}
    spec: dict[str, Any] = {"nodeName": NODE, "containers": [container], "terminationGracePeriodSeconds": 5}
    return json.dumps({"metadata": {"name": name}, "spec": spec}).encode()


async def _one(transport: HttpTransport, name: str, counts: Counter[str]) -> None:
    answer = await transport.send(Request("POST", PODS, manifest(name), "application/json"))
    counts[f"POST {answer.status}"] += 1
    await asyncio.sleep(LIVES_S)
    answer = await transport.send(Request("DELETE", f"{PODS}/{name}"))
    counts[f"DELETE {answer.status}"] += 1


async def _gone(transport: HttpTransport) -> int:
    """How many are still there when there was time enough for all."""
    deadline = time.monotonic() + GONE_S
    while True:
        answer = await transport.send(Request("GET", f"{PODS}?limit=500"))
        left = len(msgspec.json.decode(answer.body)["items"])
        if not left or time.monotonic() > deadline:
            return left
        await asyncio.sleep(0.2)


async def soaked(node: RealNode, pods: int, per_s: float, counts: Counter[str]) -> list[Books]:
    transport = HttpTransport(load(node.kubeconfig))
    books = [read_books(node)]
    begun = time.monotonic()
    for part in range(PART):
        async with asyncio.TaskGroup() as group:
            first = part * pods // PART
            for number in range(first, (part + 1) * pods // PART):
                await asyncio.sleep(max(0.0, begun + number / per_s - time.monotonic()))
                group.create_task(_one(transport, f"p{number}", counts))
        left = await _gone(transport)
        counts["left"] += left
        books.append(read_books(node))
    counts["seconds"] = round(time.monotonic() - begun)
    await transport.close()
    books.append(await _calm(node, books[PART // 5]))
    return books


async def _calm(node: RealNode, warm: Books) -> Books:
    """When they are steady: the agent keeps the files of cgroups that it measures until its next sample."""
    deadline = time.monotonic() + CALM_S
    while True:
        now = read_books(node)
        if now.descriptors["agent"] <= warm.descriptors["agent"] + 10 or time.monotonic() > deadline:
            return now
        await asyncio.sleep(1.0)


def judged(books: list[Books], pods: int) -> list[str]:
    faults = []
    before, warm, last = books[0], books[PART // 5], books[-1]
    thousands = max(1.0, pods * (1 - 2 / PART) / 1000)
    for name, most in MEMORY_MIB_PER_1000.items():
        grown = last.memory_mib[name] - warm.memory_mib[name]
        if grown > most * thousands:
            faults.append(
                f"{name} has grown by {grown:.1f} MiB since it was warm: {[b.memory_mib[name] for b in books]}"
            )
        # Watches, kept connections and the like come and go.
        if last.descriptors[name] > warm.descriptors[name] + 10:
            faults.append(f"{name} has {last.descriptors[name]} descriptors: {[b.descriptors[name] for b in books]}")
    if last.cgroups != before.cgroups:
        faults.append(f"{last.cgroups} cgroups, there were {before.cgroups}")
    if last.store_mib - books[0].store_mib > STORE_MIB_MOST:
        faults.append(f"the store has grown to {last.store_mib:.1f} MiB: {[round(b.store_mib, 1) for b in books]}")
    return faults


def run(directory: Path, pods: int, per_s: float = 10.0) -> tuple[dict[str, Any], list[str]]:
    counts: Counter[str] = Counter()
    with real_node(directory / "cluster") as node:
        books = asyncio.run(soaked(node, pods, per_s, counts))
        faults = judged(books, pods)
        left_on_disk = list((node.state / "node").glob("pods/*"))
        if left_on_disk:
            faults.append(f"{len(left_on_disk)} pods have left files")
        for log in ("node.log", "api.log"):
            if "Traceback" in (node.directory / log).read_text():
                faults.append(f"a traceback in {log}")
    if counts["POST 201"] != pods or counts["left"]:
        faults.append(f"not all went well: {dict(counts)}")
    shown = {
        "memory_mib": {name: [round(b.memory_mib[name], 1) for b in books] for name in MEMORY_MIB_PER_1000},
        "descriptors": {name: [b.descriptors[name] for b in books] for name in MEMORY_MIB_PER_1000},
        "store_mib": [round(b.store_mib, 2) for b in books],
        "cgroups": [b.cgroups for b in books],
    }
    return {**counts, **shown, "failed": len(faults)}, faults
