"""The container's root file system: a private view of the host, or of an image directory.

The root is an overlay. Its lower layer, read-only, is the directory of `host_view`, or the image's own; its upper layer
is a tmpfs of this container. The host's directories of programs (/usr and, where they are no links, /bin, /lib, …) are
overlays as well. An overlay has inodes of its own, so no unix socket of the host can be connected to through it, not
even one that is made later, and no device node works in it (nodev). Other disks that are mounted in these directories
are added read-only. Paths that the agent uses (its state, its kubeconfig and keys) do not exist in them, wherever they
are. Then come fresh /proc, /sys and /dev, and the volumes.

`prepare` lists these mounts in order and does no I/O. `stage` takes everything that comes from the host before
`pivot_root`; `pivot` attaches it afterwards, when every link already leads to the container's own files.

Without overlayfs the root is a tmpfs with the same directories bound into it read-only, and existing sockets are
covered one by one. All of this happens in the child's private mount namespace and ends with it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Literal, NamedTuple

from plimsoll.linux import mounts
from plimsoll.linux.masked_paths import READ_ONLY
from plimsoll.linux.mounts import NODEV, NOEXEC, NOSUID, RDONLY
from plimsoll.runtime.supervisor.host_view import program_directories
from plimsoll.runtime.supervisor.mount_points import make_target
from plimsoll.runtime.supervisor.plan import PRIVATE, Bind

DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
DISKS = frozenset((
    "ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "jfs", "reiserfs", "bcachefs", "erofs", "squashfs",
    "overlay", "hostfs", "virtiofs", "9p", "nfs", "nfs4",
))  # fmt: skip
SHM = "/shm"  # the pod's /dev/shm in the namespace that keeps it
_CGROUPS = "/sys/fs/cgroup"
_ESCAPES = (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\"))  # in mountinfo


class RootView(NamedTuple):
    stage: str  # an empty directory of ours; what is mounted on it stays in the child's mount namespace
    root: str = ""
    base: str = ""  # the lowest layer of a view of the host (`host_view.directory`)
    secret: tuple[str, ...] = ()  # paths of the agent, which no container sees, not even through a volume
    expose: tuple[str, ...] = ()
    binds: tuple[Bind, ...] = ()
    working_dir: str = ""
    read_only: bool = False
    privileged: bool = False
    overlay: bool = True
    shm_tree: int = -1  # the pod's /dev/shm, a detached mount
    cgroups: bool = False  # mount the container's own part of cgroup v2, read-only
    hierarchies: tuple[tuple[str, str], ...] = ()  # the same of cgroup v1: directory, options of the mount
    masked: tuple[str, ...] = ()  # paths of /proc and /sys to cover, where they exist
    unmasked: bool = False  # /proc without what hides and protects parts of it
    users: int = -1  # the pod's user namespace: files of the root and of volumes are shown as its users'
    first_user: int = 0
    shared_trees: tuple[int, ...] = ()  # of the binds with propagation, cloned from the host's mount namespace
    outside: int = 1  # a process in the host's network namespace, to list its sockets


class Host(NamedTuple):
    """What `prepare` has to know about the host."""

    hidden: tuple[str, ...] = ()  # secret paths in the directories of programs
    programs: tuple[str, ...] = ()
    disks: tuple[str, ...] = ()
    sockets: tuple[str, ...] = ()
    masked: tuple[str, ...] = ()  # those of MASKED that exist
    secrets: tuple[tuple[str, str], ...] = ()  # as `seen_through` returns them


class Source(Enum):
    HOST = "a clone of `path` on the host, taken before the pivot"
    BLANK = "an empty read-only directory or file, as `path` on the host is one or the other"
    SHM = "the pod's /dev/shm"
    TREE = "a tree that was cloned before this mount namespace was made, so that it receives mounts of the host"
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
    tree: int = -1
    is_volume: bool = False
    missing: Literal["fail", "skip", "create"] = "fail"  # what to do where the target does not exist


def enter(view: RootView, host: Host) -> None:
    """To be called in a new mount namespace, as its root; afterwards / is the container's.

    `host`: from `read_host`. Where volumes lead is looked up only now, right before they are cloned.
    """
    mounts.make_private()
    shown = view.binds if view.root else (*view.binds, *(Bind(path, path, True) for path in view.expose))
    host = host._replace(secrets=tuple(seen_through(shown, view.secret)))
    planned = prepare(view, host)
    pivot(view, planned, stage(view, host, planned))


def read_host(view: RootView) -> Host:
    """Without `secrets`. To be called before the fork: in a new child, whatever Python touches is copied first."""
    is_open = view.privileged or view.unmasked
    masked = () if is_open else tuple(path for path in view.masked if os.path.exists(path))
    if view.root:
        return Host(masked=masked)
    programs = program_directories()
    hidden = hidden_paths(view.secret, programs)
    disks = tuple(other_disks(hidden, programs))
    bound = disks if view.overlay else programs  # an overlay has no sockets
    sockets = tuple(path for path in (bound_sockets(view.outside) if bound else ()) if is_below(path, bound))
    return Host(hidden, programs, disks, tuple(path for path in sockets if os.path.exists(path)), masked)


def prepare(view: RootView, host: Host) -> tuple[Mount, ...]:
    """Every mount on top of the root, in the order in which it is attached. A later one covers an earlier one."""
    nodev = 0 if view.privileged else NODEV
    is_open = view.privileged or view.unmasked
    shared = iter(view.shared_trees)
    return (
        *(Mount(path, Source.HOST, path, RDONLY | nodev, recursive=False) for path in host.disks),
        *_covers(view, host),
        *_system_directories(view),
        *(Mount(path, Source.BLANK, path) for path in host.masked),
        *(Mount(path, Source.SELF, path, RDONLY, missing="skip") for path in READ_ONLY if not is_open),
        *(
            Mount(path, Source.HOST, path, RDONLY | nodev, missing="create")
            for path in view.expose
            if not view.root and (not is_below(path, host.programs) or is_below(path, host.hidden))
        ),
        *(
            Mount(
                bind.container_path,
                Source.HOST if bind.propagation == PRIVATE else Source.TREE,
                bind.host_path,
                (0 if bind.is_device else nodev) | (RDONLY if bind.read_only else 0),
                tree=-1 if bind.propagation == PRIVATE else next(shared),
                is_volume=True,
                missing="create",
            )
            for bind in view.binds
        ),
        *(Mount(target, Source.BLANK, path) for target, path in host.secrets),
        *(
            Mount(path, Source.FLAGS, "", RDONLY, recursive=False)
            for path in host.programs
            if view.read_only and view.overlay
        ),
    )


def stage(view: RootView, host: Host, planned: tuple[Mount, ...]) -> list[int]:
    """Build the root on a tmpfs and take every tree that comes from outside it: one for each mount, -1 for none."""
    # The host's trees first: a volume that contains the stage must not show what is mounted there.
    trees = [
        _clone(mount.path, mount.flags, recursive=mount.recursive, users=view.users if mount.is_volume else -1)
        if mount.source is Source.HOST
        else -1
        for mount in planned
    ]
    mounts.mount("plimsoll", view.stage, "tmpfs", NOSUID | NODEV, "mode=755")
    os.chdir(view.stage)
    for name in ("root", "empty"):
        os.mkdir(name, 0o755)
    os.close(os.open("nothing", os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o444))
    for number, mount in enumerate(planned):
        if mount.source is Source.BLANK:
            trees[number] = _clone("empty" if os.path.isdir(mount.path) else "nothing", RDONLY)
        elif mount.source is Source.SHM:
            trees[number] = view.shm_tree
        elif mount.source is Source.TREE:
            trees[number] = mount.tree
    nodev = 0 if view.privileged else NODEV
    if view.overlay:
        _overlay(view.root or view.base, "root", "", nodev, users=view.users)
        for path in host.programs if not view.root else ():
            inside = [each for each in host.hidden if is_below(each, (path,))]
            _overlay(path, f"root{path}", path.replace("/", "-"), nodev, inside, users=view.users)
    elif view.root:
        mounts.attach_tree(_clone(view.root, RDONLY | nodev, recursive=False), "root")
    else:
        _bound_root(view.base, host.programs, nodev)
    return trees


def pivot(view: RootView, planned: tuple[Mount, ...], trees: list[int]) -> None:
    """Make the staged root ours and attach the mounts; from here on every link leads to the container's own files."""
    mounts.pivot_into("root")
    for mount, tree in zip(planned, trees, strict=True):
        if mount.missing == "skip" and not os.path.lexists(mount.target):
            continue
        if mount.missing == "create":
            make_target(tree, mount.target)
        if mount.source is Source.LINK:
            os.symlink(mount.path, mount.target)
        elif mount.source is Source.NEW:
            mounts.mount(mount.path, mount.target, mount.kind, mount.flags, mount.options)
        elif mount.source is Source.SELF:
            _attach(_clone(mount.path, mount.flags), mount.target)
        elif mount.source is Source.FLAGS:
            mounts.restrict(mount.target, mount.flags, recursive=mount.recursive)
        else:
            _attach(tree, mount.target)
    if view.working_dir and not os.path.lexists(view.working_dir):
        try:
            os.makedirs(view.working_dir, 0o755)
        except OSError as error:
            raise OSError(error.errno, f"working directory {view.working_dir}: {error.strerror}") from None
    if view.read_only:
        mounts.restrict("/", RDONLY, recursive=False)


