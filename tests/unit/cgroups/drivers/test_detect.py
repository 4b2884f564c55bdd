"""Which hierarchies a host has, from literal texts of many kinds of host (02 §3)."""

from __future__ import annotations

import re

import pytest

from plimsoll.cgroups.drivers.detect import (
    CgroupsUnusableError,
    Hierarchies,
    check_required,
    default_root,
    hierarchies,
)

# The listings of `mount | grep cgroup` in the documents.
DOCUMENT_002 = """\
cgroup2 on /sys/fs/cgroup type cgroup2 (rw,nosuid,nodev,noexec,relatime)
none on /run/cilium/cgroupv2 type cgroup2 (rw,relatime)
"""
DOCUMENT_004 = """\
tmpfs on /sys/fs/cgroup type tmpfs (ro,nosuid,nodev,noexec,mode=755)
cgroup on /sys/fs/cgroup/systemd type cgroup (rw,nosuid,nodev,noexec,relatime,xattr,release_agent=/usr/lib/systemd/systemd-cgroups-agent,name=systemd)
cgroup on /sys/fs/cgroup/perf_event type cgroup (rw,nosuid,nodev,noexec,relatime,perf_event)
cgroup on /sys/fs/cgroup/cpuset type cgroup (rw,nosuid,nodev,noexec,relatime,cpuset)
cgroup on /sys/fs/cgroup/freezer type cgroup (rw,nosuid,nodev,noexec,relatime,freezer)
cgroup on /sys/fs/cgroup/pids type cgroup (rw,nosuid,nodev,noexec,relatime,pids)
cgroup on /sys/fs/cgroup/hugetlb type cgroup (rw,nosuid,nodev,noexec,relatime,hugetlb)
cgroup on /sys/fs/cgroup/devices type cgroup (rw,nosuid,nodev,noexec,relatime,devices)
cgroup on /sys/fs/cgroup/blkio type cgroup (rw,nosuid,nodev,noexec,relatime,blkio)
cgroup on /sys/fs/cgroup/memory type cgroup (rw,nosuid,nodev,noexec,relatime,memory)
cgroup on /sys/fs/cgroup/cpu,cpuacct type cgroup (rw,nosuid,nodev,noexec,relatime,cpu,cpuacct)
cgroup on /sys/fs/cgroup/net_cls type cgroup (rw,nosuid,nodev,noexec,relatime,net_cls)
"""
HYBRID = """\
25 20 0:22 / /sys/fs/cgroup ro,nosuid,nodev,noexec shared:9 - tmpfs tmpfs ro,mode=755
26 25 0:23 / /sys/fs/cgroup/unified rw,nosuid,nodev,noexec,relatime shared:10 - cgroup2 cgroup2 rw,nsdelegate
27 25 0:24 / /sys/fs/cgroup/systemd rw,nosuid,nodev,noexec,relatime shared:11 - cgroup cgroup rw,xattr,name=systemd
30 25 0:27 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid,nodev,noexec,relatime shared:15 - cgroup cgroup rw,cpu,cpuacct
31 25 0:28 / /sys/fs/cgroup/memory rw,nosuid,nodev,noexec,relatime shared:16 - cgroup cgroup rw,memory
32 25 0:29 / /sys/fs/cgroup/cpuset rw,nosuid,nodev,noexec,relatime shared:17 - cgroup cgroup rw,cpuset
"""
ONE_V2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n"
SEPARATE = "".join(
    f"{32 + n} 31 0:{29 + n} / /sys/fs/cgroup/{name} rw,relatime - cgroup cgroup rw,{name}\n"
    for n, name in enumerate(["cpu", "cpuacct", "cpuset", "memory", "freezer", "pids"])
)
V2_ROOT = "0::/\n"
V1_OWN = "4:memory:/a/b\n3:cpuset:/\n2:cpu,cpuacct:/user.slice\n1:name=systemd:/user.slice/s\n0::/user.slice/s\n"


def as_mountinfo(listing: str) -> str:
    """`mount` prints the same facts in another order; per-mount options and the file system's are one list there."""
    lines = []
    for number, line in enumerate(listing.splitlines()):
        source, point, kind, options = re.fullmatch(r"(\S+) on (\S+) type (\S+) \((.*)\)", line).groups()  # type: ignore[union-attr]
        own = ",".join(
            word for word in options.split(",") if word in ("rw", "ro", "nosuid", "nodev", "noexec", "relatime")
        )
        rest = ",".join(word for word in options.split(",") if word not in ("nosuid", "nodev", "noexec", "relatime"))
        lines.append(f"{100 + number} 99 0:{30 + number} / {point} {own} - {kind} {source} {rest}\n")
    return "".join(lines)


def points(found: Hierarchies) -> dict[str, str]:
    return {name: mounted.mount_point for name, mounted in found.v1.items()}


