"""Keeps the node's cgroups as the rules desire them while nothing else happens: UpdateCgroups (004-68).

A write of another process to a cgroup of the node, its classes, its pods or their containers wakes this task at once
(inotify: one watch for each cgroup, on v1 one for each hierarchy with values in it). Besides, every cgroup is compared
once in each period, which finds what no notification reports: a file that its writer keeps open, a dropped event. The
agent's own writes wake it too; the comparison then finds nothing.

A pod that is being started, resized or removed is skipped, and so are the values that a resize has left on purpose: its
own retries compare all its files. While another process writes the same file again and again, the rounds become rarer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection

from plimsoll.cgroups.drivers.interface import CgroupError
from plimsoll.cgroups.stats.notifications import CgroupWatcher
from plimsoll.cgroups.stats.usage import CgroupOpener
from plimsoll.errors import PlimsollError
from plimsoll.node.resources.container_cgroups import ContainerCgroups
from plimsoll.node.resources.pod_cgroups import PodCgroups
from plimsoll.rules.cgroups.repair import Repair

log = logging.getLogger(__name__)

BATCH = 8  # pods in one comparison, which blocks the event loop for some milliseconds
# Before a round that a notification causes: a transaction writes many files. Doubled while each round finds something.
PAUSE_S, PAUSE_MAX_S = 0.2, 10.0
_NODE, _CHANGED = "", "set of cgroups"  # keys besides the uids of pods
_FILES_V1 = ("memory.limit_in_bytes", "cpu.shares", "pids.max", "cpuset.cpus")  # one of each hierarchy with values


class CgroupRepair:
    def __init__(
        self,
        pods: PodCgroups,
        containers: ContainerCgroups,
        report: Callable[[Repair], None],
        *,
        files: CgroupOpener | None,
        period_s: float,
    ) -> None:
        """`files`: None on a simulated kernel, which notifies of nothing."""
        self._pods, self._containers, self._report = pods, containers, report
        self._files, self._period_s = files, period_s
        self._watcher: CgroupWatcher[str] | None = None
        self._watched: dict[str, frozenset[str]] = {}  # key → paths

    # --- CgroupListener ---

    def changing(self, uid: str) -> None:
        """Nothing to do before the change."""

    def changed(self) -> None:
        if self._watcher is not None:
            self._watcher.fire(_CHANGED)

    # ---

    @property
    def watched(self) -> frozenset[str]:
        """The cgroups whose writes wake this task."""
        return frozenset().union(*self._watched.values())

    async def run(self) -> None:
        """Until cancelled."""
        clock = asyncio.get_running_loop().time
        async with CgroupWatcher[str]() as watcher:
            self._watcher = watcher
            due_s, pause_s = clock(), PAUSE_S
            try:
                while True:
                    self._watch(watcher)
                    if clock() >= due_s:
                        await self.check(self._pods.known())
                        due_s = clock() + self._period_s
                    try:
                        async with asyncio.timeout_at(due_s):
                            fired = await anext(watcher)
                            await asyncio.sleep(pause_s)
                    except TimeoutError:
                        continue
                    count = await self.check(fired - {_NODE, _CHANGED})
                    pause_s = min(pause_s * 2, PAUSE_MAX_S) if count else PAUSE_S
            finally:
                self._watcher, self._watched = None, {}

    async def check(self, uids: Collection[str]) -> int:
        """Compare the node's own cgroups and those of these pods, repair what differs, and report it; the number."""
        waiting, count = sorted(uids), 0
        while True:
            batch, waiting = waiting[:BATCH], waiting[BATCH:]
            try:
                repairs = await self._containers.repair(batch)
            except PlimsollError as error:
                log.warning("cgroups cannot be compared with their desired values: %s", error)
            else:
                count += len(repairs)
                for repair in repairs:
                    self._report(repair)
            if not waiting:
                return count
            await asyncio.sleep(0)

    def _watch(self, watcher: CgroupWatcher[str]) -> None:
        """Watch exactly the cgroups that exist."""
        if self._files is None:
            return
        desired = {uid: frozenset(filter(None, self._pods.paths(uid).values())) for uid in self._pods.known()}
        desired[_NODE] = frozenset(self._pods.node_paths())
        for key in self._watched.keys() - desired.keys():
            watcher.forget(key)
            del self._watched[key]
        for key, paths in desired.items():
            if self._watched.get(key) == paths:
                continue
            watcher.forget(key)
            self._watched[key] = paths
            for path in paths:
                self._watch_cgroup(watcher, self._files, key, path)

    def _watch_cgroup(self, watcher: CgroupWatcher[str], files: CgroupOpener, key: str, path: str) -> None:
        opened: set[str] = set()  # joint hierarchies once
        for file in _FILES_V1 if files.version == 1 else ("cgroup.procs",):
            try:
                with files.directory(path, file) as directory:
                    if directory.path not in opened:
                        opened.add(directory.path)
                        watcher.writes(key, directory)
            except CgroupError as error:  # it is gone, or this machine lacks the hierarchy or has no watch left
                log.debug("%s is compared only periodically: %s", path, error)
