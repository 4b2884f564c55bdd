"""A viewer, or an editor, attacks the API server in every way of a client, while an administrator reads pod after pod.

`attack` runs one way of attacking for some seconds and measures how long the administrator's GETs take meanwhile and
how much memory the server uses. The server and the attackers are processes of their own, the attackers with a low
priority, as if they were on another machine. A GET is measured on a connection that the administrator keeps, and every
second one on a new one, with its TCP and TLS handshakes. `wall_p99_ms` and `new_p99_ms` are the times that the
administrator waits for these two; the other times are CPU time of the server and of the measurement between a request
and its answer, which is what the GET takes on a machine that does nothing else.

    python -m tests.e2e.attacks_api NAME URL DIRECTORY     attacks until it is ended
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import ssl
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from plimsoll.api.auth.ca import Authority
from plimsoll.api.machinery.users import MASTERS, VIEWERS
from tests.bench.api_client import pod
from tests.e2e.raw_http import Connection, request_bytes

ROOT = Path(__file__).resolve().parents[2]
PODS = "/api/v1/namespaces/default/pods"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
TABLE = (("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io"),)
YAML, JSON = (("Content-Type", "application/yaml"),), (("Content-Type", "application/json"),)
ADDRESS = "127.0.0.2"  # of the attacker: a viewer is not on the administrator's machine
EDITOR, RBAC = "ned", "rbac.authorization.k8s.io"
NOTHING = "(no attack)"  # to compare with
REFUSED = (ConnectionError, asyncio.IncompleteReadError, EOFError, ssl.SSLError, TimeoutError)


class HarmedError(Exception):
    """The attack has ended the administrator's connection, or made a GET fail."""


class Measured(msgspec.Struct, frozen=True):
    gets: int
    p50_ms: float
    p99_ms: float
    worst_ms: float
    wall_p99_ms: float
    new_p99_ms: float  # on a new connection, the time that has passed
    new_cpu_p99_ms: float
    rss_mb: float  # the most


class Target:
    """The server and the identities that talk to it."""

    def __init__(self, url: str, directory: Path) -> None:
        """`directory` has what `furnish` has written."""
        self.url, self.directory = url, directory
        self.admin, self.viewer, self.editor = (self._context(directory, name) for name in ("root", "eve", EDITOR))
        self.anonymous = ssl.create_default_context(cafile=str(directory / "ca.pem"))

    @staticmethod
    def furnish(state: Path, directory: Path) -> None:
        authority = Authority(state)
        (directory / "ca.pem").write_bytes(authority.ca_file.read_bytes())
        for name, groups in (("root", (MASTERS,)), ("eve", (VIEWERS,)), (EDITOR, ())):
            issued = authority.issue(name, groups)
            (directory / f"{name}.pem").write_bytes(issued.certificate + issued.key)

    @staticmethod
    def _context(directory: Path, name: str) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(directory / "ca.pem"))
        context.load_cert_chain(directory / f"{name}.pem")
        return context

    async def connected(self, who: str = "viewer") -> Connection:
        """`who` names one of the contexts."""
        return await Connection.open(self.url, getattr(self, who), ADDRESS)

    async def fill(self, pods: int) -> None:
        """With pods, and the editor's right to edit their namespace."""
        names = iter(range(pods))
        binding = {
            "metadata": {"name": "editor"},
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "edit"},
            "subjects": [{"apiGroup": RBAC, "kind": "User", "name": EDITOR}],
        }
        first = await Connection.open(self.url, self.admin)
        where = f"/apis/{RBAC}/v1/namespaces/default/rolebindings"
        code, _ = await first.discarded(request_bytes("POST", where, JSON, json.dumps(binding).encode()))
        assert code == 201, code
        await first.close()

        async def one() -> None:
            connection = await Connection.open(self.url, self.admin)
            for number in names:
                code, _ = await connection.discarded(request_bytes("POST", PODS, JSON, pod(f"p{number}")))
                assert code == 201, code
            await connection.close()

        await asyncio.gather(*(one() for _ in range(8)))