def empty_root(stage: str) -> None:
    """Make a tmpfs with the directory SHM the only mount of this (new) mount namespace."""
    mounts.make_private()
    mounts.mount("plimsoll", stage, "tmpfs", NOSUID | NODEV | NOEXEC, "mode=755,size=64k")
    os.mkdir(stage + SHM, 0o755)
    mounts.pivot_into(stage)


def shared_memory(size: str, root: int) -> None:
    """A pod's /dev/shm, in a copy of the namespace of `empty_root`."""
    options = f"mode=1777,size={size},uid={root},gid={root}"
    mounts.mount("shm", SHM, "tmpfs", NOSUID | NODEV | NOEXEC, options)


def hidden_paths(secret: Iterable[str], shown: Iterable[str]) -> tuple[str, ...]:
    """The secret paths below what is shown: themselves and where links lead, nested ones left out."""
    paths = {each for path in secret for each in (_without_links_above(path), _real_path(path))}
    below = {path for path in paths if is_below(path, shown) and path not in shown}
    return tuple(sorted(path for path in below if not is_below(path, below - {path})))


def _without_links_above(path: str) -> str:
    """The path itself where it is a link, by its real place."""
    return os.path.join(_real_path(os.path.dirname(path)), os.path.basename(path))


def _real_path(path: str) -> str:
    """`os.path.realpath` with three system calls, not one for each component: every container waits for it."""
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return os.path.realpath(path)
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    finally:
        os.close(fd)


