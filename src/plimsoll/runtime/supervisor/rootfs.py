"""The container's root file system: a private view of the host, or of an image directory.

The root is an overlay. Its lower layer, read-only, is the host's root file system without what is mounted in it, or
the image's directory; its upper layer is a tmpfs of this container. An overlay has inodes of its own, so no unix socket
of the host can be connected to through it, not even one that is made later, and no device node works in it (nodev).
Other disks of the host are added read-only. Empty directories cover what a pod must not see; then come fresh /proc,
/sys and /dev, and the volumes.

`prepare` lists these mounts in order and does no I/O. `stage` takes everything that comes from the host before
`pivot_root`; `pivot` attaches it afterwards, when every link already leads to the container's own files.

Without overlayfs the root is a tmpfs with the host's top directories bound into it read-only, and existing sockets are
covered one by one. All of this happens in the child's private mount namespace and ends with it.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Literal, NamedTuple

from plimsoll.linux import mounts
from plimsoll.linux.mounts import NODEV, NOEXEC, NOSUID, RDONLY
from plimsoll.runtime.supervisor.plan import Bind

# Paths that hold secrets or other pods' data on a usual machine.
HIDDEN = (
    "/root", "/home", "/run", "/var/run", "/tmp", "/var/tmp", "/var/lib", "/var/log", "/var/backups", "/var/spool",
    "/var/mail", "/boot", "/efi", "/lost+found", "/mnt", "/media", "/etc/ssh", "/etc/shadow", "/etc/shadow-",
    "/etc/gshadow", "/etc/gshadow-", "/etc/kubernetes", "/etc/ssl/private", "/etc/NetworkManager", "/etc/wireguard",
)  # fmt: skip
WORLD_WRITABLE = ("/tmp", "/var/tmp")
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
DISKS = frozenset((
    "ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "jfs", "reiserfs", "bcachefs", "erofs", "squashfs",
    "overlay", "hostfs", "virtiofs", "9p", "nfs", "nfs4",
))  # fmt: skip
# As runc masks them: they show or change the state of the whole machine.
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
    hidden: tuple[str, ...] | None = None  # `hidden_paths(secret)`, where the caller has it already
    expose: tuple[str, ...] = ()
    binds: tuple[Bind, ...] = ()
    working_dir: str = ""
    read_only: bool = False
    privileged: bool = False
    overlay: bool = True
    shm_tree: int = -1  # the pod's /dev/shm, a detached mount
    cgroups: bool = False  # mount the container's own part of cgroup v2, read-only
    outside: int = 1  # a process in the host's network namespace, to list its sockets


class Host(NamedTuple):
    """What `prepare` has to know about the host."""

    hidden: tuple[str, ...] = ()
    disks: tuple[str, ...] = ()
    sockets: tuple[str, ...] = ()
    masked: tuple[str, ...] = ()  # those of MASKED that exist
    secrets: tuple[tuple[str, str], ...] = ()  # as `seen_through` returns them


class Source(Enum):
    HOST = "a clone of `path` on the host, taken before the pivot"
    BLANK = "an empty read-only directory or file, as `path` on the host is one or the other"
    COVER = "an empty writable directory of the container's own, or an empty file"
    SHM = "the pod's /dev/shm"
    NEW = "a new file system of type `kind`; `path` is its name in mountinfo"
    SELF = "the container's own `path`, bound onto itself"
    FLAGS = "no mount: set `flags` on the one that is there"
    LINK = "no mount: a symbolic link to `path`"


class Mount(NamedTuple):
    target: str
    source: Source
    path: str
    flags: int = 0
    kind: str = ""
    options: str = ""
    recursive: bool = True
    missing: Literal["fail", "skip", "create"] = "fail"  # what to do where the target does not exist


def enter(view: RootView) -> None:
    """To be called in a new mount namespace, as its root; afterwards / is the container's."""
    mounts.make_private()
    host = read_host(view)
    planned = prepare(view, host)
    pivot(view, planned, stage(view, host, planned))


