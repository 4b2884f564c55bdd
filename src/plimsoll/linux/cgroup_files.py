"""Open, read and write cgroup files; no other module does.

A `CgroupMount` is one mounted hierarchy: an O_PATH fd of its root, verified to be a cgroup file system. Every cgroup is
opened from there with openat2, which follows no symbolic link and crosses no mount. A `Directory` is an open cgroup: it
remains this cgroup even if another one gets its name.

Names and texts are validated before anything is changed: a path has plain components only, and a text is one of the
forms that control files accept. A text is written in one `write`, whose error is the kernel's verdict.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import re
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Literal, Self

from plimsoll.codec.kernel.files import below_mount
from plimsoll.errors import StructuredError

Magic = Literal["cgroup", "cgroup2"]
_MAGIC: dict[Magic, int] = {"cgroup": 0x27E0EB, "cgroup2": 0x63677270}
_NO_XDEV, NO_MAGICLINKS, _NO_SYMLINKS, BENEATH = 0x01, 0x02, 0x04, 0x08  # RESOLVE_* of openat2
_NO_LINKS = BENEATH | NO_MAGICLINKS | _NO_SYMLINKS | _NO_XDEV
_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_SYS_OPENAT2 = 437  # on every architecture
_CHUNK, _SHORT = 1 << 16, 1 << 12
_LISTS = frozenset({"cgroup.procs", "cgroup.threads", "tasks"})  # of pids
LEAF_LINKS = 2  # of a cgroup without children: `.` and the parent's entry; each child adds one
_NAME_BYTES = 255
_PATH_BYTES = 4095

_BAD_FILE = "not a valid name of a control file"
_FILE = re.compile(r"(?=.{1,255}\Z)[A-Za-z0-9_]+(?:\.[A-Za-z0-9_]+)*", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_RANGE = r"[0-9]{1,9}(?:-[0-9]{1,9})?"
_PAIR = r"[a-z]{1,8}=(?:max|[0-9]{1,20})"
_TEXT = re.compile(
    r"-?[0-9]{1,20}"
    r"|(?:max|[0-9]{1,20}) [0-9]{1,20}"  # cpu.max; an eventfd and the file it is for
    r"|[0-9]{1,9} [0-9]{1,9} [0-9]{1,20}"  # … with a threshold
    r"|default [0-9]{1,5}"  # io.weight
    rf"|[0-9]{{1,9}}:[0-9]{{1,9}} (?:[0-9]{{1,20}}|{_PAIR}(?: {_PAIR}){{0,7}})"  # io.max, blkio.throttle.*
    rf"|{_RANGE}(?:,{_RANGE})*"
    r"|[+-][a-z_0-9]{1,32}(?: [+-][a-z_0-9]{1,32})*"  # cgroup.subtree_control
    r"|(?:some|full) [0-9]{1,12} [0-9]{1,12}"  # a PSI trigger
    r"|max|FROZEN|THAWED|threaded|member|root|isolated",
    re.ASCII,
)
_MARKS = ("trusted.plimsoll", "user.plimsoll")
_MAY_BE_EMPTY = frozenset({"cpuset.cpus", "cpuset.mems"})  # empty: inherited from the parent


class CgroupError(StructuredError):
    """The kernel or systemd refused an operation: which one, on what, and why. `str()` is one line."""

    op: str
    path: str
    data: str
    errno: int
    detail: str = ""

    def __str__(self) -> str:
        path = self.path if self.path.isprintable() and len(self.path) <= _PATH_BYTES else repr(self.path[:_NAME_BYTES])
        data = f" {self.data!r}" if self.data else ""
        name = errno.errorcode.get(self.errno, str(self.errno))
        return f"{self.op} {path}{data}: {name} ({self.detail or os.strerror(self.errno)})"


class CgroupGoneError(CgroupError):
    """The cgroup does not exist, or no longer: not a fault for a caller that only reads."""


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_libc.syscall.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t)
_libc.fstatfs.argtypes = (ctypes.c_int, ctypes.c_void_p)


@functools.cache
def _how(flags: int, resolve: int) -> _OpenHow:
    return _OpenHow(flags | os.O_CLOEXEC, 0, resolve)


def open_beneath(directory_fd: int, path: str, flags: int, resolve: int = _NO_LINKS) -> int:
    """openat2 below `directory_fd`, by default on its mount and without following links; the kernel's OSError."""
    how = _how(flags, resolve)
    while True:
        fd: int = _libc.syscall(_SYS_OPENAT2, directory_fd, os.fsencode(path), ctypes.byref(how), ctypes.sizeof(how))
        if fd >= 0:
            return fd
        number = ctypes.get_errno()
        if number != errno.EINTR:
            raise OSError(number, os.strerror(number))


