"""Probes as a kubelet runs them, against real sockets on the loopback."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import pytest

from plimsoll.net.grpc.status import GrpcError
from plimsoll.node.pods.pod_http import ProbeTarget
from plimsoll.node.pods.prober import run_probe
from plimsoll.rules.model.runnable import (
    ExecAction,
    GrpcAction,
    HttpGet,
    HttpHeader,
    Probe,
    RunContainer,
    RunPort,
    TcpSocket,
)
from plimsoll.runtime.interface import ContainerRuntime, ExecResult, RuntimeCallError
from tests.unit.net.grpc.grpc_server import Server, answering


class OnTheHost:
    """The part of a runtime that probes need: a pod on the host's network, and a command's outcome."""

    def __init__(self, result: ExecResult | None = None) -> None:
        self.result = result or ExecResult(0)

    async def pod_socket(self, sandbox_id: str) -> socket.socket | None:
        return None

    async def run_in(self, *args: object, **options: object) -> ExecResult:
        return self.result


def place(port: int, runtime: object | None = None) -> ProbeTarget:
    container = RunContainer(name="c", ports=(RunPort(container_port=port, name="web"),))
    found: ContainerRuntime = runtime or OnTheHost()  # type: ignore[assignment]
    return ProbeTarget(found, "s", "id", container)


@contextlib.asynccontextmanager
async def server(*answers: bytes, pause_s: float = 0.0) -> AsyncIterator[tuple[int, list[bytes]]]:
    """Answers each connection with the next; the requests it has got."""
    asked: list[bytes] = []
    left = list(answers)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        await asyncio.sleep(pause_s)
        writer.write(left.pop(0) if left else b"")
        await writer.drain()
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield listening.sockets[0].getsockname()[1], asked
    finally:
        listening.close()
        await listening.wait_closed()


def answer(status: int, body: str = "", **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", *(f"{k}: {v}" for k, v in headers.items())]
    return ("\r\n".join(lines) + f"\r\n\r\n{body}").encode()


@pytest.mark.parametrize(
    ("status", "is_success", "text"),
    [
        pytest.param(200, True, "fine", id="ok"),
        pytest.param(399, True, "fine", id="just good"),
        pytest.param(400, False, "HTTP probe failed with statuscode: 400", id="just bad"),
        pytest.param(503, False, "HTTP probe failed with statuscode: 503", id="down"),
    ],
)
async def test_the_status_decides(status: int, is_success: bool, text: str) -> None:
    async with server(answer(status, "fine")) as (port, _):
        found = await run_probe(place(port), Probe(http_get=HttpGet(path="/z", port=port)), 5.0)
    assert (found.is_success, found.output) == (is_success, text)


async def test_the_request_is_a_kubelets_and_headers_are_the_users() -> None:
    headers = (HttpHeader("Host", "shop.example"), HttpHeader("X-A", "1\r\nX-B: 2"))
    async with server(answer(200)) as (port, asked):
        await run_probe(place(port), Probe(http_get=HttpGet(path="z?q=1", port="web", http_headers=headers)), 5.0)
    lines = asked[0].decode().split("\r\n")
    assert lines[0] == "GET /z?q=1 HTTP/1.1"
    assert "Host: shop.example" in lines
    assert "User-Agent: kube-probe/1.27" in lines
    assert "X-A: 1X-B: 2" in lines


async def test_redirects_are_followed_on_the_same_host_only() -> None:
    async with server(answer(302, Location="/there"), answer(200, "there")) as (port, asked):
        found = await run_probe(place(port), Probe(http_get=HttpGet(path="/", port=port)), 5.0)
    assert (found.is_success, found.output, len(asked)) == (True, "there", 2)
    async with server(answer(302, "bye", Location="http://elsewhere.example/")) as (port, asked):
        found = await run_probe(place(port), Probe(http_get=HttpGet(path="/", port=port)), 5.0)
    assert found.is_success and found.is_warning and len(asked) == 1


@pytest.mark.parametrize("location", ["//[", "http://127.0.0.1:99999/", "http://127.0.0.1:port/", "http://[::1/"])
async def test_a_redirect_to_what_is_no_url_fails_the_probe(location: str) -> None:
    """The container writes it, so it must not end the worker of its pod."""
    async with server(answer(302, Location=location)) as (port, asked):
        found = await run_probe(place(port), Probe(http_get=HttpGet(path="/", port=port)), 5.0)
    assert not found.is_success and f'failed to parse Location header "{location}"' in found.output
    assert len(asked) == 1


async def test_endless_redirects_end() -> None:
    async with server(*[answer(302, Location="/again")] * 20) as (port, asked):
        found = await run_probe(place(port), Probe(http_get=HttpGet(path="/", port=port)), 5.0)
    assert not found.is_success and "stopped after 10 redirects" in found.output
    assert len(asked) == 10


async def test_a_closed_port() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        tcp = await run_probe(place(port), Probe(tcp_socket=TcpSocket(port=port)), 5.0)
        http = await run_probe(place(port), Probe(http_get=HttpGet(path="/", port=port)), 5.0)
    dial = f"dial tcp 127.0.0.1:{port}: connect: connection refused"
    assert (tcp.is_success, tcp.output) == (False, dial)
    assert (http.is_success, http.output) == (False, f'Get "http://127.0.0.1:{port}/": {dial}')


async def test_a_response_that_comes_too_late() -> None:
    async with server(answer(200), pause_s=1.0) as (port, _):
        found = await run_probe(place(port), Probe(http_get=HttpGet(path="/", port=port)), 0.1)
        assert not found.is_success
        assert found.output.endswith("context deadline exceeded (Client.Timeout exceeded while awaiting headers)")
        assert (await run_probe(place(port), Probe(tcp_socket=TcpSocket(port=port)), 5.0)).is_success


async def test_a_response_that_is_not_http_is_a_failure() -> None:
    async with server(b"220 smtp here\r\n") as (port, _):
        found = await run_probe(place(port), Probe(http_get=HttpGet(path="/", port=port)), 5.0)
    assert not found.is_success


@pytest.mark.parametrize(
    ("result", "is_success", "text"),
    [
        pytest.param(ExecResult(0, b"ok"), True, "ok", id="0"),
        pytest.param(ExecResult(1, b"no"), False, "no", id="1"),
        pytest.param(ExecResult(137, b"", timed_out=True), False, 'command "sh -c x" timed out', id="timeout"),
    ],
)
async def test_commands(result: ExecResult, is_success: bool, text: str) -> None:
    probe = Probe(exec=ExecAction(("sh", "-c", "x")))
    found = await run_probe(place(1, OnTheHost(result)), probe, 1.0)
    assert (found.is_success, found.output) == (is_success, text)


async def test_a_port_that_has_no_such_name() -> None:
    with pytest.raises(RuntimeCallError, match="no port"):
        await run_probe(place(80), Probe(http_get=HttpGet(port="admin")), 1.0)


@pytest.mark.parametrize(
    ("answer", "is_success", "text"),
    [
        pytest.param(b"\x08\x01", True, "service healthy", id="SERVING"),
        pytest.param(b"\x08\x02", False, 'service unhealthy (responded with "NOT_SERVING")', id="NOT_SERVING"),
        pytest.param(b"", False, 'service unhealthy (responded with "UNKNOWN")', id="UNKNOWN"),
        pytest.param(
            GrpcError(12, "unknown service grpc.health.v1.Health"),
            False,
            "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): "
            "unknown service grpc.health.v1.Health",
            id="no health service",
        ),
        pytest.param(
            GrpcError(5, "unknown service"),
            False,
            "error: health rpc probe failed: rpc error: code = NotFound desc = unknown service",
            id="unknown service",
        ),
    ],
)
async def test_grpc_health_checks(answer: bytes | GrpcError, is_success: bool, text: str) -> None:
    asked: list[bytes] = []

    async def check(_server: Server, request: bytes) -> bytes:
        asked.append(request)
        if isinstance(answer, GrpcError):
            raise answer
        return answer

    async with answering(None, Check=check) as health:
        found = await run_probe(place(health.port), Probe(grpc=GrpcAction(health.port, "liveness")), 5.0)
        assert (found.is_success, found.output, found.error) == (is_success, text, "")
        assert asked == [b"\x0a\x08liveness"]
        assert health.headers[":path"] == "/grpc.health.v1.Health/Check"
        assert health.headers[":authority"] == f"127.0.0.1:{health.port}"
        assert health.headers["user-agent"] == "kube-probe/1.27"


async def test_a_grpc_server_that_answers_too_much() -> None:
    """It is the container's, and the memory would be the agent's."""

    async def check(_server: Server, _request: bytes) -> bytes:
        return bytes((4 << 20) + 1)

    async with answering(None, Check=check) as health:
        found = await run_probe(place(health.port), Probe(grpc=GrpcAction(health.port)), 30.0)
    assert (found.is_success, found.output) == (
        False,
        "error: health rpc probe failed: rpc error: code = ResourceExhausted desc = "
        "grpc: received message larger than max (4194305 vs. 4194304)",
    )


async def test_a_grpc_server_that_is_slow_or_not_there() -> None:
    async def check(_server: Server, _request: bytes) -> bytes:
        await asyncio.Event().wait()
        return b""

    async with answering(None, Check=check) as health:
        found = await run_probe(place(health.port), Probe(grpc=GrpcAction(health.port)), 0.2)
        assert (found.is_success, found.output) == (False, "timeout: health rpc did not complete within 200ms")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        found = await run_probe(place(port), Probe(grpc=GrpcAction(port)), 0.2)
    text = f'timeout: failed to connect service "127.0.0.1:{port}" within 200ms: context deadline exceeded'
    assert (found.is_success, found.output) == (False, text)


async def test_a_grpc_probe_of_a_server_that_speaks_something_else() -> None:
    async with server(answer(200)) as (port, _):
        found = await run_probe(place(port), Probe(grpc=GrpcAction(port)), 5.0)
    assert not found.is_success and found.output.startswith("error: health rpc probe failed: ")
