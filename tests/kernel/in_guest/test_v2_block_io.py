"""Limits of block I/O on cgroup v2, on the disk of a guest."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from plimsoll.cgroups.drivers.detect import open_cgroupfs, this_host
from plimsoll.cgroups.drivers.v2 import CgroupsV2
from plimsoll.codec.lean.audited_pod import audited_pod
from plimsoll.linux.block_devices import device_path, disk_number
from plimsoll.rules.attach.policy import attach_policy
from plimsoll.rules.blockio.policy import IO_MAX
from tests.kernel.attach_kills import KillBench, pod_document
from tests.kernel.block_io_checks import limits_hold_and_change, written_s
from tests.kernel.driver_checks import MI, remove_tree

SCRATCH = Path("/scratch")


@pytest.fixture
def disk() -> str:
    if not SCRATCH.is_mount():
        pytest.skip("this guest has no disk")
    number = os.stat(SCRATCH).st_dev
    return device_path(f"{os.major(number)}:{os.minor(number)}")


@pytest.fixture
def driver() -> Iterator[CgroupsV2]:
    opened = open_cgroupfs(this_host())
    assert isinstance(opened, CgroupsV2)
    yield opened
    opened.close()


@pytest.fixture
def root(driver: CgroupsV2) -> Iterator[str]:
    path = f"/plimsoll-test-{secrets.token_hex(6)}"
    yield path
    remove_tree(driver, path)


def test_limits_of_a_pod(driver: CgroupsV2, root: str, disk: str, tmp_path: Path) -> None:
    limits_hold_and_change(driver, root, tmp_path / "state", disk, str(SCRATCH / "written"))


async def test_limits_of_a_pod_of_a_kubelet_by_attach(driver: CgroupsV2, root: str, disk: str, tmp_path: Path) -> None:
    """The cgroups are as a kubelet makes them; nothing of the pod runs but what writes to the disk."""
    bench = KillBench(root, 1, tmp_path / "state")
    await bench.make()
    pod = bench.paths[-2]
    document = pod_document(0)
    document["metadata"]["annotations"] = {IO_MAX: "wbps=1Mi"}
    bench.pods = [audited_pod(msgspec.json.encode(document))]
    policy = attach_policy({"ioControl": {"devices": [disk], "ceilings": {"*": {"max": "wbps=8Mi"}}}})
    service = bench.service("enforce", policy)
    await service.round()
    number = disk_number(disk)
    assert read(driver, pod) == f"{number} rbps=max wbps={MI} riops=max wiops=max"
    assert await asyncio.to_thread(written_s, driver, f"{pod}/id0", str(SCRATCH / "written"), 2) >= 1.5
    service.journal.close()
    assert {each.outcome for each in await bench.restored()} == {"restored"}
    assert read(driver, pod) == ""


def read(driver: CgroupsV2, path: str) -> str:
    found = driver.read(path, ["io.max"])
    assert found is not None
    return found.files["io.max"]
