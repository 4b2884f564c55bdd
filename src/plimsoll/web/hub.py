"""One source of changes for all open dashboards: a change is computed and encoded once for all readers.

Changes have sequence numbers and topics: `objects` (pods, nodes, events), `fleet` (each node in a few figures) and
`node/NAME` (all cgroups of one node). A tab reads the first two and one node. The last changes are kept, so that a tab
that lost its connection continues where it was; else it begins with everything again. A tab that reads too slowly loses
what waits for it and gets everything once it reads again; it never holds up the others. Nothing is read from the nodes
while no dashboard is open.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from plimsoll.aio import ExponentialBackoff, cancel_all, supervise
from plimsoll.api.nodeproxy.client import NodeCalls
from plimsoll.api.server.app import App
from plimsoll.web.live_nodes import LiveNode, NodeUnreadableError, node_page
from plimsoll.web.objects import ObjectsShown

TICK_S, FLEET_S, HEARTBEAT_S = 1.0, 5.0, 5.0
LOG_BYTES = 4 << 20
TAB_BYTES = 2 << 20  # that may wait for one tab
NEVER = float("-inf")
log = logging.getLogger(__name__)


class Tab:
    """One reader: what waits for it, within its budget."""

    def __init__(self, node: str) -> None:
        self.node = node
        self.topics = {"objects", "fleet", f"node/{node}"}
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self.is_behind = False  # has lost changes
        self.wake = asyncio.Event()

    def offer(self, message: bytes) -> None:
        self.wake.set()
        if self.is_behind:
            return
        if self._bytes + len(message) > TAB_BYTES:
            self._waiting.clear()
            self._bytes, self.is_behind = 0, True
            return
        self._waiting.append(message)
        self._bytes += len(message)

    def taken(self) -> bytes:
        """All that waits."""
        self.wake.clear()
        messages = b"".join(self._waiting)
        self._waiting.clear()
        self._bytes = 0
        return messages


class Hub:
    def __init__(self, calls: NodeCalls) -> None:
        self._calls = calls
        self.id, self.seq = secrets.token_hex(6), 0
        self._log: deque[tuple[int, str, bytes]] = deque()
        self._log_bytes = 0
        self._objects = ObjectsShown()
        self._fleet: dict[str, dict[str, Any]] = {}
        self._fleet_s = NEVER
        self._nodes: dict[str, LiveNode] = {}
        self._tabs: set[Tab] = set()
        self._running: asyncio.Task[None] | None = None
        self._app: App | None = None

    @asynccontextmanager
    async def service(self, app: App) -> AsyncIterator[None]:
        self._app = app
        try:
            yield
        finally:
            if self._running is not None:
                await cancel_all([self._running])

    # --- for tabs ---

    async def lines(self, app: App, node: str, hub: str, since: int) -> AsyncGenerator[bytes]:
        """The stream of one tab: everything or what it has missed, then changes and heartbeats."""
        await self.refreshed(app, node)
        tab = Tab(node)
        missed = self._missed(tab, since) if hub == self.id else None
        self._tabs.add(tab)
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(
                supervise("dashboard", lambda: self._run(app), ExponentialBackoff(TICK_S, 30 * TICK_S))
            )
        try:
            yield self.snapshot(node, app) if missed is None else missed or self._heartbeat()
            while True:
                try:
                    async with asyncio.timeout(HEARTBEAT_S):
                        await tab.wake.wait()
                except TimeoutError:
                    yield self._heartbeat()
                    continue
                if tab.is_behind:
                    tab.is_behind = False
                    tab.taken()
                    yield self.snapshot(node, app)
                else:
                    yield tab.taken()
        finally:
            self._tabs.discard(tab)

    def snapshot(self, node: str, app: App) -> bytes:
        """Everything, as one line."""
        live = self._nodes.get(node)
        message: dict[str, Any] = {
            "kind": "snapshot",
            "hub": self.id,
            "seq": self.seq,
            "at": app.cluster.clock(),
            "objects": self._objects.everything(),
            "fleet": self._fleet,
            "name": node,
            "problem": "" if live is None else live.problem,
            "frame": None if live is None or not live.seq else live.complete(),
        }
        return msgspec.json.encode(message) + b"\n"

    async def refreshed(self, app: App, node: str) -> None:
        """Read what a new tab needs, where it is not read all the time already."""
        if not self._tabs:
            self._publish_objects(app)
            await self._read_fleet(app)
        if node and not any(tab.node == node for tab in self._tabs):
            await self._read_node(app, node)

    def state(self, node: str) -> LiveNode | None:
        return self._nodes.get(node)

    def first_node(self) -> str:
        """The node that is shown where none is named."""
        return min(self._objects.nodes(), default="")

    def _missed(self, tab: Tab, since: int) -> bytes | None:
        """What came after `since`; None where that is not kept any more."""
        if since > self.seq or (self._log and since < self._log[0][0] - 1) or (not self._log and since < self.seq):
            return None
        return b"".join(message for seq, topic, message in self._log if seq > since and topic in tab.topics)

    def _heartbeat(self) -> bytes:
        return b'{"kind":"heartbeat","seq":%d}\n' % self.seq

    # --- reading ---

    async def _run(self, app: App) -> None:
        """While there are tabs."""
        while self._tabs:
            await self._tick(app)
            await asyncio.sleep(TICK_S)
        self._nodes.clear()

    async def _tick(self, app: App) -> None:
        self._publish_objects(app)
        names = {tab.node for tab in self._tabs if tab.node}
        for gone in self._nodes.keys() - names:
            del self._nodes[gone]
        now_s = asyncio.get_running_loop().time()
        due = [name for name in names if name not in self._nodes or self._nodes[name].due_s <= now_s]
        reads = [self._read_node(app, name) for name in due]
        if app.cluster.clock() - self._fleet_s >= FLEET_S:
            reads.append(self._read_fleet(app))
        await asyncio.gather(*reads)

    def _publish_objects(self, app: App) -> None:
        delta = self._objects.delta(app.cluster)
        if delta is not None:
            self._publish("objects", msgspec.json.encode(delta))

    async def _read_node(self, app: App, name: str) -> None:
        live = self._nodes.setdefault(name, LiveNode(name))
        try:
            data = await node_page(self._calls, app.cluster, name, live.target)
            before = live.seq
            frame = live.apply(data)
        except (NodeUnreadableError, msgspec.DecodeError) as error:
            if live.problem != str(error):
                live.problem = str(error)
                self._publish(f"node/{name}", msgspec.json.encode({"problem": live.problem}))
            return
        if frame.seq != before or not frame.since:
            self._publish(f"node/{name}", data)

    async def _read_fleet(self, app: App) -> None:
        self._fleet_s = app.cluster.clock()
        names = self._objects.nodes()
        found = await asyncio.gather(*(self._overview(app, name) for name in names))
        fleet = dict(zip(names, found, strict=True))
        changed = {name: facts for name, facts in fleet.items() if self._fleet.get(name) != facts}
        gone = [name for name in self._fleet if name not in fleet]
        self._fleet = fleet
        if changed or gone:
            self._publish("fleet", msgspec.json.encode({"nodes": changed, "gone": gone}))

    async def _overview(self, app: App, name: str) -> dict[str, Any]:
        """What `/live?part=node` has; of a node that is shown, from its frames."""
        live = self._nodes.get(name)
        if live is not None and live.seq and not live.problem:
            return {**live.node, "at": live.at}
        try:
            data = await node_page(self._calls, app.cluster, name, "/live?part=node")
            facts: dict[str, Any] = msgspec.json.decode(data)
        except (NodeUnreadableError, msgspec.DecodeError) as error:
            return {"name": name, "problem": str(error)}
        return facts

    def _publish(self, topic: str, data: bytes) -> None:
        """`data`: one JSON object, without a line break."""
        self.seq += 1
        message = b'{"kind":"delta","seq":%d,"topic":%b,"data":%b}\n' % (self.seq, msgspec.json.encode(topic), data)
        self._log.append((self.seq, topic, message))
        self._log_bytes += len(message)
        while self._log_bytes > LOG_BYTES and len(self._log) > 1:
            self._log_bytes -= len(self._log.popleft()[2])
        for tab in self._tabs:
            if topic in tab.topics:
                tab.offer(message)
