"""Block devices: the number behind a path, the path of a number, and how a device divides its I/O.

The I/O controller counts whole disks: a partition stands for its disk.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

import msgspec

from plimsoll.rules.blockio.policy import IoDevice, IoPolicy

SYS = Path("/sys")
BFQ = "bfq"


def disk_number(path: str, sys: Path = SYS) -> str:
    """MAJOR:MINOR of the disk at this path, or of the disk that the partition is on. Raises OSError.

    A container has a /dev of its own without disks; the kernel lists them in /sys.
    """
    try:
        status = os.stat(path)
    except FileNotFoundError:
        named = sys / "class/block" / path.removeprefix("/dev/").replace("/", "!") / "dev"
        if not path.startswith("/dev/") or not named.exists():
            raise
        number = named.read_text(encoding="ascii").strip()
    else:
        if not stat.S_ISBLK(status.st_mode):
            raise OSError(0, "not a block device")
        number = f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
    place = sys / "dev/block" / number
    if (place / "partition").exists():
        return (place.resolve().parent / "dev").read_text(encoding="ascii").strip()
    return number


def known_devices(policy: IoPolicy) -> IoPolicy:
    """With the numbers of those devices that this machine has."""
    devices = []
    for device in policy.devices:
        number = ""
        with suppress(OSError):
            number = disk_number(device.path)
        devices.append(IoDevice(device.path, number))
    return msgspec.structs.replace(policy, devices=tuple(devices))


def device_path(number: str, sys: Path = SYS) -> str:
    """`253:0` → `/dev/vda`; empty where there is no such device."""
    try:
        lines = (sys / "dev/block" / number / "uevent").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((f"/dev/{line.removeprefix('DEVNAME=')}" for line in lines if line.startswith("DEVNAME=")), "")


def scheduler(number: str, sys: Path = SYS) -> str:
    """The I/O scheduler in use: `none [bfq]` → bfq; empty where the device has none."""
    try:
        words = (sys / "dev/block" / number / "queue/scheduler").read_text(encoding="ascii").split()
    except OSError:
        return ""
    return next((word.strip("[]") for word in words if word.startswith("[")), "")
