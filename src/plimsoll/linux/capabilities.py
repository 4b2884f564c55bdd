"""Linux capabilities: names, sets, and dropping them. Stdlib only (the supervisor imports it).

Kubernetes spells a capability without `CAP_`. containerd grants a container fourteen of them; `add` adds, `drop`
removes, ALL means all, and a capability that is dropped by name stays dropped.
"""

from __future__ import annotations

import ctypes
import errno
from collections.abc import Iterable

from plimsoll.linux.libc import call

NAMES = (
    "CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP",
    "LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "IPC_OWNER",
    "SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT", "SYS_ADMIN", "SYS_BOOT", "SYS_NICE",
    "SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD", "LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP",
    "MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG", "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ", "PERFMON", "BPF",
    "CHECKPOINT_RESTORE",
)  # fmt: skip
NUMBERS = {name: number for number, name in enumerate(NAMES)}

# containerd, oci/spec.go: defaultUnixCaps.
CONTAINERD_DEFAULT = frozenset((
    "CHOWN", "DAC_OVERRIDE", "FSETID", "FOWNER", "MKNOD", "NET_RAW", "SETGID", "SETUID", "SETFCAP", "SETPCAP",
    "NET_BIND_SERVICE", "SYS_CHROOT", "KILL", "AUDIT_WRITE",
))  # fmt: skip

_VERSION_3 = 0x20080522
_PR_CAPBSET_DROP, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 24, 47, 4


class UnknownCapabilityError(ValueError):
    """Linux has no capability of that name."""


def granted(add: Iterable[str], drop: Iterable[str], *, privileged: bool = False) -> frozenset[str]:
    """The capabilities of a container; raises UnknownCapabilityError."""
    added, dropped = frozenset(map(plain, add)), frozenset(map(plain, drop))
    for name in (added | dropped) - {"ALL"}:
        if name not in NUMBERS:
            raise UnknownCapabilityError(f"unknown capability {name!r}")
    if privileged:
        return frozenset(NAMES)
    base: frozenset[str] = CONTAINERD_DEFAULT
    if "ALL" in added:
        base = frozenset(NAMES)
    if "ALL" in dropped:
        base = frozenset()
    return (base | (added - {"ALL"})) - dropped


def plain(name: str) -> str:
    return name.upper().removeprefix("CAP_")


def mask(names: Iterable[str]) -> int:
    return sum(1 << NUMBERS[name] for name in names)


def limit_bounding_set(keep: int) -> None:
    """This process and its descendants can never have other capabilities than these; needs CAP_SETPCAP."""
    call("prctl", _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    for number in range(64):
        if keep >> number & 1:
            continue
        try:
            call("prctl", _PR_CAPBSET_DROP, number, 0, 0, 0)
        except OSError as error:
            if error.errno == errno.EINVAL:  # the kernel has no capability of this number or above
                return
            raise


def set_own(effective: int, permitted: int, inheritable: int = 0) -> None:
    """Each set is limited to the process's permitted set, as the kernel refuses more."""
    _, own_permitted = _own()
    permitted &= own_permitted
    effective &= permitted
    header = (ctypes.c_uint32 * 2)(_VERSION_3, 0)
    low, high = 0xFFFFFFFF, 32
    data = (ctypes.c_uint32 * 6)(
        effective & low, permitted & low, inheritable & low, effective >> high, permitted >> high, inheritable >> high
    )
    call("capset", header, data)


def has_capability(name: str) -> bool:
    """Whether this process has it in effect."""
    effective, _ = _own()
    return bool(effective >> NUMBERS[name] & 1)


def _own() -> tuple[int, int]:
    """The effective and the permitted set."""
    header = (ctypes.c_uint32 * 2)(_VERSION_3, 0)
    data = (ctypes.c_uint32 * 6)()
    call("capget", header, data)
    return int(data[0]) | int(data[3]) << 32, int(data[1]) | int(data[4]) << 32
