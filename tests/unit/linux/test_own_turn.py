"""Going before others, in a process of its own; what it starts goes like the others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from plimsoll.linux.capabilities import has_capability

SAYS = """
import os
from plimsoll.linux.capabilities import set_own
from plimsoll.linux.own_turn import go_before_others, go_like_others

def now():
    return os.getpriority(os.PRIO_PROCESS, 0)

{before}
print(go_before_others(), now(), end=" ")
go_like_others()
print(now())
"""


def said(before: str = "", code: str = SAYS, *, leads: bool = False) -> str:
    command = [sys.executable, "-c", code.replace("{before}", before)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, start_new_session=leads)
    return done.stdout.strip()


@pytest.mark.skipif(not has_capability("SYS_NICE"), reason="CAP_SYS_NICE is missing")
@pytest.mark.parametrize(("nice", "then"), [(0, -10), (5, -10), (-15, -15)])
def test_before_others(nice: int, then: int) -> None:
    assert said(f"os.setpriority(os.PRIO_PROCESS, 0, {nice})") == f"True {then} 0"


OF_SESSION = """
import os
from plimsoll.linux.own_turn import go_before_others

def now():
    return open("/proc/self/autogroup").read().split()[-1]

go_before_others()
print(now(), end=" ")
if os.fork():
    os.wait()
else:
    os.setsid()
    print(now(), flush=True)
"""


@pytest.mark.skipif(not has_capability("SYS_NICE"), reason="CAP_SYS_NICE is missing")
@pytest.mark.skipif(not Path("/proc/self/autogroup").exists(), reason="this kernel makes no groups of sessions")
def test_who_leads_a_session_takes_it_along_and_nobody_elses() -> None:
    mine = Path("/proc/self/autogroup").read_text().split()[-1]
    assert said(code=OF_SESSION, leads=True).split()[:2] == ["-10", "0"]
    said(code=OF_SESSION.partition("if os.fork")[0])
    assert Path("/proc/self/autogroup").read_text().split()[-1] == mine


def test_who_may_not_goes_as_it_went() -> None:
    assert said("os.setpriority(os.PRIO_PROCESS, 0, 3); set_own(0, 0)") == "False 3 3"
