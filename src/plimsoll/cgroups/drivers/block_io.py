"""Block I/O on this machine: the devices of `ioControl`, the files that its kernel has, and what has no effect."""

from __future__ import annotations

import msgspec

from plimsoll.cgroups.drivers.interface import CgroupDriver
from plimsoll.errors import InvalidConfigError
from plimsoll.linux.block_devices import BFQ, disk_number, scheduler
from plimsoll.rules.blockio.files import IO_LATENCY_FILE, IO_MAX_FILE, THROTTLE_V1
from plimsoll.rules.blockio.policy import NO_LATENCY_V1, IoDevice, IoPolicy
from plimsoll.rules.node.node_config import NodeConfig

COST = "io.cost.qos"
BFQ_FILES = {1: "blkio.bfq.weight", 2: "io.bfq.weight"}
_BY_RUNTIME = (
    "cgroup v1 limits I/O only in the cgroup of each container, which the container runtime owns: use cgroup v2, or "
    "the embedded runtime"
)


def on_this_machine(setting: NodeConfig, driver: CgroupDriver, *, by_runtime: bool) -> tuple[NodeConfig, list[str]]:
    """The setting with the devices and files of this machine, and what has no effect on it.

    `by_runtime`: a container runtime owns the cgroups of containers. Raises InvalidConfigError where a device does not
    exist or this kernel does not control I/O."""
    policy = setting.policy.io
    if policy is None:
        return setting, []
    if why := driver.has(IO_MAX_FILE if driver.version == 2 else THROTTLE_V1["rbps"]):
        raise InvalidConfigError("ioControl", f"this machine cannot control I/O: {why}")
    devices = _devices(policy)
    has_bfq = [device for device in devices if scheduler(device.number) == BFQ]
    files = [BFQ_FILES[driver.version]] if has_bfq else []
    notes = []
    if driver.version == 2:
        if why := driver.has("io.weight"):
            notes.append(f"ioControl.weights: io.weight is not written: {why}")
        else:
            files.insert(0, "io.weight")
    no_limits = "" if driver.version == 2 or not by_runtime else _BY_RUNTIME
    if no_limits and any(ceiling.limits for ceiling in policy.ceilings.values()):
        raise InvalidConfigError("ioControl.ceilings", no_limits)
    notes += [_no_weights(device, driver) for device in devices if not _weighs(device, driver)]
    by_systemd = driver.version == 2 and bool(has_bfq) and setting.driver == "systemd"
    policy = msgspec.structs.replace(
        policy,
        devices=devices,
        weight_files=tuple(files),
        no_limits=no_limits,
        no_latency=NO_LATENCY_V1 if driver.version == 1 else driver.has(IO_LATENCY_FILE) or "",
        bfq_by_systemd=by_systemd,
        unweighted=tuple(notes),
    )
    return msgspec.structs.replace(setting, policy=msgspec.structs.replace(setting.policy, io=policy)), notes


def _devices(policy: IoPolicy) -> tuple[IoDevice, ...]:
    found: dict[str, IoDevice] = {}
    for index, device in enumerate(policy.devices):
        field = f"ioControl.devices[{index}]"
        try:
            number = disk_number(device.path)
        except OSError as error:
            reason = f"{device.path}: {error.strerror or error}; `lsblk` lists the disks of this machine"
            raise InvalidConfigError(field, reason) from None
        if number in found:
            raise InvalidConfigError(field, f"{device.path} is the same disk as {found[number].path}")
        found[number] = IoDevice(device.path, number)
    return tuple(found.values())


def _weighs(device: IoDevice, driver: CgroupDriver) -> bool:
    """Whether the kernel divides this device by weight: with BFQ, or with io.cost."""
    if scheduler(device.number) == BFQ:
        return True
    root = driver.read("/", [COST]) if driver.version == 2 else None
    lines = root.files.get(COST, "").splitlines() if root is not None else []
    return any(line.split()[:1] == [device.number] and "enable=1" in line.split() for line in lines)


def _no_weights(device: IoDevice, driver: CgroupDriver) -> str:
    name = device.path.rpartition("/")[2]
    advice = f"`echo bfq > /sys/block/{name}/queue/scheduler`"
    if driver.version == 2:
        advice += f", or `echo '{device.number} enable=1' > /sys/fs/cgroup/{COST}`"
    return f"ioControl.weights have no effect on {device.path}, which divides its I/O by no weight: {advice}"
