"""Actuates what is allocated to a running pod (03 §10): from *allocated* to *actuated*, in place where possible.

Allocated resources are compared with those last actuated, never with what the kernel shows. Containers whose resize
policy requires it are restarted by the pod's usual sync; the others get their new size here, through
`ContainerCgroups.actuate`.

A container counts as actuated when the kernel has taken its size, so after a failure or a crash only the rest is
retried: as soon as a limit that was too low for the memory in use would fit, otherwise after a pause.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable

import msgspec

from plimsoll.cgroups.engine.executor import StepError
from plimsoll.cgroups.engine.shrink import ShrinkError
from plimsoll.errors import PlimsollError
from plimsoll.node.checkpoint import Checkpoint, PodRecord
from plimsoll.node.resize.queue import Resizes
from plimsoll.node.resources.container_cgroups import ContainerCgroups
from plimsoll.node.resources.cpu_manager import CpuPinning
from plimsoll.node.resources.pod_cgroups import PodCgroups
from plimsoll.node.resources.workloads import lean_pod_of
from plimsoll.rules.cgroups.steps import Write
from plimsoll.rules.model.gates import Gates
from plimsoll.rules.model.objects import MEMORY, NO_RESOURCES, Container, Pod
from plimsoll.rules.model.observed import LifecycleEvent, ObservedPod
from plimsoll.rules.model.runnable import RunPod, containers_of
from plimsoll.rules.quantity import from_units
from plimsoll.rules.resize.allocation import (
    Allocation,
    actuated_after,
    allocated_pod,
    kept_sizes,
    whole_amount,
    with_pod_limits,
)
from plimsoll.rules.resize.steps import MemoryCheck, PendingActuation, is_resize_in_progress, pending_actuation

RETRY_S, RETRY_JITTER = 10.0, 0.5
USAGE_POLL_S = 1.0
NOTHING_PENDING = PendingActuation()


class PodResize:
    """Of one pod."""

    def __init__(
        self,
        uid: str,
        pods: PodCgroups,
        containers: ContainerCgroups,
        pinning: CpuPinning,
        resizes: Resizes,
        checkpoint: Checkpoint,
        gates: Gates,
        emit: Callable[[RunPod, LifecycleEvent], None],
        clock: Callable[[], float],
    ) -> None:
        self._uid, self._pods, self._containers, self._pinning = uid, pods, containers, pinning
        self._resizes, self._checkpoint = resizes, checkpoint
        self._gates, self._emit, self._clock = gates, emit, clock
        self._refused: Pod | None = None  # the sizes that could not be actuated
        self._retry_s = 0.0
        self._lowered: dict[str, int] = {}  # container → the memory limit that was too low
        self._reported = 0  # generation whose acceptance was reported

    # --- what is pending ---

    def pending(self, allocated: RunPod, observed: ObservedPod) -> PendingActuation:
        running = _running(observed)
        if not running:
            return NOTHING_PENDING
        pending = self._without_unknown(pending_actuation(allocated, self._actuated(), running, self._gates))
        if not pending and not self._containers.is_current(lean_pod_of(allocated)):
            return PendingActuation(pod_level=True)  # waiting and ended containers count for the pod's own cgroup
        return pending

    def _without_unknown(self, pending: PendingActuation) -> PendingActuation:
        """A container whose actuated resources are not known is updated in place, never restarted."""
        actuated = self._record().actuated
        unknown = tuple(container for container in pending.restarts if container.name not in actuated)
        if not unknown:
            return pending
        known = tuple(container for container in pending.restarts if container.name in actuated)
        return PendingActuation(known, (*pending.in_place, *unknown), pending.pod_level)

    def restarts(self, pending: PendingActuation) -> frozenset[str]:
        return frozenset(container.name for container in pending.restarts)

    def settle(self, allocated: RunPod, observed: ObservedPod) -> None:
        """Report a resize as completed if nothing is pending any more."""
        running = _running(observed)
        if self._refused is not None and self.pending(allocated, observed):
            return
        if not is_resize_in_progress(allocated, self._actuated(), running, self._gates) or not running:
            self._report(allocated, self._resizes.done(allocated))

    def cgroup_pod(self, allocated: RunPod, unchanged: Collection[str]) -> Pod:
        """As its cgroups are to be sized, if these containers keep their actuated resources."""
        sizes = kept_sizes(self._actuated(), unchanged, allocated.spec.resources)
        return lean_pod_of(allocated_pod(allocated, Allocation(sizes)) if sizes else allocated)

    def _scored_pod(self, allocated: RunPod, containers: Collection[str]) -> Pod:
        """As the processes of these containers are scored: by what was last actuated, pod level included."""
        record = self._record()
        sizes = {name: record.actuated[name] for name in containers if name in record.actuated}
        return lean_pod_of(
            allocated_pod(allocated, Allocation(sizes, self._gates.pod_level_resize, record.actuated_pod))
        )

    # --- actuation ---

    def is_due(self, allocated: RunPod) -> bool:
        if self._refused is None or self._refused != lean_pod_of(allocated) or self._clock() >= self._retry_s:
            return True
        used = {name: self._pods.readings.memory_used(self._uid, name) for name in self._lowered}
        return bool(used) and all(u is None or u < self._lowered[name] for name, u in used.items())

    @property
    def requeue_s(self) -> float | None:
        """When to check again, while something was refused."""
        if self._refused is None:
            return None
        return min(self._retry_s, self._clock() + USAGE_POLL_S) if self._lowered else self._retry_s

    def is_news(self) -> bool:
        """Whether an acceptance has not been reported yet. True once for each."""
        progress = self._resizes.conditions(self._uid).progress
        if progress is None or progress.generation == self._reported:
            return False
        self._reported = progress.generation
        return True

    async def actuate(self, allocated: RunPod, pending: PendingActuation) -> bool:
        """In place. False if it was refused: that is reported, and retried later."""
        names = [container.name for container in pending.in_place]
        concerned = {*names, *self.restarts(pending)}
        before = self._scored_pod(allocated, concerned)
        after = self.cgroup_pod(allocated, self.restarts(pending))
        try:
            await self._pinning.now()
            await self._containers.actuate(after, self._actuated(), lambda name: self._mark(allocated, [name]))
        except PlimsollError as error:
            self._failed(allocated, pending, error)
            # Containers that were resized keep their new oom_score_adj.
            self._pods.rescore(before, self._scored_pod(allocated, concerned))
            return False
        self._pods.rescore(before, after)
        self._mark(allocated, names, pod_level=True)
        self._refused = None
        self._lowered = {}
        return True

    def _failed(self, allocated: RunPod, pending: PendingActuation, error: PlimsollError) -> None:
        self._refused = lean_pod_of(allocated)
        self._retry_s = self._clock() + RETRY_S * random.uniform(1.0, 1.0 + RETRY_JITTER)
        self._lowered = {}
        text = str(error)
        cause = error.cause if isinstance(error, StepError) else error
        if isinstance(cause, ShrinkError):
            names = {path: name for name, path in self._pods.paths(self._uid).items()}
            name = names.get(cause.path, "")
            text = str(cause)
            if self._pods.shrinks_safely:  # otherwise the error is the kubelet's own check, in the same words
                check = MemoryCheck(self._limit_bytes(allocated, name, error), name or None)
                text = f"{check.text(self._pods.readings.memory_used(self._uid) or 0)}: {cause}"
            limits = {container.name: self._memory_limit(allocated, container) for container in pending.in_place}
            self._lowered = {each: limit for each, limit in limits.items() if limit and each == (name or each)}
            if name and cause.lowered_to is not None:
                self._mark_lowered(name, cause.lowered_to)
        self._report(allocated, self._resizes.failed(allocated, text))

    def _limit_bytes(self, allocated: RunPod, name: str, error: PlimsollError) -> int:
        """The refused memory limit of a container, or of the pod."""
        if isinstance(error, StepError) and isinstance(error.step, Write):
            return int(error.step.value)
        if name:
            return next(self._memory_limit(allocated, each) for each in containers_of(allocated) if each.name == name)
        return self._pods.workloads.of(lean_pod_of(allocated)).values.memory_bytes or 0

    def _mark(self, allocated: RunPod, names: Iterable[str], *, pod_level: bool = False) -> None:
        sizes = actuated_after(self._actuated(), allocated, names, pod_level=pod_level)
        self._checkpoint.put_actuated(self._uid, sizes)

    def _mark_lowered(self, name: str, limit_bytes: int) -> None:
        """The limit is between the old and the new one: whatever is allocated next has to be written."""
        before = self._record().actuated
        own = before.get(name, NO_RESOURCES)
        limits = {**(own.limits or {}), MEMORY: from_units(limit_bytes, "BinarySI")}
        size = msgspec.structs.replace(own, limits=limits)
        self._checkpoint.put(self._uid, actuated={**before, name: size})

    def _memory_limit(self, allocated: RunPod, container: Container) -> int:
        size = container.resources
        if self._gates.pod_level_resize:
            size = with_pod_limits(size, allocated.spec.resources)
        return whole_amount(size.limits, MEMORY)

    # ---

    def _report(self, pod: RunPod, event: LifecycleEvent | None) -> None:
        if event is not None:
            self._emit(pod, event)

    def _record(self) -> PodRecord:
        return self._checkpoint.get(self._uid)

    def _actuated(self) -> Allocation:
        return self._record().actuated_sizes(pod_level=self._gates.pod_level_resize)


def _running(observed: ObservedPod) -> set[str]:
    return {container.name for container in observed.containers if container.phase == "running"}
