"""What the API knows about our pods: statuses patched as they change, pods taken away when nothing is left of them.

A worker says what a pod's status is now (`report`) or that the pod has gone from this node (`finish`), and goes on at
once. Senders bring that to the API: one request at a time for each pod, again and again while the API is away. Of
several statuses that wait, the newest is sent; one that must be seen by itself (a resize that was accepted, before it
is done) is sent in its turn. Patches are strategic, hold only what changed, and name the uid, so that a namesake made
since is never touched.

Where a resize is told in `status.resize`, a patch also names the resourceVersion that its status was made from
(03 §5): if the pod was changed meanwhile the API answers 409, the pod is read again, and what was said of an older
spec is dropped; its worker says anew what holds now.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque

import msgspec

from plimsoll.kube import request
from plimsoll.kube.client import Client
from plimsoll.kube.request import ApiError, UnreachableError
from plimsoll.rules.lifecycle.conditions import PASSING_CONDITIONS
from plimsoll.rules.model.json_object import JsonObject

log = logging.getLogger(__name__)

SENDERS = 8
RETRY_FIRST_S, RETRY_MOST_S = 0.2, 10.0


class StoredVersion(msgspec.Struct, frozen=True):
    """Of a stored pod: its resourceVersion, and the generation of its spec."""

    resource: str = ""
    generation: int = 0


NO_VERSION = StoredVersion()


class _Wanted(msgspec.Struct, frozen=True):
    """One status to be told. `version`: of the document it was made from."""

    status: JsonObject
    version: StoredVersion
    must_be_seen: bool = False


class _Told(msgspec.Struct):
    """One pod: what the API has (as far as we know), what it shall have."""

    namespace: str
    name: str
    has: JsonObject
    version: StoredVersion = NO_VERSION
    wants: deque[_Wanted] = msgspec.field(default_factory=deque)
    last: _Wanted | None = None
    is_over: bool = False
    is_queued: bool = False
    is_sending: bool = False
    retry_s: float = RETRY_FIRST_S


class Reporter:
    def __init__(self, client: Client, *, versioned: bool = False) -> None:
        """`versioned`: whether patches about resizes name the version they are made from."""
        self._client, self._versioned = client, versioned
        self._pods: dict[str, _Told] = {}
        self._queue: deque[str] = deque()
        self._wake = asyncio.Condition()
        self._ready = asyncio.Semaphore(0)

    def report(
        self,
        uid: str,
        namespace: str,
        name: str,
        known: JsonObject,
        status: JsonObject,
        version: StoredVersion = NO_VERSION,
        *,
        must_be_seen: bool = False,
    ) -> bool:
        """`known`: the status in the newest document, whose version is given. True where there is something to send."""
        told = self._pods.get(uid)
        if told is None:
            told = self._pods[uid] = _Told(namespace, name, known, version)
        told.last = wanted = _Wanted(status, version, must_be_seen)
        waiting = told.wants
        while waiting and not waiting[-1].must_be_seen:
            waiting.pop()
        if status_patch(waiting[-1].status if waiting else told.has, status) is None and not told.is_sending:
            return False
        waiting.append(wanted)
        self._queued(uid, told)
        return True

    def seen(self, uid: str, status: JsonObject, version: StoredVersion = NO_VERSION) -> None:
        """A newer document has come: somebody else may have changed the status, or our own patch is coming back."""
        told = self._pods.get(uid)
        if told is None or told.is_sending or told.is_queued:
            return
        told.has, told.version = status, version
        if told.last is not None and status_patch(status, told.last.status) is not None:
            if self._is_versioned(told.has, told.last.status) and told.last.version.generation != version.generation:
                return  # made from another spec: its worker, which has the same document now, will say
            told.wants.append(told.last)
            self._queued(uid, told)

    def finish(self, uid: str, namespace: str, name: str) -> None:
        """After the last status: DELETE with no grace, for this very pod."""
        told = self._pods.setdefault(uid, _Told(namespace, name, {}))
        told.is_over = True
        self._queued(uid, told)

    def forget(self, uid: str) -> None:
        """The API has no such pod any more."""
        self._pods.pop(uid, None)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(SENDERS):
                group.create_task(self._send_for_ever())

    async def drained(self, timeout_s: float) -> None:
        """Wait until everything that was said so far is told."""
        try:
            async with asyncio.timeout(timeout_s), self._wake:
                await self._wake.wait_for(lambda: not any(t.is_queued or t.is_sending for t in self._pods.values()))
        except TimeoutError:
            log.info("not every pod's last status could be told")

    def _queued(self, uid: str, told: _Told) -> None:
        if not told.is_queued:
            told.is_queued = True
            if not told.is_sending:  # else whoever sends sees it afterwards
                self._queue.append(uid)
                self._ready.release()

    async def _send_for_ever(self) -> None:
        while True:
            await self._ready.acquire()
            uid = self._queue.popleft()
            told = self._pods.get(uid)
            if told is None:
                continue
            told.is_queued, told.is_sending = False, True
            try:
                pause_s = await self._sent(uid, told)
            finally:
                told.is_sending = False
            if pause_s:
                told.is_queued = True
                asyncio.get_running_loop().call_later(pause_s, self._again, uid)
            elif told.is_queued:
                self._queue.append(uid)
                self._ready.release()
            async with self._wake:
                self._wake.notify_all()

    def _again(self, uid: str) -> None:
        self._queue.append(uid)
        self._ready.release()

    async def _sent(self, uid: str, told: _Told) -> float:
        """How long to wait before it is tried again; 0 when it is done."""
        try:
            while told.wants:
                await self._patch(uid, told)
            if told.is_over:
                await self._delete(uid, told)
        except (UnreachableError, TimeoutError) as error:
            log.warning("status of %s/%s: %s", told.namespace, told.name, error)
        except ApiError as error:
            if error.is_gone or error.is_conflict:
                self._pods.pop(uid, None)  # it is gone, or another pod of that name is there
                return 0
            log.warning("status of %s/%s: %s", told.namespace, told.name, error)
            if error.code < 500 and error.code != 429:
                told.wants.clear()  # it would be refused again as it is
                if told.last is not None:
                    told.has = told.last.status
                return 0
        else:
            told.retry_s = RETRY_FIRST_S
            return 0
        pause_s, told.retry_s = told.retry_s, min(told.retry_s * 2, RETRY_MOST_S)
        return pause_s

    async def _patch(self, uid: str, told: _Told) -> None:
        """The first of those that wait. It is taken off when the API has it, or has made clear that it never will."""
        wanted = told.wants[0]
        change = status_patch(told.has, wanted.status)
        if change is not None:
            metadata = {"uid": uid}
            if versioned := self._is_versioned(told.has, wanted.status):
                metadata["resourceVersion"] = self._newest(told, wanted).resource
            body = {"metadata": metadata, "status": change}
            try:
                answer = await self._client.ask(request.patch(request.PODS, told.name, body, told.namespace, "status"))
            except ApiError as error:
                if not (versioned and error.is_conflict):
                    raise
                await self._read_again(uid, told, wanted)
                return
            told.has = wanted.status
            stored = _version(answer)
            if stored.generation == wanted.version.generation:
                told.version = stored
        if told.wants and told.wants[0] is wanted:
            told.wants.popleft()

    async def _read_again(self, uid: str, told: _Told, wanted: _Wanted) -> None:
        """Somebody has changed the pod since: what was made from that same spec is sent again, all else is void."""
        found = await self._client.ask(request.get(request.PODS, told.name, told.namespace))
        if found["metadata"].get("uid") != uid:
            raise ApiError(409, "Conflict", f"another pod {told.namespace}/{told.name} is there")
        told.has, told.version = found.get("status") or {}, _version(found)
        while told.wants and told.wants[0].version.generation != told.version.generation:
            told.wants.popleft()

    def _is_versioned(self, has: JsonObject, wants: JsonObject) -> bool:
        return self._versioned and bool(has.get("resize") or wants.get("resize"))

    def _newest(self, told: _Told, wanted: _Wanted) -> StoredVersion:
        """Our own patches do not change a spec: what was made from the same one stays true after them."""
        own, made_from = told.version, wanted.version
        if own.generation != made_from.generation or not own.resource.isdigit() or not made_from.resource.isdigit():
            return made_from
        return max(own, made_from, key=lambda each: int(each.resource))

    async def _delete(self, uid: str, told: _Told) -> None:
        await self._client.ask(request.delete(request.PODS, told.name, told.namespace, grace_s=0, uid=uid))
        self._pods.pop(uid, None)


def _version(document: JsonObject) -> StoredVersion:
    metadata = document.get("metadata") or {}
    return StoredVersion(str(metadata.get("resourceVersion", "")), int(metadata.get("generation") or 0))


# What a node takes back when it is no longer so. Everything else in a status that it does not know is somebody else's.
_TAKEN_BACK = frozenset({"reason", "message", "resize", "resources", "allocatedResources", "podIP", "podIPs"})


def status_patch(has: JsonObject, wants: JsonObject) -> JsonObject | None:
    """Strategic, from one status to another; None where nothing is to be said.

    Conditions merge by their type: only what differs is sent, and one of ours that is gone says so. When one was looked
    at last is no reason to send anything, but goes along.
    """
    change: JsonObject = {}
    for key, value in wants.items():
        if key == "conditions":
            if conditions := _conditions_patch(has.get(key) or [], value, passing=True):
                change[key] = conditions
        elif has.get(key) == value:
            continue
        elif key == "podIPs" and has.get(key):  # merged by ip where nothing else is said
            change[key] = [{"$patch": "replace"}, *value]
        else:
            change[key] = value
    change.update(dict.fromkeys(key for key in _TAKEN_BACK if has.get(key) and key not in wants))
    if change and (conditions := _conditions_patch(has.get("conditions") or [], wants.get("conditions"))):
        change["conditions"] = conditions
    return change or None


def _conditions_patch(
    has: list[JsonObject], wants: list[JsonObject] | None, *, passing: bool = False
) -> list[JsonObject]:
    """`passing`: with no look at when they were probed."""
    if wants is None:
        return []
    before = {each["type"]: each for each in has}
    changed = [
        {**dict.fromkeys(before.get(each["type"], ())), **each}  # members that it had and has no more are null
        for each in wants
        if _plain(before.get(each["type"], {}), passing) != _plain(each, passing)
    ]
    gone = PASSING_CONDITIONS.intersection(before) - {each["type"] for each in wants}
    return changed + [{"$patch": "delete", "type": kind} for kind in sorted(gone)]


def _plain(condition: JsonObject, passing: bool) -> JsonObject:
    return {
        key: value for key, value in condition.items() if value is not None and not (passing and key == "lastProbeTime")
    }
