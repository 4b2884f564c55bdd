"""Resizes of the node's pods: which are wanted, what the node says to them, in which order they are looked at again.

A pod whose spec asks for something else than what is allocated to it is *pending*. Whenever there is a reason (its spec
changed, a pod came, went, ended or shrank, the node's size changed, or simply time), all pending ones are judged in
order, one after the other and with nothing awaited in between: so a decision here and the admission of a new pod never
promise the same memory twice, and after each acceptance the next one is judged with what is left.

What is accepted is written down before anything else happens, then the pod's worker is woken to hand it out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Literal, Protocol

import msgspec

from plimsoll.node.checkpoint import Checkpoint, CheckpointWriteError
from plimsoll.rules.eviction.assessment import NodeCondition
from plimsoll.rules.model.gates import Gates
from plimsoll.rules.model.objects import Container, Pod, ResourceList
from plimsoll.rules.model.observed import LifecycleEvent
from plimsoll.rules.model.pod_status import RunCondition
from plimsoll.rules.model.runnable import RunPod
from plimsoll.rules.node.admission import AdmissionRefusal
from plimsoll.rules.profile import Profile
from plimsoll.rules.resize.allocation import Allocation, allocated_pod, is_allocated
from plimsoll.rules.resize.conditions import (
    NO_RESIZE_CONDITIONS,
    ResizeConditions,
    conditions_from_status,
    failed,
    finished,
    is_news,
    judged,
)
from plimsoll.rules.resize.verdict import (
    RETRY_FIRST_S,
    RETRY_S,
    PendingResize,
    ResizeSetting,
    ResizeVerdict,
    queue_order,
    resize_verdict,
)
from plimsoll.rules.scheduling.fit import NodeLoad

Trigger = Literal["pod_updated", "pods_added", "pods_removed", "pod_resized", "pod_terminated", "periodic_retry"]


class ResizePolicyOfNode(msgspec.Struct, frozen=True):
    """The settings that verdicts depend on and that do not change while the agent runs."""

    profile: Profile
    gates: Gates
    absolute_allocatable: ResourceList
    static_cpus: bool = False
    static_memory: bool = False
    may_swap: Callable[[Pod, Container], bool] = lambda _pod, _container: False
    enabled: bool = True  # InPlacePodVerticalScaling
    cpu_refusal: Callable[[Pod], AdmissionRefusal | None] = lambda _pod: (
        None
    )  # of the CPU manager, for a pod of that size
    give_cpus: Callable[[Pod], None] = lambda _pod: None


class PodRegistry(Protocol):
    """The pods of the node, as far as a verdict asks."""

    def load(self) -> NodeLoad:
        """The node and what is allocated on it."""

    def desired(self, uid: str) -> RunPod | None:
        """The newest spec of a pod that still lives; None for one that has ended or must end."""

    def told(self, uid: str, event: LifecycleEvent) -> None: ...
    def look_again(self, uid: str) -> None: ...
    def preempt(self, victims: Iterable[Pod]) -> None: ...


class ResizeMetrics(Protocol):
    """What is measured; `meters.NodeMeters` counts it."""

    def resize_requested(self, resource: str, requirement: str, operation: str) -> None: ...
    def resize_accepted_late(self, trigger: str) -> None: ...
    def resize_infeasible(self, label: str) -> None: ...
    def resize_took(self, seconds: float, *, success: bool) -> None: ...


class Resizes:
    def __init__(
        self,
        policy: ResizePolicyOfNode,
        checkpoint: Checkpoint,
        pods: PodRegistry,
        conditions: Callable[[], Iterable[NodeCondition]],
        clock: Callable[[], float],
        counts: ResizeMetrics,
    ) -> None:
        self._policy, self._checkpoint, self._pods = policy, checkpoint, pods
        self._conditions, self._clock, self._counts = conditions, clock, counts
        self._marks: dict[str, ResizeConditions] = {}
        self._queue: dict[str, None] = {}  # uids, in the order they came
        self._stir = asyncio.Event()
        self._trigger: Trigger | None = None  # why all that wait are to be judged
        self._started = False

    # --- what happened ---

    def known(self, uid: str, conditions: Iterable[RunCondition], generation: int) -> None:
        """A pod of an earlier run: what its status says of resizes holds until it is judged anew."""
        self._marks[uid] = conditions_from_status(conditions, generation, self._clock())
        self._queue[uid] = None

    def changed(self, uid: str) -> None:
        """A new document with other resources: judge it now, before the others that wait."""
        self._queue[uid] = None
        if self._started:
            self.evaluate("pod_updated")
            self._stir.set()

    def forget(self, uid: str) -> None:
        self._marks.pop(uid, None)
        self._queue.pop(uid, None)

    def over(self, uid: str) -> None:
        """It has ended: nothing is told of its resizes any more, and its place is free."""
        self.forget(uid)
        self.room("pod_terminated")

    def room(self, trigger: Trigger) -> None:
        """Something may fit now that did not; judged soon, many reasons together."""
        if self._queue:
            self._trigger = trigger
            self._stir.set()

    def begin(self) -> None:
        """From here on resizes are judged: all pods of the first list have been admitted."""
        self._started = True
        self.evaluate("pods_added")

    async def run(self) -> None:
        """What waits is judged again when there is room, or a while after it was judged last."""
        pause_s = RETRY_FIRST_S
        while True:
            try:
                async with asyncio.timeout(pause_s):
                    await self._stir.wait()
            except TimeoutError:
                self._trigger = "periodic_retry"
            self._stir.clear()
            pause_s = RETRY_S
            trigger, self._trigger = self._trigger, None
            if trigger is not None:
                self.evaluate(trigger)

    # --- what is known ---

    def marks(self, uid: str) -> ResizeConditions:
        return self._marks.get(uid, NO_RESIZE_CONDITIONS)

    def pending(self) -> dict[str, int]:
        """How many wait, by reason."""
        counted = {"deferred": 0, "infeasible": 0}
        for each in self._marks.values():
            if each.pending is not None:
                counted[each.pending.reason.lower()] += 1
        return counted

    def in_progress(self) -> int:
        return sum(each.progress is not None for each in self._marks.values())

    # --- verdicts ---

    def evaluate(self, trigger: Trigger) -> None:
        waiting = []
        for uid in list(self._queue):
            pod, allocation = self._pods.desired(uid), self._checkpoint.get(uid).allocation
            if pod is None or allocation is None:
                self._queue.pop(uid)
                continue
            pending = self.marks(uid).pending
            waiting.append(PendingResize(pod, allocation, pending.since_s if pending is not None else None))
        for each in queue_order(waiting):
            self._judge(each.desired, each.allocation, trigger)

    def _judge(self, pod: Pod, allocation: Allocation, trigger: Trigger) -> None:
        uid, before = pod.metadata.uid, self.marks(pod.metadata.uid)
        verdict = self._written_down(uid, allocation, self._verdict(pod, allocation))
        marks, event = judged(before, pod, verdict, self._clock())
        if not verdict.still_pending:
            self._queue.pop(uid, None)
        if verdict.decision == "Accepted":
            self._policy.give_cpus(allocated_pod(pod, verdict.allocation))
            self._pods.preempt(verdict.victims)
        self._count(before, verdict, event, trigger)
        self._put(uid, marks)
        if event is not None:
            self._pods.told(uid, event)
        if is_news(before, marks):
            self._pods.look_again(uid)

    def _written_down(self, uid: str, before: Allocation, verdict: ResizeVerdict) -> ResizeVerdict:
        """The verdict; what would be accepted and cannot be written down has to wait."""
        if verdict.decision != "Accepted":
            return verdict
        self._checkpoint.put(uid, allocation=verdict.allocation)
        try:
            self._checkpoint.save()
        except CheckpointWriteError as error:
            self._checkpoint.put(uid, allocation=before)
            return ResizeVerdict("Deferred", before, str(error), "Deferred", still_pending=True)
        return verdict

    def _verdict(self, pod: Pod, allocation: Allocation) -> ResizeVerdict:
        if is_allocated(pod, allocation):
            return ResizeVerdict("NoChange", allocation)
        policy = self._policy
        return resize_verdict(
            pod,
            allocation,
            ResizeSetting(
                self._pods.load(),
                policy.profile,
                policy.gates,
                policy.static_cpus,
                policy.static_memory,
                tuple(self._conditions()),
                absolute_allocatable=policy.absolute_allocatable,
                may_swap=policy.may_swap,
                cpu_refusal=policy.cpu_refusal,
                enabled=policy.enabled,
            ),
        )

    # --- carrying out ---

    def done(self, pod: Pod) -> None:
        """The worker has handed out everything that is allocated."""
        before = self.marks(pod.metadata.uid)
        marks, event = finished(before, pod)
        if event is None:
            return
        if before.progress is not None:
            self._counts.resize_took(self._clock() - before.progress.since_s, success=True)
        self._put(pod.metadata.uid, marks)
        self._pods.told(pod.metadata.uid, event)
        self.room("pod_resized")

    def failed(self, pod: Pod, error: str) -> None:
        before = self.marks(pod.metadata.uid)
        marks, event = failed(before, pod, error, self._clock())
        self._put(pod.metadata.uid, marks)
        if event is not None:
            if before.progress is not None:
                self._counts.resize_took(self._clock() - before.progress.since_s, success=False)
            self._pods.told(pod.metadata.uid, event)

    def _put(self, uid: str, marks: ResizeConditions) -> None:
        if marks == NO_RESIZE_CONDITIONS:
            self._marks.pop(uid, None)
        else:
            self._marks[uid] = marks

    def _count(
        self, before: ResizeConditions, verdict: ResizeVerdict, event: LifecycleEvent | None, trigger: Trigger
    ) -> None:
        was_deferred = before.pending is not None and before.pending.reason == "Deferred"
        if verdict.decision == "Accepted" and was_deferred:
            self._counts.resize_accepted_late(trigger)
        elif verdict.decision == "Infeasible" and event is not None:
            self._counts.resize_infeasible(verdict.label)
