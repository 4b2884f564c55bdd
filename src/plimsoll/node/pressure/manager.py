"""Node pressure in one place: eviction, out-of-memory kills and throttled containers.

Nothing is decided here. `signals` reads the kernel, `eviction_manager` evicts, `oom_watcher` finds OOM kills,
`throttle_watchdog` helps containers that are stuck at memory.high. This module connects them to the agent's pods, emits
events about what they find, and serves two pages for people (`plimsoll pressure`, `plimsoll oom`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import msgspec

from plimsoll.aio import ExponentialBackoff, supervise
from plimsoll.cgroups.stats.usage import CgroupOpener
from plimsoll.codec.node_pages import oom_page, pressure_page
from plimsoll.linux.processes import is_running
from plimsoll.node.pressure.decision_log import DecisionLog
from plimsoll.node.pressure.eviction_manager import RETRY_S, EvictionManager, EvictionSink, eviction_config, observe_now
from plimsoll.node.pressure.evictor import Evictor, MonitoredPods
from plimsoll.node.pressure.oom_ledger import ContainerKey, MonitoredContainer
from plimsoll.node.pressure.oom_watcher import OomWatcher
from plimsoll.node.pressure.reclaim import MemoryReclaim
from plimsoll.node.pressure.signals import Signals
from plimsoll.node.pressure.throttle_watchdog import ThrottleWatchdog
from plimsoll.node.resources.pod_cgroups import CgroupListener
from plimsoll.node.stats.stats import NodePlace
from plimsoll.rules.config.extras import NodeExtras
from plimsoll.rules.config.thresholds import FsLayout, Threshold
from plimsoll.rules.eviction.assessment import RESOURCE_OF, NodeCondition, Observation, wanted
from plimsoll.rules.eviction.decision import candidates
from plimsoll.rules.eviction.ranking import ranked
from plimsoll.rules.model.objects import EPHEMERAL_STORAGE, MEMORY
from plimsoll.rules.node.node_config import NodeConfig, withheld_hugepages
from plimsoll.rules.oom.report import OomKill, oom_sentence, system_oom_message

OOM_KILLING, SYSTEM_OOM = "OOMKilling", "SystemOOM"


class PressureSetup(msgspec.Struct, frozen=True):
    """The node whose pressure is managed. `files`: None on a simulated kernel. `state`: where records are kept.
    `log_prefix`: what precedes the node's cgroup paths in the kernel log."""

    setting: NodeConfig
    extras: NodeExtras
    files: CgroupOpener | None
    place: NodePlace
    state: Path
    boot_id: str = ""
    log_prefix: str = ""

    def reclaim(self) -> MemoryReclaim | None:
        """How the kernel is asked for memory before a pod is evicted; None where it is not asked."""
        files = self.files
        if files is None or files.version == 1 or not self.extras.reclaims_first(self.setting.profile):
            return None
        return MemoryReclaim(files, self.place.pods_path)


