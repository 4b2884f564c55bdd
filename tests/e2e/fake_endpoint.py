"""The fake node's endpoint: logs, exec over WebSocket, metrics, with the kubelet's paths.

Only the API server is let in, by its client certificate. Exec knows a few commands of its own: `echo`, `cat`,
`sh -c 'exit N'`, `stty size`, `log TEXT` (into the container's log), `kill 1`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs

import msgspec
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from plimsoll.codec.node_pages import oom_page, pressure_page
from plimsoll.kube.kubeconfig import Access
from plimsoll.rules.config.thresholds import parsed_thresholds
from plimsoll.rules.eviction.assessment import Observation
from plimsoll.rules.oom.report import OomKill
from plimsoll.rules.quantity import parse
from tests.e2e.fake_containers import Container, FakePod
from tests.e2e.fake_node_object import CONFIG

Message = MutableMapping[str, Any]
Pods = dict[tuple[str, str], FakePod]
STDIN, STDOUT, STDERR, ERROR, SIZE, CLOSE = 0, 1, 2, 3, 4, 255
CONTAINER_CORES, CONTAINER_BYTES = 0.025, 10 << 20
NODE_CORES, NODE_BYTES = 1.25, 1536 << 20
_KILLS = [
    OomKill(
        1.0, "kernel log", "container", namespace="shop", pod=name, container="app", process="stress", pid=7,
        limit_bytes=256 << 20,
    )
    for name in ("web", "batch")
]  # fmt: skip
PAGES = {
    "oom": oom_page(_KILLS, {"container": 2}),
    "pressure": pressure_page(
        (),
        parsed_thresholds({"memory.available": "100Mi"}),
        {"memory.available": Observation(parse("1Gi"), parse("32Gi"))},
        (),
        {},
    ),
}


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        yield


class _PeerProtocol(HttpToolsProtocol):
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        peer = transport.get_extra_info("ssl_object").getpeercert()
        self.app_state = {"peer": {key: value for part in peer["subject"] for key, value in part}}


@contextlib.asynccontextmanager
async def endpoint(access: Access, pods: Pods) -> AsyncIterator[int]:
    """Yields the port."""
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.bind(("127.0.0.1", 0))
    context = _context(access)
    config = uvicorn.Config(
        Endpoint(pods),
        http=_PeerProtocol,
        ws="wsproto",
        lifespan="off",
        log_config=None,
        ssl_context_factory=lambda *_: context,
    )
    server = _Server(config)
    running = asyncio.create_task(server.serve(sockets=[bound]))
    try:
        yield bound.getsockname()[1]
    finally:
        server.should_exit = server.force_exit = True
        await running


def _context(access: Access) -> ssl.SSLContext:
    assert access.ca and access.certificate and access.key
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_verify_locations(cadata=access.ca.decode())
    context.verify_mode = ssl.CERT_REQUIRED
    with tempfile.NamedTemporaryFile() as file:
        file.write(access.certificate + b"\n" + access.key)
        file.flush()
        context.load_cert_chain(file.name)
    return context


class Endpoint:
    def __init__(self, pods: Pods) -> None:
        self._pods = pods
        self._began_s = time.time()

    async def __call__(
        self, scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
    ) -> None:
        peer = scope["state"]["peer"]
        is_server = (peer.get("commonName"), peer.get("organizationName")) == ("plimsoll-api", "plimsoll:api")
        query = parse_qs(scope["query_string"].decode())
        match scope["path"].strip("/").split("/"):
            case _ if not is_server:
                await _answer(send, 403, "Forbidden: only the API server may ask\n")
            case ["healthz"]:
                await _answer(send, 200, "ok")
            case ["metrics", "resource"]:
                await _answer(send, 200, self._metrics())
            case ["configz"]:
                await _answer(send, 200, json.dumps({"kubeletconfig": CONFIG}), b"application/json")
            case ["stats", "summary"]:
                await _answer(send, 200, json.dumps(self._summary()), b"application/json")
            case ["oom" | "pressure" as page]:
                await _answer(send, 200, msgspec.json.encode(PAGES[page]).decode(), b"application/json")
            case ["containerLogs", namespace, name, container] if (namespace, name) in self._pods:
                await _log(send, query, name, self._pods[namespace, name].containers[container])
            case ["exec", namespace, name, container] if (namespace, name) in self._pods:
                pod = self._pods[namespace, name]
                await Session(receive, send, pod, pod.containers[container]).run(query["command"], "tty" in query)
            case _:
                await _answer(send, 404, "404 page not found\n")

    def _metrics(self) -> str:
        now_s = time.time()
        running_s, stamp = now_s - self._began_s, int(now_s * 1000)
        lines = [
            f"node_cpu_usage_seconds_total {NODE_CORES * running_s} {stamp}",
            f"node_memory_working_set_bytes {NODE_BYTES} {stamp}",
        ]
        for (namespace, name), pod in self._pods.items():
            for each in pod.containers:
                labels = f'{{container="{each}",namespace="{namespace}",pod="{name}"}}'
                lines += [
                    f"container_cpu_usage_seconds_total{labels} {CONTAINER_CORES * running_s} {stamp}",
                    f"container_memory_working_set_bytes{labels} {CONTAINER_BYTES} {stamp}",
                ]
        return "\n".join([*lines, ""])

    def _summary(self) -> dict[str, Any]:
        stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        node = {"cpu": {"time": stamp, "usageNanoCores": int(NODE_CORES * 1e9)}, "memory": {"time": stamp}}
        return {
            "node": node,
            "pods": [{"podRef": {"name": name, "namespace": space}} for space, name in self._pods],
        }


async def _answer(
    send: Callable[[Message], Awaitable[None]], code: int, text: str, kind: bytes = b"text/plain"
) -> None:
    await send({"type": "http.response.start", "status": code, "headers": [(b"content-type", kind)]})
    await send({"type": "http.response.body", "body": text.encode()})


async def _log(
    send: Callable[[Message], Awaitable[None]], query: dict[str, list[str]], pod: str, container: Container
) -> None:
    log = container.previous_log if query.get("previous") == ["true"] else container.log
    if log is None:
        await _answer(send, 400, f'previous terminated container "{container.name}" in pod "{pod}" not found\n')
        return
    tail = int(query["tailLines"][0]) if "tailLines" in query else None
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    async for stamp, text in log.read(tail, query.get("follow") == ["true"]):
        line = f"{stamp} {text}\n" if query.get("timestamps") == ["true"] else f"{text}\n"
        await send({"type": "http.response.body", "body": line.encode(), "more_body": True})
    await send({"type": "http.response.body", "body": b""})


class Session:
    """One command in one container, over one WebSocket."""

    def __init__(
        self,
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
        pod: FakePod,
        container: Container,
    ) -> None:
        self._receive, self._send, self._pod, self._container = receive, send, pod, container

    async def run(self, command: list[str], is_tty: bool) -> None:
        await self._receive()
        await self._send({"type": "websocket.accept", "subprotocol": "v5.channel.k8s.io"})
        code = await self._run(command, "\r\n" if is_tty else "\n")
        status: dict[str, Any] = {"metadata": {}, "status": "Success"}
        if code:
            causes = [{"reason": "ExitCode", "message": str(code)}]
            status |= {"status": "Failure", "message": f"command terminated with exit code {code}"}
            status |= {"reason": "NonZeroExitCode", "details": {"causes": causes}}
        await self._put(ERROR, json.dumps(status))
        await self._send({"type": "websocket.close", "code": 1000})

    async def _run(self, command: list[str], end: str) -> int:
        match command:
            case ["echo", *words]:
                await self._put(STDOUT, " ".join(words) + end)
            case ["sh", "-c", script] if script.startswith("exit "):
                return int(script.split()[1])
            case ["cat"]:
                async for channel, data in self._messages():
                    if channel == STDIN:
                        await self._put(STDOUT, data.decode())
            case ["stty", "size"]:
                async for channel, data in self._messages():
                    if channel == SIZE:
                        size = json.loads(data)
                        await self._put(STDOUT, f"{size['Height']} {size['Width']}{end}")
                        break
            case ["log", *words]:
                await self._container.log.write(" ".join(words))
            case ["kill", "1"]:
                self._pod.kill(self._container.name, datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
            case _:
                await self._put(STDERR, f"sh: {command[0]}: not found{end}")
                return 127
        return 0

    async def _messages(self) -> AsyncIterator[tuple[int, bytes]]:
        """What comes in, until stdin is closed."""
        while (message := await self._receive())["type"] == "websocket.receive":
            data: bytes = message["bytes"]
            if data[0] == CLOSE:
                return
            yield data[0], data[1:]

    async def _put(self, channel: int, text: str) -> None:
        await self._send({"type": "websocket.send", "bytes": bytes([channel]) + text.encode()})
