"""What a container sees as its file system: a private view of the host, or of a directory, that ends with it.

The root is an overlay: below, read-only, the host's root file system alone (nothing that is mounted in it) or the
image's directory; above, a tmpfs that only this container has. An overlay has inodes of its own, so no unix socket of
the host can be connected to through it, not even one that is made later, and no device node works in it (nodev).
Other disks of the host are added read-only. What a pod must not see is covered by empty directories; then come fresh
/proc, /sys and /dev, and the volumes. Everything is taken from the host before `pivot_root` and attached after it, when
every link already leads to the container's own files.

Without overlayfs the root is a tmpfs with the host's top directories bound into it read-only, and sockets that exist
are covered one by one.

All of it happens in the child's own, private mount namespace and goes with it.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable
from typing import NamedTuple

from plimsoll.linux import mounts
from plimsoll.linux.mounts import NODEV, NOEXEC, NOSUID, RDONLY
from plimsoll.runtime.supervisor.plan import Bind

# Design §7, and what else on a usual machine holds secrets or other pods' data.
HIDDEN = (
    "/root", "/home", "/run", "/var/run", "/tmp", "/var/tmp", "/var/lib", "/var/log", "/var/backups", "/var/spool",
    "/var/mail", "/boot", "/efi", "/lost+found", "/mnt", "/media", "/etc/ssh", "/etc/shadow", "/etc/shadow-",
    "/etc/gshadow", "/etc/gshadow-", "/etc/kubernetes", "/etc/ssl/private", "/etc/NetworkManager", "/etc/wireguard",
)  # fmt: skip
OPEN_TO_ALL = ("/tmp", "/var/tmp")
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
DISKS = frozenset((
    "ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "jfs", "reiserfs", "bcachefs", "erofs", "squashfs",
    "overlay", "hostfs", "virtiofs", "9p", "nfs", "nfs4",
))  # fmt: skip
# As runc masks them: what tells of, or changes, the whole machine.
MASKED = (
    "/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
    "/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware",
    "/sys/devices/virtual/powercap",
)  # fmt: skip
_ESCAPES = (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\"))  # in mountinfo
READ_ONLY = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")


class RootView(NamedTuple):
    stage: str  # an empty directory of ours; what is mounted on it stays in the child's mount namespace
    root: str = ""
    secret: tuple[str, ...] = ()  # besides HIDDEN: the state directory; covered in volumes as well
    hidden: tuple[str, ...] | None = None  # `hidden_paths(secret)`, where it is known already
    expose: tuple[str, ...] = ()
    binds: tuple[Bind, ...] = ()
    working_dir: str = ""
    read_only: bool = False
    privileged: bool = False
    overlay: bool = True
    shm_tree: int = -1  # the pod's /dev/shm, a detached mount
    cgroups: bool = False  # show the container its own part of cgroup v2, read-only
    outside: int = 1  # a process in the host's network namespace, to ask for its sockets


def enter(view: RootView) -> None:
    """To be called in a new mount namespace, as its root; afterwards / is the container's."""
    mounts.make_private()
    nodev = 0 if view.privileged else NODEV
    hidden = () if view.root else hidden_paths(view.secret) if view.hidden is None else view.hidden
    volumes = [(bind.container_path, _taken(bind.host_path, _flags(bind, nodev))) for bind in view.binds]
    exposed = [] if view.root else [path for path in view.expose if is_below(path, hidden)]
    exposures = [(path, _taken(path, RDONLY | nodev)) for path in exposed]
    devices = [] if view.privileged else [(name, _taken(f"/dev/{name}", 0, deep=False)) for name in DEVICES]
    host_dev = _taken("/dev", 0) if view.privileged else -1
    disks = [] if view.root else [(path, _taken(path, RDONLY | nodev, deep=False)) for path in other_disks(hidden)]
    sockets = () if view.root or (view.overlay and not disks) else bound_sockets(view.outside)

    mounts.mount("plimsoll", view.stage, "tmpfs", NOSUID | NODEV, "mode=755")
    os.chdir(view.stage)
    for name in ("upper", "root", "empty"):
        os.mkdir(name, 0o755)
    os.close(os.open("nothing", os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o444))
    masked = () if view.privileged else tuple(path for path in MASKED if os.path.exists(path))
    masks = [(path, _blank(path)) for path in masked]
    secrets = [(path, _blank(host)) for path, host in seen_through(view.binds, view.secret)]
    covers: list[tuple[str, int]] = []
    if view.overlay:
        _overlay_root(view.root, hidden, nodev)
        covers = [(path, _blank(path)) for path in hidden if is_below(path, [path for path, _ in disks])]
    elif view.root:
        mounts.attach_tree(_taken(view.root, RDONLY | nodev, deep=False), "root")
    else:
        covers = [(path, _cover(path)) for path in hidden]
        _bound_root(hidden, nodev)
    socket_covers = [(path, _blank(path)) for path in sockets if os.path.exists(path) and not is_below(path, hidden)]

    mounts.pivot_into("root")
    for path, tree in (*disks, *covers):
        _attach(tree, path)
    for path, tree in socket_covers:
        if os.path.lexists(path):
            _attach(tree, path)
    _system_directories(view, devices, host_dev, masks)
    for path, tree in (*exposures, *volumes):
        _make_target(tree, path)
        _attach(tree, path)
    for path, tree in secrets:
        _attach(tree, path)
    if view.working_dir and not os.path.lexists(view.working_dir):
        try:
            os.makedirs(view.working_dir, 0o755)
        except OSError as error:
            raise OSError(error.errno, f"working directory {view.working_dir}: {error.strerror}") from None
    if view.read_only:
        mounts.restrict("/", RDONLY)


