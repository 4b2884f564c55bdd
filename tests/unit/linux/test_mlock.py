"""Locked memory, in a separate process."""

from __future__ import annotations

import subprocess
import sys

import pytest

from plimsoll.linux.capabilities import has_capability

MAY = has_capability("IPC_LOCK")

SAYS = """
import mmap
from plimsoll.linux.capabilities import set_own
from plimsoll.linux.mlock import lock_memory

def locked_kib():
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("VmLck:"))

{before}
done = lock_memory()
at_first = locked_kib()
later = mmap.mmap(-1, 64 << 20)
print(done, at_first > 0, locked_kib() - at_first >= 60 << 10)
"""


def said(before: str = "") -> str:
    done = subprocess.run(
        [sys.executable, "-c", SAYS.replace("{before}", before)], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.mark.skipif(not MAY, reason="CAP_IPC_LOCK is missing")
def test_present_and_future_pages_are_locked() -> None:
    assert said() == "True True True"


def test_nothing_is_locked_without_the_capability() -> None:
    assert said("set_own(0, 0)") == "False False False"
