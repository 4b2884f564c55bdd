"""Limits of block I/O on this machine's cgroup v1, on a loop device of the test's own."""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from plimsoll.cgroups.drivers.detect import Hierarchies, open_cgroupfs
from plimsoll.cgroups.drivers.v1 import CgroupsV1
from tests.kernel.block_io_checks import limits_hold_and_change
from tests.kernel.driver_checks import remove_tree


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[str]:
    image = tmp_path / "disk"
    with image.open("wb") as file:
        file.truncate(8 << 20)
    try:
        made = subprocess.run(["losetup", "-f", "--show", str(image)], check=False, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("no loop devices: losetup is not installed (package mount)")
    if made.returncode:
        pytest.skip(f"no loop devices: {made.stderr.strip()}")
    yield made.stdout.strip()
    subprocess.run(["losetup", "-d", made.stdout.strip()], check=True)


def test_limits_of_a_pod(
    host_v1: Hierarchies, disk: str, tmp_path: Path, exercised: Callable[[str, str], None]
) -> None:
    driver = open_cgroupfs(host_v1)
    assert isinstance(driver, CgroupsV1)
    if why := driver.has("blkio.throttle.write_bps_device"):
        pytest.skip(f"blkio: {why}")
    root = f"/plimsoll-test-{secrets.token_hex(6)}"
    try:
        limits_hold_and_change(driver, root, tmp_path / "state", disk, disk)
    finally:
        remove_tree(driver, root)
        driver.close()
    exercised("block I/O", "this machine, cgroup v1, a loop device")
