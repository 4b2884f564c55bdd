"""Fork a child directly into a v2 cgroup (clone3 with CLONE_INTO_CGROUP). Stdlib only, for single-threaded processes.

Moving a process into a cgroup waits for an RCU grace period (about 10 ms, more on a busy machine); CLONE_INTO_CGROUP
does not. It bypasses Python's fork hooks, which is safe for a child that soon calls execve and starts no thread before.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import struct

_SYS_CLONE3, _CLONE_INTO_CGROUP = 435, 0x200000000
# Refused by an old kernel, by seccomp, or by the cgroup: the caller then forks and moves the child.
_UNSUPPORTED = (errno.ENOSYS, errno.EPERM, errno.EINVAL, errno.E2BIG, errno.EBUSY, errno.EOPNOTSUPP, errno.EACCES)
# PyDLL keeps the GIL: in the child no other thread could release it.
_libc = ctypes.PyDLL(None, use_errno=True)


def is_unified(directory: int) -> bool:
    """Whether an open cgroup directory is of v2, where there is no `tasks` file."""
    return not os.access("tasks", os.F_OK, dir_fd=directory)


def fork_into(directory: int) -> int | None:
    """Like `os.fork`, with the child in that cgroup; None, without a child, where this is not supported."""
    # flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size, cgroup
    arguments = struct.pack("11Q", _CLONE_INTO_CGROUP, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, 0, 0, directory)
    pid = int(_libc.syscall(ctypes.c_long(_SYS_CLONE3), arguments, ctypes.c_long(len(arguments))))
    if pid >= 0:
        return pid
    if (number := ctypes.get_errno()) in _UNSUPPORTED:
        return None
    raise OSError(number, f"clone3: {os.strerror(number)}")
