"""One API server with a fleet: hollow nodes that renew leases, report status and watch their pods, and many pods.

Prints CPU and memory of the server in the steady state, the latency of GET, the time from the POST of a pod until it is
bound and its node has reported it, and what a further node and pod cost. `--nodes` and `--pods` for smaller fleets.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from tests.bench.api import cpu_s, machine_factor, resident_mb, verdict  # noqa: E402
from tests.e2e.api_process import ApiProcess  # noqa: E402
from tests.e2e.raw_http import Connection, admin_tls, request_bytes  # noqa: E402

LEASE_S, STATUS_S = 10.0, 300.0
CORES_GOAL, RSS_GOAL_MB, GET_GOAL_MS, REPORT_GOAL_S = 1.0, 600, 50.0, 1.0
NODES, PODS = "/api/v1/nodes", "/api/v1/namespaces/default/pods"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_JSON = (("Content-Type", "application/json"),)
_MERGE = (("Content-Type", "application/merge-patch+json"),)
CONNECTIONS = 16


def body(document: object) -> bytes:
    return json.dumps(document).encode()


def node(name: str) -> dict[str, Any]:
    amounts = {"cpu": "32", "memory": "128Gi", "pods": "110"}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": now()}
    return {"metadata": {"name": name}, "status": {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}}


def pod(name: str, on: str = "") -> dict[str, Any]:
    resources = {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "64Mi"}}
    spec = {"containers": [{"name": "c", "image": "nginx:1.27", "resources": resources}]}
    return {
        "metadata": {"name": name, "labels": {"app": "fleet"}},
        "spec": {**spec, **({"nodeName": on} if on else {})},
    }


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


class _Calls:
    """The connection of a node, for one request at a time; made for the first one, as the server drops silent ones."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet, self._free = fleet, asyncio.Lock()
        self._connection: Connection | None = None

    async def patch(self, path: str, change: object) -> None:
        async with self._free:
            if self._connection is None:
                self._connection = await self._fleet.connect()
            code, _ = await self._connection.discarded(request_bytes("PATCH", path, _MERGE, body(change)))
            self._fleet.refused += code != 200


class Fleet:
    def __init__(self, server: ApiProcess, nodes: int, pods: int) -> None:
        self._server, self._tls = server, admin_tls(server.kubeconfig)
        self.names = [f"hollow-{number}" for number in range(nodes)]
        self._pods = pods
        self.posted: dict[str, float] = {}
        self.bound_s: list[float] = []
        self.reported_s: list[float] = []
        self.get_ms: list[float] = []
        self.refused = 0
        self._tasks: list[asyncio.Task[None]] = []

    async def connect(self) -> Connection:
        return await Connection.open(self._server.url, self._tls)

    async def _send_all(self, requests: list[bytes]) -> float:
        """Their rate."""
        left, began = iter(requests), time.perf_counter()

        async def one() -> None:
            connection = await self.connect()
            for data in left:
                code, _ = await connection.discarded(data)
                if code not in (200, 201):
                    raise AssertionError(f"{code} for {data[:200]!r}")

        await asyncio.gather(*(one() for _ in range(CONNECTIONS)))
        return len(requests) / (time.perf_counter() - began)

    async def create_nodes(self) -> float:
        nodes = [request_bytes("POST", NODES, _JSON, body(node(name))) for name in self.names]
        status = [
            request_bytes("PATCH", f"{NODES}/{name}/status", _MERGE, body({"status": node(name)["status"]}))
            for name in self.names
        ]
        lease = {"holderIdentity": "x", "leaseDurationSeconds": 40, "renewTime": f"{now()[:-1]}.000000Z"}
        leases = [
            request_bytes("POST", LEASES, _JSON, body({"metadata": {"name": name}, "spec": lease}))
            for name in self.names
        ]
        await self._send_all(nodes)
        await self._send_all(status)
        return await self._send_all(leases)

    async def create_pods(self) -> float:
        places = itertools.cycle(self.names)
        return await self._send_all(
            [request_bytes("POST", PODS, _JSON, body(pod(f"p{each}", next(places)))) for each in range(self._pods)]
        )

    async def start_nodes(self) -> None:
        slots = asyncio.Semaphore(CONNECTIONS)
        for number, name in enumerate(self.names):
            async with slots:
                watch = await self.connect()
            delay_s = number / len(self.names)
            shared = _Calls(self)
            self._tasks.append(asyncio.create_task(self._renew(name, shared, delay_s)))
            self._tasks.append(asyncio.create_task(self._watch(name, watch, shared)))

    async def _renew(self, name: str, calls: _Calls, delay: float) -> None:
        await asyncio.sleep(delay * LEASE_S)
        report_at = time.monotonic() + delay * STATUS_S
        while True:
            began = time.monotonic()
            await calls.patch(f"{LEASES}/{name}", {"spec": {"renewTime": f"{now()[:-1]}.000000Z"}})
            if began >= report_at:
                report_at += STATUS_S
                conditions = node(name)["status"]["conditions"]
                await calls.patch(f"{NODES}/{name}/status", {"status": {"conditions": conditions}})
            await asyncio.sleep(max(0.0, began + LEASE_S - time.monotonic()))

    async def _watch(self, name: str, connection: Connection, calls: _Calls) -> None:
        """A kubelet's watch; what is bound to the node is reported as running."""
        query = f"?watch=1&fieldSelector=spec.nodeName%3D{name}&resourceVersion=0&allowWatchBookmarks=true"
        connection.writer.write(request_bytes("GET", f"/api/v1/pods{query}"))
        await connection.head()
        rest, seen = b"", set[str]()
        while True:
            size = int((await connection.reader.readuntil(b"\r\n")).strip(), 16)
            piece = await connection.reader.readexactly(size)
            await connection.reader.readexactly(2)
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                if b'"name":"new-' not in line:
                    continue
                made = json.loads(line)["object"]["metadata"]["name"]
                if made in seen or made not in self.posted:
                    continue
                seen.add(made)
                self.bound_s.append(time.monotonic() - self.posted[made])
                change = {"status": {"phase": "Running", "podIP": "10.0.0.1"}}
                await calls.patch(f"{PODS}/{made}/status", change)
                self.reported_s.append(time.monotonic() - self.posted[made])

    async def measure(self, seconds: float) -> None:
        reads, writes = await self.connect(), await self.connect()
        end = time.monotonic() + seconds
        for number in itertools.count():
            began = time.monotonic()
            if began >= end:
                break
            if number % 10 == 0:
                name = f"new-{number}"
                self.posted[name] = began
                await writes.discarded(request_bytes("POST", PODS, _JSON, body(pod(name))))
            asked = time.perf_counter()
            await reads.discarded(request_bytes("GET", f"{PODS}/p{number * 7919 % max(1, self._pods)}"))
            self.get_ms.append((time.perf_counter() - asked) * 1000)
            await asyncio.sleep(max(0.0, began + 0.05 - time.monotonic()))
        deadline = time.monotonic() + 30
        while len(self.reported_s) < len(self.posted) and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.05)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        for outcome in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome


