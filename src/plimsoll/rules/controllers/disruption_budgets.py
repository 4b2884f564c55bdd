"""PodDisruptionBudgets: how many of a budget's pods may be evicted now (05 B6, /eviction)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from plimsoll.rules.controllers.pods import is_ready
from plimsoll.rules.model.json_object import JsonObject


def budget_status(
    budget: Mapping[str, Any], pods: Sequence[Mapping[str, Any]], expected: int | None = None
) -> JsonObject:
    """`pods`: the selected pods that have not terminated; `expected`: the replicas of their controllers."""
    spec = budget["spec"]
    total = len(pods) if expected is None else expected
    healthy = sum(is_ready(pod) for pod in pods)
    if spec.get("maxUnavailable") is not None:
        desired = max(total - _count(spec["maxUnavailable"], total), 0)
    elif spec.get("minAvailable") is not None:
        desired = _count(spec["minAvailable"], total)
        if not isinstance(spec["minAvailable"], str):  # a plain number does not depend on the controllers
            total = len(pods)
    else:
        desired = 0
    return {
        "observedGeneration": budget["metadata"].get("generation", 0),
        "disruptionsAllowed": max(healthy - desired, 0) if total else 0,
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "expectedPods": total,
    }


def is_protected(budget: Mapping[str, Any], pod: Mapping[str, Any]) -> bool:
    """Whether an eviction of this pod needs a disruption. A pod that is not ready may need none.

    With AlwaysAllow it never does; by default only while the budget's other pods suffice.
    """
    if is_ready(pod):
        return True
    if budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return False
    status = budget.get("status") or {}
    healthy, desired = status.get("currentHealthy") or 0, status.get("desiredHealthy") or 0
    return not (desired > 0 and healthy >= desired)


def _count(value: object, total: int) -> int:
    """A percentage is rounded up, for both kinds."""
    if isinstance(value, str) and value.endswith("%"):
        return -(-int(value[:-1]) * total // 100)
    return int(str(value))
