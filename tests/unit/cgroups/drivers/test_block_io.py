"""`ioControl` on this machine: devices that exist, what this kernel has, and what has no effect."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from plimsoll.cgroups.drivers.block_io import on_this_machine
from plimsoll.cgroups.drivers.simulated import SimulatedKernel
from plimsoll.errors import InvalidConfigError
from plimsoll.rules.blockio.entries import limit_entries
from plimsoll.rules.blockio.policy import IoCeiling, IoDevice, IoPolicy
from plimsoll.rules.config.parse import default_config
from plimsoll.rules.model.kernel import CgroupVersion
from plimsoll.rules.node.node_config import Machine, NodeConfig, resolved
from plimsoll.rules.profile import DEFAULT_PROFILE


@pytest.fixture
def disk() -> str:
    found = next((path for path in sorted(Path("/dev").glob("loop[0-9]*")) if path.is_block_device()), None)
    if found is None:
        pytest.skip("this machine has no block device to look at")
    return str(found)


def setting(version: CgroupVersion, *devices: str, ceiling: str = "") -> NodeConfig:
    ceilings = {"*": IoCeiling(limit_entries(ceiling))} if ceiling else {}
    io = IoPolicy(tuple(IoDevice(device) for device in devices), ceilings=ceilings)
    machine = Machine(cores=2, memory_bytes=1 << 30, others={})
    return resolved(machine, default_config(DEFAULT_PROFILE), DEFAULT_PROFILE, cgroup_version=version, io=io)


def test_a_disk_that_divides_by_no_weight(disk: str) -> None:
    found, notes = on_this_machine(setting(2, disk), SimulatedKernel(2), by_runtime=True)
    status, io = os.stat(disk), found.policy.io
    assert io is not None
    assert io.devices == (IoDevice(disk, f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"),)
    assert (io.weight_files, io.no_limits) == (("io.weight",), "")
    (note,) = notes
    assert f"ioControl.weights have no effect on {disk}" in note
    assert f"echo '{io.devices[0].number} enable=1' > /sys/fs/cgroup/io.cost.qos" in note


def test_v1_with_a_container_runtime_has_no_limits(disk: str) -> None:
    found, _ = on_this_machine(setting(1, disk), SimulatedKernel(1), by_runtime=True)
    assert found.policy.io is not None
    assert "which the container runtime owns" in found.policy.io.no_limits
    with pytest.raises(
        InvalidConfigError, match=r"ioControl.ceilings: cgroup v1 limits I/O only in the cgroup of each"
    ):
        on_this_machine(setting(1, disk, ceiling="wbps=1"), SimulatedKernel(1), by_runtime=True)
    plain, _ = on_this_machine(setting(1, disk, ceiling="wbps=1"), SimulatedKernel(1), by_runtime=False)
    assert plain.policy.io is not None
    assert plain.policy.io.no_limits == ""


@pytest.mark.parametrize(
    ("devices", "reason"),
    [
        (["/dev/no-such-disk"], r"ioControl.devices\[0\]: /dev/no-such-disk: No such file or directory; `lsblk` lists"),
        (["DISK", "/dev/null"], r"ioControl.devices\[1\]: /dev/null: not a block device"),
        (["DISK", "OTHER"], r"ioControl.devices\[1\]: .* is the same disk as "),
    ],
)
def test_what_is_no_disk(devices: list[str], reason: str, disk: str, tmp_path: Path) -> None:
    (tmp_path / "other").symlink_to(disk)
    named = [{"DISK": disk, "OTHER": str(tmp_path / "other")}.get(each, each) for each in devices]
    with pytest.raises(InvalidConfigError, match=reason):
        on_this_machine(setting(2, *named), SimulatedKernel(2), by_runtime=False)


def test_a_kernel_that_does_not_control_io(disk: str) -> None:
    kernel = SimulatedKernel(2, lacking={"io.max": "controller io is not in /sys/fs/cgroup/cgroup.controllers"})
    with pytest.raises(InvalidConfigError, match="ioControl: this machine cannot control I/O: controller io is not"):
        on_this_machine(setting(2, disk), kernel, by_runtime=False)


def test_a_kernel_without_latency_targets(disk: str) -> None:
    """As Debian's; cgroup v1 has none on any kernel."""
    kernel = SimulatedKernel(2, lacking={"io.latency": "this kernel's cgroups have no io.latency"})
    policies = [
        on_this_machine(setting(machine.version, disk), machine, by_runtime=False)[0].policy.io
        for machine in (kernel, SimulatedKernel(2), SimulatedKernel(1))
    ]
    assert [policy and policy.no_latency for policy in policies] == [
        "this kernel's cgroups have no io.latency",
        "",
        "cgroup v1 has no io.latency",
    ]


def test_a_kernel_without_weights(disk: str) -> None:
    kernel = SimulatedKernel(2, lacking={"io.weight": "this kernel's cgroups have no io.weight"})
    found, notes = on_this_machine(setting(2, disk), kernel, by_runtime=False)
    assert found.policy.io is not None
    assert found.policy.io.weight_files == ()
    assert "io.weight is not written: this kernel's cgroups have no io.weight" in notes[0]


def test_nothing_is_read_while_io_is_not_controlled() -> None:
    machine = Machine(cores=2, memory_bytes=1 << 30, others={})
    plain = resolved(machine, default_config(DEFAULT_PROFILE), DEFAULT_PROFILE)
    assert on_this_machine(plain, SimulatedKernel(2), by_runtime=False) == (plain, [])
