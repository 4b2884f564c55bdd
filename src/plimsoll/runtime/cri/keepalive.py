"""A second process that keeps the connection to a runtime open when this one is killed."""

from __future__ import annotations

import os
import signal

from plimsoll.linux import detached_process


class Keepalive:
    """Keeps the connection to the runtime open for a while after this process was killed.

    A runtime cancels a call when its client disappears. containerd then kills a container that has started and reports
    it as never started, so the next agent would run it a second time; or the container stays in a state in which it can
    be neither started nor removed. So a detached process has the same socket open: it waits for our end and then sleeps
    until the pending calls are completed. The answers are not read; the next agent reads the resulting state.
    """

    def __init__(self, socket_fd: int) -> None:
        waits, self._ours = os.pipe()  # the other end closes when this process ends
        copy = os.dup(socket_fd)
        try:
            self._pid = detached_process.start("read -r _; exec sleep 20", fds={0: waits, 3: copy})
        finally:
            os.close(copy)
            os.close(waits)

    def end(self) -> None:
        """No call is pending, or the runtime is gone."""
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            os.close(self._ours)
            self._pid = 0
