"""The attacks of a container on its node, on this machine."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kernel.attacks_node import ATTACKS, Attack, attacked, undefended


async def test_no_attack_gets_further(tmp_path: Path, exercised: Callable[[str, str], None]) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    assert await attacked(tmp_path) == {"attacks": len(ATTACKS), "broken": 0}
    exercised("attacks on a node", f"embedded runtime, Linux {os.uname().release}, host")


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
async def test_each_attack_succeeds_without_what_holds_it(tmp_path: Path, attack: Attack) -> None:
    """Else it would hold by mistake: a program that fails for another reason, a path that does not exist."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    assert await undefended(attack, tmp_path)
