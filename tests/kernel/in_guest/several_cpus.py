"""What user-mode Linux does not have, in one small program of plain Python: pytest alone would take 11 seconds here.

Several CPUs and cpusets through both drivers, PSI per cgroup, hugetlb files. Says each thing that was seen, and `all
seen` at the end; anything else ends with an AssertionError.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

from plimsoll.cgroups.drivers.detect import open_cgroupfs, this_host
from plimsoll.cgroups.drivers.interface import CgroupGoneError
from plimsoll.cgroups.drivers.systemd import SystemdCgroups
from plimsoll.cgroups.drivers.v1 import CgroupsV1
from plimsoll.cgroups.drivers.v2 import CgroupsV2
from plimsoll.cgroups.engine import scope_holder

Cgroupfs = CgroupsV1 | CgroupsV2
SLICE = "/plimsoll_test_smp.slice"
SCOPE = f"{SLICE}/plimsoll_test_smp-one.scope"


async def main() -> None:
    cgroupfs = open_cgroupfs(this_host())
    systemd = SystemdCgroups(cgroupfs)
    await systemd.make(SLICE)
    await systemd.make(SCOPE, pid=scope_holder.start(SCOPE))
    (pid,) = systemd.members(SCOPE)
    assert os.cpu_count() == 2, os.cpu_count()
    assert os.sched_getaffinity(pid) == {0, 1}

    for path, cpus in ((SLICE, "0-1"), (SCOPE, "1")):
        await systemd.write(path, "cpuset.cpus", cpus)
        await systemd.write(path, "cpuset.mems", "0")
    said("cpuset through systemd", text(cgroupfs, SCOPE, "cpuset.cpus"), "1")
    said("… on the CPUs of its process", str(os.sched_getaffinity(pid)), "{1}")
    said("… in the unit", systemctl("show", "-P", "AllowedCPUs", SCOPE.rpartition("/")[2]), "1")
    systemctl("daemon-reload")
    said("… after daemon-reload", text(cgroupfs, SCOPE, "cpuset.cpus"), "1")

    await cgroupfs.write(SCOPE, "cpuset.cpus", "0")
    said("cpuset changed behind systemd's back", str(os.sched_getaffinity(pid)), "{0}")
    await systemd.write(SCOPE, "cpuset.cpus", "1")
    said("… and set again", str(os.sched_getaffinity(pid)), "{1}")

    pressure = text(cgroupfs, SCOPE, "memory.pressure")
    assert pressure.startswith("some avg10="), pressure
    assert machine_pressure().startswith("some avg10=")
    print("seen: PSI of the machine and of the cgroup")

    if not (why := cgroupfs.has("hugetlb.2MB.max")):
        await systemd.write(SCOPE, "hugetlb.2MB.max", str(4 << 20))
        said("hugetlb", text(cgroupfs, SCOPE, "hugetlb.2MB.max"), str(4 << 20))
    else:
        print(f"not seen: hugetlb: {why}")

    await systemd.kill(SCOPE)
    try:
        await systemd.remove(SCOPE)
    except CgroupGoneError:
        print("seen: the scope went by itself")
    await systemd.remove(SLICE)
    assert systemd.children("/").count(SLICE[1:]) == 0
    await systemd.close()
    print("all seen")


def systemctl(*args: str) -> str:
    return subprocess.run(["systemctl", *args], capture_output=True, text=True, check=True).stdout.strip()


def machine_pressure() -> str:
    return Path("/proc/pressure/memory").read_text()


def text(driver: Cgroupfs, path: str, file: str) -> str:
    seen = driver.read(path, [file])
    assert seen is not None, path
    return seen.files[file]


def said(what: str, found: str, expected: str) -> None:
    assert found == expected, f"{what}: {found!r} instead of {expected!r}"
    print(f"seen: {what}: {found}")


if __name__ == "__main__":
    asyncio.run(main())
