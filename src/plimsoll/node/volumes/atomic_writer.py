"""A directory of files that changes as a whole: containers see all old files or all new ones, never a mixture.

The layout is the kubelet's: the files are in a hidden directory (`..<token>`), `..data` is a link to it, and every name
that a user sees is a link through `..data`. A new set is written beside the old one; renaming a new `..data` over the
old one switches to it. Only this module writes there (containers have it read-only).

If the agent is killed at any moment, either the old or the new set is in place; the next call removes leftovers.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence

from plimsoll.linux.files.safe_tree import closing_fd, remove_tree
from plimsoll.rules.lifecycle.volumes import VolumeFile

_DATA = "..data"
_NEXT = "..data_tmp"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def publish(directory: int, files: Sequence[VolumeFile], group: int | None = None) -> bool:
    """Make the open directory contain exactly these files; whether something changed.

    With a group, the files belong to it and are readable by it.
    """
    current = _current(directory)
    changed = current is None or not _contains(directory, current, files, group)
    if changed:
        fresh = _write_all(directory, files, group)
        remove_tree(directory, _NEXT)
        os.symlink(fresh, _NEXT, dir_fd=directory)
        os.rename(_NEXT, _DATA, src_dir_fd=directory, dst_dir_fd=directory)
        current = fresh
    _link(directory, {file.path.partition("/")[0] for file in files})
    for name in os.listdir(directory):
        if name.startswith("..") and name not in (_DATA, current):
            remove_tree(directory, name)
    return changed


def _current(directory: int) -> str | None:
    try:
        return os.readlink(_DATA, dir_fd=directory)
    except OSError:  # no link yet, or not a link
        return None


def _mode(file: VolumeFile, group: int | None) -> int:
    return file.mode if group is None else file.mode | 0o440


def _contains(directory: int, current: str, files: Sequence[VolumeFile], group: int | None) -> bool:
    try:
        top = os.open(current, _DIRECTORY, dir_fd=directory)
    except OSError:
        return False
    with closing_fd(top):
        count = sum(len(names) for _, _, names, _ in os.fwalk(".", dir_fd=top))
        return count == len(files) and all(_is_same(top, file, group) for file in files)


def _is_same(top: int, file: VolumeFile, group: int | None) -> bool:
    try:
        fd = os.open(file.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=top)
    except OSError:
        return False
    with os.fdopen(fd, "rb") as opened:
        status = os.fstat(fd)
        if status.st_mode & 0o7777 != _mode(file, group) or (group is not None and status.st_gid != group):
            return False
        if file.user is not None and status.st_uid != file.user:
            return False
        return status.st_size == len(file.data) and opened.read() == file.data


def _write_all(directory: int, files: Sequence[VolumeFile], group: int | None) -> str:
    name = f"..{secrets.token_hex(8)}"
    os.mkdir(name, 0o755, dir_fd=directory)
    with closing_fd(os.open(name, _DIRECTORY, dir_fd=directory)) as top:
        os.fchmod(top, 0o755)  # regardless of the umask
        for file in files:
            _write(top, file, group)
    return name


def _write(top: int, file: VolumeFile, group: int | None) -> None:
    above = ""
    for part in file.path.split("/")[:-1]:
        above = f"{above}/{part}" if above else part
        try:
            os.mkdir(above, 0o755, dir_fd=top)
        except FileExistsError:
            continue
        os.chmod(above, 0o755, dir_fd=top)
    fd = os.open(file.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=top)
    with os.fdopen(fd, "wb") as opened:
        opened.write(file.data)
        if group is not None or file.user is not None:
            os.fchown(fd, -1 if file.user is None else file.user, -1 if group is None else group)
        os.fchmod(fd, _mode(file, group))


def _link(directory: int, names: set[str]) -> None:
    linked = {name for name in os.listdir(directory) if not name.startswith("..")}
    for name in linked - names:
        remove_tree(directory, name)
    for name in names - linked:
        os.symlink(f"{_DATA}/{name}", name, dir_fd=directory)
