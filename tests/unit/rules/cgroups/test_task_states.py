"""Counts of task states, and the line about them that document 004 shows."""

from __future__ import annotations

import pytest

from plimsoll.rules.cgroups.view import NO_TASKS, TaskStates, counted, log_line

ROWS = [
    ("none", "", NO_TASKS),
    ("every letter", "SRTtD", TaskStates(sleeping=1, running=1, stopped=2, uninterruptible=1)),
    ("idle kernel threads, zombies and the dead count nowhere", "IZXP", NO_TASKS),
    ("several", "SSSR", TaskStates(sleeping=3, running=1)),
]


@pytest.mark.parametrize(("letters", "wanted"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_counted(letters: str, wanted: TaskStates) -> None:
    assert counted(letters) == wanted
    assert wanted + counted("R") == counted(letters + "R")
    assert wanted.total() == sum(letter in "SRTtD" for letter in letters)


def test_the_line_of_document_004() -> None:
    path = "/sys/fs/cgroup/cpu,cpuacct/kubepods/pod<pod_id>/<container_id>"
    assert log_line(path, TaskStates(sleeping=1)) == (
        'Task stats for "/sys/fs/cgroup/cpu,cpuacct/kubepods/pod<pod_id>/<container_id>": '
        "{NrSleeping:1 NrRunning:0 NrStopped:0 NrUninterruptible:0 NrIoWait:0}"
    )
