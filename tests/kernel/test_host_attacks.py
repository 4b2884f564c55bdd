"""The attacks of a container on its node, on this machine."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kernel.attacks_node import ATTACKS, attacked


async def test_no_attack_gets_further(tmp_path: Path, exercised: Callable[[str, str], None]) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    assert await attacked(tmp_path) == {"attacks": len(ATTACKS), "broken": 0}
    exercised("attacks on a node", f"embedded runtime, Linux {os.uname().release}, host")
