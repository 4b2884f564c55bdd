"""Hands out what is allocated to a pod that runs (03 §10): from *allocated* to *actuated*, in place where that may be.

Compared are the allocated resources with the last ones that the runtime was given, never with what the kernel shows.
Containers whose policy asks for it are restarted by the pod's usual turn; here the others get their new size. Where the
agent makes the cgroups, that is one turn of the node's tree, which knows the safe order and never kills anybody for a
lower limit. Where the runtime makes them, it is told step by step, and the pod's own cgroup is written in between.

A container counts as given when the kernel has taken it, so after a refusal or a crash only the rest is tried again: as
soon as a limit that was too low for what is in use would fit, else after a while.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable

from plimsoll.cgroups.engine.executor import StepError
from plimsoll.cgroups.engine.shrink import ShrinkError
from plimsoll.errors import PlimsollError
from plimsoll.node.checkpoint import PodRecord
from plimsoll.node.dependencies import Dependencies
from plimsoll.node.resize import cri as cri_resize
from plimsoll.node.resize.queue import Resizes
from plimsoll.node.resources.pod_cgroups import lean_pod_of
from plimsoll.rules.cgroups.steps import Write
from plimsoll.rules.model.objects import MEMORY, Pod, Resources
from plimsoll.rules.model.observed import ObservedPod
from plimsoll.rules.model.runnable import RunPod, containers_of
from plimsoll.rules.quantity import ZERO
from plimsoll.rules.resize.allocation import Allocation, allocated_pod
from plimsoll.rules.resize.steps import MemoryCheck, PendingActuation, is_resize_in_progress, pending_actuation

RETRY_S, RETRY_JITTER = 10.0, 0.5
USAGE_LOOK_S = 1.0
NOTHING_LEFT = PendingActuation()


class PodResize:
    """Of one pod."""

    def __init__(self, tools: Dependencies, resizes: Resizes, uid: str) -> None:
        self._tools, self._resizes, self._uid = tools, resizes, uid
        self._refused: Pod | None = None  # the sizes that could not be had
        self._again_s = 0.0
        self._lowered: dict[str, int] = {}  # container → the memory limit that was too low
        self._told = 0  # generation whose acceptance was reported

    # --- what is left ---

    def left(self, pod: RunPod, seen: ObservedPod) -> PendingActuation:
        """`pod` is the allocated one."""
        running = _running(seen)
        if not running:
            return NOTHING_LEFT
        left = self._gently(pending_actuation(pod, self._actuated(), running, self._tools.gates))
        cgroups = self._tools.cgroups
        if not left and (cgroups.behind(self._uid) or not cgroups.is_sized_for(lean_pod_of(pod))):
            return PendingActuation(pod_level=True)  # what waits or has ended counts for the pod's own cgroup
        return left

    def _gently(self, left: PendingActuation) -> PendingActuation:
        """Nobody is restarted because we do not know what it was given: it is told once more, in place."""
        actuated = self._record().actuated
        unknown = tuple(each for each in left.restarts if each.name not in actuated)
        if not unknown:
            return left
        known = tuple(each for each in left.restarts if each.name in actuated)
        return PendingActuation(known, (*left.in_place, *unknown), left.pod_level)

    def restarts(self, left: PendingActuation) -> frozenset[str]:
        return frozenset(each.name for each in left.restarts)

    def settle(self, pod: RunPod, seen: ObservedPod) -> None:
        """Nothing more to hand out: the resize, if there was one, is completed."""
        if self._refused is not None and self.left(pod, seen):
            return
        if not is_resize_in_progress(pod, self._actuated(), _running(seen), self._tools.gates) or not _running(seen):
            self._resizes.done(pod)

    def cgroup_pod(self, pod: RunPod, held: Collection[str]) -> Pod:
        """As its cgroups are to be sized, where these containers keep what they were given last."""
        actuated = self._record().actuated
        kept = {name: actuated[name] for name in held if name in actuated}
        return lean_pod_of(allocated_pod(pod, Allocation(kept)) if kept else pod)

    def _scored_pod(self, pod: RunPod, held: Collection[str]) -> Pod:
        """As the processes of these containers are scored: by what was given last, the pod level included."""
        record = self._record()
        kept = {name: record.actuated[name] for name in held if name in record.actuated}
        holds_level = self._tools.gates.pod_level_resize
        return lean_pod_of(allocated_pod(pod, Allocation(kept, holds_level, record.actuated_pod)))

    # --- handing out ---

    def is_due(self, pod: RunPod) -> bool:
        if self._refused is None or self._refused != lean_pod_of(pod) or self._tools.clock() >= self._again_s:
            return True
        used = {name: self._tools.cgroups.memory_used(self._uid, name) for name in self._lowered}
        return bool(used) and all(u is None or u < self._lowered[name] for name, u in used.items())

    @property
    def look_again_s(self) -> float | None:
        """Not before long, while something was refused."""
        if self._refused is None:
            return None
        return min(self._again_s, self._tools.clock() + USAGE_LOOK_S) if self._lowered else self._again_s

    def is_news(self) -> bool:
        """Whether an acceptance is to be reported that has not been yet. True once for each."""
        progress = self._resizes.marks(self._uid).progress
        if progress is None or progress.generation == self._told:
            return False
        self._told = progress.generation
        return True

    async def hand_out(self, pod: RunPod, left: PendingActuation) -> bool:
        """In place. False where it was refused: that is told, and tried again later."""
        names = [each.name for each in left.in_place]
        concerned = {*names, *self.restarts(left)}
        before = self._scored_pod(pod, concerned)
        after = self.cgroup_pod(pod, self.restarts(left))
        tools = self._tools
        try:
            await tools.pinning.now()
            if tools.runtime.makes_cgroups:
                await cri_resize.hand_out(tools, after, self._actuated(), self._taken)
            else:
                await tools.cgroups.resize(after)
        except PlimsollError as error:
            if isinstance(error, StepError):
                paths = {path: name for name, path in tools.cgroups.paths(self._uid).items()}
                self._given(pod, [paths[path] for path in error.done if path in paths])
            self._failed(pod, left, error)
            tools.cgroups.rescore(before, self._scored_pod(pod, concerned))  # whoever has got his size keeps it
            return False
        tools.cgroups.rescore(before, after)
        self._given(pod, names, pod_level=True)
        self._refused = None
        self._lowered = {}
        return True

    def _failed(self, pod: RunPod, left: PendingActuation, error: PlimsollError) -> None:
        self._refused = lean_pod_of(pod)
        self._again_s = self._tools.clock() + RETRY_S * random.uniform(1.0, 1.0 + RETRY_JITTER)
        self._lowered = {}
        text = str(error)
        cause = error.cause if isinstance(error, StepError) else error
        if isinstance(cause, ShrinkError):
            paths = {path: name for name, path in self._tools.cgroups.paths(self._uid).items()}
            name = paths.get(cause.path, "")
            text = str(cause)
            if self._tools.cgroups.shrinks_safely:  # else that is the kubelet's question, and says the same by itself
                check = MemoryCheck(self._limit_bytes(pod, name, error), name or None)
                text = f"{check.text(self._tools.cgroups.memory_used(self._uid) or 0)}: {cause}"
            limits = {each.name: _memory_limit(each.resources) for each in left.in_place}
            self._lowered = {each: limit for each, limit in limits.items() if limit and each == (name or each)}
        self._resizes.failed(pod, text)

    def _limit_bytes(self, pod: RunPod, name: str, error: PlimsollError) -> int:
        """The memory limit that was refused to a container, or to the pod."""
        if isinstance(error, StepError) and isinstance(error.step, Write):
            return int(error.step.value)
        if name:
            return next(_memory_limit(each.resources) for each in containers_of(pod) if each.name == name)
        return self._tools.cgroups.work(lean_pod_of(pod)).values.memory_bytes or 0

    def _taken(self, name: str, resources: Resources) -> None:
        self._tools.checkpoint.put(self._uid, actuated={**self._record().actuated, name: resources})

    def _given(self, pod: RunPod, names: Iterable[str], *, pod_level: bool = False) -> None:
        record = self._record()
        resources = {each.name: each.resources for each in (*pod.spec.init_containers, *pod.spec.containers)}
        changes: dict[str, object] = {"actuated": {**record.actuated, **{name: resources[name] for name in names}}}
        if pod_level:
            changes["actuated_pod"] = pod.spec.resources
        self._tools.checkpoint.put(self._uid, **changes)

    # ---

    def _record(self) -> PodRecord:
        return self._tools.checkpoint.get(self._uid)

    def _actuated(self) -> Allocation:
        record = self._record()
        return Allocation(record.actuated, self._tools.gates.pod_level_resize, record.actuated_pod)


def _running(seen: ObservedPod) -> set[str]:
    return {each.name for each in seen.containers if each.phase == "running"}


def _memory_limit(resources: Resources) -> int:
    return (resources.limits or {}).get(MEMORY, ZERO).value