@functools.lru_cache(maxsize=2048)
def components(path: str) -> tuple[str, ...]:
    """`/a/b` → (a, b); refuses a path that could leave the mount, or that is not a valid name of a cgroup.

    Cached, because one path is opened in every hierarchy, many times in a transaction.
    """
    if path == "/":
        return ()
    if not path.startswith("/"):
        raise _refused(path, "a cgroup's path starts with /")
    if len(os.fsencode(path)) > _PATH_BYTES:
        raise _refused(path, f"more than {_PATH_BYTES} bytes", errno.ENAMETOOLONG)
    names = tuple(path[1:].split("/"))
    for name in names:
        if name in ("", ".", ".."):
            raise _refused(path, f"{name!r} is not a valid cgroup name")
        if _CONTROL.search(name):
            raise _refused(path, "a cgroup's name has no newline, NUL or other control character")
        if len(os.fsencode(name)) > _NAME_BYTES:
            raise _refused(path, f"a cgroup's name has at most {_NAME_BYTES} bytes", errno.ENAMETOOLONG)
    return names


def _refused(path: str, detail: str, number: int = errno.EINVAL) -> CgroupError:
    return CgroupError("refuse", path, "", number, detail)


def check_text(path: str, file: str, text: str) -> None:
    """Refuses a text that is not of a form that control files accept."""
    if not _FILE.fullmatch(file):
        raise CgroupError("refuse", f"{path}/{file}", text, errno.EINVAL, _BAD_FILE)
    if not _TEXT.fullmatch(text) and (text or file not in _MAY_BE_EMPTY):
        raise CgroupError("refuse", f"{path}/{file}", text[:80], errno.EINVAL, "not a value for a control file")


class _OpenFile:
    __slots__ = ("fd",)
    fd: int

    def close(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)


class CgroupMount(_OpenFile):
    """A mounted cgroup hierarchy. Raises CgroupError where the mount point is missing or not a cgroup file system."""

    def __init__(self, mount_point: str, kind: Magic, root: str = "/") -> None:
        """`root`: the cgroup that is mounted there (see mountinfo); in a container it may not be the root cgroup."""
        self.mount_point = mount_point
        self.root = root
        self.kind: Magic = kind
        try:
            self.fd = os.open(mount_point, _DIRECTORY | os.O_NOFOLLOW)
        except OSError as error:
            raise CgroupError("open", mount_point, "", error.errno or 0) from error
        if (magic := _file_system(self.fd)) != _MAGIC[kind]:
            os.close(self.fd)
            self.fd = -1
            detail = f"file system {magic:#x} is not {kind} ({_MAGIC[kind]:#x})"
            raise CgroupError("open", mount_point, "", errno.EXDEV, detail)

    def directory(self, path: str) -> Directory:
        """Raises CgroupGoneError where there is none, CgroupError where a link or another mount is in the path."""
        names = components(path)
        where = self.shown(path)
        try:
            return Directory(open_beneath(self.fd, "/".join(names) or ".", _DIRECTORY), where)
        except OSError as error:
            raise _failed("open", where, "", error, gone=error.errno == errno.ENOENT) from error

    def has(self, path: str) -> bool:
        try:
            with self.directory(path):
                return True
        except CgroupGoneError:
            return False

    def mark(self, path: str, text: str) -> None:
        with suppress(CgroupGoneError), self.directory(path) as directory:
            directory.mark(text)

    def marked(self, path: str) -> str:
        """Empty for a cgroup that is gone, too."""
        with suppress(CgroupGoneError), self.directory(path) as directory:
            return directory.marked()
        return ""

    def make(self, path: str) -> None:
        self._change("make", path, functools.partial(os.mkdir, mode=0o755))

    def remove(self, path: str) -> None:
        self._change("remove", path, os.rmdir)

    def _change(self, op: str, path: str, change: Callable[..., None]) -> None:
        names = components(path)
        if not names:
            raise CgroupError(op, path, "", errno.EINVAL, "the root of a hierarchy cannot be made or removed")
        with self.directory("/" + "/".join(names[:-1])) as parent:
            try:
                change(names[-1], dir_fd=parent.fd)
            except OSError as error:
                raise _failed(op, self.shown(path), "", error, gone=error.errno == errno.ENOENT) from error

    def below(self, proc_path: str) -> str | None:
        """A path of /proc/PID/cgroup relative to this mount; None where it is not below it."""
        return below_mount(proc_path, self.root)

    def shown(self, path: str) -> str:
        return self.mount_point if path == "/" else self.mount_point + path

    def __del__(self) -> None:
        if getattr(self, "fd", -1) >= 0:
            self.close()


