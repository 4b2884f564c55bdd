"""The eviction manager: read the signals, decide, reclaim, evict one pod, repeat (04 §3).

The interval depends on how near the next threshold is and how fast it comes nearer (`rules.eviction.polling`). Kernel
notifications cut it short: usage thresholds on v1, memory.events and pressure stall triggers on v2. They only save
time; polling alone is correct.

One pass evicts at most one pod. No other pod is chosen until its memory is free, or for as long as Kubernetes waits for
it, so that no pod is evicted for memory that is about to be freed. The same holds for every pod that the node is
already terminating: evicted by an earlier agent, for a limit of its own, or preempted. Its grace period shrinks to what
an eviction would give it now. Passes continue meanwhile, so a hard threshold shortens the grace of a soft eviction.

Memory never waits for slow work: it is still polled while volumes are measured or images removed for a full disk, and
pods above a storage limit of their own are found by a task beside this one (`StorageLimits`).

A condition is set by the first pass that meets a threshold and cleared after the transition period; the sink is
notified at once. Every decision is logged with the order and the figures behind it (`decisions`). An error in one pass,
such as a full disk or a removed cgroup, is logged, and the next pass follows.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple, Protocol

import msgspec

from plimsoll.aio import cancel_all
from plimsoll.cgroups.stats.notifications import CgroupWatcher
from plimsoll.cgroups.stats.usage import CgroupOpener
from plimsoll.errors import PlimsollError
from plimsoll.linux.cgroup_files import CgroupError
from plimsoll.node.pressure.decision_log import DecisionLog
from plimsoll.node.pressure.signals import Observations, UsageThreshold
from plimsoll.rules.config.extras import NodeExtras
from plimsoll.rules.config.thresholds import DEFAULT_TRANSITION_PERIOD_S, FsLayout, Threshold, with_containerfs
from plimsoll.rules.eviction.assessment import (
    NO_PRESSURE,
    RESOURCE_OF,
    NodeCondition,
    Pressure,
    Reclaim,
    assess,
    eviction_grace_s,
    limit_grace_s,
    met_thresholds,
    node_reclaim,
    reclaimed,
    wanted,
)
from plimsoll.rules.eviction.decision import (
    THRESHOLD_MET,
    EvictionDecision,
    LimitFinding,
    attempt_text,
    decision,
    limit_finding,
)
from plimsoll.rules.eviction.polling import POLL_LEAST_S, RESTING_LEAST_S, Trend, next_poll_s, trend
from plimsoll.rules.eviction.ranking import PIDS
from plimsoll.rules.eviction.usage import PodUsage
from plimsoll.rules.model.gates import DEFAULT_GATES, Gates
from plimsoll.rules.model.objects import EPHEMERAL_STORAGE, MEMORY, Pod
from plimsoll.rules.node.node_config import NodeConfig

OTHERS_EVERY_S = 10.0  # file systems, process numbers and storage limits: the kubelet's interval
STALL_US, STALL_WINDOW_US = 50_000, 1_000_000
REARM_S = 10.0  # §2.5: limits and page cache change, and the usage thresholds with them
RETRY_S = 1.0
NO_CANDIDATE_RETRY_S = 10.0  # §3.15: no pod could be evicted
RECLAIM_EVERY_S = 10.0  # a node that is back at the threshold sooner needs more than another reclaim
_KERNEL = "kernel"
_LOG = logging.getLogger(__name__)


class EvictionConfig(msgspec.Struct, frozen=True):
    thresholds: tuple[Threshold, ...]
    layout: FsLayout = "single"
    max_pod_grace_s: int = 0
    hard_grace_s: int | None = None
    transition_period_s: float = DEFAULT_TRANSITION_PERIOD_S
    storage_limits: bool = True  # localStorageCapacityIsolation
    gates: Gates = DEFAULT_GATES


def eviction_config(setting: NodeConfig, extras: NodeExtras, layout: FsLayout) -> EvictionConfig:
    config = setting.config
    return EvictionConfig(
        with_containerfs(setting.thresholds, layout),
        layout,
        max_pod_grace_s=config.eviction_max_pod_grace_period_s,
        hard_grace_s=extras.eviction_hard_grace_s,
        transition_period_s=config.eviction_pressure_transition_period_s,
        storage_limits=config.local_storage_capacity_isolation,
        gates=setting.policy.gates,
    )


class EvictionSink(Protocol):
    """Where the eviction manager reports."""

    def event(self, kind: str, reason: str, message: str, /) -> None:
        """An event about the node."""

    def condition_changed(self) -> None:
        """The pressure conditions of the node are not what they were."""

    def evicted(self, signal: str, age_s: float, /) -> None:
        """A pod is evicted for this signal, `age_s` seconds after the signal was read."""


class SignalSource(Protocol):
    """`signals.Signals` reads a real node; tests and simulations provide others."""

    def memory(self) -> Observations: ...
    def others(self) -> Observations: ...
    def usage_thresholds(self, thresholds: Iterable[Threshold]) -> set[UsageThreshold]: ...


def observe_now(signals: SignalSource) -> Observations:
    return {**signals.others(), **signals.memory()}


class EvictablePods(Protocol):
    """The pods that can be evicted (`active`, with their allocated resources), and how they are evicted."""

    def active(self) -> Sequence[Pod]: ...
    async def usage(self, *, disks: bool) -> Mapping[str, PodUsage]: ...
    async def evict_for_limit(self, finding: LimitFinding, grace_s: int) -> None: ...

    def terminating(self) -> Sequence[Pod]:
        """Pods that the node terminates, that still use resources and that eviction waits for."""

    async def one_terminated(self) -> None:
        """Wait until one of them uses nothing any more."""

    async def shorten_grace(self, uid: str, grace_s: int) -> None:
        """Let one of them take at most that long from now on."""

    async def evict(self, uid: str, decision: EvictionDecision) -> None:
        """Start to terminate the pod as the decision says."""

    async def reclaim(self, action: Reclaim) -> None:
        """Free disk space."""

    async def reclaim_memory(self, wanted_bytes: int) -> int:
        """Ask the kernel for memory of the pods; the bytes gained."""


class _NoCandidate(NamedTuple):
    """When no pod could be evicted, for which signal, and which pods there were."""

    time_s: float
    signal: str
    uids: frozenset[str]


class EvictionManager:
    def __init__(
        self,
        signals: SignalSource,
        pods: EvictablePods,
        config: EvictionConfig,
        sink: EvictionSink,
        *,
        clock: Callable[[], float],
        wall: Callable[[], float],
        decisions: DecisionLog | None = None,
    ) -> None:
        self._signals, self._pods, self._config, self._sink = signals, pods, config, sink
        self._clock, self._wall = clock, wall
        self._memory_thresholds = tuple(each for each in config.thresholds if RESOURCE_OF[each.signal] == MEMORY)
        self._pressure: Pressure = NO_PRESSURE
        self._trends: dict[Threshold, Trend] = {}
        self._others: Observations = {}
        self._others_at_s = float("-inf")
        self._is_slow = False  # disk space is being reclaimed
        self._is_waiting = False  # for a pod that is terminating
        self._no_candidate: _NoCandidate | None = None
        self.limits = StorageLimits(pods, config, sink, clock=clock) if config.storage_limits else None
        self._observed_s = self._armed_s = self._reclaimed_s = float("-inf")
        self._usage_thresholds: set[UsageThreshold] = set()
        self._kernel_notifies = False  # of every threshold on memory
        self.decisions = DecisionLog() if decisions is None else decisions  # an empty log is falsy
        self.deciding: Callable[[str], AbstractContextManager[None]] = lambda _: nullcontext()

    @property
    def conditions(self) -> tuple[NodeCondition, ...]:
        return self._pressure.conditions

    async def run(self, files: CgroupOpener | None, pods_path: str) -> None:
        """Until cancelled. `files` and `pods_path`: where kernel notifications come from."""
        async with asyncio.TaskGroup() as group, CgroupWatcher[str]() as watcher:
            if self.limits is not None:
                group.create_task(self.limits.run(), name="storage limits")
            if files is not None and files.version == 2:
                self._watch_events(watcher, files, pods_path)
            while True:
                try:
                    if files is not None and files.version == 1:
                        self._watch_usage(watcher, files)
                    if await self.sync():
                        continue
                except (PlimsollError, OSError) as error:
                    _LOG.error("eviction signals: %s", error)
                    await asyncio.sleep(RETRY_S)
                await self._wait(watcher)

    async def sync(self) -> bool:
        """One pass; whether something was freed or a pod evicted, so that the next pass is due at once."""
        now_s = self._clock()
        observations = self._observe(now_s)
        before = self._pressure.conditions
        with self.deciding("eviction"):
            assessment = assess(
                self._config.thresholds, observations, self._pressure, now_s, self._config.transition_period_s
            )
        self._pressure = assessment.pressure
        if assessment.pressure.conditions != before:
            self._sink.condition_changed()
        urgent = [each for each in assessment.urgent if not self._is_slow or RESOURCE_OF[each.signal] == MEMORY]
        self._is_waiting = bool(urgent) and await self._shorten_terminating(urgent[0])
        if not urgent or self._is_waiting or self._has_no_candidate(urgent[0], now_s):
            return False
        if RESOURCE_OF[urgent[0].signal] == MEMORY:
            return await self._act(urgent, observations)
        return await self._slowly(self._act(urgent, observations))

    # ---

    def _observe(self, now_s: float) -> Observations:
        memory = self._signals.memory()
        if now_s - self._others_at_s >= self._others_pause_s():
            self._others, self._others_at_s = self._signals.others(), now_s
        for threshold in self._memory_thresholds:
            if (signal := memory.get(threshold.signal)) is not None:
                distance = float((signal.available - wanted(threshold, signal.capacity)).value)
                self._trends[threshold] = trend(distance, now_s, self._trends.get(threshold))
        self._observed_s = now_s
        return {**self._others, **memory}

    def _others_pause_s(self) -> float:
        """While a threshold on disks or processes is met they are read with every pass, as memory is."""
        met = met_thresholds(self._config.thresholds, self._others, with_min_reclaim=True)
        return 1.0 if met else OTHERS_EVERY_S

    def pause_s(self) -> float:
        """Until the next pass, unless the kernel notifies earlier."""
        pause = next_poll_s(self._trends.values(), kernel_notifies=self._kernel_notifies)
        if self._pressure.first_met_s:  # the grace of a soft threshold runs, or it is exempt
            pause = min(pause, 1.0)
        return min(pause, self._others_pause_s())

    async def _wait(self, watcher: CgroupWatcher[str]) -> None:
        try:
            async with asyncio.timeout(self.pause_s()):
                await (self._pods.one_terminated() if self._is_waiting else anext(watcher))
        except TimeoutError:
            return
        # Notifications may come in bursts; one pass answers them all.
        await asyncio.sleep(max(0.0, self._observed_s + POLL_LEAST_S - self._clock()))

    def _watch_events(self, watcher: CgroupWatcher[str], files: CgroupOpener, pods_path: str) -> None:
        """v2: what this kernel notifies of; without notifications polling is only slower."""
        try:
            with files.directory(pods_path, "memory.events") as directory:
                watcher.file_changes(_KERNEL, directory, "memory.events")
                watcher.pressure(_KERNEL, "memory", "some", STALL_US, STALL_WINDOW_US, directory=directory)
        except (CgroupError, OSError) as error:
            _LOG.info("no kernel notification of memory pressure, polling only: %s", error)

    def _watch_usage(self, watcher: CgroupWatcher[str], files: CgroupOpener) -> None:
        """v1: at the usage where a threshold is met, which changes with limits and page cache (§2.5)."""
        now_s = self._clock()
        if now_s - self._armed_s < REARM_S:
            return
        self._armed_s = now_s
        usages = self._signals.usage_thresholds(self._memory_thresholds)
        if usages == self._usage_thresholds:
            return
        watcher.forget(_KERNEL)
        self._usage_thresholds, self._kernel_notifies = usages, bool(usages)
        for usage in usages:
            try:
                with files.directory(usage.path, "memory.usage_in_bytes") as directory:
                    watcher.usage_threshold(_KERNEL, directory, usage.usage_bytes)
            except (CgroupError, OSError) as error:
                self._kernel_notifies = False
                _LOG.info("no kernel notification at %s, polling only: %s", usage, error)

    async def _shorten_terminating(self, threshold: Threshold) -> bool:
        """Give terminating pods no more grace than an eviction would now; whether there are any."""
        terminating = self._pods.terminating()
        for pod in terminating:
            config, rule = self._config, self._config.gates.eviction_grace
            grace_s = eviction_grace_s(threshold, pod, config.max_pod_grace_s, config.hard_grace_s, rule)
            await self._pods.shorten_grace(pod.metadata.uid, grace_s)
        return bool(terminating)

    def _has_no_candidate(self, threshold: Threshold, now_s: float) -> bool:
        """Whether an earlier pass found that none of these pods can be evicted."""
        last = self._no_candidate
        if last is None or last.signal != threshold.signal or now_s - last.time_s >= NO_CANDIDATE_RETRY_S:
            return False
        return last.uids == self._uids()

    def _uids(self) -> frozenset[str]:
        return frozenset(pod.metadata.uid for pod in self._pods.active())

    async def _slowly(self, act: Coroutine[None, None, bool]) -> bool:
        """Measuring disks and removing images may take minutes; memory is polled meanwhile."""
        self._is_slow, acting = True, asyncio.create_task(act)
        try:
            while not (await asyncio.wait([acting], timeout=min(self.pause_s(), RESTING_LEAST_S)))[0]:
                try:
                    await self.sync()
                except (PlimsollError, OSError) as error:
                    _LOG.error("memory signals: %s", error)
            return acting.result()
        finally:
            self._is_slow = False
            await cancel_all([acting])

    async def _act(self, urgent: Sequence[Threshold], observations: Observations) -> bool:
        first = urgent[0]
        resource = RESOURCE_OF[first.signal]
        self._sink.event("Warning", THRESHOLD_MET, attempt_text(resource))
        gained = await self._reclaim_memory(first, observations) if resource == MEMORY else 0
        for action in node_reclaim(first.signal, self._config.layout):
            try:
                await self._pods.reclaim(action)
            except (PlimsollError, OSError) as error:  # the next action is tried, and then a pod is evicted (§4)
                _LOG.warning("%s before eviction: %s", action, error)
        if (gained or resource != MEMORY) and reclaimed(self._config.thresholds, observe_now(self._signals)):
            _LOG.info("%s: enough was reclaimed, no pod is evicted", first.signal)
            return True
        usage = await self._pods.usage(disks=resource not in (MEMORY, PIDS))
        # Usage has also read the runtime: an agent that has just started finds terminating pods only here.
        self._is_waiting = await self._shorten_terminating(first)
        if self._is_waiting:
            return False
        result = decision(
            urgent,
            observations,
            self._pods.active(),
            usage,
            layout=self._config.layout,
            max_pod_grace_s=self._config.max_pod_grace_s,
            hard_grace_s=self._config.hard_grace_s,
            gates=self._config.gates,
            time_s=self._wall(),
        )
        victim = None if result is None else result.victim
        if result is None or victim is None:
            self._no_candidate = _NoCandidate(self._clock(), first.signal, self._uids())
            _LOG.warning("%s: unable to evict any pods", first.signal)
            return False
        if gained:
            result = msgspec.structs.replace(result, reclaimed_bytes=gained)
        self.decisions.add(result)
        observed_s = observations[result.signal].time_s
        self._sink.evicted(result.signal, 0.0 if observed_s is None else self._clock() - observed_s)
        await self._pods.evict(victim.uid, result)
        return True

    async def _reclaim_memory(self, threshold: Threshold, observations: Observations) -> int:
        now_s = self._clock()
        if now_s - self._reclaimed_s < RECLAIM_EVERY_S:
            return 0
        self._reclaimed_s = now_s
        signal = observations[threshold.signal]
        missing = (wanted(threshold, signal.capacity, with_min_reclaim=True) - signal.available).value
        try:
            return await self._pods.reclaim_memory(max(missing, 1))
        except (PlimsollError, OSError) as error:
            _LOG.info("reclaim before eviction: %s", error)
            return 0


class StorageLimits:
    """Evicts pods that exceed a storage limit of their own, whether or not the node is under pressure (04 §6).

    Disk usage is measured by walking volumes and logs, which may be slow. So this is a task beside the eviction
    manager, at the kubelet's interval and only while a pod declares a limit. The eviction manager waits for a pod that
    was evicted here as for any terminating pod (§3.10).
    """

    def __init__(
        self, pods: EvictablePods, config: EvictionConfig, sink: EvictionSink, *, clock: Callable[[], float]
    ) -> None:
        self._pods, self._config, self._sink, self._clock = pods, config, sink, clock

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                await self.sync()
            except (PlimsollError, OSError) as error:
                _LOG.error("storage limits: %s", error)
            await asyncio.sleep(OTHERS_EVERY_S)

    async def sync(self) -> None:
        """Evict every pod that is above a limit now."""
        if not any(_limits_storage(pod) for pod in self._pods.active()):
            return
        start_s = self._clock()
        usage = await self._pods.usage(disks=True)
        for pod in self._pods.active():
            if not _limits_storage(pod):
                continue
            config = self._config
            finding = limit_finding(pod, usage.get(pod.metadata.uid), config.layout, gates=config.gates)
            if finding is not None:
                self._sink.evicted(finding.signal, self._clock() - start_s)
                await self._pods.evict_for_limit(finding, limit_grace_s(pod, config.gates.eviction_grace))


def _limits_storage(pod: Pod) -> bool:
    """Whether any storage limit is declared: measuring disks is expensive."""
    return any(
        EPHEMERAL_STORAGE in (container.resources.limits or {})
        for container in (*pod.spec.containers, *pod.spec.init_containers)
    ) or any(volume.empty_dir is not None and volume.empty_dir.size_limit is not None for volume in pod.spec.volumes)
