"""The attacks of a container on its node, on this machine."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kernel.attacks_node import ATTACKS, NEIGHBOUR, Attack, attacked, neighbours, said_by, undefended
from tests.kernel.embedded_runtime import Cgroups, a_pod, a_runtime


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
    found = await undefended(attack, tmp_path)
    assert found
    if attack is neighbours:
        # Not only the pod's own init and its child.
        assert any(line.startswith("BROKE sees") and NEIGHBOUR in line for line in found), found


@pytest.mark.parametrize(
    "code", ["os._exit(0)", "if os.fork() == 0: os._exit(1)\nwait_for(-1)"], ids=["ended early", "child"]
)
async def test_an_attack_that_ends_early_fails(tmp_path: Path, code: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    cgroups = Cgroups()
    try:
        async with a_runtime(tmp_path / "state", cgroups) as runtime, a_pod(runtime, cgroups, tmp_path / "logs") as pod:
            with pytest.raises(AssertionError):
                await said_by(pod, code)
    finally:
        cgroups.remove()
