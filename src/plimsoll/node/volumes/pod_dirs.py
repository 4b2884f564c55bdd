"""Where a pod's files are on the node. Names come from manifests, so each is checked before it becomes a path.

Below the state directory (0700, so that only the agent and containers with a mount can read it):

    pods/<uid>/volumes/<plugin>/<volume>              the kubelet's plugin names: kubernetes.io~empty-dir …
    pods/<uid>/volume-subpaths/<volume>/<container>/<n>   pinned by a mount
    pods/<uid>/files/containers/<container>/<attempt>  its termination message (terminationMessagePath)
    pods/<uid>/files/etc/{hosts,hostname,resolv.conf}

Containers may write below `files`, so with the embedded runtime it is a small tmpfs: what a container writes there is
charged to its own memory and cannot fill the disk. With a CRI runtime it counts as the pod's ephemeral storage.

The logs are in `<logs>/<namespace>_<name>_<uid>/<container>/<attempt>.log`.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import stat
from functools import lru_cache
from pathlib import Path

from plimsoll.codec.kernel.files import mountinfo
from plimsoll.errors import InvalidNameError
from plimsoll.linux.files.safe_tree import closing_fd, remove_tree
from plimsoll.linux.mounts import NODEV, NOEXEC, NOSUID, detach, mount
from plimsoll.rules.model.names import dns_label_problems, dns_subdomain_problems
from plimsoll.rules.model.objects import Metadata
from plimsoll.rules.model.runnable import FALLBACK_TO_LOGS

log = logging.getLogger(__name__)

MESSAGE_BYTES = 4096
FILES_BYTES = 1 << 20  # of a pod's own files together; a termination message is read up to 4 KiB
LOG_MESSAGE_BYTES, LOG_MESSAGE_LINES = 2048, 80  # where the end of the log is the message
_MAX_NAME = 255  # bytes, of a file on Linux

_ESCAPED = frozenset(" \t\n\\#")  # in /proc/PID/mountinfo

_UID = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,127}", re.ASCII)


def is_uid(text: str) -> bool:
    return _UID.fullmatch(text) is not None and ".." not in text


def checked_uid(uid: str) -> str:
    if not is_uid(uid):
        raise InvalidNameError(f"metadata.uid {uid!r} cannot name a directory")
    return uid


def checked_label(name: str, what: str) -> str:
    """A container's, volume's or namespace's name."""
    if problems := dns_label_problems(name):
        raise InvalidNameError(f"{what} {name!r}: {problems[0]}")
    return name


def pods_directory(state: Path) -> Path:
    return state / "pods"


def pod_directory(state: Path, uid: str) -> Path:
    return pods_directory(state) / checked_uid(uid)


def log_directory(logs: Path, metadata: Metadata) -> Path:
    """The log directory of a pod. The name is cut where the file system would refuse it; the uid tells pods apart."""
    return _log_directory(logs, metadata.namespace, metadata.name, metadata.uid)


@lru_cache(maxsize=1024)  # every sample of the node's statistics asks for those of all pods
def _log_directory(logs: Path, namespace: str, name: str, uid: str) -> Path:
    checked_label(namespace, "namespace")
    if problems := dns_subdomain_problems(name):
        raise InvalidNameError(f"pod {name!r}: {problems[0]}")
    room = _MAX_NAME - len(f"{namespace}__{checked_uid(uid)}")
    return logs / f"{namespace}_{name[:room]}_{uid}"


def container_log(container: str, attempt: int) -> str:
    """Below the pod's log directory."""
    return f"{checked_label(container, 'container')}/{attempt}.log"


def make_directory(path: Path, mode: int = 0o700) -> None:
    """Also create missing parents; an existing directory keeps its mode."""
    try:
        os.mkdir(path, mode)
    except FileNotFoundError:
        make_directory(path.parent)
        make_directory(path, mode)
    except FileExistsError:
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            raise


def write_file(path: Path, text: str, mode: int = 0o644) -> None:
    """Replace the file atomically, and only if it differs.

    A container that has the old file mounted keeps it until it is restarted.
    """
    data = text.encode("utf-8", "surrogatepass")
    try:
        # Containers may write to it: a file that has grown is not read, however large it is.
        if os.lstat(path).st_size == len(data) and path.read_bytes() == data:
            return
    except FileNotFoundError:
        make_directory(path.parent)
    temporary = path.with_name(f".{path.name}.new")
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "wb") as file:
        file.write(data)
        os.fchmod(file.fileno(), mode)
    os.replace(temporary, path)


