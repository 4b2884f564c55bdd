"""How many examples Hypothesis generates for a property: in `./dev test` a tenth of the number in its test, always the
same ones; in `./dev check` a twentieth; in `./dev prove properties` five times the number, other ones for each seed."""

from __future__ import annotations

import os

from hypothesis import settings

PROVE = "PLIMSOLL_EXAMPLES"  # how many times as many as the tests say
FEW = "PLIMSOLL_FEW_EXAMPLES"  # set by `./dev check`
SHARE, LEAST = (20, 4) if os.environ.get(FEW) else (10, 8)

_times = int(os.environ.get(PROVE, "0"))
settings.register_profile("plimsoll", derandomize=not _times, deadline=None, max_examples=100 * _times or 150 // SHARE)
settings.load_profile("plimsoll")  # a property keeps the profile that is loaded when its module is imported


def examples(count: int) -> int:
    return count * _times or max(count // SHARE, LEAST)
