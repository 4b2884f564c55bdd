"""Text to the standard streams, questions to the user."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contextlib import AbstractContextManager


def echo(text: str = "", *, nl: bool = True, err: bool = False) -> None:
    """Print at once: the reader of a pipe waits for it, and both streams keep their order."""
    stream = sys.stderr if err else sys.stdout
    stream.write(f"{text}\n" if nl else text)
    stream.flush()


def confirm(question: str, *, err: bool = False) -> bool:
    """No by default. Raises KeyboardInterrupt if the user leaves."""
    while True:
        echo(f"{question} [y/N]: ", nl=False, err=err)
        answer = sys.stdin.readline()
        if not answer:
            raise KeyboardInterrupt
        known = {"y": True, "yes": True, "n": False, "no": False, "": False}.get(answer.strip().lower())
        if known is not None:
            return known
        echo("Error: invalid input", err=err)


def open_file(path: str, mode: str = "r") -> AbstractContextManager[Any]:
    """Standard input for `-`, which stays open."""
    if path == "-":
        return nullcontext(sys.stdin.buffer if "b" in mode else sys.stdin)
    return open(path, mode)
