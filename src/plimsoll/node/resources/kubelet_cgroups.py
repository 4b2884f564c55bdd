"""The agent's own place on the machine, and the system's: an OOM score, and the cgroups that `kubeletCgroups` and
`systemCgroups` name (02 §12).

All of it is done where this process may; where it may not, that is said and the agent runs all the same. It is done
again and again, since others may undo it: each minute where a cgroup is named, else every five.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from plimsoll.cgroups.drivers.interface import CgroupDriver, CgroupError
from plimsoll.errors import PlimsollError
from plimsoll.linux.processes import cgroups_of, set_oom_score_adj
from plimsoll.rules.config.kubelet import KubeletConfig

EACH_MINUTE_S, SELDOM_S = 60.0, 300.0
ROUNDS = 10  # processes that come while others are moved are moved with the next one
TOP = "/"


class OwnPlace:
    def __init__(self, config: KubeletConfig, driver: CgroupDriver, *, may_move_system: bool = False) -> None:
        if config.system_cgroups and not may_move_system and not driver.simulated:
            raise PlimsollError(
                f"systemCgroups {config.system_cgroups}: this would move every process of the top cgroup; "
                "say --allow-move-system-processes if that is meant"
            )
        self._config, self._driver = config, driver

    async def keep(
        self, tell: Callable[[str], None], sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        """For ever; `tell` hears of troubles when they change."""
        config, told = self._config, list[str]()
        while True:
            found = await self.take()
            for each in found:
                if each not in told:
                    tell(each)
            told = found
            await sleep(EACH_MINUTE_S if config.kubelet_cgroups or config.system_cgroups else SELDOM_S)

    async def take(self) -> list[str]:
        """What could not be had, in sentences. A cgroup that is missing is made and, as by a kubelet, stays."""
        pid, notes = os.getpid(), []
        score = set_oom_score_adj(pid, self._config.kubelet_oom_score_adj)
        if not score.done:
            notes.append(f"the agent's oom_score_adj: want {score.want}, have {score.have} ({score.reason})")
        if self._driver.simulated:
            return notes
        path = self._config.kubelet_cgroups
        if path:
            try:
                await self._enter(path, pid)
            except CgroupError as error:
                notes.append(f"kubeletCgroups {path}: the agent stays where it is ({error})")
        path = self._config.system_cgroups
        if path:
            try:
                left = await self._move_system(path)
            except CgroupError as error:
                notes.append(f"systemCgroups {path}: processes stay where they are ({error})")
            else:
                notes += [f"systemCgroups {path}: process {pid} stays where it is ({why})" for pid, why in left.items()]
        return notes

    async def _enter(self, path: str, pid: int) -> None:
        driver = self._driver
        if driver.read(path, ()) is None:
            await driver.make(path, pid=pid)
        if pid not in driver.members(path):
            await driver.move(path, pid)

    async def _move_system(self, path: str) -> dict[int, str]:
        """Everything in the top cgroup that is neither init nor a thread of the kernel; who could not be moved."""
        driver, left = self._driver, dict[int, str]()
        if driver.read(path, ()) is None:
            await driver.make(path)
        for _ in range(ROUNDS):
            found = [pid for pid in self._system_processes() if pid not in left]
            for pid in found:
                try:
                    await driver.move(path, pid)
                except CgroupError as error:
                    if error.errno != errno.ESRCH:  # else it has ended
                        left[pid] = str(error)
            if not found:
                break
        return left

    def _system_processes(self) -> Iterator[int]:
        for pid in self._driver.members(TOP):
            if pid > 1 and self._is_at_the_top(pid) and _is_a_program(pid):
                yield pid

    def _is_at_the_top(self, pid: int) -> bool:
        """Where memory is counted. On v1 a service, or a container, may be at the top of other hierarchies."""
        for each in cgroups_of(pid) or ():
            if each.controllers == () if self._driver.version == 2 else "memory" in each.controllers:
                return each.path == TOP
        return False


def _is_a_program(pid: int) -> bool:
    """A thread of the kernel has no file that it runs."""
    try:
        os.readlink(Path(f"/proc/{pid}/exe"))
    except FileNotFoundError:
        return False
    except OSError:  # it may not be looked at, but it is there
        return True
    return True
