"""This process's own memory. Stdlib only: the runtime's supervisor uses it too."""

from __future__ import annotations

from plimsoll.linux.capabilities import has_capability
from plimsoll.linux.libc import call

_CURRENT, _FUTURE, _ON_FAULT = 1, 2, 4  # MCL_*


def keep_in_memory() -> bool:
    """Pages that were used once stay: who must act when memory runs short cannot wait for its own code to be read.

    False where it may not. Without the capability the kernel would count locked pages, and refuse some later one.
    """
    if not has_capability("IPC_LOCK"):
        return False
    try:
        call("mlockall", _CURRENT | _FUTURE | _ON_FAULT)
    except OSError:  # a kernel without it, or a sandbox that forbids it: things go on as they would have
        return False
    return True
