"""The line of cAdvisor's load reader in the node's log: how many tasks of each container sleep, run or wait.

    Task stats for "/sys/fs/cgroup/cpu/kubepods/pod<uid>/<id>": {NrSleeping:1 NrRunning:0 NrStopped:0 …}

A kubelet writes it at verbosity 4, once for each container in each period of its housekeeping. Nothing is counted at a
lower verbosity.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from plimsoll.cgroups.stats.live_tree import TaskCounter, logs_task_stats
from plimsoll.cgroups.stats.usage import CgroupOpener
from plimsoll.linux.cgroup_files import CgroupError

log = logging.getLogger(__name__)

PERIOD_S = 10.0  # the kubelet's --housekeeping-interval


async def log_task_stats(
    files: CgroupOpener | None, paths: Callable[[], Iterable[str]], period_s: float = PERIOD_S
) -> None:
    """Until cancelled; returns at once where the lines would not be logged. `paths`: the cgroups of the containers."""
    if files is None or not logs_task_stats():
        return
    try:
        counter = TaskCounter(files.version)
    except OSError as error:
        log.warning("no task stats: the kernel's TASKSTATS cannot be used: %s", error)
        return
    file = "cpu.shares" if files.version == 1 else "cgroup.threads"
    with counter:
        while True:
            for path in paths():
                try:
                    with files.directory(path, file) as directory:
                        counter.count(directory)
                except (CgroupError, OSError) as error:  # it has ended, or netlink does not answer
                    log.debug("no task stats for %s: %s", path, error)
            await asyncio.sleep(period_s)
