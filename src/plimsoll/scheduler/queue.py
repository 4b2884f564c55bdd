"""The scheduling queue (05 A4): active pods by priority, pods in back-off, and unschedulable pods.

It has no clock: the caller passes the time. `wake` (a node was added or freed resources) or five minutes move an
unschedulable pod to the back-off queue, where it waits for the rest of its back-off.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable

import msgspec

from plimsoll.rules.model.objects import Pod
from plimsoll.rules.scheduling.cycle import LONGEST_WAIT_S, backoff_s, queue_key


class QueuedPod(msgspec.Struct):
    """A pod that waits for a node. `due_s`: when its back-off ends."""

    pod: Pod
    queued_s: float
    attempts: int = 0
    due_s: float = 0.0
    failed_s: float = 0.0
    woken: bool = False  # the cluster changed during its attempt


class Queue:
    def __init__(self) -> None:
        self._active: list[tuple[tuple[int, float], int, str]] = []  # heap of (key, tie, uid)
        self._backoff: list[tuple[float, int, str]] = []  # heap of (due, tie, uid)
        self._unschedulable: set[str] = set()
        self._waiting: dict[str, QueuedPod] = {}
        self._in_flight: set[str] = set()  # taken by `pop`, neither failed nor done yet
        self._ties = itertools.count()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, pod: Pod, now_s: float) -> None:
        """A new pod, or a new version of a waiting one, which may have become schedulable."""
        uid = pod.metadata.uid
        known = self._waiting.get(uid)
        if known is None:
            self._waiting[uid] = QueuedPod(pod, now_s)
            self._activate(uid)
            return
        changed = known.pod.spec != pod.spec or known.pod.metadata.labels != pod.metadata.labels
        known.pod = pod
        if changed and uid in self._unschedulable:
            self._unschedulable.discard(uid)
            self._activate(uid)
        elif changed and uid in self._in_flight:
            known.woken = True

    def drop(self, uid: str) -> None:
        """The pod is bound, deleted or ended. Its entries in the heaps are skipped later."""
        self._waiting.pop(uid, None)
        self._unschedulable.discard(uid)
        self._in_flight.discard(uid)

    def pop(self, now_s: float) -> QueuedPod | None:
        """The next pod to schedule, highest priority first; None while none is active."""
        self._end_backoffs(now_s)
        while self._active:
            _, _, uid = heapq.heappop(self._active)
            queued = self._waiting.get(uid)
            if queued is not None and uid not in self._in_flight and uid not in self._unschedulable:
                self._in_flight.add(uid)
                queued.attempts += 1
                queued.woken = False
                return queued
        return None

    def failed(self, uid: str, now_s: float) -> None:
        """No node fits: wait for a change, which may have happened during the attempt."""
        queued = self._waiting.get(uid)
        if queued is None:
            return
        self._in_flight.discard(uid)
        queued.failed_s, queued.due_s = now_s, now_s + backoff_s(queued.attempts)
        if queued.woken:
            self._back_off(uid)
        else:
            self._unschedulable.add(uid)

    def retry(self, uid: str, now_s: float) -> None:
        """A request failed, which does not depend on the nodes: try again after the back-off."""
        queued = self._waiting.get(uid)
        if queued is not None:
            self._in_flight.discard(uid)
            queued.due_s = now_s + backoff_s(queued.attempts)
            self._back_off(uid)

    def wake(self, helps: Callable[[Pod], bool] | None = None) -> None:
        """The cluster changed; `helps`: for which pods the change may matter."""
        self._wake([uid for uid in self._unschedulable if helps is None or helps(self._waiting[uid].pod)])
        for uid in self._in_flight:
            if helps is None or helps(self._waiting[uid].pod):
                self._waiting[uid].woken = True

    def wake_leftover(self, now_s: float) -> None:
        """Wake the pods that have been unschedulable for five minutes."""
        self._wake([uid for uid in self._unschedulable if now_s - self._waiting[uid].failed_s >= LONGEST_WAIT_S])

    def next_due_s(self) -> float | None:
        """When the next back-off ends."""
        return self._backoff[0][0] if self._backoff else None

    def _wake(self, uids: Iterable[str]) -> None:
        for uid in uids:
            self._unschedulable.discard(uid)
            self._back_off(uid)

    def _back_off(self, uid: str) -> None:
        heapq.heappush(self._backoff, (self._waiting[uid].due_s, next(self._ties), uid))

    def _end_backoffs(self, now_s: float) -> None:
        while self._backoff and self._backoff[0][0] <= now_s:
            _, _, uid = heapq.heappop(self._backoff)
            if uid in self._waiting and uid not in self._unschedulable and uid not in self._in_flight:
                self._activate(uid)

    def _activate(self, uid: str) -> None:
        queued = self._waiting[uid]
        heapq.heappush(self._active, (queue_key(queued.pod, queued.queued_s), next(self._ties), uid))
