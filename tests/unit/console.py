"""Run `plimsoll` inside the test process and keep what it says.

`run` puts files of its own in place of the standard streams, so that binary output, standard input and a terminal can
be had without a process. Whatever the command changes in the process (the garbage collector) is put back.
"""

from __future__ import annotations

import gc
import io
import sys
from typing import NamedTuple

from plimsoll.cli.main import main


class Ran(NamedTuple):
    code: int
    out: str
    err: str


class _Stream(io.TextIOWrapper):
    """Bytes below, text above, and perhaps a terminal."""

    def __init__(self, data: bytes = b"", *, terminal: bool = False) -> None:
        super().__init__(io.BytesIO(data), encoding="utf-8", errors="strict", newline="\n", write_through=True)
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal

    def kept(self) -> str:
        self.flush()
        return self.buffer.getvalue().decode()  # type: ignore[attr-defined]


def run(*words: str, stdin: bytes | str = b"", terminal: bool = False) -> Ran:
    """The exit code and both outputs. An exception that `main` lets out is the test's to see."""
    data = stdin.encode() if isinstance(stdin, str) else stdin
    streams = sys.stdin, sys.stdout, sys.stderr
    threshold = gc.get_threshold()
    out, err = _Stream(terminal=terminal), _Stream(terminal=terminal)
    sys.stdin, sys.stdout, sys.stderr = _Stream(data), out, err
    try:
        code = main(list(words))
    finally:
        sys.stdin, sys.stdout, sys.stderr = streams
        gc.set_threshold(*threshold)
        gc.unfreeze()
    return Ran(code, out.kept(), err.kept())