class PressureManager:
    def __init__(
        self, setup: PressureSetup, pods: MonitoredPods, evictor: Evictor, sink: EvictionSink, ready: asyncio.Event
    ) -> None:
        """`ready`: set once the node's cgroups exist."""
        self._setup, self._pods, self._evictor, self._sink, self._ready = setup, pods, evictor, sink, ready
        self._signals = Signals(
            setup.files,
            setup.place,
            capacity_bytes=setup.setting.machine.memory_bytes,
            hugepages_bytes=withheld_hugepages(setup.setting),
            memory_from=setup.extras.memory_available_from,
            clock=time.monotonic,
        )
        self._config = eviction_config(setup.setting, setup.extras, self._signals.layout)
        self._eviction = EvictionManager(
            self._signals,
            evictor,
            self._config,
            sink,
            clock=time.monotonic,
            wall=time.time,
            decisions=DecisionLog(setup.state / "evictions.jsonl"),
        )
        self._oom_watcher = OomWatcher(
            setup.files,
            pods.containers,
            self._killed,
            setup.state / "oom.json",
            pods_path=setup.place.pods_path,
            clock=time.monotonic,
            wall=time.time,
            boot_id=setup.boot_id,
            survives=_survives,
            prefix=setup.log_prefix,
        )
        self._watchdog = ThrottleWatchdog(
            setup.files,
            pods.containers,
            setup.extras.throttle_watchdog if setup.setting.policy.memory_qos else "off",
            lift=pods.lift,
            reclaim=self._reclaim_from,
            warn=self._throttled,
            clock=time.monotonic,
            page_size=setup.setting.machine.page_size,
        )

    @property
    def listeners(self) -> tuple[CgroupListener, ...]:
        """What must be notified when cgroups of pods are created or removed."""
        return self._oom_watcher, self._watchdog

    def conditions(self) -> tuple[NodeCondition, ...]:
        return self._eviction.conditions

    @property
    def thresholds(self) -> Sequence[Threshold]:
        return self._config.thresholds

    @property
    def layout(self) -> FsLayout:
        return self._config.layout

    def observations(self) -> Mapping[str, Observation]:
        """The signals now: the eviction manager may have read them ten seconds ago."""
        return observe_now(self._signals)

    def oom_totals(self) -> Mapping[str, int]:
        """Level of the limit that was reached → number of processes killed, over all runs of the agent."""
        return self._oom_watcher.totals

    def measure(self, deciding: Callable[[str], AbstractContextManager[None]]) -> None:
        """`deciding`: measures a decision."""
        self._eviction.deciding = deciding

    def oom_kills_by_container(self) -> Mapping[ContainerKey, int]:
        return self._oom_watcher.by_container

    def distances(self) -> list[tuple[str, str, int, int]]:
        """Signal, kind, bytes available beyond the threshold, and the threshold, for signals in bytes; read now."""
        observations = observe_now(self._signals)
        found = []
        for threshold in self._config.thresholds:
            observed = observations.get(threshold.signal)
            if observed is None or RESOURCE_OF.get(threshold.signal) not in (MEMORY, EPHEMERAL_STORAGE):
                continue
            wanted_bytes = wanted(threshold, observed.capacity).value
            kind = "hard" if threshold.hard else "soft"
            found.append((threshold.signal, kind, observed.available.value - wanted_bytes, wanted_bytes))
        return found

    async def run(self) -> None:
        """Until cancelled. A failure in one loop does not stop the others."""
        loops: dict[str, Callable[[], Awaitable[None]]] = {
            "eviction": partial(self._eviction.run, self._setup.files, self._setup.place.pods_path),
            "oom kills": self._oom_watcher.run,
            "throttle watchdog": self._watchdog.run,
        }
        await self._ready.wait()
        try:
            async with asyncio.TaskGroup() as group:
                for name, loop in loops.items():
                    group.create_task(supervise(name, loop, ExponentialBackoff(RETRY_S, RETRY_S)), name=name)
        finally:
            self._signals.close()
            self._oom_watcher.close()

    async def _reclaim_from(self, container: MonitoredContainer, wanted_bytes: int) -> None:
        if self._setup.files is not None:
            await MemoryReclaim(self._setup.files, self._setup.place.pods_path).of(container.path, wanted_bytes)

    def _killed(self, kill: OomKill) -> None:
        if kill.level == "system":
            self._sink.event("Warning", SYSTEM_OOM, system_oom_message(kill.process, kill.pid))
        self._pods.warn(kill.pod_uid, kill.container, OOM_KILLING, oom_sentence(kill))

    def _throttled(self, container: MonitoredContainer, reason: str, message: str) -> None:
        self._pods.warn(container.pod_uid, container.name, reason, message)

    # --- pages ---

    async def oom_page(self) -> bytes:
        return msgspec.json.encode(oom_page(self._oom_watcher.kills, self._oom_watcher.totals))

    async def pressure_page(self) -> bytes:
        config, pods = self._config, self._evictor.active()
        usage = await self._evictor.usage(disks=True)
        order = {
            signal: candidates(ranked(pods, usage, signal, config.layout, gates=config.gates), signal)
            for signal in dict.fromkeys(threshold.signal for threshold in config.thresholds)
        }
        return msgspec.json.encode(
            pressure_page(
                self._eviction.conditions,
                config.thresholds,
                self.observations(),
                self._eviction.decisions,
                order,
                layout=config.layout,
                hard_grace_s=config.hard_grace_s,
            )
        )


def _survives(container: MonitoredContainer, killed_pid: int) -> bool | None:
    """A container ends with its first process, whatever else runs in it."""
    if not container.pid:
        return None
    return killed_pid != container.pid and is_running(container.pid)
