"""The endpoint as the API server and others meet it: real TLS, our own client and API server's WebSocket."""

from __future__ import annotations

import asyncio
import ssl
import tracemalloc
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path

import msgspec
import pytest

from plimsoll.api.auth.ca import endpoint_name
from plimsoll.codec.kernel.cri_log import log_line
from plimsoll.kube.request import ApiResponse, Request, UnreachableError
from plimsoll.kube.websocket import connect
from plimsoll.node.reporting.certificate import NodeIdentity
from plimsoll.node.server.auth import access_policy, subresources
from plimsoll.node.server.http import PIECE_BYTES, PortInUseError
from plimsoll.node.server.server import NodePages, NodeServer
from plimsoll.rules.config.parse import reading
from plimsoll.rules.node.node_config import machine_from_capacity, resolved
from plimsoll.rules.profile import profile_named
from plimsoll.rules.quantity import parse
from plimsoll.runtime.interface import ObservedContainer
from tests.unit.node.endpoint_world import ID, NODE, World, eventually, pod, running_world

T = b"2023-11-14T22:13:20Z"


async def _get(world: World, path: str) -> ApiResponse:
    transport = world.as_server()
    try:
        return await transport.send(Request("GET", path))
    finally:
        await transport.close()


@pytest.mark.parametrize(
    ("path", "status", "body"),
    [
        pytest.param("/healthz", 200, "ok", id="healthz"),
        pytest.param("/stats/summary", 200, '{"node":{"nodeName":"n1"}}', id="summary"),
        pytest.param("/metrics", 200, "kubelet_running_pods 1\n", id="metrics"),
        pytest.param("/metrics/resource", 200, "scrape_error 0\n", id="resource"),
        pytest.param("/metrics/cadvisor", 200, "# HELP x y\nx 1\n", id="cadvisor"),
        pytest.param("/metrics/probes", 404, "404 page not found\n", id="a page that is not there"),
        pytest.param("/configz", 200, '{"kubeletconfig":{"maxPods":110}}', id="configz"),
        pytest.param("/", 404, "404 page not found\n", id="root"),
        pytest.param("/logs/", 405, "logs endpoint is disabled.\n", id="logs of the machine, switched off"),
        pytest.param("/containerLogs/default/none/c", 404, 'pod "none" not found\n', id="no such pod"),
        pytest.param("/containerLogs/default/web/x", 404, 'container "x" not found in pod "web"\n', id="no such container"),
        pytest.param("/containerLogs/default/..%2Fweb/c", 404, 'pod "../web" not found\n', id="a name that is a path"),
        pytest.param("/containerLogs/default/web/c?tailLines=x", 400, 'tailLines: "x" must be a whole number of at least 0\n', id="bad option"),
        pytest.param("/exec/default/web/c?command=ls&stdout=1", 400, "Upgrade request required\n", id="exec without an upgrade"),
    ],
)  # fmt: skip
async def test_pages(world: World, path: str, status: int, body: str) -> None:
    answer = await _get(world, path)
    assert (answer.status, answer.body.decode()) == (status, body)


async def test_health_checks_are_counted(world: World) -> None:
    for _ in range(2):
        await _get(world, "/healthz")
    lines = (await _get(world, "/metrics/slis")).body.decode().splitlines()
    assert 'kubernetes_healthcheck{name="ping",type="healthz"} 1' in lines
    assert 'kubernetes_healthchecks_total{name="ping",type="healthz",status="success"} 2' in lines


async def test_pods_are_listed(world: World) -> None:
    world.pods.pods["default", "done"] = pod("done", {"terminated": {}})
    everything = msgspec.json.decode((await _get(world, "/pods")).body)
    running = msgspec.json.decode((await _get(world, "/runningpods/")).body)
    assert [each["metadata"]["name"] for each in everything["items"]] == ["web", "done"]
    assert everything["kind"] == running["kind"] == "PodList"
    assert running["items"] == [
        {
            "metadata": {"name": "web", "namespace": "default", "uid": "uid-web"},
            "spec": {"containers": [{"name": "c", "image": "nginx", "resources": {}}]},
            "status": {},
        }
    ]


@pytest.mark.parametrize(
    ("path", "status", "names"),
    [
        ("/allocatedPods", 200, ["web", "other"]),
        ("/allocatedPods/default/other", 200, ["other"]),
        ("/allocatedPods/default/other/uid-other", 200, ["other"]),
        ("/allocatedPods/default/other/uid-web", 404, []),
        ("/allocatedPods/default/none", 404, []),
    ],
)
async def test_r9_allocated_pods_are_listed(world: World, path: str, status: int, names: list[str]) -> None:
    answer = await _get(world, path)
    assert answer.status == status
    if names:
        document = msgspec.json.decode(answer.body)
        shown = document["items"] if document["kind"] == "PodList" else [document]
        assert [each["metadata"]["name"] for each in shown] == names
    else:
        assert answer.body.decode().strip() == "pod not found"