def read_host(view: RootView) -> Host:
    masked = () if view.privileged else tuple(path for path in MASKED if os.path.exists(path))
    secrets = tuple(seen_through(view.binds, view.secret))
    if view.root:
        return Host(masked=masked, secrets=secrets)
    hidden = hidden_paths(view.secret) if view.hidden is None else view.hidden
    disks = tuple(other_disks(hidden))
    sockets = () if view.overlay and not disks else bound_sockets(view.outside)
    return Host(hidden, disks, tuple(path for path in sockets if os.path.exists(path)), masked, secrets)


def prepare(view: RootView, host: Host) -> tuple[Mount, ...]:
    """Every mount on top of the root, in the order in which it is attached. A later one covers an earlier one."""
    nodev = 0 if view.privileged else NODEV
    return (
        *(Mount(path, Source.HOST, path, RDONLY | nodev, recursive=False) for path in host.disks),
        *_covers(view, host),
        *_system_directories(view),
        *(Mount(path, Source.BLANK, path) for path in host.masked),
        *(Mount(path, Source.SELF, path, RDONLY, missing="skip") for path in READ_ONLY if not view.privileged),
        *(
            Mount(path, Source.HOST, path, RDONLY | nodev, missing="create")
            for path in view.expose
            if not view.root and is_below(path, host.hidden)
        ),
        *(
            Mount(path, Source.HOST, host_path, nodev | (RDONLY if read_only else 0), missing="create")
            for host_path, path, read_only in view.binds
        ),
        *(Mount(target, Source.BLANK, path) for target, path in host.secrets),
    )


def stage(view: RootView, host: Host, planned: tuple[Mount, ...]) -> list[int]:
    """Build the root on a tmpfs and take every tree that comes from outside it: one for each mount, -1 for none."""
    # The host's trees first: a volume that contains the stage must not show what is mounted there.
    trees = [
        _clone(mount.path, mount.flags, recursive=mount.recursive) if mount.source is Source.HOST else -1
        for mount in planned
    ]
    mounts.mount("plimsoll", view.stage, "tmpfs", NOSUID | NODEV, "mode=755")
    os.chdir(view.stage)
    for name in ("upper", "root", "empty"):
        os.mkdir(name, 0o755)
    os.close(os.open("nothing", os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o444))
    for number, mount in enumerate(planned):
        if mount.source is Source.BLANK:
            trees[number] = _clone("empty" if os.path.isdir(mount.path) else "nothing", RDONLY)
        elif mount.source is Source.COVER:
            trees[number] = _cover(mount.path)
        elif mount.source is Source.SHM:
            trees[number] = view.shm_tree
    nodev = 0 if view.privileged else NODEV
    if view.overlay:
        _overlay_root(view.root, host.hidden, nodev)
    elif view.root:
        mounts.attach_tree(_clone(view.root, RDONLY | nodev, recursive=False), "root")
    else:
        _bound_root(host.hidden, nodev)
    return trees


def pivot(view: RootView, planned: tuple[Mount, ...], trees: list[int]) -> None:
    """Make the staged root ours and attach the mounts; from here on every link leads to the container's own files."""
    mounts.pivot_into("root")
    for mount, tree in zip(planned, trees, strict=True):
        if mount.missing == "skip" and not os.path.lexists(mount.target):
            continue
        if mount.missing == "create":
            _make_target(tree, mount.target)
        if mount.source is Source.LINK:
            os.symlink(mount.path, mount.target)
        elif mount.source is Source.NEW:
            mounts.mount(mount.path, mount.target, mount.kind, mount.flags, mount.options)
        elif mount.source is Source.SELF:
            _attach(_clone(mount.path, mount.flags), mount.target)
        elif mount.source is Source.FLAGS:
            mounts.restrict(mount.target, mount.flags)
        else:
            _attach(tree, mount.target)
    if view.working_dir and not os.path.lexists(view.working_dir):
        try:
            os.makedirs(view.working_dir, 0o755)
        except OSError as error:
            raise OSError(error.errno, f"working directory {view.working_dir}: {error.strerror}") from None
    if view.read_only:
        mounts.restrict("/", RDONLY)


