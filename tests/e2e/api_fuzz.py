"""Thousands of odd requests at a whole control plane, and what must not happen.

The server runs in this process with its loops and scheduler; requests are ASGI calls, some of them from eight clients at
a time (`fuzz`), and a slice goes over TLS to a server in a process of its own (`fuzz_over_tls`). Of every answer:

- it comes within two seconds (but for those that wait for a future version: 504, 05 B6);
- an error is a Kubernetes Status with the HTTP code in it and the reason that belongs to the code, or the plain text of
  an unknown path; a 500 is one of those that Kubernetes answers on purpose (05 B6), never a fault of ours;
- what is not an error is readable.

Of the server: no traceback in its log, no memory that grows with the number of requests, ready at the end, and every
list can be read in every form. `asked(seed, number, offers)` makes a failed request again.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import random
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import yaml

from plimsoll.api.auth.authenticator import server_names
from plimsoll.api.auth.ca import Authority
from plimsoll.api.machinery.users import ANONYMOUS, AUTHENTICATED, MASTERS, NODE_PREFIX, NODES, VIEWERS, User
from plimsoll.api.server.app import App
from plimsoll.api.server.in_process import USER
from plimsoll.cli.server.assembly import control_plane
from plimsoll.rules.profile import profile_named
from tests.e2e.request_grammar import AGGREGATED, Asked, Offer, asked, furniture, served, sweep

ASKERS = 8
SWEEP_EVERY = 1_000
SLOW_S = 20.0  # a request that hangs, not one on a busy machine
FUTURE_S = 15.0  # a version in the future is waited for 3 s
MOST_GROWTH_BYTES = 64 * 1024 * 1024
WATCH_S = 0.02  # then a watcher has seen enough
HANG_S = 30.0
SCHEDULER_WATCHES = 11  # nodes, pods, disruption budgets, namespaces, four kinds of owners of pods, three of storage

USERS = {
    "admin": User("admin", frozenset({MASTERS, AUTHENTICATED})),
    "viewer": User("viewer", frozenset({VIEWERS, AUTHENTICATED})),
    "node": User(f"{NODE_PREFIX}n1", frozenset({NODES, AUTHENTICATED})),
    "anonymous": ANONYMOUS,
}
_REASONS = {
    400: {"BadRequest"},
    401: {"Unauthorized"},
    403: {"Forbidden"},
    404: {"NotFound"},
    405: {"MethodNotAllowed"},
    406: {"NotAcceptable"},
    409: {"AlreadyExists", "Conflict"},
    410: {"Expired"},
    413: {"RequestEntityTooLarge"},
    415: {"UnsupportedMediaType"},
    422: {"Invalid"},
    429: {"TooManyRequests"},
    502: {""},  # a node that cannot be reached
    503: {"ServiceUnavailable"},
    504: {"Timeout"},
}
# The 500s that real servers answer and the spec lists: none has a reason (05 A4, B4, B6).
_MEANT = re.compile(
    r"resourceVersion should not be set on objects to be created"
    r"|(invalid resource version: .*)?strconv\.ParseUint: parsing .*: invalid syntax"
    r"|target\.name: Required value"
    r"|failed to create typed patch object \(.*"
    r"|unknown patch type: .*"
    r"|The order in patch list:\n.*"
    r"|unable to find api field in struct .*"
    r"|map: map\[.*\] does not contain declared merge key: .*"
    r"|list element types are not identical: .*",
    re.DOTALL,
)


class Failure(msgspec.Struct, frozen=True):
    number: int  # -1: not one request's
    request: str
    why: str


class Outcome(msgspec.Struct):
    counts: Counter[str]
    failures: list[Failure]


class Answered(msgspec.Struct):
    code: int = 0
    headers: dict[str, str] = {}
    body: bytes = b""
    complete: bool = False


# --- checks ---


def wrong_with(request: Asked, answer: Answered, seconds: float) -> str:
    """What is wrong with an answer; empty if nothing."""
    if seconds > (FUTURE_S if answer.code == 504 else SLOW_S):
        return f"{seconds:.1f} s for {answer.code}"
    if not answer.complete:
        return f"an answer that does not end: {answer.code} {answer.body[:200]!r}"
    if b"Traceback" in answer.body and "Traceback" not in str(request):
        return "a traceback in the answer"
    content_type = answer.headers.get("content-type", "")
    if request.method == "HEAD" or answer.code in (204, 304):
        return "" if answer.code else "no answer"
    if answer.code >= 400:
        return _wrong_error(answer, content_type)
    return _unreadable(answer, content_type)


def _wrong_error(answer: Answered, content_type: str) -> str:
    if answer.code == 404 and content_type.startswith("text/plain"):
        return "" if answer.body == b"404 page not found\n" else f"an odd 404: {answer.body[:100]!r}"
    try:
        status = msgspec.json.decode(answer.body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return f"{answer.code} with no Status but {content_type} {answer.body[:200]!r}: {error}"
    if not isinstance(status, dict) or (status.get("kind"), status.get("apiVersion")) != ("Status", "v1"):
        return f"{answer.code} is no Status: {answer.body[:200]!r}"
    if (status.get("status"), status.get("code")) != ("Failure", answer.code) or not status.get("message"):
        return f"HTTP {answer.code}, but {answer.body[:300]!r}"
    reason = status.get("reason", "")
    if answer.code == 500:
        return "" if not reason and _MEANT.fullmatch(status["message"]) else f"500: {status['message'][:500]}"
    if answer.code == 429 and not reason:
        return "a 429 without a reason"
    return "" if reason in _REASONS.get(answer.code, ()) else f"{answer.code} with reason {reason!r}"


def _unreadable(answer: Answered, content_type: str) -> str:
    try:
        if content_type.startswith("application/json"):
            for line in answer.body.splitlines():
                msgspec.json.decode(line)
        elif content_type.startswith("application/yaml"):
            yaml.load(answer.body, Loader=yaml.CSafeLoader)
        else:
            answer.body.decode()
    except (msgspec.DecodeError, UnicodeDecodeError, yaml.YAMLError) as error:
        return f"{answer.code} that cannot be read ({error}): {answer.body[:300]!r}"
    return ""


# --- requests in this process ---


class Asker:
    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, request: Asked) -> Answered:
        answer, parts = Answered(), []
        begun = asyncio.Event()
        given = False

        async def receive() -> dict[str, Any]:
            nonlocal given
            if not given:
                given = True
                return {"type": "http.request", "body": request.body, "more_body": False}
            await begun.wait()
            await asyncio.sleep(WATCH_S)  # a client that leaves, whatever the server does by then
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                begun.set()
                answer.code = message["status"]
                answer.headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in message["headers"]}
            else:
                parts.append(message["body"])
                answer.complete = not message.get("more_body")

        async with asyncio.timeout(HANG_S):
            await asyncio.create_task(self._app(scope(request), receive, send))  # as a server does it
        answer.body = b"".join(parts)
        return answer


def scope(request: Asked) -> dict[str, Any]:
    path, _, query = request.target.partition("?")
    headers = [(name.encode(), value.encode("latin-1", "replace")) for name, value in request.headers]
    return {
        "type": "http",
        "http_version": "1.1",
        "method": request.method,
        "scheme": "https",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": headers,
        "client": ("127.0.0.1", 1),
        USER: USERS[request.user],
    }


@asynccontextmanager
async def running_app(state: Path, profile: str) -> AsyncIterator[App]:
    authority = Authority(state)
    authority.prepare(server_names("127.0.0.1"))
    app = control_plane(state, authority, profile_named(profile))
    async with app.running():
        yield app


@contextmanager
def tracebacks() -> Iterator[list[str]]:
    """What the server logs about faults of its own: errors, and anything with an exception."""
    found: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.exc_info or record.levelno >= logging.ERROR:
                found.append(logging.Formatter().format(record))

    handler = Handler()
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield found
    finally:
        root.removeHandler(handler)


async def offers_of(ask: Callable[[Asked], Any]) -> list[Offer]:
    documents = []
    for path in ("/api", "/apis"):
        answer = await ask(Asked("GET", path, (("accept", AGGREGATED),), b"", "admin"))
        documents.append(msgspec.json.decode(answer.body))
    return served(documents)


class Run:
    """One run: eight clients take the next number each."""

    def __init__(self, app: App, ask: Asker, offers: Sequence[Offer], seed: int, log: list[str], most: int) -> None:
        self.app, self.ask, self.offers, self.seed, self.log, self.most = app, ask, offers, seed, log, most
        self.counts: Counter[str] = Counter()
        self.failures: list[Failure] = []
        self.waiting: Iterator[tuple[int, Asked]] = iter(())

    async def one(self, number: int, request: Asked) -> None:
        began = time.monotonic()
        try:
            answer = await self.ask(request)
            why = wrong_with(request, answer, time.monotonic() - began)
        except Exception as error:  # noqa: BLE001  the application must not let any out: that is what is tested
            answer, why = Answered(), f"let an exception out: {error!r}"
        self.counts["requests"] += 1
        self.counts[str(answer.code)] += 1
        if self.log:
            why = why or "a traceback in the log"
            why += "\n" + "\n".join(self.log[:3])
            self.log.clear()
        if why:
            self.failures.append(Failure(number, str(request), why))

    async def asker(self) -> None:
        for number, request in self.waiting:
            await self.one(number, request)
            if len(self.failures) >= self.most:
                return

    async def some(self, first: int, last: int) -> None:
        # Made before any of them is sent: making one may take longer than answering it.
        self.waiting = iter([(number, asked(self.seed, number, self.offers)) for number in range(first, last)])
        await asyncio.gather(*(self.asker() for _ in range(ASKERS)))

    async def tidy(self) -> None:
        """Delete everything; the answers are checked like any other. Finalizers may keep some objects."""
        self.counts["most objects"] = max(self.counts["most objects"], self.app.cluster.store.count())
        for request in sweep(self.offers):
            await self.one(-1, request)
        await self.prepare()

    async def prepare(self) -> None:
        """Namespaces and nodes, without which most requests would be refused for one and the same reason."""
        for request in furniture():
            await self.one(-1, request)


async def _fuzz(seed: int, cases: int, state: Path, profile: str, stop_after: int) -> Outcome:
    with tracebacks() as log:
        async with running_app(state, profile) as app:
            ask = Asker(app)
            offers = await offers_of(ask)
            run = Run(app, ask, offers, seed, log, stop_after)
            settled_bytes = 0
            await run.prepare()
            for first in range(0, cases, SWEEP_EVERY):
                await run.some(first, min(first + SWEEP_EVERY, cases))
                if len(run.failures) >= stop_after:
                    break
                await run.tidy()
                if first + SWEEP_EVERY >= min(cases // 4, 10_000) and not settled_bytes:
                    settled_bytes = resident_bytes()
            run.failures += await _at_the_end(run, settled_bytes)
            run.counts["objects"] = app.cluster.store.count()
    return Outcome(run.counts, run.failures)


async def _at_the_end(run: Run, settled_bytes: int) -> list[Failure]:
    found = []
    for accept in ("application/json", "application/json;as=Table;v=v1;g=meta.k8s.io"):
        for offer in dict.fromkeys(run.offers):
            if offer.verb == "list":
                await run.one(-1, Asked("GET", f"{offer.base}/{offer.plural}", (("accept", accept),), b"", "admin"))
    ready = await run.ask(Asked("GET", "/readyz", (), b"", "anonymous"))
    if ready.body != b"ok":
        found.append(Failure(-1, "/readyz", f"not ready at the end: {ready.body!r}"))
    if run.app.meter.faults:
        found.append(Failure(-1, "", f"{run.app.meter.faults} faults were counted"))
    meter, deadline = run.app.meter, time.monotonic() + SLOW_S
    while (meter.in_flight or meter.all_watchers > SCHEDULER_WATCHES) and time.monotonic() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(0.01)  # the loops' own requests come and go
    if meter.in_flight or meter.all_watchers > SCHEDULER_WATCHES:
        found.append(Failure(-1, "", f"{meter.in_flight} requests, {meter.watchers} watches left"))
    growth = resident_bytes() - settled_bytes if settled_bytes else 0
    run.counts["growth KiB"] = growth // 1024
    if growth > MOST_GROWTH_BYTES:
        found.append(Failure(-1, "", f"grew by {growth >> 20} MiB after it had settled"))
    return found


def resident_bytes() -> int:
    gc.collect()
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0]) * 1024


def scratch() -> str | None:
    """Where a store does not wait for a disk that others keep busy, so that slow means slow."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def fuzz(seed: int, cases: int, state: Path, profile: str = "documents", stop_after: int = 10) -> Outcome:
    """`cases` requests, and a sweep now and then."""
    state.mkdir(mode=0o700, exist_ok=True)
    random.seed(seed)
    return asyncio.run(_fuzz(seed, cases, state, profile, stop_after))


def report(seed: int, failures: Sequence[Failure]) -> str:
    return "\n\n".join(f"seed {seed}, number {each.number}: {each.why}\n  {each.request}" for each in failures[:20])
