"""The session in a pseudo-terminal: it shows, follows the size and keys, and gives the terminal back on every way out."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from plimsoll.cli.live.session import ENTER, LEAVE

DEADLINE_S = 60.0
PROGRAM = """
import sys
from plimsoll.cli.live.session import live

class Counter:
    count = 0
    def refresh(self):
        self.count += 1
    def head(self, width):
        return [f"width {width}"]
    def body(self, width):
        return [f"count {self.count}", *(f"row {index}" for index in range(50))]
    def foot(self, width):
        return ["foot \\u2501"]
    def key(self, name):
        if name == "x":
            raise RuntimeError("broken view")
        return name == "q"

sys.exit(live(Counter(), 0.2))
"""


class Session:
    def __init__(self, fd: int, process: subprocess.Popen[bytes]) -> None:
        self.fd, self.process, self.seen = fd, process, b""

    def until(self, wanted: bytes) -> None:
        end = time.monotonic() + DEADLINE_S
        while wanted not in self.seen:
            assert time.monotonic() < end, f"{wanted!r} did not appear in {self.seen[-2000:]!r}"
            ready, _, _ = select.select([self.fd], [], [], 1.0)
            if ready:
                try:
                    self.seen += os.read(self.fd, 65536)
                except OSError:  # the other end is closed
                    assert wanted in self.seen, self.seen[-2000:]

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))


@contextmanager
def session(**environment: str) -> Iterator[Session]:
    own, theirs = pty.openpty()
    fcntl.ioctl(own, termios.TIOCSWINSZ, struct.pack("HHHH", 12, 80, 0, 0))
    before = termios.tcgetattr(theirs)
    process = subprocess.Popen(
        ["setsid", "--ctty", sys.executable, "-c", PROGRAM],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={"PATH": os.environ["PATH"], "TERM": "xterm", "PYTHONUTF8": "1", **environment},
    )
    try:
        yield Session(own, process)
        assert termios.tcgetattr(theirs) == before  # echo and lines are back
    finally:
        process.kill()
        process.wait()
        os.close(own)
        os.close(theirs)


def test_it_shows_follows_the_size_and_leaves() -> None:
    with session() as shown:
        shown.until(b"count 1")
        assert shown.seen.startswith(ENTER.encode())
        assert b"width 80" in shown.seen and "foot ━".encode() in shown.seen and b"row 8" in shown.seen
        assert b"row 20" not in shown.seen
        shown.resize(40, 30)
        shown.until(b"width 40")
        shown.until(b"row 20")
        os.write(shown.fd, b"\x1b[F")  # to the end
        shown.until(b"49")  # of `row 49`: the rest of the line is the same as before
        os.write(shown.fd, b"q")
        shown.until(LEAVE.encode())
        assert shown.process.wait(DEADLINE_S) == 0


def test_only_the_count_is_repainted() -> None:
    with session() as shown:
        shown.until(b"row 8")
        shown.until(b"\x1b[2;7H")  # the digit after `count `
        assert shown.seen.count(b"row 8") == 1
        os.write(shown.fd, b"q")
        assert shown.process.wait(DEADLINE_S) == 0


@pytest.mark.parametrize(
    ("how", "code"),
    [("Ctrl-C", 0), ("error", 1), ("SIGTERM", 128 + signal.SIGTERM), ("SIGHUP", 128 + signal.SIGHUP)],
)
def test_the_terminal_is_given_back(how: str, code: int) -> None:
    with session() as shown:
        shown.until(b"count 1")
        match how:
            case "Ctrl-C":
                os.write(shown.fd, b"\x03")
            case "error":
                os.write(shown.fd, b"x")
            case name:
                shown.process.send_signal(getattr(signal, name))
        shown.until(LEAVE.encode())
        if how == "error":
            shown.until(b"broken view")  # after the normal screen is back
            assert shown.seen.index(LEAVE.encode()) < shown.seen.index(b"Traceback")
        assert shown.process.wait(DEADLINE_S) == code


def test_stopped_and_continued() -> None:
    """Ctrl-Z gives the terminal back; `fg` takes it again and paints everything."""
    with session() as shown:
        shown.until(b"count 1")
        os.write(shown.fd, b"\x1a")
        shown.until(LEAVE.encode())
        _, status = os.waitpid(shown.process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        shown.seen = b""
        shown.process.send_signal(signal.SIGCONT)
        shown.until(ENTER.encode())
        shown.until(b"width 80")
        os.write(shown.fd, b"q")
        assert shown.process.wait(DEADLINE_S) == 0


@pytest.mark.parametrize("environment", [{"TERM": "dumb"}, {}], ids=["dumb", "pipe"])
def test_plain_text_elsewhere(environment: dict[str, str]) -> None:
    if environment:
        with session(**environment) as shown:
            shown.until(b"count 2")
            assert b"\x1b" not in shown.seen
            shown.process.send_signal(signal.SIGINT)
            assert shown.process.wait(DEADLINE_S) == 0
        return
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        while b"count 2" not in process.stdout.readline():
            pass
        process.send_signal(signal.SIGINT)
        assert b"\x1b" not in process.stdout.read()
        assert process.wait(DEADLINE_S) == 0


def test_without_utf8_lines_become_ascii() -> None:
    with session(PYTHONUTF8="0", LC_ALL="C", PYTHONCOERCECLOCALE="0") as shown:
        shown.until(b"foot =")
        os.write(shown.fd, b"q")
        assert shown.process.wait(DEADLINE_S) == 0
