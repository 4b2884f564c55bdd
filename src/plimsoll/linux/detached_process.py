"""A shell command that only stays: it holds something open for others, and outlives whoever started it.

It has nothing of its starter's but what it is given, not even what that one was left with (a pipe to a pager, say), and
stands in a session of its own and in `/`.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping

_SHELL = "/bin/sh"
_SEARCH = "/usr/local/bin:/usr/bin:/bin"
# Python ignores them, and what is ignored stays so after exec.
_RESET = (signal.SIGPIPE, signal.SIGXFSZ)


def start(command: str, *, held: Mapping[int, int] | None = None, environment: Mapping[str, str] | None = None) -> int:
    """Its pid. `held`: number in the bystander → one of our open files; of the first three those not named are null."""
    given = dict(held or {})
    null = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2) if fd not in given]
    doubled = [(os.POSIX_SPAWN_DUP2, ours, theirs) for theirs, ours in given.items()]
    closed = [(os.POSIX_SPAWN_CLOSE, fd) for fd in _inheritable() if fd not in given]
    return os.posix_spawn(
        _SHELL,
        ("sh", "-c", f"cd / && {command}"),
        {"PATH": _SEARCH, **(environment or {})},
        file_actions=[*doubled, *null, *closed],
        setsid=True,
        setsigmask=(),
        setsigdef=_RESET,
    )


def _inheritable() -> list[int]:
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            if int(name) > 2 and os.get_inheritable(int(name)):
                found.append(int(name))
        except OSError:
            continue  # the one that listed the directory
    return found
