"""Keeps the connection to the runtime open for a while after we were killed.

A runtime whose caller goes away takes back what it was just doing for him. containerd then kills a container that has
begun to run and calls it one that never did, so the next agent would run it a second time; or it stays for ever in a
state in which a container can be neither started nor removed. So a second process has the same socket open: a shell
command that waits for our end and then sleeps until whatever was asked for is done. Nobody reads the answers; the next
agent looks at what has come of it.
"""

from __future__ import annotations

import os
import signal

_SHELL = "/bin/sh"
_COMMAND = ("sh", "-c", "cd /; read -r _; exec sleep 20")
_SEARCH = "/usr/local/bin:/usr/bin:/bin"
# Python ignores them, and what is ignored stays so after exec.
_RESET = (signal.SIGPIPE, signal.SIGXFSZ)


class Lifeline:
    """Of one connection."""

    def __init__(self, socket_fd: int) -> None:
        waits, self._ours = os.pipe()  # the other end closes with us, however we end
        null = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (1, 2)]
        held = os.dup(socket_fd)
        try:
            self._pid = os.posix_spawn(
                _SHELL,
                _COMMAND,
                {"PATH": _SEARCH},
                file_actions=[(os.POSIX_SPAWN_DUP2, waits, 0), *null, (os.POSIX_SPAWN_DUP2, held, 3)],
                setsid=True,
                setsigmask=(),
                setsigdef=_RESET,
            )
        finally:
            os.close(held)
            os.close(waits)

    def end(self) -> None:
        """Nothing is being done any more, or nobody is there to do it."""
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            os.close(self._ours)
            self._pid = 0