@pytest.mark.parametrize("size", [0, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 20 * PIECE_BYTES + 7])
async def test_a_page_arrives_whole_however_long_it_is(world: World, size: int) -> None:
    page = ("0123456789\n" * (size // 11 + 1))[:size]
    world.endpoint._pages = msgspec.structs.replace(world.endpoint._pages, metrics=lambda: page)
    transport = world.as_server()
    try:
        for _ in range(2):  # on one connection
            answer = await transport.send(Request("GET", "/metrics"))
            assert (answer.status, answer.body.decode()) == (200, page)
    finally:
        await transport.close()


async def test_a_page_that_no_one_reads_is_not_encrypted(world: World) -> None:
    """What waits for a reader is a few pieces, not the whole page a second time."""
    page = "x" * (16 << 20)
    world.endpoint._pages = msgspec.structs.replace(world.endpoint._pages, metrics=lambda: page)
    tls = world.authority.client_context()
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", world.port, ssl=tls, server_hostname=endpoint_name(NODE), limit=1024
    )
    tracemalloc.start()
    try:
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
        assert tracemalloc.get_traced_memory()[1] < 1.5 * len(page)
    finally:
        tracemalloc.stop()
        writer.transport.abort()


async def test_a_long_page_is_built_as_it_is_read(world: World) -> None:
    built = 0

    def parts() -> Iterator[str]:
        nonlocal built
        for built in range(1, 1001):
            yield f"{built % 10}" * PIECE_BYTES + "\n"

    world.endpoint._pages = msgspec.structs.replace(world.endpoint._pages, cadvisor=parts)
    tls = world.authority.client_context()
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", world.port, ssl=tls, server_hostname=endpoint_name(NODE), limit=1024
    )
    try:
        writer.write(b"GET /metrics/cadvisor HTTP/1.1\r\nHost: x\r\n\r\n")
        assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
        assert built < 1000  # of 64 MB; sockets take a few
    finally:
        writer.transport.abort()
    answer = await _get(world, "/metrics/cadvisor")
    assert (answer.status, len(answer.body), built) == (200, 1000 * (PIECE_BYTES + 1), 1000)


# --- who may ask ---


async def test_a_connection_is_kept(world: World) -> None:
    transport = world.as_server()
    for _ in range(3):
        assert (await transport.send(Request("GET", "/healthz"))).status == 200
    assert len(world.endpoint._server._connections) == 1
    await transport.close()


async def _asked(world: World, who: str, path: str) -> tuple[int, str]:
    kind, _, name = who.partition(":")
    transport = world.with_token(name) if kind == "token" else world.with_certificate(name)
    try:
        answer = await transport.send(Request("GET", path))
    finally:
        await transport.close()
    return answer.status, answer.body.decode().strip()


@pytest.mark.parametrize(
    ("who", "path", "status", "says"),
    [
        pytest.param("token:good", "/stats/summary", 200, '{"node"', id="token may read stats"),
        pytest.param("token:good", "/metrics/cadvisor", 200, "", id="token may read metrics"),
        pytest.param("token:good", "/pods", 403, "Forbidden (user=bob, verb=get, resource=nodes, subresource(s)=[pods proxy])", id="token may not read pods"),
        pytest.param("token:good", "/containerLogs/default/web/c", 403, "Forbidden (user=bob, verb=get, resource=nodes, subresource(s)=[proxy])", id="token may not read logs"),
        pytest.param("token:good", "/exec/default/web/c?command=ls&stdout=1", 403, "Forbidden (user=bob, verb=create, resource=nodes, subresource(s)=[proxy])", id="the right to read is not enough to run commands"),
        pytest.param("token:bad", "/stats/summary", 401, "Unauthorized", id="unknown token"),
        pytest.param("token:", "/healthz", 401, "Unauthorized", id="no-token"),
        pytest.param("certificate:bob", "/metrics", 200, "kubelet", id="certificate of a reader"),
        pytest.param("certificate:eve", "/metrics", 403, "Forbidden (user=eve", id="certificate of another user"),
    ],
)  # fmt: skip
async def test_every_caller_is_asked_about(world: World, who: str, path: str, status: int, says: str) -> None:
    found, text = await _asked(world, who, path)
    assert found == status
    assert text.startswith(says)