class Directory(_OpenFile):
    """One open cgroup. Close it, or use it in a `with`."""

    __slots__ = ("path",)

    def __init__(self, fd: int, path: str) -> None:
        self.fd = fd
        self.path = path  # with its mount point: for errors only

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _t: type[BaseException] | None, _e: BaseException | None, _tb: TracebackType | None) -> None:
        self.close()

    @property
    def inode(self) -> int:
        return os.fstat(self.fd).st_ino

    def mark(self, text: str) -> None:
        """Attach a text to the cgroup (an extended attribute), where the kernel and our rights allow it."""
        for name in _MARKS:
            try:
                os.setxattr(f"/proc/self/fd/{self.fd}", name, text.encode())
                return
            except OSError:  # trusted.* needs root, user.* Linux 5.7 and cgroup v2: the mark is only for a message
                continue

    def marked(self) -> str:
        """The text of `mark`; empty where there is none, or where it cannot be read."""
        for name in _MARKS:
            try:
                return os.getxattr(f"/proc/self/fd/{self.fd}", name).decode(errors="replace")
            except OSError:
                continue
        return ""

    def alive(self) -> bool:
        """Whether the cgroup still exists: a removed one has no files, not even cgroup.procs."""
        return self.has("cgroup.procs")

    def has(self, file: str) -> bool:
        """Whether the file exists, even if it cannot be read."""
        try:
            os.close(open_beneath(self.fd, file, os.O_PATH))
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENODEV):
                return False
            raise _failed("open", f"{self.path}/{file}", "", error) from error
        return True

    def open(self, file: str, flags: int = os.O_RDONLY) -> int:
        """An fd of one control file; the caller closes it."""
        if not _FILE.fullmatch(file):
            raise CgroupError("refuse", f"{self.path}/{file}", "", errno.EINVAL, _BAD_FILE)
        try:
            return open_beneath(self.fd, file, flags)
        except OSError as error:
            gone = error.errno == errno.ENODEV or (error.errno == errno.ENOENT and not self.alive())
            raise _failed("open", f"{self.path}/{file}", "", error, gone=gone) from error

    def read(self, file: str) -> str:
        """The whole text, stripped."""
        fd = self.open(file)
        try:
            data = _all(fd) if file in _LISTS else _at_once(fd)
            return data.decode("utf-8", "replace").strip()
        except OSError as error:
            raise _failed("read", f"{self.path}/{file}", "", error, gone=error.errno == errno.ENODEV) from error
        finally:
            os.close(fd)

    def read_if_there(self, file: str) -> str | None:
        """None where the cgroup does not have the file; CgroupGoneError where the cgroup was removed."""
        try:
            return self.read(file)
        except CgroupGoneError:
            raise
        except CgroupError as error:
            # EOPNOTSUPP: the file exists, but its feature is disabled (PSI with psi=0).
            if error.errno in (errno.ENOENT, errno.EOPNOTSUPP):
                return None
            raise

    def write(self, file: str, text: str) -> None:
        """Write one validated text."""
        check_text(self.path, file, text)
        fd = self.open(file, os.O_WRONLY)
        try:
            write_once(fd, f"{self.path}/{file}", text)
        finally:
            os.close(fd)

    def children(self) -> list[str]:
        """The names of its child cgroups, sorted; none where it was removed. Most have none, so they are counted before
        all files are listed."""
        if os.fstat(self.fd).st_nlink <= LEAF_LINKS:
            return []
        fd = -1
        try:
            fd = open_beneath(self.fd, ".", os.O_RDONLY | os.O_DIRECTORY)
            with os.scandir(fd) as entries:
                return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
        except OSError as error:
            gone = error.errno in (errno.ENOENT, errno.ENODEV)
            raise _failed("list", self.path, "", error, gone=gone) from error
        finally:
            if fd >= 0:
                os.close(fd)