def is_below(path: str, directories: Iterable[str]) -> bool:
    """Whether the path is one of the directories or in one of them."""
    return any(path == directory or path.startswith(directory.rstrip("/") + "/") for directory in directories)


def other_disks(hidden: tuple[str, ...], shown: tuple[str, ...]) -> list[str]:
    """Mount points of the host's further disks in the directories shown, outer ones first."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        # Of the many mounts of a node, nearly all are elsewhere.
        paths = disk_mounts(line for line in file if line.split(" ", 5)[4].startswith(shown))
    return sorted(path for path in paths if is_below(path, shown) and not is_below(path, hidden))


def disk_mounts(mountinfo: Iterable[str]) -> set[str]:
    """Where disk file systems (DISKS) are mounted, except the root."""
    found: set[str] = set()
    for line in mountinfo:
        place, _, what = line.partition(" - ")
        path = place.split(" ", 5)[4]
        if what.partition(" ")[0] in DISKS:
            found.add(path)
        else:
            found.discard(path)  # it covers the one below
    return {unescaped(path) for path in found - {"/"}}


def unescaped(path: str) -> str:
    """As mountinfo writes it → as it is."""
    for escape, character in _ESCAPES:
        path = path.replace(escape, character)
    return path


def seen_through(binds: Iterable[Bind], secret: Iterable[str]) -> list[tuple[str, str]]:
    """Where a volume would show a secret path: (path in the container, path on the host)."""
    hosts = [(_real_path(bind.host_path), bind.container_path) for bind in binds]
    paths = set(map(_real_path, secret))
    outer = sorted(path for path in paths if not is_below(path, paths - {path}))
    return [
        (os.path.normpath(f"{target}/{path[len(host.rstrip('/')) :]}"), path)
        for host, target in hosts
        for path in outer
        if is_below(path, (host,))
    ]


def bound_sockets(pid: int) -> tuple[str, ...]:
    """The paths of the unix sockets in that process's network namespace."""
    with open(f"/proc/{pid}/net/unix", encoding="utf-8", errors="surrogateescape") as file:
        paths = {line.rstrip("\n").partition(" /")[2] for line in file}
    return tuple(f"/{path}" for path in sorted(paths - {""}))


