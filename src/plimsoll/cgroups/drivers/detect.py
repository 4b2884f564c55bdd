"""Which cgroups this machine has, read from mountinfo and /proc text.

A host is v2 where the place that everybody looks at (/sys/fs/cgroup) is a cgroup2 mount, or where cgroup2 is all there
is. As soon as v1 controllers are mounted beside it the host is hybrid and counts as v1 (spec 02 §3). Something else may
mount hierarchies a second time elsewhere (Cilium mounts cgroup2 below /run): the usual place wins, then the shortest
path. In a container the mount may show only a part of the tree; a path of /proc/self/cgroup is then brought below it.

`hierarchies` is pure; `this_host` reads the three files.

A cgroup's directories, opened for somebody else to enter: one per hierarchy on v1, one on v2.

From what was detected to a driver that can be used.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

import msgspec

from plimsoll.cgroups.drivers.v1 import CgroupsV1
from plimsoll.cgroups.drivers.v2 import CgroupsV2
from plimsoll.codec.kernel.files import MountLine, below_mount, enabled_controllers, mountinfo, own_cgroups
from plimsoll.errors import PlimsollError
from plimsoll.linux.cgroup_files import CgroupGoneError
from plimsoll.rules.model.cgroup_names import CgroupName
from plimsoll.rules.model.kernel import CgroupVersion

USUAL = "/sys/fs/cgroup"
SYSTEMD = "name=systemd"
REQUIRED_V1 = ("cpu", "cpuacct", "cpuset", "memory")
NEEDED_V2 = ("cpu", "cpuset", "memory", "hugetlb", "pids")


class CgroupsUnusableError(PlimsollError):
    """This machine's cgroups cannot carry a node; the text is the kubelet's where it has one."""


class Mounted(msgspec.Struct, frozen=True):
    """One hierarchy where it is mounted."""

    mount_point: str
    root: str = "/"  # the cgroup that is seen there as `/`
    read_only: bool = False
    own_path: str | None = None  # this process's cgroup, below the mount; None where it is outside


class Hierarchies(msgspec.Struct, frozen=True):
    version: CgroupVersion
    v1: Mapping[str, Mounted] = {}  # controller or name=systemd → its mount; joint ones name the same
    unified: Mounted | None = None  # v2, or the empty hierarchy of a hybrid host
    disabled: tuple[str, ...] = ()  # built into the kernel, switched off at boot

    @property
    def hybrid(self) -> bool:
        return self.version == 1 and self.unified is not None

    @property
    def read_only(self) -> bool:
        """Whether what a node needs cannot be written."""
        if self.version == 2:
            return self.unified is None or self.unified.read_only
        return any(self.v1[name].read_only for name in REQUIRED_V1 if name in self.v1)


def hierarchies(mountinfo_text: str, own_cgroup_text: str, proc_cgroups_text: str = "") -> Hierarchies:
    """From the texts of /proc/self/mountinfo, /proc/self/cgroup and /proc/cgroups."""
    lines = {line.mount_point: line for line in mountinfo(mountinfo_text)}.values()  # the last one hides the others
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
    # A lone name=systemd beside cgroup2 (some containers of old images have it) limits nothing: still v2.
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
    """The controllers among a v1 mount's options. The kernel's lists say what is one; without them, a fixed set."""
    names = known.keys() | own.keys() or _EVER
    return [option for option in line.super_options if option == SYSTEMD or (option and option in names)]


_EVER = frozenset(
    {"blkio", "cpu", "cpuacct", "cpuset", "debug", "devices", "freezer", "hugetlb", "memory", "misc", "net_cls"}
    | {"net_prio", "perf_event", "pids", "rdma"}
)


def _better(known: MountLine | None, found: MountLine) -> MountLine:
    """The usual place first, then the shortest path (02 §2.2); of equals the first."""
    if known is None:
        return found
    return min(known, found, key=lambda line: (line.mount_point != USUAL, len(line.mount_point)))


def _mounted(line: MountLine, own: str | None) -> Mounted:
    return Mounted(line.mount_point, line.root, line.read_only, None if own is None else below_mount(own, line.root))


def memory_root(found: Hierarchies) -> str:
    """What the kernel's log has before the paths that we know: the cgroup which is seen as `/` here; "" for its own."""
    mounted = found.unified if found.version == 2 else found.v1.get("memory")
    return "" if mounted is None else mounted.root.rstrip("/")


