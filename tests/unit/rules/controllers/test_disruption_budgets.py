"""Disruption budgets: which pods an eviction may take without a disruption."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.rules.controllers.disruption_budgets import is_protected
from tests.unit.rules.controllers.documents import pod

ENOUGH: Any = {"currentHealthy": 2, "desiredHealthy": 2}
TOO_FEW: Any = {"currentHealthy": 1, "desiredHealthy": 2}


@pytest.mark.parametrize(
    ("policy", "status", "ready", "protected"),
    [
        ("AlwaysAllow", TOO_FEW, True, True),
        ("AlwaysAllow", TOO_FEW, False, False),
        ("IfHealthyBudget", TOO_FEW, False, True),
        ("IfHealthyBudget", ENOUGH, False, False),
        (None, ENOUGH, False, False),
        (None, TOO_FEW, False, True),
        (None, {}, False, True),
        (None, ENOUGH, True, True),
    ],
)
def test_which_pods_are_protected(policy: str | None, status: Any, ready: bool, protected: bool) -> None:
    budget = {"spec": {"unhealthyPodEvictionPolicy": policy}, "status": status}
    assert is_protected(budget, pod("p", ready=ready)) == protected
