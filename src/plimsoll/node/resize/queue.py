"""Pending resizes of the node's pods: the node's verdict on each, and the order in which they are retried.

A pod whose spec requests other resources than are allocated to it is *pending*. Whenever there is a reason (its spec
changed; a pod was added, removed, terminated or shrank; the node's size changed; or time has passed), all pending ones
are judged in order, with nothing awaited in between: a decision here and the admission of a new pod never allocate the
same memory twice, and each one is judged with what the one before it has left.

An accepted resize is saved before anything else happens. What follows from a verdict is a `ResizeDecision`, which the
caller carries out before it takes the next one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from typing import Literal, Protocol

import msgspec

from plimsoll.aio import Wakeup
from plimsoll.node.checkpoint import Checkpoint, CheckpointWriteError
from plimsoll.node.metrics import NodeMeters
from plimsoll.rules.eviction.assessment import NodeCondition
from plimsoll.rules.model.objects import Pod
from plimsoll.rules.model.observed import LifecycleEvent
from plimsoll.rules.model.pod_status import RunCondition
from plimsoll.rules.model.runnable import RunPod
from plimsoll.rules.resize.allocation import Allocation, allocated_pod, is_allocated
from plimsoll.rules.resize.conditions import (
    NO_RESIZE_CONDITIONS,
    ResizeConditions,
    conditions_from_status,
    failed,
    finished,
    is_news,
    judged,
    priority_bucket,
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


class ResizeDecision(msgspec.Struct, frozen=True):
    """What follows from a verdict on a pod's resize."""

    uid: str
    accepted: Pod | None = None  # with its new allocation; its CPUs are to be assigned
    victims: tuple[Pod, ...] = ()  # pods to preempt
    event: LifecycleEvent | None = None
    requeue: bool = False  # the pod's worker must sync


class PodRegistry(Protocol):
    """The pods of the node, as far as verdicts depend on them."""

    def load(self) -> NodeLoad:
        """The node and what is allocated on it."""

    def desired(self, uid: str) -> RunPod | None:
        """The newest spec of an active pod; None for one that has ended or is being terminated."""


