"""Waiting for what comes by itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")


def until(look: Callable[[], Found], timeout_s: float = 20.0) -> Found:
    """What `look` finds, as soon as it finds something."""
    deadline = time.monotonic() + timeout_s
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < deadline, f"nothing within {timeout_s:g} s: {found!r}"
        time.sleep(0.1)
