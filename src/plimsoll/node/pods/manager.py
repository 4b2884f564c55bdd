"""The pods of this node: the newest document of each, its admission, and the worker that looks after it.

Documents come in as changes of a list and watch. A pod that is new is admitted or refused at once, against all that
were taken before it: nothing is awaited between the question and the answer, so no two pods are promised the same
memory. At the start the whole list is taken in the order of creation, each pod with what was allocated to it before.

A worker is a task of its own. One that dies by an error that nobody foresaw is written to the log and started again
after a pause that doubles: the other pods never notice.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from plimsoll.codec.lean.runnable import run_pod_from_json
from plimsoll.errors import PlimsollError
from plimsoll.kube.reflector import ObjectChange
from plimsoll.node.checkpoint import PodRecord
from plimsoll.node.dependencies import Dependencies
from plimsoll.node.pods.manager_load import Allocated
from plimsoll.node.pods.worker import PodWorker
from plimsoll.node.reporting.status_manager import StoredVersion
from plimsoll.node.resize.queue import ResizePolicyOfNode, Resizes
from plimsoll.rules.eviction.assessment import NodeCondition
from plimsoll.rules.lifecycle.termination import TerminationVerdict, pod_grace_s
from plimsoll.rules.model.objects import Node, Pod, is_static
from plimsoll.rules.model.observed import LifecycleEvent
from plimsoll.rules.model.pod_status import FAILED, SUCCEEDED
from plimsoll.rules.model.runnable import RunPod
from plimsoll.rules.node.admission import (
    CONDITION_MESSAGE,
    EVENT_MESSAGE,
    PREEMPTING,
    AdmissionRefusal,
    Admitted,
    admit,
)
from plimsoll.rules.resize.allocation import (
    all_containers,
    allocated_pod,
    allocation_of,
    same_pod_level,
    same_resources,
)
from plimsoll.rules.resize.conditions import operations
from plimsoll.rules.resize.verdict import resize_setting
from plimsoll.rules.resources.allocated_status import actuated_level, actuated_resources, allocated_from_status
from plimsoll.rules.scheduling.fit import EMPTY, NodeLoad

log = logging.getLogger(__name__)

RESTART_FIRST_S, RESTART_MOST_S = 1.0, 60.0
PREEMPTED = TerminationVerdict(PREEMPTING, EVENT_MESSAGE, is_disruption=True, condition_message=CONDITION_MESSAGE)
COLLECTED_EVERY = 100  # pods that have gone: their tasks and errors refer to each other


class _StatusOnly(msgspec.Struct):
    status: dict[str, Any] = {}


_STATUS = msgspec.json.Decoder(_StatusOnly)


class Pods:
    def __init__(
        self,
        tools: Dependencies,
        node: Callable[[], Node],
        conditions: Callable[[], Iterable[NodeCondition]] = tuple,
    ) -> None:
        self._tools, self._node, self._conditions = tools, node, conditions
        policy = resize_policy(tools)
        self.resizes = Resizes(policy, tools.checkpoint, self, conditions, tools.clock, tools.meters)
        self.workers: dict[str, PodWorker] = {}
        self._allocated = Allocated(tools.checkpoint, self.workers)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._by_name: dict[tuple[str, str], str] = {}
        self._ended = 0
        self.one_is_gone: Callable[[], None] = lambda: None  # told when nothing of a pod is left here
        self.all_known = False  # whether every source of pods has told all that it has
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
        if self.all_known and self._tools.cpus.is_static:
            self._tools.cpus.keep({*self.with_processes(), *(pod.metadata.uid for pod, _ in new)})
        for pod, body in sorted(new, key=lambda each: each[0].metadata.creation_timestamp or ""):
            self._added(pod, body)

    def _added(self, pod: RunPod, body: bytes) -> None:
        uid = pod.metadata.uid
        record = self._tools.checkpoint.get(uid)
        if record.verdict is None and not _is_terminal(pod) and pod.metadata.deletion_timestamp is None:
            record = self._admitted(pod, record)
        worker = PodWorker(self._tools, self.resizes, pod, _STATUS.decode(body).status, body)
        worker.after = tuple(self._making_room.pop(uid, ()))
        before = self.named(pod.metadata.namespace, pod.metadata.name)
        if before is not None and is_static(pod):
            worker.after += (before,)  # a changed manifest: what it was before ends first
        self.workers[uid] = worker
        self._by_name[pod.metadata.namespace, pod.metadata.name] = uid
        self._tasks[uid] = asyncio.create_task(self._looked_after(worker), name=f"pod {pod.metadata.name}")
        self.resizes.known(uid, pod.status.conditions, pod.metadata.generation)
        self.resizes.room("pods_added")

    def _changed(self, pod: RunPod, body: bytes) -> None:
        meta, status = pod.metadata, _STATUS.decode(body).status
        worker = self.workers[meta.uid]
        before = worker.pod
        worker.give(pod, status, body)
        if asks_for_other(before, pod):
            for operation in operations(before, pod):
                self._tools.meters.resize_requested(*operation)
            self.resizes.changed(meta.uid)
        self._tools.reporter.observe(meta.uid, status, StoredVersion(meta.resource_version, meta.generation))

    def _gone(self, change: ObjectChange) -> None:
        self._tools.reporter.forget(change.uid)
        worker = self.workers.get(change.uid)
        if worker is not None:
            worker.remove()

    # --- admission ---

    def _admitted(self, pod: RunPod, record: PodRecord) -> PodRecord:
        checkpoint, uid = self._tools.checkpoint, pod.metadata.uid
        if record.allocation is None:
            record = self._recovered(pod, record)
        known = record.allocation
        asked = allocated_pod(pod, known) if known is not None else pod
        verdict = admit(
            asked,
            self.load(),
            self._conditions(),
            profile=self._tools.setting.profile,
            gates=self._tools.setting.policy.gates,
            managers=lambda: cpu_refusal(self._tools, asked),
        )
        if not isinstance(verdict, Admitted):
            self._tools.tell(pod, "Warning", verdict.reason, verdict.event_text)
            self._tools.meters.refusals.add(verdict.reason)
            return checkpoint.put(uid, verdict=TerminationVerdict(verdict.reason, verdict.event_text), refused=True)
        for victim in verdict.victims:
            ending = self.end(victim.metadata.uid, PREEMPTED)
            if ending is not None:
                self._tools.meters.preemptions.add(verdict.short_of)
                self._making_room.setdefault(uid, []).append(ending)
        give_cpus(self._tools, asked)
        start_s = record.start_s or self._tools.clock()
        return checkpoint.put(uid, allocation=known or allocation_of(pod, self._tools.gates), start_s=start_s)

    def _recovered(self, pod: RunPod, record: PodRecord) -> PodRecord:
        """Of a pod that has run here before our records were lost: its status says what it was promised and given.

        Its spec may be a wish that was refused, and must drive out neither the pod itself nor its neighbours."""
        if pod.status.start_time is None:
            return record
        held = allocated_from_status(pod)
        return self._tools.checkpoint.put(
            pod.metadata.uid,
            allocation=allocation_of(held, self._tools.gates),
            actuated=actuated_resources(held),
            actuated_pod=actuated_level(held),
        )

    def load(self) -> NodeLoad:
        """This node with its active pods, each with what was allocated to it."""
        return self._allocated.load().on(self._node())

    def allocated(self) -> list[Pod]:
        """The active pods, each with what was allocated to it."""
        return [each.pod for each in self._allocated.load().residents.values()]

    def with_processes(self) -> set[str]:
        """Pods of which something may run: they keep what they hold alone, such as CPUs."""
        return {uid for uid, worker in self.workers.items() if not worker.released.is_set()}

    def end(
        self, uid: str, verdict: TerminationVerdict, annotations: Mapping[str, str] | None = None
    ) -> PodWorker | None:
        """The node itself ends a pod: an eviction, a preemption. None for one that ends already."""
        worker = self.workers.get(uid)
        if worker is None or self._tools.checkpoint.get(uid).verdict is not None:
            return None
        self._tools.checkpoint.put(uid, verdict=verdict)
        self._tools.checkpoint.save_if_possible()  # a full disk may be the very reason for the eviction
        self._tools.tell(worker.pod, "Warning", verdict.reason, verdict.message, annotations=annotations)
        worker.interrupt()
        self.resizes.over(uid)
        return worker

    def hurry(self, uid: str, grace_s: int) -> PodWorker | None:
        """A pod that the node ends already, for whatever reason, gets less time for it. None where it has no more."""
        worker, verdict = self.workers.get(uid), self._tools.checkpoint.get(uid).verdict
        if worker is None or verdict is None:
            return None
        given_s = pod_grace_s(worker.pod, verdict) if verdict.grace_s is None else verdict.grace_s
        if given_s <= grace_s:
            return None
        self._tools.checkpoint.put(uid, verdict=msgspec.structs.replace(verdict, grace_s=grace_s))
        worker.interrupt()
        return worker

    # --- what verdicts on resizes ask ---

    def desired(self, uid: str) -> RunPod | None:
        """The newest spec of a pod that lives on."""
        worker = self.workers.get(uid)
        if worker is None or worker.is_over or worker.pod.metadata.deletion_timestamp is not None:
            return None
        return worker.pod if self._tools.checkpoint.get(uid).verdict is None else None

    def told(self, uid: str, event: LifecycleEvent) -> None:
        if uid in self.workers:
            self._tools.tell_lifecycle(self.workers[uid].pod, event)

    def look_again(self, uid: str) -> None:
        self.wake([uid])

    def preempt(self, victims: Iterable[Pod]) -> None:
        for victim in victims:
            self.end(victim.metadata.uid, PREEMPTED)

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
        self._tools.meters.forget_pod(uid)
        self._ended += 1
        if self._ended % COLLECTED_EVERY == 0:
            gc.collect()
        self.resizes.forget(uid)
        self.resizes.room("pods_removed")
        self._tools.pinning.wake()
        self.one_is_gone()

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


def asks_for_other(before: RunPod, after: RunPod) -> bool:
    """Whether a new document has other resources than the one before (03 §7)."""
    return not same_pod_level(before.spec.resources, after.spec.resources) or any(
        not same_resources(old.resources, new.resources)
        for old, new in zip(all_containers(before.spec), all_containers(after.spec), strict=False)
    )


def resize_policy(tools: Dependencies) -> ResizePolicyOfNode:
    found = resize_setting(tools.setting, EMPTY)
    return ResizePolicyOfNode(
        found.profile,
        found.gates,
        tools.setting.absolute,
        static_cpus=found.static_cpus,
        static_memory=found.static_memory,
        may_swap=found.may_swap,
        enabled=found.enabled,
        cpu_refusal=lambda pod: cpu_refusal(tools, pod),
        give_cpus=lambda pod: give_cpus(tools, pod),
    )


def cpu_refusal(tools: Dependencies, pod: Pod) -> AdmissionRefusal | None:
    wanted = tools.cpus.wanted(pod)
    return wanted if isinstance(wanted, AdmissionRefusal) else None


def give_cpus(tools: Dependencies, pod: Pod) -> None:
    """To a pod that was not refused any."""
    wanted = tools.cpus.wanted(pod)
    if not isinstance(wanted, AdmissionRefusal) and tools.cpus.give(pod.metadata.uid, wanted):
        tools.pinning.wake()
