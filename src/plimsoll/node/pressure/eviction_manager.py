"""The eviction loop: look at the signals, decide, reclaim, end one pod, look again (04 §3).

Looking is paced by how near the next threshold is and how fast it comes nearer (`rules.eviction.polling`), and kernel
events cut the pause short: usage thresholds on v1, memory.events and pressure stall triggers on v2. None of them is
needed for correctness; they only save time.

One pass ends at most one pod, and nobody else is chosen until that pod's memory is free, or for as long as Kubernetes
waits for it: so nobody is evicted for memory that is about to come back. The same holds for whoever is being ended
already: by an agent before this one, for a limit of its own, to make room for a critical pod. Their grace shrinks to
what an eviction would give them now. Passes go on meanwhile, so a hard threshold hurries the victim of a soft one.

Memory comes first, and waits for nothing slow: while volumes are walked or images removed for a full disk it is looked
at all the same, and pods above a storage limit of their own are found by a task beside this one (`storage_limits`).

Conditions go up with the first look that meets a threshold and come down after the transition period;
`conditions_changed` is told at once. Every decision is kept with the order and the figures that made it (`decisions`).
What goes wrong in one pass, a disk that is full, a cgroup that went away, is logged, and the next pass comes all the
same.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import NamedTuple, Protocol

import msgspec

from plimsoll.cgroups.stats.notifications import CgroupWatcher
from plimsoll.cgroups.stats.usage import CgroupOpener
from plimsoll.errors import PlimsollError
from plimsoll.linux.cgroup_files import CgroupError
from plimsoll.node.pressure.decision_log import DecisionLog
from plimsoll.node.pressure.signals import Observations, UsageMark
from plimsoll.node.pressure.storage_limits import LimitedPods, StorageLimits
from plimsoll.rules.config.thresholds import DEFAULT_TRANSITION_PERIOD_S, FsLayout, Threshold
from plimsoll.rules.eviction.assessment import (
    NO_PRESSURE,
    RESOURCE_OF,
    NodeCondition,
    Pressure,
    assess,
    eviction_grace_s,
    met_thresholds,
    node_reclaim,
    reclaimed,
    wanted,
)
from plimsoll.rules.eviction.decision import THRESHOLD_MET, EvictionDecision, attempt_text, decision
from plimsoll.rules.eviction.polling import POLL_LEAST_S, RESTING_LEAST_S, Trend, next_poll_s, trend
from plimsoll.rules.eviction.ranking import PIDS
from plimsoll.rules.model.gates import DEFAULT_GATES, Gates
from plimsoll.rules.model.objects import MEMORY, Pod

OTHERS_EVERY_S = 10.0  # file systems and process numbers: as often as a kubelet
STALL_US, STALL_WINDOW_US = 50_000, 1_000_000
REARM_S = 10.0  # §2.5: limits and page cache move, and the kernel's marks with them
AFTER_TROUBLE_S = 1.0
NOBODY_AGAIN_S = 10.0  # §3.15: nobody could be evicted
RECLAIM_EVERY_S = 10.0  # who is back at the threshold so soon after a reclaim needs more than another one
_KERNEL = "kernel"
_LOG = logging.getLogger(__name__)


class SignalSource(Protocol):
    """What `signals.Signals` sees of a real node; tests and simulations see others."""

    def memory(self) -> Observations: ...
    def others(self) -> Observations: ...
    def usage_marks(self, thresholds: Iterable[Threshold]) -> set[UsageMark]: ...


def seen_now(sight: SignalSource) -> Observations:
    return {**sight.others(), **sight.memory()}


class Victims(LimitedPods, Protocol):
    """The pods that can be evicted (`active`, with their allocated resources), and how it is done."""

    def ending(self) -> Sequence[Pod]:
        """Who is being ended by the node, still holds something and is waited for."""

    async def one_is_gone(self) -> None:
        """Until one of them holds nothing any more."""

    async def hurry(self, uid: str, grace_s: int) -> None:
        """One of them may take that long from now on, where it was given more."""

    async def evict(self, uid: str, found: EvictionDecision) -> None:
        """Begins to end the pod as the decision says."""

    async def reclaim(self, action: str) -> None:
        """`delete dead containers`, `delete unused images`."""


class _Nobody(NamedTuple):
    """When nobody could be evicted, for what, and who was looked at."""

    time_s: float
    signal: str
    uids: frozenset[str]


class EvictionManager:
    def __init__(
        self,
        signals: SignalSource,
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
        gates: Gates = DEFAULT_GATES,
        decisions: DecisionLog | None = None,
    ) -> None:
        """`event`: type, reason, message of an event on the node. `counted`: a pod goes for this signal, on figures
        that are so many seconds old.

        `reclaim_memory`: bytes wanted → bytes gained. `storage_limits`: localStorageCapacityIsolation. `gates`: the
        gate PodLevelResources.
        """
        self._gates = gates
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
        self._is_slow = False  # something is done about disks
        self._is_waiting = False  # for somebody who is being ended
        self._nobody: _Nobody | None = None
        self.limits = (
            StorageLimits(victims, layout, clock=clock, counted=counted, gates=gates) if storage_limits else None
        )
        self._looked_s = self._armed_s = self._reclaimed_s = float("-inf")
        self._marks: set[UsageMark] = set()
        self._is_told = False  # by the kernel, at every threshold on memory
        self.decisions = DecisionLog() if decisions is None else decisions  # an empty one is false

    @property
    def conditions(self) -> tuple[NodeCondition, ...]:
        return self._pressure.conditions

    @property
    def observations(self) -> Observations:
        return self._pressure.observations

    async def run(self, files: CgroupOpener | None, pods_path: str) -> None:
        """For ever. `files` and `pods_path`: where kernel events come from."""
        async with asyncio.TaskGroup() as group, CgroupWatcher[str]() as watcher:
            if self.limits is not None:
                group.create_task(self.limits.run(), name="storage limits")
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
        urgent = [each for each in found.urgent if not self._is_slow or RESOURCE_OF[each.signal] == MEMORY]
        self._is_waiting = bool(urgent) and await self._is_anybody_ending(urgent[0])
        if not urgent or self._is_waiting or self._is_nobody_left(urgent[0], now_s):
            return False
        if RESOURCE_OF[urgent[0].signal] == MEMORY:
            return await self._act(urgent, observations)
        return await self._slowly(self._act(urgent, observations))

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
        pause = next_poll_s(self._trends.values(), kernel_notifies=self._is_told)
        if self._pressure.first_met_s:  # a soft threshold's grace runs, or what is met is exempt
            pause = min(pause, 1.0)
        return min(pause, self._others_pause_s())

    async def _wait(self, watcher: CgroupWatcher[str]) -> None:
        try:
            async with asyncio.timeout(self.pause_s()):
                await (self._victims.one_is_gone() if self._is_waiting else anext(watcher))
        except TimeoutError:
            return
        # Events may come in swarms; one look answers them all.
        await asyncio.sleep(max(0.0, self._looked_s + POLL_LEAST_S - self._clock()))

    def _watch_events(self, watcher: CgroupWatcher[str], files: CgroupOpener, pods_path: str) -> None:
        """v2: whatever this kernel tells of by itself; what it refuses is only slower."""
        try:
            with files.directory(pods_path, "memory.events") as directory:
                watcher.file_changes(_KERNEL, directory, "memory.events")
                watcher.pressure(_KERNEL, "memory", "some", STALL_US, STALL_WINDOW_US, directory=directory)
        except (CgroupError, OSError) as error:
            _LOG.info("the kernel does not tell of every shortage by itself, looking alone will do: %s", error)

    def _watch_usage(self, watcher: CgroupWatcher[str], files: CgroupOpener) -> None:
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

    async def _is_anybody_ending(self, threshold: Threshold) -> bool:
        """They go before anybody else, with no more time than if they were chosen now."""
        ending = self._victims.ending()
        for pod in ending:
            grace_s = eviction_grace_s(threshold, pod, self._max_pod_grace_s, self._hard_grace_s)
            await self._victims.hurry(pod.metadata.uid, grace_s)
        return bool(ending)

    def _is_nobody_left(self, threshold: Threshold, now_s: float) -> bool:
        """Whether it was just found that nobody can go, and the same pods are there."""
        last = self._nobody
        if last is None or last.signal != threshold.signal or now_s - last.time_s >= NOBODY_AGAIN_S:
            return False
        return last.uids == self._uids()

    def _uids(self) -> frozenset[str]:
        return frozenset(pod.metadata.uid for pod in self._victims.active())

    async def _slowly(self, act: Coroutine[None, None, bool]) -> bool:
        """What looks through disks and removes images may take minutes; memory is looked at meanwhile."""
        self._is_slow, acting = True, asyncio.create_task(act)
        try:
            while not (await asyncio.wait([acting], timeout=min(self.pause_s(), RESTING_LEAST_S)))[0]:
                try:
                    await self.turn()
                except (PlimsollError, OSError) as error:
                    _LOG.error("looking at the node's memory: %s", error)
            return acting.result()
        finally:
            self._is_slow = False
            if not acting.done():
                acting.cancel()
                await asyncio.wait([acting])

    async def _act(self, urgent: Sequence[Threshold], observations: Observations) -> bool:
        first = urgent[0]
        resource = RESOURCE_OF[first.signal]
        self._event("Warning", THRESHOLD_MET, attempt_text(resource))
        gained = await self._reclaimed_memory(first, observations) if resource == MEMORY else 0
        for action in node_reclaim(first.signal, self._layout):
            await self._reclaimed_node(action)
        if (gained or resource != MEMORY) and reclaimed(self._thresholds, seen_now(self._signals)):
            _LOG.info("%s: enough was reclaimed, no pod is evicted", first.signal)
            return True
        usage = await self._victims.usage(disks=resource not in (MEMORY, PIDS))
        # Only now the runtime has been asked: an agent that has just started learns here who was being ended before.
        self._is_waiting = await self._is_anybody_ending(first)
        if self._is_waiting:
            return False
        found = decision(
            urgent,
            observations,
            self._victims.active(),
            usage,
            layout=self._layout,
            max_pod_grace_s=self._max_pod_grace_s,
            hard_grace_s=self._hard_grace_s,
            gates=self._gates,
            time_s=self._wall(),
        )
        victim = None if found is None else found.victim
        if found is None or victim is None:
            self._nobody = _Nobody(self._clock(), first.signal, self._uids())
            _LOG.warning("%s: unable to evict any pods", first.signal)
            return False
        if gained:
            found = msgspec.structs.replace(found, reclaimed_bytes=gained)
        self.decisions.add(found)
        seen_s = observations[found.signal].time_s
        self._counted(found.signal, 0.0 if seen_s is None else self._clock() - seen_s)
        await self._victims.evict(victim.uid, found)
        return True

    async def _reclaimed_node(self, action: str) -> None:
        """What fails here leaves the next action, and then the choice of a pod (§4)."""
        try:
            await self._victims.reclaim(action)
        except (PlimsollError, OSError) as error:
            _LOG.warning("%s, before a pod is evicted: %s", action, error)

    async def _reclaimed_memory(self, threshold: Threshold, observations: Observations) -> int:
        now_s = self._clock()
        if self._reclaim_memory is None or now_s - self._reclaimed_s < RECLAIM_EVERY_S:
            return 0
        self._reclaimed_s = now_s
        seen = observations[threshold.signal]
        short = (wanted(threshold, seen.capacity, with_min_reclaim=True) - seen.available).value
        try:
            return await self._reclaim_memory(max(short, 1))
        except (PlimsollError, OSError) as error:
            _LOG.info("reclaim before eviction: %s", error)
            return 0
