"""The page of the dashboard by itself: how long its scripts take for each update, with many pods and many nodes.

A played server sends the very snapshot and changes that an API server sends: every pod with one container, of which one
in ten has changed since the last update, one update each `PACE_S`. The browser is a real Chromium. `script` is the time
from a message to the end of rendering; `input` the time from a click to the next frame that shows its result.
"""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import msgspec
from playwright.sync_api import Browser

from plimsoll.codec.lean.lean import lean_pod
from plimsoll.codec.live_page import COLUMN, COLUMNS, NONE, Mark
from plimsoll.node.live.orders import eviction_order, kill_order, overview
from plimsoll.node.live.state import LiveState
from plimsoll.node.live.vessels import VesselIds, node_vessels
from plimsoll.rules.config.parse import reading
from plimsoll.rules.model.objects import CPU, MEMORY, Pod
from plimsoll.rules.node.node_config import machine_from_capacity, resolved
from plimsoll.rules.profile import profile_named
from plimsoll.rules.quantity import Quantity
from plimsoll.web.site import headers_of, static_file

PACE_S = 0.5
CHANGED = 10  # one in so many pods
MIB = 1 << 20
VIEWS = ("hull", "node", "pod", "next", "fleet", "pod/default/pod-000")


def pods(count: int) -> list[Pod]:
    found = []
    for number in range(count):
        resources = {"requests": {"cpu": "10m", "memory": "4Mi"}, "limits": {"memory": "64Mi"}} if number % 3 else {}
        container = {"name": "app", "image": "x", "resources": resources}
        name = f"pod-{number:03d}"
        metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
        found.append(lean_pod({"metadata": metadata, "spec": {"containers": [container]}}))
    return found


class PlayedNode:
    """A node with `count` pods as its agent would show it."""

    def __init__(self, count: int) -> None:
        config = reading(None, profile_named("documents"), {}).config
        capacity = {CPU: Quantity.parse("64"), MEMORY: Quantity.parse("64Gi")}
        setting = resolved(machine_from_capacity(capacity), config, profile_named("documents"))
        self.gates, self.memory_bytes = setting.policy.gates, setting.machine.memory_bytes
        self.pods, self._random = pods(count), random.Random(count)
        running = {pod.metadata.uid: {"app": f"id-{pod.metadata.uid}"} for pod in self.pods}
        self._vessels = node_vessels(self.pods, running, {}, setting, VesselIds())
        self.state, self._ticks = LiveState("bench"), 0
        self.tick()

    def tick(self) -> None:
        self._ticks += 1
        self.state.begin(1_700_000_000 + PACE_S * self._ticks)
        self.state.set_vessels(self._vessels.listed)
        for number, vessel in enumerate(self._vessels.listed):
            if self._ticks == 1 or number % CHANGED == self._ticks % CHANGED or vessel["level"] in ("pods", "class"):
                self.state.set_row(vessel["id"], self._row())
        if self._ticks % 10 == 0:
            pod = self.pods[self._ticks % len(self.pods)].metadata
            mark = Mark(self.state.at_s, "throttling", "throttled", "", pod.namespace, pod.name, pod.uid, "app")
            self.state.add_mark(mark)
        vessels, rows = self.state.vessels, self.state.rows
        signal = {"signal": "memory.available", "available": 900 * MIB, "capacity": 64 << 30, "threshold": 100 * MIB}
        node = {**self._vessels.facts, "conditions": [], "signals": [signal], "pressure": {}, "simulated": False}
        self.state.set_node({**node, **overview(vessels, rows)})
        order = eviction_order(self.pods, vessels, rows, "single", self.gates)
        self.state.set_orders({"eviction": order, "oom": kill_order(vessels, rows, self.memory_bytes)})

    def _row(self) -> list[int]:
        row = [NONE] * len(COLUMNS)
        anon = self._random.randrange(40 * MIB)
        figures = {"usage": anon + 8 * MIB, "anon": anon, "shmem": 0, "kernel": MIB, "activeFile": MIB}
        figures |= {"inactiveFile": 6 * MIB, "max": 64 * MIB, "cpuMilli": self._random.randrange(90), "weight": 10}
        for name, value in figures.items():
            row[COLUMN[name]] = value
        return row


def objects(node: PlayedNode, names: list[str]) -> dict[str, Any]:
    shown = {}
    for pod in node.pods:
        container = {"name": "app", "requests": {}, "limits": {}, "applied": {}, "restarts": 0, "ready": True}
        shown[pod.metadata.uid] = {
            "uid": pod.metadata.uid,
            "namespace": "default",
            "name": pod.metadata.name,
            "node": names[0],
            "phase": "Running",
            "qosClass": "Burstable",
            "reason": "",
            "message": "",
            "priority": 0,
            "created": 0,
            "deleting": False,
            "resize": "",
            "conditions": [],
            "containers": [{**container, "state": "running", "reason": "", "lastReason": ""}],
        }
    amounts = {"cpu": "64", "memory": "64Gi"}
    ready = [{"type": "Ready", "status": "True"}]
    about = {"capacity": amounts, "allocatable": amounts, "conditions": ready, "version": "v1.27.0", "taints": []}
    return {"pods": shown, "nodes": {name: {"name": name, **about} for name in names}, "events": {}}


