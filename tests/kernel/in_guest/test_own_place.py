"""systemCgroups in a guest, where every process may be moved: programs go, init and the kernel's threads stay."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from plimsoll.cgroups.drivers.detect import open_cgroupfs, this_host
from plimsoll.errors import PlimsollError
from plimsoll.node.resources.kubelet_cgroups import OwnPlace
from plimsoll.rules.config.parse import default_config
from plimsoll.rules.profile import PROFILE_DOCUMENTS

PATH = "/plimsoll-system"


@pytest.fixture
def sleeper() -> Iterator[int]:
    process = subprocess.Popen(["sleep", "1000"])
    yield process.pid
    process.kill()
    process.wait()


def programs(pids: list[int]) -> list[int]:
    return [pid for pid in pids if pid > 1 and Path(f"/proc/{pid}/cmdline").read_bytes()]


async def test_programs_of_the_top_are_moved(sleeper: int) -> None:
    driver = open_cgroupfs(this_host())
    config = msgspec.structs.replace(default_config(PROFILE_DOCUMENTS), kubelet_oom_score_adj=0, system_cgroups=PATH)
    with pytest.raises(PlimsollError, match="--allow-move-system-processes"):
        OwnPlace(config, driver)
    try:
        await driver.move("/", sleeper)
        place = OwnPlace(config, driver, may_move_system=True)
        assert await place.take() == []
        assert sleeper in driver.members(PATH)
        assert 1 in driver.members("/") and not programs(driver.members("/"))
        assert await place.take() == []  # and again: nothing to do
    finally:
        for pid in driver.members(PATH):
            await driver.move("/", pid)
        await driver.remove(PATH)
    assert os.getpid() in driver.members("/")
