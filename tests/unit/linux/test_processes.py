"""Signals without pid races, /proc/PID, oom_score_adj: on real processes."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator

import pytest

from plimsoll.linux.capabilities import has_capability
from plimsoll.linux.processes import (
    ScoreAdjustment,
    cgroups_of,
    oom_score_adj,
    set_oom_score_adj,
    signal_members,
    stat,
)

Sleepers = Callable[[int], list[subprocess.Popen[bytes]]]


@pytest.fixture
def sleepers() -> Iterator[Sleepers]:
    started: list[subprocess.Popen[bytes]] = []

    def start(count: int) -> list[subprocess.Popen[bytes]]:
        new = [subprocess.Popen(["sleep", "60"]) for _ in range(count)]
        started.extend(new)
        return new

    yield start
    for process in started:
        process.kill()
        process.wait()


def gone_pid() -> int:
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def test_all_members_are_signalled(sleepers: Sleepers) -> None:
    processes = sleepers(3)
    assert signal_members(lambda: [process.pid for process in processes], signal.SIGKILL) == 3
    assert [process.wait(10) for process in processes] == [-signal.SIGKILL] * 3


def test_a_process_that_left_the_group_meanwhile_is_not_signalled(sleepers: Sleepers) -> None:
    """The group is listed again before the signals are sent: a pid that is no longer in it may be reused."""
    left, stayed = sleepers(2)
    answers = iter([[left.pid, stayed.pid, gone_pid()], [stayed.pid]])
    assert signal_members(lambda: next(answers), signal.SIGKILL) == 1
    assert stayed.wait(10) == -signal.SIGKILL
    assert left.poll() is None


def test_a_process_that_joined_meanwhile_is_signalled_in_the_next_round(sleepers: Sleepers) -> None:
    first, second = sleepers(2)
    answers = iter([[first.pid], [first.pid, second.pid]])
    assert signal_members(lambda: next(answers), signal.SIGTERM) == 1
    assert first.wait(10) == -signal.SIGTERM
    assert second.poll() is None


def test_stat_and_cgroups(sleepers: Sleepers) -> None:
    (process,) = sleepers(1)
    found = stat(process.pid)
    assert found
    assert (found.pid, found.parent) == (process.pid, os.getpid())
    cgroups = cgroups_of(process.pid)
    assert cgroups
    assert cgroups == cgroups_of(), "a child starts in its parent's cgroups"
    process.kill()
    process.wait()
    assert stat(process.pid) is None
    assert cgroups_of(process.pid) is None


def test_raising_the_score_needs_no_capability(sleepers: Sleepers) -> None:
    (process,) = sleepers(1)
    assert set_oom_score_adj(process.pid, 999) == ScoreAdjustment(999, 999)
    assert oom_score_adj(process.pid) == 999
    assert set_oom_score_adj(process.pid, 999).done


def test_lowering_it_needs_a_capability(sleepers: Sleepers) -> None:
    (process,) = sleepers(1)
    done = set_oom_score_adj(process.pid, -998)
    if has_capability("SYS_RESOURCE"):
        assert done == ScoreAdjustment(-998, -998)
    else:
        assert done == ScoreAdjustment(-998, oom_score_adj(process.pid), "lowering it needs CAP_SYS_RESOURCE")
        assert not done.done


def test_no_such_score_and_no_such_process(sleepers: Sleepers) -> None:
    (process,) = sleepers(1)
    assert set_oom_score_adj(process.pid, 1001).reason == "the kernel accepts −1000 to 1000"
    assert set_oom_score_adj(gone_pid(), 0) == ScoreAdjustment(0, None, "the process is gone")
    assert oom_score_adj(gone_pid()) is None