def shared_memory_root(stage: str, size: str) -> None:
    """Make the mount namespace we are in (a new one) hold a pod's /dev/shm as its only mount, pinning nothing else."""
    mounts.make_private()
    mounts.mount("shm", stage, "tmpfs", NOSUID | NODEV | NOEXEC, f"mode=1777,size={size}")
    mounts.pivot_into(stage)


def shared_memory_tree() -> int:
    """What `shared_memory_root` has made, to be attached in another mount namespace."""
    return mounts.clone_tree("/", recursive=False)


def hidden_paths(secret: Iterable[str]) -> tuple[str, ...]:
    """Those that are there, links followed, without those that lie in another."""
    found = {os.path.realpath(path) for path in (*HIDDEN, *secret) if os.path.exists(path)}
    return tuple(sorted(path for path in found - {"/"} if not is_below(path, found - {path})))


def is_below(path: str, directories: Iterable[str]) -> bool:
    """In one of them, or one of them."""
    return any(path == directory or path.startswith(directory.rstrip("/") + "/") for directory in directories)


def other_disks(hidden: tuple[str, ...]) -> list[str]:
    """Mount points of the host's further disks, outer ones first."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        found = disk_mounts(file)
    return sorted(path for path in found if not is_below(path, (*hidden, "/dev", "/proc", "/sys")))


def disk_mounts(mountinfo: Iterable[str]) -> set[str]:
    """Where file systems that hold files of their own are mounted, but for the root."""
    found: dict[str, bool] = {}
    for line in mountinfo:
        place, _, what = line.partition(" - ")
        path = place.split(" ")[4]
        for escape, meant in _ESCAPES:
            path = path.replace(escape, meant)
        found[path] = what.split(" ")[0] in DISKS
    return {path for path, disk in found.items() if disk and path != "/"}


def seen_through(binds: Iterable[Bind], secret: Iterable[str]) -> list[tuple[str, str]]:
    """Where a volume of the host would show what is secret: (path in the container, path on the host)."""
    found = []
    for bind in binds:
        host = os.path.realpath(bind.host_path)
        for path in map(os.path.realpath, secret):
            if is_below(path, (host,)):
                found.append((os.path.normpath(bind.container_path + "/" + path[len(host) :]), path))
    return found


def bound_sockets(pid: int) -> tuple[str, ...]:
    """Where unix sockets of that process's network namespace lie in the file system."""
    with open(f"/proc/{pid}/net/unix", encoding="utf-8", errors="surrogateescape") as file:
        found = {line.rstrip("\n").partition(" /")[2] for line in file}
    return tuple(f"/{path}" for path in sorted(found - {""}))


def _flags(bind: Bind, nodev: int) -> int:
    return nodev | (RDONLY if bind.read_only else 0)


def _taken(path: str, flags: int, *, deep: bool = True) -> int:
    tree = mounts.clone_tree(path, recursive=deep)
    if flags:
        mounts.restrict_tree(tree, flags, recursive=deep)
    return tree


def _cover(path: str) -> int:
    """An empty directory of the container's own, or an empty file."""
    if not os.path.isdir(path):
        return _taken("nothing", RDONLY)
    own = "upper/" + path.strip("/").replace("/", "-")
    os.mkdir(own)
    os.chmod(own, 0o1777 if path in OPEN_TO_ALL else 0o755)
    return _taken(own, 0)


def _blank(path: str) -> int:
    return _taken("empty" if os.path.isdir(path) else "nothing", RDONLY)


