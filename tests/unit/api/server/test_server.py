"""The server as a whole: TLS, authorization, limits, errors, audit."""

from __future__ import annotations

import asyncio
import json
import ssl
from pathlib import Path
from typing import Any

import httpx
import pytest

from plimsoll.api.auth.authenticator import Credentials, server_names, write_admin_kubeconfig
from plimsoll.api.auth.ca import Authority
from plimsoll.api.machinery.audit import Audit, AuditFile
from plimsoll.api.machinery.call import ApiCall
from plimsoll.api.machinery.cluster import Cluster, Limits
from plimsoll.api.machinery.users import ANONYMOUS, AUTHENTICATED, MASTERS, NODES, VIEWERS, Tokens, User
from plimsoll.api.server import server
from plimsoll.api.server.app import App, Options
from plimsoll.api.server.server import Listener, ServerStartError, serving
from tests.unit.api.api_client import PODS, api, pod


@pytest.fixture
def state(tmp_path: Path) -> Path:
    path = tmp_path / "state"
    path.mkdir(mode=0o700)
    return path


async def test_over_tls_with_certificates_and_tokens(state: Path) -> None:
    authority = Authority(state)
    authority.prepare(server_names("127.0.0.1"))
    token = Tokens(state).create("bot", (VIEWERS,))
    app = App(Options(state, Credentials(state)))
    async with serving(app, Listener("127.0.0.1", 0, authority.server_context())) as url:
        path = write_admin_kubeconfig(state, authority, url)
        assert (path.stat().st_mode & 0o777, url.startswith("https://127.0.0.1:")) == (0o600, True)
        issued = authority.issue("root", (MASTERS,))
        (state / "c.crt").write_bytes(issued.certificate)
        (state / "c.key").write_bytes(issued.key)
        known = ssl.create_default_context(cafile=str(authority.ca_file))
        known.load_cert_chain(state / "c.crt", state / "c.key")
        plain = ssl.create_default_context(cafile=str(authority.ca_file))
        async with (
            httpx.AsyncClient(verify=known, base_url=url) as admin,
            httpx.AsyncClient(verify=plain, base_url=url) as other,
        ):
            assert (await admin.post(PODS, json=pod())).status_code == 201
            assert (await other.get(PODS)).status_code == 401
            assert (await other.get("/readyz")).text == "ok"
            bearer = {"Authorization": f"Bearer {token}"}
            assert (await other.get(f"{PODS}/demo", headers=bearer)).status_code == 200
            said = await other.post(PODS, json=pod("x"), headers=bearer)
            assert said.status_code == 403
            assert (
                said.json()["message"]
                == 'pods is forbidden: User "bot" cannot create resource "pods" in API group "" in the namespace "default"'
            )
            assert (await other.get("/readyz", headers={"Authorization": "Bearer wrong"})).status_code == 401
            async with admin.stream("GET", f"{PODS}?watch=1&timeoutSeconds=1") as stream:
                assert stream.headers["transfer-encoding"] == "chunked"
                lines = [json.loads(line) async for line in stream.aiter_lines()]  # to its end
                assert [each["type"] for each in lines] == ["ADDED"]
            big = await admin.post(
                PODS, content=b" " * (3 * 1024 * 1024 + 1), headers={"content-type": "application/json"}
            )
            assert (big.status_code, big.json()["message"]) == (413, "Request entity too large: limit is 3145728")


async def test_a_port_in_use_is_reported(state: Path) -> None:
    app = App(Options(state, lambda scope, headers: ANONYMOUS))
    async with serving(app, Listener("127.0.0.1", 0)) as url:
        port = int(url.rpartition(":")[2])
        with pytest.raises(ServerStartError, match=f"cannot listen on 127.0.0.1:{port}"):
            async with serving(
                App(Options(state / "b", lambda scope, headers: ANONYMOUS)), Listener("127.0.0.1", port)
            ):
                pass


async def test_watches_end_when_the_server_does(state: Path) -> None:
    admin = User("a", frozenset({MASTERS, AUTHENTICATED}))
    app = App(Options(state, lambda scope, headers: admin))
    async with httpx.AsyncClient(timeout=10) as client:
        async with serving(app, Listener("127.0.0.1", 0)) as url:
            request = client.build_request("GET", f"{url}{PODS}?watch=1")
            response = await client.send(request, stream=True)
            assert response.status_code == 200
        assert [part async for part in response.aiter_raw()] == []  # ended as a stream should
        await response.aclose()


