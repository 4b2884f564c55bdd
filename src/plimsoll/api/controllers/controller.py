"""What all loops share: a set of keys to look at again, fed by the store's changes, and one worker.

Level-triggered: a change only says which key to look at; `look` then reads what is there now and does what is missing.
A key that fails is tried again with growing pauses; the others go on meanwhile. An object that our own code stumbles
over is told with its traceback, the first time, and is no reason to leave the others alone. What is read comes from the
store (committed, in memory), what is written goes through the API like anybody's request, so its rules hold for loops,
too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping

import msgspec

from plimsoll.errors import PlimsollError
from plimsoll.kube.client import Client
from plimsoll.kube.request import ApiError, UnreachableError
from plimsoll.rules.controllers.owner_references import controller_of
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.store.errors import ExpiredError
from plimsoll.store.records import Change, Record
from plimsoll.store.store import Store

# Which keys a stored object concerns: called with its key and its body.
Concerns = Callable[[str, bytes], Iterable[str]]

RETRY_FIRST_S, RETRY_MOST_S = 0.1, 30.0
# What an object that is not as we thought makes our code raise: it lacks a member, has one of another type or with a
# value that cannot be computed with. What says that the process itself is not well (memory, files) is not among them.
FAULTS = (PlimsollError, msgspec.MsgspecError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError)

log = logging.getLogger(__name__)


class Controller:
    """`sources`: prefix in the store → which keys a change there concerns. `every_s`: look at `periodic` that often."""

    def __init__(
        self,
        name: str,
        store: Store,
        sources: Mapping[str, Concerns],
        look: Callable[[str], Awaitable[float | None]],
        *,
        periodic: Callable[[], Iterable[str]] | None = None,
        every_s: float = 10.0,
    ) -> None:
        """`look(key)` may return after how many seconds it wants to be asked again."""
        self.name = name
        self._store, self._sources, self._look = store, sources, look
        self._periodic, self._every_s = periodic, every_s
        self._dirty: dict[str, None] = {}  # in order of arrival
        self._failures: dict[str, int] = {}
        self._later: dict[str, float] = {}  # key → when to look again
        self._wake = asyncio.Event()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for prefix, concerns in self._sources.items():
                group.create_task(self._follow(prefix, concerns))
            if self._periodic is not None:
                group.create_task(self._tick(self._periodic))
            await self._work()

    def mark(self, key: str) -> None:
        self._dirty[key] = None
        self._wake.set()

    async def _follow(self, prefix: str, concerns: Concerns) -> None:
        def noted(changes: list[Change]) -> bool:
            for change in changes:
                self._concerned(change, concerns)
            return True

        while True:
            version, records = self._store.list(prefix)
            for record in records:
                self._mark_concerned(concerns, record.key, record.body)
            watch = self._store.watch(prefix, version)
            try:
                while changes := await watch.changes(noted):
                    noted(changes)
                return  # the store closes
            except ExpiredError:
                log.info("%s: fell behind, looking at everything again", self.name)

    def _concerned(self, change: Change, concerns: Concerns) -> None:
        self._mark_concerned(concerns, change.key, change.body)
        if change.before is not None and change.kind == "MODIFIED":
            self._mark_concerned(concerns, change.key, change.before)

    def _mark_concerned(self, concerns: Concerns, key: str, body: bytes) -> None:
        try:
            for each in concerns(key, body):
                self.mark(each)
        except FAULTS:
            log.exception("%s: whom %s concerns cannot be told", self.name, key)

    async def _tick(self, periodic: Callable[[], Iterable[str]]) -> None:
        while True:
            for key in periodic():
                self.mark(key)
            await asyncio.sleep(self._every_s)

    async def _work(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            now = clock()
            for key in [key for key, due in self._later.items() if due <= now]:
                del self._later[key]
                self._dirty[key] = None
            if not self._dirty:
                await self._pause(now)
                continue
            key = next(iter(self._dirty))
            del self._dirty[key]
            pause = await self._looked(key)
            if pause is not None:
                self._later[key] = clock() + pause

    async def _pause(self, now: float) -> None:
        self._wake.clear()
        due = min(self._later.values(), default=None)
        try:
            async with asyncio.timeout(None if due is None else max(due - now, 0)):
                await self._wake.wait()
        except TimeoutError:
            pass

    async def _looked(self, key: str) -> float | None:
        try:
            again = await self._look(key)
        except (ApiError, UnreachableError, TimeoutError) as error:
            log.warning("%s: %s: %s", self.name, key, error)
        except FAULTS as error:
            is_first = key not in self._failures
            log.error("%s: %s: %r", self.name, key, error, exc_info=is_first)
        else:
            self._failures.pop(key, None)
            return again
        count = self._failures[key] = self._failures.get(key, 0) + 1
        return min(RETRY_FIRST_S * 2.0 ** min(count, 16), RETRY_MOST_S)


class ControllerContext:
    """Objects in the store, read as documents."""

    def __init__(self, store: Store, client: Client) -> None:
        self.store, self.client = store, client

    def document(self, key: str) -> JsonObject | None:
        record = self.store.get(key)
        return None if record is None else read(record)

    def documents(self, prefix: str) -> list[JsonObject]:
        return [read(record) for record in self.store.list(prefix)[1]]


def read(record: Record) -> JsonObject:
    found: JsonObject = msgspec.json.decode(record.body)
    return found


def itself(key: str, _: bytes) -> Iterable[str]:
    """An object concerns its own key."""
    return (key,)


class _Reference(msgspec.Struct):
    uid: str = ""
    kind: str = ""
    name: str = ""
    controller: bool = False


class _OwnedMetadata(msgspec.Struct, rename="camel"):
    owner_references: list[_Reference] | None = None
    namespace: str = ""


class _Owned(msgspec.Struct):
    metadata: _OwnedMetadata


_OWNED = msgspec.json.Decoder(_Owned)
_OWNERS = b'"ownerReferences":'


class Dependents:
    """Which objects each controlling owner of one kind has, kept from the changes that pass by."""

    def __init__(self, shelf: ControllerContext, kind: str, prefix: str) -> None:
        """The owners lie under `prefix` in the store."""
        self._shelf, self._kind, self._prefix = shelf, kind, prefix
        self._keys: dict[str, set[str]] = {}  # owner's uid → keys

    def concerns(self, key: str, body: bytes) -> Iterable[str]:
        """An object concerns its owner."""
        if _OWNERS not in body:
            return
        metadata = _OWNED.decode(body).metadata
        for each in metadata.owner_references or ():
            if each.controller and each.kind == self._kind:
                self._note(each.uid, key)
                yield f"{self._prefix}{metadata.namespace}/{each.name}"

    def _note(self, owner: str, key: str) -> None:
        keys = self._keys.setdefault(owner, set())
        if self._shelf.store.get(key) is not None:
            keys.add(key)
            return
        keys.discard(key)
        if not keys:
            del self._keys[owner]

    def of(self, uid: str) -> list[JsonObject]:
        """Those that are there now and still the owner's."""
        documents = [self._shelf.document(key) for key in sorted(self._keys.get(uid, ()))]
        return [each for each in documents if each is not None and controller_of(each) == uid]
