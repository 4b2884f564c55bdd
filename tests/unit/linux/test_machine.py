"""The capacity of this machine (01 N-1, N-2)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from plimsoll.linux.machine import meminfo_bytes, this_machine
from plimsoll.rules.config.parse import default_config
from plimsoll.rules.node.node_config import resolved
from plimsoll.rules.profile import PROFILE_NAMES, profile_named

MEMINFO = """\
MemTotal:       263192560 kB
MemFree:         1000000 kB
SwapTotal:             0 kB
HugePages_Total:       4
Hugepagesize:       2048 kB

garbage
"""


def test_meminfo() -> None:
    found = meminfo_bytes(MEMINFO)
    assert found["MemTotal"] == 269509181440
    assert found["SwapTotal"] == 0
    assert "HugePages_Total" not in found, "a count, not an amount"
    assert meminfo_bytes("") == {}


def test_this_machine() -> None:
    machine = this_machine()
    assert machine.cores == os.cpu_count()
    assert machine.memory_bytes == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert machine.page_size == os.sysconf("SC_PAGE_SIZE")
    assert machine.pid_capacity == min(
        int(Path(f"/proc/sys/kernel/{name}").read_text()) for name in ("pid_max", "threads-max")
    )
    assert machine.others["ephemeral-storage"].value > 0
    for name, quantity in machine.others.items():
        if name.startswith("hugepages-"):
            assert quantity.value >= 0


def test_a_directory_that_is_not_there_falls_back_to_the_root() -> None:
    assert this_machine("/no/such/place").others["ephemeral-storage"].value > 0


@pytest.mark.parametrize("profile", list(PROFILE_NAMES))
def test_it_can_be_a_node(profile: str) -> None:
    setting = resolved(this_machine(), default_config(profile_named(profile)), profile_named(profile))
    assert setting.allocatable["memory"] <= setting.capacity["memory"]