class PlayedServer:
    """The pages and the stream of the dashboard, for one browser on loopback."""

    def __init__(self, count: int, nodes: int) -> None:
        self._node, self._names = PlayedNode(count), [f"node-{number:02d}" for number in range(nodes)]
        self.sent: list[int] = []  # bytes of each change

    def snapshot(self) -> bytes:
        frame, fleet = self._node.state.frame(), dict.fromkeys(self._names, self._node.state.node)
        shown = objects(self._node, self._names)
        message = {"kind": "snapshot", "hub": "h", "seq": 0, "at": 0, "objects": shown, "fleet": fleet}
        return msgspec.json.encode({**message, "name": self._names[0], "problem": "", "frame": frame}) + b"\n"

    async def lines(self) -> AsyncIterator[bytes]:
        yield self.snapshot()
        number = 0
        while True:
            await asyncio.sleep(PACE_S)
            before = self._node.state.seq
            self._node.tick()
            number += 1
            data = msgspec.json.encode(self._node.state.frame(before))
            line = b'{"kind":"delta","seq":%d,"topic":"node/%b","data":%b}\n' % (number, self._names[0].encode(), data)
            self.sent.append(len(line))
            yield line
            if number % 10 == 0:  # every 5 s, as the hub does
                number += 1
                fleet = {"nodes": dict.fromkeys(self._names, self._node.state.node), "gone": []}
                yield b'{"kind":"delta","seq":%d,"topic":"fleet","data":%b}\n' % (number, msgspec.json.encode(fleet))

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        path = urlsplit(head.split(" ")[1]).path.removeprefix("/dashboard/")
        try:
            if path == "api/stream":
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nConnection: close\r\n\r\n")
                async for line in self.lines():
                    writer.write(line)
                    await writer.drain()
            who = {"user": "bench", "missing": [], "mayResize": True, "profile": "documents"}
            found = {"api/whoami": who, "api/history": {"frames": []}}.get(path)
            file = None if found is not None else static_file(path)
            body = json.dumps(found).encode() if found is not None else file.body if file is not None else b""
            headers = headers_of(file) if file is not None else [(b"content-type", b"application/json")]
            writer.write(b"HTTP/1.1 %d OK\r\n" % (200 if body else 404))
            for name, value in (*headers, (b"content-length", b"%d" % len(body)), (b"connection", b"close")):
                writer.write(name + b": " + value + b"\r\n")
            writer.write(b"\r\n" + body)
            await writer.drain()
        except (ConnectionError, asyncio.CancelledError):
            pass  # the browser has closed the tab, or this is the end
        finally:
            writer.close()


@contextmanager
def serving(played: PlayedServer) -> Iterator[str]:
    """The address of the dashboard, while a thread serves it."""
    loop, ready, address = asyncio.new_event_loop(), threading.Event(), []

    async def serve() -> None:
        server = await asyncio.start_server(played.answer, "127.0.0.1", 0)
        address.append(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/dashboard/")
        ready.set()

    async def ended() -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    loop.create_task(serve())
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    ready.wait(30)
    try:
        yield address[0]
    finally:
        asyncio.run_coroutine_threadsafe(ended(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)


def measured(browser: Browser, count: int, nodes: int, updates: int = 24) -> dict[str, Any]:
    played = PlayedServer(count, nodes)
    found: dict[str, Any] = {"pods": count, "nodes": nodes, "snapshotKB": len(played.snapshot()) // 1000}
    with serving(played) as address:
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        page = context.new_page()
        page.goto(address)
        page.evaluate("() => sessionStorage.setItem('plimsoll.session', 'bench')")
        page.goto(address)
        page.wait_for_selector("[data-vessel]", timeout=120_000)
        for view in VIEWS:
            page.evaluate("view => { location.hash = `#/${view}`; }", view)
            page.wait_for_selector("main .card")
            page.wait_for_function("() => globalThis.plimsollDashboard.scriptMs.length >= 2", timeout=120_000)
            page.evaluate("() => { globalThis.plimsollDashboard.scriptMs.length = 0; }")
            wanted = updates if view == "hull" else updates // 3
            enough = f"() => globalThis.plimsollDashboard.scriptMs.length >= {wanted}"
            page.wait_for_function(enough, timeout=120_000, polling=200)
            took = page.evaluate("() => globalThis.plimsollDashboard.scriptMs")
            found[view] = {"scriptMsMean": round(sum(took) / len(took), 2), "scriptMsWorst": round(max(took), 1)}
        clicked = page.evaluate(
            """async () => {
              const took = [];
              for (const view of ['hull', 'node', 'fleet', 'hull', 'next', 'hull']) {
                const began = performance.now();
                location.hash = `#/${view}`;
                await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
                took.push(performance.now() - began);
              }
              return took;
            }"""
        )
        context.close()
    found |= {"switchMsWorst": round(max(clicked), 1), "deltaKB": round(sum(played.sent) / len(played.sent) / 1000, 1)}
    return found
