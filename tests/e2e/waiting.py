"""Waiting for what comes by itself."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TypeVar

from tests.kernel.guest import GUEST_VARIABLE

Found = TypeVar("Found")
SLOW = 6 if GUEST_VARIABLE in os.environ else 1  # how much longer everything may take in a guest


def until(look: Callable[[], Found], timeout_s: float = 20.0) -> Found:
    """What `look` finds, as soon as it finds something."""
    deadline = time.monotonic() + timeout_s * SLOW
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < deadline, f"nothing within {timeout_s * SLOW:g} s: {found!r}"
        time.sleep(0.1)