Attack = Callable[[Target], Awaitable[None]]


def cpu_s(*pids: int) -> float:
    """The CPU time of these processes so far, by their clocks (clock_getcpuclockid)."""
    return sum(time.clock_gettime((~pid << 3) | 2) for pid in pids)


def resident_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/status").read_text().split("VmRSS:")[1].split()[0]) / 1024


async def attack(target: Target, pid: int, name: str, seconds: float, pods: int, gets: int = 0) -> Measured:
    """Measure the server `pid` while another process attacks it; `NOTHING` only runs. Raises HarmedError.

    At least for `seconds`, and until there are so many GETs of each kind: of fewer than a hundred, p99 is the worst.
    """
    times_s: list[float] = []
    wall_s: list[float] = []
    new_s: list[float] = []
    new_used_s: list[float] = []
    most_mb = resident_mb(pid)
    try:
        kept = await Connection.open(target.url, target.admin)
    except REFUSED as error:
        raise HarmedError(f"no connection before the attack: {error!r}") from error
    command = [sys.executable, "-m", "tests.e2e.attacks_api", name, target.url, str(target.directory)]
    attacking = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, cwd=ROOT)
    try:
        assert attacking.stdout is not None
        assert await attacking.stdout.readline() == b"attacking\n"
        end = time.perf_counter() + seconds
        number = 0
        while time.perf_counter() < end or len(new_s) < gets:
            number += 1
            data = request_bytes("GET", f"{PODS}/p{number * 7919 % pods}")
            is_new = number % 2 == 0
            began, before_s = time.perf_counter(), cpu_s(pid, os.getpid())
            try:
                connection = await Connection.open(target.url, target.admin) if is_new else kept
                code, _ = await connection.discarded(data)
            except REFUSED as error:
                raise HarmedError(f"GET {number} on a {'new' if is_new else 'kept'} connection: {error!r}") from error
            if code != 200:
                raise HarmedError(f"GET {number} was answered with {code}")
            took_s = time.perf_counter() - began
            used_s = min(took_s, cpu_s(pid, os.getpid()) - before_s)
            if is_new:
                new_s.append(took_s)
                new_used_s.append(used_s)
                await connection.close()
            else:
                times_s.append(used_s)
                wall_s.append(took_s)
            most_mb = max(most_mb, resident_mb(pid))
            await asyncio.sleep(0.005)
    finally:
        await kept.close()
        attacking.kill()
        await attacking.wait()
    for some in (times_s, wall_s, new_s, new_used_s):
        some.sort()
    return Measured(
        len(times_s) + len(new_s),
        *(round(_quantile(times_s, share) * 1000, 1) for share in (0.5, 0.99, 1.0)),
        round(_quantile(wall_s, 0.99) * 1000, 1),
        round(_quantile(new_s, 0.99) * 1000, 1),
        round(_quantile(new_used_s, 0.99) * 1000, 1),
        round(most_mb, 1),
    )


def _quantile(sorted_s: list[float], share: float) -> float:
    return sorted_s[min(len(sorted_s) - 1, int(len(sorted_s) * share))] if sorted_s else 0.0


async def _repeated(run: Attack, target: Target) -> None:
    print("attacking", flush=True)
    while True:
        with contextlib.suppress(*REFUSED):
            await run(target)
        await asyncio.sleep(0)


def main(name: str, url: str, directory: str) -> None:
    os.nice(10)
    asyncio.run(_repeated(attacks()[name], Target(url, Path(directory))))


# --- the ways ---


@contextlib.asynccontextmanager
async def crowd_of(target: Target, count: int, who: str = "viewer") -> AsyncIterator[list[Connection]]:
    """As many connections as the server accepts, up to `count`."""
    crowd: list[Connection] = []
    try:
        for start in range(0, count, 50):
            opened = await asyncio.gather(
                *(target.connected(who) for _ in range(min(50, count - start))), return_exceptions=True
            )
            crowd += (one for one in opened if isinstance(one, Connection))
        yield crowd
    finally:
        for connection in crowd:
            connection.writer.transport.abort()


