"""Safe access to directories that containers write: open a file without leaving them, and remove the whole tree.

The content is untrusted: links to anywhere, names of any bytes, directories of any depth. Nothing here resolves a path
by name alone. `open_within` lets the kernel (openat2) follow links only while they stay beneath the directory.
`remove_tree` follows no link and enters no other mount; it moves nested directories to the top before it removes them,
so that depth costs neither stack nor descriptors. If it is interrupted, call it again.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from plimsoll.linux.cgroup_files import BENEATH, NO_MAGICLINKS, open_beneath

_TRIES = 16  # openat2 returns EAGAIN while a directory of the path is being renamed


def open_within(directory: int, path: str, flags: int) -> int:
    """An fd of `path` below the directory; the kernel's OSError, EXDEV where a link would lead out of it."""
    for left in reversed(range(_TRIES)):
        try:
            return open_beneath(directory, path, flags, BENEATH | NO_MAGICLINKS)
        except OSError as error:
            if error.errno != errno.EAGAIN or not left:
                raise OSError(error.errno, error.strerror, path) from None
    raise AssertionError  # the last try returns or raises


@contextmanager
def closing_fd(fd: int) -> Iterator[int]:
    try:
        yield fd
    finally:
        os.close(fd)


def real_path(fd: int) -> str:
    """The current path of an open file, without links, in this mount namespace."""
    return os.readlink(f"/proc/self/fd/{fd}")


def remove_tree(parent: int, name: str) -> None:
    """Remove `name` in the open directory `parent` and everything below it; no error where it does not exist.

    Raises OSError with EXDEV where a file system is mounted inside: unmount it first.
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
        top = _open_directory(parent, name)
    except FileNotFoundError:
        return
    with closing_fd(top):
        while names := _unlink_files(top):
            for directory in names:
                _flatten(top, directory)
    try:
        os.rmdir(name, dir_fd=parent)
    except FileNotFoundError:
        pass


def _open_directory(parent: int, name: str) -> int:
    fd = open_beneath(parent, name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    # A user other than root may lack permissions on a directory that it owns.
    if os.geteuid() != 0 and stat.S_IMODE(os.fstat(fd).st_mode) & 0o700 != 0o700:
        os.fchmod(fd, 0o700)
    return fd


def _unlink_files(directory: int) -> list[str]:
    """Returns the subdirectories, which remain."""
    subdirectories = []
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
            subdirectories.append(name)
    return subdirectories


def _flatten(top: int, name: str) -> None:
    """Unlink its files, move its directories to the top, and remove it."""
    directory = _open_directory(top, name)
    try:
        for inner in _unlink_files(directory):
            os.rename(inner, f".{secrets.token_hex(8)}", src_dir_fd=directory, dst_dir_fd=top)
    finally:
        os.close(directory)
    os.rmdir(name, dir_fd=top)
