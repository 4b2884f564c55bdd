"""A whole API server under kill −9: sixteen clients that write, watchers that reconnect, and a record of every answer.

Each life of the server is started on what the killed one left behind. Writers own their objects, so at any time the
record has the states that each can be in: one, or two while a request is under way. After every kill the next server is
listed and watched, and:

- every object is in a state that the record allows, and complete (its sum fits its payload);
- an object that all write has the newest acknowledged number of each writer, or one sent since;
- no resourceVersion ever stands for two different states, over all lives;
- a watcher, which goes on from the last version it saw in the life before, is sent rising versions only and events that
  follow from what it knows; it ends with what the list shows, and saw every acknowledged change exactly once, unless it
  had to list again.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from plimsoll.kube.http import HttpTransport
from plimsoll.kube.request import MERGE, ApiResponse, Request, UnreachableError
from tests.e2e.api_process import ApiProcess

WRITERS, OWN = 16, 4  # clients, and the objects of each kind that each of them has
PATHS = {"configmaps": "/api/v1/namespaces/default/configmaps", "pods": "/api/v1/namespaces/default/pods"}
SHARED = "shared"
CATCH_UP_S = 20.0

Document = dict[str, Any]
Key = tuple[str, str]  # plural, name
State = int | None  # the number that was written last; None: there is no such object


def written(plural: str, name: str, number: int, size: int) -> Document:
    payload = f"{number} ".ljust(size, "x")
    mark = {"number": str(number), "payload": payload, "sum": str(zlib.crc32(payload.encode()))}
    if plural == "configmaps":
        return {"metadata": {"name": name}, "data": mark}
    return {"metadata": {"name": name, "annotations": mark}, "spec": {"containers": [{"name": "c", "image": "i"}]}}


def change_of(document: Document) -> Document:
    """The same as a merge patch."""
    if "data" in document:
        return {"data": document["data"]}
    return {"metadata": {"annotations": document["metadata"]["annotations"]}}


class Book:
    def __init__(self) -> None:
        self.faults: list[str] = []
        self.counts: Counter[str] = Counter()
        self.allowed: dict[Key, set[State]] = {}
        self.shared: dict[str, tuple[int, int]] = {}  # writer → newest acknowledged, newest sent
        self.versions: dict[int, tuple[str, str, State]] = {}
        self.acknowledged: list[tuple[str, int]] = []  # plural, version; since the watchers were last compared

    def fault(self, text: str) -> None:
        self.faults.append(text)

    def used(self, plural: str, document: Document) -> None:
        """What any client is shown: it must be whole, and the only thing that ever has its version."""
        metadata = document["metadata"]
        name, version = metadata["name"], int(metadata["resourceVersion"])
        number: State = None
        if name.startswith("w"):
            mark = document.get("data") if plural == "configmaps" else metadata.get("annotations")
            if not mark or str(zlib.crc32(mark["payload"].encode())) != mark["sum"]:
                self.fault(f"{plural} {name} at {version} is half-written: {mark}")
                return
            number = int(mark["number"])
        known = self.versions.setdefault(version, (plural, name, number))
        if known != (plural, name, number):
            self.fault(f"version {version} stands for {known} and {(plural, name, number)}")

    def compare(self, plural: str, listed: dict[str, Document]) -> None:
        for (kind, name), states in self.allowed.items():
            if kind != plural:
                continue
            found: State = None
            if name in listed:
                self.used(plural, listed[name])
                found = self.versions[int(listed[name]["metadata"]["resourceVersion"])][2]
            if found not in states:
                self.fault(f"{plural} {name} is at {found}, which is none of {states}")
            states &= {found}
            if not states:
                states.add(found)
        if plural == "configmaps" and self.shared:
            data = listed.get(SHARED, {}).get("data") or {}
            for writer, (least, most) in self.shared.items():
                if not least <= int(data.get(writer, 0)) <= most:
                    self.fault(f"{writer} of the shared object: {data.get(writer)}, acknowledged {least}, sent {most}")


class Writer:
    def __init__(self, book: Book, number: int, seed: int) -> None:
        self._book, self._name = book, f"w{number}"
        self._random = random.Random(f"{seed} {number}")
        self._number = 0

    async def run(self, transport: HttpTransport) -> None:
        """Until the server is gone."""
        try:
            while True:
                if self._random.randrange(8) == 0:
                    await self._write_shared(transport)
                else:
                    await self._write_own(transport)
        except (UnreachableError, EOFError):
            return

    async def _write_shared(self, transport: HttpTransport) -> None:
        book = self._book
        self._number += 1
        least, _ = book.shared.get(self._name, (0, 0))
        book.shared[self._name] = (least, self._number)
        body = json.dumps({"data": {self._name: str(self._number)}}).encode()
        answer = await transport.send(Request("PATCH", f"{PATHS['configmaps']}/{SHARED}", body, MERGE))
        if answer.status != 200:
            book.fault(f"PATCH of the shared object: {answer.status} {answer.body[:300]!r}")
            return
        book.shared[self._name] = (self._number, self._number)
        self._acknowledge("configmaps", answer)

    async def _write_own(self, transport: HttpTransport) -> None:
        book, rng = self._book, self._random
        plural = rng.choice(("configmaps", "configmaps", "pods"))
        name = f"{self._name}-{rng.randrange(OWN)}"
        states = book.allowed.setdefault((plural, name), {None})
        (before,) = states
        self._number += 1
        document = written(plural, name, self._number, rng.choice((20, 500, 2200, 9000)))
        path = f"{PATHS[plural]}/{name}"
        after: State = self._number
        if before is None:
            request = Request("POST", PATHS[plural], json.dumps(document).encode(), "application/json")
        elif rng.randrange(5) == 0:
            request, after = Request("DELETE", path), None
        else:
            request = Request("PATCH", path, json.dumps(change_of(document)).encode(), MERGE)
        states.add(after)
        answer = await transport.send(request)
        if answer.status not in (200, 201):
            book.fault(f"{request.method} {path} of its only writer: {answer.status} {answer.body[:300]!r}")
            return
        states.clear()
        states.add(after)
        if after is None:
            book.counts["acknowledged"] += 1
        else:
            self._acknowledge(plural, answer)

    def _acknowledge(self, plural: str, answer: ApiResponse) -> None:
        document = msgspec.json.decode(answer.body)
        self._book.counts["acknowledged"] += 1
        self._book.used(plural, document)
        self._book.acknowledged.append((plural, int(document["metadata"]["resourceVersion"])))


class Watcher:
    """A watcher whose knowledge outlives the server."""

    def __init__(self, book: Book, plural: str) -> None:
        self._book, self.plural = book, plural
        self.known: dict[str, int] = {}  # name → version
        self.last = 0
        self.listed_at = 0
        self.seen: Counter[int] = Counter()

    async def run(self, transport: HttpTransport) -> None:
        """Until the server is gone, or the caller cancels."""
        try:
            while True:
                if not self.last:
                    await self._list(transport)
                path = f"{PATHS[self.plural]}?watch=true&allowWatchBookmarks=true&resourceVersion={self.last}"
                async with aclosing(transport.lines(Request("GET", path))) as lines:
                    async for line in lines:
                        if isinstance(line, bytes):
                            self._see(line)
                        elif line.status != 200:
                            self._book.fault(f"watch of {self.plural}: {line}")
                            return
        except (UnreachableError, EOFError):
            return

    async def _list(self, transport: HttpTransport) -> None:
        version, items = await listed(transport, self.plural)
        self._book.counts["listed again"] += 1
        self.last = self.listed_at = version
        self.known = {name: int(each["metadata"]["resourceVersion"]) for name, each in items.items()}

    def _see(self, line: bytes) -> None:
        try:
            event = msgspec.json.decode(line)
        except msgspec.DecodeError:  # the connection ended within it: it was not seen
            return
        kind, document = event["type"], event["object"]
        if kind == "ERROR":
            if document["code"] != 410:
                self._book.fault(f"the watch of {self.plural} from {self.last}: {document}")
            self.last = 0
            return
        name, version = document["metadata"].get("name", ""), int(document["metadata"]["resourceVersion"])
        if version <= self.last and kind != "BOOKMARK":
            self._book.fault(f"the watcher of {self.plural} at {self.last} was sent {kind} {name} {version}")
        self.last = max(self.last, version)
        if kind == "BOOKMARK":
            return
        if (kind == "ADDED") == (name in self.known):
            self._book.fault(f"{kind} {self.plural} {name} {version} does not follow from what the watcher knows")
        self._book.counts["seen"] += 1
        self.seen[version] += 1
        self._book.used(self.plural, document)
        self.known[name] = version
        if kind == "DELETED":
            del self.known[name]

    async def catch_up(self, transport: HttpTransport) -> None:
        """Watch on until it knows what a list shows; the scheduler may still be writing."""
        running = asyncio.create_task(self.run(transport))
        deadline = time.monotonic() + CATCH_UP_S
        wanted = None
        while self.known != wanted and time.monotonic() < deadline and not running.done():
            await asyncio.sleep(0.02)
            _, items = await listed(transport, self.plural)
            wanted = {name: int(each["metadata"]["resourceVersion"]) for name, each in items.items()}
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        if self.known != wanted:
            differ = sorted(self.known.items() ^ (wanted or {}).items())
            self._book.fault(f"the watcher of {self.plural} at {self.last} does not end with the list: {differ[:10]}")
        for plural, version in self._book.acknowledged:
            if plural == self.plural and version > self.listed_at and self.seen[version] != 1:
                self._book.fault(f"the change {version} of {plural} was seen {self.seen[version]} times")


async def listed(transport: HttpTransport, plural: str) -> tuple[int, dict[str, Document]]:
    document = msgspec.json.decode((await transport.send(Request("GET", PATHS[plural]))).body)
    items = {each["metadata"]["name"]: each for each in document["items"]}
    return int(document["metadata"]["resourceVersion"]), items


@contextmanager
def _closing_now(server: ApiProcess) -> Iterator[None]:
    try:
        yield
    finally:
        server.kill()


async def _compare(book: Book, watchers: list[Watcher], transport: HttpTransport) -> None:
    """Compare the new server with everything that the earlier ones sent. No writer writes meanwhile."""
    for watcher in watchers:
        _, items = await listed(transport, watcher.plural)
        book.compare(watcher.plural, items)
        await watcher.catch_up(transport)
        watcher.seen.clear()
    book.acknowledged.clear()


async def _live(
    server: ApiProcess, book: Book, watchers: list[Watcher], writers: list[Writer], rng: random.Random
) -> None:
    """Compare, then write until the kill."""
    transports = [server.transport() for _ in range(WRITERS + 2)]
    try:
        await _compare(book, watchers, transports[-1])
        if book.faults:
            return
        if not book.shared:
            body = json.dumps({"metadata": {"name": SHARED}}).encode()
            await transports[-1].send(Request("POST", PATHS["configmaps"], body, "application/json"))
        tasks = [asyncio.create_task(each.run(transports[-2])) for each in watchers]
        tasks += [asyncio.create_task(each.run(one)) for each, one in zip(writers, transports, strict=False)]
        enough = book.counts["acknowledged"] + rng.choice((1, 30, 200, 500))
        while book.counts["acknowledged"] < enough and not book.faults:  # noqa: ASYNC110  sixteen writers count
            await asyncio.sleep(0.002)
        await asyncio.sleep(rng.uniform(0, 0.02))  # at any moment
        server.kill()
        await asyncio.gather(*tasks)
    finally:
        for each in transports:
            await each.close()


async def _last(server: ApiProcess, book: Book, watchers: list[Watcher]) -> None:
    transport = server.transport()
    await _compare(book, watchers, transport)
    await transport.close()


def run(directory: Path, seed: int, kills: int) -> tuple[dict[str, int], list[str]]:
    """Start and kill `kills` servers; returns counts and every fault."""
    rng = random.Random(seed)
    book = Book()
    watchers = [Watcher(book, plural) for plural in PATHS]
    writers = [Writer(book, number, seed) for number in range(WRITERS)]
    state, log = directory / "state", directory / "api.log"
    for life in range(kills):
        server = ApiProcess(state, log)
        with _closing_now(server):
            if life % 5 == 3:  # while it starts
                time.sleep(rng.uniform(0, 0.6))
                continue
            asyncio.run(_live(server.ready(), book, watchers, writers, rng))
        if book.faults:
            break
    else:
        server = ApiProcess(state, log)
        with _closing_now(server):
            asyncio.run(_last(server.ready(), book, watchers))
            if server.stop() != 0:
                book.fault(f"ended with {server.process.returncode} at SIGTERM")
    if "Traceback" in log.read_text():
        book.fault(f"a traceback in the log:\n{log.read_text()[-3000:]}")
    faults = [f"seed {seed}: {fault}" for fault in book.faults]
    return {"kills": kills, **book.counts, "versions": len(book.versions), "failed": len(faults)}, faults
