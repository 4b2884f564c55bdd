"""Units of the systemd in the guest: what it shows of them, and their directories."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from plimsoll.cgroups.drivers.interface import CgroupGoneError
from plimsoll.cgroups.drivers.systemd import SystemdCgroups


async def remove_all(driver: SystemdCgroups, path: str) -> None:
    for child in driver.children(path):
        await remove_all(driver, f"{path}/{child}")
    try:
        await driver.kill(path)
        await driver.remove(path)
    except CgroupGoneError:
        pass


def stem(path: str) -> str:
    return path.rpartition("/")[2].partition(".")[0]


def unit(path: str) -> str:
    return path.rpartition("/")[2]


def show(path: str, name: str) -> str:
    return shown(path, name)[name]


def systemctl(*args: str) -> None:
    subprocess.run(["systemctl", *args], check=True)


def text_of(driver: SystemdCgroups, path: str, file: str) -> str:
    seen = driver.read(path, [file])
    assert seen is not None
    return seen.files[file]


def eventually(condition: Callable[[], bool], deadline_s: float = 60.0) -> bool:
    end = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def directories(path: str) -> list[str]:
    """Where a cgroup of that name is left, in any hierarchy."""
    return [str(found) for found in Path("/sys/fs/cgroup").rglob(unit(path))]


def shown(path: str, *names: str) -> dict[str, str]:
    argv = ["systemctl", "show", unit(path), *(f"-p{name}" for name in names)]
    lines = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()
    return dict(line.split("=", 1) for line in lines)
