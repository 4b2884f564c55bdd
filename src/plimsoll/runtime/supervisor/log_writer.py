"""Container output in the CRI log format: `<RFC3339Nano> stdout F the line`.

A line longer than 16 KiB is cut into parts marked P, the last one F; output that ends without a newline is marked P
too, as containerd does. When the file has reached its maximum size it is renamed to `<file>.<time>`, as the kubelet
names rotated logs, and the oldest are removed until only so many files are left, the current one included.
"""

from __future__ import annotations

import os
import time

PART_BYTES = 16 << 10
MAX_BYTES = 10 << 20
MAX_FILES = 5
_READ_BYTES = 64 << 10
# Of the supervisor's time: what the output of containers may take in the long run, and one container at once.
SHARE, BURST_S = 0.2, 0.1


class UnsafeLogPathError(ValueError):
    """A log path that leaves its directory, or that is not where logs are."""


def log_place(directory: str, relative: str) -> tuple[str, list[str], str]:
    """The trusted directory, the folders below it, and the file's name."""
    parts = relative.split("/")
    if not os.path.isabs(directory) or any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise UnsafeLogPathError(
            f"log path {relative!r} below {directory!r}: plain names below an absolute path are allowed"
        )
    return directory, parts[:-1], parts[-1]


def open_folder(directory: str, folders: list[str]) -> int:
    """Directories below it are created where they are missing, and are never links."""
    os.makedirs(directory, mode=0o755, exist_ok=True)
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    fd = os.open(directory, flags)
    for folder in folders:
        try:
            try:
                os.mkdir(folder, 0o755, dir_fd=fd)
            except FileExistsError:
                pass
            below = os.open(folder, flags | os.O_NOFOLLOW, dir_fd=fd)
        finally:
            os.close(fd)
        fd = below
    return fd


class LogFile:
    """One log with its rotated files: at most `max_files` times `max_bytes`."""

    __slots__ = ("_fd", "_place", "_size", "error", "max_bytes", "max_files")

    def __init__(self, directory: str, relative: str, max_bytes: int = MAX_BYTES, max_files: int = MAX_FILES) -> None:
        self._place = log_place(directory, relative)
        self.max_bytes, self.max_files = max_bytes, max_files
        self.error = ""
        self._fd, self._size = -1, 0
        self.reopen()

    def reopen(self) -> None:
        directory, folders, name = self._place
        folder = open_folder(directory, folders)
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
            fd = os.open(name, flags, 0o640, dir_fd=folder)
        finally:
            os.close(folder)
        self.close()
        self._fd, self._size = fd, os.fstat(fd).st_size

    def write_lines(self, lines: list[bytes]) -> None:
        """As few writes as possible without exceeding the maximum size by more than one line."""
        begin, size = 0, self._size
        for number, line in enumerate(lines, 1):
            size += len(line)
            if size >= self.max_bytes > 0:
                self.write(b"".join(lines[begin:number]))
                begin, size = number, self._size
        if begin < len(lines):
            self.write(b"".join(lines[begin:]))

    def write(self, data: bytes) -> None:
        """A full disk loses output, not the container: `error` says so until a write succeeds again."""
        if self._fd < 0:
            return
        try:
            while data:
                done = os.write(self._fd, data)
                self._size += done
                data = data[done:]
            self.error = ""
        except OSError as error:
            self.error = f"log output is lost: {error.strerror}"
        if self._size >= self.max_bytes > 0:
            self._rotate()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _rotate(self) -> None:
        directory, folders, name = self._place
        try:
            folder = open_folder(directory, folders)
        except OSError as error:
            self.error = f"the log can't be rotated: {error.strerror}"
            return
        try:
            there = sorted(entry for entry in os.listdir(folder) if entry.startswith(f"{name}."))
            fresh = rotated_name(name, time.gmtime(), there)
            os.rename(name, fresh, src_dir_fd=folder, dst_dir_fd=folder)
            for old in [*there, fresh][: max(0, len(there) + 2 - self.max_files)]:
                os.unlink(old, dir_fd=folder)
        except OSError as error:
            self.error = f"the log can't be rotated: {error.strerror}"
        finally:
            os.close(folder)
        try:
            self.reopen()
        except OSError as error:
            self.error = f"log output is lost: {error.strerror}"
            self.close()


