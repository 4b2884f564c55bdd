"""Block devices, from a /sys of the test's own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from plimsoll.linux.block_devices import device_path, disk_number, scheduler


def made_sys(directory: Path, number: str, of: str) -> Path:
    """A /sys with one disk 254:0 and its partition 254:1; `number` is the device that /dev has."""
    disk = directory / "devices" / "vda"
    (disk / "queue").mkdir(parents=True)
    (disk / "dev").write_text("254:0\n")
    (disk / "uevent").write_text("MAJOR=254\nMINOR=0\nDEVNAME=vda\nDEVTYPE=disk\n")
    (disk / "queue" / "scheduler").write_text("none mq-deadline [bfq]\n")
    part = disk / "vda1"
    part.mkdir()
    (part / "partition").write_text("1\n")
    (directory / "dev/block").mkdir(parents=True)
    (directory / "dev/block" / number).symlink_to(disk if of == "disk" else part)
    return directory


def test_path_and_scheduler(tmp_path: Path) -> None:
    sys = made_sys(tmp_path, "254:0", "disk")
    assert (device_path("254:0", sys), scheduler("254:0", sys)) == ("/dev/vda", "bfq")
    assert (device_path("8:0", sys), scheduler("8:0", sys)) == ("", "")


def test_a_partition_is_its_disk(tmp_path: Path) -> None:
    device = next((path for path in Path("/dev").glob("loop[0-9]*") if path.is_block_device()), None)
    if device is None:
        pytest.skip("this machine has no block device to look at")
    status = os.stat(device)
    number = f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
    assert disk_number(str(device)) == number
    assert disk_number(str(device), made_sys(tmp_path, number, "partition")) == "254:0"


@pytest.mark.parametrize(
    ("path", "of"), [("/dev/vda-test", "disk"), ("/dev/vda-test1", "partition"), ("/dev/cciss/c0d0", "disk")]
)
def test_a_disk_that_dev_does_not_have(path: str, of: str, tmp_path: Path) -> None:
    """As in a container."""
    number = "254:0" if of == "disk" else "254:1"
    sys = made_sys(tmp_path, number, of)
    place = sys / "class/block" / path.removeprefix("/dev/").replace("/", "!")
    place.mkdir(parents=True)
    (place / "dev").write_text(f"{number}\n")
    assert disk_number(path, sys) == "254:0"


@pytest.mark.parametrize("path", ["/dev/null", "/nowhere", "/dev/nowhere"])
def test_what_is_no_disk(path: str) -> None:
    with pytest.raises(OSError, match=r"not a block device|No such file"):
        disk_number(path)