def flood(data: bytes, count: int, who: str = "viewer") -> Attack:
    """Many connections that each send this again and again, and read the answers."""

    async def run(target: Target) -> None:
        async with crowd_of(target, count, who) as crowd:

            async def one(connection: Connection) -> None:
                with contextlib.suppress(*REFUSED):
                    while True:
                        await connection.discarded(data)

            await asyncio.gather(*map(one, crowd))

    return run


def unread(data: bytes, count: int, who: str = "viewer") -> Attack:
    """Many connections that send this and never read."""

    async def run(target: Target) -> None:
        async with crowd_of(target, count, who) as crowd:
            for connection in crowd:
                connection.writer.transport.pause_reading()
                connection.writer.write(data)
            await asyncio.sleep(3600)

    return run


def slowly(head: bytes, drop: bytes, count: int, who: str = "viewer") -> Attack:
    """Many connections that send a little of a request each second and never finish it."""

    async def run(target: Target) -> None:
        async with crowd_of(target, count, who) as crowd:
            for connection in crowd:
                connection.writer.write(head)
            while not all(connection.writer.is_closing() for connection in crowd):
                for connection in crowd:
                    if not connection.writer.is_closing():
                        connection.writer.write(drop)
                await asyncio.sleep(1)

    return run


def pipelined(data: bytes, depth: int, count: int, who: str = "viewer") -> Attack:
    """Many requests in one write, on each connection."""

    async def run(target: Target) -> None:
        async with crowd_of(target, count, who) as crowd:
            for connection in crowd:
                connection.writer.write(data * depth)

            async def drained(connection: Connection) -> None:
                with contextlib.suppress(*REFUSED):
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
                    (await target.connected("anonymous")).writer.transport.abort()
                else:
                    opened = await asyncio.open_connection(place.hostname, place.port, local_addr=(ADDRESS, 0))
                    silent.append(opened[1])
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


async def _nothing(target: Target) -> None:
    await asyncio.sleep(3600)


def viewers_attacks() -> dict[str, Attack]:
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
        NOTHING: _nothing,
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
        "many headers": flood(request_bytes("GET", f"{PODS}/p1", [("a", "")] * 12_000), 50),
        "endless URLs": slowly(b"GET /" + b"x" * 60_000, b"x" * 5_000, 200),
        "continue tokens": flood(request_bytes("GET", f"/api/v1/pods?limit=1&continue={_token_of(5)}"), 100),
        "metrics of pods": flood(request_bytes("GET", "/apis/metrics.k8s.io/v1beta1/pods"), 50),
        "discovery": flood(request_bytes("GET", "/apis"), 200),
        "OpenAPI": flood(request_bytes("GET", "/openapi/v3/api/v1"), 200),
        "unread OpenAPI": unread(request_bytes("GET", "/openapi/v3/api/v1"), 500),
        "slow heads": slowly(b"GET / HTTP/1.1\r\nX: ", b"y", 600, "anonymous"),
        "slow bodies": slowly(
            f"POST {REVIEWS} HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n".encode(), b" ", 600
        ),
        "pipelining": pipelined(request_bytes("GET", f"{PODS}/p1"), 5_000, 50),
        "unread pipelining": unread(request_bytes("GET", f"{PODS}/p1") * 5_000, 50),
        "no credentials": flood(request_bytes("GET", PODS), 250, "anonymous"),
        "new connections": connections(100, hello=True),
        "silent connections": connections(2_000, hello=False),
    }


def attacks() -> dict[str, Attack]:
    """Of a viewer and of an editor, by name."""
    from tests.e2e import attacks_editor

    return viewers_attacks() | attacks_editor.attacks()


if __name__ == "__main__":
    main(*sys.argv[1:])
