"""The state directory of Plimsoll: accessible to its owner only (mode 0700), its files 0600."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from plimsoll.errors import PlimsollError

SYSTEM_HOME = "/var/lib/plimsoll"
USER_HOME = ".local/state/plimsoll"


class UnsafeStateError(PlimsollError):
    """Other users have access to the state directory; the message says what to do."""


def state_home(environment: dict[str, str], uid: int) -> Path:
    """$PLIMSOLL_HOME, otherwise /var/lib for root and the home directory for other users."""
    if chosen := environment.get("PLIMSOLL_HOME"):
        return Path(chosen)
    if uid == 0:
        return Path(SYSTEM_HOME)
    home = environment.get("HOME")
    if not home:
        raise UnsafeStateError("neither PLIMSOLL_HOME nor HOME is set: give --state-dir DIR")
    return Path(home, USER_HOME)


def default_state(path: Path | None) -> Path:
    """The directory that the user named, otherwise the default one; created if it is missing."""
    return private_directory(path or state_home(dict(os.environ), os.geteuid()))


def private_directory(path: Path) -> Path:
    """The directory, created if it is missing. Refused where it has another owner or other users may enter it."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = os.stat(path)
    if status.st_uid != os.geteuid():
        raise UnsafeStateError(f"{path} belongs to uid {status.st_uid}, not to {os.geteuid()}: give --state-dir DIR")
    if stat.S_IMODE(status.st_mode) & 0o077:
        raise UnsafeStateError(f"{path} can be read by other users: run chmod 700 {path}")
    return path


def write_private(path: Path, data: bytes) -> None:
    """Replace a file atomically, mode 0600: a reader sees the old or the new text, also after a power cut."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mkstemp sets mode 0600
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def replace_private(path: Path, data: bytes) -> None:
    """The same without fsync: safe if the process is killed, not after a power cut."""
    fresh = path.with_name(f".{path.name}.new")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
    finally:
        os.close(descriptor)
    os.replace(fresh, path)
