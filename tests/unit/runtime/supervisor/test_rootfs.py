"""The container's root: what is hidden, which disks are shown, what a volume must not show, the order of mounts."""

from __future__ import annotations

from pathlib import Path

import pytest

from plimsoll.linux.mounts import NODEV, NOEXEC, NOSUID, RDONLY
from plimsoll.runtime.supervisor.plan import Bind, LaunchPlan, plan_from
from plimsoll.runtime.supervisor.rootfs import (
    READ_ONLY,
    Host,
    Mount,
    RootView,
    Source,
    disk_mounts,
    hidden_paths,
    is_below,
    prepare,
    seen_through,
)

MOUNTINFO = r"""
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
28 27 254:1 / /usr ro - xfs /dev/vdb ro
29 27 254:2 / /a\040b rw - ext4 /dev/vdc rw
30 27 254:3 / /covered rw - ext4 /dev/vdd rw
31 30 0:30 / /covered rw - tmpfs tmpfs rw
32 23 0:29 / /sys/fs/cgroup rw - cgroup2 cgroup rw
33 27 0:40 / /run/snap rw - squashfs /dev/loop0 ro
""".strip().splitlines()


def test_disks_but_not_the_root_nor_what_is_covered() -> None:
    assert disk_mounts(MOUNTINFO) == {"/usr", "/a b", "/run/snap"}


@pytest.mark.parametrize(
    ("path", "directories", "below"),
    [
        ("/a/b", ("/a",), True),
        ("/a", ("/a",), True),
        ("/ab", ("/a",), False),
        ("/a", ("/",), True),
        ("/a", (), False),
    ],
)
def test_is_below(path: str, directories: tuple[str, ...], below: bool) -> None:
    assert is_below(path, directories) is below


def test_hidden_paths_are_those_below_what_is_shown(tmp_path: Path) -> None:
    """Also a link itself, where it leads, and a path that does not exist yet; nested ones once."""
    shown, elsewhere = tmp_path / "usr", tmp_path / "opt"
    (shown / "keys").mkdir(parents=True)
    elsewhere.mkdir()
    (shown / "keys/node.key").touch()
    (elsewhere / "link").symlink_to(shown / "keys/node.key")
    (shown / "config").symlink_to(elsewhere / "real")
    secret = [elsewhere / "link", elsewhere / "state", shown / "config", shown / "later", shown / "keys", shown]
    found = hidden_paths(map(str, secret), (str(shown),))
    assert found == tuple(str(shown / name) for name in ("config", "keys", "later"))


def test_where_a_volume_would_show_a_secret(tmp_path: Path) -> None:
    secret = tmp_path / "state"
    (secret / "pods/uid/volume").mkdir(parents=True)
    rows = {
        str(tmp_path): [("/v/state", str(secret))],
        "/": [(f"/v{secret}", str(secret))],
        str(secret): [("/v", str(secret))],
        str(secret / "pods/uid/volume"): [],  # a pod's own volume lies in it
        "/usr": [],
    }
    for host, shown in rows.items():
        assert seen_through([Bind(host, "/v")], [str(secret)]) == shown, host


def test_a_plan_crosses_the_wire() -> None:
    document = {
        "argv": ["a"], "environment": {"A": "b"}, "binds": [["/h", "/c", True, "None"]], "identity": [1, None, [3], 4, False, True],
        "expose": ["/x"],
    }  # fmt: skip
    plan = plan_from(document)
    assert plan.binds == (Bind("/h", "/c", True),)
    assert plan.identity == (1, None, (3,), 4, False, True)
    assert isinstance(plan, LaunchPlan) and plan.argv == ("a",)
    with pytest.raises(TypeError):
        plan_from(document | {"from another version": 1})


HOST = Host(
    hidden=("/usr/local/etc", "/usr/secret"),
    programs=("/usr",),
    disks=("/usr/local",),
    sockets=("/usr/local/socket", "/usr/secret/socket"),
    masked=("/proc/kcore",),
    secrets=(("/data/state", "/srv/state"),),
)
BINDS = (Bind("/srv", "/data", True), Bind("/var/lib/pods/1/cache", "/data/cache"))
VIEW = RootView("/stage", binds=BINDS, expose=("/home/tool", "/usr/bin"))
SAFE = NOSUID | NODEV | NOEXEC


def targets(view: RootView, host: Host = HOST) -> list[str]:
    return [mount.target for mount in prepare(view, host)]


def test_the_order_of_mounts() -> None:
    """Disks, their covers, the system directories, exposed paths, volumes, and secrets that a volume would show."""
    assert targets(VIEW) == [
        "/usr/local",
        "/usr/local/etc",
        "/usr/local/socket",
        "/proc", "/sys", "/dev",
        "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty",
        "/dev/ptmx", "/dev/fd", "/dev/stdin", "/dev/stdout", "/dev/stderr",
        "/dev/pts", "/dev/mqueue", "/dev/shm",
        "/proc/kcore",
        *READ_ONLY,
        "/home/tool",
        "/data", "/data/cache",
        "/data/state",
    ]  # fmt: skip


