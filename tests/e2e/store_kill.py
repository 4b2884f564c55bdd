"""A server's store under kill −9: sixteen writers, a watcher, and a parent that records everything.

The child process (this file as a script) opens the store, writes with 16 tasks and reports to the parent through a pipe what
was acknowledged and what its watcher saw; a line is written right after the await returned. The parent kills it in the
middle of that, opens the store (or a copy of it, so that the next child recovers from a real crash) and compares:

- every acknowledged change is in the history or covered by a later one of the same key, with the very bytes;
- pairs of objects that are always written together are equal, every body is whole;
- no version was ever used for two different changes, over all lives of the store;
- the watcher, which in each life goes on from the last version it saw in the one before, has seen exactly the changes
  of the store, each once and in order, or had to list again. What it knows is what the store holds.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import zlib
from pathlib import Path

from plimsoll.store.errors import ExpiredError, StoreError
from plimsoll.store.log import DecideMany
from plimsoll.store.records import Decision, Delete, History, Record
from plimsoll.store.store import Decide, Store

WRITERS = 16
AWAY = -1  # in place of the version a watcher goes on from
LONG, SHORT = History(events=200_000, bytes=1 << 30), History(events=200)


def whole(version: int, number: int, size: int) -> bytes:
    payload = f"{number} ".ljust(size, "x")
    text = f"{version} {payload}"
    return json.dumps({"version": version, "payload": payload, "sum": zlib.crc32(text.encode())}).encode()


def fault_in(version: int, body: bytes) -> str | None:
    """What is wrong with a body that says which version it has."""
    try:
        document = json.loads(body)
    except ValueError as error:
        return f"half-written: {error}"
    if document["version"] != version:
        return f"has version {document['version']}, stands under {version}"
    if zlib.crc32(f"{version} {document['payload']}".encode()) != document["sum"]:
        return "has a wrong sum"
    return None


# In the child


class Child:
    def __init__(self, store: Store, seed: int) -> None:
        self.store = store
        self.random = random.Random(seed)
        self.number = 0

    async def write(self, writer: int) -> None:
        while True:
            self.number += 1
            number, size = self.number, self.random.choice([50, 500, 2200, 9000])
            kind = self.random.randrange(10)
            if kind == 0:
                name = f"p{self.random.randrange(8)}"
                records = await self.store.change_many(
                    [f"/pairs/left/{name}", f"/pairs/right/{name}"], both(number, size)
                )
            else:
                # Keys of one writer and keys that all write.
                key = f"/pods/w{writer}/p{self.random.randrange(20)}" if kind < 7 else f"/pods/all/p{kind}"
                records = [await self.store.change(key, removing if kind == 1 else putting(number, size))]
            report(
                "acknowledged", kind == 1, [[r.key, r.version, zlib.crc32(r.body)] for r in records if r is not None]
            )

    async def watch(self, after: int) -> None:
        try:
            watch = self.store.watch("", after)
        except ExpiredError:
            version, records = self.store.list("")
            report("listed", version, [[r.key, r.version, zlib.crc32(r.body)] for r in records])
            watch = self.store.watch("", version)
        async for change in watch:
            report("saw", change.version, change.kind, change.key, zlib.crc32(change.body))


def report(*words: object) -> None:
    os.write(1, (json.dumps(words) + "\n").encode())  # straight into the pipe: what is in there outlives us


def putting(number: int, size: int) -> Decide:
    return lambda current, version: whole(version, number, size)


def both(number: int, size: int) -> DecideMany:
    return lambda current, versions: [whole(version, number, size) for version in versions]


def removing(current: Record | None, version: int) -> Decision:
    return None if current is None else Delete(whole(version, 0, 10))


async def live(directory: Path, seed: int, after: int, history: History) -> None:
    report("opening")
    store = await Store.open(directory, history=history)
    child = Child(store, seed)
    async with asyncio.TaskGroup() as tasks:
        if after != AWAY:
            tasks.create_task(child.watch(after))
        for writer in range(WRITERS):
            tasks.create_task(child.write(writer))


# In the parent


class Book:
    """Everything that any client was ever sent, over all lives of the store."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.sums: dict[int, tuple[str, int]] = {}  # version → key and sum of the body, from any client
        self.acknowledged: list[tuple[str, int]] = []  # in this life: key, version
        self.removed: dict[str, int] = {}  # key → the newest version that is known to have deleted it
        self.known: dict[str, tuple[int, int]] = {}  # the watcher's picture: key → version, sum
        self.watched = 1  # the last version the watcher saw
        self.highest = 1
        self.counts = dict.fromkeys(("acknowledged", "seen", "listed_again"), 0)

    def used(self, key: str, version: int, total: int) -> None:
        if self.sums.setdefault(version, (key, total)) != (key, total):
            self.faults.append(f"version {version} stands for two changes: {self.sums[version]} and {(key, total)}")
        self.highest = max(self.highest, version)

    def hear(self, line: bytes) -> None:
        verb, *words = json.loads(line)
        if verb == "acknowledged":
            removed, records = words
            for key, version, total in records:
                self.counts["acknowledged"] += 1
                self.acknowledged.append((key, version))
                self.used(key, version, total)
                if removed:
                    self.removed[key] = max(version, self.removed.get(key, 0))
        elif verb == "saw":
            self.see(*words)
        elif verb == "listed":
            self.counts["listed_again"] += 1
            self.watched, objects = words
            self.known = {key: (version, total) for key, version, total in objects}

    def see(self, version: int, kind: str, key: str, total: int) -> None:
        self.counts["seen"] += 1
        self.used(key, version, total)
        if version <= self.watched:
            self.faults.append(f"the watcher at {self.watched} was sent {version} again")
        if (kind == "ADDED") == (key in self.known):
            self.faults.append(f"{kind} {key} at {version} does not follow from what the watcher knows")
        self.watched = version
        self.known[key] = (version, total)
        if kind == "DELETED":
            self.removed[key] = version
            del self.known[key]

    async def compare(self, directory: Path, history: History, *, watching: bool) -> None:
        """Compare the store that the next server opens with everything that the one before reported."""
        store = await Store.open(directory, history=history)
        try:
            if store.version < self.highest:
                self.faults.append(f"the store is at {store.version}, {self.highest} was acknowledged or seen")
            records = {record.key: record for record in store.list("")[1]}
            for record in records.values():
                self.check_body(record, records)
            if watching:
                await self.catch_up(store)
                now = {key: (record.version, zlib.crc32(record.body)) for key, record in records.items()}
                if self.known != now:
                    self.faults.append(f"the watcher's picture differs in {sorted(self.known.items() ^ now.items())}")
            await self.check_acknowledged(store, records)
        finally:
            await store.close()

    def check_body(self, record: Record, records: dict[str, Record]) -> None:
        fault = fault_in(record.version, record.body)
        if fault is not None:
            self.faults.append(f"{record.key} {fault}")
            return
        self.used(record.key, record.version, zlib.crc32(record.body))
        if record.key.startswith("/pairs/left/"):
            other = records.get(record.key.replace("/left/", "/right/"))
            if other is None or json.loads(other.body)["payload"] != json.loads(record.body)["payload"]:
                self.faults.append(f"{record.key} was always written together with its right side, which differs")

    async def catch_up(self, store: Store) -> None:
        """What the watcher missed while there was no server."""
        try:
            watch = store.watch("", self.watched)
        except ExpiredError as error:
            if self.watched >= error.oldest:
                self.faults.append(f"the watcher saw {self.watched}, which the store does not know")
            self.relist(*store.list(""))
            return
        while watch.version < store.version:
            for change in await watch.changes():
                self.see(change.version, change.kind, change.key, zlib.crc32(change.body))
        self.watched = store.version

    def relist(self, version: int, records: list[Record]) -> None:
        self.counts["listed_again"] += 1
        self.watched = version
        self.known = {record.key: (record.version, zlib.crc32(record.body)) for record in records}

    async def check_acknowledged(self, store: Store, records: dict[str, Record]) -> None:
        watch = store.watch("", store.oldest)
        history: dict[int, tuple[str, int]] = {}
        while watch.version < store.version:
            for change in await watch.changes():
                history[change.version] = (change.key, zlib.crc32(change.body))
                if change.kind == "DELETED":
                    self.removed[change.key] = max(change.version, self.removed.get(change.key, 0))
        for key, version in self.acknowledged:
            record = records.get(key)
            if version > store.oldest and history.get(version) != self.sums[version]:
                self.faults.append(
                    f"the acknowledged change {version} of {key} is lost: there is {history.get(version)}"
                )
            elif record is None and self.removed.get(key, 0) < version:
                self.faults.append(f"{key}, acknowledged at {version}, is gone")
            elif record is not None and record.version < version and self.removed.get(key, 0) < version:
                self.faults.append(f"{key}, acknowledged at {version}, is back at {record.version}")
        self.acknowledged.clear()


