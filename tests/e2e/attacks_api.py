"""A viewer attacks the API server in every way that a client has, while an administrator reads one pod after the other.

`attack` runs one way of attacking for some seconds and measures how long the administrator's GETs take meanwhile and
how much memory the server uses. The server is a process of its own; the attackers share the process of the measurement,
so each is written to do little work itself: its time would count as the server's. A GET is measured on a connection
that the administrator keeps, and in one of ten cases on a new one.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from plimsoll.api.auth.ca import Authority
from plimsoll.api.machinery.users import MASTERS, VIEWERS
from tests.bench.api_client import pod
from tests.e2e.api_process import ApiProcess
from tests.e2e.raw_http import Connection, request_bytes

PODS = "/api/v1/namespaces/default/pods"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
TABLE = (("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io"),)
YAML, JSON = (("Content-Type", "application/yaml"),), (("Content-Type", "application/json"),)
_REFUSED = (ConnectionError, asyncio.IncompleteReadError, EOFError, ssl.SSLError, TimeoutError)


class Measured(msgspec.Struct, frozen=True):
    gets: int
    p50_ms: float
    p99_ms: float
    worst_ms: float
    new_p99_ms: float  # on a new connection
    rss_mb: float  # the most


class Target:
    """The server and the identities that talk to it."""

    def __init__(self, server: ApiProcess, scratch: Path) -> None:
        self.server, self.url = server, server.url
        authority = Authority(server.state)
        self.anonymous = ssl.create_default_context(cafile=str(authority.ca_file))
        self.admin, self.viewer = (
            self._context(authority, name, group, scratch) for name, group in (("root", MASTERS), ("eve", VIEWERS))
        )

    def _context(self, authority: Authority, name: str, group: str, scratch: Path) -> ssl.SSLContext:
        issued = authority.issue(name, (group,))
        context = ssl.create_default_context(cafile=str(authority.ca_file))
        file = scratch / f"{name}.pem"
        file.write_bytes(issued.certificate + issued.key)
        context.load_cert_chain(file)
        return context

    async def connected(self, *, anonymous: bool = False) -> Connection:
        return await Connection.open(self.url, self.anonymous if anonymous else self.viewer)

    def rss_mb(self) -> float:
        text = Path(f"/proc/{self.server.process.pid}/status").read_text()
        return int(text.split("VmRSS:")[1].split()[0]) / 1024

    async def fill(self, pods: int) -> None:
        names = iter(range(pods))

        async def one() -> None:
            connection = await Connection.open(self.url, self.admin)
            for number in names:
                code, _ = await connection.discarded(request_bytes("POST", PODS, JSON, pod(f"p{number}")))
                assert code == 201, code
            await connection.close()

        await asyncio.gather(*(one() for _ in range(8)))


Attack = Callable[[Target], Awaitable[None]]


async def attack(target: Target, run: Attack, seconds: float, pods: int) -> Measured:
    """Measure while `run` is repeated; when the time is up it is cancelled."""
    times_s: list[float] = []
    new_s: list[float] = []
    most_mb = target.rss_mb()
    kept = await Connection.open(target.url, target.admin)
    attacking = asyncio.create_task(_repeated(run, target))
    end = time.perf_counter() + seconds
    try:
        number = 0
        while time.perf_counter() < end and not attacking.done():
            number += 1
            data = request_bytes("GET", f"{PODS}/p{number * 7919 % pods}")
            is_new = number % 10 == 0
            began = time.perf_counter()
            connection = await Connection.open(target.url, target.admin) if is_new else kept
            code, _ = await connection.discarded(data)
            (new_s if is_new else times_s).append(time.perf_counter() - began)
            assert code == 200, code
            if is_new:
                await connection.close()
            most_mb = max(most_mb, target.rss_mb())
            await asyncio.sleep(0.005)
    finally:
        await kept.close()
        attacking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await attacking
    times_s.sort()
    new_s.sort()
    return Measured(
        len(times_s) + len(new_s),
        *(round(_quantile(times_s, share) * 1000, 1) for share in (0.5, 0.99, 1.0)),
        round(_quantile(new_s, 0.99) * 1000, 1),
        round(most_mb, 1),
    )


def _quantile(sorted_s: list[float], share: float) -> float:
    return sorted_s[min(len(sorted_s) - 1, int(len(sorted_s) * share))] if sorted_s else 0.0


async def _repeated(run: Attack, target: Target) -> None:
    while True:
        with contextlib.suppress(*_REFUSED):
            await run(target)
        await asyncio.sleep(0)


# --- the ways ---


@contextlib.asynccontextmanager
async def _crowd(target: Target, count: int, *, anonymous: bool = False) -> AsyncIterator[list[Connection]]:
    """As many connections as the server accepts, up to `count`."""
    crowd: list[Connection] = []
    try:
        for start in range(0, count, 50):
            opened = await asyncio.gather(
                *(target.connected(anonymous=anonymous) for _ in range(min(50, count - start))), return_exceptions=True
            )
            crowd += (one for one in opened if isinstance(one, Connection))
        yield crowd
    finally:
        for connection in crowd:
            connection.writer.transport.abort()


def flood(data: bytes, count: int, *, anonymous: bool = False) -> Attack:
    """Many connections that each send this again and again, and read the answers."""

    async def run(target: Target) -> None:
        async with _crowd(target, count, anonymous=anonymous) as crowd:

            async def one(connection: Connection) -> None:
                with contextlib.suppress(*_REFUSED):
                    while True:
                        await connection.discarded(data)

            await asyncio.gather(*map(one, crowd))

    return run


def unread(data: bytes, count: int) -> Attack:
    """Many connections that send this and never read."""

    async def run(target: Target) -> None:
        async with _crowd(target, count) as crowd:
            for connection in crowd:
                connection.writer.transport.pause_reading()
                connection.writer.write(data)
            await asyncio.sleep(3600)

    return run


def slowly(head: bytes, drop: bytes, count: int, *, anonymous: bool = False) -> Attack:
    """Many connections that send a little of a request each second and never finish it."""

    async def run(target: Target) -> None:
        async with _crowd(target, count, anonymous=anonymous) as crowd:
            for connection in crowd:
                connection.writer.write(head)
            while not all(connection.writer.is_closing() for connection in crowd):
                for connection in crowd:
                    if not connection.writer.is_closing():
                        connection.writer.write(drop)
                await asyncio.sleep(1)

    return run


def pipelined(data: bytes, depth: int, count: int) -> Attack:
    """Many requests in one write, on each connection."""

    async def run(target: Target) -> None:
        async with _crowd(target, count) as crowd:
            for connection in crowd:
                connection.writer.write(data * depth)

            async def drained(connection: Connection) -> None:
                with contextlib.suppress(*_REFUSED):
                    while await connection.reader.read(1 << 16):
                        pass

            await asyncio.gather(*map(drained, crowd))

    return run


def connections(count: int, *, hello: bool) -> Attack:
    """New connections without end; without `hello` they never begin their TLS handshake."""

    async def run(target: Target) -> None:
        place = urlsplit(target.url)
        silent = []
        try:
            for _ in range(count):
                if hello:
                    (await target.connected(anonymous=True)).writer.transport.abort()
                else:
                    silent.append((await asyncio.open_connection(place.hostname, place.port))[1])
            if silent:
                await asyncio.sleep(1)
        finally:
            for writer in silent:
                writer.transport.abort()

    return run


def _selector(term: str, size: int) -> str:
    return ",".join([term] * (size // (len(term) + 1)))


def _alias_bomb() -> bytes:
    lines = ["a0: &a0 [x,x,x,x,x,x,x,x,x]"]
    lines += [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)]
    return "\n".join(lines).encode()


def _token_of(number: int) -> str:
    import base64

    text = json.dumps({"v": "meta.k8s.io/v1", "rv": -1, "start": f"/default/p{number}\0"}).encode()
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


def attacks() -> dict[str, Attack]:
    """By name. Sizes are such that each is refused, or fills what a user may have."""
    lists = request_bytes("GET", "/api/v1/pods")
    review = json.dumps({"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1"}).encode()
    wide = b'{"spec":{"x":[' + b"[]," * 900_000 + b"[]]}}"
    deep = b'{"spec":' * 300_000
    wide_yaml = b"spec:\n" + b"".join(b"  k%d: v\n" % n for n in range(5_000))
    apply = (("Content-Type", "application/apply-patch+yaml"),)
    merge = (("Content-Type", "application/merge-patch+json"),)
    giant = json.dumps({"metadata": {"annotations": {f"a{n}": "x" * 50 for n in range(40_000)}}}).encode()
    return {
        "wide JSON": flood(request_bytes("POST", REVIEWS, JSON, wide), 8),
        "deep JSON": flood(request_bytes("POST", REVIEWS, JSON, deep), 8),
        "wide YAML": flood(request_bytes("POST", REVIEWS, YAML, wide_yaml[:60_000]), 16),
        "deep YAML": flood(request_bytes("POST", REVIEWS, YAML, b"a: " + b"[" * 50_000), 16),
        "alias bomb": flood(request_bytes("POST", REVIEWS, YAML, _alias_bomb()), 16),
        "giant patch": flood(request_bytes("PATCH", f"{PODS}/p1", merge, giant), 8),
        "giant apply": flood(request_bytes("PATCH", f"{PODS}/p1?fieldManager=x", apply, giant), 8),
        "gzip body": flood(
            request_bytes("POST", REVIEWS, (*JSON, ("Content-Encoding", "gzip")), b"\x1f\x8b" * 30_000), 8
        ),
        "reviews": flood(request_bytes("POST", REVIEWS, JSON, review), 200),
        "GETs": flood(request_bytes("GET", f"{PODS}/p1"), 500),
        "unread LISTs": unread(lists, 500),
        "read LISTs": flood(lists, 50),
        "YAML LISTs": flood(request_bytes("GET", "/api/v1/pods", (("Accept", "application/yaml"),)), 16),
        "tables": flood(request_bytes("GET", "/api/v1/pods", TABLE), 50),
        "unread tables": unread(request_bytes("GET", "/api/v1/pods?includeObject=Object", TABLE), 200),
        "watches": unread(request_bytes("GET", "/api/v1/pods?watch=1&resourceVersion=0"), 2_000),
        "table watches": unread(request_bytes("GET", "/api/v1/pods?watch=1", TABLE), 1_000),
        "label selectors": flood(request_bytes("GET", f"/api/v1/pods?labelSelector={_selector('app!=x', 60_000)}"), 16),
        "set selectors": flood(
            request_bytes("GET", f"/api/v1/pods?labelSelector=app%20in%20({_selector('x', 19_000)})"), 16
        ),
        "field selectors": flood(
            request_bytes("GET", f"/api/v1/pods?fieldSelector={_selector('status.phase!=x', 60_000)}"), 16
        ),
        "long URLs": flood(request_bytes("GET", f"/api/v1/pods/{'x' * 60_000}"), 50),
        "endless URLs": slowly(b"GET /" + b"x" * 60_000, b"x" * 5_000, 200),
        "continue tokens": flood(request_bytes("GET", f"/api/v1/pods?limit=1&continue={_token_of(5)}"), 100),
        "metrics of pods": flood(request_bytes("GET", "/apis/metrics.k8s.io/v1beta1/pods"), 50),
        "discovery": flood(request_bytes("GET", "/apis"), 200),
        "OpenAPI": flood(request_bytes("GET", "/openapi/v3/api/v1"), 200),
        "unread OpenAPI": unread(request_bytes("GET", "/openapi/v3/api/v1"), 500),
        "slow heads": slowly(b"GET / HTTP/1.1\r\nX: ", b"y", 600, anonymous=True),
        "slow bodies": slowly(
            f"POST {REVIEWS} HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n".encode(), b" ", 600
        ),
        "pipelining": pipelined(request_bytes("GET", f"{PODS}/p1"), 5_000, 50),
        "unread pipelining": unread(request_bytes("GET", f"{PODS}/p1") * 5_000, 50),
        "no credentials": flood(request_bytes("GET", PODS), 250, anonymous=True),
        "new connections": connections(100, hello=True),
        "silent connections": connections(2_000, hello=False),
    }
