"""Answers and streams on real connections: one write each, in order, to clients that read and clients that do not."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from plimsoll.api.machinery.cluster import Limits
from plimsoll.api.machinery.users import AUTHENTICATED, MASTERS, NODES, VIEWERS, User
from plimsoll.api.server import connection as connection_module
from plimsoll.api.server import fairness as fairness_module
from plimsoll.api.server.app import App, Options
from plimsoll.api.server.server import Listener, serving
from tests.unit.api.api_client import PODS, pod

ADMIN = User("admin", frozenset({MASTERS, AUTHENTICATED}))
EVE = User("eve", frozenset({VIEWERS, AUTHENTICATED}))
NED = User("ned", frozenset({AUTHENTICATED}))
NODE = User("system:node:n1", frozenset({NODES, AUTHENTICATED}))
OPENED: list[asyncio.StreamWriter] = []


def _by_header(_: Any, headers: dict[bytes, bytes]) -> User:
    return {b"node": NODE, b"eve": EVE, b"ned": NED}.get(headers.get(b"user-agent", b""), ADMIN)


@asynccontextmanager
async def served(state: Path, limits: Limits | None = None) -> AsyncIterator[tuple[App, str]]:
    app = App(Options(state, _by_header, limits=limits or Limits()))
    async with asyncio.timeout(60), serving(app, Listener("127.0.0.1", 0)) as url:
        try:
            yield app, url
        finally:
            while OPENED:
                OPENED.pop().close()


async def opened(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Closed at the end of `served`."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]), limit=1 << 22)
    OPENED.append(writer)
    return reader, writer


async def answer(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    return int(first.split()[1]), headers, await reader.readexactly(int(headers["content-length"]))


async def test_requests_sent_at_once_are_answered_in_order(tmp_path: Path) -> None:
    async with served(tmp_path) as (_, url):
        reader, writer = await opened(url)
        bodies = [json.dumps(pod(f"p{number}")) for number in range(5)]
        for body in bodies:
            writer.write(f"POST {PODS} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        writer.write(f"GET {PODS}/p3 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        for number in range(5):
            code, headers, body = await answer(reader)
            assert (code, json.loads(body)["metadata"]["name"]) == (201, f"p{number}")
            assert "connection" not in headers
        code, headers, body = await answer(reader)
        assert (code, headers["connection"], json.loads(body)["metadata"]["name"]) == (200, "close", "p3")
        assert await reader.read() == b""
        writer.close()


async def test_a_body_in_pieces_and_one_that_is_awaited(tmp_path: Path) -> None:
    async with served(tmp_path) as (_, url):
        reader, writer = await opened(url)
        body = json.dumps(pod("p")).encode()
        head = f"POST {PODS} HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode())
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        for at in range(0, len(body), 100):
            writer.write(body[at : at + 100])
            await writer.drain()
        assert (await answer(reader))[0] == 201
        writer.close()


async def test_a_watcher_that_does_not_read_misses_nothing(tmp_path: Path) -> None:
    """Its connection fills up, the changes wait in the history, and come when it reads again."""
    async with served(tmp_path) as (app, url), httpx.AsyncClient(base_url=url, timeout=30) as client:
        big = {"padding": "x" * 200_000}
        made = (await client.post(PODS, json=pod("p"))).json()
        slow = socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])))
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        version = made["metadata"]["resourceVersion"]
        slow.sendall(f"GET {PODS}?watch=1&resourceVersion={version} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        while not app.meter.watchers.get("pods"):  # noqa: ASYNC110  there is no event for it
            await asyncio.sleep(0.01)
        merge = {"content-type": "application/merge-patch+json"}
        for number in range(60):
            change = {"metadata": {"annotations": {**big, "number": str(number)}}}
            assert (await client.patch(f"{PODS}/p", json=change, headers=merge)).status_code == 200
        reader, writer = await asyncio.open_connection(sock=slow, limit=1 << 22)
        await reader.readuntil(b"\r\n\r\n")
        numbers, rest = [], b""
        while len(numbers) < 60:
            size = int((await reader.readuntil(b"\r\n")).strip(), 16)
            rest += (await reader.readexactly(size + 2))[:-2]
            *lines, rest = rest.split(b"\n")
            numbers += [json.loads(line)["object"]["metadata"]["annotations"]["number"] for line in lines]
        assert numbers == [str(number) for number in range(60)]
        writer.close()


async def test_beyond_the_limit_a_connection_is_refused_and_a_node_is_not(tmp_path: Path) -> None:
    async with served(tmp_path, Limits(connections=3)) as (app, url):
        kept = [await opened(url) for _ in range(3)]
        for _, writer in kept:
            writer.write(f"GET {PODS} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert [(await answer(reader))[0] for reader, _ in kept] == [200] * 3
        reader, writer = await opened(url)
        writer.write(f"GET {PODS} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        code, headers, body = await answer(reader)
        assert (code, headers["retry-after"], headers["connection"], json.loads(body)["message"]) == (
            429, "5", "close", "3 connections are open, which is the limit: close some, or try again later",
        )  # fmt: skip
        assert await reader.read() == b""
        reader, writer = await opened(url)
        query = "fieldSelector=spec.nodeName%3Dn1&watch=1&timeoutSeconds=1"
        writer.write(f"GET /api/v1/pods?{query} HTTP/1.1\r\nHost: x\r\nUser-Agent: node\r\n\r\n".encode())
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        reader, writer = await opened(url)
        writer.write(b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await answer(reader))[0] == 200
        kept[0][1].close()
        while len(app.meter.watchers) and app.meter.watchers["pods"]:  # noqa: ASYNC110  the node's ends by itself
            await asyncio.sleep(0.01)
        async with asyncio.timeout(10):
            code = 429
            while code == 429:
                reader, writer = await opened(url)
                writer.write(f"GET {PODS} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
                code = (await answer(reader))[0]
        assert code == 200


async def test_beyond_the_reserve_nothing_is_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "RESERVE", 1)
    async with served(tmp_path, Limits(connections=1)) as (_, url):
        kept = [await opened(url) for _ in range(2)]
        for _, writer in kept:
            writer.write(b"GET /readyz HTTP/1.1\r\nHost: x\r\n")  # a head that is not complete keeps it open
        reader, writer = await opened(url)
        writer.write(b"G")
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)


async def test_an_idle_connection_is_closed_and_a_used_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "KEEP_ALIVE_S", 2.0)
    async with served(tmp_path) as (_, url):
        reader, writer = await opened(url)
        loop = asyncio.get_running_loop()
        end = loop.time() + 4.5
        while loop.time() < end:
            writer.write(b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await answer(reader))[0] == 200
        assert await reader.read() == b""
        assert loop.time() >= end + 0.3


# --- what one user may have ---


def request(path: str, agent: str = "eve") -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: x\r\nUser-Agent: {agent}\r\n\r\n".encode()


async def ended(reader: asyncio.StreamReader) -> bool:
    """Whether the server ends the connection."""
    try:
        async with asyncio.timeout(10):
            while await reader.read(1 << 16):
                pass
    except ConnectionResetError:
        pass
    except TimeoutError:
        return False
    return True


async def with_pods(url: str, count: int) -> None:
    """Each has 100 KB, so that a list of a few is more than a socket takes."""
    big = {"metadata": {"annotations": {"x": "y" * 100_000}}}
    async with httpx.AsyncClient(base_url=url) as client:
        for number in range(count):
            document = pod(f"p{number}")
            document["metadata"] |= big["metadata"]
            assert (await client.post(PODS, json=document)).status_code == 201


async def test_a_user_has_a_number_of_connections_and_an_administrator_any(tmp_path: Path) -> None:
    async with served(tmp_path, Limits(user_connections=2)) as (_, url):
        kept = [await opened(url) for _ in range(2)]
        for reader, writer in kept:
            writer.write(request(PODS))
            assert (await answer(reader))[0] == 200
        reader, writer = await opened(url)
        writer.write(request(PODS))
        code, headers, body = await answer(reader)
        assert (code, headers["connection"]) == (429, "close")
        assert json.loads(body)["message"].startswith("2 connections of this user are open")
        for agent in ("root", "node"):
            reader, writer = await opened(url)
            writer.write(request("/api/v1/nodes/n1" if agent == "node" else PODS, agent))
            assert (await answer(reader))[0] != 429
        kept[0][1].close()
        async with asyncio.timeout(10):
            code = 429
            while code == 429:
                reader, writer = await opened(url)
                writer.write(request(PODS))
                code = (await answer(reader))[0]


async def test_large_bodies_of_a_user_are_read_a_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two hundred that were never finished took 1.3 GB."""
    monkeypatch.setattr(fairness_module, "PAUSE_S", 0.01)
    limits = Limits(user_seats=1, user_waiting=1)
    async with served(tmp_path, limits) as (app, url), httpx.AsyncClient(base_url=url, timeout=30) as client:
        group, maps = "rbac.authorization.k8s.io", "/api/v1/namespaces/default/configmaps"
        rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]}
        bound = {
            "metadata": {"name": "ned"},
            "roleRef": {"apiGroup": group, "kind": "Role", "name": "ned"},
            "subjects": [{"apiGroup": group, "kind": "User", "name": "ned"}],
        }
        roles = f"/apis/{group}/v1/namespaces/default"
        for path, document in (("roles", {"metadata": {"name": "ned"}, "rules": [rule]}), ("rolebindings", bound)):
            assert (await client.post(f"{roles}/{path}", json=document)).status_code == 201

        async def begun(name: str, agent: str = "ned") -> tuple[asyncio.StreamReader, asyncio.StreamWriter, bytes]:
            body = json.dumps({"metadata": {"name": name}}).rjust(100_000).encode()
            reader, writer = await opened(url)
            head = f"POST {maps} HTTP/1.1\r\nHost: x\r\nUser-Agent: {agent}\r\nContent-Length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body[:50_000])
            return reader, writer, body[50_000:]

        async def ended(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, rest: bytes) -> int:
            writer.write(rest)
            code = (await answer(reader))[0]
            writer.close()
            return code

        first, second = await begun("first"), await begun("second")
        while not ("ned" in app.fairness._flows and app.fairness._flows["ned"].waiting):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        third = await begun("third")
        assert (await answer(third[0]))[0] == 429
        third[1].close()
        assert await ended(*await begun("root", "root")) == 201
        assert [await ended(*first), await ended(*second)] == [201, 201]


