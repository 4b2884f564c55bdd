"""A running endpoint with real TLS on loopback, certificates of a real CA, and an agent that is played."""

from __future__ import annotations

import asyncio
import socket
import ssl
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from plimsoll.api.auth.ca import Authority, Issued, endpoint_name
from plimsoll.kube import request
from plimsoll.kube.http import HttpTransport
from plimsoll.kube.kubeconfig import Access
from plimsoll.linux.files.state_dir import private_directory
from plimsoll.node.reporting.certificate import NodeIdentity
from plimsoll.node.server.auth import EndpointAccess
from plimsoll.node.server.server import NodePages, NodeServer, server_tls
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.runtime.interface import ExecSession, ObservedContainer, ObservedSandbox, RuntimeCallError
from tests.unit.node.played_session import PlayedSession

NODE = "n1"
ID = "0123abc"


def pod(name: str = "web", state: dict[str, Any] | None = None) -> JsonObject:
    status = {"name": "c", "containerID": f"plimsoll://{ID}", "state": state or {"running": {}}}
    return {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        "spec": {"containers": [{"name": "c", "image": "nginx"}]},
        "status": {"phase": "Running", "containerStatuses": [status]},
    }


class PlayedPods:
    def __init__(self) -> None:
        self.pods = {("default", "web"): pod()}
        self.containers = {ID: ObservedContainer(ID, "c", "running", sandbox_id="s", pod_uid="uid-web")}

    def find(self, namespace: str, name: str) -> JsonObject | None:
        return self.pods.get((namespace, name))

    def documents(self) -> Iterable[JsonObject]:
        return self.pods.values()

    def sandbox(self, uid: str) -> ObservedSandbox | None:
        return ObservedSandbox("s", pod_uid=uid)

    def container(self, container_id: str) -> ObservedContainer | None:
        return self.containers.get(container_id)


class PlayedContainers:
    """Of a runtime, logs and exec: `echo` runs until it is closed and returns its input, anything else is not found."""

    def __init__(self, logs: Path) -> None:
        self.logs, self.sessions = logs, list[PlayedSession]()
        self.asked: list[tuple[str, tuple[str, ...], bool, bool]] = []

    async def exec(self, container_id: str, command: tuple[str, ...], *, stdin: bool, tty: bool) -> ExecSession:
        self.asked.append((container_id, command, stdin, tty))
        if command[0] != "echo":
            raise RuntimeCallError("exec", f'"{command[0]}": no such file')
        self.sessions.append(PlayedSession(echo=True))
        return self.sessions[-1]

    async def attach(self, container_id: str, *, stdin: bool, tty: bool) -> ExecSession:
        self.asked.append((container_id, (), stdin, tty))
        self.sessions.append(PlayedSession(echo=True))
        return self.sessions[-1]

    async def loopback_socket(self, sandbox_id: str, family: socket.AddressFamily) -> socket.socket:
        """The pod's network is the test's own."""
        assert sandbox_id == "s"
        return socket.socket(family, socket.SOCK_STREAM)

    def log_file(self, container: ObservedContainer) -> Path:
        return self.logs / f"{container.attempt}.log"


class PlayedApi:
    """Answers reviews: the token `good` is bob's, who may read stats and metrics."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.answers = True

    async def ask(self, asked: request.Request) -> dict[str, Any]:
        import msgspec

        if not self.answers:
            raise request.UnreachableError("no answer")
        review: dict[str, Any] = msgspec.json.decode(asked.body)
        self.asked.append(review)
        spec = review["spec"]
        if review["kind"] == "TokenReview":
            assert asked.path == "/apis/authentication.k8s.io/v1/tokenreviews"
            known = spec["token"] == "good"
            user = {"user": {"username": "bob", "groups": ["viewers"]}} if known else {}
            return {**review, "status": {"authenticated": known, **user}}
        assert asked.path == "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        asked_for = spec["resourceAttributes"]
        reads = asked_for["verb"] == "get" and asked_for["subresource"] in ("stats", "metrics")
        allowed = "plimsoll:api" in spec["groups"] or (spec["user"] == "bob" and reads)
        return {**review, "status": {"allowed": allowed}}


class World:
    def __init__(self, state: Path) -> None:
        self.authority = Authority(private_directory(state / "api"))
        self.authority.prepare(("127.0.0.1",))
        (state / "logs").mkdir()
        self.pods, self.containers, self.api = PlayedPods(), PlayedContainers(state / "logs"), PlayedApi()
        self.now_s, self.port = 1_700_000_000.0, 0
        issued = self.authority.issue_node(NODE)
        tls = server_tls(NodeIdentity(issued.certificate, issued.key), self.authority.ca_file.read_bytes())
        access = EndpointAccess(NODE, self.api, lambda: self.now_s)
        self.endpoint = NodeServer(self.pods, self.containers, _pages(), access, tls, lambda: self.now_s)

    @property
    def server_access(self) -> Access:
        return Access(f"https://127.0.0.1:{self.port}", server_name=endpoint_name(NODE))

    def client_tls(self, shown: Issued | None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.authority.ca_file))
        if shown is not None:
            with tempfile.NamedTemporaryFile() as file:
                file.write(shown.certificate + b"\n" + shown.key)
                file.flush()
                context.load_cert_chain(file.name)
        return context

    def as_server(self) -> HttpTransport:
        """What the API server calls with."""
        return HttpTransport(self.server_access, tls=self.authority.client_context())

    def with_token(self, token: str) -> HttpTransport:
        access = Access(f"https://127.0.0.1:{self.port}", server_name=endpoint_name(NODE), token=token)
        return HttpTransport(access, tls=self.client_tls(None))

    def with_certificate(self, user: str, *groups: str) -> HttpTransport:
        return HttpTransport(self.server_access, tls=self.client_tls(self.authority.issue(user, groups)))


@asynccontextmanager
async def running_world(state: Path) -> AsyncIterator[World]:
    world = World(state)
    world.port = await world.endpoint.start(port=0)
    try:
        yield world
    finally:
        await world.endpoint.close()


def _pages() -> NodePages:
    async def summary() -> bytes:
        return b'{"node":{"nodeName":"n1"}}'

    return NodePages(
        summary=summary,
        metrics=lambda: "kubelet_running_pods 1\n",
        resource=lambda: "scrape_error 0\n",
        cadvisor=lambda: iter(("# HELP x y\n", "x 1\n")),
        configuration=lambda: {"maxPods": 110},
        allocated=lambda: [pod("web"), pod("other")],
    )


async def eventually(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not true():  # noqa: ASYNC110  there is no event to wait for
            await asyncio.sleep(0.01)