def rotated_name(name: str, now: time.struct_time, there: list[str]) -> str:
    """`0.log.20260102-150405`; several in one second get a suffix that sorts after it."""
    stamp = time.strftime(f"{name}.%Y%m%d-%H%M%S", now)
    taken = [entry.removeprefix(stamp).lstrip(".") for entry in there if entry.startswith(stamp)]
    if not taken:
        return stamp
    return f"{stamp}.{max(int(suffix) if suffix.isdigit() else 0 for suffix in taken) + 1:03d}"


class LogPace:
    """Limits how much of the supervisor's time the output of one container takes.

    After a burst, its pipes are not read until it has waited for what it has used. They fill, and the container blocks
    in its own write: a flood costs the container that writes it, and not the logs and commands of its neighbours. Short
    lines cost most: about 30 ms for 64 KiB of `y`, against 0.3 ms for lines of 100 bytes.
    """

    __slots__ = ("_credit_s", "_last_s")

    def __init__(self, now_s: float) -> None:
        self._credit_s, self._last_s = BURST_S, now_s

    def pause_s(self, used_s: float, now_s: float, sharers: int) -> float:
        """How long to wait after a portion that took `used_s`. `sharers`: containers that have to wait at this time,
        with this one; together they get `SHARE`."""
        refill = SHARE / max(1, sharers)
        earned_s = (now_s - self._last_s) * refill
        self._credit_s, self._last_s = min(BURST_S, self._credit_s + earned_s) - used_s, now_s
        return max(0.0, -self._credit_s / refill)


class LogStream:
    """stdout or stderr of a container: cut into lines, stamped, written to the file."""

    __slots__ = ("_file", "_prefix", "_rest", "fd")

    def __init__(self, fd: int, name: str, file: LogFile) -> None:
        self.fd, self._file = fd, file
        self._prefix = f" {name} ".encode()
        self._rest = b""

    def read(self) -> bool:
        """Read one portion; False at the end. A pty whose other side is closed ends with EIO."""
        try:
            data = os.read(self.fd, _READ_BYTES)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if data:
            self.take(data, time.time_ns())
        return bool(data)

    def drain(self) -> None:
        """Read what is left in the pipe after its writers have ended, then close it."""
        while True:
            try:
                data = os.read(self.fd, _READ_BYTES)
            except OSError:
                break
            if not data:
                break
            self.take(data, time.time_ns())
        self.close()

    def close(self) -> None:
        if self._rest:
            self._file.write(stamp(time.time_ns()) + self._prefix + b"P " + self._rest + b"\n")
            self._rest = b""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def take(self, data: bytes, now_ns: int) -> None:
        lines, self._rest = cut(self._rest + data)
        if lines:
            full = stamp(now_ns) + self._prefix
            self._file.write_lines([full + tag + line + b"\n" for tag, line in lines])


def cut(data: bytes) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """(`F ` or `P `, text) for every complete line or full part, and the rest."""
    parts: list[tuple[bytes, bytes]] = []
    *complete, rest = data.split(b"\n")
    for line in complete:
        while len(line) > PART_BYTES:
            parts.append((b"P ", line[:PART_BYTES]))
            line = line[PART_BYTES:]
        parts.append((b"F ", line))
    while len(rest) >= PART_BYTES:
        parts.append((b"P ", rest[:PART_BYTES]))
        rest = rest[PART_BYTES:]
    return parts, rest


def stamp(now_ns: int) -> bytes:
    seconds, nanoseconds = divmod(now_ns, 1_000_000_000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)).encode() + b".%09dZ" % nanoseconds
