"""Keeps the connection to the runtime open for a while after we were killed.

A runtime whose caller goes away takes back what it was just doing for him. containerd then kills a container that has
begun to run and calls it one that never did, so the next agent would run it a second time; or it stays for ever in a
state in which a container can be neither started nor removed. So a bystander has the same socket open: it waits for
our end and then sleeps until whatever was asked for is done. Nobody reads the answers; the next agent looks at what has
come of it.
"""

from __future__ import annotations

import os
import signal

from plimsoll.linux import detached_process

_LINGERS = "read -r _; exec sleep 20"


class Lifeline:
    """Of one connection."""

    def __init__(self, socket_fd: int) -> None:
        waits, self._ours = os.pipe()  # the other end closes with us, however we end
        held = os.dup(socket_fd)
        try:
            self._pid = detached_process.start(_LINGERS, fds={0: waits, 3: held})
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
