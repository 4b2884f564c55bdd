"""Limits of block I/O on a real kernel: a pod's limit holds, changes in place, and goes. Both cgroup versions.

Only the least time that a limited write takes is checked, which no machine is too slow or too fast for.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import msgspec

from plimsoll.cgroups.drivers.block_io import on_this_machine
from plimsoll.cgroups.engine.manager import CgroupManager
from plimsoll.codec.lean.lean import from_document
from plimsoll.rules.blockio.entries import limit_entries
from plimsoll.rules.blockio.policy import IO_MAX, IoCeiling, IoDevice, IoPolicy
from plimsoll.rules.config.parse import default_config
from plimsoll.rules.model.objects import Pod
from plimsoll.rules.node.node_config import Machine, NodeConfig, resolved
from plimsoll.rules.profile import profile_named
from tests.kernel.driver_checks import MI, Cgroupfs, started

WRITE = 'dd if=/dev/zero of="$1" bs=64k count="$2" oflag=direct conv=notrunc'
UID = "dba294ab-05fe-4314-a6d0-f9e0b3848104"


def io_setting(driver: Cgroupfs, root: str, disk: str) -> NodeConfig:
    profile = profile_named("1.36")
    config = msgspec.structs.replace(default_config(profile), cgroup_root=root, fail_cgroup_v1=False)
    machine = Machine(cores=2, memory_bytes=1 << 30, others={}, swap_controller=False, pid_capacity=30000)
    io = IoPolicy((IoDevice(disk),), ceilings={"*": IoCeiling(limit_entries("wbps=8Mi"))})
    plain = resolved(
        machine, config, profile, cgroup_version=driver.version, driver="cgroupfs", runtime="process", io=io
    )
    return on_this_machine(plain, driver, by_runtime=False)[0]


def pod(io_max: str) -> Pod:
    annotations = {IO_MAX: io_max} if io_max else {}
    metadata = {"name": "writer", "namespace": "default", "uid": UID, "annotations": annotations}
    return from_document({"metadata": metadata, "spec": {"containers": [{"name": "c", "image": "x"}]}}, Pod)


def written_s(driver: Cgroupfs, path: str, target: str, mebibytes: int) -> float:
    start = time.monotonic()
    with started(driver, path, WRITE, target, str(mebibytes * 16)) as process:
        assert process.wait(60) == 0
    return time.monotonic() - start


def limits_hold_and_change(driver: Cgroupfs, root: str, state: Path, disk: str, target: str) -> None:
    """`target`: what is written to; on `disk`."""
    setting = io_setting(driver, root, disk)
    assert setting.policy.io is not None
    number = setting.policy.io.devices[0].number
    tree = CgroupManager(driver, setting, state)
    asyncio.run(tree.setup())
    asyncio.run(tree.add([pod("wbps=1Mi")]))
    paths = tree.paths(UID)
    own, container = paths[""], paths["c"]
    file, path = ("io.max", own) if driver.version == 2 else ("blkio.throttle.write_bps_device", container)

    def text(limit: int) -> str:
        return f"{number} rbps=max wbps={limit} riops=max wiops=max" if driver.version == 2 else f"{number} {limit}"

    def read() -> str:
        found = driver.read(path, [file])
        assert found is not None
        return found.files[file]

    assert read() == text(MI)
    assert written_s(driver, container, target, 2) >= 1.5
    asyncio.run(tree.resize(pod("wbps=3Mi")))
    assert read() == text(3 * MI)
    asyncio.run(tree.resize(pod("")))
    assert read() == text(8 * MI)  # the ceiling
    with driver.directory(path, file) as directory:
        directory.write(file, f"{number} wbps=max" if driver.version == 2 else f"{number} 0")
    repaired = asyncio.run(tree.repair(lambda: [UID]))
    assert [each.file for each in repaired.done] == [file]
    assert read() == text(8 * MI)
    asyncio.run(tree.teardown(kill=True))