def run(root: Path, seed: int, kills: int) -> tuple[dict[str, int], list[str]]:
    """Start and kill `kills` servers; returns counts and every fault, with what reproduces it."""
    chance = random.Random(seed)
    book = Book()
    directory = root / "store"
    for life in range(kills):
        # A long history lets the watcher catch up with everything, a short one makes it list again now and then.
        history = (LONG, SHORT)[life % 3 == 2]
        lines = 1 if life % 10 == 4 else chance.randrange(5, 3000)  # now and then while it opens
        watching = life % 5 != 1  # the watcher is away for a whole life and comes back with an old version
        command = [
            sys.executable,
            __file__,
            str(directory),
            str(chance.randrange(1 << 30)),
            str(book.watched if watching else AWAY),
            str(history.events),
        ]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            for number, line in enumerate(child.stdout, 1):
                if line.endswith(b"\n"):  # else it died while it spoke
                    book.hear(line)
                if number == lines:
                    # At any moment: a child that has just spoken is not writing to the disk.
                    timer = threading.Timer(chance.uniform(0, 0.01), child.kill)
                    timer.start()
        if child.returncode != -signal.SIGKILL:
            book.faults.append(f"the child of life {life} ended by itself with {child.returncode}")
            break
        target = directory
        if life % 2:  # checked separately, so that the next server recovers by itself
            target = root / "copy"
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(directory, target)
        try:
            asyncio.run(book.compare(target, history, watching=watching))
        except StoreError as error:
            book.faults.append(str(error))
        if book.faults:
            book.faults = [f"seed {seed}, life {life}: {fault}" for fault in book.faults]
            break
    counts = {"kills": kills, **book.counts, "changes": len(book.sums), "faults": len(book.faults)}
    return counts, book.faults


if __name__ == "__main__":
    asyncio.run(
        live(
            Path(sys.argv[1]),
            int(sys.argv[2]),
            int(sys.argv[3]),
            {h.events: h for h in (LONG, SHORT)}[int(sys.argv[4])],
        )
    )
