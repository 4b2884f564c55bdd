"""Hooks as a kubelet runs them: where they go, what counts as success, and what is reported about them.

The pod's address is 127.0.0.2, which is another address than the machine's 127.0.0.1.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ssl
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from plimsoll.api.auth.ca import Authority
from plimsoll.node.pods.hooks import HookResult, run_hook
from plimsoll.node.pods.pod_http import ProbeTarget
from plimsoll.node.pods.prober import run_probe
from plimsoll.rules.model.runnable import (
    ExecAction,
    Hook,
    HttpGet,
    HttpHeader,
    Probe,
    RunContainer,
    SleepAction,
    TcpSocket,
)
from plimsoll.runtime.interface import ContainerRuntime, ExecResult, ObservedSandbox
from tests.unit.node.pods.one_pod_node import UID, PodNode, container
from tests.unit.node.pods.test_prober import OnTheHost
from tests.unit.node.test_agent import eventually

POD_IP, MACHINE = "127.0.0.2", "127.0.0.1"


class WebServer:
    def __init__(self, host: str, port: int, status: int = 200, context: ssl.SSLContext | None = None) -> None:
        self.host, self.port, self.status, self.context = host, port, status, context
        self.requests: list[str] = []

    async def __aenter__(self) -> WebServer:
        self._server = await asyncio.start_server(self._serve, self.host, self.port, ssl=self.context)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first, status = await reader.read(1), 400  # as Go's server answers a TLS hello
        if first not in (b"", b"\x16"):
            self.requests.append((first + await reader.readuntil(b"\r\n\r\n")).decode())
            status = self.status
        writer.write(b"HTTP/1.0 %d X\r\nContent-Length: 0\r\n\r\n" % status)
        with contextlib.suppress(ConnectionError):
            await writer.drain()
        writer.close()


@contextlib.asynccontextmanager
async def both(status: int = 200) -> AsyncIterator[tuple[WebServer, WebServer]]:
    """The pod's server, and the machine's on the same port, which must be free at both addresses."""
    while True:
        async with contextlib.AsyncExitStack() as stack:
            in_pod = await stack.enter_async_context(WebServer(POD_IP, 0, status))
            try:
                on_machine = await stack.enter_async_context(WebServer(MACHINE, in_pod.port))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                continue
            yield in_pod, on_machine
            return


def target(result: ExecResult | None = None) -> ProbeTarget:
    runtime: ContainerRuntime = OnTheHost(result)  # type: ignore[assignment]
    return ProbeTarget(runtime, "s", "id", RunContainer(name="c"), POD_IP)


@pytest.mark.parametrize("status", [200, 500])
async def test_a_hook_goes_to_the_pod_and_any_answer_is_success(status: int) -> None:
    async with both(status) as (in_pod, on_machine):
        assert await run_hook(target(), Hook(http_get=HttpGet("/bye?x=1", in_pod.port)), 5.0) == HookResult(True)
    assert on_machine.requests == []
    lines = in_pod.requests[0].split("\r\n")
    assert (lines[0], lines[1]) == ("GET /bye?x=1 HTTP/1.1", f"Host: {POD_IP}:{in_pod.port}")
    assert "User-Agent: kube-lifecycle/1.27" in lines


async def test_a_host_in_the_manifest_is_dialled_from_the_node() -> None:
    async with both() as (in_pod, on_machine):
        hook = Hook(http_get=HttpGet("/", in_pod.port, host=MACHINE))
        assert (await run_hook(target(), hook, 5.0)).is_success
    assert (len(in_pod.requests), len(on_machine.requests)) == (0, 1)


async def test_a_server_without_tls_is_asked_again_without_it() -> None:
    headers = (HttpHeader("Authorization", "Bearer secret"), HttpHeader("X-A", "1"))
    async with both() as (in_pod, on_machine):
        hook = Hook(http_get=HttpGet("/", in_pod.port, scheme="HTTPS", http_headers=headers))
        assert await run_hook(target(), hook, 5.0) == HookResult(True, fell_back=f"{POD_IP}:{in_pod.port}")
    assert "X-A: 1" in in_pod.requests[0] and "secret" not in in_pod.requests[0]
    assert on_machine.requests == []


async def test_a_certificate_is_not_verified(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    authority.prepare(["elsewhere.example"])
    async with WebServer(POD_IP, 0, context=authority.server_context()) as server:
        hook = Hook(http_get=HttpGet("/", server.port, scheme="HTTPS"))
        assert await run_hook(target(), hook, 5.0) == HookResult(True)
        assert len(server.requests) == 1


async def test_a_probe_over_tls_of_a_server_without_it() -> None:
    async with WebServer(POD_IP, 0) as server:
        found = await run_probe(target(), Probe(http_get=HttpGet("/", server.port, scheme="HTTPS")), 5.0)
    text = f'Get "https://{POD_IP}:{server.port}/": http: server gave HTTP response to HTTPS client'
    assert (found.is_success, found.output) == (False, text)


@pytest.mark.parametrize(
    ("hook", "result", "is_success"),
    [
        pytest.param(Hook(exec=ExecAction(("true",))), ExecResult(0), True, id="exec"),
        pytest.param(Hook(exec=ExecAction(("false",))), ExecResult(1), False, id="exec fails"),
        pytest.param(Hook(sleep=SleepAction(0)), None, True, id="no sleep"),
        pytest.param(Hook(sleep=SleepAction(3600)), None, True, id="sleep longer than the grace period"),
        pytest.param(Hook(tcp_socket=TcpSocket(80)), None, False, id="tcpSocket is not run"),
        pytest.param(Hook(http_get=HttpGet("/", 1)), None, False, id="nothing listens"),
    ],
)
async def test_results(hook: Hook, result: ExecResult | None, is_success: bool) -> None:
    assert (await run_hook(target(result), hook, 0.2)).is_success is is_success


async def test_hooks_of_a_pod_go_to_its_address(tmp_path: Path) -> None:
    async with both() as (in_pod, on_machine):
        hooks = {
            "postStart": {"httpGet": {"path": "/began", "port": in_pod.port, "scheme": "HTTP"}},
            "preStop": {"httpGet": {"path": "/ends", "port": in_pod.port, "scheme": "HTTPS"}},
        }
        node = PodNode(tmp_path, container("a", lifecycle=hooks))
        node.runtime.sandboxes["s"] = ObservedSandbox("s", pod_uid=UID, ip=POD_IP)
        async with node.running():
            await node.until_running()
            node.api.delete(5, time.time())
            await asyncio.wait_for(node.api.gone.wait(), 30)
            await eventually(lambda: "LifecycleHTTPFallback" in node.reasons())
        assert [each.split()[1] for each in in_pod.requests] == ["/began", "/ends"]
        (message,) = [event["message"] for event in node.events if event["reason"] == "LifecycleHTTPFallback"]
        address = f"{POD_IP}:{in_pod.port}"
        assert message == f"request to HTTPS lifecycle hook {address} got HTTP response, retry with HTTP succeeded"
    assert on_machine.requests == []
