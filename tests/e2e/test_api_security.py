"""Authorization over TLS at a real server: nothing without credentials, reads for a viewer, a node only its own."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import ssl
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from plimsoll.api.auth.ca import Authority, Issued
from plimsoll.api.machinery.cluster import Limits
from plimsoll.api.machinery.users import MASTERS, NODE_PREFIX, NODES, VIEWERS, Tokens
from plimsoll.api.server.connection import HEAD_BYTES, SPILL_BYTES
from tests.e2e.api_fuzz_tls import Asker
from tests.e2e.api_process import ApiProcess
from tests.e2e.raw_http import Connection, admin_tls, request_bytes
from tests.unit.api.api_client import api, pod

PODS = "/api/v1/namespaces/default/pods"
NODE_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
OPEN = ("/livez", "/readyz", "/healthz", "/version")
UNAUTHORIZED = {
    "kind": "Status",
    "apiVersion": "v1",
    "metadata": {},
    "status": "Failure",
    "message": "Unauthorized",
    "reason": "Unauthorized",
    "code": 401,
}
PLACES = [
    ("GET", "/"),
    ("GET", "/api"),
    ("GET", "/apis"),
    ("GET", "/api/v1"),
    ("GET", "/apis/apps/v1"),
    ("GET", "/openapi/v3"),
    ("GET", "/openapi/v3/api/v1"),
    ("GET", "/metrics"),
    ("GET", "/nowhere"),
    ("GET", "/api/v1/nowhere"),
    ("GET", "/apis/no.such.group/v1/things"),
    ("GET", "/version/x"),
    ("GET", PODS),
    ("GET", f"{PODS}?watch=true"),
    ("GET", "/api/v1/watch/pods"),
    ("GET", f"{PODS}/mine"),
    ("GET", f"{PODS}/mine/log"),
    ("GET", f"{PODS}/mine/exec?command=id"),
    ("POST", f"{PODS}/mine/exec?command=id"),
    ("POST", PODS),
    ("PUT", f"{PODS}/mine"),
    ("PATCH", f"{PODS}/mine"),
    ("PATCH", f"{PODS}/mine/status"),
    ("PATCH", f"{PODS}/mine/resize"),
    ("DELETE", f"{PODS}/mine"),
    ("DELETE", PODS),
    ("POST", f"{PODS}/mine/eviction"),
    ("POST", f"{PODS}/mine/binding"),
    ("GET", "/api/v1/nodes/n1/proxy/metrics"),
    ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"),
    ("GET", "/apis/metrics.k8s.io/v1beta1/nodes"),
]


class Server:
    def __init__(self, process: ApiProcess, scratch: Path) -> None:
        self.url, self.state, self._scratch = process.url, process.state, scratch
        self.authority = Authority(process.state)
        self._numbers = itertools.count()

    def tls(self, issued: Issued | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.authority.ca_file))
        if issued is not None:
            file = self._scratch / f"client{next(self._numbers)}.pem"
            file.write_bytes(issued.certificate + issued.key)
            context.load_cert_chain(file)
        return context

    @asynccontextmanager
    async def client(self, issued: Issued | None = None, token: str = "") -> AsyncIterator[httpx.AsyncClient]:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with httpx.AsyncClient(base_url=self.url, verify=self.tls(issued), headers=headers, timeout=90) as client:
            yield client

    def admin(self) -> Any:
        return self.client(self.authority.issue("root", (MASTERS,)))

    def viewer(self) -> Any:
        return self.client(self.authority.issue("eve", (VIEWERS,)))

    def node(self, name: str = "n1") -> Any:
        return self.client(self.authority.issue_node(name))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """With two nodes and a pod on each."""
    directory = tmp_path_factory.mktemp("security")
    process = ApiProcess(directory / "state", directory / "api.log", "--audit-log", str(directory / "state" / "audit"))
    try:
        process.ready()
        found = Server(process, directory)
        asyncio.run(_furnish(found))
        yield found
    finally:
        process.kill()


async def _furnish(server: Server) -> None:
    async with server.admin() as admin:
        for name, own in (("n1", "mine"), ("n2", "other")):
            status = {"capacity": {"cpu": "4", "memory": "8Gi", "pods": "110"}}
            said = await admin.post("/api/v1/nodes", json={"metadata": {"name": name}, "status": status})
            assert said.status_code == 201, said.text
            said = await admin.post(PODS, json=pod(own, nodeName=name))
            assert said.status_code == 201, said.text
            lease = {"metadata": {"name": name}, "spec": {"holderIdentity": name}}
            assert (await admin.post(NODE_LEASES, json=lease)).status_code == 201


# --- no credentials, and wrong ones ---


async def test_without_credentials_only_four_paths_answer(server: Server) -> None:
    async with server.client() as anonymous:
        for path in OPEN:
            assert (await anonymous.get(path)).status_code == 200, path
        for method, path in PLACES:
            said = await anonymous.request(method, path, json={})
            assert (said.status_code, said.json()) == (401, UNAUTHORIZED), (method, path)


@pytest.mark.parametrize(
    "authorization",
    ["Bearer wrong", "Bearer", "Basic cm9vdDpyb290", "bearer plm_" + "A" * 43, "x" * 5000, "Bearer \xe9"],
    ids=["wrong", "bare", "basic", "well-formed", "long", "no ASCII"],
)
async def test_a_wrong_token_is_refused_everywhere(server: Server, authorization: str) -> None:
    async with server.client() as client:
        headers = [(b"Authorization", authorization.encode("latin-1"))]
        for method, path in (*(("GET", path) for path in OPEN), *PLACES):
            said = await client.request(method, path, headers=headers, json={})
            assert (said.status_code, said.json()) == (401, UNAUTHORIZED), (method, path)


async def test_a_token_works_until_it_is_revoked(server: Server) -> None:
    tokens = Tokens(server.state)
    token = tokens.create("bot", (VIEWERS,))
    async with server.client(token=token) as bot:
        assert (await bot.get(PODS)).status_code == 200
        tokens.revoke("bot")
        assert (await bot.get(PODS)).status_code == 401
        assert (await bot.get("/version")).status_code == 401


def certificate_of(server: Server, case: str, tmp_path: Path) -> Issued:
    now = datetime.now(UTC)
    if case == "another CA's":
        (tmp_path / "other").mkdir(mode=0o700)
        other = Authority(tmp_path / "other")
        other.prepare(["127.0.0.1"])
        return other.issue("root", (MASTERS,))
    if case == "ended":
        return server.authority.issue("root", (MASTERS,), now=now - timedelta(days=30), days=10)
    if case == "not valid yet":
        return server.authority.issue("root", (MASTERS,), now=now + timedelta(days=30))
    made = Authority(server.state)  # a server's certificate says nothing about who calls
    return made.issue("root", (MASTERS,), names=("127.0.0.1",))


@pytest.mark.parametrize("case", ["another CA's", "ended", "not valid yet", "a server's"])
async def test_a_wrong_certificate_gets_no_answer(server: Server, case: str, tmp_path: Path) -> None:
    async with server.client(certificate_of(server, case, tmp_path)) as client:
        for path in (PODS, "/version"):
            with pytest.raises((httpx.ReadError, httpx.ConnectError, httpx.RemoteProtocolError)):
                await client.get(path)
    async with server.client() as anonymous:
        assert (await anonymous.get("/readyz")).text == "ok"


async def test_only_tls(server: Server) -> None:
    place = httpx.URL(server.url)
    async with httpx.AsyncClient() as client:
        with pytest.raises(httpx.HTTPError):
            await client.get(f"http://{place.host}:{place.port}/version")


# --- a viewer ---


async def test_a_viewer_reads_everything_and_writes_nothing(server: Server) -> None:
    async with server.viewer() as viewer:
        for path in (PODS, f"{PODS}/mine", "/api/v1/nodes", "/api", "/openapi/v3", "/apis/apps/v1/deployments"):
            assert (await viewer.get(path)).status_code == 200, path
        for method, path in PLACES:
            if "exec" not in path and "proxy" not in path and (method == "GET" or "selfsubject" in path):
                continue
            said = await viewer.request(method, path, json={})
            assert (said.status_code, said.json()["reason"]) == (403, "Forbidden"), (method, path)
        said = await viewer.post(PODS, json=pod("new"))
        assert said.json()["message"] == (
            'pods is forbidden: User "eve" cannot create resource "pods" in API group "" in the namespace "default"'
        )


async def test_a_viewer_gets_no_shell(server: Server) -> None:
    """As a WebSocket, too."""
    upgrade = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    upgrade += "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\n\r\n"
    asked = f"GET {PODS}/mine/exec?command=id&stdout=true HTTP/1.1\r\nHost: x\r\n{upgrade}".encode()
    for who, code in (
        (server.authority.issue("eve", (VIEWERS,)), 403),
        (None, 401),
        (server.authority.issue_node("n1"), 403),
    ):
        ask = Asker(server.url, server.tls(who))
        answer = await ask.raw(asked)
        await ask.hang_up()
        assert (answer.code, json.loads(answer.body)["code"]) == (code, code)


# --- a node ---

OTHERS = [
    ("GET", f"{PODS}/other", None),
    ("GET", PODS, None),
    ("GET", "/api/v1/pods", None),
    ("GET", f"{PODS}?watch=true&timeoutSeconds=1", None),
    ("GET", "/api/v1/pods?fieldSelector=spec.nodeName=n2", None),
    ("GET", "/api/v1/pods?fieldSelector=spec.nodeName!=n1", None),
    ("GET", "/api/v1/pods?watch=true&fieldSelector=spec.nodeName%3Dn2&timeoutSeconds=1", None),
    ("PATCH", f"{PODS}/other/status", {"status": {"phase": "Failed"}}),
    ("PUT", f"{PODS}/other/status", {**pod("other"), "status": {"phase": "Failed"}}),
    ("PATCH", f"{PODS}/other", {"metadata": {"labels": {"a": "b"}}}),
    ("PATCH", f"{PODS}/mine", {"metadata": {"labels": {"a": "b"}}}),
    ("PATCH", f"{PODS}/mine/resize", {"spec": {"containers": [{"name": "c"}]}}),
    ("DELETE", f"{PODS}/other", None),
    ("DELETE", PODS, None),
    ("POST", f"{PODS}/other/eviction", {"metadata": {"name": "other"}}),
    ("POST", f"{PODS}/other/binding", {"metadata": {"name": "other"}, "target": {"kind": "Node", "name": "n1"}}),
    ("POST", PODS, pod("new")),
    ("POST", PODS, pod("new", nodeName="n1")),
    ("POST", PODS, pod("new", nodeName="n2")),
    ("GET", "/api/v1/nodes", None),
    ("GET", "/api/v1/nodes/n2", None),
    ("PATCH", "/api/v1/nodes/n2", {"spec": {"unschedulable": True}}),
    ("PATCH", "/api/v1/nodes/n2/status", {"status": {"capacity": {"cpu": "99"}}}),
    ("DELETE", "/api/v1/nodes/n2", None),
    ("DELETE", "/api/v1/nodes/n1", None),
    ("POST", "/api/v1/nodes", {"metadata": {"name": "n3"}}),
    ("GET", "/api/v1/nodes/n1/proxy/metrics", None),
    ("GET", f"{NODE_LEASES}/n2", None),
    ("GET", NODE_LEASES, None),
    ("PUT", f"{NODE_LEASES}/n2", {"metadata": {"name": "n2", "resourceVersion": "1"}, "spec": {}}),
    ("DELETE", f"{NODE_LEASES}/n2", None),
    ("POST", NODE_LEASES, {"metadata": {"name": "n3"}, "spec": {}}),
    ("POST", "/api/v1/namespaces", {"metadata": {"name": "mine"}}),
    ("POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"name": "mine"}}),
    ("DELETE", "/api/v1/namespaces/default/events", None),
    ("GET", f"{PODS}/mine/exec?command=id", None),
    ("GET", "/metrics", None),
]


@pytest.mark.parametrize(("method", "path", "body"), OTHERS, ids=[f"{row[0]} {row[1]}" for row in OTHERS])
async def test_a_node_may_not_touch_what_is_not_its_own(server: Server, method: str, path: str, body: Any) -> None:
    async with server.node() as node:
        type_ = "application/strategic-merge-patch+json" if method == "PATCH" else "application/json"
        content = json.dumps(body).encode() if body is not None else b""
        said = await node.request(method, path, content=content, headers={"Content-Type": type_})
        assert (said.status_code, said.json()["reason"]) == (403, "Forbidden"), said.text
    async with server.admin() as admin:
        assert "unschedulable" not in (await admin.get("/api/v1/nodes/n2")).json()["spec"]
        assert (await admin.get(f"{PODS}/other")).json()["status"]["phase"] == "Pending"


async def test_a_node_has_what_is_its_own(server: Server) -> None:
    patch = {"Content-Type": "application/strategic-merge-patch+json"}
    async with server.node() as node:
        assert (await node.get("/api/v1/nodes/n1")).status_code == 200
        listed = (await node.get("/api/v1/pods?fieldSelector=spec.nodeName=n1")).json()
        assert [each["metadata"]["name"] for each in listed["items"]] == ["mine"]
        body = json.dumps({"status": {"message": "seen"}})
        assert (await node.patch(f"{PODS}/mine/status", content=body, headers=patch)).status_code == 200
        body = json.dumps({"status": {"capacity": {"cpu": "4"}}})
        assert (await node.patch("/api/v1/nodes/n1/status", content=body, headers=patch)).status_code == 200
        assert (await node.get(f"{NODE_LEASES}/n1")).status_code == 200
        event = {"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "namespace": "default"}, "type": "Normal"}
        assert (await node.post("/api/v1/namespaces/default/events", json=event)).status_code == 201


async def test_names_alone_make_no_client_a_node_or_an_admin(server: Server) -> None:
    """Groups come from the certificate's O; a CN like a node's, or like a group's, is just a name."""
    for name, groups in (
        (f"{NODE_PREFIX}n1", ()),
        (MASTERS, ()),
        ("x", (NODES,)),
        (NODE_PREFIX, (NODES,)),
    ):
        async with server.client(server.authority.issue(name, groups)) as client:
            for path in (PODS, "/api/v1/nodes/n1", "/api/v1/pods?fieldSelector=spec.nodeName="):
                assert (await client.get(path)).status_code == 403, (name, groups, path)
    async with server.client(server.authority.issue("x", ("plimsoll:api",))) as client:  # may call nodes, no more
        assert (await client.get(PODS)).status_code == 403
        assert (await client.delete("/api/v1/nodes/n1")).status_code == 403
    async with server.viewer() as viewer:
        headers = {"Impersonate-User": "root", "Impersonate-Group": MASTERS, "X-Remote-User": "root"}
        assert (await viewer.post(PODS, json=pod("new"), headers=headers)).status_code == 403


