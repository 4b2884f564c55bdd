"""Mounts by file descriptor where the kernel supports it (5.2; 5.12 for attributes of trees), otherwise by path.

A tree from `clone_tree` is detached until it is attached: it can be cloned before the root is changed and attached
afterwards, when every path, also a link, resolves inside the container. Stdlib only (the supervisor imports it).
"""

from __future__ import annotations

import ctypes
import errno
import os

from plimsoll.linux.libc import call, system_call

RDONLY, NOSUID, NODEV, NOEXEC = 1, 2, 4, 8
REMOUNT, BIND, REC, PRIVATE, SLAVE = 32, 4096, 16384, 1 << 18, 1 << 19
SAME = 0  # propagation that is not changed
_MNT_DETACH, _UMOUNT_NOFOLLOW = 2, 8

# System calls since 5.1 have one number on every architecture; pivot_root is older.
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41, "riscv64": 41, "loongarch64": 41, "ppc64le": 203, "s390x": 217}
_PIVOT_ROOT |= {"i686": 217, "i586": 217, "armv7l": 218, "armv6l": 218}

_AT_FDCWD, _AT_EMPTY_PATH, _AT_RECURSIVE = -100, 0x1000, 0x8000
_OPEN_TREE_CLONE, _OPEN_TREE_CLOEXEC = 1, os.O_CLOEXEC
_MOVE_MOUNT_F_EMPTY_PATH = 4
_ATTRIBUTES = {RDONLY: 1, NOSUID: 2, NODEV: 4, NOEXEC: 8}
_IDMAP = 0x00100000


class _Attributes(ctypes.Structure):
    _fields_ = [
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    ]


def mount(source: str, target: str, kind: str, flags: int = 0, options: str = "") -> None:
    try:
        call("mount", source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), options.encode())
    except OSError as error:
        raise OSError(error.errno, f"mount {kind or 'bind'} at {target}: {os.strerror(error.errno or 0)}") from None


def make_private() -> None:
    """Stop mount propagation in both directions. Only in a mount namespace of this process's own."""
    call("mount", None, b"/", None, ctypes.c_ulong(REC | PRIVATE), None)


def detach(path: str) -> None:
    call("umount2", path.encode(), _MNT_DETACH | _UMOUNT_NOFOLLOW)


def pivot_into(root: str) -> None:
    """Make the mount `root` the new / and detach the old one from this mount namespace."""
    number = _PIVOT_ROOT.get(os.uname().machine)
    if number is None:
        raise OSError(errno.ENOSYS, f"pivot_root: its number on {os.uname().machine} is unknown")
    os.chdir(root)
    system_call("pivot_root", number, b".", b".")  # the old root is now mounted over the new one
    detach(".")
    os.chdir("/")


def clone_tree(path: str, *, recursive: bool) -> int:
    """A detached copy of the mount at a path; a link in the last component is followed."""
    flags = _OPEN_TREE_CLONE | _OPEN_TREE_CLOEXEC | (_AT_RECURSIVE if recursive else 0)
    try:
        return system_call("open_tree", _OPEN_TREE, _AT_FDCWD, os.fsencode(path), flags)
    except OSError as error:
        raise OSError(error.errno, f"open_tree {path}: {os.strerror(error.errno or 0)}") from None


def attach_tree(tree: int, target: str) -> None:
    try:
        system_call("move_mount", _MOVE_MOUNT, tree, b"", _AT_FDCWD, os.fsencode(target), _MOVE_MOUNT_F_EMPTY_PATH)
    except OSError as error:
        raise OSError(error.errno, f"mount at {target}: {os.strerror(error.errno or 0)}") from None


def restrict_tree(tree: int, flags: int, *, recursive: bool = True, propagation: int = PRIVATE) -> None:
    """Set RDONLY, NOSUID, NODEV, NOEXEC on a tree (by its fd), and its propagation."""
    attributes = _Attributes(sum(bit for flag, bit in _ATTRIBUTES.items() if flags & flag), 0, propagation, 0)
    how = _AT_EMPTY_PATH | (_AT_RECURSIVE if recursive else 0)
    size = ctypes.sizeof(attributes)
    system_call("mount_setattr", _MOUNT_SETATTR, tree, b"", how, ctypes.byref(attributes), size)


def map_users(tree: int, users: int) -> None:
    """Show the owners of all files of a tree, which is not attached yet, as those of a user namespace (by its fd)."""
    attributes = _Attributes(_IDMAP, 0, SAME, users)
    size = ctypes.sizeof(attributes)
    how = _AT_EMPTY_PATH | _AT_RECURSIVE
    system_call("mount_setattr", _MOUNT_SETATTR, tree, b"", how, ctypes.byref(attributes), size)


def restrict(path: str, flags: int, *, recursive: bool) -> None:
    """The same for the mount at a path."""
    fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        restrict_tree(fd, flags, recursive=recursive)
    finally:
        os.close(fd)


def can_clone_trees() -> bool:
    """Whether this kernel has the calls above (5.12)."""
    try:
        system_call("mount_setattr", _MOUNT_SETATTR, -1, b"", 0, None, 0)
    except OSError as error:
        return error.errno != errno.ENOSYS
    return True
