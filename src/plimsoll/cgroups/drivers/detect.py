"""Detect the cgroup hierarchies of this machine, and open the driver for them.

A host is v2 where the usual mount point (/sys/fs/cgroup) is a cgroup2 mount, or where only cgroup2 is mounted. With v1
controllers beside it, the host is hybrid and counts as v1 (02 §3). A hierarchy may be mounted a second time elsewhere
(Cilium mounts cgroup2 below /run): the usual mount point wins, then the shortest path. In a container the mount may
show only a part of the tree; the paths of /proc/self/cgroup are then translated to it.

`hierarchies` is pure; `this_host` reads mountinfo and two more files of /proc.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

import msgspec

from plimsoll.cgroups.drivers.v1 import CgroupsV1
from plimsoll.cgroups.drivers.v2 import CgroupsV2
from plimsoll.codec.kernel.files import MountLine, below_mount, enabled_controllers, mountinfo, own_cgroups
from plimsoll.errors import PlimsollError
from plimsoll.linux.cgroup_files import CgroupGoneError
from plimsoll.linux.machine import text_or_empty
from plimsoll.rules.model.kernel import CgroupVersion

USUAL = "/sys/fs/cgroup"
SYSTEMD = "name=systemd"
REQUIRED_V1 = ("cpu", "cpuacct", "cpuset", "memory")


class CgroupsUnusableError(PlimsollError):
    """The cgroups of this machine cannot be used for a node; the text is the kubelet's where it has one."""


class Mounted(msgspec.Struct, frozen=True):
    """The mount of one hierarchy."""

    mount_point: str
    root: str = "/"  # the cgroup that appears there as `/`
    read_only: bool = False
    own_path: str | None = None  # this process's cgroup, below the mount; None where it is outside


class Hierarchies(msgspec.Struct, frozen=True):
    version: CgroupVersion
    v1: Mapping[str, Mounted] = {}  # controller or name=systemd → its mount; joint controllers share one
    unified: Mounted | None = None  # v2, or the hierarchy without controllers of a hybrid host
    disabled: tuple[str, ...] = ()  # controllers that are disabled at boot

    @property
    def hybrid(self) -> bool:
        return self.version == 1 and self.unified is not None

    @property
    def read_only(self) -> bool:
        """Whether a hierarchy that a node needs is mounted read-only."""
        if self.version == 2:
            return self.unified is None or self.unified.read_only
        return any(self.v1[name].read_only for name in REQUIRED_V1 if name in self.v1)


def hierarchies(mountinfo_text: str, own_cgroup_text: str, proc_cgroups_text: str = "") -> Hierarchies:
    """From the texts of /proc/self/mountinfo, /proc/self/cgroup and /proc/cgroups."""
    lines = {line.mount_point: line for line in mountinfo(mountinfo_text)}.values()  # the last mount hides the others
    own = {name: line.path for line in own_cgroups(own_cgroup_text) for name in line.controllers or ("",)}
    known = enabled_controllers(proc_cgroups_text)
    v1: dict[str, MountLine] = {}
    for line in lines:
        if line.file_system == "cgroup":
            for name in _controllers(line, known, own):
                v1[name] = _better(v1.get(name), line)
    unified: MountLine | None = None
    for line in lines:
        if line.file_system == "cgroup2":
            unified = _better(unified, line)
    # A lone name=systemd beside cgroup2 (some containers of old images) has no controllers: still v2.
    on_v1 = any(name != SYSTEMD for name in v1) or (unified is None and bool(v1))
    if unified is None and not v1:
        raise CgroupsUnusableError(f"no cgroup file system is mounted: mount -t cgroup2 none {USUAL}")
    return Hierarchies(
        1 if on_v1 and (unified is None or unified.mount_point != USUAL) else 2,
        {name: _mounted(line, own.get(name)) for name, line in sorted(v1.items())},
        None if unified is None else _mounted(unified, own.get("")),
        tuple(sorted(name for name, enabled in known.items() if not enabled)),
    )


def _controllers(line: MountLine, known: Mapping[str, bool], own: Mapping[str, str]) -> list[str]:
    """The controllers among a v1 mount's options, by the kernel's lists or, without these, by a fixed set."""
    names = known.keys() | own.keys() or _EVER
    return [option for option in line.super_options if option == SYSTEMD or (option and option in names)]


_EVER = frozenset(
    {"blkio", "cpu", "cpuacct", "cpuset", "debug", "devices", "freezer", "hugetlb", "memory", "misc", "net_cls"}
    | {"net_prio", "perf_event", "pids", "rdma"}
)


