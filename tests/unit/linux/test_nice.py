"""Raising the priority in a separate process, and resetting it for its children."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from plimsoll.linux.capabilities import has_capability
from plimsoll.linux.nice import autogroup_nice

SAYS = """
import os
from plimsoll.linux.capabilities import set_own
from plimsoll.linux.nice import raise_priority, reset_priority

def now():
    return os.getpriority(os.PRIO_PROCESS, 0)

{before}
print(raise_priority(), now(), end=" ")
reset_priority()
print(now())
"""


def said(before: str = "", code: str = SAYS, *, leads: bool = False) -> str:
    command = [sys.executable, "-c", code.replace("{before}", before)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, start_new_session=leads)
    return done.stdout.strip()


@pytest.mark.skipif(not has_capability("SYS_NICE"), reason="CAP_SYS_NICE is missing")
@pytest.mark.parametrize(("nice", "then"), [(0, -10), (5, -10), (-15, -15)])
def test_the_priority_is_raised_and_reset(nice: int, then: int) -> None:
    assert said(f"os.setpriority(os.PRIO_PROCESS, 0, {nice})") == f"True {then} 0"


LEADER = """
import os, subprocess, sys
from plimsoll.linux.nice import raise_priority, autogroup_nice

print(autogroup_nice(), end=" ", flush=True)
subprocess.run([sys.executable, "-c", "from plimsoll.linux.nice import *; raise_priority()"], check=True)
print(autogroup_nice(), end=" ")
raise_priority()
print(autogroup_nice(), end=" ", flush=True)
if os.fork():
    os.wait()
else:
    os.setsid()
    print(autogroup_nice(), flush=True)
"""


@pytest.mark.skipif(not has_capability("SYS_NICE"), reason="CAP_SYS_NICE is missing")
@pytest.mark.skipif(not Path("/proc/self/autogroup").exists(), reason="this kernel makes no groups of sessions")
def test_only_a_session_leader_changes_the_autogroup() -> None:
    assert said(code=LEADER, leads=True) == "0 0 -10 0"


@pytest.mark.skipif(not Path("/proc/1/autogroup").exists(), reason="this kernel makes no groups of sessions")
def test_the_session_of_init_may_have_no_autogroup() -> None:
    assert (autogroup_nice(1) is None) == (Path("/proc/1/autogroup").read_text() == "")


def test_nothing_changes_without_the_capability() -> None:
    assert said("os.setpriority(os.PRIO_PROCESS, 0, 3); set_own(0, 0)") == "False 3 3"