def check_required(found: Hierarchies) -> None:
    """The kubelet's own check at start (02 §3): on v1 four controllers must be mounted, on v2 nothing is asked."""
    if found.version == 2:
        return
    missing = sorted(set(REQUIRED_V1) - found.v1.keys())
    if missing:
        listed = " ".join(missing)
        raise CgroupsUnusableError(f"system validation failed - Following Cgroup subsystem not mounted: [{listed}]")


def missing_controllers(name: CgroupName, available: str, top: str) -> str | None:
    """v2: what a cgroup lacks of the controllers that the top has (02 §3); the kubelet's sentence, or None.

    `available` and `top` are the texts of the two `cgroup.controllers`.
    """
    needed = set(NEEDED_V2) & set(top.split())
    missing = sorted(needed - set(available.split()))
    return f"cgroup {_quoted(name)} has some missing controllers: {', '.join(missing)}" if missing else None


def missing_paths(name: CgroupName, paths: Sequence[str]) -> str | None:
    """v1: the same for the hierarchies that do not have the directory."""
    return f"cgroup {_quoted(name)} has some missing paths: {', '.join(sorted(paths))}" if paths else None


def _quoted(name: CgroupName) -> str:
    return "[" + " ".join(f'"{component}"' for component in name) + "]"


def default_root(found: Hierarchies, may_write: Callable[[str], bool]) -> str:
    """The cgroup below which a node can be set up: `/`, or the highest of our own that was delegated to this user.

    `may_write` says whether a cgroup below the v2 mount takes children and processes from us. Delegation exists on v2
    only: on v1 nobody but root is safe to have it.
    """
    if may_write("/"):
        return "/"
    own = found.unified.own_path if found.version == 2 and found.unified else None
    names = own.strip("/").split("/") if own else []
    for depth in range(1, len(names) + 1):
        path = "/" + "/".join(names[:depth])
        if may_write(path):
            return path
    if found.read_only:
        raise CgroupsUnusableError(
            "the cgroup file systems are mounted read-only: mount -o remount,rw makes them writable"
        )
    raise CgroupsUnusableError(
        "cgroups cannot be written: start as root, or in a delegated cgroup "
        "(systemd-run --user --scope -p Delegate=yes plimsoll …)"
    )


def this_host(proc: str = "/proc") -> Hierarchies:
    return hierarchies(_text(f"{proc}/self/mountinfo"), _text(f"{proc}/self/cgroup"), _text(f"{proc}/cgroups"))


def writable(found: Hierarchies) -> Callable[[str], bool]:
    """For `default_root`: asks the file system. Moving processes in needs cgroup.procs, limits need subtree_control."""

    def may_write(path: str) -> bool:
        if found.version == 2 and found.unified is not None:
            at = found.unified.mount_point + path.rstrip("/")
            needed = [at, f"{at}/cgroup.procs", f"{at}/cgroup.subtree_control"]
            return not found.unified.read_only and all(os.access(file, os.W_OK) for file in needed)
        points = {found.v1[name].mount_point for name in REQUIRED_V1 if name in found.v1}
        return not found.read_only and all(os.access(point + path.rstrip("/"), os.W_OK) for point in points)

    return may_write


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def entry_directories(files: CgroupsV1 | CgroupsV2, path: str) -> list[int]:
    """Descriptors that the caller closes; CgroupGone where there is no such cgroup in any hierarchy."""
    mounts = [files.mount] if isinstance(files, CgroupsV2) else list(dict.fromkeys(files.hierarchies.values()))
    opened: list[int] = []
    gone: CgroupGoneError | None = None
    for mount in mounts:
        try:
            with mount.directory(path) as directory:
                opened.append(os.dup(directory.fd))
        except CgroupGoneError as error:  # a hierarchy that we do not use
            gone = error
    if not opened and gone is not None:
        raise gone
    return opened


def open_cgroupfs(found: Hierarchies) -> CgroupsV1 | CgroupsV2:
    """The driver that writes the file systems itself, for this host's version."""
    unified = found.unified
    if found.version == 2:
        if unified is None:
            raise CgroupsUnusableError("cgroup2 is not mounted: mount -t cgroup2 none /sys/fs/cgroup")
        return CgroupsV2(unified.mount_point, unified.root)
    mounted = [*found.v1.values(), *([unified] if unified else [])]
    return CgroupsV1(
        {name: mount.mount_point for name, mount in found.v1.items()},
        unified.mount_point if unified else None,
        {mount.mount_point: mount.root for mount in mounted},
    )
