"""What needs a guest with PSI and v2: triggers of single cgroups."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kernel.conftest import InGuest
from tests.kernel.guest import PYTHON

PAYLOAD = Path(__file__).resolve().parent / "in_guest" / "psi_events.py"


@pytest.mark.long
def test_pressure_triggers_of_single_cgroups(in_guest: InGuest) -> None:
    done = in_guest("qemu-v2", [PYTHON, "-I", str(PAYLOAD)], 180.0)
    assert done.status == 0, done.report()
    assert done.stdout.endswith("all seen\n"), done.report()