class KeptFile(_OpenFile):
    """A control file that stays open, because it is read at every tick: one `pread`, without a path lookup.

    It belongs to the cgroup it was opened in: `CgroupGoneError` once that is removed, even if another one has its name.
    Only for files that the kernel returns in one read (not for lists of pids).
    """

    __slots__ = ("path",)

    def __init__(self, directory: Directory, file: str) -> None:
        self.path = f"{directory.path}/{file}"
        self.fd = directory.open(file)

    def read(self) -> bytes:
        try:
            return os.pread(self.fd, _CHUNK, 0)
        except OSError as error:
            raise _failed("read", self.path, "", error, gone=error.errno == errno.ENODEV) from error


def write_once(fd: int, path: str, text: str) -> None:
    """One write of a validated text; a PSI trigger ends in NUL (https://docs.kernel.org/accounting/psi.html)."""
    check_text(os.path.dirname(path), os.path.basename(path), text)
    data = (text or "\n").encode("ascii")  # the kernel ignores an empty write
    if text.startswith(("some ", "full ")):
        data += b"\0"
    try:
        written = os.write(fd, data)
    except OSError as error:
        raise _failed("write", path, text, error, gone=error.errno == errno.ENODEV) from error
    if written != len(data):
        raise CgroupError("write", path, text, errno.EIO, f"only {written} of {len(data)} bytes were written")


def _failed(op: str, path: str, data: str, error: OSError, *, gone: bool = False) -> CgroupError:
    number = error.errno or 0
    if gone:
        return CgroupGoneError(op, path, data, number)
    details = {
        errno.ELOOP: "the path has a symbolic link, which a cgroup file system never has",
        errno.EXDEV: "another file system is mounted there",
        errno.ENOSYS: "this kernel has no openat2: Linux 5.6 or newer is needed",
    }
    return CgroupError(op, path, data, number, details.get(number, "") if op == "open" else "")


def _all(fd: int) -> bytes:
    """The kernel returns lists of pids in several reads; the last one is empty."""
    chunks = []
    while chunk := os.read(fd, _CHUNK):
        chunks.append(chunk)
    return b"".join(chunks)


def _at_once(fd: int) -> bytes:
    """Every other file is returned as far as the buffer reaches: a shorter read has all of it."""
    text = os.read(fd, _SHORT)
    return text if len(text) < _SHORT else text + _all(fd)


def _file_system(fd: int) -> int:
    result = ctypes.create_string_buffer(256)  # struct statfs is at most 120 bytes and starts with its type
    if _libc.fstatfs(fd, result):
        number = ctypes.get_errno()
        raise CgroupError("fstatfs", f"/proc/self/fd/{fd}", "", number)
    return ctypes.c_long.from_buffer(result).value & 0xFFFFFFFF
