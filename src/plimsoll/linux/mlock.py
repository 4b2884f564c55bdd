"""The memory of this process: locked, and returned to the kernel. Stdlib only (the supervisor imports it)."""

from __future__ import annotations

from plimsoll.linux.capabilities import has_capability
from plimsoll.linux.libc import call

_CURRENT, _FUTURE, _ON_FAULT = 1, 2, 4  # MCL_*
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
LARGE_BYTES = 128 << 10


def lock_memory() -> bool:
    """Keep used pages resident: a process that handles memory pressure must not wait for its own code to be paged in.

    False where it is not allowed: without CAP_IPC_LOCK the kernel limits locked memory, and a later page would fail.
    """
    if not has_capability("IPC_LOCK"):
        return False
    try:
        call("mlockall", _CURRENT | _FUTURE | _ON_FAULT)
    except OSError:  # not supported by the kernel, or forbidden by a sandbox
        return False
    return True


def return_large_blocks() -> bool:
    """Blocks of at least 128 KiB, such as the buffer of a TLS connection, go back to the kernel when they are freed.

    By default glibc raises that limit to the size of the first such block that is freed. Later ones then come from the
    heap, and a burst of connections leaves holes there, which locked memory (mlockall) can never give back.
    False where the C library has no such setting.
    """
    try:
        return bool(call("mallopt", _M_MMAP_THRESHOLD, LARGE_BYTES) and call("mallopt", _M_TRIM_THRESHOLD, LARGE_BYTES))
    except AttributeError:  # musl
        return False
