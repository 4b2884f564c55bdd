"""How many examples a property is tried with: a third of what its test says in `./dev test`, always the same ones; five
times as many, and others with each seed, in `./dev prove properties`."""

from __future__ import annotations

import os

from hypothesis import settings

PROVE = "PLIMSOLL_EXAMPLES"  # how many times as many as the tests say
SHARE = 3

_times = int(os.environ.get(PROVE, "0"))
settings.register_profile("plimsoll", derandomize=not _times, deadline=None, max_examples=100 * _times or 50)


def examples(count: int) -> int:
    return count * _times or max(count // SHARE, 10)
