"""The status manager: patches pod statuses as they change, and deletes pods when nothing is left of them on the node.

A worker reports the status of a pod (`report`) or that the pod has ended (`finish`), and continues at once. Senders
make the requests: one at a time for each pod, retried while the API server is unreachable. Of several pending statuses
the newest is sent; one that must be visible by itself (a resize that was accepted, before it is done) is always sent.
Patches are strategic, have only the difference, and carry the uid, so that a newer pod of the same name is never
changed.

Where resizes are reported in `status.resize`, a patch also carries the resourceVersion that its status was computed
from (03 §5). If the pod has changed since, the API server answers 409: the pod is read again and statuses of an older
spec are dropped; the worker reports again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

import msgspec

from plimsoll.aio import ExponentialBackoff
from plimsoll.kube import request
from plimsoll.kube.client import Client
from plimsoll.kube.request import ApiError, UnreachableError, UnusableAnswerError
from plimsoll.rules.lifecycle.conditions import PASSING_CONDITIONS, is_of_node
from plimsoll.rules.model.json_object import JsonObject

log = logging.getLogger(__name__)

SENDERS = 8
RETRY_FIRST_S, RETRY_MOST_S = 0.2, 10.0


class StoredVersion(msgspec.Struct, frozen=True):
    """The resourceVersion of a stored pod, and the generation of its spec."""

    resource: str = ""
    generation: int = 0


NO_VERSION = StoredVersion()


class _PendingStatus(msgspec.Struct, frozen=True):
    """A status to send. `version`: of the document it was computed from."""

    status: JsonObject
    version: StoredVersion
    must_be_seen: bool = False


class _PodStatus(msgspec.Struct):
    """One pod: the status in the API as far as known, and those to send."""

    namespace: str
    name: str
    stored: JsonObject
    version: StoredVersion = NO_VERSION
    pending: deque[_PendingStatus] = msgspec.field(default_factory=deque)
    last: _PendingStatus | None = None
    seen: tuple[JsonObject, StoredVersion] | None = None  # a newer document that came while a status was to be sent
    is_over: bool = False
    is_queued: bool = False
    is_sending: bool = False
    backoff: ExponentialBackoff = msgspec.field(default_factory=lambda: ExponentialBackoff(RETRY_FIRST_S, RETRY_MOST_S))


class Reporter:
    def __init__(self, client: Client, *, versioned: bool = False) -> None:
        """`versioned`: whether patches about resizes carry the version they were computed from."""
        self._client, self._versioned = client, versioned
        self._pods: dict[str, _PodStatus] = {}
        self._queue: asyncio.Queue[str] = asyncio.Queue()
        self.conflicts: list[Callable[[str, str, str], None]] = []  # called with namespace, name and uid
        self._wake = asyncio.Condition()

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
        """`known`: the status in the newest document, which has `version`. Whether there is something to send.

        `must_be_seen`: a later status must not replace this one before it is sent."""
        pod = self._pods.get(uid)
        if pod is None:
            pod = self._pods[uid] = _PodStatus(namespace, name, known, version)
        pod.last = pending = _PendingStatus(status, version, must_be_seen)
        waiting = pod.pending
        while waiting and not waiting[-1].must_be_seen:
            waiting.pop()
        if status_patch(waiting[-1].status if waiting else pod.stored, status) is None and not pod.is_sending:
            return False
        waiting.append(pending)
        self._enqueue(uid, pod)
        return True

    def observe(self, uid: str, status: JsonObject, version: StoredVersion = NO_VERSION) -> None:
        """A newer document was received: another client has changed the status, or it has our own patch."""
        pod = self._pods.get(uid)
        if pod is None:
            return
        if pod.is_sending or pod.is_queued:
            pod.seen = status, version
            return
        pod.stored, pod.version = status, version
        if pod.last is not None and status_patch(status, pod.last.status) is not None:
            if self._is_versioned(pod.stored, pod.last.status) and pod.last.version.generation != version.generation:
                return  # computed from another spec: the worker has the new document, too, and reports again
            pod.pending.append(pod.last)
            self._enqueue(uid, pod)

    def finish(self, uid: str, namespace: str, name: str) -> None:
        """After the last status: DELETE with grace period 0 and the uid of this pod."""
        pod = self._pods.setdefault(uid, _PodStatus(namespace, name, {}))
        pod.is_over = True
        self._enqueue(uid, pod)

    def forget(self, uid: str) -> None:
        """The pod was removed from the API."""
        self._pods.pop(uid, None)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(SENDERS):
                group.create_task(self._sender())

    async def drained(self, timeout_s: float) -> None:
        """Wait until all reported statuses are sent, at most `timeout_s`."""
        try:
            async with asyncio.timeout(timeout_s), self._wake:
                await self._wake.wait_for(lambda: not any(p.is_queued or p.is_sending for p in self._pods.values()))
        except TimeoutError:
            log.info("the last status of some pods was not sent")

    def _enqueue(self, uid: str, pod: _PodStatus) -> None:
        if not pod.is_queued:
            pod.is_queued = True
            if not pod.is_sending:  # else its sender continues with it
                self._queue.put_nowait(uid)

    async def _sender(self) -> None:
        while True:
            uid = await self._queue.get()
            pod = self._pods.get(uid)
            if pod is None:
                continue
            pod.is_queued, pod.is_sending = False, True
            try:
                pause_s = await self._send(uid, pod)
            finally:
                pod.is_sending = False
            if pause_s:
                pod.is_queued = True
                asyncio.get_running_loop().call_later(pause_s, self._queue.put_nowait, uid)
            elif pod.is_queued:
                self._queue.put_nowait(uid)
            else:
                self._take_seen(uid, pod)
            async with self._wake:
                self._wake.notify_all()

    def _take_seen(self, uid: str, pod: _PodStatus) -> None:
        """What came meanwhile, unless the answer to the last patch is newer."""
        seen, pod.seen = pod.seen, None
        if seen is not None and _newer(seen[1], pod.version) is not pod.version:
            self.observe(uid, *seen)

    async def _send(self, uid: str, pod: _PodStatus) -> float:
        """Seconds until the next attempt; 0 when done."""
        try:
            while pod.pending:
                await self._patch(uid, pod)
            if pod.is_over:
                await self._delete(uid, pod)
        except (UnreachableError, TimeoutError) as error:
            log.warning("status of %s/%s: %s", pod.namespace, pod.name, error)
        except ApiError as error:
            if error.is_gone or error.is_conflict:
                self._pods.pop(uid, None)  # it was deleted, or there is another pod of that name
                return 0
            log.warning("status of %s/%s: %s", pod.namespace, pod.name, error)
            if error.code < 500 and error.code != 429:
                pod.pending.clear()  # it would be rejected again
                if pod.last is not None:
                    pod.stored = pod.last.status
                return 0
        else:
            pod.backoff.reset()
            return 0
        return pod.backoff.next_s()

    async def _patch(self, uid: str, pod: _PodStatus) -> None:
        """Send the first pending status. It is removed when it was stored, or can never be."""
        pending = pod.pending[0]
        change = status_patch(pod.stored, pending.status)
        if change is not None:
            metadata = {"uid": uid}
            if versioned := self._is_versioned(pod.stored, pending.status):
                metadata["resourceVersion"] = self._newest(pod, pending).resource
            body = {"metadata": metadata, "status": change}
            try:
                answer = await self._client.ask(request.patch(request.PODS, pod.name, body, pod.namespace, "status"))
            except ApiError as error:
                if not (versioned and error.is_conflict):
                    raise
                for listener in self.conflicts:
                    listener(pod.namespace, pod.name, uid)
                await self._read_again(uid, pod)
                return
            # Another client may have changed the status before this patch, so the answer is more than what was sent.
            status = answer.get("status")
            pod.stored = status if isinstance(status, dict) and _has_conditions(status) else pending.status
            pod.version = _version(answer)
        if pod.pending and pod.pending[0] is pending:
            pod.pending.popleft()

    async def _read_again(self, uid: str, pod: _PodStatus) -> None:
        """The pod has changed: statuses of the same spec are sent again, others are dropped."""
        document = await self._client.ask(request.get(request.PODS, pod.name, pod.namespace))
        if document["metadata"].get("uid") != uid:
            raise ApiError(409, "Conflict", f"there is another pod {pod.namespace}/{pod.name}")
        status = document.get("status") or {}
        if not _has_conditions(status):
            raise UnusableAnswerError(f"the conditions of pod {pod.namespace}/{pod.name} are invalid")
        pod.stored, pod.version = status, _version(document)
        while pod.pending and pod.pending[0].version.generation != pod.version.generation:
            pod.pending.popleft()

    def _is_versioned(self, before: JsonObject, after: JsonObject) -> bool:
        return self._versioned and bool(before.get("resize") or after.get("resize"))

    def _newest(self, pod: _PodStatus, pending: _PendingStatus) -> StoredVersion:
        """Status patches do not change the spec: a status of the same generation is still valid after them."""
        own, source = pod.version, pending.version
        return _newer(source, own) if own.generation == source.generation else source

    async def _delete(self, uid: str, pod: _PodStatus) -> None:
        await self._client.ask(request.delete(request.PODS, pod.name, pod.namespace, grace_s=0, uid=uid))
        self._pods.pop(uid, None)


def _has_conditions(status: JsonObject) -> bool:
    """Whether its conditions, if any, can be compared."""
    conditions = status.get("conditions") or []
    return isinstance(conditions, list) and all(isinstance(each, dict) and "type" in each for each in conditions)


def _newer(one: StoredVersion, other: StoredVersion) -> StoredVersion:
    """The first one where they are equal, or cannot be compared."""
    if not (one.resource.isdigit() and other.resource.isdigit()):
        return one
    return max(one, other, key=lambda version: int(version.resource))


def _version(document: JsonObject) -> StoredVersion:
    metadata = document.get("metadata") or {}
    return StoredVersion(str(metadata.get("resourceVersion", "")), int(metadata.get("generation") or 0))


# Fields that the node removes when they no longer apply. Other unknown fields of a status belong to other clients.
_REMOVED = frozenset({"reason", "message", "resize", "resources", "allocatedResources", "podIP", "podIPs"})


def status_patch(before: JsonObject, after: JsonObject) -> JsonObject | None:
    """The strategic merge patch from one status to another; None where they are equal.

    Conditions merge by type: only those of the node that differ are sent, and one that it no longer sets is deleted.
    Conditions of others are never sent: they may have changed since `after` was computed. A new lastProbeTime alone is
    not sent, but is part of another change.
    """
    change: JsonObject = {}
    for key, value in after.items():
        if key == "conditions":
            if conditions := _conditions_patch(before.get(key) or [], value, without_probe_time=True):
                change[key] = conditions
        elif before.get(key) == value:
            continue
        elif key == "podIPs" and before.get(key):  # else merged by ip
            change[key] = [{"$patch": "replace"}, *value]
        else:
            change[key] = value
    change.update(dict.fromkeys(key for key in _REMOVED if before.get(key) and key not in after))
    if change and (conditions := _conditions_patch(before.get("conditions") or [], after.get("conditions"))):
        change["conditions"] = conditions
    return change or None


def _conditions_patch(
    before: list[JsonObject], after: list[JsonObject] | None, *, without_probe_time: bool = False
) -> list[JsonObject]:
    """`without_probe_time`: ignore lastProbeTime in the comparison."""
    if after is None:
        return []
    stored = {condition["type"]: condition for condition in before}
    changed = [
        {**dict.fromkeys(stored.get(condition["type"], ())), **condition}  # removed members are null
        for condition in after
        if is_of_node(condition["type"], condition.get("reason") or "")
        and _plain(stored.get(condition["type"], {}), without_probe_time) != _plain(condition, without_probe_time)
    ]
    gone = PASSING_CONDITIONS.intersection(stored) - {condition["type"] for condition in after}
    return changed + [{"$patch": "delete", "type": kind} for kind in sorted(gone)]


def _plain(condition: JsonObject, without_probe_time: bool) -> JsonObject:
    ignored = "lastProbeTime" if without_probe_time else ""
    return {key: value for key, value in condition.items() if value is not None and key != ignored}