def _better(first: MountLine | None, second: MountLine) -> MountLine:
    """The usual mount point, then the shortest path, then the first (02 §2.2)."""
    if first is None:
        return second
    return min(first, second, key=lambda line: (line.mount_point != USUAL, len(line.mount_point)))


def _mounted(line: MountLine, own: str | None) -> Mounted:
    return Mounted(line.mount_point, line.root, line.read_only, None if own is None else below_mount(own, line.root))


def memory_root(host: Hierarchies) -> str:
    """The prefix of our cgroup paths in the kernel's log: the cgroup that is mounted here as `/`; "" for the root."""
    mounted = host.unified if host.version == 2 else host.v1.get("memory")
    return "" if mounted is None else mounted.root.rstrip("/")


def check_required(host: Hierarchies) -> None:
    """The kubelet's check at start (02 §3): on v1 four controllers must be mounted, on v2 there is no check."""
    if host.version == 2:
        return
    missing = sorted(set(REQUIRED_V1) - host.v1.keys())
    if missing:
        listed = " ".join(missing)
        raise CgroupsUnusableError(f"system validation failed - Following Cgroup subsystem not mounted: [{listed}]")


def default_root(host: Hierarchies, may_write: Callable[[str], bool]) -> str:
    """The cgroup below which a node can be set up: `/`, or this process's topmost cgroup that is delegated to the user.

    `may_write`: whether this process can create children in a cgroup of the v2 mount and move processes there. On v1,
    delegation to another user than root is not safe.
    """
    if may_write("/"):
        return "/"
    own = host.unified.own_path if host.version == 2 and host.unified else None
    names = own.strip("/").split("/") if own else []
    for depth in range(1, len(names) + 1):
        path = "/" + "/".join(names[:depth])
        if may_write(path):
            return path
    if host.read_only:
        raise CgroupsUnusableError(
            "the cgroup file systems are mounted read-only: mount -o remount,rw makes them writable"
        )
    raise CgroupsUnusableError(
        "cgroups cannot be written: start as root, or in a delegated cgroup "
        "(systemd-run --user --scope -p Delegate=yes plimsoll …)"
    )


def this_host(proc: str = "/proc") -> Hierarchies:
    texts = (text_or_empty(f"{proc}/{name}") for name in ("self/mountinfo", "self/cgroup", "cgroups"))
    return hierarchies(*texts)


def writable(host: Hierarchies) -> Callable[[str], bool]:
    """For `default_root`: checks file permissions; processes need cgroup.procs, limits need cgroup.subtree_control."""

    def may_write(path: str) -> bool:
        if host.version == 2 and host.unified is not None:
            at = host.unified.mount_point + path.rstrip("/")
            needed = [at, f"{at}/cgroup.procs", f"{at}/cgroup.subtree_control"]
            return not host.unified.read_only and all(os.access(file, os.W_OK) for file in needed)
        points = {host.v1[name].mount_point for name in REQUIRED_V1 if name in host.v1}
        return not host.read_only and all(os.access(point + path.rstrip("/"), os.W_OK) for point in points)

    return may_write


def entry_directories(files: CgroupsV1 | CgroupsV2, path: str) -> list[int]:
    """One fd per hierarchy, for a process that enters the cgroup; the caller closes them.

    Raises CgroupGoneError where no hierarchy has the cgroup.
    """
    mounts = [files.mount] if isinstance(files, CgroupsV2) else list(dict.fromkeys(files.hierarchies.values()))
    opened: list[int] = []
    gone: CgroupGoneError | None = None
    for mount in mounts:
        try:
            with mount.directory(path) as directory:
                opened.append(os.dup(directory.fd))
        except CgroupGoneError as error:  # a hierarchy that is not used
            gone = error
    if not opened and gone is not None:
        raise gone
    return opened


def open_cgroupfs(host: Hierarchies) -> CgroupsV1 | CgroupsV2:
    """The cgroupfs driver for this host's version."""
    unified = host.unified
    if host.version == 2:
        if unified is None:
            raise CgroupsUnusableError("cgroup2 is not mounted: mount -t cgroup2 none /sys/fs/cgroup")
        return CgroupsV2(unified.mount_point, unified.root)
    mounted = [*host.v1.values(), *([unified] if unified else [])]
    return CgroupsV1(
        {name: mount.mount_point for name, mount in host.v1.items()},
        unified.mount_point if unified else None,
        {mount.mount_point: mount.root for mount in mounted},
    )
