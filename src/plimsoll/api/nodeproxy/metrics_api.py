"""metrics.k8s.io, computed from /metrics/resource of the nodes' endpoints (05 B9, 06 E7).

Each ready node is scraped every 15 s, and on demand when its readings are older than 2 s. CPU is a counter there; usage
is its growth between two readings, divided by the time between them, which is the `window`. The counter of a container
was 0 when it started, so one reading is enough for it. A request for a container that has just started, or for a node
that has not been scraped, waits a moment for what is missing: the endpoint caches a page for a second.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec

from plimsoll.aio import beside
from plimsoll.api.handlers.dispatch import Handler, Route
from plimsoll.api.machinery.call import ApiCall, Response
from plimsoll.api.machinery.cluster import Cluster, key, prefix
from plimsoll.api.machinery.encoding import encoded, line
from plimsoll.api.machinery.kinds import stored_resource
from plimsoll.api.machinery.rounds import Pace
from plimsoll.api.machinery.status import StatusError, not_found
from plimsoll.api.nodeproxy.client import NodeCalls, node_endpoint
from plimsoll.api.server.app import App
from plimsoll.api.tables.views import item_list
from plimsoll.kube.request import Request, UnreachableError
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.scheduling.selectors import matches_label
from plimsoll.rules.timestamps import epoch_seconds, rfc3339

GROUP = "metrics.k8s.io"
EVERY_S, FRESH_S = 15.0, 2.0
MORE_S, TRIES, NEW_S = 0.55, 3, 10.0  # how long to wait for what is missing, how often, and how new it must be
ANSWER_S = 2.0  # how long a request waits for a node that does not answer
_SAMPLE = re.compile(r"^(\w+)(?:\{([^}]*)\})? ([0-9.eE+-]+)(?: (\d+))?$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

log = logging.getLogger(__name__)


class UsageReading(msgspec.Struct, frozen=True):
    """One reading of a node, or of a container of a pod."""

    at_s: float
    cpu_s: float
    memory_bytes: int
    started_s: float | None = None


Key = tuple[str, str, str]  # namespace, pod, container; all empty for the node itself


def readings(text: str, now_s: float) -> dict[Key, UsageReading]:
    """The samples of one /metrics/resource page; those without cpu or memory are left out."""
    cpu: dict[Key, tuple[float, float]] = {}
    memory: dict[Key, int] = {}
    started: dict[Key, float] = {}
    for name, labels, number, stamp in _SAMPLE.findall(text):
        label = dict(_LABEL.findall(labels))
        key = (label.get("namespace", ""), label.get("pod", ""), label.get("container", ""))
        at_s = int(stamp) / 1000 if stamp else now_s
        match name:
            case "node_cpu_usage_seconds_total" | "container_cpu_usage_seconds_total":
                cpu[key] = (at_s, float(number))
            case "node_memory_working_set_bytes" | "container_memory_working_set_bytes":
                memory[key] = int(float(number))
            case "container_start_time_seconds":
                started[key] = float(number)
    return {
        key: UsageReading(at_s, seconds, memory[key], started.get(key))
        for key, (at_s, seconds) in cpu.items()
        if key in memory
    }


class _Metadata(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    name: str
    namespace: str = ""
    creation_timestamp: str = ""
    labels: dict[str, str] | None = None


class _Container(msgspec.Struct, frozen=True, gc=False):
    name: str


class _Running(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    started_at: str | None = None


class _State(msgspec.Struct, frozen=True, gc=False):
    running: _Running | None = None


class _ContainerStatus(msgspec.Struct, frozen=True, gc=False):
    state: _State = _State()


class _Spec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    node_name: str = ""
    containers: tuple[_Container, ...] = ()


class _Status(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    container_statuses: tuple[_ContainerStatus, ...] = ()


class MeasuredObject(msgspec.Struct, frozen=True, gc=False):
    """What metrics need of a pod or node: thousands of whole pods would be much memory, and much to release at once."""

    metadata: _Metadata
    spec: _Spec = _Spec()
    status: _Status = _Status()

    def is_new(self, now_s: float) -> bool:
        """Whether a container has just started: an older one without readings will not get any."""
        for status in self.status.container_statuses:
            started = status.state.running.started_at if status.state.running is not None else None
            if started and now_s - (epoch_seconds(started) or 0.0) < NEW_S:
                return True
        return False


_decode = msgspec.json.Decoder(MeasuredObject).decode


class PodMetrics(msgspec.Struct, frozen=True):
    before: UsageReading
    after: UsageReading

    @property
    def window_s(self) -> float:
        return self.after.at_s - self.before.at_s

    def amounts(self) -> JsonObject:
        nanocores = (self.after.cpu_s - self.before.cpu_s) / self.window_s * 1e9
        return {
            "cpu": f"{int(nanocores)}n" if nanocores >= 1 else "0",
            "memory": f"{self.after.memory_bytes // 1024}Ki",
        }


class NodeMetrics:
    """Stores the last two readings of everything on every node."""

    def __init__(self, calls: NodeCalls) -> None:
        self._calls = calls
        self._nodes: dict[str, dict[Key, tuple[UsageReading | None, UsageReading]]] = {}
        self._asked_s: dict[str, float] = {}

    @asynccontextmanager
    async def service(self, app: App) -> AsyncIterator[None]:
        try:
            async with beside(self._run(app)):
                yield
        finally:
            await self._calls.close()

    def handlers(self) -> dict[Route, Handler]:
        return {
            (GROUP, "nodes", "", "list"): self._list_nodes,
            (GROUP, "nodes", "", "get"): self._get_node,
            (GROUP, "pods", "", "list"): self._list_pods,
            (GROUP, "pods", "", "get"): self._get_pod,
        }

    async def _run(self, app: App) -> None:
        while True:
            await self.refresh(app.cluster, EVERY_S / 2)
            await asyncio.sleep(EVERY_S)

    async def refresh(self, cluster: Cluster, age_s: float) -> None:
        """Scrape every node whose readings are older than that."""
        now_s = cluster.clock()
        names = [node["metadata"]["name"] for node in cluster.documents("nodes")]
        for gone in self._asked_s.keys() - set(names):
            del self._asked_s[gone]
            self._nodes.pop(gone, None)
        await self._calls.keep_only(set(names))
        stale = [name for name in names if now_s - self._asked_s.get(name, 0.0) > age_s]
        await asyncio.gather(*(self._scrape(cluster, name) for name in stale))

    async def _scrape(self, cluster: Cluster, name: str) -> None:
        self._asked_s[name] = cluster.clock()
        try:
            transport = await self._calls.transport(node_endpoint(cluster, name))
            async with asyncio.timeout(ANSWER_S):
                answer = await transport.send(Request("GET", "/metrics/resource", accept="text/plain"))
        except (StatusError, UnreachableError, TimeoutError) as error:
            log.debug("metrics of node %s: %s", name, error)
            self._nodes.pop(name, None)
            return
        if answer.status != 200:
            return
        known = self._nodes.get(name, {})
        fresh: dict[Key, tuple[UsageReading | None, UsageReading]] = {}
        for place, reading in readings(answer.body.decode("utf-8", "replace"), cluster.clock()).items():
            before, after = known.get(place, (None, None))
            if after is not None and (reading.at_s <= after.at_s or reading.cpu_s < after.cpu_s):
                if reading.cpu_s < after.cpu_s:  # it was restarted
                    fresh[place] = (None, reading)
                else:
                    fresh[place] = (before, after)
            else:
                fresh[place] = (after, reading)
        self._nodes[name] = fresh

    def _usage(self, node: str, key: Key) -> PodMetrics | None:
        before, after = self._nodes.get(node, {}).get(key, (None, None))
        if after is None:
            return None
        if before is None and after.started_s is not None and after.started_s < after.at_s:
            before = UsageReading(after.started_s, 0.0, 0)
        return None if before is None else PodMetrics(before, after)

    async def _refresh_for(self, cluster: Cluster, call: ApiCall, of: list[MeasuredObject]) -> None:
        """Until everything has its readings, or the attempts are used up."""
        await self.refresh(cluster, FRESH_S)
        for _ in range(TRIES):
            if not await self._lacks_readings(of, cluster.clock(), call.pace):
                return
            await asyncio.sleep(MORE_S)
            await self.refresh(cluster, MORE_S / 2)

    async def _lacks_readings(self, of: list[MeasuredObject], now_s: float, pace: Pace) -> bool:
        for each in of:
            if pace.is_due():
                await pace.pause()
            if each.spec.containers:
                if each.is_new(now_s) and self._pod(each) is None:
                    return True
            elif each.metadata.name in self._nodes and self._node(each) is None:
                return True
        return False

    # --- handlers ---

    async def _list_nodes(self, cluster: Cluster, call: ApiCall) -> Response:
        return await self._listed(cluster, call, "nodes", self._node)

    async def _list_pods(self, cluster: Cluster, call: ApiCall) -> Response:
        return await self._listed(cluster, call, "pods", self._pod)

    async def _get_node(self, cluster: Cluster, call: ApiCall) -> Response:
        return await self._one(cluster, call, "nodes", self._node)

    async def _get_pod(self, cluster: Cluster, call: ApiCall) -> Response:
        return await self._one(cluster, call, "pods", self._pod)

    async def _listed(self, cluster: Cluster, call: ApiCall, storage: str, measure: Measure) -> Response:
        of = await _selected(cluster, storage, call)
        await self._refresh_for(cluster, call, of)
        items = []
        for each in of:
            if call.pace.is_due():
                await call.pace.pause()
            metrics = measure(each)
            if metrics is not None:
                items.append(encoded(metrics))
        resource = call.info.resource
        return Response(200, b"".join([piece async for piece in item_list(resource, items, b"{}", call.pace)]), True)

    async def _one(self, cluster: Cluster, call: ApiCall, storage: str, measure: Measure) -> Response:
        info = call.info
        record = cluster.store.get(key(stored_resource(storage), info.namespace, info.name))
        of = [] if record is None else [_decode(record.body)]
        await self._refresh_for(cluster, call, of)
        metrics = measure(of[0]) if of else None
        if metrics is None:
            raise not_found(info.resource, info.name)
        return Response(
            200, line({"kind": info.resource.kind, "apiVersion": info.resource.group_version, **metrics}), True
        )

    def _node(self, node: MeasuredObject) -> JsonObject | None:
        usage = self._usage(node.metadata.name, ("", "", ""))
        return None if usage is None else {**_frame(node, usage), "usage": usage.amounts()}

    def _pod(self, pod: MeasuredObject) -> JsonObject | None:
        metadata, node = pod.metadata, pod.spec.node_name
        if node not in self._nodes:
            return None
        usages = [
            (container.name, usage)
            for container in pod.spec.containers
            if (usage := self._usage(node, (metadata.namespace, metadata.name, container.name))) is not None
        ]
        if not usages:
            return None
        containers = [{"name": name, "usage": usage.amounts()} for name, usage in usages]
        return {**_frame(pod, usages[0][1]), "containers": containers}


Measure = Callable[[MeasuredObject], JsonObject | None]


async def _selected(cluster: Cluster, storage: str, call: ApiCall) -> list[MeasuredObject]:
    terms, pace = call.selection.labels, call.pace
    selected = []
    for record in cluster.store.list(prefix(stored_resource(storage), call.info.namespace))[1]:
        if pace.is_due():
            await pace.pause()
        found = _decode(record.body)
        if all(matches_label(term, found.metadata.labels or {}) for term in terms):
            selected.append(found)
    return selected


def _frame(of: MeasuredObject, usage: PodMetrics) -> JsonObject:
    metadata = msgspec.to_builtins(of.metadata)
    return {"metadata": metadata, "timestamp": rfc3339(usage.after.at_s), "window": f"{usage.window_s:.3f}s"}
