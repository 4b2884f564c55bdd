"""The guard of CPU bursts: a process that takes them back when attach has ended, however it has ended.

It is a shell that waits for the end of a pipe whose only writer is attach, and then runs `plimsoll.attach.bursts`. It
has a session of its own, does not end by SIGTERM, and holds a lock of the journal: an attach or detach that follows
waits until it is done. attach starts it before it sets the first burst, and again if it is killed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from plimsoll.linux import detached_process
from plimsoll.rules.attach.writes import gives_up

BLOCKED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # systemd sends SIGTERM to all processes of a unit
_LOCK = 3  # in the guard

log = logging.getLogger(__name__)


class BurstGuard:
    def __init__(self, directory: Path, command: Sequence[str] = ()) -> None:
        """`command`: what it runs in the end, for tests."""
        words = (sys.executable, "-sP", "-m", "plimsoll.attach.bursts", str(directory.resolve()))
        self._command = shlex.join(command or words)
        self._pipe = self._process = -1  # the writing end, and a pidfd
        self._ended_s: list[float] = []
        self.pid = 0  # 0: it does not run
        self.changed: Callable[[], None] = lambda: None  # it was killed

    def start(self, lock: int) -> str:
        """Unless it runs. Empty if it runs now, otherwise the reason. `lock`: the fd that it shares."""
        if self.pid:
            return ""
        if gives_up(self._ended_s, time.monotonic()):
            return "the process that takes them back when attach is killed was itself ended again and again"
        waits, self._pipe = os.pipe2(os.O_CLOEXEC)
        paths = os.pathsep.join(os.path.abspath(path) for path in sys.path if path)
        try:
            self.pid = detached_process.start(
                f"read -r end; exec {self._command} </dev/null",
                fds={0: waits, 2: 2, _LOCK: lock},
                environment={**os.environ, "PYTHONPATH": paths},
                blocked=BLOCKED,
            )
        except OSError as error:
            os.close(self._pipe)
            return f"the process that takes them back when attach is killed cannot be started: {error.strerror}"
        finally:
            os.close(waits)
        self._process = os.pidfd_open(self.pid)
        asyncio.get_running_loop().add_reader(self._process, self._killed, lock)
        return ""

    def _killed(self, lock: int) -> None:
        pid = self._reaped()
        self._ended_s = [*self._ended_s[-20:], time.monotonic()]
        log.warning("the guard of CPU bursts (process %d) was ended by another program; it is started again", pid)
        self.start(lock)  # if it cannot be started, the next look at everything says so and restores the bursts
        self.changed()

    def stop(self) -> None:
        """When there is nothing to take back."""
        if self.pid:
            signal.pidfd_send_signal(self._process, signal.SIGKILL)
            self._reaped()

    def _reaped(self) -> int:
        asyncio.get_running_loop().remove_reader(self._process)
        os.close(self._process)
        os.close(self._pipe)
        pid, self.pid = self.pid, 0
        os.waitpid(pid, 0)
        return pid
