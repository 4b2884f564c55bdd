"""The same odd requests over TLS, at a server in a process of its own; and bytes that are no HTTP at all.

Here the HTTP parser and TLS take part, so a request may also be refused before it is one: 400 in plain text, or a
connection that ends.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from plimsoll.api.server.connection import SPILL_BYTES
from tests.e2e.api_fuzz import HANG_S, Answered, Failure, Outcome, offers_of, wrong_with
from tests.e2e.api_process import ApiProcess
from tests.e2e.raw_http import Connection, admin_tls, request_bytes
from tests.e2e.request_grammar import Asked, Offer, asked, furniture

ASKERS = 4
LARGEST_BYTES = 2 * SPILL_BYTES  # the server drops the connection
RAW_S = 0.5  # what is half a request gets no answer
PODS = "/api/v1/namespaces/default/pods"
_HELLO = b"GET /version HTTP/1.1\r\nHost: test\r\n"
RAW = (
    b"\r\n\r\n", b"\x16\x03\x01" * 100, b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET /\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n", b"FOO / HTTP/1.1\r\n\r\n",
    b"GET http://x/ HTTP/1.1\r\nHost: x\r\n\r\n", b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n", b"GET / HTTP/1.1\r\nbad header\r\n\r\n", b"GET * HTTP/1.1\r\nHost: x\r\n\r\n",
    b"POST /api/v1/namespaces HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", b"POST /api/v1/namespaces HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"POST /api/v1/namespaces HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", _HELLO + b"X: " + b"y" * 2_000_000,
    _HELLO + b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
    f"GET {PODS}/x/exec?command=a HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n".encode(),
    f"GET {PODS}/x/exec HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n".encode(),
    f"POST {PODS}/x/exec HTTP/1.1\r\nHost: x\r\nUpgrade: SPDY/3.1\r\nConnection: Upgrade\r\nContent-Length: 0\r\n\r\n".encode(),
)  # fmt: skip


class Asker:
    """Keeps a connection as long as the server does."""

    def __init__(self, url: str, tls: ssl.SSLContext) -> None:
        self._url, self._tls = url, tls
        self._kept: Connection | None = None

    async def __call__(self, request: Asked) -> Answered:
        answer = await self.raw(request_bytes(request.method, request.target, request.headers, request.body))
        if request.method == "HEAD":
            await self.hang_up()
        return answer

    async def raw(self, data: bytes, patience_s: float = HANG_S) -> Answered:
        """Code 0: the server closed the connection without an answer, or waits for more."""
        if self._kept is None:
            self._kept = await Connection.open(self._url, self._tls)
        connection, self._kept = self._kept, None
        try:
            async with asyncio.timeout(patience_s):
                heard = await connection.exchange(data)
        except (OSError, EOFError, TimeoutError):
            await connection.close()
            return Answered()
        if heard.headers.get("connection") == "close" or heard.code == 101:
            await connection.close()
        else:
            self._kept = connection
        return Answered(heard.code, heard.headers, heard.body, True)

    async def hang_up(self) -> None:
        if self._kept is not None:
            await self._kept.close()
            self._kept = None


def _is_sendable(request: Asked) -> bool:
    """Not what HTTP cannot express (see `RAW`), nor a watch that would last half an hour, nor a body whose encryption
    would stop all askers: they share an event loop, and the time of the others would be measured with it."""
    head = request.target + "".join(name + value for name, value in request.headers)
    endless = "watch" in head and "timeoutSeconds=" not in head
    if request.method == "HEAD" or endless or len(request.body) > LARGEST_BYTES:
        return False
    return all(letter.isprintable() for letter in head)


async def _fuzz(server: ApiProcess, seed: int, cases: int) -> Outcome:
    tls = admin_tls(server.kubeconfig)
    counts: Counter[str] = Counter()
    failures: list[Failure] = []
    first = Asker(server.url, tls)
    offers = await offers_of(first)
    for request in furniture():
        await first(request)
    await first.hang_up()
    await asyncio.gather(
        *(_asker(server.url, tls, seed, range(at, cases, ASKERS), offers, counts, failures) for at in range(ASKERS))
    )
    for number, data in enumerate(RAW):
        ask = Asker(server.url, tls)
        answer = await ask.raw(data, RAW_S)
        await ask.hang_up()
        counts["no HTTP"] += 1
        if answer.code >= 500 or b"Traceback" in answer.body:
            failures.append(Failure(number, repr(data[:200]), f"{answer.code} {answer.body[:300]!r}"))
    ready = await Asker(server.url, tls)(Asked("GET", "/readyz", (), b"", "admin"))
    if ready.body != b"ok":
        failures.append(Failure(-1, "/readyz", f"not ready at the end: {ready.body!r}"))
    return Outcome(counts, failures)


async def _asker(
    url: str,
    tls: ssl.SSLContext,
    seed: int,
    numbers: range,
    offers: Sequence[Offer],
    counts: Counter[str],
    failures: list[Failure],
) -> None:
    ask = Asker(url, tls)
    for number in numbers:
        request = asked(seed, number, offers)
        if not _is_sendable(request):
            continue
        began = time.monotonic()
        answer = await ask(request)
        counts["requests"] += 1
        counts[str(answer.code)] += 1
        why = "" if _refused_as_no_http(answer) else wrong_with(request, answer, time.monotonic() - began)
        if "watch=" in request.target and answer.code == 200 and why.endswith(" s for 200"):
            why = ""  # it was asked to last a second, and others take their time, too
        if why:
            failures.append(Failure(number, str(request), why))
    await ask.hang_up()


def _refused_as_no_http(answer: Answered) -> bool:
    return answer.code == 400 and answer.body == b"Invalid HTTP request received."


def fuzz_over_tls(seed: int, cases: int, directory: Path, profile: str = "1.36") -> Outcome:
    server = ApiProcess(directory / "state", directory / "api.log", "--profile", profile).ready()
    try:
        outcome = asyncio.run(_fuzz(server, seed, cases))
        if server.stop() != 0:
            outcome.failures.append(Failure(-1, "", f"ended with {server.process.returncode} at SIGTERM"))
    finally:
        server.kill()
    log = server.log.read_text()
    if "Traceback" in log:
        outcome.failures.append(
            Failure(-1, "", f"a traceback in the log:\n{log[log.index('Traceback') - 500 :][:4000]}")
        )
    return outcome
