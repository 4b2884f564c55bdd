"""Namespaces and related process attributes. No policy; stdlib only (the supervisor imports it).

`unshare(PID)` does not move the process: it sets the namespace of its next children, and `setns` to its own pid
namespace reverts that. So a plain fork in between creates PID 1 of a new namespace, without a raw clone.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import struct

from plimsoll.linux.libc import call, system_call

MOUNT, CGROUP, UTS, IPC = 0x00020000, 0x02000000, 0x04000000, 0x08000000
USER, PID, NET = 0x10000000, 0x20000000, 0x40000000
FILES = {MOUNT: "mnt", CGROUP: "cgroup", UTS: "uts", IPC: "ipc", USER: "user", PID: "pid", NET: "net"}

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NAME = 1, 4, 15
_PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 36, 38
_KEYCTL = {"x86_64": 250, "aarch64": 219, "riscv64": 219, "loongarch64": 219, "ppc64le": 271, "s390x": 280}
_KEYCTL_JOIN_SESSION_KEYRING = 1
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 0x1


def unshare(flags: int) -> None:
    call("unshare", flags)


def setns(fd: int, kind: int) -> None:
    call("setns", fd, kind)


def open_namespace(kind: int, pid: int | None = None) -> int:
    """An fd of the namespace of a process (without a pid, of this one), which keeps it alive and can be entered."""
    return os.open(f"/proc/{'self' if pid is None else pid}/ns/{FILES[kind]}", os.O_RDONLY | os.O_CLOEXEC)


def loopback_up() -> None:
    """Bring up lo in the current network namespace; it is down in a new one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("16sh14x", b"lo", 0)
        (flags,) = struct.unpack_from("h", fcntl.ioctl(control, _SIOCGIFFLAGS, request), 16)
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | _IFF_UP))


def become_subreaper() -> None:
    """Orphaned descendants become children of this process, not of init."""
    call("prctl", _PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def new_session_keyring() -> None:
    """Children must not see the caller's session keyring. No error on kernels without keyrings."""
    number = _KEYCTL.get(os.uname().machine)
    if number is not None:
        try:
            system_call("keyctl", number, _KEYCTL_JOIN_SESSION_KEYRING, None)
        except OSError as error:
            if error.errno not in (errno.ENOSYS, errno.EDQUOT, errno.EPERM):
                raise


def die_with_parent(signal_number: int) -> None:
    """The kernel resets this when credentials change, so call it after setuid."""
    call("prctl", _PR_SET_PDEATHSIG, int(signal_number), 0, 0, 0)


def no_new_privileges() -> None:
    call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def set_dumpable(allowed: bool) -> None:
    """Whether processes of the same user may inspect this one (ptrace, /proc/PID/root, fd and mem)."""
    call("prctl", _PR_SET_DUMPABLE, int(allowed), 0, 0, 0)


def name_process(name: str) -> None:
    """The name in `ps` and /proc/PID/comm, cut to 15 bytes."""
    call("prctl", _PR_SET_NAME, name.encode()[:15], 0, 0, 0)
