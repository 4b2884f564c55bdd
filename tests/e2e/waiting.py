"""Waiting for a condition, with a deadline that no slow or busy machine reaches."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TypeVar

from tests.kernel.guest import GUEST_VARIABLE

Found = TypeVar("Found")
SLOW = 6 if GUEST_VARIABLE in os.environ else 1  # how much longer everything may take in a guest
DEADLINE_S = 180.0 if GUEST_VARIABLE in os.environ else 90.0  # a failure, never a measurement
LONGEST_PAUSE_S = 0.5


def until(read: Callable[[], Found], context: Callable[[], str] = str, pause_s: float = 0.1) -> Found:
    """What `read` returns, as soon as it is true. `context`: what a failure shows besides. One that takes long, such as a
    kubectl, is asked less often: else waiting for a pod would occupy a CPU."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        began = time.monotonic()
        result = read()
        if result:
            return result
        now = time.monotonic()
        if now > deadline:
            raise AssertionError(f"not within {DEADLINE_S:g} s: {result!r}\n{context()}")
        time.sleep(max(pause_s, min(now - began, LONGEST_PAUSE_S)))