def shared_memory_root(stage: str, size: str) -> None:
    """Make a pod's /dev/shm the only mount of this (new) mount namespace, so that it pins nothing else."""
    mounts.make_private()
    mounts.mount("shm", stage, "tmpfs", NOSUID | NODEV | NOEXEC, f"mode=1777,size={size}")
    mounts.pivot_into(stage)


def hidden_paths(secret: Iterable[str]) -> tuple[str, ...]:
    """Those that exist, with links resolved and nested ones left out."""
    paths = {os.path.realpath(path) for path in (*HIDDEN, *secret) if os.path.exists(path)}
    return tuple(sorted(path for path in paths - {"/"} if not is_below(path, paths - {path})))


def is_below(path: str, directories: Iterable[str]) -> bool:
    """Whether the path is one of the directories or in one of them."""
    return any(path == directory or path.startswith(directory.rstrip("/") + "/") for directory in directories)


def other_disks(hidden: tuple[str, ...]) -> list[str]:
    """Mount points of the host's further disks, outer ones first."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        paths = disk_mounts(file)
    return sorted(path for path in paths if not is_below(path, (*hidden, "/dev", "/proc", "/sys")))


def disk_mounts(mountinfo: Iterable[str]) -> set[str]:
    """Where disk file systems (DISKS) are mounted, except the root."""
    is_disk: dict[str, bool] = {}
    for line in mountinfo:
        place, _, what = line.partition(" - ")
        path = place.split(" ")[4]
        for escape, character in _ESCAPES:
            path = path.replace(escape, character)
        is_disk[path] = what.split(" ")[0] in DISKS
    return {path for path, disk in is_disk.items() if disk and path != "/"}


def seen_through(binds: Iterable[Bind], secret: Iterable[str]) -> list[tuple[str, str]]:
    """Where a volume would show a secret path: (path in the container, path on the host)."""
    hosts = [(os.path.realpath(bind.host_path), bind.container_path) for bind in binds]
    return [
        (os.path.normpath(f"{target}/{path[len(host) :]}"), path)
        for host, target in hosts
        for path in map(os.path.realpath, secret)
        if is_below(path, (host,))
    ]


def bound_sockets(pid: int) -> tuple[str, ...]:
    """The paths of the unix sockets in that process's network namespace."""
    with open(f"/proc/{pid}/net/unix", encoding="utf-8", errors="surrogateescape") as file:
        paths = {line.rstrip("\n").partition(" /")[2] for line in file}
    return tuple(f"/{path}" for path in sorted(paths - {""}))


def _covers(view: RootView, host: Host) -> Iterator[Mount]:
    """Hide what the root does not hide by itself: an overlay hides in its upper layer, but disks are mounted on it."""
    if view.overlay:
        yield from (Mount(path, Source.BLANK, path) for path in host.hidden if is_below(path, host.disks))
    elif not view.root:
        yield from (Mount(path, Source.COVER, path) for path in host.hidden)
    for path in host.sockets:
        if not is_below(path, host.hidden):
            yield Mount(path, Source.BLANK, path, missing="skip")


def _system_directories(view: RootView) -> Iterator[Mount]:
    safe = NOSUID | NODEV | NOEXEC
    yield _new("proc", "/proc", "proc", safe)
    yield _new("sysfs", "/sys", "sysfs", safe | (0 if view.privileged else RDONLY))
    if view.cgroups:
        yield _new("cgroup", "/sys/fs/cgroup", "cgroup2", safe)
        if not view.privileged:  # not as a flag of `mount`: the file system itself is the host's too
            yield Mount("/sys/fs/cgroup", Source.FLAGS, "", RDONLY)
    if view.privileged:
        yield Mount("/dev", Source.HOST, "/dev", missing="create")
        return
    yield _new("plimsoll", "/dev", "tmpfs", safe, "mode=755,size=64k")
    for name in DEVICES:
        yield Mount(f"/dev/{name}", Source.HOST, f"/dev/{name}", recursive=False, missing="create")
    yield Mount("/dev/ptmx", Source.LINK, "pts/ptmx")
    yield Mount("/dev/fd", Source.LINK, "/proc/self/fd")
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        yield Mount(f"/dev/{name}", Source.LINK, f"/proc/self/fd/{number}")
    yield _new("devpts", "/dev/pts", "devpts", NOSUID | NOEXEC, "newinstance,ptmxmode=0666,mode=0620,gid=5")
    yield _new("mqueue", "/dev/mqueue", "mqueue", safe)
    if view.shm_tree >= 0:
        yield Mount("/dev/shm", Source.SHM, "", missing="create")
    else:
        yield _new("shm", "/dev/shm", "tmpfs", safe, "mode=1777,size=64m")