async def test_verdicts_are_kept_for_a_while_and_no_longer(world: World) -> None:
    for _ in range(3):
        assert (await _asked(world, "token:good", "/metrics"))[0] == 200
    assert [each["kind"] for each in world.api.asked] == ["TokenReview", "SubjectAccessReview"]
    world.now_s += 200
    await _asked(world, "token:good", "/metrics")
    assert [each["kind"] for each in world.api.asked[2:]] == ["TokenReview"]
    world.now_s += 200
    world.api.answers = False
    assert (await _asked(world, "token:good", "/metrics"))[0] == 401


async def test_a_name_does_not_make_an_api_server(world: World) -> None:
    assert (await _asked(world, "certificate:plimsoll:api", "/pods"))[0] == 403
    transport = world.with_certificate("kube-apiserver", "plimsoll:api")  # whose group a role is bound to
    try:
        assert (await transport.send(Request("GET", "/pods"))).status == 200
    finally:
        await transport.close()
    reviews = [each["spec"] for each in world.api.asked if each["spec"]["user"] == "kube-apiserver"]
    assert [each["resourceAttributes"]["subresource"] for each in reviews] == ["pods"]
    assert reviews[0]["groups"] == ["plimsoll:api", "system:authenticated"]


@pytest.mark.parametrize(
    ("component", "coarse", "fine"),
    [
        ("stats", ("stats",), ("stats",)),
        ("metrics", ("metrics",), ("metrics",)),
        ("logs", ("log",), ("log",)),
        ("pods", ("proxy",), ("pods", "proxy")),
        ("runningpods", ("proxy",), ("pods", "proxy")),
        ("healthz", ("proxy",), ("healthz", "proxy")),
        ("configz", ("proxy",), ("configz", "proxy")),
        ("exec", ("proxy",), ("proxy",)),
        ("containerLogs", ("proxy",), ("proxy",)),
        ("oom", ("proxy",), ("proxy",)),
    ],
)
def test_the_subresource_of_a_path(component: str, coarse: tuple[str, ...], fine: tuple[str, ...]) -> None:
    assert subresources(component, fine_grained=False) == coarse
    assert subresources(component, fine_grained=True) == fine


@pytest.mark.parametrize(("release", "is_fine"), [("1.32", False), ("1.33", True), ("1.36", True), ("documents", True)])
def test_fine_grained_access_by_release(release: str, is_fine: bool) -> None:
    profile = profile_named(release)
    machine = machine_from_capacity({"cpu": parse("1"), "memory": parse("1Gi")})
    config = reading(None, profile, {}).config
    setting = resolved(machine, config, profile, cgroup_version=2, runtime="process")
    assert access_policy(setting).fine_grained is is_fine


async def test_a_certificate_of_another_ca_ends_the_handshake(world: World, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = World(tmp_path / "other")
    stranger = world.client_tls(other.authority.issue("plimsoll-api", ["plimsoll:api"]))
    with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", world.port, ssl=stranger, server_hostname=endpoint_name(NODE)
        )
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        await writer.drain()
        await reader.readexactly(1)


async def test_only_the_node_answers_for_its_name(world: World) -> None:
    with pytest.raises(UnreachableError):
        await connect(
            "127.0.0.1", world.port, "/", tls=world.authority.client_context(), server_name="n2", subprotocols=()
        )


async def test_a_renewed_certificate_is_shown_from_then_on(world: World) -> None:
    async def shown() -> int:
        _, writer = await asyncio.open_connection(
            "127.0.0.1", world.port, ssl=world.authority.client_context(), server_hostname=endpoint_name(NODE)
        )
        number = int(writer.get_extra_info("ssl_object").getpeercert()["serialNumber"], 16)
        writer.close()
        return number

    before = await shown()
    issued = world.authority.issue_node(NODE)
    world.endpoint.renew(NodeIdentity(issued.certificate, issued.key))
    assert await shown() != before


async def test_a_taken_port_is_left_to_its_owner(world: World) -> None:
    other = NodeServer(
        world.pods, world.containers, NodePages(), world.endpoint._access, world.endpoint._tls, lambda: 0.0
    )
    with pytest.raises(PortInUseError, match=f"cannot listen on 127.0.0.1:{world.port}: Address already in use"):
        await other.start(port=world.port, or_another=False)
    found = await other.start(port=world.port)
    assert found not in (0, world.port)
    await other.close()


