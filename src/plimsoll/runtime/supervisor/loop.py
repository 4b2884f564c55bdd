"""The supervisor's event loop: readable and writable fds, timers, and children that have ended. One thread.

SIGCHLD reaches the loop through a pipe (`signal.set_wakeup_fd`); every wake-up reaps all ended children, also orphans,
which the kernel gives to us because we are a subreaper.
"""

from __future__ import annotations

import heapq
import itertools
import os
import selectors
import signal
import time
from collections.abc import Callable

Handler = Callable[[], None]


class Timer:
    __slots__ = ("action", "at_s")

    def __init__(self, at_s: float, action: Handler | None) -> None:
        self.at_s, self.action = at_s, action

    def cancel(self) -> None:
        self.action = None


class EventLoop:
    def __init__(self, on_child: Callable[[int, int], None]) -> None:
        self._selector = selectors.DefaultSelector()
        self._timers: list[tuple[float, int, Timer]] = []
        self._order = itertools.count()
        self._on_child = on_child
        self._soon: list[Handler] = []
        self._ending = False
        self._wake, wake_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(wake_end, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # without a handler the wake-up fd is never written
        self._selector.register(self._wake, selectors.EVENT_READ, (self._reap, None))

    def watch(self, fd: int, readable: Handler | None, writable: Handler | None = None) -> None:
        """Set the handlers of an fd; both None: remove it. Hang-ups and errors count as readable and writable."""
        events = (selectors.EVENT_READ if readable else 0) | (selectors.EVENT_WRITE if writable else 0)
        known = fd in self._selector.get_map()
        if not events:
            if known:
                self._selector.unregister(fd)
        elif known:
            self._selector.modify(fd, events, (readable, writable))
        else:
            self._selector.register(fd, events, (readable, writable))

    def after(self, delay_s: float, action: Handler) -> Timer:
        timer = Timer(time.monotonic() + delay_s, action)
        heapq.heappush(self._timers, (timer.at_s, next(self._order), timer))
        return timer

    def soon(self, action: Handler) -> None:
        """Once, when the events of this iteration are all handled."""
        self._soon.append(action)

    def end(self) -> None:
        self._ending = True

    def run(self) -> None:
        while not self._ending:
            for key, events in self._selector.select(self._timeout_s()):
                readable, writable = key.data
                # An earlier handler of this iteration may have closed this fd, and its number may be in use again.
                if events & selectors.EVENT_READ and readable is not None and self._is_current(key):
                    readable()
                if events & selectors.EVENT_WRITE and writable is not None and self._is_current(key):
                    writable()
            self._fire()
            while self._soon:
                waiting, self._soon = self._soon, []
                for action in waiting:
                    action()

    def _is_current(self, key: selectors.SelectorKey) -> bool:
        current = self._selector.get_map().get(key.fd)
        return current is not None and current.data is key.data

    def _timeout_s(self) -> float | None:
        while self._timers and self._timers[0][2].action is None:
            heapq.heappop(self._timers)
        if self._soon:
            return 0.0
        return max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None

    def _fire(self) -> None:
        now_s = time.monotonic()
        while self._timers and self._timers[0][0] <= now_s:
            timer = heapq.heappop(self._timers)[2]
            if timer.action is not None:
                action, timer.action = timer.action, None
                action()

    def _reap(self) -> None:
        try:
            while os.read(self._wake, 512):
                pass
        except BlockingIOError:
            pass
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._on_child(pid, status)
