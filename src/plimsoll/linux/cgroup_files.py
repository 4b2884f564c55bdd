"""The one place where cgroup files are opened, read and written.

A `CgroupMount` is one mounted hierarchy: an O_PATH fd of its top, whose file system was checked to be a cgroup one.
Every cgroup is opened from there with openat2, which follows no symbolic link and crosses no mount, so what it finds is
in that same file system. A `Directory` is the open cgroup: it stays this cgroup even if another takes its name.

Names and texts are checked before anything is touched: a path has plain components only, a text is one of the few
forms that control files take. A text goes to the kernel in one `write`, whose error is the kernel's verdict.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import re
from types import TracebackType
from typing import Literal, Self

from plimsoll.codec.kernel.files import below_mount
from plimsoll.errors import PlimsollError

Magic = Literal["cgroup", "cgroup2"]
_MAGIC: dict[Magic, int] = {"cgroup": 0x27E0EB, "cgroup2": 0x63677270}
_NO_XDEV, _NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH = 0x01, 0x02, 0x04, 0x08
_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_SYS_OPENAT2 = 437  # the same on every architecture that Linux got this call on
_CHUNK = 1 << 16
_NAME_BYTES = 255
_PATH_BYTES = 4095

_FILE = re.compile(r"(?=.{1,255}\Z)[A-Za-z0-9_]+(?:\.[A-Za-z0-9_]+)*", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_RANGE = r"[0-9]{1,9}(?:-[0-9]{1,9})?"
_TEXT = re.compile(
    r"-?[0-9]{1,20}"
    r"|(?:max|[0-9]{1,20}) [0-9]{1,20}"  # cpu.max; an eventfd and the file it is for
    r"|[0-9]{1,9} [0-9]{1,9} [0-9]{1,20}"  # … with a threshold
    r"|default [0-9]{1,5}"  # io.weight
    rf"|{_RANGE}(?:,{_RANGE})*"
    r"|[+-][a-z_0-9]{1,32}(?: [+-][a-z_0-9]{1,32})*"  # cgroup.subtree_control
    r"|(?:some|full) [0-9]{1,12} [0-9]{1,12}"  # a PSI trigger
    r"|max|FROZEN|THAWED|threaded|member|root|isolated",
    re.ASCII,
)
_MAY_BE_EMPTY = frozenset({"cpuset.cpus", "cpuset.mems"})  # empty: as the parent


class CgroupError(PlimsollError):
    """The kernel (or systemd) refused; everything that is needed to see why. `str()` is one line."""

    def __init__(self, op: str, path: str, data: str, number: int, detail: str = "") -> None:
        super().__init__(op, path, data, number, detail)
        self.op = op
        self.path = path
        self.data = data
        self.errno = number
        self.detail = detail

    def __str__(self) -> str:
        path = self.path if self.path.isprintable() and len(self.path) <= _PATH_BYTES else repr(self.path[:_NAME_BYTES])
        data = f" {self.data!r}" if self.data else ""
        name = errno.errorcode.get(self.errno, str(self.errno))
        return f"{self.op} {path}{data}: {name} ({self.detail or os.strerror(self.errno)})"


class CgroupGoneError(CgroupError):
    """The cgroup is not there (any more): for whoever only looks, no fault at all."""


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_libc.syscall.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t)
_libc.fstatfs.argtypes = (ctypes.c_int, ctypes.c_void_p)


def _how(flags: int) -> _OpenHow:
    return _OpenHow(flags, 0, _BENEATH | _NO_SYMLINKS | _NO_XDEV | _NO_MAGICLINKS)


_HOWS: dict[int, _OpenHow] = {}


def open_beneath(directory_fd: int, path: str, flags: int) -> int:
    """openat2 that stays below `directory_fd`, on its mount, and follows no link; OSError as the kernel says it."""
    how = _HOWS.get(flags) or _HOWS.setdefault(flags, _how(flags | os.O_CLOEXEC))
    while True:
        fd: int = _libc.syscall(_SYS_OPENAT2, directory_fd, os.fsencode(path), ctypes.byref(how), ctypes.sizeof(how))
        if fd >= 0:
            return fd
        number = ctypes.get_errno()
        if number != errno.EINTR:
            raise OSError(number, os.strerror(number))


@functools.lru_cache(maxsize=2048)
def components(path: str) -> tuple[str, ...]:
    """`/a/b` → (a, b); refuses whatever could leave the mount, or is no name that a cgroup can have.

    Kept, because the same path is opened in every hierarchy, many times in a turn.
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
            raise _refused(path, f"{name!r} is no name of a cgroup")
        if _CONTROL.search(name):
            raise _refused(path, "a cgroup's name has no newline, NUL or other control character")
        if len(os.fsencode(name)) > _NAME_BYTES:
            raise _refused(path, f"a cgroup's name has at most {_NAME_BYTES} bytes", errno.ENAMETOOLONG)
    return names


