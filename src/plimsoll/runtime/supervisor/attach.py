"""Attached readers of a container's output: pipes of the agent that get a copy of what goes into the log.

Every reader gets everything from the moment it was attached. A pipe that is full pauses the container's stream, so the
slowest reader sets the pace and nothing is stored beyond one portion per reader. A reader that has taken nothing for
ten seconds is closed: it must not stop the container.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from plimsoll.runtime.supervisor.loop import EventLoop, Timer

STALLED_S = 10.0
MAX_READERS = 64


class OutputReaders:
    """Of one stream. `pause` and `resume` stop and continue reading it."""

    __slots__ = ("_has_ended", "_loop", "_pause", "_pending", "_resume", "_timers")

    def __init__(self, loop: EventLoop, pause: Callable[[], None], resume: Callable[[], None]) -> None:
        self._loop, self._pause, self._resume = loop, pause, resume
        self._pending: dict[int, bytes] = {}  # fd → what its pipe has not taken yet
        self._timers: dict[int, Timer] = {}
        self._has_ended = False

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def are_full(self) -> bool:
        """Whether some pipe has not taken everything."""
        return any(self._pending.values())

    def add(self, fd: int) -> None:
        """The write end of a pipe, which is closed here."""
        if self._has_ended:
            os.close(fd)
            return
        os.set_blocking(fd, False)
        self._pending[fd] = b""
        self._watch(fd)

    def take(self, data: bytes) -> None:
        for fd in list(self._pending):
            self._pending[fd] += data
            self._flush(fd)

    def end(self) -> None:
        """No more output. A pipe is closed when it has taken what is left."""
        self._has_ended = True
        for fd in [fd for fd, pending in self._pending.items() if not pending]:
            self._close(fd)

    def _flush(self, fd: int) -> None:
        pending = self._pending[fd]
        try:
            left = pending[os.write(fd, pending) :]
        except BlockingIOError:
            left = pending
        except OSError:  # its reader is gone
            self._close(fd)
            return
        was_paused = self.are_full
        self._pending[fd] = left
        if len(left) < len(pending) or not left:
            self._stop_timer(fd)
        if not left and self._has_ended:
            self._close(fd)
            return
        if left and fd not in self._timers:
            self._timers[fd] = self._loop.after(STALLED_S, lambda: self._close(fd))
        self._watch(fd)
        self._set_pace(was_paused=was_paused)

    def _watch(self, fd: int) -> None:
        # The write end of a pipe is never readable, but "readable" also reports that its reader is gone.
        self._loop.watch(fd, lambda: self._close(fd), (lambda: self._flush(fd)) if self._pending[fd] else None)

    def _close(self, fd: int) -> None:
        if fd not in self._pending:
            return
        self._stop_timer(fd)
        self._loop.watch(fd, None)
        os.close(fd)
        was_paused = self.are_full
        del self._pending[fd]
        self._set_pace(was_paused=was_paused)

    def _stop_timer(self, fd: int) -> None:
        if timer := self._timers.pop(fd, None):
            timer.cancel()

    def _set_pace(self, *, was_paused: bool) -> None:
        if self._has_ended:
            return
        if self.are_full:
            self._pause()
        elif was_paused:
            self._resume()
