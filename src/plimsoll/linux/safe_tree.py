"""Directories that others write in: opening something inside without leaving, and removing all of it.

What a container left behind is hostile: links to anywhere, names of any bytes, directories nested without end. Nothing
here walks a path by its name. `open_within` asks the kernel (openat2) to resolve links only as long as they stay
beneath the directory; `remove_tree` follows no link and enters no other mount, and takes nested directories apart by
moving each into the top one first, so depth costs neither stack nor descriptors. After a kill in the middle, what is
left is removed by calling it again.
"""

from __future__ import annotations

import ctypes
import errno
import os
import secrets
import stat

from plimsoll.linux.cgroup_files import open_beneath
from plimsoll.linux.libc import system_call

_OPENAT2 = 437  # the same on every architecture that Linux got this call on
_NO_MAGICLINKS, _BENEATH = 0x02, 0x08
_TRIES = 16  # openat2 answers EAGAIN while something on the way is being renamed


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def open_within(directory: int, path: str, flags: int) -> int:
    """An fd of `path` below the directory; EXDEV where a link would lead out of it. OSError as the kernel says it."""
    how = _OpenHow(flags | os.O_CLOEXEC, 0, _BENEATH | _NO_MAGICLINKS)
    for left in reversed(range(_TRIES)):
        try:
            return system_call("openat2", _OPENAT2, directory, os.fsencode(path), ctypes.byref(how), ctypes.sizeof(how))
        except OSError as error:
            number = error.errno or 0
            if number not in (errno.EAGAIN, errno.EINTR) or not left:
                raise OSError(number, os.strerror(number), path) from None
    raise AssertionError  # the last try returns or raises


def real_path(fd: int) -> str:
    """Where an open file is, free of links; for the moment, and as this mount namespace sees it."""
    return os.readlink(f"/proc/self/fd/{fd}")


def remove_tree(parent: int, name: str) -> None:
    """Whatever is called `name` in the open directory `parent`, and all below it; nothing there is fine.

    OSError with EXDEV where something is mounted inside: unmount it first.
    """
    try:
        os.unlink(name, dir_fd=parent)
        return
    except FileNotFoundError:
        return
    except OSError as error:
        if error.errno not in (errno.EISDIR, errno.EPERM):
            raise
    try:
        top = _opened(parent, name)
    except FileNotFoundError:
        return
    try:
        while found := _subdirectories(top):
            for directory in found:
                _take_apart(top, directory)
    finally:
        os.close(top)
    try:
        os.rmdir(name, dir_fd=parent)
    except FileNotFoundError:
        pass


def _opened(parent: int, name: str) -> int:
    fd = open_beneath(parent, name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    # Without root's rights, a directory of ours may still forbid us to look into it or to change it.
    if os.geteuid() != 0 and stat.S_IMODE(os.fstat(fd).st_mode) & 0o700 != 0o700:
        os.fchmod(fd, 0o700)
    return fd


def _subdirectories(directory: int) -> list[str]:
    """Unlinks everything else."""
    found = []
    for name in os.listdir(directory):
        try:
            os.unlink(name, dir_fd=directory)
        except FileNotFoundError:
            continue
        except OSError as error:
            if error.errno not in (errno.EISDIR, errno.EPERM):
                raise
            if not stat.S_ISDIR(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
                raise
            found.append(name)
    return found


def _take_apart(top: int, name: str) -> None:
    """Its files are unlinked, its directories moved into the top, itself removed."""
    directory = _opened(top, name)
    try:
        for inner in _subdirectories(directory):
            os.rename(inner, f".{secrets.token_hex(8)}", src_dir_fd=directory, dst_dir_fd=top)
    finally:
        os.close(directory)
    os.rmdir(name, dir_fd=top)
