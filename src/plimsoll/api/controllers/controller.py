"""What all controllers share: a work queue of keys, fed by the store's changes, and one worker.

Level-triggered: a change only says which key to reconcile; `reconcile` then reads the current state and does what is
missing. A key that fails is requeued with a growing delay while the other keys continue. An error in our own code about
one object is logged with its traceback the first time and does not stop the controller. Controllers read committed
objects from the store and write through the API like any other client, so its rules apply to them, too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Generic, TypeVar

import msgspec

from plimsoll.aio import SLICE_S, ExponentialBackoff, Wakeup, in_slices
from plimsoll.api.machinery.kinds import ApiResource
from plimsoll.codec.lean.lean import pod_from_json
from plimsoll.errors import PlimsollError
from plimsoll.kube import request
from plimsoll.kube.client import Client
from plimsoll.kube.request import ApiError, Request, ResourcePath, UnreachableError
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.objects import Pod
from plimsoll.store.records import Change, Record
from plimsoll.store.store import Store

# The keys to reconcile when a stored object changes: called with its key and its body.
Concerns = Callable[[str, bytes], Iterable[str]]

RETRY_FIRST_S, RETRY_MOST_S = 0.2, 30.0
REQUEUE_LEAST_S = 0.05
REPLACED = (404, 409, 422)  # the object is gone, or another one has its name
# What code raises on an object that is not as it expects: a member is missing, has another type or an unusable value.
# Errors of the process itself (memory, files) are not among them.
FAULTS = (PlimsollError, msgspec.MsgspecError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError)

log = logging.getLogger(__name__)
_Read = TypeVar("_Read")


class Controller:
    """`sources`: store prefix → keys that a change there concerns. `periodic`: keys to reconcile every `every_s`."""

    def __init__(
        self,
        name: str,
        store: Store,
        sources: Mapping[str, Concerns],
        reconcile: Callable[[str], Awaitable[float | None]],
        *,
        periodic: Callable[[], Iterable[str]] | None = None,
        every_s: float = 10.0,
    ) -> None:
        """`reconcile(key)` may return after how many seconds to requeue the key."""
        self.name = name
        self._store, self._sources, self._reconcile = store, sources, reconcile
        self._periodic, self._every_s = periodic, every_s
        self._queue: dict[str, None] = {}  # in order of arrival
        self._backoffs: dict[str, ExponentialBackoff] = {}  # of keys that failed last time
        self._due: dict[str, float] = {}  # key → when to requeue it
        self._wakeup = Wakeup()

    async def run(self) -> None:
        with ExitStack() as stack:
            for prefix, concerns in self._sources.items():
                stack.enter_context(self._following(prefix, concerns))
            async with asyncio.TaskGroup() as group:
                if self._periodic is not None:
                    group.create_task(self._tick(self._periodic))
                await self._work()

    def enqueue(self, key: str) -> None:
        self._queue[key] = None
        self._wakeup.set()

    def _following(self, prefix: str, concerns: Concerns) -> AbstractContextManager[None]:
        def take(changes: Sequence[Change]) -> None:
            for change in changes:
                if change.key.startswith(prefix):
                    self._enqueue_concerned(concerns, change.key, change.body)
                    if change.kind == "MODIFIED" and change.before is not None:
                        self._enqueue_concerned(concerns, change.key, change.before)

        def again() -> None:
            for record in self._store.list(prefix)[1]:
                self._enqueue_concerned(concerns, record.key, record.body)

        return self._store.following(prefix, take, again)

    def _enqueue_concerned(self, concerns: Concerns, key: str, body: bytes) -> None:
        try:
            for concerned in concerns(key, body):
                self.enqueue(concerned)
        except FAULTS:
            log.exception("%s: cannot determine which objects %s concerns", self.name, key)

    async def _tick(self, periodic: Callable[[], Iterable[str]]) -> None:
        while True:
            for key in periodic():
                self.enqueue(key)
            await asyncio.sleep(self._every_s)

    async def _work(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            now = clock()
            for key in [key for key, due in self._due.items() if due <= now]:
                del self._due[key]
                self._queue[key] = None
            if not self._queue:
                due = min(self._due.values(), default=None)
                await self._wakeup.wait(None if due is None else max(due - now, 0))
                continue
            key = next(iter(self._queue))
            del self._queue[key]
            requeue_s = await self._sync(key)
            if requeue_s is not None:
                self._due[key] = clock() + max(requeue_s, REQUEUE_LEAST_S)
            await asyncio.sleep(0)  # a reconcile that only reads never waits: requests come first

    async def _sync(self, key: str) -> float | None:
        try:
            requeue_s = await self._reconcile(key)
        except (ApiError, UnreachableError, TimeoutError) as error:
            log.warning("%s: %s: %s", self.name, key, error)
        except FAULTS as error:
            is_first = key not in self._backoffs
            log.error("%s: %s: %r", self.name, key, error, exc_info=is_first)
        else:
            self._backoffs.pop(key, None)
            return requeue_s
        return self._backoffs.setdefault(key, ExponentialBackoff(RETRY_FIRST_S, RETRY_MOST_S)).next_s()


def unhurried(items: Iterable[_Read]) -> AsyncIterator[_Read]:
    """The items in slices, of which requests get half the time: what changes without end is read without end."""
    return in_slices(items, pause_s=SLICE_S)


class ControllerContext:
    """Reads stored objects as documents and writes them through the API."""

    def __init__(self, store: Store, client: Client) -> None:
        self.store, self.client = store, client

    def document(self, key: str) -> JsonObject | None:
        record = self.store.get(key)
        return None if record is None else read(record)

    def documents(self, prefix: str) -> list[JsonObject]:
        return [read(record) for record in self.store.list(prefix)[1]]

    async def each(self, prefix: str) -> AsyncIterator[JsonObject]:
        """The same one by one: thousands of them take long, so requests are served meanwhile."""
        async for record in unhurried(self.store.list(prefix)[1]):
            yield read(record)

    async def pods(self, prefix: str = "/pods/") -> AsyncIterator[Pod]:
        """Stored pods as the rules read them, in the same way."""
        async for record in unhurried(self.store.list(prefix)[1]):
            yield pod_from_json(record.body)

    async def attempt(self, change: Request, tolerated: Collection[int] = (404,)) -> bool:
        """Send a change whose object may be gone (404) or replaced (409) by now; whether it was made."""
        try:
            await self.client.ask(change)
        except ApiError as error:
            if error.code not in tolerated:
                raise
            return False
        return True

    async def patch(self, resource: ResourcePath, document: JsonObject, change: JsonObject) -> bool:
        """Change this object, not another one that has its name by now; whether it was there."""
        metadata = document["metadata"]
        whole = {**change, "metadata": {"uid": metadata["uid"], **change.get("metadata", {})}}
        where = (metadata["name"], whole, metadata.get("namespace", ""))
        return await self.attempt(request.patch(resource, *where, content_type=request.MERGE), REPLACED)

    async def patch_status(self, resource: ResourcePath, document: JsonObject, status: JsonObject) -> None:
        """Members that `status` does not have stay as they are."""
        name, namespace = document["metadata"]["name"], document["metadata"].get("namespace", "")
        change = {"status": status}
        await self.client.ask(request.patch(resource, name, change, namespace, "status", content_type=request.MERGE))

    async def set_status(self, resource: ResourcePath, document: JsonObject, status: JsonObject) -> bool:
        """Make the whole status equal to `status`; whether it was there to be changed."""
        before = document.get("status") or {}
        if before == status:
            return False
        metadata = document["metadata"]
        name, namespace = metadata["name"], metadata.get("namespace", "")
        named, changed = {"uid": metadata["uid"]}, difference(before, status)
        if "conditions" in changed:  # a list is written as a whole: not over what another writer added meanwhile
            version = await self._version_with(resource, name, namespace, before)
            if not version:
                return False  # the change of the other writer requeues the object
            named["resourceVersion"] = version
        where = (name, {"metadata": named, "status": changed}, namespace, "status")
        return await self.attempt(request.patch(resource, *where, content_type=request.MERGE), REPLACED)

    async def _version_with(self, resource: ResourcePath, name: str, namespace: str, status: JsonObject) -> str:
        """The object's resourceVersion, if it still has this status; else empty."""
        try:
            now = await self.client.ask(request.get(resource, name, namespace))
        except ApiError as error:
            if error.code != 404:
                raise
            return ""
        version: str = now["metadata"]["resourceVersion"] if (now.get("status") or {}) == status else ""
        return version

    async def delete(self, resource: ResourcePath, document: JsonObject) -> bool:
        metadata = document["metadata"]
        where = (metadata["name"], metadata.get("namespace", ""))
        return await self.attempt(request.delete(resource, *where, uid=metadata["uid"]), REPLACED)


