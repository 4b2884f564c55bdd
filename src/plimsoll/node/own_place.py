"""The agent's own place on the machine: its OOM score, and the cgroup that `kubeletCgroups` names (02 §12).

Both are done where this process may; where it may not, that is said and the agent runs all the same.
"""

from __future__ import annotations

import os

from plimsoll.cgroups.driver import CgroupDriver, CgroupError
from plimsoll.linux.processes import set_oom_score_adj
from plimsoll.rules.config import KubeletConfig


async def take_place(config: KubeletConfig, driver: CgroupDriver) -> list[str]:
    """What could not be had, in sentences. A cgroup that is missing is made and, as by a kubelet, stays."""
    pid, notes = os.getpid(), []
    score = set_oom_score_adj(pid, config.kubelet_oom_score_adj)
    if not score.done:
        notes.append(f"the agent's oom_score_adj: want {score.want}, have {score.have} ({score.reason})")
    path = config.kubelet_cgroups
    if path and not driver.simulated:
        try:
            if driver.look(path, ()) is None:
                await driver.make(path, pid=pid)
            if pid not in driver.members(path):
                await driver.move(path, pid)
        except CgroupError as error:
            notes.append(f"kubeletCgroups {path}: the agent stays where it is ({error})")
    return notes
