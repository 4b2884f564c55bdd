"""The agent's own OOM score, and the cgroups that `kubeletCgroups` and `systemCgroups` name (02 §12).

Whatever this process is not permitted to do is reported, and the agent runs on. It is repeated, because other programs
may undo it: each minute if a cgroup is named, otherwise every five.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from plimsoll.cgroups.drivers.interface import CgroupDriver, CgroupError, CgroupGoneError
from plimsoll.errors import PlimsollError
from plimsoll.linux.processes import cgroups_of, set_oom_score_adj
from plimsoll.rules.cgroups.desired_files import parent_path
from plimsoll.rules.config.kubelet import KubeletConfig

NAMED_CGROUP_S, SCORE_ONLY_S = 60.0, 300.0
ROUNDS = 10  # processes forked while others are moved are moved in the next one
TOP = "/"


class OwnPlace:
    def __init__(self, config: KubeletConfig, driver: CgroupDriver, *, may_move_system: bool = False) -> None:
        if config.system_cgroups and not may_move_system and not driver.simulated:
            raise PlimsollError(
                f"systemCgroups {config.system_cgroups}: this would move every process of the top cgroup; "
                "to allow it, use --allow-move-system-processes"
            )
        self._config, self._driver = config, driver
        self._created = ""  # the cgroup of kubeletCgroups, if this agent has created it
        self._before = TOP  # where this process was

    async def keep(
        self, report: Callable[[str], None], sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        """Until cancelled; `report` gets failures when they change."""
        config, reported = self._config, list[str]()
        try:
            while True:
                failures = await self.take()
                for failure in failures:
                    if failure not in reported:
                        report(failure)
                reported = failures
                await sleep(NAMED_CGROUP_S if config.kubelet_cgroups or config.system_cgroups else SCORE_ONLY_S)
        finally:
            if failure := await self.leave():
                report(failure)

    async def leave(self) -> str:
        """Go back to where this process was, and remove the cgroup if it was created here; what failed, or "".

        The supervisor, which outlives the agent, and all other processes in it go along.
        """
        path, self._created = self._created, ""
        if not path:
            return ""
        try:
            for _ in range(ROUNDS):
                for pid in self._driver.members(path):
                    await self._move_back(pid)
            await self._driver.remove(path)
        except CgroupGoneError:
            return ""
        except CgroupError as error:
            return f"kubeletCgroups {path}: it stays behind ({error})"
        return ""

    async def _move_back(self, pid: int) -> None:
        try:
            await self._driver.move(self._before, pid)
        except CgroupError as error:
            if error.errno != errno.ESRCH:  # otherwise it has ended
                raise

    async def take(self) -> list[str]:
        """What failed, in sentences. A missing cgroup is created; `leave` removes it again."""
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
            self._before = self._place_of(pid, path)
            await driver.make(path, pid=pid)
            if driver.name == "cgroupfs":  # systemd removes a scope with its last process
                self._created = path
        if pid not in driver.members(path):
            await driver.move(path, pid)

    def _place_of(self, pid: int, path: str) -> str:
        """Its cgroup in the memory hierarchy, where all hierarchies have it; otherwise the parent of `path`."""
        for each in cgroups_of(pid) or ():
            if each.controllers == () if self._driver.version == 2 else "memory" in each.controllers:
                return each.path if self._driver.read(each.path, ()) is not None else parent_path(path)
        return parent_path(path)

    async def _move_system(self, path: str) -> dict[int, str]:
        """Everything in the root cgroup that is neither init nor a kernel thread; pid → why it could not be moved."""
        driver, left = self._driver, dict[int, str]()
        if driver.read(path, ()) is None:
            await driver.make(path)
        for _ in range(ROUNDS):
            pids = [pid for pid in self._system_processes() if pid not in left]
            for pid in pids:
                try:
                    await driver.move(path, pid)
                except CgroupError as error:
                    if error.errno != errno.ESRCH:  # otherwise it has ended
                        left[pid] = str(error)
            if not pids:
                break
        return left

    def _system_processes(self) -> Iterator[int]:
        for pid in self._driver.members(TOP):
            if pid > 1 and self._is_in_root(pid) and not _is_kernel_thread(pid):
                yield pid

    def _is_in_root(self, pid: int) -> bool:
        """In the memory hierarchy. On v1 a service, or a container, may be in the root of other hierarchies."""
        for each in cgroups_of(pid) or ():
            if each.controllers == () if self._driver.version == 2 else "memory" in each.controllers:
                return each.path == TOP
        return False


def _is_kernel_thread(pid: int) -> bool:
    """A kernel thread has no executable."""
    try:
        os.readlink(Path(f"/proc/{pid}/exe"))
    except FileNotFoundError:
        return True
    except OSError:  # not readable, but it exists
        return False
    return False