def _covers(view: RootView, host: Host) -> Iterator[Mount]:
    """Hide what the root does not hide by itself: an overlay hides in its upper layer, but disks are mounted on it."""
    for path in host.hidden:
        if not view.overlay or is_below(path, host.disks):
            yield Mount(path, Source.BLANK, path, missing="skip")
    for path in host.sockets:
        if not is_below(path, host.hidden):
            yield Mount(path, Source.BLANK, path, missing="skip")


def _system_directories(view: RootView) -> Iterator[Mount]:
    safe = NOSUID | NODEV | NOEXEC
    yield _new("proc", "/proc", "proc", safe)
    yield _new("sysfs", "/sys", "sysfs", safe | (0 if view.privileged else RDONLY))
    yield from _own_cgroups(view)
    if view.privileged:
        yield Mount("/dev", Source.HOST, "/dev", missing="create")
        return
    root = f"uid={view.first_user},gid={view.first_user}"
    yield _new("plimsoll", "/dev", "tmpfs", safe, f"mode=755,size=64k,{root}")
    for name in DEVICES:
        yield Mount(f"/dev/{name}", Source.HOST, f"/dev/{name}", recursive=False, missing="create")
    yield Mount("/dev/ptmx", Source.LINK, "pts/ptmx")
    yield Mount("/dev/fd", Source.LINK, "/proc/self/fd")
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        yield Mount(f"/dev/{name}", Source.LINK, f"/proc/self/fd/{number}")
    yield _new(
        "devpts",
        "/dev/pts",
        "devpts",
        NOSUID | NOEXEC,
        f"newinstance,ptmxmode=0666,mode=0620,gid={view.first_user + 5}",
    )
    yield _new("mqueue", "/dev/mqueue", "mqueue", safe)
    if view.shm_tree >= 0:
        yield Mount("/dev/shm", Source.SHM, "", missing="create")
    else:
        yield _new("shm", "/dev/shm", "tmpfs", safe, "mode=1777,size=64m")