class NamespacePods(Generic[_Read]):
    """The pods of a namespace as a controller reads them, decoded once per version; requests are served meanwhile."""

    def __init__(self, context: ControllerContext, decode: Callable[[bytes], _Read]) -> None:
        self._context, self._decode = context, decode
        self._known: dict[str, dict[str, tuple[Record, _Read]]] = {}  # by namespace and key

    async def of(self, namespace: str) -> AsyncIterator[_Read]:
        known, found = self._known.setdefault(namespace, {}), {}
        async for record in unhurried(self._context.store.list(f"/pods/{namespace}/")[1]):
            entry = known.get(record.key)
            if entry is None or entry[0] is not record:
                entry = record, self._decode(record.body)
            found[record.key] = entry
            yield entry[1]
        if namespace in self._known:
            self._known[namespace] = found

    def forget(self, namespace: str) -> None:
        self._known.pop(namespace, None)


def difference(before: JsonObject, after: JsonObject) -> JsonObject:
    """The merge patch from one object to another; a list is replaced as a whole."""
    change: JsonObject = dict.fromkeys(before.keys() - after.keys())
    for name, value in after.items():
        known = before.get(name)
        if isinstance(known, dict) and isinstance(value, dict):
            if known != value:
                change[name] = difference(known, value)
        elif name not in before or known != value:
            change[name] = value
    return change


def read(record: Record) -> JsonObject:
    document: JsonObject = msgspec.json.decode(record.body)
    return document


def own_key(key: str, _: bytes) -> Iterable[str]:
    """An object concerns its own key."""
    return (key,)


def namespace_of(key: str, _: bytes) -> Iterable[str]:
    """An object concerns its namespace."""
    return (key.split("/")[2],)


def resource_path(resource: ApiResource) -> ResourcePath:
    group, version = resource.group, resource.version
    return ResourcePath(f"/apis/{group}/{version}" if group else f"/api/{version}", resource.plural)