# --- files ---


async def test_everything_in_the_state_directory_is_the_owners_alone(server: Server) -> None:
    Tokens(server.state).create("modes", (VIEWERS,))
    seen = set()
    for path in (server.state, *server.state.rglob("*")):
        found = path.lstat()
        wanted = 0o700 if stat.S_ISDIR(found.st_mode) else 0o600
        assert (stat.S_IMODE(found.st_mode), found.st_uid) == (wanted, os.geteuid()), path
        seen.add(path.name)
    assert {"pki", "ca.key", "server.key", "client.key", "admin.kubeconfig", "tokens.json", "store", "audit"} <= seen


def test_a_state_directory_that_others_may_enter_is_refused(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir(mode=0o755)
    state.chmod(0o755)
    command = [str(Path(sys.executable).with_name("plimsoll")), "api", "--state-dir", str(state)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=90)
    assert done.returncode != 0
    assert f"chmod 700 {state}" in done.stderr
    assert not list(state.iterdir())


async def test_tokens_are_not_kept_and_the_audit_log_has_no_secrets(server: Server) -> None:
    token = Tokens(server.state).create("secretive", (VIEWERS,))
    async with server.client(token=token) as client:
        assert (await client.post(PODS, json=pod("new"))).status_code == 403
    kept = b"".join(path.read_bytes() for path in server.state.rglob("*") if path.is_file())
    assert token.encode() not in kept
    assert b'"username":"secretive"' in (server.state / "audit").read_bytes()


# --- limits ---


async def test_a_body_that_is_too_large(server: Server) -> None:
    async with server.admin() as admin:
        headers = {"Content-Type": "application/json"}
        said = await admin.post(PODS, content=b" " * (3 * 1024 * 1024 + 1), headers=headers)
        assert (said.status_code, said.json()["reason"]) == (413, "RequestEntityTooLarge")
        assert said.json()["message"] == "Request entity too large: limit is 3145728"
        deep = b'{"metadata":' * 5000
        assert (await admin.post(PODS, content=deep, headers=headers)).status_code == 400


@pytest.mark.parametrize("size", [3 * 1024 * 1024 + 1, 2 * SPILL_BYTES])
async def test_a_body_that_is_too_large_ends_the_connection(server: Server, size: int) -> None:
    """As net/http does; a client must know not to send its next request there."""
    connection = await Connection.open(server.url, admin_tls(server.state / "admin.kubeconfig"))
    heard = await connection.exchange(request_bytes("POST", PODS, body=b" " * size))
    assert (heard.code, heard.headers.get("connection")) == (413, "close")
    async with asyncio.timeout(60):
        assert await _rest(connection) == b""
    await connection.close()


async def _rest(connection: Connection) -> bytes:
    try:
        return await connection.reader.read()
    except (ConnectionError, ssl.SSLError):
        return b""


async def test_a_body_without_end_ends_the_connection(server: Server) -> None:
    connection = await Connection.open(server.url, admin_tls(server.state / "admin.kubeconfig"))
    connection.writer.write(f"POST {PODS} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
    answered = asyncio.create_task(connection.head())
    assert await _sent_until_cut(connection, b"10000\r\n" + b" " * 65536 + b"\r\n") < 8 * SPILL_BYTES
    assert (await answered)[0] == 413
    await connection.close()
    async with server.client() as anonymous:
        assert (await anonymous.get("/readyz")).text == "ok"


async def _sent_until_cut(connection: Connection, piece: bytes) -> int:
    """How much the server took before it hung up."""
    sent = 0
    try:
        while sent < 8 * SPILL_BYTES:
            connection.writer.write(piece)
            await connection.writer.drain()
            await asyncio.sleep(0)  # else the loop never reports that the connection is gone
            sent += len(piece)
    except (ConnectionError, ssl.SSLError):
        pass
    return sent


async def test_headers_without_end_end_the_connection(server: Server) -> None:
    connection = await Connection.open(server.url, server.tls())
    connection.writer.write(b"GET /version HTTP/1.1\r\nX: ")
    # The sockets' buffers take megabytes before the client notices.
    assert await _sent_until_cut(connection, b"y" * 65536) < HEAD_BYTES + SPILL_BYTES
    await connection.close()


async def test_a_rate_that_is_too_high(tmp_path: Path) -> None:
    async with api(tmp_path, limits=Limits(requests_per_s=0.001, burst=5)) as ask:
        said = [await ask("GET", PODS) for _ in range(8)]
        assert [each.code for each in said] == [200] * 5 + [429] * 3
        assert said[-1].headers["retry-after"] == "1"
        assert (said[-1].json["reason"], said[-1].json["details"]["retryAfterSeconds"]) == ("TooManyRequests", 1)