def _new(name: str, target: str, kind: str, flags: int, options: str = "") -> Mount:
    return Mount(target, Source.NEW, name, flags, kind, options, missing="create")


def _clone(path: str, flags: int, *, recursive: bool = True) -> int:
    tree = mounts.clone_tree(path, recursive=recursive)
    if flags:
        mounts.restrict_tree(tree, flags, recursive=recursive)
    return tree


def _cover(path: str) -> int:
    """An empty directory of the container's own, or an empty file."""
    if not os.path.isdir(path):
        return _clone("nothing", RDONLY)
    own = "upper/" + path.strip("/").replace("/", "-")
    os.mkdir(own)
    os.chmod(own, 0o1777 if path in WORLD_WRITABLE else 0o755)
    return _clone(own, 0)


def _overlay_root(root: str, hidden: tuple[str, ...], nodev: int) -> None:
    """Hide paths in the upper layer, as opaque directories or empty files, so that there is nothing to unmount."""
    if root:
        os.mkdir("lower")
        mounts.attach_tree(_clone(root, 0, recursive=False), "lower")
        os.chmod("upper", stat.S_IMODE(os.stat("lower").st_mode))
    copied: set[str] = set()
    for path in hidden:
        _copy_parents(os.path.dirname(path), copied)
        if os.path.isdir(path):
            os.mkdir("upper" + path)
            os.chmod("upper" + path, 0o1777 if path in WORLD_WRITABLE else 0o755)
            os.setxattr("upper" + path, "trusted.overlay.opaque", b"y")
        else:
            os.close(os.open("upper" + path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    os.mkdir("work")
    # Relative paths: a colon or a comma in a name would mean something to overlayfs.
    lower = "lower" if root else "/"
    mounts.mount("overlay", "root", "overlay", nodev, f"lowerdir={lower},upperdir=upper,workdir=work")


def _copy_parents(path: str, copied: set[str]) -> None:
    """Directories of the upper layer have the owner and mode of the lower ones that they are merged with."""
    if path == "/" or path in copied:
        return
    _copy_parents(os.path.dirname(path), copied)
    lower = os.stat(path)
    os.mkdir("upper" + path)
    os.chown("upper" + path, lower.st_uid, lower.st_gid)
    os.chmod("upper" + path, stat.S_IMODE(lower.st_mode))
    copied.add(path)


def _bound_root(hidden: tuple[str, ...], nodev: int) -> None:
    mounts.mount("plimsoll", "root", "tmpfs", NOSUID | NODEV, "mode=755")
    for entry in os.scandir("/"):
        target = f"root/{entry.name}"
        if entry.is_symlink():
            os.symlink(os.readlink(entry.path), target)
        elif entry.is_dir():
            os.mkdir(target)
            if entry.path not in (*hidden, "/proc", "/sys", "/dev"):
                mounts.attach_tree(_clone(entry.path, RDONLY | nodev, recursive=False), target)


def _make_target(tree: int, path: str) -> None:
    """Create the mount point. An overlay's upper layer takes it; on a read-only root it must exist already."""
    if os.path.exists(path):
        return
    try:
        if tree < 0 or stat.S_ISDIR(os.fstat(tree).st_mode):
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