# --- what is no HTTP ---


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        pytest.param(b"nonsense\r\n\r\n", b"400", id="no HTTP"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 90_000 + b"\r\n\r\n", b"431", id="long head"),
        pytest.param(b"GET /healthz?x=" + b"y" * 65_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", b"200", id="long command"),
        pytest.param(b"POST /healthz HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", b"400", id="chunked body"),
        pytest.param(b"POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n", b"413", id="large body"),
        pytest.param(b"POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi", b"405", id="another method"),
        pytest.param(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", b"200", id="closed after"),
        pytest.param(b"POST /exec/default/web/c?command=ls&stdout=1 HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nContent-Length: 0\r\n\r\n", b"403", id="SPDY without a version"),
    ],
)  # fmt: skip
async def test_odd_requests(world: World, sent: bytes, status: bytes) -> None:
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", world.port, ssl=world.authority.client_context(), server_hostname=endpoint_name(NODE)
    )
    writer.write(sent)
    async with asyncio.timeout(60):
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.split()[1] == status
        if b"SPDY" in sent:
            assert (await reader.readline()).startswith(b"unable to upgrade: unable to negotiate protocol")
        elif b"Connection: close" in head:
            await reader.read()
            assert reader.at_eof()
    writer.close()


async def test_a_stranger_may_send_a_short_head_only(world: World) -> None:
    tls = ssl.create_default_context(cafile=str(world.authority.ca_file))
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", world.port, ssl=tls, server_hostname=endpoint_name(NODE)
    )
    writer.write(b"GET /healthz?x=" + b"y" * 20_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n")
    async with asyncio.timeout(10):
        assert (await reader.readuntil(b"\r\n\r\n")).split()[1] == b"431"
    writer.close()


async def test_requests_may_follow_each_other_at_once(world: World) -> None:
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", world.port, ssl=world.authority.client_context(), server_hostname=endpoint_name(NODE)
    )
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" * 3)
    async with asyncio.timeout(60):
        for _ in range(3):
            assert b"200 OK" in await reader.readuntil(b"\r\n\r\n")
            assert await reader.readexactly(2) == b"ok"
    writer.close()


# --- logs ---


def _write(world: World, *lines: bytes) -> None:
    with (world.containers.logs / "0.log").open("ab") as file:
        file.write(b"".join(log_line(T, b"stdout", each) for each in lines))


async def test_a_log_is_sent(world: World) -> None:
    _write(world, b"one", b"two")
    assert await _get(world, "/containerLogs/default/web/c") == ApiResponse(200, b"one\ntwo\n")
    found = await _get(world, "/containerLogs/default/web/c?tailLines=1&timestamps=true")
    assert found.body == b"2023-11-14T22:13:20.000000000Z two\n"
    world.now_s += 60
    assert (await _get(world, "/containerLogs/default/web/c?sinceSeconds=30")).body == b""


async def test_a_log_that_the_runtime_has_forgotten(world: World) -> None:
    del world.pods.containers[ID]
    answer = await _get(world, "/containerLogs/default/web/c")
    assert (answer.status, answer.body) == (400, b"unable to retrieve container logs for plimsoll://0123abc\n")


async def test_a_log_is_followed_until_the_container_ends(world: World) -> None:
    _write(world, b"one")
    transport = world.as_server()
    got = b""
    async with (
        asyncio.timeout(60),
        aclosing(transport.stream(Request("GET", "/containerLogs/default/web/c?follow=true"))) as parts,
    ):
        async for part in parts:
            if isinstance(part, ApiResponse):
                assert part.status == 200
                continue
            got += part
            if got == b"one\n":
                _write(world, b"two")
            elif got == b"one\ntwo\n":
                world.pods.containers[ID] = ObservedContainer(ID, "c", "exited", sandbox_id="s", pod_uid="uid-web")
    assert got == b"one\ntwo\n"
    assert (await transport.send(Request("GET", "/healthz"))).status == 200  # on the same connection
    await transport.close()


async def test_a_follower_that_leaves_is_forgotten(world: World) -> None:
    _write(world, b"one")
    transport = world.as_server()
    stream = transport.stream(Request("GET", "/containerLogs/default/web/c?follow=true"))
    assert isinstance(await anext(stream), ApiResponse)
    assert await anext(stream) == b"one\n"
    assert world.endpoint._watch._waiting
    await stream.aclose()
    await eventually(lambda: not world.endpoint._watch._waiting and not world.endpoint._server._connections)


async def test_closing_the_endpoint_ends_who_follows(tmp_path: Path) -> None:
    async with running_world(tmp_path) as world:
        _write(world, b"one")
        transport = world.as_server()
        stream = transport.stream(Request("GET", "/containerLogs/default/web/c?follow=true"))
        await anext(stream)
    with pytest.raises((UnreachableError, StopAsyncIteration)):
        async with asyncio.timeout(60):
            while True:
                await anext(stream)
