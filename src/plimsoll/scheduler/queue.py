"""Pods that wait for a node (spec 05 A4): ready ones by priority, those that failed until their pause is over, those
that fit nowhere until something changes.

No clock of its own: every call is told the time. A pod that fits nowhere is woken by `wake` (a node came, grew or got
rid of a pod) or after five minutes; it then still waits for the rest of its back-off.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable

import msgspec

from plimsoll.rules.model.objects import Pod
from plimsoll.rules.scheduling.cycle import LONGEST_WAIT_S, backoff_s, queue_key


class QueuedPod(msgspec.Struct):
    """One pod's wait. `due_s`: when its back-off ends."""

    pod: Pod
    queued_s: float
    attempts: int = 0
    due_s: float = 0.0
    failed_s: float = 0.0
    woken: bool = False  # something changed while it was being tried


class Queue:
    def __init__(self) -> None:
        self._ready: list[tuple[tuple[int, float], int, str]] = []  # heap of (key, tie, uid)
        self._pausing: list[tuple[float, int, str]] = []  # heap of (due, tie, uid)
        self._stuck: set[str] = set()
        self._waiting: dict[str, QueuedPod] = {}
        self._tried: set[str] = set()  # taken by `pop`, neither failed nor done yet
        self._ties = itertools.count()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, pod: Pod, now_s: float) -> None:
        """A new pod, or a newer state of one that waits: what made it fit nowhere may have been mended in it."""
        uid = pod.metadata.uid
        known = self._waiting.get(uid)
        if known is None:
            self._waiting[uid] = QueuedPod(pod, now_s)
            self._make_ready(uid)
            return
        changed = known.pod.spec != pod.spec or known.pod.metadata.labels != pod.metadata.labels
        known.pod = pod
        if changed and uid in self._stuck:
            self._stuck.discard(uid)
            self._make_ready(uid)
        elif changed and uid in self._tried:
            known.woken = True

    def drop(self, uid: str) -> None:
        """Bound, deleted or ended. Entries in the heaps are skipped when they come up."""
        self._waiting.pop(uid, None)
        self._stuck.discard(uid)
        self._tried.discard(uid)

    def pop(self, now_s: float) -> QueuedPod | None:
        """The next pod to try, highest priority first; None while none is ready."""
        self._end_pauses(now_s)
        while self._ready:
            _, _, uid = heapq.heappop(self._ready)
            found = self._waiting.get(uid)
            if found is not None and uid not in self._tried and uid not in self._stuck:
                self._tried.add(uid)
                found.attempts += 1
                found.woken = False
                return found
        return None

    def failed(self, uid: str, now_s: float) -> None:
        """It fits nowhere now: wait for a change, which may have come while it was being tried."""
        found = self._waiting.get(uid)
        if found is None:
            return
        self._tried.discard(uid)
        found.failed_s, found.due_s = now_s, now_s + backoff_s(found.attempts)
        if found.woken:
            self._pause(uid, found.due_s)
        else:
            self._stuck.add(uid)

    def retry(self, uid: str, now_s: float) -> None:
        """It was refused for a reason that has nothing to do with the nodes (a failed request): after its back-off."""
        found = self._waiting.get(uid)
        if found is not None:
            self._tried.discard(uid)
            found.due_s = now_s + backoff_s(found.attempts)
            self._pause(uid, found.due_s)

    def wake(self, helps: Callable[[Pod], bool] | None = None) -> None:
        """Something changed in the cluster; `helps` may tell for whom it can matter."""
        for uid in [uid for uid in self._stuck if helps is None or helps(self._waiting[uid].pod)]:
            self._stuck.discard(uid)
            self._pause(uid, self._waiting[uid].due_s)
        for uid in self._tried:
            self._waiting[uid].woken = True

    def wake_old(self, now_s: float) -> None:
        for uid in [uid for uid in self._stuck if now_s - self._waiting[uid].failed_s >= LONGEST_WAIT_S]:
            self._stuck.discard(uid)
            self._pause(uid, self._waiting[uid].due_s)

    def next_due_s(self) -> float | None:
        """When `pop` may give something that it does not give now."""
        return self._pausing[0][0] if self._pausing else None

    def _pause(self, uid: str, due_s: float) -> None:
        heapq.heappush(self._pausing, (due_s, next(self._ties), uid))

    def _end_pauses(self, now_s: float) -> None:
        while self._pausing and self._pausing[0][0] <= now_s:
            _, _, uid = heapq.heappop(self._pausing)
            if uid in self._waiting and uid not in self._stuck and uid not in self._tried:
                self._make_ready(uid)

    def _make_ready(self, uid: str) -> None:
        found = self._waiting[uid]
        heapq.heappush(self._ready, (queue_key(found.pod, found.queued_s), next(self._ties), uid))