class Resizes:
    def __init__(
        self,
        setting: ResizeSetting,
        checkpoint: Checkpoint,
        pods: PodRegistry,
        conditions: Callable[[], Iterable[NodeCondition]],
        clock: Callable[[], float],
        meters: NodeMeters,
    ) -> None:
        """`setting`: its load and conditions are replaced by those at the time of each verdict."""
        self._setting, self._checkpoint, self._pods = setting, checkpoint, pods
        self._node_conditions, self._clock, self._meters = conditions, clock, meters
        self._conditions: dict[str, ResizeConditions] = {}
        self._queue: dict[str, None] = {}  # uids, in the order they arrived
        self._wake = Wakeup()
        self._trigger: Trigger | None = None  # why all pending ones are to be judged
        self._started = False

    # --- triggers ---

    def known(self, uid: str, conditions: Iterable[RunCondition], generation: int) -> None:
        """A pod of an earlier run: the resize conditions in its status hold until it is judged again."""
        self._conditions[uid] = conditions_from_status(conditions, generation, self._clock())
        self._queue[uid] = None

    def changed(self, uid: str) -> Iterator[ResizeDecision]:
        """A pod's spec has other resources: judge it now, with all pending ones."""
        self._queue[uid] = None
        if not self._started:
            return iter(())
        self._wake.set()
        return self.evaluate("pod_updated")

    def forget(self, uid: str) -> None:
        self._no_longer_deferred(self.conditions(uid), self._pods.desired(uid), "terminated")
        self._conditions.pop(uid, None)
        self._queue.pop(uid, None)

    def over(self, uid: str) -> None:
        """The pod has ended: its resizes are no longer reported, and its resources are free."""
        self.forget(uid)
        self.retry("pod_terminated")

    def retry(self, trigger: Trigger) -> None:
        """A pending resize may fit now; several triggers are judged together, soon."""
        if self._queue:
            self._trigger = trigger
            self._wake.set()

    def begin(self) -> Iterator[ResizeDecision]:
        """Start to judge resizes: all pods of the first list have been admitted."""
        self._started = True
        return self.evaluate("pods_added")

    async def run(self) -> AsyncIterator[ResizeDecision]:
        """Judge pending resizes again after a trigger, or some time after the last verdict."""
        pause_s = RETRY_FIRST_S
        while True:
            if not await self._wake.wait(pause_s):
                self._trigger = "periodic_retry"
            pause_s = RETRY_S
            trigger, self._trigger = self._trigger, None
            if trigger is not None:
                for decision in self.evaluate(trigger):
                    yield decision

    # --- state ---

    def conditions(self, uid: str) -> ResizeConditions:
        return self._conditions.get(uid, NO_RESIZE_CONDITIONS)

    def pending(self) -> Mapping[tuple[str, ...], int]:
        """The number of pending resizes by reason, since 1.37 also by priority."""
        by_priority = self._meters.by_priority
        counts: Counter[tuple[str, ...]] = Counter()
        if not by_priority:
            counts.update({("deferred",): 0, ("infeasible",): 0})
        for uid, conditions in self._conditions.items():
            if conditions.pending is not None:
                bucket = (priority_bucket(self._pods.desired(uid)),) if by_priority else ()
                counts[conditions.pending.reason.lower(), *bucket] += 1
        return counts

    def in_progress(self) -> int:
        return sum(conditions.progress is not None for conditions in self._conditions.values())

    # --- verdicts ---

    def evaluate(self, trigger: Trigger) -> Iterator[ResizeDecision]:
        """Each resize is judged when its decision is taken, so carry out one before taking the next."""
        waiting = []
        for uid in list(self._queue):
            pod, allocation = self._pods.desired(uid), self._checkpoint.get(uid).allocation
            if pod is None or allocation is None:
                self._queue.pop(uid)
                continue
            pending = self.conditions(uid).pending
            waiting.append(PendingResize(pod, allocation, pending.since_s if pending is not None else None))
        for each in queue_order(waiting, self._setting.gates):
            yield self._judge(each.desired, each.allocation, trigger)

    def _judge(self, pod: Pod, allocation: Allocation, trigger: Trigger) -> ResizeDecision:
        uid, before = pod.metadata.uid, self.conditions(pod.metadata.uid)
        verdict = self._saved(uid, allocation, self._verdict(pod, allocation))
        conditions, event = judged(before, pod, verdict, self._clock())
        if not verdict.still_pending:
            self._queue.pop(uid, None)
        self._count(before, pod, verdict, event, trigger)
        self._put(uid, conditions)
        is_accepted = verdict.decision == "Accepted"
        return ResizeDecision(
            uid,
            allocated_pod(pod, verdict.allocation) if is_accepted else None,
            verdict.victims if is_accepted else (),
            event,
            is_news(before, conditions),
        )

    def _saved(self, uid: str, before: Allocation, verdict: ResizeVerdict) -> ResizeVerdict:
        """The verdict; an acceptance that cannot be saved is deferred."""
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
        with self._meters.deciding("resize"):
            load, conditions = self._pods.load(), tuple(self._node_conditions())
            setting = msgspec.structs.replace(self._setting, load=load, conditions=conditions)
            return resize_verdict(pod, allocation, setting)

    # --- actuation ---

    def done(self, pod: Pod) -> LifecycleEvent | None:
        """All allocated resources are actuated. The event to emit, if a resize was in progress."""
        before = self.conditions(pod.metadata.uid)
        conditions, event = finished(before, pod)
        if event is None:
            return None
        if before.progress is not None:
            self._meters.resize_took(self._clock() - before.progress.since_s, success=True)
        self._put(pod.metadata.uid, conditions)
        self.retry("pod_resized")
        return event

    def failed(self, pod: Pod, error: str) -> LifecycleEvent | None:
        """Actuation has failed. The event to emit, unless the same failure was reported before."""
        before = self.conditions(pod.metadata.uid)
        conditions, event = failed(before, pod, error, self._clock())
        self._put(pod.metadata.uid, conditions)
        if event is not None and before.progress is not None:
            self._meters.resize_took(self._clock() - before.progress.since_s, success=False)
        return event

    def _put(self, uid: str, conditions: ResizeConditions) -> None:
        if conditions == NO_RESIZE_CONDITIONS:
            self._conditions.pop(uid, None)
        else:
            self._conditions[uid] = conditions

    def _count(
        self,
        before: ResizeConditions,
        pod: Pod,
        verdict: ResizeVerdict,
        event: LifecycleEvent | None,
        trigger: Trigger,
    ) -> None:
        was_deferred = before.pending is not None and before.pending.reason == "Deferred"
        if verdict.decision in ("Accepted", "NoChange"):
            resolution = "accepted" if verdict.decision == "Accepted" else "reverted"
            self._no_longer_deferred(before, pod, resolution)
        if verdict.decision == "Accepted" and was_deferred:
            self._meters.deferred_resizes_accepted.add(trigger)
        elif verdict.decision == "Infeasible" and event is not None:
            self._meters.infeasible_resizes.add(verdict.label)

    def _no_longer_deferred(self, before: ResizeConditions, pod: Pod | None, resolution: str) -> None:
        pending = before.pending
        if pending is not None and pending.reason == "Deferred" and pending.since_s is not None:
            waited_s = self._clock() - pending.since_s
            self._meters.deferred_resize_s.observe(waited_s, resolution, priority_bucket(pod))
