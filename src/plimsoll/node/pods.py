"""The pods of this node: the newest document of each, its admission, and the worker that looks after it.

Documents come in as changes of a list and watch. A pod that is new is admitted or refused at once, against all that
were taken before it: nothing is awaited between the question and the answer, so no two pods are promised the same
memory. At the start the whole list is taken in the order of creation, each pod with what was allocated to it before.

A worker is a task of its own. One that dies by an error that nobody foresaw is written to the log and started again
after a pause that doubles: the other pods never notice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from plimsoll.codec.run_pod import run_pod_from_json
from plimsoll.errors import PlimsollError
from plimsoll.kube.reflector import ObjectChange
from plimsoll.node.checkpoint import PodRecord
from plimsoll.node.pod_worker import PodWorker
from plimsoll.node.tools import Tools
from plimsoll.rules.allocation import allocated_pod, allocation_of
from plimsoll.rules.eviction import NodeCondition
from plimsoll.rules.node_admission import Admitted, admit
from plimsoll.rules.objects import Node, Pod
from plimsoll.rules.preemption_node import EVENT_MESSAGE, PREEMPTING
from plimsoll.rules.run_objects import RunPod
from plimsoll.rules.run_status import FAILED, SUCCEEDED
from plimsoll.rules.termination import Verdict

log = logging.getLogger(__name__)

RESTART_FIRST_S, RESTART_MOST_S = 1.0, 60.0


class _StatusOnly(msgspec.Struct):
    status: dict[str, Any] = {}


_STATUS = msgspec.json.Decoder(_StatusOnly)


class Pods:
    def __init__(
        self, tools: Tools, node: Callable[[], Node], conditions: Callable[[], Iterable[NodeCondition]] = tuple
    ) -> None:
        self._tools, self._node, self._conditions = tools, node, conditions
        self.workers: dict[str, PodWorker] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._by_name: dict[tuple[str, str], str] = {}
        self._making_room: dict[str, list[PodWorker]] = {}  # uid of a critical pod → who ends for it

    def __iter__(self) -> Iterator[PodWorker]:
        return iter(self.workers.values())

    def named(self, namespace: str, name: str) -> PodWorker | None:
        return self.workers.get(self._by_name.get((namespace, name), ""))

    # --- documents ---

    def take(self, changes: Iterable[ObjectChange]) -> None:
        new: list[tuple[RunPod, bytes]] = []
        for change in changes:
            if change.kind == "DELETED":
                self._gone(change)
                continue
            try:
                pod = run_pod_from_json(change.body)
            except PlimsollError as error:
                log.error("pod %s/%s cannot be read: %s", *change.key, error)
                continue
            if pod.metadata.uid in self.workers:
                self._changed(pod, change.body)
            else:
                new.append((pod, change.body))
        for pod, body in sorted(new, key=lambda each: each[0].metadata.creation_timestamp or ""):
            self._added(pod, body)

    def _added(self, pod: RunPod, body: bytes) -> None:
        uid = pod.metadata.uid
        record = self._tools.checkpoint.get(uid)
        if record.verdict is None and not _is_terminal(pod) and pod.metadata.deletion_timestamp is None:
            record = self._admitted(pod, record)
        worker = PodWorker(self._tools, pod, _STATUS.decode(body).status, body)
        worker.after = tuple(self._making_room.pop(uid, ()))
        self.workers[uid] = worker
        self._by_name[pod.metadata.namespace, pod.metadata.name] = uid
        self._tasks[uid] = asyncio.create_task(self._looked_after(worker), name=f"pod {pod.metadata.name}")

    def _changed(self, pod: RunPod, body: bytes) -> None:
        status = _STATUS.decode(body).status
        self._tools.reporter.seen(pod.metadata.uid, status)
        self.workers[pod.metadata.uid].give(pod, status, body)

    def _gone(self, change: ObjectChange) -> None:
        self._tools.reporter.forget(change.uid)
        worker = self.workers.get(change.uid)
        if worker is not None:
            worker.remove()

    # --- admission ---

    def _admitted(self, pod: RunPod, record: PodRecord) -> PodRecord:
        checkpoint, uid = self._tools.checkpoint, pod.metadata.uid
        known = record.allocation
        asked = allocated_pod(pod, known) if known is not None else pod
        verdict = admit(
            asked,
            list(self.allocated(besides=uid)),
            self._node(),
            self._conditions(),
            profile=self._tools.setting.profile,
            pod_level=self._tools.setting.policy.pod_level,
        )
        if not isinstance(verdict, Admitted):
            self._tools.tell(pod, "Warning", verdict.reason, verdict.event_text)
            return checkpoint.put(uid, verdict=Verdict(verdict.reason, verdict.event_text), refused=True)
        for victim in verdict.victims:
            ending = self.end(victim.metadata.uid, Verdict(PREEMPTING, EVENT_MESSAGE, is_disruption=True))
            if ending is not None:
                self._making_room.setdefault(uid, []).append(ending)
        start_s = record.start_s or self._tools.clock()
        return checkpoint.put(uid, allocation=known or allocation_of(pod, self._tools.gates), start_s=start_s)

    def allocated(self, besides: str = "") -> Iterator[Pod]:
        """The active pods, each with what was allocated to it."""
        for uid, worker in self.workers.items():
            record = self._tools.checkpoint.get(uid)
            if uid != besides and record.verdict is None and not worker.is_over and record.allocation is not None:
                yield allocated_pod(worker.pod, record.allocation)

    def end(self, uid: str, verdict: Verdict, annotations: Mapping[str, str] | None = None) -> PodWorker | None:
        """The node itself ends a pod: an eviction, a preemption. None for one that ends already."""
        worker = self.workers.get(uid)
        if worker is None or self._tools.checkpoint.get(uid).verdict is not None:
            return None
        self._tools.checkpoint.put(uid, verdict=verdict)
        self._tools.checkpoint.save()
        self._tools.tell(worker.pod, "Warning", verdict.reason, verdict.message, annotations=annotations)
        worker.interrupt()
        return worker

    # --- workers ---

    async def _looked_after(self, worker: PodWorker) -> None:
        pause_s = RESTART_FIRST_S
        while True:
            turning = asyncio.create_task(worker.run())
            try:
                await asyncio.wait([turning])
            finally:
                if not turning.done():
                    turning.cancel()
                    await asyncio.wait([turning])
            error = None if turning.cancelled() else turning.exception()
            if error is None:
                break
            log.error("pod %s: its worker failed, and goes on in %g s", worker.title, pause_s, exc_info=error)
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, RESTART_MOST_S)
            worker.wake()
        self._let_go(worker)

    def _let_go(self, worker: PodWorker) -> None:
        uid, key = worker.uid, (worker.pod.metadata.namespace, worker.pod.metadata.name)
        self.workers.pop(uid, None)
        self._tasks.pop(uid, None)
        if self._by_name.get(key) == uid:
            del self._by_name[key]
        self._tools.checkpoint.forget(uid)

    async def close(self) -> None:
        """Stop looking after them; what runs goes on."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def wake(self, uids: Iterable[str] | None = None) -> None:
        for uid in list(self.workers) if uids is None else uids:
            if uid in self.workers:
                self.workers[uid].wake()


def _is_terminal(pod: RunPod) -> bool:
    return pod.status.phase in (FAILED, SUCCEEDED)
