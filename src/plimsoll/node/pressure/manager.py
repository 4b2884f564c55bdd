"""A node when it runs out: eviction, out-of-memory kills and parked containers, put together for one agent.

Nothing decides here. The signals come from the kernel, the loop from `eviction_manager`, the kills from `oom_watcher`,
parked containers from `throttle_watchdog`; they get the agent's pods, and the API is told in events what they have
found. Two pages show people the whole of it (`plimsoll pressure`, `plimsoll oom`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import lru_cache, partial
from pathlib import Path

import msgspec

from plimsoll.cgroups.stats.usage import CgroupOpener
from plimsoll.codec.node_pages import oom_page, pressure_page
from plimsoll.errors import PlimsollError
from plimsoll.linux.processes import is_running
from plimsoll.node.agent import Agent
from plimsoll.node.pressure.decision_log import DecisionLog
from plimsoll.node.pressure.eviction_manager import AFTER_TROUBLE_S, EvictionManager, seen_now
from plimsoll.node.pressure.evictor import Evictor
from plimsoll.node.pressure.oom_ledger import MonitoredContainer
from plimsoll.node.pressure.oom_watcher import OomWatch
from plimsoll.node.pressure.reclaim import MemoryReclaim
from plimsoll.node.pressure.signals import Signals
from plimsoll.node.pressure.throttle_watchdog import ThrottleWatchdog
from plimsoll.node.resources.pleg import NOTHING
from plimsoll.node.resources.workloads import lean_pod_of
from plimsoll.node.stats.stats import NodePlace, Stats
from plimsoll.rules.cgroups.cgroup_owner import owner_of
from plimsoll.rules.config.extras import NodeExtras
from plimsoll.rules.config.thresholds import with_containerfs
from plimsoll.rules.eviction.assessment import NodeCondition
from plimsoll.rules.eviction.decision import candidates
from plimsoll.rules.eviction.ranking import ranked
from plimsoll.rules.node.node_config import NodeConfig
from plimsoll.rules.oom.report import OomKill, oom_sentence, system_oom_message

OOM_KILLING, SYSTEM_OOM = "OOMKilling", "SystemOOM"
Tell = Callable[[str, str, str], None]
log = logging.getLogger(__name__)


class PressureManager:
    def __init__(
        self,
        agent: Agent,
        stats: Stats,
        setting: NodeConfig,
        extras: NodeExtras,
        files: CgroupOpener | None,
        place: NodePlace,
        *,
        state: Path,
        boot_id: str,
        log_prefix: str,
        tell: Tell,
        changed: Callable[[], None],
        counted: Callable[[str, float], None],
        remove_images: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`log_prefix`: what precedes our cgroups' paths in the kernel's log. `tell`: type, reason, message of an event
        about the node. `changed`: its conditions are others now.

        `counted`: a pod is evicted for this signal, on figures that are so many seconds old. `remove_images`: all that
        nobody uses, where the runtime has images.
        """
        self._agent, self._setting, self._extras, self._files = agent, setting, extras, files
        self._place, self._state = place, state
        self._tell, self._changed, self._counted = tell, changed, counted
        self._signals = Signals(
            files,
            capacity_bytes=setting.machine.memory_bytes,
            pods_path=place.pods_path,
            node_path=place.node_path,
            nodefs=Path(place.nodefs),
            imagefs=Path(place.imagefs),
            containerfs=Path(place.containerfs) if place.containerfs else None,
            memory_from=extras.memory_available_from,
            clock=time.monotonic,
        )
        self._layout = self._signals.layout
        self._thresholds = with_containerfs(setting.thresholds, self._layout)
        reclaims: dict[str, Callable[[], Awaitable[None]]] = {"delete dead containers": agent.cleanup.dead_containers}
        if remove_images is not None:
            reclaims["delete unused images"] = remove_images
        self._victims = Evictor(agent.view, agent.checkpoint, agent.events, agent.pods, agent.cgroups, stats, reclaims)
        self._kills = OomWatch(
            files,
            self._watched,
            self._killed,
            state / "oom.json",
            pods_path=place.pods_path,
            clock=time.monotonic,
            wall=time.time,
            boot_id=boot_id,
            lives=_lives,
            prefix=log_prefix,
        )
        self._watchdog = ThrottleWatchdog(
            files,
            self._watched,
            extras.throttle_watchdog if setting.policy.memory_qos else "off",
            lift=self._lift,
            reclaim=self._reclaim_from,
            tell=self._tell_container,
            clock=time.monotonic,
            page_size=setting.machine.page_size,
        )
        agent.cgroups.listeners += [self._kills, self._watchdog]
        self._loop = self._pressure_loop()

    def conditions(self) -> tuple[NodeCondition, ...]:
        return self._loop.conditions

    def oom_totals(self) -> Mapping[str, int]:
        """Whose limit it was → how many processes were killed at it, restarts of the agent included."""
        return self._kills.totals

    async def run(self) -> None:
        """For ever, from the moment on when the node's cgroups are there."""
        await self._agent.ready.wait()
        try:
            async with asyncio.TaskGroup() as group:
                for name, loop in self._loops().items():
                    group.create_task(_kept_up(name, loop), name=name)
        finally:
            self._signals.close()
            self._kills.close()

    # ---

    def _loops(self) -> dict[str, Callable[[], Awaitable[None]]]:
        return {
            "eviction": partial(self._loop.run, self._files, self._place.pods_path),
            "oom kills": self._kills.run,
            "throttle watchdog": self._watchdog.run,
        }

    def _pressure_loop(self) -> EvictionManager:
        config = self._setting.config
        return EvictionManager(
            self._signals,
            self._thresholds,
            self._victims,
            clock=time.monotonic,
            wall=time.time,
            event=self._tell,
            conditions_changed=self._changed,
            counted=self._counted,
            layout=self._layout,
            max_pod_grace_s=config.eviction_max_pod_grace_period_s,
            hard_grace_s=self._extras.eviction_hard_grace_s,
            transition_period_s=config.eviction_pressure_transition_period_s,
            reclaim_memory=self._reclaim(),
            storage_limits=config.local_storage_capacity_isolation,
            pod_level=self._setting.policy.pod_level,
            decisions=DecisionLog(self._state / "evictions.jsonl"),
        )

    def _reclaim(self) -> MemoryReclaim | None:
        files = self._files
        if files is None or files.version == 1 or not self._extras.reclaims_first(self._setting.profile):
            return None
        return MemoryReclaim(files, self._place.pods_path)

    async def _lift(self, each: MonitoredContainer, high: str) -> None:
        agent = self._agent
        if (worker := agent.pods.workers.get(each.pod_uid)) is not None:
            await agent.container_cgroups.lift(lean_pod_of(worker.pod), each.name, each.id, high)

    async def _reclaim_from(self, each: MonitoredContainer, wanted_bytes: int) -> None:
        if self._files is not None:
            await MemoryReclaim(self._files, self._place.pods_path).of(each.path, wanted_bytes)

    def _watched(self) -> Iterator[MonitoredContainer]:
        """Every container that has a cgroup of its own, whether it runs or has ended."""
        cgroups, seen = self._agent.cgroups, self._agent.view.last
        for uid, title in cgroups.known().items():
            namespace, _, name = title.partition("/")
            pids = {each.id: each.pid for each in seen.get(uid, NOTHING).containers}
            for container, path in cgroups.paths(uid).items():
                if container and (container_id := _container_id(path)):
                    yield MonitoredContainer(
                        container_id, container, uid, namespace, name, path, pids.get(container_id, 0)
                    )

    def _killed(self, kill: OomKill) -> None:
        if kill.level == "system":
            self._tell("Warning", SYSTEM_OOM, system_oom_message(kill.process, kill.pid))
        self._tell_pod(kill.pod_uid, kill.container, OOM_KILLING, oom_sentence(kill))

    def _tell_container(self, each: MonitoredContainer, reason: str, message: str) -> None:
        self._tell_pod(each.pod_uid, each.name, reason, message)

    def _tell_pod(self, uid: str, container: str, reason: str, message: str) -> None:
        worker = self._agent.pods.workers.get(uid)
        if worker is not None:
            is_init = any(each.name == container for each in worker.pod.spec.init_containers)
            field = f"spec.{'initContainers' if is_init else 'containers'}{{{container}}}" if container else ""
            self._agent.events.emit(worker.pod, "Warning", reason, message, field)
            worker.wake()

    # --- for people ---

    async def oom_page(self) -> bytes:
        return msgspec.json.encode(oom_page(self._kills.kills, self._kills.totals))

    async def pressure_page(self) -> bytes:
        pods, usage = self._victims.active(), await self._victims.usage(disks=True)
        order = {
            signal: candidates(
                ranked(pods, usage, signal, self._layout, pod_level=self._setting.policy.pod_level), signal
            )
            for signal in dict.fromkeys(each.signal for each in self._thresholds)
        }
        return msgspec.json.encode(
            pressure_page(
                self._loop.conditions,
                self._thresholds,
                seen_now(self._signals),  # as it is now: the loop may have looked ten seconds ago
                self._loop.decisions,
                order,
                layout=self._layout,
                hard_grace_s=self._extras.eviction_hard_grace_s,
            )
        )


async def _kept_up(name: str, loop: Callable[[], Awaitable[None]]) -> None:
    """What goes wrong in one of them is nobody else's end, and not its own for long."""
    while True:
        try:
            return await loop()
        except (PlimsollError, OSError) as error:
            log.error("%s: begun anew in %g s: %s", name, AFTER_TROUBLE_S, error)
            await asyncio.sleep(AFTER_TROUBLE_S)


@lru_cache(4096)
def _container_id(path: str) -> str:
    """Every change of one pod asks for all of them."""
    return owner_of(path).container_id


def _lives(watched: MonitoredContainer, killed_pid: int) -> bool | None:
    """A container ends with its first process, whoever else was in it."""
    if not watched.pid:
        return None
    return killed_pid != watched.pid and is_running(watched.pid)
