"""Lock the memory of this process (mlockall). Stdlib only (the supervisor imports it)."""

from __future__ import annotations

from plimsoll.linux.capabilities import has_capability
from plimsoll.linux.libc import call

_CURRENT, _FUTURE, _ON_FAULT = 1, 2, 4  # MCL_*


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
