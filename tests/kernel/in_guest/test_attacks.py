"""The same attacks inside a guest: another kernel, cgroup v2."""

from __future__ import annotations

from pathlib import Path

from tests.kernel.attacks_node import ATTACKS, attacked


async def test_no_attack_gets_further(tmp_path: Path) -> None:
    assert await attacked(tmp_path) == {"attacks": len(ATTACKS), "broken": 0}
