"""Where a container's mounts are attached: an empty directory or file. Nearly always its parent is there already."""

from __future__ import annotations

import errno
import os
import stat


def make_target(tree: int, path: str) -> None:
    """Create the mount point of a detached tree (−1: of a new file system). An overlay's upper layer takes it; on a
    read-only root it must exist already."""
    if os.path.exists(path):
        return
    is_directory = tree < 0 or stat.S_ISDIR(os.fstat(tree).st_mode)
    try:
        try:
            _make_empty(path, is_directory=is_directory)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(path), 0o755, exist_ok=True)
            _make_empty(path, is_directory=is_directory)
    except OSError as error:
        why = "this root can't be written without overlayfs" if error.errno == errno.EROFS else error.strerror
        raise OSError(error.errno, f"mount point {path}: {why}") from None


def _make_empty(path: str, *, is_directory: bool) -> None:
    if is_directory:
        os.mkdir(path, 0o755)
    else:
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))
