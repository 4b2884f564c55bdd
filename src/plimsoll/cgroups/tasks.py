"""What the tasks of a cgroup are doing: counted by the kernel on v1, from /proc on v2. Its own tasks, none below it.

Since Linux 6.1 the kernel's count passes over tasks in a freezable sleep (nanosleep, futex). So where it does not add
up to the tasks that are there, /proc is asked on v1 too.

Each count is also written to the log at debug level, in the words in which the kubelet writes it (document 004, 5.4).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from plimsoll.codec.kernel_files import process_stat
from plimsoll.linux.beneath import CgroupGone, Directory, open_beneath
from plimsoll.linux.taskstats import Taskstats
from plimsoll.rules.policy import CgroupVersion
from plimsoll.rules.task_states import TaskStates, counted, log_line

log = logging.getLogger(__name__)

_STAT_BYTES = 1 << 12


class TaskCounter:
    """Keeps what is needed to ask again and again: /proc, and on v1 the netlink socket."""

    def __init__(self, version: CgroupVersion) -> None:
        self._taskstats = Taskstats() if version == 1 else None
        self._proc = os.open("/proc", os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._taskstats is not None:
            self._taskstats.close()
        if self._proc >= 0:
            os.close(self._proc)
            self._proc = -1

    def count(self, directory: Directory) -> TaskStates | None:
        """On v1 the cgroup in any hierarchy. None where it is gone; a task that ends meanwhile is not counted."""
        try:
            states = self._by_kernel(directory) if self._taskstats is not None else self._by_proc(directory)
        except CgroupGone:
            return None
        if log.isEnabledFor(logging.DEBUG):
            log.debug("%s", log_line(directory.path, states))
        return states

    def _by_kernel(self, directory: Directory) -> TaskStates:
        assert self._taskstats is not None
        threads = directory.read("tasks").split()  # also tells a removed cgroup, of which cgroupstats counts 0
        fd = open_beneath(directory.fd, ".", os.O_RDONLY | os.O_DIRECTORY)
        try:
            states = self._taskstats.counts(fd)
        finally:
            os.close(fd)
        return states if states.total() == len(threads) else counted(self._letters(threads))

    def _by_proc(self, directory: Directory) -> TaskStates:
        return counted(self._letters(directory.read("cgroup.threads").split()))

    def _letters(self, threads: list[str]) -> Iterator[str]:
        for thread in threads:
            try:
                fd = os.open(f"{thread}/stat", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._proc)
                try:
                    yield process_stat(os.read(fd, _STAT_BYTES).decode(errors="replace")).state
                finally:
                    os.close(fd)
            except (FileNotFoundError, ProcessLookupError):
                continue
