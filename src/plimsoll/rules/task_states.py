"""How many tasks of a cgroup do what: the five counts of the kernel's cgroupstats, and the kubelet's line about them.

On v1 the kernel counts by itself. On v2 the same counts come from the state letter in each task's /proc stat line.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

# proc(5): t is a task that a debugger holds. I (an idle kernel thread), Z and X are counted nowhere, as in the kernel.
_FIELDS = {"S": "sleeping", "R": "running", "T": "stopped", "t": "stopped", "D": "uninterruptible"}


class TaskStates(msgspec.Struct, frozen=True, rename="camel"):
    """`io_wait` counts tasks that wait for a disk in none of the other states: hardly ever any."""

    sleeping: int = 0
    running: int = 0
    stopped: int = 0
    uninterruptible: int = 0
    io_wait: int = 0

    def __add__(self, other: TaskStates) -> TaskStates:
        return TaskStates(
            self.sleeping + other.sleeping,
            self.running + other.running,
            self.stopped + other.stopped,
            self.uninterruptible + other.uninterruptible,
            self.io_wait + other.io_wait,
        )

    def total(self) -> int:
        return self.sleeping + self.running + self.stopped + self.uninterruptible + self.io_wait


NO_TASKS = TaskStates()


def counted(letters: Iterable[str]) -> TaskStates:
    counts: dict[str, int] = {}
    for letter in letters:
        if (field := _FIELDS.get(letter)) is not None:
            counts[field] = counts.get(field, 0) + 1
    return TaskStates(**counts)


def log_line(directory: str, states: TaskStates) -> str:
    """As the kubelet prints it, character by character (document 004, 5.4)."""
    return (
        f'Task stats for "{directory}": {{NrSleeping:{states.sleeping} NrRunning:{states.running} '
        f"NrStopped:{states.stopped} NrUninterruptible:{states.uninterruptible} NrIoWait:{states.io_wait}}}"
    )
