"""The pods of this node: the newest version of each, its admission, and its worker.

Pods come in as changes of a list and watch. A new pod is admitted or refused at once, against all that were admitted
before it: nothing is awaited in between, so the same memory is never allocated to two pods. At the start the whole list
is taken in the order of creation, each pod with what was allocated to it before.

A worker is a task of its own. A worker that fails with an unexpected error is restarted after a pause that doubles; the
other pods are not affected.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from plimsoll.aio import ExponentialBackoff, cancel_all
from plimsoll.codec.lean.runnable import run_pod_from_json
from plimsoll.errors import PlimsollError
from plimsoll.kube.reflector import ObjectChange
from plimsoll.node.checkpoint import Checkpoint, PodRecord
from plimsoll.node.metrics import NodeMeters
from plimsoll.node.pods.allocated import Allocated
from plimsoll.node.pods.worker import PodWorker
from plimsoll.node.reporting.event_recorder import PodEvents
from plimsoll.node.reporting.status_manager import Reporter, StoredVersion
from plimsoll.node.resize.queue import ResizeDecision, Resizes
from plimsoll.node.resources.cpu_manager import CpuPinning
from plimsoll.node.resources.io_annotations import IoAnnotations
from plimsoll.node.resources.resource_managers import ResourceManagers
from plimsoll.rules.eviction.assessment import NodeCondition
from plimsoll.rules.lifecycle.termination import TerminationVerdict, pod_grace_s
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.objects import Node, Pod, is_static
from plimsoll.rules.model.pod_status import FAILED, SUCCEEDED
from plimsoll.rules.model.runnable import RunPod
from plimsoll.rules.node.admission import (
    CONDITION_MESSAGE,
    EVENT_MESSAGE,
    PREEMPTING,
    AdmissionRefusal,
    Admitted,
    admit,
    resource_levels,
)
from plimsoll.rules.node.node_config import NodeConfig
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
from plimsoll.rules.resources.qos import qos_class
from plimsoll.rules.scheduling.fit import EMPTY, NodeLoad

log = logging.getLogger(__name__)

RESTART_FIRST_S, RESTART_MAX_S = 1.0, 60.0
PREEMPTED = TerminationVerdict(PREEMPTING, EVENT_MESSAGE, is_disruption=True, condition_message=CONDITION_MESSAGE)
COLLECT_EVERY = 100  # removed pods: their tasks and errors refer to each other

MakeWorker = Callable[[RunPod, JsonObject, bytes], PodWorker]


class _StatusOnly(msgspec.Struct):
    status: JsonObject = {}


_STATUS = msgspec.json.Decoder(_StatusOnly)


class Pods:
    def __init__(
        self,
        config: NodeConfig,
        make_worker: MakeWorker,
        checkpoint: Checkpoint,
        managers: ResourceManagers,
        pinning: CpuPinning,
        reporter: Reporter,
        events: PodEvents,
        meters: NodeMeters,
        clock: Callable[[], float],
        node: Callable[[], Node],
        conditions: Callable[[], Iterable[NodeCondition]] = tuple,
        removed: Callable[[], None] = lambda: None,
        read_node: Callable[[], Awaitable[None]] | None = None,
        refusals: Callable[[RunPod], Sequence[AdmissionRefusal]] = lambda _: (),
        io: IoAnnotations | None = None,
    ) -> None:
        """`node`: with labels, taints and size. `removed` is called when nothing of a pod is left here. `read_node`
        makes `node` as new as the API server; it raises PlimsollError or TimeoutError. `refusals`: why this machine
        cannot run a pod at all. `io`: which annotations about I/O are in force."""
        self._refusals, self._io = refusals, io
        self._config, self._make_worker, self._checkpoint, self._managers = config, make_worker, checkpoint, managers
        self._pinning, self._reporter, self._events, self._meters = pinning, reporter, events, meters
        self._clock, self._node, self._conditions, self._on_removed = clock, node, conditions, removed
        refusal = managers.refusal if config.profile.managers_asked_on_resize else lambda _: None
        setting = resize_setting(config, EMPTY, cpu_refusal=refusal)
        self._gates = setting.gates
        self.resizes = Resizes(setting, checkpoint, self, conditions, clock, meters)
        self.workers: dict[str, PodWorker] = {}
        self._allocated = Allocated(checkpoint, self.workers)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._by_name: dict[tuple[str, str], str] = {}
        self._removed = 0
        self._read_node = read_node
        self._undecided: dict[str, tuple[RunPod, bytes]] = {}  # refused by a Node that may be older than the pod
        self._deciding: asyncio.Task[None] | None = None
        self.all_known = False  # whether every source of pods has delivered all that it has
        self._forgotten: set[str] = set()
        self._preparing: dict[str, asyncio.Task[None]] = {}  # pods whose device plugins are asked
        self.listeners: list[Callable[[str, RunPod | None], None]] = []  # each version of a pod; None: deleted
        self._victims: dict[str, list[PodWorker]] = {}  # uid of a critical pod → pods that are terminated for it

    def __iter__(self) -> Iterator[PodWorker]:
        return iter(self.workers.values())

    def named(self, namespace: str, name: str) -> PodWorker | None:
        return self.workers.get(self._by_name.get((namespace, name), ""))

    # --- changes ---

    def take(self, changes: Iterable[ObjectChange]) -> None:
        new: list[tuple[RunPod, bytes]] = []
        for change in changes:
            if change.kind == "DELETED":
                self._deleted(change)
                continue
            pod = _readable(change)
            if pod is None:
                continue
            for listener in self.listeners:
                listener(pod.metadata.uid, pod)
            if pod.metadata.uid in self.workers:
                before = self.workers[pod.metadata.uid].pod
                self._changed(self._io.in_force(pod, before) if self._io is not None else pod, change.body)
            elif pod.metadata.uid in self._preparing:
                continue  # it is admitted as it was first seen; a later list or change is taken up by its worker
            else:
                new.append((pod, change.body))
        if self.all_known and self._managers.assigns:
            self._managers.retain({*self.with_processes(), *self._preparing, *(pod.metadata.uid for pod, _ in new)})
        for pod, body in sorted(new, key=lambda each: each[0].metadata.creation_timestamp or ""):
            self._added(pod, body)

    def _added(self, pod: RunPod, body: bytes, *, is_node_new: bool = False) -> None:
        uid = pod.metadata.uid
        self._undecided.pop(uid, None)
        record = self._checkpoint.get(uid)
        if self._io is not None and _has_run(pod, record):
            pod = self._io.in_force(pod)
        is_ending = pod.status.phase in (FAILED, SUCCEEDED) or pod.metadata.deletion_timestamp is not None
        if record.verdict is None and not is_ending and self._managers.waits_for_devices(pod):
            if uid not in self._preparing:
                self._preparing[uid] = asyncio.create_task(self._prepare(pod, body), name=f"devices {uid}")
            return
        if record.verdict is None and not is_ending and not self._admit(pod, record, is_node_new=is_node_new):
            self._undecided[uid] = pod, body
            if self._deciding is None or self._deciding.done():
                self._deciding = asyncio.create_task(self._decide_again(), name="admission")
            return
        worker = self._make_worker(pod, _STATUS.decode(body).status, body)
        worker.after = tuple(self._victims.pop(uid, ()))
        before = self.named(pod.metadata.namespace, pod.metadata.name)
        if before is not None and is_static(pod):
            worker.after += (before,)  # a changed manifest: its earlier pod ends first
        self.workers[uid] = worker
        self._by_name[pod.metadata.namespace, pod.metadata.name] = uid
        self._tasks[uid] = asyncio.create_task(self._run(worker), name=f"pod {pod.metadata.name}")
        self.resizes.known(uid, pod.status.conditions, pod.metadata.generation)
        self.resizes.retry("pods_added")

    def _changed(self, pod: RunPod, body: bytes) -> None:
        meta, status = pod.metadata, _STATUS.decode(body).status
        worker = self.workers[meta.uid]
        before = worker.pod
        worker.update(pod, status, body)
        if resources_differ(before, pod):
            for operation in operations(before, pod):
                self._meters.requested_resizes.add(*operation)
            self._carry_out(self.resizes.changed(meta.uid))
        self._reporter.observe(meta.uid, status, StoredVersion(meta.resource_version, meta.generation))

    def _deleted(self, change: ObjectChange) -> None:
        self._reporter.forget(change.uid)
        for listener in self.listeners:
            listener(change.uid, None)
        self._undecided.pop(change.uid, None)
        if change.uid in self._preparing:
            self._forgotten.add(change.uid)
        worker = self.workers.get(change.uid)
        if worker is None:
            return
        pod = _readable(change)
        if pod is not None and pod.metadata.deletion_timestamp is not None:
            worker.update(pod, _STATUS.decode(change.body).status, change.body)  # it may end sooner than was known
        worker.remove()

    # --- admission ---

    async def _prepare(self, pod: RunPod, body: bytes) -> None:
        """Ask the plugins for the devices of a pod; then it is admitted, or refused, like any other one."""
        uid = pod.metadata.uid
        try:
            known = self._checkpoint.get(uid).allocation
            await self._managers.prepare(allocated_pod(pod, known) if known is not None else pod)
        finally:
            self._preparing.pop(uid, None)
        if uid in self._forgotten:
            self._forgotten.discard(uid)  # deleted meanwhile; what it has got is released with the next pass
            self._pinning.wake()
        else:
            self._added(pod, body)

    async def _decide_again(self) -> None:
        """The scheduler knows a label, a taint or a resource before this node does: read the Node, then decide."""
        assert self._read_node is not None
        backoff = ExponentialBackoff(RESTART_FIRST_S, RESTART_MAX_S)
        while self._undecided:
            waiting = list(self._undecided)
            try:
                await self._read_node()
            except (PlimsollError, TimeoutError) as error:
                log.warning("the Node cannot be read to admit pods: %s; retrying", error)
                await asyncio.sleep(backoff.next_s())
                continue
            for uid in waiting:
                if uid in self._undecided:
                    self._added(*self._undecided[uid], is_node_new=True)

    def _may_be_outdated(self, pod: RunPod, refusal: AdmissionRefusal) -> bool:
        """Whether a newer Node could admit the pod: by its labels, taints, or resources that others have added."""
        if self._read_node is None or is_static(pod):
            return False
        resource = refusal.reason.removeprefix("OutOf")
        is_foreign = resource != refusal.reason and resource not in self._config.allocatable
        return is_foreign or refusal.reason in ("NodeAffinity", "TaintToleration")

    def _admit(self, pod: RunPod, record: PodRecord, *, is_node_new: bool) -> bool:
        """False where the Node must be read again first; else the decision is in the checkpoint."""
        uid = pod.metadata.uid
        if record.allocation is None:
            record = self._recover(pod, record)
        known = record.allocation
        allocated = allocated_pod(pod, known) if known is not None else pod
        with self._meters.deciding("admission"):
            verdict = admit(
                allocated,
                self.load(),
                self._conditions(),
                profile=self._config.profile,
                gates=self._config.policy.gates,
                managers=lambda: self._managers.refusal(allocated, trusts=known is not None),
                also=(*self._refusals(pod), *self._io_refusals(pod, record)),
            )
        if not isinstance(verdict, Admitted):
            if not is_node_new and self._may_be_outdated(pod, verdict):
                return False
            self._managers.refused(allocated)
            self._events.emit(pod, "Warning", verdict.reason, verdict.event_text)
            self._meters.refusals.add(verdict.reason)
            refusal = TerminationVerdict(verdict.reason, verdict.event_text)
            self._checkpoint.put(uid, verdict=refusal, refused=True)
            return True
        for victim in verdict.victims:
            worker = self.terminate(victim.metadata.uid, PREEMPTED)
            if worker is not None:
                self._meters.preemptions.add(verdict.short_of)
                self._victims.setdefault(uid, []).append(worker)
        gates = self._config.policy.gates
        self._meters.admissions.add(resource_levels(allocated, gates), qos_class(allocated, gates=gates).lower())
        self._assign(allocated, trusts=known is not None)
        if known is None:
            names = {uid: worker.pod.metadata.name for uid, worker in self.workers.items()}
            for text in self._managers.conflicts(allocated, names):
                log.warning("pod %s/%s: %s", pod.metadata.namespace, pod.metadata.name, text)
                self._events.emit(pod, "Warning", "CPUAssignedTwice", text)
        start_s = record.start_s or self._clock()
        self._checkpoint.put(uid, allocation=known or allocation_of(pod, self._gates), start_s=start_s)
        return True

    def _io_refusals(self, pod: RunPod, record: PodRecord) -> list[AdmissionRefusal]:
        """A pod that runs is never refused for its annotations: see `IoAnnotations.in_force`."""
        refusal = None if self._io is None or _has_run(pod, record) else self._io.refusal(pod)
        return [] if refusal is None else [refusal]

    def _recover(self, pod: RunPod, record: PodRecord) -> PodRecord:
        """After the checkpoint was lost: the status of a pod that has run here says what was allocated and actuated.

        Its spec may be a request that was refused, and must not evict the pod itself or another one."""
        if pod.status.start_time is None:
            return record
        allocated = allocated_from_status(pod)
        return self._checkpoint.put(
            pod.metadata.uid,
            allocation=allocation_of(allocated, self._gates),
            actuated=actuated_resources(allocated),
            actuated_pod=actuated_level(allocated),
        )

    def _assign(self, pod: Pod, *, trusts: bool = False) -> None:
        if self._managers.assign(pod, trusts=trusts):
            self._pinning.wake()

    def load(self) -> NodeLoad:
        """This node with its active pods, each with what was allocated to it."""
        return self._allocated.load().on(self._node())

    def allocated(self) -> list[Pod]:
        """The active pods, each with what was allocated to it."""
        return [resident.pod for resident in self._allocated.load().residents.values()]

    def with_processes(self) -> set[str]:
        """Pods that may have processes: they keep their exclusive resources, such as CPUs."""
        return {uid for uid, worker in self.workers.items() if not worker.released.is_set()}

    # --- termination by the node ---

    def terminate(
        self, uid: str, verdict: TerminationVerdict, annotations: Mapping[str, str] | None = None
    ) -> PodWorker | None:
        """The node itself terminates a pod: an eviction, a preemption. None if it is being terminated already."""
        worker = self.workers.get(uid)
        if worker is None or self._checkpoint.get(uid).verdict is not None:
            return None
        self._checkpoint.put(uid, verdict=verdict)
        self._checkpoint.save_if_possible()  # a full disk may be the very reason for the eviction
        self._events.emit(worker.pod, "Warning", verdict.reason, verdict.message, annotations=annotations)
        worker.interrupt()
        self.resizes.over(uid)
        return worker

    def shorten_grace(self, uid: str, grace_s: int) -> PodWorker | None:
        """Give a pod that the node terminates already less time. None if it has no more than that."""
        worker, verdict = self.workers.get(uid), self._checkpoint.get(uid).verdict
        if worker is None or verdict is None:
            return None
        current_s = pod_grace_s(worker.pod, verdict) if verdict.grace_s is None else verdict.grace_s
        if current_s <= grace_s:
            return None
        self._checkpoint.put(uid, verdict=msgspec.structs.replace(verdict, grace_s=grace_s))
        worker.interrupt()
        return worker

    # --- resizes ---

    def desired(self, uid: str) -> RunPod | None:
        """The newest version of a pod that is not being terminated."""
        worker = self.workers.get(uid)
        if worker is None or worker.is_over or worker.pod.metadata.deletion_timestamp is not None:
            return None
        return worker.pod if self._checkpoint.get(uid).verdict is None else None

    def begin_resizes(self) -> None:
        """All pods of the first list have been admitted."""
        self._carry_out(self.resizes.begin())

    async def run_resizes(self) -> None:
        async for decision in self.resizes.run():
            self._carry_out([decision])

    def _carry_out(self, decisions: Iterable[ResizeDecision]) -> None:
        for decision in decisions:
            if decision.accepted is not None:
                self._assign(decision.accepted)
            for victim in decision.victims:
                self.terminate(victim.metadata.uid, PREEMPTED)
            worker = self.workers.get(decision.uid)
            if worker is not None and decision.event is not None:
                self._events.emit_lifecycle(worker.pod, decision.event)
            if worker is not None and decision.requeue:
                worker.wake()

    # --- workers ---

    async def _run(self, worker: PodWorker) -> None:
        backoff = ExponentialBackoff(RESTART_FIRST_S, RESTART_MAX_S)
        while True:
            try:
                await worker.run()
                break
            except Exception:  # a defect in the worker of one pod must not end the others
                pause_s = backoff.next_s()
                log.exception("pod %s: worker crashed, restarting in %g s", worker.title, pause_s)
            await asyncio.sleep(pause_s)
        self._remove_worker(worker)

    def _remove_worker(self, worker: PodWorker) -> None:
        uid, key = worker.uid, (worker.pod.metadata.namespace, worker.pod.metadata.name)
        self.workers.pop(uid, None)
        self._tasks.pop(uid, None)
        if self._by_name.get(key) == uid:
            del self._by_name[key]
        self._checkpoint.forget(uid)
        self._meters.forget_pod(uid)
        if self._io is not None:
            self._io.forget(uid)
        self._removed += 1
        if self._removed % COLLECT_EVERY == 0:
            gc.collect()
        self.resizes.forget(uid)
        self.resizes.retry("pods_removed")
        self._pinning.wake()
        self._on_removed()

    async def close(self) -> None:
        """Stop the workers; containers keep running."""
        self._undecided.clear()
        await cancel_all(
            [
                *self._preparing.values(),
                *self._tasks.values(),
                *([self._deciding] if self._deciding is not None else []),
            ]
        )

    def wake(self, uids: Iterable[str] | None = None) -> None:
        for uid in list(self.workers) if uids is None else uids:
            if uid in self.workers:
                self.workers[uid].wake()


def _has_run(pod: RunPod, record: PodRecord) -> bool:
    return record.allocation is not None or pod.status.start_time is not None


def _readable(change: ObjectChange) -> RunPod | None:
    if not change.body:
        return None
    try:
        return run_pod_from_json(change.body)
    except PlimsollError as error:
        log.error("pod %s/%s cannot be read: %s", *change.key, error)
        return None


def resources_differ(before: RunPod, after: RunPod) -> bool:
    """Whether a new version requests other resources than the one before (03 §7)."""
    return not same_pod_level(before.spec.resources, after.spec.resources) or any(
        not same_resources(old.resources, new.resources)
        for old, new in zip(all_containers(before.spec), all_containers(after.spec), strict=False)
    )