def _overlay_root(root: str, hidden: tuple[str, ...], nodev: int) -> None:
    """What is hidden lies in the upper layer as an opaque directory, or an empty file: there is nothing to unmount."""
    if root:
        os.mkdir("lower")
        mounts.attach_tree(_taken(root, 0, deep=False), "lower")
        os.chmod("upper", stat.S_IMODE(os.stat("lower").st_mode))
    made: set[str] = set()
    for path in hidden:
        _copy_parents(os.path.dirname(path), made)
        if os.path.isdir(path):
            os.mkdir("upper" + path)
            os.chmod("upper" + path, 0o1777 if path in OPEN_TO_ALL else 0o755)
            os.setxattr("upper" + path, "trusted.overlay.opaque", b"y")
        else:
            os.close(os.open("upper" + path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    os.mkdir("work")
    # Relative paths: a colon or a comma in a name would mean something to overlayfs.
    lower = "lower" if root else "/"
    mounts.mount("overlay", "root", "overlay", nodev, f"lowerdir={lower},upperdir=upper,workdir=work")


def _copy_parents(path: str, made: set[str]) -> None:
    """Directories of the upper layer look as those below them that they are merged with."""
    if path == "/" or path in made:
        return
    _copy_parents(os.path.dirname(path), made)
    found = os.stat(path)
    os.mkdir("upper" + path)
    os.chown("upper" + path, found.st_uid, found.st_gid)
    os.chmod("upper" + path, stat.S_IMODE(found.st_mode))
    made.add(path)


def _bound_root(hidden: tuple[str, ...], nodev: int) -> None:
    mounts.mount("plimsoll", "root", "tmpfs", NOSUID | NODEV, "mode=755")
    for entry in os.scandir("/"):
        target = f"root/{entry.name}"
        if entry.is_symlink():
            os.symlink(os.readlink(entry.path), target)
        elif entry.is_dir():
            os.mkdir(target)
            if entry.path not in (*hidden, "/proc", "/sys", "/dev"):
                mounts.attach_tree(_taken(entry.path, RDONLY | nodev, deep=False), target)


def _system_directories(
    view: RootView, devices: list[tuple[str, int]], host_dev: int, masks: list[tuple[str, int]]
) -> None:
    for path in ("/proc", "/sys", "/dev"):
        if not os.path.isdir(path):
            os.mkdir(path, 0o755)
    mounts.mount("proc", "/proc", "proc", NOSUID | NODEV | NOEXEC)
    mounts.mount("sysfs", "/sys", "sysfs", NOSUID | NODEV | NOEXEC | (0 if view.privileged else RDONLY))
    if view.cgroups:
        mounts.mount("cgroup", "/sys/fs/cgroup", "cgroup2", NOSUID | NODEV | NOEXEC)
        if not view.privileged:  # not as a flag of `mount`: the file system itself is the host's too
            mounts.restrict("/sys/fs/cgroup", RDONLY)
    if host_dev >= 0:
        _attach(host_dev, "/dev")
    else:
        mounts.mount("plimsoll", "/dev", "tmpfs", NOSUID | NODEV | NOEXEC, "mode=755,size=64k")
        for name in ("pts", "shm", "mqueue"):
            os.mkdir(f"/dev/{name}", 0o755)
        for name, tree in devices:
            os.close(os.open(f"/dev/{name}", os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o666))
            _attach(tree, f"/dev/{name}")
        os.symlink("pts/ptmx", "/dev/ptmx")
        os.symlink("/proc/self/fd", "/dev/fd")
        for number, name in enumerate(("stdin", "stdout", "stderr")):
            os.symlink(f"/proc/self/fd/{number}", f"/dev/{name}")
        mounts.mount("devpts", "/dev/pts", "devpts", NOSUID | NOEXEC, "newinstance,ptmxmode=0666,mode=0620,gid=5")
        mounts.mount("mqueue", "/dev/mqueue", "mqueue", NOSUID | NODEV | NOEXEC)
        if view.shm_tree >= 0:
            _attach(view.shm_tree, "/dev/shm")
        else:
            mounts.mount("shm", "/dev/shm", "tmpfs", NOSUID | NODEV | NOEXEC, "mode=1777,size=64m")
    for path, tree in masks:
        _attach(tree, path)
    if not view.privileged:
        for path in READ_ONLY:
            if os.path.exists(path):
                _attach(_taken(path, RDONLY), path)


def _make_target(tree: int, path: str) -> None:
    """Where the volume goes. The root's upper layer takes it; a root that can't be written must have it already."""
    if os.path.exists(path):
        return
    try:
        if stat.S_ISDIR(os.fstat(tree).st_mode):
            os.makedirs(path, 0o755, exist_ok=True)
            return
        os.makedirs(os.path.dirname(path), 0o755, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))
    except OSError as error:
        why = "this root can't be written without overlayfs" if error.errno == errno.EROFS else error.strerror
        raise OSError(error.errno, f"mount point {path}: {why}") from None


def _attach(tree: int, path: str) -> None:
    mounts.attach_tree(tree, path)
    os.close(tree)
