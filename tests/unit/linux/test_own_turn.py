"""Going before others, in a process of its own; what it starts goes like the others."""

from __future__ import annotations

import subprocess
import sys

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


def said(before: str = "") -> str:
    code = SAYS.replace("{before}", before)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.skipif(not has_capability("SYS_NICE"), reason="CAP_SYS_NICE is missing")
@pytest.mark.parametrize(("nice", "then"), [(0, -10), (5, -10), (-15, -15)])
def test_before_others(nice: int, then: int) -> None:
    assert said(f"os.setpriority(os.PRIO_PROCESS, 0, {nice})") == f"True {then} 0"


def test_who_may_not_goes_as_it_went() -> None:
    assert said("os.setpriority(os.PRIO_PROCESS, 0, 3); set_own(0, 0)") == "False 3 3"
