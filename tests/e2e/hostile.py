"""What a hostile program tries from inside a container, as its root. Runs there, on the standard library alone.

It is given JSON: files that it must not read, sockets that it must not reach, marks of other pods' processes. It prints
one line per attempt that has gone further than it should, and `done` at the end.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import socket
import stat
import sys

LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNS, CLONE_NEWUSER, MS_BIND, MS_REMOUNT, MS_RDONLY = 0x20000, 0x10000000, 0x1000, 0x20, 0x1
PTRACE_ATTACH, SYS_BPF, SYS_INIT_MODULE = 16, 321, 175


def broke(what: str, detail: object = "") -> None:
    print(f"BROKE {what} {detail}", flush=True)


def can_read(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(1) != b""  # what is covered is empty
    except OSError:
        return False


def reads(targets: list[str]) -> None:
    for path in targets:
        for way in (path, f"/proc/1/root{path}", f"/proc/self/root{path}", f"/proc/self/cwd/../../../..{path}"):
            if can_read(way):
                broke("read", way)
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            for path in targets:
                if can_read(f"/proc/{entry}/root{path}"):
                    broke("read through a process", f"{entry} {path}")


def sockets(paths: list[str]) -> None:
    for path in paths:
        with socket.socket(socket.AF_UNIX) as tried:
            try:
                tried.connect(path)
                broke("connected", path)
            except OSError:
                pass
    with open("/proc/net/unix") as file:
        for line in file.read().splitlines()[1:]:
            broke("a socket of the host is seen", line)


def cgroup_files() -> None:
    for top, _, files in os.walk("/sys/fs/cgroup"):
        for name in files:
            path = os.path.join(top, name)
            try:
                os.close(os.open(path, os.O_WRONLY))
                broke("opened for writing", path)
            except OSError:
                pass
        try:
            os.mkdir(os.path.join(top, "mine"))
            broke("made a cgroup", top)
        except OSError:
            pass


def mounts() -> None:
    os.makedirs("/tmp/m", exist_ok=True)
    for kind, flags in (("tmpfs", 0), ("proc", 0), ("cgroup2", 0), ("sysfs", 0), ("overlay", 0)):
        if LIBC.mount(b"x", b"/tmp/m", kind.encode(), flags, None) == 0:
            broke("mounted", kind)
    if LIBC.mount(b"/", b"/tmp/m", None, MS_BIND, None) == 0:
        broke("bound", "/")
    if LIBC.mount(b"", b"/proc/sys", None, MS_BIND | MS_REMOUNT, None) == 0:
        broke("remounted", "/proc/sys")
    if LIBC.umount2(b"/proc/sys", 2) == 0:
        broke("unmounted", "/proc/sys")
    for what in (CLONE_NEWNS,):
        if LIBC.unshare(what) == 0:
            broke("unshared", hex(what))
    if LIBC.pivot_root(b"/tmp/m", b"/tmp/m") == 0 if hasattr(LIBC, "pivot_root") else False:
        broke("pivoted")


def in_new_user_namespace(targets: list[str]) -> None:
    """A user namespace of one's own gives capabilities in it: they must not reach what was hidden."""
    child = os.fork()
    if child == 0:
        if LIBC.unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0:
            for path in ("/root", "/tmp", "/var/lib", "/proc/sys", "/sys/fs/cgroup", "/"):
                if LIBC.umount2(path.encode(), 2) == 0:
                    broke("unmounted a cover in a user namespace", path)
            reads(targets)
            cgroup_files()
        os._exit(0)
    os.waitpid(child, 0)


def writes() -> None:
    for path in (
        "/proc/sys/kernel/core_pattern",
        "/proc/sys/vm/drop_caches",
        "/proc/sysrq-trigger",
        "/proc/sys/kernel/hostname",
        "/sys/kernel/mm/transparent_hugepage/enabled",
        "/sys/power/state",
        "/proc/kcore",
        "/dev/kmsg",
        "/dev/mem",
    ):
        try:
            os.close(os.open(path, os.O_WRONLY))
            broke("opened for writing", path)
        except OSError:
            pass


def devices(disks: list[tuple[int, int]]) -> None:
    """A device node can be made (CAP_MKNOD is in the default set) and must not open."""
    for place in ("/tmp", "/own", "/dev", "/dev/shm"):
        for major, minor in disks:
            path = f"{place}/disk"
            try:
                os.mknod(path, stat.S_IFBLK | 0o600, os.makedev(major, minor))
            except OSError:
                continue
            if can_read(path):
                broke("read a disk", f"{place} {major}:{minor}")
            os.unlink(path)
        try:
            os.mknod(f"{place}/mem", stat.S_IFCHR | 0o600, os.makedev(1, 1))
        except OSError:
            continue
        if can_read(f"{place}/mem"):
            broke("opened memory", place)
        os.unlink(f"{place}/mem")
    allowed = {"null", "zero", "full", "random", "urandom", "tty", "ptmx", "console"}
    for name in os.listdir("/dev"):
        mode = os.lstat(f"/dev/{name}").st_mode
        if (stat.S_ISBLK(mode) or stat.S_ISCHR(mode)) and name not in allowed:
            broke("a device", name)


def processes(marks: list[str]) -> None:
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/cmdline", "rb") as file:
                words = file.read().decode(errors="replace")
        except OSError:
            continue
        for mark in marks if "What a hostile program tries" not in words else ():
            if mark in words:
                broke("sees a process of another", f"{entry} {words[:80]}")
    for pid in range(2, 400):
        if pid != os.getpid() and not os.path.exists(f"/proc/{pid}") and LIBC.ptrace(PTRACE_ATTACH, pid, 0, 0) == 0:
            broke("traced", pid)


def calls() -> None:
    handle = ctypes.create_string_buffer(128)
    LIBC.open_by_handle_at.restype = ctypes.c_int
    if LIBC.open_by_handle_at(os.open("/", os.O_RDONLY), handle, 0) >= 0 or ctypes.get_errno() == errno.ESTALE:
        broke("open_by_handle_at")
    ctypes.set_errno(0)
    if LIBC.syscall(SYS_INIT_MODULE, b"", 0, b"") == 0 or ctypes.get_errno() not in (errno.EPERM, errno.ENOSYS):
        broke("init_module", ctypes.get_errno())
    if LIBC.sethostname(b"mine", 4) == 0:
        broke("sethostname")
    if LIBC.settimeofday(None, ctypes.create_string_buffer(8)) == 0:
        broke("settimeofday")
    if LIBC.reboot(0) == 0:
        broke("reboot")


def leaves_a_chroot(targets: list[str]) -> None:
    """The old way out: it leads to the container's own root."""
    child = os.fork()
    if child == 0:
        os.makedirs("/tmp/jail", exist_ok=True)
        try:
            os.chroot("/tmp/jail")
        except OSError:
            os._exit(0)
        for _ in range(40):
            os.chdir("..")
        os.chroot(".")
        reads(targets)
        os._exit(0)
    os.waitpid(child, 0)


def leftover_descriptors() -> None:
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
        if int(name) > 2 and not target.startswith(("/proc/", "pipe:")):
            broke("was given a descriptor", f"{name} {target}")


def main() -> None:
    leftover_descriptors()
    given = json.loads(sys.argv[1])
    reads(given["files"])
    sockets(given["sockets"])
    cgroup_files()
    mounts()
    in_new_user_namespace(given["files"])
    writes()
    devices(given["disks"])
    processes(given["marks"])
    calls()
    leaves_a_chroot(given["files"])
    print("done", flush=True)


if __name__ == "__main__":
    main()