def _refused(path: str, detail: str, number: int = errno.EINVAL) -> CgroupError:
    return CgroupError("refuse", path, "", number, detail)


def check_text(path: str, file: str, text: str) -> None:
    """Only the forms that control files take: nothing else is ever written."""
    if not _FILE.fullmatch(file):
        raise CgroupError("refuse", f"{path}/{file}", text, errno.EINVAL, "no name of a control file")
    if not _TEXT.fullmatch(text) and (text or file not in _MAY_BE_EMPTY):
        raise CgroupError("refuse", f"{path}/{file}", text[:80], errno.EINVAL, "no text that control files take")


class CgroupMount:
    """A mounted cgroup hierarchy. Raises where the mount point is missing or is no cgroup file system."""

    def __init__(self, mount_point: str, kind: Magic, root: str = "/") -> None:
        """`root` is the cgroup that is mounted there, as mountinfo has it: in a container it may not be the top."""
        self.mount_point = mount_point
        self.root = root
        self.kind: Magic = kind
        try:
            self.fd = os.open(mount_point, _DIRECTORY | os.O_NOFOLLOW)
        except OSError as error:
            raise CgroupError("open", mount_point, "", error.errno or 0) from error
        if (found := _file_system(self.fd)) != _MAGIC[kind]:
            os.close(self.fd)
            self.fd = -1
            detail = f"file system {found:#x} is not {kind} ({_MAGIC[kind]:#x})"
            raise CgroupError("open", mount_point, "", errno.EXDEV, detail)

    def directory(self, path: str) -> Directory:
        """CgroupGone where there is none; CgroupError where a link or another mount is in the way."""
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

    def make(self, path: str) -> None:
        *above, name = components(path) or _top(path, "make")
        with self.directory("/" + "/".join(above)) as parent:
            try:
                os.mkdir(name, 0o755, dir_fd=parent.fd)
            except OSError as error:
                raise _failed("make", self.shown(path), "", error, gone=error.errno == errno.ENOENT) from error

    def remove(self, path: str) -> None:
        *above, name = components(path) or _top(path, "remove")
        with self.directory("/" + "/".join(above)) as parent:
            try:
                os.rmdir(name, dir_fd=parent.fd)
            except OSError as error:
                raise _failed("remove", self.shown(path), "", error, gone=error.errno == errno.ENOENT) from error

    def below(self, proc_path: str) -> str | None:
        """A path of /proc/PID/cgroup as it is called from this mount; None for what is not below it."""
        return below_mount(proc_path, self.root)

    def shown(self, path: str) -> str:
        return self.mount_point if path == "/" else self.mount_point + path

    def close(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        if getattr(self, "fd", -1) >= 0:
            self.close()


class Directory:
    """One open cgroup. Close it, or use it in a `with`."""

    __slots__ = ("fd", "path")

    def __init__(self, fd: int, path: str) -> None:
        self.fd = fd
        self.path = path  # with its mount point: for errors only

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _t: type[BaseException] | None, _e: BaseException | None, _tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    @property
    def inode(self) -> int:
        return os.fstat(self.fd).st_ino

    def alive(self) -> bool:
        """Every cgroup has cgroup.procs; a removed one has no files any more."""
        return self.has("cgroup.procs")

    def has(self, file: str) -> bool:
        """Whether the file is there, also one that cannot be read."""
        try:
            os.close(open_beneath(self.fd, file, os.O_PATH))
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENODEV):
                return False
            raise _failed("open", f"{self.path}/{file}", "", error) from error
        return True

    def open(self, file: str, flags: int = os.O_RDONLY) -> int:
        """An fd of one control file, for whoever keeps it; the caller closes it."""
        if not _FILE.fullmatch(file):
            raise CgroupError("refuse", f"{self.path}/{file}", "", errno.EINVAL, "no name of a control file")
        try:
            return open_beneath(self.fd, file, flags)
        except OSError as error:
            gone = error.errno == errno.ENODEV or (error.errno == errno.ENOENT and not self.alive())
            raise _failed("open", f"{self.path}/{file}", "", error, gone=gone) from error

    def read(self, file: str) -> str:
        """The whole text, stripped."""
        fd = self.open(file)
        try:
            return _all(fd).decode("utf-8", "replace").strip()
        except OSError as error:
            raise _failed("read", f"{self.path}/{file}", "", error, gone=error.errno == errno.ENODEV) from error
        finally:
            os.close(fd)

    def read_if_there(self, file: str) -> str | None:
        """None for a file that this kernel's cgroups, or this one, do not have; CgroupGone for a cgroup that went."""
        try:
            return self.read(file)
        except CgroupGoneError:
            raise
        except CgroupError as error:
            # EOPNOTSUPP: the file is there but its feature is switched off (PSI with psi=0).
            if error.errno in (errno.ENOENT, errno.EOPNOTSUPP):
                return None
            raise

    def write(self, file: str, text: str) -> None:
        """One write of one checked text."""
        check_text(self.path, file, text)
        fd = self.open(file, os.O_WRONLY)
        try:
            write_once(fd, f"{self.path}/{file}", text)
        finally:
            os.close(fd)

    def children(self) -> list[str]:
        """Names of the directories in it, sorted."""
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


