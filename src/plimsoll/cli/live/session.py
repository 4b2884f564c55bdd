"""The session of a live screen: takes the terminal, shows frames, reads keys, and gives the terminal back.

The terminal is given back on every way out: the end, Ctrl-C, an error, SIGTERM and SIGHUP. Ctrl-Z stops the program on
the normal screen, and `fg` shows the live screen again. A signal only wakes the loop; nothing is drawn in a handler.

Without a terminal, or on a dumb one, `live` prints the view as plain text at every interval.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import time
import tty
from collections.abc import Sequence
from typing import Protocol, Self

from plimsoll.cli import console
from plimsoll.cli.live.frames import Frame, ascii_only, changes, fitted, frame
from plimsoll.cli.live.keys import keys
from plimsoll.cli.terminal import on_terminal
from plimsoll.errors import PlimsollError

ENTER = "\x1b[?1049h\x1b[?25l\x1b[?7l"  # the other screen, no cursor, no wrapping
LEAVE = "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l"
ESCAPE_WAIT_S = 0.05  # a lone Esc is a key if nothing follows it
_ENDING = (signal.SIGTERM, signal.SIGHUP)
_WAKING = (signal.SIGWINCH, signal.SIGTSTP, signal.SIGCONT, *_ENDING)
FIRST_SIZE = (80, 24)


class View(Protocol):
    """What a live screen shows."""

    def refresh(self) -> None:
        """Read the figures again. A PlimsollError is shown, and the next interval tries again."""

    def head(self, width: int) -> Sequence[str]:
        """Lines that stay while the body scrolls."""

    def body(self, width: int) -> Sequence[str]: ...

    def foot(self, width: int) -> Sequence[str]: ...

    def key(self, name: str) -> bool:
        """True if the key ended the view."""


def is_live() -> bool:
    return on_terminal() and on_terminal(sys.stdin) and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")


def has_utf8() -> bool:
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"


def live(view: View, interval_s: float) -> int:
    """Show the view until the user leaves it."""
    try:
        if not is_live():
            return _plain(view, interval_s)
        with Terminal(sys.stdin.fileno(), sys.stdout.fileno()) as terminal:
            return _loop(view, terminal, interval_s)
    except KeyboardInterrupt:
        return 0


def _plain(view: View, interval_s: float) -> int:
    while True:
        view.refresh()
        text = "\n".join([*view.head(0), *view.body(0)])
        console.echo((text if has_utf8() else ascii_only(text)) + "\n")
        time.sleep(interval_s)


def _loop(view: View, terminal: Terminal, interval_s: float) -> int:
    first, problem, due = 0, "", 0.0
    while True:
        if time.monotonic() >= due:
            try:
                view.refresh()
                problem = ""
            except PlimsollError as error:
                problem = str(error)
            due = time.monotonic() + interval_s
        width, height = terminal.size()
        head, body, foot = view.head(width), view.body(width), [*view.foot(width)]
        if problem:
            foot.insert(0, f"! {problem}")
        room = max(1, height - len(head) - len(foot))
        first = max(0, min(first, len(body) - room))
        terminal.show(fitted(head, body, foot, height, first))
        for name in terminal.wait(max(0.0, due - time.monotonic())):
            if name == "stop" or view.key(name):
                return 0
            steps = {"up": -1, "down": 1, "page up": -room, "page down": room, "home": -len(body), "end": len(body)}
            first += steps.get(name, 0)


class Terminal:
    """The terminal while a live screen has it."""

    def __init__(self, reads: int, writes: int) -> None:
        self._reads, self._writes = reads, writes
        self._saved = termios.tcgetattr(reads)
        self._shown: Frame | None = None
        self._left = b""
        self._utf8 = has_utf8()
        self._handlers: dict[int, object] = {}
        self._woken, self._wakes = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._previous_wakeup = -1

    def __enter__(self) -> Self:
        self._previous_wakeup = signal.set_wakeup_fd(self._wakes, warn_on_full_buffer=False)
        for number in _WAKING:
            self._handlers[number] = signal.signal(number, lambda *_: None)
        try:
            self._take()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._give_back()
        finally:
            signal.set_wakeup_fd(self._previous_wakeup)
            for number, handler in self._handlers.items():
                signal.signal(number, handler)  # type: ignore[arg-type]
            os.close(self._woken)
            os.close(self._wakes)

    def _take(self) -> None:
        tty.setcbreak(self._reads)
        self._write(ENTER)
        self._shown = None

    def _give_back(self) -> None:
        try:
            self._write(LEAVE)
        finally:
            termios.tcsetattr(self._reads, termios.TCSADRAIN, self._saved)

    def size(self) -> tuple[int, int]:
        try:
            found = os.get_terminal_size(self._writes)
        except OSError:
            return FIRST_SIZE
        return (found.columns or FIRST_SIZE[0], found.lines or FIRST_SIZE[1])

    def show(self, lines: Sequence[str]) -> None:
        after = frame(lines, *self.size(), utf8=self._utf8)
        if text := changes(self._shown, after):
            self._write(text)
        self._shown = after

    def wait(self, seconds: float) -> list[str]:
        """The keys that were pressed; returns early for a key or another size."""
        timeout = min(seconds, ESCAPE_WAIT_S) if self._left else seconds
        ready, _, _ = select.select([self._reads, self._woken], [], [], timeout)
        if self._woken in ready:
            self._signalled(os.read(self._woken, 64))
        if self._reads in ready:
            data = os.read(self._reads, 1024)
            if not data:
                return ["stop"]  # the terminal is gone
            found, self._left = keys(self._left + data)
            return found
        if self._left and not ready:
            self._left = b""
            return ["escape"]
        return []

    def _signalled(self, numbers: bytes) -> None:
        for number in numbers:
            if number in _ENDING:
                raise SystemExit(128 + number)
            if number == signal.SIGTSTP:
                self._give_back()
                os.kill(os.getpid(), signal.SIGSTOP)
                self._take()
            elif number in (signal.SIGWINCH, signal.SIGCONT):
                self._shown = None

    def _write(self, text: str) -> None:
        data = text.encode("utf-8", "replace")
        while data:
            data = data[os.write(self._writes, data) :]
