"""A detached placeholder process that keeps an fd or a scope alive after its parent has ended.

It inherits only the fds that it is passed (not, say, a pipe to a pager), and runs in its own session and in `/`.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Mapping

_SHELL = "/bin/sh"
_SEARCH = "/usr/local/bin:/usr/bin:/bin"
# Python ignores these signals, and an ignored signal stays ignored after execve.
_RESET = (signal.SIGPIPE, signal.SIGXFSZ)


def start(
    command: str,
    *,
    fds: Mapping[int, int] | None = None,
    environment: Mapping[str, str] | None = None,
    blocked: Iterable[signal.Signals] = (),
) -> int:
    """Run a shell command; its pid. `fds`: fd in the child → fd here; 0, 1 and 2 are /dev/null unless passed.
    `blocked`: signals that do not end it."""
    passed = dict(fds or {})
    null = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2) if fd not in passed]
    doubled = [(os.POSIX_SPAWN_DUP2, own, child) for child, own in passed.items()]
    closed = [(os.POSIX_SPAWN_CLOSE, fd) for fd in _inheritable() if fd not in passed]
    return os.posix_spawn(
        _SHELL,
        ("sh", "-c", f"cd / && {command}"),
        {"PATH": _SEARCH, **(environment or {})},
        file_actions=[*doubled, *null, *closed],
        setsid=True,
        setsigmask=blocked,
        setsigdef=_RESET,
    )


def _inheritable() -> list[int]:
    fds = []
    for name in os.listdir("/proc/self/fd"):
        try:
            if int(name) > 2 and os.get_inheritable(int(name)):
                fds.append(int(name))
        except OSError:
            continue  # the fd of the directory listing itself
    return fds
