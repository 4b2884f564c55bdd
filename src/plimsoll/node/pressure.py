"""The eviction loop: look at the signals, decide, reclaim, end one pod, look again (04 §3).

Looking is paced by how near the next threshold is and how fast it comes nearer (`rules.pressure_pace`), and kernel
events cut the pause short: usage thresholds on v1, memory.events and pressure stall triggers on v2. None of them is
needed for correctness; they only save time.

One pass ends at most one pod. The next pass begins when that pod's memory is free, or after the time Kubernetes gives
for it: so nobody is evicted for memory that is about to come back. Conditions go up with the first look that meets a
threshold and come down after the transition period; `conditions_changed` is told at once.

Every decision is kept with the order and the figures that made it (`decisions`). What goes wrong in one pass, a disk
that is full, a cgroup that went away, is logged, and the next pass comes all the same.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from plimsoll.cgroups.events import Watcher
from plimsoll.cgroups.usage import Opens
from plimsoll.errors import PlimsollError
from plimsoll.linux.beneath import CgroupError
from plimsoll.node.decision_log import DecisionLog
from plimsoll.node.signals import Observations, UsageMark
from plimsoll.rules.eviction import (
    CLEANUP_WAIT_S,
    NO_PRESSURE,
    RESOURCE_OF,
    NodeCondition,
    Pressure,
    assess,
    met_thresholds,
    node_reclaim,
    reclaimed,
    wanted,
)
from plimsoll.rules.eviction_decision import THRESHOLD_MET, Decision, attempt_text, decision
from plimsoll.rules.eviction_reasons import LimitFinding, limit_finding
from plimsoll.rules.objects import EPHEMERAL_STORAGE, MEMORY, Pod
from plimsoll.rules.pressure_pace import LOOK_LEAST_S, LOOK_MOST_S, Trend, next_look_s, trend
from plimsoll.rules.thresholds import DEFAULT_TRANSITION_PERIOD_S, FsLayout, Threshold
from plimsoll.rules.usage import PodUsage

OTHERS_EVERY_S = 10.0  # file systems and process numbers: as often as a kubelet
STALL_US, STALL_WINDOW_US = 50_000, 1_000_000
LIMIT_GRACE_S = 1.0  # §6
REARM_S = 10.0  # §2.5: limits and page cache move, and the kernel's marks with them
AFTER_TROUBLE_S = 1.0
RECLAIM_EVERY_S = 10.0  # who is back at the threshold so soon after a reclaim needs more than another one
_KERNEL = "kernel"
_LOG = logging.getLogger(__name__)


class Sight(Protocol):
    """What `signals.Signals` sees of a real node; tests and simulations see others."""

    def memory(self) -> Observations: ...
    def others(self) -> Observations: ...
    def usage_marks(self, thresholds: Iterable[Threshold]) -> set[UsageMark]: ...


class Victims(Protocol):
    """The pods that can be evicted, and how it is done."""

    def active(self) -> Sequence[Pod]:
        """Pods with containers that run or may, with their allocated resources."""

    async def usage(self, *, disks: bool) -> Mapping[str, PodUsage]:
        """By uid. Looking at disks costs more, and only some signals ask for it."""

    async def evict(self, uid: str, found: Decision) -> None:
        """Ends the pod as the decision says; returns when its containers are dead and its cgroups gone."""

    async def evict_for_limit(self, found: LimitFinding, grace_s: float) -> None: ...

    async def reclaim(self, action: str) -> None:
        """`delete dead containers`, `delete unused images`."""


class PressureLoop:
    def __init__(
        self,
        signals: Sight,
        thresholds: Sequence[Threshold],
        victims: Victims,
        *,
        clock: Callable[[], float],
        wall: Callable[[], float],
        event: Callable[[str, str, str], None],
        conditions_changed: Callable[[], None] = lambda: None,
        counted: Callable[[str, float], None] = lambda _signal, _age_s: None,
        layout: FsLayout = "single",
        max_pod_grace_s: int = 0,
        hard_grace_s: int | None = None,
        transition_period_s: float = DEFAULT_TRANSITION_PERIOD_S,
        reclaim_memory: Callable[[int], Awaitable[int]] | None = None,
        storage_limits: bool = True,
        pod_level: bool = True,
        decisions: DecisionLog | None = None,
    ) -> None:
        """`event`: type, reason, message of an event on the node. `counted`: a pod goes for this signal, on figures
        that are so many seconds old.

        `reclaim_memory`: bytes wanted → bytes gained. `storage_limits`: localStorageCapacityIsolation. `pod_level`: the
        gate PodLevelResources.
        """
        self._pod_level = pod_level
        self._signals, self._thresholds, self._victims = signals, tuple(thresholds), victims
        self._clock, self._wall, self._event, self._changed = clock, wall, event, conditions_changed
        self._layout, self._max_pod_grace_s, self._hard_grace_s = layout, max_pod_grace_s, hard_grace_s
        self._transition_period_s, self._reclaim_memory = transition_period_s, reclaim_memory
        self._counted = counted
        self._memory_thresholds = tuple(each for each in thresholds if RESOURCE_OF[each.signal] == MEMORY)
        self._pressure: Pressure = NO_PRESSURE
        self._trends: dict[Threshold, Trend] = {}
        self._others: Observations = {}
        self._others_at_s = float("-inf")
        self._limits_at_s = float("-inf") if storage_limits else float("inf")
        self._looked_s = self._armed_s = self._reclaimed_s = float("-inf")
        self._marks: set[UsageMark] = set()
        self._is_told = False  # by the kernel, at every threshold on memory
        self.decisions = decisions or DecisionLog()

    @property
    def conditions(self) -> tuple[NodeCondition, ...]:
        return self._pressure.conditions

    @property
    def observations(self) -> Observations:
        return self._pressure.observations

    async def run(self, files: Opens | None, pods_path: str) -> None:
        """For ever. `files` and `pods_path`: where kernel events come from."""
        async with Watcher[str]() as watcher:
            if files is not None and files.version == 2:
                self._watch_events(watcher, files, pods_path)
            while True:
                try:
                    if files is not None and files.version == 1:
                        self._watch_usage(watcher, files)
                    if await self.turn():
                        continue
                except (PlimsollError, OSError) as error:
                    _LOG.error("looking at the node's signals: %s", error)
                    await asyncio.sleep(AFTER_TROUBLE_S)
                await self._wait(watcher)

    async def turn(self) -> bool:
        """One pass; whether a pod was ended, and so the next pass is due at once."""
        now_s = self._clock()
        observations = self._look(now_s)
        before = self._pressure.conditions
        found = assess(self._thresholds, observations, self._pressure, now_s, self._transition_period_s)
        self._pressure = found.pressure
        if found.pressure.conditions != before:
            self._changed()
        if await self._over_own_limits(now_s):
            return True
        if not found.urgent:
            return False
        return await self._act(found.urgent, observations)

    # ---

    def _look(self, now_s: float) -> Observations:
        memory = self._signals.memory()
        if now_s - self._others_at_s >= self._others_pause_s():
            self._others, self._others_at_s = self._signals.others(), now_s
        for threshold in self._memory_thresholds:
            if (seen := memory.get(threshold.signal)) is not None:
                distance = float((seen.available - wanted(threshold, seen.capacity)).value)
                self._trends[threshold] = trend(distance, now_s, self._trends.get(threshold))
        self._looked_s = now_s
        return {**self._others, **memory}

    def _others_pause_s(self) -> float:
        """Once a threshold on disks or processes is met they are looked at with every pass, paced like memory."""
        met = met_thresholds(self._thresholds, self._others, with_min_reclaim=True)
        return 1.0 if met else OTHERS_EVERY_S

    def pause_s(self) -> float:
        """Until the next look, where no kernel event comes first."""
        pause = next_look_s(self._trends.values(), told=self._is_told)
        if self._pressure.first_met_s:  # a soft threshold's grace runs, or what is met is exempt
            pause = min(pause, 1.0)
        return min(pause, self._others_pause_s())

    async def _wait(self, watcher: Watcher[str]) -> None:
        try:
            async with asyncio.timeout(self.pause_s()):
                await anext(watcher)
        except TimeoutError:
            return
        # Events may come in swarms; one look answers them all.
        await asyncio.sleep(max(0.0, self._looked_s + LOOK_LEAST_S - self._clock()))

    def _watch_events(self, watcher: Watcher[str], files: Opens, pods_path: str) -> None:
        """v2: whatever this kernel tells of by itself; what it refuses is only slower."""
        try:
            with files.directory(pods_path, "memory.events") as directory:
                watcher.file_changes(_KERNEL, directory, "memory.events")
                watcher.pressure(_KERNEL, "memory", "some", STALL_US, STALL_WINDOW_US, directory=directory)
        except (CgroupError, OSError) as error:
            _LOG.info("the kernel does not tell of every shortage by itself, looking alone will do: %s", error)

    def _watch_usage(self, watcher: Watcher[str], files: Opens) -> None:
        """v1: at the usage where a threshold would be met; as limits and page cache move, so does that (§2.5)."""
        now_s = self._clock()
        if now_s - self._armed_s < REARM_S:
            return
        self._armed_s = now_s
        marks = self._signals.usage_marks(self._memory_thresholds)
        if marks == self._marks:
            return
        watcher.forget(_KERNEL)
        self._marks, self._is_told = marks, bool(marks)
        for mark in marks:
            try:
                with files.directory(mark.path, "memory.usage_in_bytes") as directory:
                    watcher.usage_threshold(_KERNEL, directory, mark.usage_bytes)
            except (CgroupError, OSError) as error:
                self._is_told = False
                _LOG.info("no notification at %s, looking alone will do: %s", mark, error)

    async def _over_own_limits(self, now_s: float) -> bool:
        """Pods above a storage limit of their own, as often as a kubelet looks (§6)."""
        if now_s - self._limits_at_s < LOOK_MOST_S:
            return False
        self._limits_at_s = now_s
        if not any(_limits_storage(pod) for pod in self._victims.active()):
            return False
        usage = await self._victims.usage(disks=True)
        pods = [pod for pod in self._victims.active() if _limits_storage(pod)]
        findings = [
            limit_finding(pod, usage.get(pod.metadata.uid), self._layout, pod_level=self._pod_level) for pod in pods
        ]
        for finding in filter(None, findings):
            self._counted(finding.signal, self._clock() - now_s)
            try:
                async with asyncio.timeout(CLEANUP_WAIT_S):
                    await self._victims.evict_for_limit(finding, LIMIT_GRACE_S)
            except TimeoutError:
                _LOG.warning("pod %s is not gone %d s after its eviction", finding.pod.metadata.name, CLEANUP_WAIT_S)
        return any(findings)

    async def _act(self, urgent: Sequence[Threshold], observations: Observations) -> bool:
        first = urgent[0]
        resource = RESOURCE_OF[first.signal]
        self._event("Warning", THRESHOLD_MET, attempt_text(resource))
        gained = 0
        if resource == MEMORY:
            gained = await self._reclaimed_memory(first, observations)
        for action in node_reclaim(first.signal, self._layout):
            await self._victims.reclaim(action)
        if gained or resource != MEMORY:
            fresh = {**self._signals.others(), **self._signals.memory()}
            if reclaimed(self._thresholds, fresh):
                _LOG.info("%s: enough was reclaimed, no pod is evicted", first.signal)
                return True
        usage = await self._victims.usage(disks=resource != MEMORY)
        found = decision(
            urgent,
            observations,
            self._victims.active(),
            usage,
            layout=self._layout,
            max_pod_grace_s=self._max_pod_grace_s,
            hard_grace_s=self._hard_grace_s,
            pod_level=self._pod_level,
            time_s=self._wall(),
        )
        victim = None if found is None else found.victim
        if found is None or victim is None:
            _LOG.warning("%s: unable to evict any pods", first.signal)
            return False
        if gained:
            found = msgspec.structs.replace(found, reclaimed_bytes=gained)
        self.decisions.add(found)
        seen_s = observations[found.signal].time_s
        self._counted(found.signal, 0.0 if seen_s is None else self._clock() - seen_s)
        try:
            async with asyncio.timeout(CLEANUP_WAIT_S):
                await self._victims.evict(victim.uid, found)
        except TimeoutError:
            _LOG.warning("pod %s is not gone %d s after its eviction", victim.name, CLEANUP_WAIT_S)
        return True

    async def _reclaimed_memory(self, threshold: Threshold, observations: Observations) -> int:
        now_s = self._clock()
        if self._reclaim_memory is None or now_s - self._reclaimed_s < RECLAIM_EVERY_S:
            return 0
        self._reclaimed_s = now_s
        seen = observations[threshold.signal]
        short = (wanted(threshold, seen.capacity, with_min_reclaim=True) - seen.available).value
        try:
            return await self._reclaim_memory(max(short, 1))
        except PlimsollError as error:
            _LOG.info("reclaim before eviction: %s", error)
            return 0


def _limits_storage(pod: Pod) -> bool:
    """Whether any storage limit is declared at all; looking at disks is not free."""
    return any(
        EPHEMERAL_STORAGE in (each.resources.limits or {}) for each in (*pod.spec.containers, *pod.spec.init_containers)
    ) or any(volume.empty_dir is not None and volume.empty_dir.size_limit is not None for volume in pod.spec.volumes)
