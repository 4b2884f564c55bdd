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
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from plimsoll.api.handlers.dispatch import Handler, Route
from plimsoll.api.handlers.list import read_selection
from plimsoll.api.machinery.call import ApiCall, Response
from plimsoll.api.machinery.cluster import Cluster, decoded, prefix
from plimsoll.api.machinery.encoding import line
from plimsoll.api.machinery.kinds import stored_resource
from plimsoll.api.machinery.status import StatusError, not_found
from plimsoll.api.nodeproxy.client import NodeCalls, node_endpoint
from plimsoll.api.server.app import App
from plimsoll.kube.request import Request, UnreachableError
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.scheduling.selectors import matches_label
from plimsoll.rules.timestamps import epoch_seconds, rfc3339

GROUP = "metrics.k8s.io"
EVERY_S, FRESH_S = 15.0, 2.0
MORE_S, TRIES, NEW_S = 0.55, 3, 10.0  # how long to wait for what is missing, how often, and how new it must be
ANSWER_S = 2.0  # how long a request waits for a node that does not answer
_SHOWN = ("name", "namespace", "creationTimestamp", "labels")
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
        task = asyncio.create_task(self._run(app))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
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
        for key, reading in readings(answer.body.decode("utf-8", "replace"), cluster.clock()).items():
            before, after = known.get(key, (None, None))
            if after is not None and (reading.at_s <= after.at_s or reading.cpu_s < after.cpu_s):
                if reading.cpu_s < after.cpu_s:  # it was restarted
                    fresh[key] = (None, reading)
                else:
                    fresh[key] = (before, after)
            else:
                fresh[key] = (after, reading)
        self._nodes[name] = fresh

    def _usage(self, node: str, key: Key) -> PodMetrics | None:
        before, after = self._nodes.get(node, {}).get(key, (None, None))
        if after is None:
            return None
        if before is None and after.started_s is not None and after.started_s < after.at_s:
            before = UsageReading(after.started_s, 0.0, 0)
        return None if before is None else PodMetrics(before, after)

    async def _refresh_for(self, cluster: Cluster, nodes: list[JsonObject], pods: list[JsonObject]) -> None:
        """Until everything has its readings, or the attempts are used up."""
        await self.refresh(cluster, FRESH_S)
        for _ in range(TRIES):
            lacks_pod = any(_is_new(pod, cluster.clock()) and self._pod(pod) is None for pod in pods)
            names = (node["metadata"]["name"] for node in nodes)
            if not lacks_pod and not any(
                name in self._nodes and self._usage(name, ("", "", "")) is None for name in names
            ):
                return
            await asyncio.sleep(MORE_S)
            await self.refresh(cluster, MORE_S / 2)

    # --- handlers ---

    async def _list_nodes(self, cluster: Cluster, call: ApiCall) -> Response:
        nodes = await _selected(cluster, "nodes", call)
        await self._refresh_for(cluster, nodes, [])
        items = [metrics for node in nodes if (metrics := self._node(node)) is not None]
        return _list(call, "NodeMetricsList", items)

    async def _get_node(self, cluster: Cluster, call: ApiCall) -> Response:
        node = cluster.document("nodes", "", call.info.name)
        await self._refresh_for(cluster, [] if node is None else [node], [])
        metrics = None if node is None else self._node(node)
        if metrics is None:
            raise not_found(call.info.resource, call.info.name)
        return _one(call, "NodeMetrics", metrics)

    async def _list_pods(self, cluster: Cluster, call: ApiCall) -> Response:
        pods = await _selected(cluster, "pods", call)
        await self._refresh_for(cluster, [], pods)
        return _list(call, "PodMetricsList", [metrics for pod in pods if (metrics := self._pod(pod)) is not None])

    async def _get_pod(self, cluster: Cluster, call: ApiCall) -> Response:
        pod = cluster.document("pods", call.info.namespace, call.info.name)
        await self._refresh_for(cluster, [], [] if pod is None else [pod])
        metrics = None if pod is None else self._pod(pod)
        if metrics is None:
            raise not_found(call.info.resource, call.info.name)
        return _one(call, "PodMetrics", metrics)

    def _node(self, node: JsonObject) -> JsonObject | None:
        usage = self._usage(node["metadata"]["name"], ("", "", ""))
        if usage is None:
            return None
        return {**_frame(node, usage), "usage": usage.amounts()}

    def _pod(self, pod: JsonObject) -> JsonObject | None:
        metadata, node = pod["metadata"], pod["spec"].get("nodeName") or ""
        usages = [
            (container["name"], usage)
            for container in pod["spec"]["containers"]
            if (usage := self._usage(node, (metadata["namespace"], metadata["name"], container["name"]))) is not None
        ]
        if not usages:
            return None
        containers = [{"name": name, "usage": usage.amounts()} for name, usage in usages]
        return {**_frame(pod, usages[0][1]), "containers": containers}


def _is_new(pod: JsonObject, now_s: float) -> bool:
    """Whether one of its containers has just started: an older one without readings will not get any."""
    for status in pod.get("status", {}).get("containerStatuses") or ():
        started = status.get("state", {}).get("running", {}).get("startedAt")
        if started and now_s - (epoch_seconds(started) or 0.0) < NEW_S:
            return True
    return False


async def _selected(cluster: Cluster, storage: str, call: ApiCall) -> list[JsonObject]:
    """The selected pods or nodes, with what their metrics need: thousands of whole pods would be much memory."""
    terms, pace = (await read_selection(cluster, call)).labels, call.pace
    selected = []
    for record in cluster.store.list(prefix(stored_resource(storage), call.info.namespace))[1]:
        if pace.is_due():
            await pace.pause()
        document = decoded(record)
        if all(matches_label(term, document["metadata"].get("labels") or {}) for term in terms):
            selected.append(_trimmed(document))
    return selected


def _trimmed(document: JsonObject) -> JsonObject:
    spec, status = document.get("spec") or {}, document.get("status") or {}
    return {
        "metadata": {name: value for name, value in document["metadata"].items() if name in _SHOWN},
        "spec": {
            "nodeName": spec.get("nodeName") or "",
            "containers": [{"name": container["name"]} for container in spec.get("containers") or ()],
        },
        "status": {"containerStatuses": status.get("containerStatuses") or []},
    }


def _frame(document: JsonObject, usage: PodMetrics) -> JsonObject:
    metadata = document["metadata"]
    kept = {key: metadata[key] for key in _SHOWN if key in metadata}
    return {"metadata": kept, "timestamp": rfc3339(usage.after.at_s), "window": f"{usage.window_s:.3f}s"}


def _list(call: ApiCall, kind: str, items: list[JsonObject]) -> Response:
    return _one(call, kind, {"metadata": {}, "items": items})


def _one(call: ApiCall, kind: str, document: JsonObject) -> Response:
    return Response(200, line({"kind": kind, "apiVersion": call.info.resource.group_version, **document}), True)