def test_how_each_mount_is_made() -> None:
    mounts = {mount.target: mount for mount in prepare(VIEW, HOST)}
    disk = "/usr/local"
    assert mounts[disk] == Mount(disk, Source.HOST, disk, RDONLY | NODEV, recursive=False)
    assert mounts[f"{disk}/etc"] == Mount(f"{disk}/etc", Source.BLANK, f"{disk}/etc", missing="skip")
    assert mounts[f"{disk}/socket"] == Mount(f"{disk}/socket", Source.BLANK, f"{disk}/socket", missing="skip")
    assert mounts["/proc"] == Mount("/proc", Source.NEW, "proc", SAFE, "proc", missing="create")
    assert mounts["/sys"].flags == SAFE | RDONLY
    assert mounts["/dev"].options == "mode=755,size=64k,uid=0,gid=0"
    assert mounts["/proc/sys"] == Mount("/proc/sys", Source.SELF, "/proc/sys", RDONLY, missing="skip")
    assert mounts["/home/tool"].flags == RDONLY | NODEV
    assert mounts["/data"] == Mount("/data", Source.HOST, "/srv", RDONLY | NODEV, is_volume=True, missing="create")
    assert mounts["/data/cache"].flags == NODEV
    assert mounts["/data/state"] == Mount("/data/state", Source.BLANK, "/srv/state")


HIERARCHIES = (("memory", "memory"), ("cpu,cpuacct", "cpu,cpuacct"))


@pytest.mark.parametrize(
    ("view", "below"),
    [
        pytest.param({"cgroups": True}, (), id="v2"),
        pytest.param({"hierarchies": HIERARCHIES}, ("memory", "cpu,cpuacct", "cpu", "cpuacct"), id="v1"),
    ],
)
@pytest.mark.parametrize("privileged", [False, True])
def test_its_own_cgroups_are_read_only_unless_it_is_privileged(
    view: dict[str, object], below: tuple[str, ...], privileged: bool
) -> None:
    top = "/sys/fs/cgroup"
    planned = [
        mount for mount in prepare(VIEW._replace(**view, privileged=privileged), HOST) if mount.target.startswith(top)
    ]
    flags = [] if privileged else [Mount(top, Source.FLAGS, "", RDONLY, recursive=True)]
    assert planned[1 + len(below) :] == flags
    assert [mount.target for mount in planned[: 1 + len(below)]] == [top, *(f"{top}/{name}" for name in below)]


def test_without_overlayfs_every_hidden_path_is_covered() -> None:
    mounts = prepare(VIEW._replace(overlay=False), HOST)
    assert [mount.target for mount in mounts[:4]] == [
        "/usr/local",
        "/usr/local/etc",
        "/usr/secret",
        "/usr/local/socket",
    ]


@pytest.mark.parametrize("overlay", [True, False])
def test_an_image_has_nothing_of_the_host_but_volumes(overlay: bool) -> None:
    mounts = prepare(VIEW._replace(root="/image", overlay=overlay), Host(masked=HOST.masked))
    taken = [mount.path for mount in mounts if mount.source is Source.HOST]
    assert [path for path in taken if not path.startswith("/dev/")] == [bind.host_path for bind in BINDS]


def test_a_privileged_container_has_the_devices_and_may_write_to_sys() -> None:
    mounts = prepare(VIEW._replace(privileged=True), HOST._replace(masked=()))
    assert [mount.target for mount in mounts if mount.target.startswith(("/dev", "/proc"))] == ["/proc", "/dev"]
    assert {mount.target: mount.flags for mount in mounts}["/sys"] == SAFE
    assert {mount.target: mount.flags for mount in mounts}["/data"] == RDONLY
    assert next(mount for mount in mounts if mount.target == "/dev").source is Source.HOST


@pytest.mark.parametrize(("privileged", "flags"), [(False, [SAFE, RDONLY]), (True, [SAFE])])
def test_the_cgroup_mount_is_restricted_after_it_is_made(privileged: bool, flags: list[int]) -> None:
    mounts = prepare(VIEW._replace(cgroups=True, privileged=privileged), HOST)
    assert [mount.flags for mount in mounts if mount.target == "/sys/fs/cgroup"] == flags


def test_the_pods_shared_memory_replaces_a_new_one() -> None:
    (shm,) = (mount for mount in prepare(VIEW._replace(shm_tree=7), HOST) if mount.target == "/dev/shm")
    assert shm.source is Source.SHM