async def test_of_connections_without_a_user_the_oldest_goes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "UNKNOWN", 2)
    async with served(tmp_path) as (_, url):
        known = await opened(url)
        known[1].write(request(PODS))
        assert (await answer(known[0]))[0] == 200
        silent = []
        for _ in range(3):
            silent.append(await opened(url))
            silent[-1][1].write(b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await answer(silent[-1][0]))[0] == 200
        assert await ended(silent[0][0])
        for reader, writer in (*silent[1:], known):
            writer.write(b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await answer(reader))[0] == 200


async def test_an_answer_that_is_not_read_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "UNREAD_S", 0.5)
    async with served(tmp_path) as (app, url):
        await with_pods(url, 80)
        reader, writer = await opened(url)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(request(PODS))
        async with asyncio.timeout(10):
            while not app.meter.in_flight:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            while app.meter.in_flight:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        writer.transport.resume_reading()  # type: ignore[attr-defined]
        assert await ended(reader)


async def test_unread_answers_of_a_user_have_a_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "USER_UNREAD_BYTES", 1)
    async with served(tmp_path) as (app, url):
        await with_pods(url, 80)
        reader, writer = await opened(url)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(request(PODS))
        async with asyncio.timeout(10):
            while not app.meter.requests.get(("list", "", "pods", "", 200)):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        writer.transport.resume_reading()  # type: ignore[attr-defined]
        assert await ended(reader)