# id, mountinfo, /proc/self/cgroup, version, v1 mount points, unified mount point
HOSTS: list[tuple[str, str, str, int, dict[str, str], str | None]] = [
    ("document 002: v2, and Cilium's own cgroup2 mount", as_mountinfo(DOCUMENT_002), V2_ROOT, 2, {}, "/sys/fs/cgroup"),
    (
        "document 002 in the other order",
        as_mountinfo("".join(reversed(DOCUMENT_002.splitlines(keepends=True)))),
        V2_ROOT,
        2,
        {},
        "/sys/fs/cgroup",
    ),
    (
        "document 004: v1 with joint cpu,cpuacct and no unified",
        as_mountinfo(DOCUMENT_004),
        "",
        1,
        {
            **{
                name: f"/sys/fs/cgroup/{name}"
                for name in ["perf_event", "cpuset", "freezer", "pids", "hugetlb", "devices", "blkio", "memory", "net_cls"]
            },
            "name=systemd": "/sys/fs/cgroup/systemd",
            "cpu": "/sys/fs/cgroup/cpu,cpuacct",
            "cpuacct": "/sys/fs/cgroup/cpu,cpuacct",
        },
        None,
    ),
    (
        "hybrid counts as v1",
        HYBRID,
        V1_OWN,
        1,
        {
            "cpu": "/sys/fs/cgroup/cpu,cpuacct",
            "cpuacct": "/sys/fs/cgroup/cpu,cpuacct",
            "cpuset": "/sys/fs/cgroup/cpuset",
            "memory": "/sys/fs/cgroup/memory",
            "name=systemd": "/sys/fs/cgroup/systemd",
        },
        "/sys/fs/cgroup/unified",
    ),
    (
        "a controller mounted twice: the shortest path",
        "50 1 0:29 / /var/lib/other/cgroup/cpu rw - cgroup cgroup rw,cpu\n" + SEPARATE,
        "",
        1,
        {name: f"/sys/fs/cgroup/{name}" for name in ["cpu", "cpuacct", "cpuset", "freezer", "memory", "pids"]},
        None,
    ),
    ("v2 with a lone name=systemd elsewhere", ONE_V2 + "40 1 0:40 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,none,name=systemd\n", V2_ROOT, 2, {"name=systemd": "/sys/fs/cgroup/systemd"}, "/sys/fs/cgroup"),
    ("v2 with net_cls on v1 inside", ONE_V2 + "40 1 0:40 / /sys/fs/cgroup/net_cls rw - cgroup cgroup rw,net_cls\n", "1:net_cls:/\n0::/\n", 2, {"net_cls": "/sys/fs/cgroup/net_cls"}, "/sys/fs/cgroup"),
    ("cgroup2 at an unusual place alone", "40 1 0:40 / /cgroup2 rw - cgroup2 none rw\n", V2_ROOT, 2, {}, "/cgroup2"),
    ("a blank in the mount point", r"40 1 0:40 / /mnt/a\040b rw - cgroup2 none rw" + "\n", V2_ROOT, 2, {}, "/mnt/a b"),
    ("v2 hidden by a tmpfs and v1", ONE_V2 + "31 30 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n" + SEPARATE, "", 1, {name: f"/sys/fs/cgroup/{name}" for name in ["cpu", "cpuacct", "cpuset", "freezer", "memory", "pids"]}, None),
]  # fmt: skip


@pytest.mark.parametrize(
    ("mounts", "own", "version", "v1", "unified"), [row[1:] for row in HOSTS], ids=[row[0] for row in HOSTS]
)
def test_hosts(mounts: str, own: str, version: int, v1: dict[str, str], unified: str | None) -> None:
    found = hierarchies(mounts, own)
    assert found.version == version
    assert points(found) == v1
    assert (found.unified.mount_point if found.unified else None) == unified
    assert found.hybrid is (version == 1 and unified is not None)


def test_no_cgroups_at_all() -> None:
    with pytest.raises(CgroupsUnusableError, match="no cgroup file system is mounted"):
        hierarchies("25 20 0:22 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n", "")


def test_own_paths() -> None:
    found = hierarchies(HYBRID, V1_OWN)
    assert {name: mounted.own_path for name, mounted in found.v1.items()} == {
        "cpu": "/user.slice",
        "cpuacct": "/user.slice",
        "cpuset": "/",
        "memory": "/a/b",
        "name=systemd": "/user.slice/s",
    }
    assert found.unified
    assert found.unified.own_path == "/user.slice/s"


# A mount that shows a part of the tree: mountinfo's root, /proc/self/cgroup, the own path below the mount.
PARTS = [
    ("container without its own namespace", "/docker/0a1b", "0::/docker/0a1b\n", "/"),
    ("… and in a child of it", "/docker/0a1b", "0::/docker/0a1b/init\n", "/init"),
    ("… and outside of it", "/docker/0a1b", "0::/docker/0a1b2/init\n", None),
    ("own cgroup namespace", "/", "0::/\n", "/"),
    ("own cgroup namespace, moved out of it", "/", "0::/../other\n", None),
    ("top of the namespace moved", "/", "0::/..\n", None),
    ("two dots in a name", "/", "0::/..hidden\n", "/..hidden"),
]


