"""Limits of block I/O on cgroup v2, on the disk of a guest."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import pytest

from plimsoll.cgroups.drivers.detect import open_cgroupfs, this_host
from plimsoll.cgroups.drivers.v2 import CgroupsV2
from plimsoll.linux.block_devices import device_path
from tests.kernel.block_io_checks import limits_hold_and_change
from tests.kernel.driver_checks import remove_tree

SCRATCH = Path("/scratch")


def test_limits_of_a_pod(tmp_path: Path) -> None:
    if not SCRATCH.is_mount():
        pytest.skip("this guest has no disk")
    number = os.stat(SCRATCH).st_dev
    disk = device_path(f"{os.major(number)}:{os.minor(number)}")
    driver = open_cgroupfs(this_host())
    assert isinstance(driver, CgroupsV2)
    root = f"/plimsoll-test-{secrets.token_hex(6)}"
    try:
        limits_hold_and_change(driver, root, tmp_path / "state", disk, str(SCRATCH / "written"))
    finally:
        remove_tree(driver, root)
        driver.close()
