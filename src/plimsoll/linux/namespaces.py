"""Namespaces and the process attributes that go with them. No policy; stdlib only (the supervisor imports it).

`unshare(PID)` moves nobody: it decides where the *next* children are born, and `setns` of the own pid namespace takes
that back. So a plain fork in between makes PID 1 of a new namespace, with no raw clone under Python's feet.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import struct

from plimsoll.linux.libc import call, system_call

MOUNT, CGROUP, UTS, IPC, USER, PID, NET = (
    0x00020000,
    0x02000000,
    0x04000000,
    0x08000000,
    0x10000000,
    0x20000000,
    0x40000000,
)
FILES = {MOUNT: "mnt", CGROUP: "cgroup", UTS: "uts", IPC: "ipc", USER: "user", PID: "pid", NET: "net"}

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_KEEPCAPS, _PR_SET_NAME = 1, 4, 8, 15
_PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 36, 38
_KEYCTL = {"x86_64": 250, "aarch64": 219, "riscv64": 219, "loongarch64": 219, "ppc64le": 271, "s390x": 280}
_KEYCTL_JOIN_SESSION_KEYRING = 1
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 0x1


def unshare(flags: int) -> None:
    call("unshare", flags)


def setns(fd: int, kind: int) -> None:
    call("setns", fd, kind)


def open_namespace(kind: int, pid: int | None = None) -> int:
    """An fd that keeps the namespace of a process (our own without a pid) alive, and can be entered."""
    who = "self" if pid is None else str(pid)
    return os.open(f"/proc/{who}/ns/{FILES[kind]}", os.O_RDONLY | os.O_CLOEXEC)


def loopback_up() -> None:
    """In the network namespace we are in; a new one has its loopback down."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        request = struct.pack("16sh14x", b"lo", 0)
        (flags,) = struct.unpack_from("h", fcntl.ioctl(asking, _SIOCGIFFLAGS, request), 16)
        fcntl.ioctl(asking, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | _IFF_UP))


def become_subreaper() -> None:
    """Orphans among our descendants become our children, not those of init."""
    call("prctl", _PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def new_session_keyring() -> None:
    """Keys of whoever started us are not for our children. Kernels without keyrings have nothing to hide."""
    number = _KEYCTL.get(os.uname().machine)
    if number is not None:
        try:
            system_call("keyctl", number, _KEYCTL_JOIN_SESSION_KEYRING, None)
        except OSError as error:
            if error.errno not in (errno.ENOSYS, errno.EDQUOT, errno.EPERM):
                raise


def die_with_parent(signal_number: int) -> None:
    """The kernel forgets this whenever credentials change: to be asked for after setuid."""
    call("prctl", _PR_SET_PDEATHSIG, int(signal_number), 0, 0, 0)


def no_new_privileges() -> None:
    call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def set_dumpable(allowed: bool) -> None:
    """Whether processes of the same user may look into this one (ptrace, /proc/PID/root, fd and mem)."""
    call("prctl", _PR_SET_DUMPABLE, int(allowed), 0, 0, 0)


def name_process(name: str) -> None:
    """As `ps` and /proc/PID/comm show it, cut to 15 bytes."""
    call("prctl", _PR_SET_NAME, name.encode()[:15], 0, 0, 0)