async def test_a_truncated_body_is_refused(state: Path) -> None:
    admin = User("a", frozenset({MASTERS, AUTHENTICATED}))
    app = App(Options(state, lambda scope, headers: admin))
    async with serving(app, Listener("127.0.0.1", 0)) as url, httpx.AsyncClient(base_url=url) as client:
        assert (await client.post(PODS, json=pod(nodeName="n1"))).status_code == 201
        _, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        writer.write(f"DELETE {PODS}/demo HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{{".encode())
        await writer.drain()
        writer.close()
        async with asyncio.timeout(60):
            while not any(code == 400 for *_, code in app.meter.requests):  # noqa: ASYNC110  there is no event for it
                await asyncio.sleep(0.01)
        found = (await client.get(f"{PODS}/demo")).json()
        assert "deletionTimestamp" not in found["metadata"]


# --- who may ---


async def test_anonymous(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        ask.user = ANONYMOUS
        for path in ("/version", "/healthz", "/livez", "/readyz"):
            assert (await ask("GET", path)).code == 200
        for path in ("/api", "/apis", "/openapi/v3", PODS, "/api/v1/nodes", "/foo"):
            said = await ask("GET", path)
            assert (said.code, said.json["reason"]) == (401, "Unauthorized"), path


async def test_a_node_may_access_only_its_own_objects(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        for name, node in (("mine", "n1"), ("other", "n2")):
            await ask.ok("POST", PODS, pod(name, nodeName=node))
        ask.user = User("system:node:n1", frozenset({NODES, AUTHENTICATED}))
        assert (await ask("GET", f"{PODS}/mine")).code == 200
        said = await ask("GET", f"{PODS}/other")
        assert (said.code, said.json["reason"]) == (403, "Forbidden")
        assert (
            await ask("PATCH", f"{PODS}/mine/status", {"status": {"phase": "Running"}}, "application/merge-patch+json")
        ).code == 200
        said = await ask(
            "PATCH", f"{PODS}/other/status", {"status": {"phase": "Running"}}, "application/merge-patch+json"
        )
        assert (
            said.message
            == 'pods "other" is forbidden: node "n1" can only update pod status for pods with spec.nodeName set to itself'
        )
        assert (await ask("DELETE", f"{PODS}/other")).code == 403
        assert (await ask("DELETE", f"{PODS}/mine", {"gracePeriodSeconds": 0})).code == 200
        assert (await ask("GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1")).code == 200
        assert (await ask("GET", "/api/v1/pods")).code == 403
        assert (await ask("POST", "/api/v1/nodes", {"metadata": {"name": "n2"}})).code == 403
        assert (await ask("POST", "/api/v1/nodes", {"metadata": {"name": "n1"}})).code == 201
        lease = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
        assert (await ask("PUT", f"{lease}/n1", {"spec": {"holderIdentity": "n1"}})).code == 201
        assert (await ask("PUT", f"{lease}/n2", {"spec": {"holderIdentity": "n1"}})).code == 403


async def test_self_subject_reviews(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        question = {"spec": {"resourceAttributes": {"verb": "create", "resource": "pods", "namespace": "default"}}}
        assert (await ask.ok("POST", path, question))["status"] == {"allowed": True}
        ask.user = User("eve", frozenset({VIEWERS, AUTHENTICATED}))
        assert (await ask.ok("POST", path, question))["status"] == {"allowed": False}
        found = await ask.ok("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", {})
        assert found["status"]["userInfo"]["username"] == "eve"


# --- limits ---


async def test_rate(tmp_path: Path) -> None:
    async with api(tmp_path, limits=Limits(requests_per_s=0.001, burst=3)) as ask:
        assert [(await ask("GET", PODS)).code for _ in range(4)] == [200, 200, 200, 429]
        said = await ask("GET", PODS)
        assert (said.json["reason"], said.headers["retry-after"]) == ("TooManyRequests", "1")
        assert (await ask("GET", "/readyz")).code == 200
        ask.user = User("other", frozenset({MASTERS, AUTHENTICATED}))
        assert (await ask("GET", PODS)).code == 200


async def test_watchers_and_objects(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        own = ask.app.cluster.store.count()  # what every cluster has
    async with api(tmp_path, limits=Limits(watchers=1, objects=own + 1)) as ask:
        await ask.ok("POST", PODS, pod())
        said = await ask("POST", PODS, pod("more"))
        assert (said.code, said.json["reason"]) == (429, "TooManyRequests")
        async with ask.watching(f"{PODS}?watch=1") as watch:
            await watch.event()
            assert (await ask("GET", f"{PODS}?watch=1&timeoutSeconds=1")).code == 429


@pytest.mark.parametrize(
    "body",
    [
        b"{" * 5000,
        b'{"spec":' * 2000,
        b"\xff\xfe",
        b'{"metadata":{"name":"\\ud800"}}',
        b'{"spec":{"priority":1e999}}',
        b"[1]",
        b'"x"',
        b"{}{}",
    ],
    ids=["braces", "deep", "no UTF-8", "surrogate", "huge number", "list", "text", "two"],
)
async def test_invalid_bodies_are_client_errors(tmp_path: Path, body: bytes) -> None:
    async with api(tmp_path) as ask:
        for method, path, type_ in (
            ("POST", PODS, "application/json"),
            ("POST", PODS, "application/yaml"),
            ("POST", PODS, "application/vnd.kubernetes.protobuf"),
            ("PATCH", f"{PODS}/x?fieldManager=m", "application/apply-patch+yaml"),
            ("PATCH", f"{PODS}/x", "application/merge-patch+json"),
            ("PATCH", f"{PODS}/x", "application/json-patch+json"),
            ("DELETE", f"{PODS}/x", "application/json"),
        ):
            said = await ask(method, path, body, type_)
            assert 400 <= said.code < 500, (method, type_, said.body)
            assert said.json["kind"] == "Status"
        assert ask.app.meter.faults == 0


async def test_an_internal_error_shows_no_traceback(tmp_path: Path) -> None:
    async def broken(cluster: Cluster, call: ApiCall) -> Any:
        raise ZeroDivisionError("secret detail")

    async with api(tmp_path) as ask:
        ask.app.options.handlers["", "pods", "log", "get"] = broken
        said = await ask("GET", f"{PODS}/x/log")
        assert (said.code, said.json["reason"]) == (500, "InternalError")
        assert b"secret" not in said.body
        assert ask.app.meter.faults == 1


async def test_components_that_do_not_run_are_reported(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        assert (await ask("GET", "/apis/metrics.k8s.io/v1beta1/nodes")).code == 503


async def test_audit_and_counts(tmp_path: Path) -> None:
    file = tmp_path / "audit"
    written = AuditFile(file)
    async with api(tmp_path, audit=Audit(written)) as ask:
        await ask.ok("POST", PODS, pod())
        await ask.ok("GET", PODS)
        await ask("DELETE", f"{PODS}/nope")
        await ask("POST", f"{PODS}/demo/exec?command=rm&command=-rf&command=%2F")
        events = [json.loads(line) for line in file.read_bytes().splitlines()]
        assert [
            (each["user"]["username"], each["verb"], each["requestURI"], each["responseStatus"]["code"])
            for each in events
        ] == [
            ("admin", "create", PODS, 201),
            ("admin", "delete", f"{PODS}/nope", 404),
            ("admin", "create", f"{PODS}/demo/exec?command=rm&command=-rf&command=%2F", 503),
        ]
        assert events[1]["objectRef"] == {
            "resource": "pods", "namespace": "default", "name": "nope", "apiVersion": "v1",
        }  # fmt: skip
        assert events[2]["objectRef"]["subresource"] == "exec"
        assert {(each["apiVersion"], each["kind"], each["level"], each["stage"]) for each in events} == {
            ("audit.k8s.io/v1", "Event", "Metadata", "ResponseComplete")
        }
        assert len({each["auditID"] for each in events}) == 3
        assert ask.app.meter.requests["list", "", "pods", "", 200] == 1
        assert sum(ask.app.meter.durations["create", "", "pods", ""].counts) == 1
    written.close()


async def test_sixteen_writers_of_one_object(tmp_path: Path) -> None:
    async with api(tmp_path) as ask:
        path = "/api/v1/namespaces/default/configmaps"
        await ask.ok("POST", path, {"metadata": {"name": "a"}})
        patches = [
            ask("PATCH", f"{path}/a", {"data": {f"k{n}": "1"}}, "application/merge-patch+json") for n in range(16)
        ]
        assert {each.code for each in await asyncio.gather(*patches)} == {200}
        assert len((await ask.ok("GET", f"{path}/a"))["data"]) == 16


def test_a_late_pong_does_not_end_a_stream(tmp_path: Path) -> None:
    """It waits behind data that is not read yet (e2e: … should handle in-cluster config, which copies kubectl)."""
    app = App(Options(tmp_path, lambda scope, headers: ANONYMOUS))
    config = server._config(app, Listener("127.0.0.1", 0))
    assert (config.ws_ping_timeout, config.ws_ping_interval) == (None, 20.0)