async def run(server: ApiProcess, nodes: int, pods: int, seconds: float) -> bool:
    fleet = Fleet(server, nodes, pods)
    empty_mb = resident_mb(server)
    print(f"{nodes} nodes with a lease: {await fleet.create_nodes():.0f} leases per second", flush=True)
    await fleet.start_nodes()
    await asyncio.sleep(LEASE_S)
    nodes_mb, used_s, began = resident_mb(server), cpu_s(server), time.monotonic()
    await asyncio.sleep(LEASE_S)
    idle_cores = (cpu_s(server) - used_s) / (time.monotonic() - began)
    print(f"{pods} pods: {await fleet.create_pods():.0f} POST per second", flush=True)
    await asyncio.sleep(1)
    pods_mb, used_s, began, factor = resident_mb(server), cpu_s(server), time.monotonic(), machine_factor()
    await fleet.measure(seconds)
    cores = (cpu_s(server) - used_s) / (time.monotonic() - began)
    rss_mb = resident_mb(server)
    await fleet.close()
    get_ms = sorted(fleet.get_ms)[int(len(fleet.get_ms) * 0.99)]
    bound_s, reported_s = max(fleet.bound_s, default=999.0), max(fleet.reported_s, default=999.0)
    is_complete = len(fleet.reported_s) == len(fleet.posted) and not fleet.refused
    print(f"machine factor {factor:.2f}; {len(fleet.posted)} new pods, {fleet.refused} requests refused")
    goals = (
        ("cores", cores, CORES_GOAL, "cores / factor", cores / factor),
        ("RSS", rss_mb, RSS_GOAL_MB, "MB", rss_mb),
        ("GET p99", get_ms, GET_GOAL_MS, "ms / factor", get_ms / factor),
        ("bound", bound_s, REPORT_GOAL_S, "s / factor", bound_s / factor),
        ("reported", reported_s, REPORT_GOAL_S, "s / factor", reported_s / factor),
    )
    for name, value, goal, unit, judged in goals:
        print(f"{name:10}{value:10.3f}   {judged:10.3f} {unit} ≤ {goal:g}: {verdict(judged <= goal)}")
    print(
        f"a node costs {idle_cores / nodes * 1e6:.0f} µs of CPU per second and {(nodes_mb - empty_mb) * 1024 / nodes:.1f} KiB, "
        f"a pod {(pods_mb - nodes_mb) * 1024 / max(1, pods):.1f} KiB"
    )
    return is_complete and all(judged <= goal for *_, goal, _, judged in goals)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=30_000)
    parser.add_argument("--seconds", type=float, default=30.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="plimsoll-fleet-") as directory:
        server = ApiProcess(Path(directory) / "state", Path(directory) / "api.log").ready()
        try:
            asyncio.run(run(server, options.nodes, options.pods, options.seconds))
        finally:
            server.stop()


if __name__ == "__main__":
    main()
