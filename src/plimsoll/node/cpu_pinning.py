"""Brings containers onto their CPUs: exclusive ones onto their own, all others onto the shared pool.

Where the agent makes the cgroups, `cpuset.cpus` is a file like the others in one turn of the node's tree; whoever must
leave a CPU is written first, and before a new owner starts. A runtime that makes them itself is told by an update that
holds the list of CPUs and nothing else, so that no quota is disturbed (02 §10).

It is done whenever CPUs were given away or came back, and compared anew every `cpuManagerReconcilePeriod`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection

from plimsoll.errors import InvalidConfig, PlimsollError
from plimsoll.node.cpu_manager import CPUSET, CpuManager
from plimsoll.node.pod_cgroups import PodCgroups
from plimsoll.node.runtime_view import RuntimeView
from plimsoll.runtime.runtime import Resources, Runtime, RuntimeTrouble

log = logging.getLogger(__name__)


class CpuPinning:
    def __init__(
        self, cpus: CpuManager, cgroups: PodCgroups, runtime: Runtime, view: RuntimeView, period_s: float
    ) -> None:
        self.cpus, self._cgroups, self._runtime, self._view, self._period_s = cpus, cgroups, runtime, view, period_s
        self._told: dict[str, str] = {}  # container id → what a runtime was told last
        self._wake = asyncio.Event()
        if cpus.is_static:
            cgroups.cpus = cpus.cpus_of

    def check(self) -> None:
        """A policy that no kernel could carry out is refused at the start."""
        if self.cpus.is_static and (why := self._cgroups.lacks(CPUSET)):
            raise InvalidConfig("cpuManagerPolicy", f"static needs the cpuset controller: {why}")

    def wake(self) -> None:
        """Somebody may have given CPUs back."""
        self._wake.set()

    async def now(self, *, every: bool = False) -> None:
        """Everybody that runs is on its CPUs when this returns."""
        if not self.cpus.is_static:
            return
        if self._runtime.makes_cgroups:
            await self._tell_runtime()
        else:
            await self._cgroups.pin(every=every)

    async def run(self, active: Callable[[], Collection[str] | None], freed: Callable[[], None]) -> None:
        """`active`: the pods of which something may run; None while not all of them are known. `freed`: is told when
        CPUs came back."""
        while True:
            try:
                async with asyncio.timeout(self._period_s):
                    await self._wake.wait()
            except TimeoutError:
                pass
            is_periodic = not self._wake.is_set()
            self._wake.clear()
            if not self.cpus.is_static:
                continue
            try:
                uids = active()
                if uids is not None and self.cpus.keep(uids):
                    freed()
                await self.now(every=is_periodic)
            except (PlimsollError, OSError) as error:
                log.warning("CPUs of containers: %s; trying again", error)

    async def _tell_runtime(self) -> None:
        running = {
            each.id: (each.pod_uid, each.name)
            for parts in (await self._view.all()).values()
            for each in parts.containers
            if each.phase == "running"
        }
        self._told = {key: text for key, text in self._told.items() if key in running}
        wanted = {key: self.cpus.cpus_of(*who) for key, who in running.items()}
        changed = [key for key, text in wanted.items() if self._told.get(key) != text]
        # Fewer CPUs first: nobody gets one that another one still has.
        for key in sorted(changed, key=lambda each: wanted[each] != self.cpus.shared_text):
            try:
                await self._runtime.update_container(key, Resources(cpuset_cpus=wanted[key]))
            except RuntimeTrouble as trouble:  # it may have ended just now; else the next look finds it
                log.info("CPUs of container %s: %s", key, trouble)
            else:
                self._told[key] = wanted[key]
