"""A child that is born in a cgroup of v2, rather than moved there. Stdlib only, for a process of one thread.

Moving a process into a cgroup waits until every CPU has passed a quiet moment (some 10 ms, more on a busy machine);
clone3 with CLONE_INTO_CGROUP does not. Python's own preparations for a child are left out, which is good enough for one
that soon becomes another program and starts no thread before.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import struct

_SYS_CLONE3, _CLONE_INTO_CGROUP = 435, 0x200000000
# Refused by an old kernel, a filter of system calls, or a cgroup that takes nobody this way: then it is moved.
_NOT_THIS_WAY = (errno.ENOSYS, errno.EPERM, errno.EINVAL, errno.E2BIG, errno.EBUSY, errno.EOPNOTSUPP, errno.EACCES)
# PyDLL: the interpreter's lock stays held, as there is nobody in the child who could give it back.
_libc = ctypes.PyDLL(None, use_errno=True)


def is_unified(directory: int) -> bool:
    """Whether an open cgroup directory is one of v2: it has no `tasks`."""
    return not os.access("tasks", os.F_OK, dir_fd=directory)


def fork_into(directory: int) -> int | None:
    """As `os.fork`, with the child in that cgroup; None where this cannot be had, and there is no child."""
    # flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size, cgroup
    arguments = struct.pack("11Q", _CLONE_INTO_CGROUP, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, 0, 0, directory)
    pid = int(_libc.syscall(ctypes.c_long(_SYS_CLONE3), arguments, ctypes.c_long(len(arguments))))
    if pid >= 0:
        return pid
    if (number := ctypes.get_errno()) in _NOT_THIS_WAY:
        return None
    raise OSError(number, f"clone3: {os.strerror(number)}")