# --- files of the pod's own that containers may write ---


@lru_cache(maxsize=1024)
def files_directory(state: Path, uid: str) -> Path:
    return pod_directory(state, uid) / "files"


def make_files_directory(state: Path, uid: str, *, bounded: bool) -> Path:
    """`bounded`: as a tmpfs, where this process may mount one."""
    path = files_directory(state, uid)
    make_directory(path)
    if bounded and os.stat(path).st_dev == os.stat(path.parent).st_dev:
        try:
            mount("tmpfs", str(path), "tmpfs", NOSUID | NODEV | NOEXEC, f"mode=0700,size={FILES_BYTES}")
        except PermissionError as error:  # not root: its pods are plain processes of this user
            log.debug("files of pod %s are on disk: %s", uid, error)
    return path


# --- termination messages ---


def make_message_file(state: Path, uid: str, container: str, attempt: int) -> Path:
    """Create an empty file that every user in the container may write; an existing one of this attempt is kept.

    The message of the attempt before stays for `lastState`; older ones are removed.
    """
    path = message_file(state, uid, container, attempt)
    make_directory(path.parent)
    for name in os.listdir(path.parent):
        if name.isdecimal() and int(name) < attempt - 1:
            (path.parent / name).unlink(missing_ok=True)
    with closing_fd(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)) as fd:
        os.fchmod(fd, 0o666)
    return path


def message_file(state: Path, uid: str, container: str, attempt: int) -> Path:
    return files_directory(state, uid) / "containers" / checked_label(container, "container") / str(attempt)


def termination_message(state: Path, uid: str, container: str, attempt: int) -> str:
    """The last 4096 bytes that the container wrote; "" where it wrote nothing."""
    path = message_file(state, uid, container, attempt)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return ""
    except OSError as error:
        return f"Error on reading termination log {path}: {error.strerror}"
    with os.fdopen(fd, "rb") as file:
        size = os.fstat(fd).st_size
        file.seek(max(0, size - MESSAGE_BYTES))
        return file.read(MESSAGE_BYTES).decode("utf-8", "replace")


def wants_log_as_message(policy: str, exit_code: int, message: str) -> bool:
    """Whether the end of its log (80 lines, at most 2048 bytes) is the message."""
    return policy == FALLBACK_TO_LOGS and exit_code != 0 and not message


# --- removal ---


def pods_on_disk(state: Path) -> list[str]:
    """Uids of all pods that have files here, known or not."""
    try:
        return sorted(name for name in os.listdir(pods_directory(state)) if is_uid(name))
    except FileNotFoundError:
        return []


def mounts_below(directory: Path) -> list[str]:
    """Mount points below (or at) a directory, the last mounted first."""
    top = os.path.realpath(directory)
    name = os.path.basename(top)
    hint = "" if _ESCAPED & set(name) else name  # few lines have it, and each pod has a mount
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        lines = mountinfo("".join(line for line in file if hint in line))
    return [line.mount_point for line in reversed(lines) if line.mount_point == top or _is_below(line.mount_point, top)]


def _is_below(path: str, top: str) -> bool:
    return path.startswith(top.rstrip("/") + "/")


def remove_pod_files(state: Path, uid: str) -> None:
    """Unmount and remove everything of the pod except its logs. Idempotent.

    A directory with a mount that cannot be removed is not entered: raises OSError, and the next call continues.
    """
    directory = pod_directory(state, uid)
    if not os.path.lexists(directory):
        return
    for mount_point in mounts_below(directory):
        unmount(mount_point)
    _remove(directory)


def remove_logs(logs: Path, name: str) -> None:
    """One pod's directory below `logs`."""
    if os.path.lexists(logs):
        _remove(logs / name)


def _remove(directory: Path) -> None:
    with closing_fd(os.open(directory.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as parent:
        remove_tree(parent, directory.name)


def unmount(path: str | Path) -> None:
    """Does nothing where nothing is mounted."""
    try:
        detach(str(path))
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOENT):
            raise
