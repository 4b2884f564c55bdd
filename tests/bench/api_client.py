"""The client of the API benchmark, in a process of its own: reads jobs from standard input, one line of JSON each, and
answers each with one line. Bodies are read and dropped; connections are kept.

    {"do": "load", "requests": "get", "concurrency": 4, "seconds": 3, "pods": 5000}
    {"do": "fill", "first": 0, "last": 5000}
    {"do": "watch", "watchers": 50, "changes": 100}
"""

from __future__ import annotations

import asyncio
import itertools
import json
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.bench import http_load  # noqa: E402
from tests.e2e.raw_http import Connection, admin_tls, request_bytes  # noqa: E402

PODS = "/api/v1/namespaces/default/pods"
_STRATEGIC = (("Content-Type", "application/strategic-merge-patch+json"),)
_JSON = (("Content-Type", "application/json"),)
PADDING = "x" * 150  # so that a stored pod has about 2.2 KB


def pod(name: str, *, own_spec: bool = False) -> bytes:
    """`own_spec`: no other pod has this specification."""
    amounts = {"cpu": "100m", "memory": "64Mi"}
    resources = {"requests": amounts, "limits": {"cpu": "2", "memory": "64Mi"}}
    container: dict[str, Any] = {"name": "c", "image": "nginx:1.27", "resources": resources}
    if own_spec:
        container["env"] = [{"name": "POD", "value": name}]
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": {"app": "bench"}, "annotations": {"padding": PADDING}},
            "spec": {"containers": [container]},
        }
    ).encode()


def resize(cpu_milli: int) -> bytes:
    resources = {"requests": {"cpu": f"{cpu_milli}m"}}
    return json.dumps({"spec": {"containers": [{"name": "c", "resources": resources}]}}).encode()


def _gets(pods: int) -> Iterator[bytes]:
    for number in itertools.count():
        yield request_bytes("GET", f"{PODS}/p{number * 7919 % pods}")


def _lists(query: str) -> Iterator[bytes]:
    return itertools.repeat(request_bytes("GET", f"/api/v1/pods{query}"))


def _posts(first: int, *, own_spec: bool = False) -> Iterator[bytes]:
    for number in itertools.count(first):
        yield request_bytes("POST", PODS, _JSON, pod(f"p{number}", own_spec=own_spec))


def _resizes(pods: int) -> Iterator[bytes]:
    for number in itertools.count():
        path = f"{PODS}/p{number * 7919 % pods}/resize"
        yield request_bytes("PATCH", path, _STRATEGIC, resize(101 + number // pods % 2 + time.time_ns() // 1000 % 800))


class Client:
    def __init__(self, url: str, tls: ssl.SSLContext) -> None:
        self._url, self._tls = url, tls
        self._posted = 1_000_000  # POSTs that are measured have names beyond those that are listed

    async def load(self, requests: str, concurrency: int, seconds: float, pods: int) -> dict[str, Any]:
        chosen: Callable[[], Iterator[bytes]] = {
            "get": lambda: _gets(pods),
            "list": lambda: _lists(""),
            "page": lambda: _lists("?limit=500"),
            "post": lambda: _posts(self._posted),
            "post own": lambda: _posts(self._posted, own_spec=True),
            "resize": lambda: _resizes(pods),
        }[requests]
        began = time.perf_counter()
        times_s, total_bytes = await asyncio.to_thread(
            http_load.load, self._url, self._tls, chosen(), concurrency, seconds
        )
        took = time.perf_counter() - began
        if requests.startswith("post"):
            self._posted += len(times_s)
        return {
            "count": len(times_s),
            "per_s": len(times_s) / took,
            "bytes": total_bytes // len(times_s),
            **_quantiles(times_s),
        }

    async def fill(self, first: int, last: int) -> dict[str, Any]:
        stream = (request_bytes("POST", PODS, _JSON, pod(f"p{number}")) for number in range(first, last))

        async def one() -> None:
            connection = await Connection.open(self._url, self._tls)
            for data in stream:
                code, _ = await connection.discarded(data)
                assert code == 201, code
            await connection.close()

        await asyncio.gather(*(one() for _ in range(16)))
        return {}

    async def watch(self, watchers: int, changes: int) -> dict[str, Any]:
        """One change at a time; from sending it until each watcher has its line."""
        place = urlsplit(self._url)
        assert place.hostname is not None
        assert place.port is not None
        loop = asyncio.get_running_loop()
        path = f"{PODS}?watch=true&resourceVersion={await self._version()}"
        seen = Seen(watchers)
        transports = []
        for _ in range(watchers):
            transport, _ = await loop.create_connection(
                lambda: Watching(seen, request_bytes("GET", path)), place.hostname, place.port, ssl=self._tls
            )
            transports.append(transport)
        await asyncio.wait_for(seen.started.wait(), 30)
        writer = await Connection.open(self._url, self._tls)
        times_s: list[float] = []
        for number in range(changes):
            body = json.dumps({"metadata": {"annotations": {"stamp": str(time.time_ns())}}}).encode()
            seen.begin()
            began = time.perf_counter()
            code, _ = await writer.discarded(request_bytes("PATCH", f"{PODS}/p{number}", _STRATEGIC, body))
            assert code == 200, code
            await asyncio.wait_for(seen.all.wait(), 30)
            times_s += [each - began for each in seen.times]
        for transport in transports:
            transport.abort()
        await writer.close()
        return _quantiles(times_s)

    async def _version(self) -> str:
        connection = await Connection.open(self._url, self._tls)
        heard = await connection.exchange(request_bytes("GET", f"{PODS}?limit=1"))
        await connection.close()
        version: str = json.loads(heard.body)["metadata"]["resourceVersion"]
        return version


class Seen:
    """Who has seen the change that is under way."""

    def __init__(self, watchers: int) -> None:
        self.watchers = watchers
        self.open = 0
        self.started, self.all = asyncio.Event(), asyncio.Event()
        self.times: list[float] = []

    def begin(self) -> None:
        self.times = []
        self.all.clear()

    def line(self) -> None:
        self.times.append(time.perf_counter())
        if len(self.times) == self.watchers:
            self.all.set()

    def begun(self) -> None:
        self.open += 1
        if self.open == self.watchers:
            self.started.set()


class Watching(asyncio.Protocol):
    def __init__(self, seen: Seen, request: bytes) -> None:
        self._seen, self._request = seen, request
        self._is_open = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        if not self._is_open:
            assert data.startswith(b"HTTP/1.1 200"), data[:200]
            self._is_open = True
            self._seen.begun()
        if b'"MODIFIED"' in data:
            self._seen.line()


def _quantiles(times_s: list[float]) -> dict[str, float]:
    ordered = sorted(times_s)
    return {
        "p50_ms": ordered[len(ordered) // 2] * 1000,
        "p99_ms": ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)] * 1000,
    }


class CommandLine:
    """This client as a process of its own, for a benchmark."""

    def __init__(self, url: str, kubeconfig: Path) -> None:
        command = [sys.executable, str(Path(__file__)), url, str(kubeconfig)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __call__(self, **job: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def close(self) -> None:
        self._process.communicate()


async def main(url: str, kubeconfig: str) -> None:
    client = Client(url, admin_tls(Path(kubeconfig)))
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        job = json.loads(line)
        work = getattr(client, job.pop("do"))
        print(json.dumps(await work(**job)), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
