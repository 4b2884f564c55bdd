"""What the API knows about our pods: statuses patched as they change, pods taken away when nothing is left of them.

A worker says what a pod's status is now (`report`) or that the pod has gone from this node (`finish`), and goes on at
once. Senders bring that to the API: one request at a time for each pod, always with the newest status, again and again
while the API is away. Patches are strategic, hold only what changed, and name the uid, so that a namesake made since is
never touched (a 409 answers that).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Any

import msgspec

from plimsoll.kube import request
from plimsoll.kube.client import Client
from plimsoll.kube.request import ApiError, Unreachable

log = logging.getLogger(__name__)

Document = dict[str, Any]
SENDERS = 8
RETRY_FIRST_S, RETRY_MOST_S = 0.2, 10.0


class _Told(msgspec.Struct):
    """One pod: what the API has (as far as we know), what it shall have."""

    namespace: str
    name: str
    has: Document
    wants: Document
    is_over: bool = False
    is_queued: bool = False
    is_sending: bool = False
    retry_s: float = RETRY_FIRST_S


class Reporter:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._pods: dict[str, _Told] = {}
        self._queue: deque[str] = deque()
        self._wake = asyncio.Condition()
        self._ready = asyncio.Semaphore(0)

    def report(self, uid: str, namespace: str, name: str, known: Document, status: Document) -> bool:
        """`known`: the status in the newest document. True where there is something to send."""
        told = self._pods.get(uid)
        if told is None:
            told = self._pods[uid] = _Told(namespace, name, known, status)
        told.wants = status
        if status_patch(told.has, status) is None:
            return False
        self._queued(uid, told)
        return True

    def seen(self, uid: str, status: Document) -> None:
        """A newer document has come: somebody else may have changed the status, or our own patch is coming back."""
        told = self._pods.get(uid)
        if told is not None and not told.is_sending and not told.is_queued:
            told.has = status
            if told.wants and status_patch(told.has, told.wants) is not None:
                self._queued(uid, told)

    def finish(self, uid: str, namespace: str, name: str) -> None:
        """After the last status: DELETE with no grace, for this very pod."""
        told = self._pods.setdefault(uid, _Told(namespace, name, {}, {}))
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
            await self._patch(uid, told)
            if told.is_over:
                await self._delete(uid, told)
        except (Unreachable, TimeoutError) as error:
            log.warning("status of %s/%s: %s", told.namespace, told.name, error)
        except ApiError as error:
            if error.is_gone or error.is_conflict:
                self._pods.pop(uid, None)  # it is gone, or another pod of that name is there
                return 0
            log.warning("status of %s/%s: %s", told.namespace, told.name, error)
            if error.code < 500 and error.code != 429:
                told.has = told.wants  # it would be refused again as it is
                return 0
        else:
            told.retry_s = RETRY_FIRST_S
            return 0
        pause_s, told.retry_s = told.retry_s, min(told.retry_s * 2, RETRY_MOST_S)
        return pause_s

    async def _patch(self, uid: str, told: _Told) -> None:
        wants = told.wants
        change = status_patch(told.has, wants) if wants else None
        if change is None:
            return
        body = {"metadata": {"uid": uid}, "status": change}
        await self._client.ask(request.patch(request.PODS, told.name, body, told.namespace, "status"))
        told.has = wants

    async def _delete(self, uid: str, told: _Told) -> None:
        await self._client.ask(request.delete(request.PODS, told.name, told.namespace, grace_s=0, uid=uid))
        self._pods.pop(uid, None)


# What a node takes back when it is no longer so. Everything else in a status that it does not know is somebody else's.
_TAKEN_BACK = frozenset({"reason", "message", "resize", "podIP", "podIPs"})
_CONDITIONS_TAKEN_BACK = frozenset({"PodResizePending", "PodResizeInProgress", "Enforced"})


def status_patch(has: Document, wants: Document) -> Document | None:
    """Strategic, from one status to another; None where nothing is to be said.

    Conditions merge by their type: only what differs is sent, and one of ours that is gone says so.
    """
    change: Document = {}
    for key, value in wants.items():
        if key == "conditions":
            if conditions := _conditions_patch(has.get(key) or [], value):
                change[key] = conditions
        elif has.get(key) == value:
            continue
        elif key == "podIPs" and has.get(key):  # merged by ip where nothing else is said
            change[key] = [{"$patch": "replace"}, *value]
        else:
            change[key] = value
    change.update(dict.fromkeys(key for key in _TAKEN_BACK if has.get(key) and key not in wants))
    return change or None


def _conditions_patch(has: list[Document], wants: list[Document]) -> list[Document]:
    before = {each["type"]: each for each in has}
    changed = [
        {**dict.fromkeys(before.get(each["type"], ())), **each}  # members that it had and has no more are null
        for each in wants
        if _plain(before.get(each["type"], {})) != _plain(each)
    ]
    gone = _CONDITIONS_TAKEN_BACK.intersection(before) - {each["type"] for each in wants}
    return changed + [{"$patch": "delete", "type": kind} for kind in sorted(gone)]


def _plain(condition: Document) -> Document:
    return {key: value for key, value in condition.items() if value is not None}