async def test_too_many_requests_at_once_on_one_connection_end_it(tmp_path: Path) -> None:
    async with served(tmp_path) as (app, url):
        reader, writer = await opened(url)
        writer.write(request(PODS) * 500)
        assert await ended(reader)
        assert sum(app.meter.requests.values()) <= connection_module.PIPELINED + 2


async def test_a_large_list_arrives_whole(tmp_path: Path) -> None:
    async with served(tmp_path) as (_, url):
        await with_pods(url, 20)
        async with httpx.AsyncClient(base_url=url) as client:
            for form in ("application/json", "application/yaml", "application/json;as=Table;v=v1;g=meta.k8s.io"):
                for query in ("", "?limit=20"):
                    found = await client.get(f"{PODS}{query}", headers={"accept": form})
                    document = yaml.safe_load(found.text) if "yaml" in form else found.json()
                    items = document["rows"] if "Table" in form else document["items"]
                    named = [(item.get("object") or item)["metadata"]["name"] for item in items]
                    assert named == sorted(f"p{number}" for number in range(20))
                    if "yaml" in form:  # the text that one document of all items has
                        assert found.text == yaml.dump(document, Dumper=yaml.CSafeDumper, allow_unicode=True)


async def test_more_headers_than_any_client_sends_are_refused(tmp_path: Path) -> None:
    async with served(tmp_path) as (_, url):
        reader, writer = await opened(url)
        writer.write(b"GET /readyz HTTP/1.1\r\nHost: x\r\n" + b"a:\r\n" * 10_000 + b"\r\n")
        assert (await answer(reader))[0] == 400
        assert await reader.read() == b""


@pytest.mark.parametrize(
    ("path", "code"),
    [
        pytest.param("/api/v1/nothing", 404, id="no such kind"),
        pytest.param("/api/v1/pods/p", 404, id="no namespace"),
        pytest.param("/api/v1/namespaces/default/pods/p/status/x", 404, id="no such subresource"),
        pytest.param("/nothing", 404, id="no such page"),
        pytest.param(f"{PODS}?x={'y' * 8_000}", 200, id="a long URL"),
    ],
)
async def test_what_is_no_request_for_an_object_counts_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, code: int
) -> None:
    monkeypatch.setattr(fairness_module, "PAUSE_S", 1.0)
    async with served(tmp_path, Limits(user_burst=10, user_per_s=0.001)) as (_, url):
        reader, writer = await opened(url)
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        for _ in range(12):
            writer.write(request(path))
            got, _, _ = await answer(reader)
            if loop.time() >= began_s + 1.0:
                break
            assert got == code
        else:
            raise AssertionError("no request had to wait")
