"""A node when it runs out: eviction, out-of-memory kills and parked containers, put together for one agent.

Nothing decides here. The signals come from the kernel, the loop from `pressure`, the kills from `oom_watch`; they get
the agent's pods, and the API is told in events what they have found. Two pages show people the whole of it
(`plimsoll pressure`, `plimsoll oom`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from plimsoll.cgroups.usage import Opens
from plimsoll.node.agent import Agent
from plimsoll.node.memory_reclaim import MemoryReclaim
from plimsoll.node.oom_ledger import Watched
from plimsoll.node.oom_watch import OomWatch
from plimsoll.node.pressure import PressureLoop
from plimsoll.node.signals import Signals
from plimsoll.node.stats import Stats
from plimsoll.node.victims import PodVictims
from plimsoll.rules.eviction import NodeCondition, met_thresholds, wanted
from plimsoll.rules.eviction_decision import candidates
from plimsoll.rules.node_extras import NodeExtras
from plimsoll.rules.oom_story import OomKill, oom_sentence, system_oom_message
from plimsoll.rules.ranking import ranked
from plimsoll.rules.setting import Setting
from plimsoll.rules.thresholds import fs_layout, with_containerfs

OOM_KILLING, SYSTEM_OOM = "OOMKilling", "SystemOOM"
Tell = Callable[[str, str, str], None]
log = logging.getLogger(__name__)


class UnderPressure:
    def __init__(
        self,
        agent: Agent,
        stats: Stats,
        setting: Setting,
        extras: NodeExtras,
        files: Opens | None,
        *,
        pods_path: str,
        node_path: str,
        state: Path,
        boot_id: str,
        tell: Tell,
        changed: Callable[[], None],
        counted: Callable[[str], None],
    ) -> None:
        """`tell`: type, reason, message of an event about the node. `changed`: its conditions are others now.

        `counted`: a pod is evicted for this signal.
        """
        self._agent, self._setting, self._extras, self._files = agent, setting, extras, files
        self._pods_path, self._node_path, self._state = pods_path, node_path, state
        self._boot_id, self._tell, self._changed, self._counted = boot_id, tell, changed, counted
        self._layout = fs_layout(False, False)
        self._thresholds = with_containerfs(setting.thresholds, self._layout)
        self._victims = PodVictims(
            agent.pods, agent.cgroups, stats, {"delete dead containers": agent.cleanup.dead_containers}
        )
        self._loop: PressureLoop | None = None
        self._kills: OomWatch | None = None

    def conditions(self) -> tuple[NodeCondition, ...]:
        return () if self._loop is None else self._loop.conditions

    async def run(self) -> None:
        """For ever, from the moment on when the node's cgroups are there."""
        await self._agent.ready.wait()
        signals = Signals(
            self._files,
            capacity_bytes=self._setting.machine.memory_bytes,
            pods_path=self._pods_path,
            node_path=self._node_path,
            nodefs=self._state,
            memory_from=self._extras.memory_available_from,
            clock=time.monotonic,
        )
        self._kills = self._oom_watch()
        self._loop = self._pressure_loop(signals)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._loop.run(self._files, self._pods_path), name="eviction")
                group.create_task(self._kills.run(), name="oom kills")
        finally:
            signals.close()

    # ---

    def _pressure_loop(self, signals: Signals) -> PressureLoop:
        config = self._setting.config
        reclaims = self._files is not None and self._extras.reclaims_first(self._setting.profile)
        reclaim = None
        if reclaims and self._files is not None and MemoryReclaim.possible(self._files, self._pods_path):
            reclaim = MemoryReclaim(self._files, self._pods_path)
        return PressureLoop(
            signals,
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
            reclaim_memory=reclaim,
        )

    def _oom_watch(self) -> OomWatch:
        return OomWatch(
            self._files,
            self._watched,
            self._killed,
            self._state / "oom.json",
            clock=time.monotonic,
            wall=time.time,
            boot_id=self._boot_id,
        )

    def _watched(self) -> Iterator[Watched]:
        """Every container that has a cgroup of its own."""
        for worker in self._agent.pods:
            paths = self._agent.cgroups.paths(worker.uid)
            metadata = worker.pod.metadata
            for each in worker.seen.live():
                if path := paths.get(each.name):
                    yield Watched(each.id, each.name, worker.uid, metadata.namespace, metadata.name, path)

    def _killed(self, kill: OomKill) -> None:
        if kill.level == "system":
            self._tell("Warning", SYSTEM_OOM, system_oom_message(kill.process, kill.pid))
        worker = self._agent.pods.workers.get(kill.pod_uid)
        if worker is not None:
            field = f"spec.containers{{{kill.container}}}" if kill.container else ""
            self._agent.tools.tell(worker.pod, "Warning", OOM_KILLING, oom_sentence(kill), field)
            worker.wake()

    # --- for people ---

    async def oom_page(self) -> bytes:
        kills = () if self._kills is None else self._kills.kills
        shown = [{**msgspec.to_builtins(each), "sentence": oom_sentence(each)} for each in kills]
        return msgspec.json.encode({"kills": shown})

    async def pressure_page(self) -> bytes:
        loop = self._loop
        if loop is None:
            return msgspec.json.encode({"conditions": [], "signals": [], "decisions": [], "order": {}})
        pods, usage = self._victims.active(), await self._victims.usage(disks=True)
        order = {
            signal: candidates(ranked(pods, usage, signal, self._layout), signal)
            for signal in dict.fromkeys(each.signal for each in self._thresholds)
        }
        return msgspec.json.encode(
            {
                "conditions": loop.conditions,
                "signals": list(self._signals(loop)),
                "decisions": list(loop.decisions),
                "order": order,
            }
        )

    def _signals(self, loop: PressureLoop) -> Iterator[dict[str, Any]]:
        observations = loop.observations
        met = met_thresholds(self._thresholds, observations)
        for signal in dict.fromkeys(each.signal for each in self._thresholds):
            seen = observations.get(signal)
            if seen is None:
                continue
            yield {
                "signal": signal,
                "available": str(seen.available),
                "capacity": str(seen.capacity),
                "thresholds": [
                    {"value": str(wanted(each, seen.capacity)), "graceSeconds": each.grace_s, "met": each in met}
                    for each in self._thresholds
                    if each.signal == signal
                ],
            }
