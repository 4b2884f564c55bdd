"""The capacity of this machine: CPUs, memory, huge pages, process ids, the disk of a directory."""

from __future__ import annotations

import functools
import itertools
import os

from plimsoll.rules.model.kernel import CgroupVersion
from plimsoll.rules.model.objects import EPHEMERAL_STORAGE, HUGEPAGES_PREFIX, ResourceList
from plimsoll.rules.node.node_config import Machine
from plimsoll.rules.quantity import from_units

HUGEPAGES = "/sys/kernel/mm/hugepages"


def this_machine(storage: str = "/var/lib") -> Machine:
    """The capacity as the kubelet measures it (01 N-1, N-2); `storage`: a directory on the disk that pods write to."""
    meminfo = meminfo_bytes(_text("/proc/meminfo"))
    return Machine(
        cores=os.cpu_count() or 1,
        memory_bytes=meminfo["MemTotal"],
        others={**_hugepages(), **_ephemeral_storage(storage)},
        swap_bytes=meminfo.get("SwapTotal", 0),
        pid_capacity=min(_number("/proc/sys/kernel/pid_max"), _number("/proc/sys/kernel/threads-max")),
        page_size=os.sysconf("SC_PAGE_SIZE"),
        name=os.uname().nodename,
    )


def cgroup_version() -> CgroupVersion:
    """2 where cgroup2 is mounted at /sys/fs/cgroup; a hybrid host counts as v1 (02 §3)."""
    return 2 if os.path.exists("/sys/fs/cgroup/cgroup.controllers") else 1


def meminfo_bytes(text: str) -> dict[str, int]:
    """`MemTotal:  263192560 kB` → bytes; lines without a unit are counts and omitted."""
    sizes = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if len(words) == 2 and words[1] == "kB":
            sizes[name] = int(words[0]) * 1024
    return sizes


def _hugepages() -> ResourceList:
    resources: ResourceList = {}
    if os.path.isdir(HUGEPAGES):
        for directory in sorted(os.listdir(HUGEPAGES)):
            size = int(directory.removeprefix("hugepages-").removesuffix("kB")) * 1024
            count = _number(f"{HUGEPAGES}/{directory}/nr_hugepages")
            resources[HUGEPAGES_PREFIX + str(from_units(size, "BinarySI"))] = from_units(size * count, "BinarySI")
    return resources


def _ephemeral_storage(directory: str) -> ResourceList:
    try:
        disk = os.statvfs(directory)
    except OSError:
        disk = os.statvfs("/")
    return {EPHEMERAL_STORAGE: from_units(disk.f_frsize * disk.f_blocks, "BinarySI")}


def text_or_empty(path: str | os.PathLike[str]) -> str:
    """Empty where this kernel does not have the file."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def _number(path: str) -> int:
    return int(_text(path))


def _text(path: str) -> str:
    with open(path, encoding="ascii") as file:
        return file.read()


@functools.cache  # chosen at boot
def has_app_armor() -> bool:
    """Whether the kernel enforces AppArmor profiles."""
    try:
        with open("/sys/module/apparmor/parameters/enabled", encoding="ascii") as file:
            return file.read(1) == "Y"
    except OSError:
        return False


def has_selinux() -> bool:
    """Whether the kernel has a loaded SELinux policy, enforcing or permissive."""
    return os.path.exists("/sys/fs/selinux/enforce")


@functools.cache
def kernel_version() -> tuple[int, int]:
    """`6.18.44-cloud` → (6, 18)."""
    first, second = [*os.uname().release.split("."), "0"][:2]
    return int(first), int("".join(itertools.takewhile(str.isdigit, second)) or 0)