def _own_cgroups(view: RootView) -> Iterator[Mount]:
    """In the container's own cgroup namespace, whose root is its cgroup."""
    safe = NOSUID | NODEV | NOEXEC
    if view.cgroups:
        yield _new("cgroup", _CGROUPS, "cgroup2", safe)
    elif view.hierarchies:
        yield _new("plimsoll", _CGROUPS, "tmpfs", safe, "mode=755,size=64k")
        for name, options in view.hierarchies:
            yield _new("cgroup", f"{_CGROUPS}/{name}", "cgroup", safe, options)
            for controller in options.split(",") if "," in options else ():
                yield Mount(f"{_CGROUPS}/{controller}", Source.LINK, name)
    if (view.cgroups or view.hierarchies) and not view.privileged:
        # Not as a flag of `mount`: the file systems themselves are the host's, too.
        yield Mount(_CGROUPS, Source.FLAGS, "", RDONLY)


def _new(name: str, target: str, kind: str, flags: int, options: str = "") -> Mount:
    return Mount(target, Source.NEW, name, flags, kind, options, missing="create")


def _clone(path: str, flags: int, *, recursive: bool = True, users: int = -1) -> int:
    tree = mounts.clone_tree(path, recursive=recursive)
    if users >= 0:
        try:
            mounts.map_users(tree, users)
        except OSError as error:
            reason = (
                f"{path}: its file system cannot show the users of a user namespace: {os.strerror(error.errno or 0)}"
            )
            raise OSError(error.errno, reason) from None
    if flags:
        mounts.restrict_tree(tree, flags, recursive=recursive)
    return tree


def _overlay(lower: str, target: str, suffix: str, nodev: int, hidden: Iterable[str] = (), *, users: int = -1) -> None:
    """An overlay of one directory. Relative paths: a colon or a comma in a name would mean something to overlayfs."""
    below, upper, work = (f"{name}{suffix}" for name in ("lower", "upper", "work"))
    for name in (below, upper, work):
        if not os.path.isdir(name):
            os.mkdir(name)
    mounts.attach_tree(_clone(lower, 0, recursive=False, users=users), below)
    seen = os.stat(below)
    os.chown(upper, seen.st_uid, seen.st_gid)
    os.chmod(upper, stat.S_IMODE(seen.st_mode))
    copied: set[str] = set()
    for path in hidden:
        inside = path[len(lower) :]
        if _copy_parents(below, upper, os.path.dirname(inside), copied):
            os.mknod(upper + inside, stat.S_IFCHR, os.makedev(0, 0))  # a whiteout: no such file or directory
    mounts.mount("overlay", target, "overlay", nodev, f"lowerdir={below},upperdir={upper},workdir={work}")


def _copy_parents(below: str, upper: str, path: str, copied: set[str]) -> bool:
    """Directories of the upper layer have the owner and mode of the lower ones that they are merged with. False where
    there are none."""
    if path in ("", "/") or path in copied:
        return True
    if not _copy_parents(below, upper, os.path.dirname(path), copied) or not os.path.isdir(below + path):
        return False
    lower = os.stat(below + path)
    os.mkdir(upper + path)
    os.chown(upper + path, lower.st_uid, lower.st_gid)
    os.chmod(upper + path, stat.S_IMODE(lower.st_mode))
    copied.add(path)
    return True


def _bound_root(base: str, programs: Iterable[str], nodev: int) -> None:
    mounts.mount("plimsoll", "root", "tmpfs", NOSUID | NODEV, "mode=755")
    for folder, names, _ in os.walk(base):
        inside = folder[len(base) :].lstrip("/")
        for name in list(names):
            path, target = os.path.join(folder, name), os.path.join("root", inside, name)
            if os.path.islink(path):
                os.symlink(os.readlink(path), target)
            else:
                os.mkdir(target)
                os.chmod(target, stat.S_IMODE(os.stat(path).st_mode))
        if "etc" in names and not inside:
            names.remove("etc")
    mounts.attach_tree(_clone(os.path.join(base, "etc"), RDONLY | nodev, recursive=False), "root/etc")
    for path in programs:
        mounts.attach_tree(_clone(path, RDONLY | nodev, recursive=False), f"root{path}")


def _attach(tree: int, path: str) -> None:
    mounts.attach_tree(tree, path)
    os.close(tree)