@pytest.mark.parametrize(("root", "own", "path"), [row[1:] for row in PARTS], ids=[row[0] for row in PARTS])
def test_a_mount_that_is_not_the_root_cgroup(root: str, own: str, path: str | None) -> None:
    found = hierarchies(f"30 23 0:26 {root} /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n", own)
    assert found.unified
    assert (found.unified.root, found.unified.own_path) == (root, path)


@pytest.mark.parametrize(
    ("mounts", "read_only"),
    [
        (ONE_V2, False),
        (ONE_V2.replace(" rw,nosuid", " ro,nosuid"), True),
        (ONE_V2.replace("cgroup2 rw,", "cgroup2 ro,"), True),
        (SEPARATE, False),
        (SEPARATE.replace("/memory rw", "/memory ro"), True),
        (SEPARATE.replace("/freezer rw", "/freezer ro"), False),
        (as_mountinfo(DOCUMENT_004), False),
    ],
)
def test_read_only(mounts: str, read_only: bool) -> None:
    assert hierarchies(mounts, "").read_only is read_only


PREFIX = "system validation failed - Following Cgroup subsystem not mounted: "
REQUIRED = [
    ("document 002", as_mountinfo(DOCUMENT_002), None),
    ("document 004", as_mountinfo(DOCUMENT_004), None),
    ("hybrid", HYBRID, None),
    ("separate", SEPARATE, None),
    ("no cpuset", HYBRID.replace("rw,cpuset", "rw,net_cls"), PREFIX + "[cpuset]"),
    ("no cpuset, no memory", HYBRID.replace("rw,cpuset", "rw,net_cls").replace("rw,memory", "rw,pids"), PREFIX + "[cpuset memory]"),
    ("nothing but systemd's", "27 25 0:24 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n", PREFIX + "[cpu cpuacct cpuset memory]"),
]  # fmt: skip


@pytest.mark.parametrize(("mounts", "message"), [row[1:] for row in REQUIRED], ids=[row[0] for row in REQUIRED])
def test_required_controllers(mounts: str, message: str | None) -> None:
    found = hierarchies(mounts, "")
    if message is None:
        check_required(found)
        return
    with pytest.raises(CgroupsUnusableError) as caught:
        check_required(found)
    assert str(caught.value) == message


def test_a_controller_disabled_at_boot() -> None:
    text = "#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpu\t0\t1\t1\nmemory\t0\t1\t0\n"
    assert hierarchies(ONE_V2, V2_ROOT, text).disabled == ("memory",)


DELEGATED = "0::/user.slice/user-1000.slice/user@1000.service/app.slice/run-1.scope\n"
SERVICE = "/user.slice/user-1000.slice/user@1000.service"
ROOTS: list[tuple[str, str, str, set[str], str | None]] = [
    ("root", ONE_V2, DELEGATED, {"/"}, "/"),
    ("root in a container", ONE_V2, V2_ROOT, {"/"}, "/"),
    ("a user's delegated subtree: its highest", ONE_V2, DELEGATED, {SERVICE, f"{SERVICE}/app.slice", f"{SERVICE}/app.slice/run-1.scope"}, SERVICE),
    ("only the own scope", ONE_V2, DELEGATED, {f"{SERVICE}/app.slice/run-1.scope"}, f"{SERVICE}/app.slice/run-1.scope"),
    ("nothing delegated", ONE_V2, DELEGATED, set(), None),
    ("outside of the mount", ONE_V2, "0::/../x\n", {"/x"}, None),
    ("v1 has no delegation", HYBRID, V1_OWN, {"/a", "/a/b", "/user.slice/s"}, None),
]  # fmt: skip


@pytest.mark.parametrize(
    ("mounts", "own", "writable", "root"), [row[1:] for row in ROOTS], ids=[row[0] for row in ROOTS]
)
def test_default_root(mounts: str, own: str, writable: set[str], root: str | None) -> None:
    found = hierarchies(mounts, own)
    if root is not None:
        assert default_root(found, writable.__contains__) == root
        return
    with pytest.raises(CgroupsUnusableError, match="start as root, or in a delegated cgroup"):
        default_root(found, writable.__contains__)


def test_read_only_mounts_are_named_as_the_reason() -> None:
    found = hierarchies("30 24 0:26 / /sys/fs/cgroup ro - cgroup2 cgroup2 ro\n", "0::/\n")
    with pytest.raises(CgroupsUnusableError, match="mounted read-only"):
        default_root(found, lambda _: False)