class KeptFile:
    """A control file held open, because it is read at every tick: one `pread`, and no path is walked.

    It belongs to the cgroup it was opened in: `CgroupGoneError` once that is removed, whoever has its name by then.
    Only for files that the kernel gives in one piece (not the lists of pids).
    """

    __slots__ = ("fd", "path")

    def __init__(self, directory: Directory, file: str) -> None:
        self.path = f"{directory.path}/{file}"
        self.fd = directory.open(file)

    def read(self) -> bytes:
        try:
            return os.pread(self.fd, _CHUNK, 0)
        except OSError as error:
            raise _failed("read", self.path, "", error, gone=error.errno == errno.ENODEV) from error

    def close(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)


def write_once(fd: int, path: str, text: str) -> None:
    """The text in one write to an fd that was opened here; a PSI trigger ends in NUL, as its document shows."""
    check_text(os.path.dirname(path), os.path.basename(path), text)
    data = (text or "\n").encode("ascii")  # an empty write would not reach the kernel's file at all
    if text.startswith(("some ", "full ")):
        data += b"\0"
    try:
        written = os.write(fd, data)
    except OSError as error:
        raise _failed("write", path, text, error, gone=error.errno == errno.ENODEV) from error
    if written != len(data):
        raise CgroupError("write", path, text, errno.EIO, f"only {written} of {len(data)} bytes were taken")


def _failed(op: str, path: str, data: str, error: OSError, *, gone: bool = False) -> CgroupError:
    number = error.errno or 0
    if gone:
        return CgroupGoneError(op, path, data, number)
    details = {
        errno.ELOOP: "a symbolic link is in the way: cgroup file systems have none",
        errno.EXDEV: "another file system is mounted there",
        errno.ENOSYS: "this kernel has no openat2: Linux 5.6 or newer is needed",
    }
    return CgroupError(op, path, data, number, details.get(number, "") if op == "open" else "")


def _top(path: str, op: str) -> list[str]:
    raise CgroupError(op, path, "", errno.EINVAL, "the top of a hierarchy is neither made nor removed")


def _all(fd: int) -> bytes:
    """Lists of pids come in pieces of a page; the end is an empty one."""
    chunks = []
    while chunk := os.read(fd, _CHUNK):
        chunks.append(chunk)
    return b"".join(chunks)


def _file_system(fd: int) -> int:
    result = ctypes.create_string_buffer(256)  # struct statfs is at most 120 bytes and starts with its type
    if _libc.fstatfs(fd, result):
        number = ctypes.get_errno()
        raise CgroupError("fstatfs", f"/proc/self/fd/{fd}", "", number)
    return ctypes.c_long.from_buffer(result).value & 0xFFFFFFFF
