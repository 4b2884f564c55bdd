"""PodDisruptionBudgets: how many of a budget's pods may be evicted now (05 B6, /eviction)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from plimsoll.rules.controllers.owner_references import controller_of
from plimsoll.rules.controllers.pods import is_active, is_ready
from plimsoll.rules.model.json_object import JsonObject

RETRY_S = 10
MAX_DISRUPTED_PODS = 2_000  # evicted pods that a budget remembers until they are gone


class BudgetedPod(msgspec.Struct, frozen=True, gc=False):
    """What a budget reads of a pod. There are thousands in a namespace, and each change of one counts all again."""

    labels: Mapping[str, str] | None
    is_active: bool
    is_ready: bool
    controller: str  # its uid, or empty


def budgeted_pod(pod: Mapping[str, Any]) -> BudgetedPod:
    return BudgetedPod(pod["metadata"].get("labels"), is_active(pod), is_ready(pod), controller_of(pod))


def budget_status(budget: Mapping[str, Any], pods: Sequence[BudgetedPod], expected: int | None = None) -> JsonObject:
    """`pods`: the selected pods that have not terminated; `expected`: the replicas of their controllers."""
    spec = budget["spec"]
    total = len(pods) if expected is None else expected
    healthy = [pod.is_ready for pod in pods].count(True)
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


class Refusal(msgspec.Struct, frozen=True):
    """Why an eviction may not take a disruption: to be tried again later, or forbidden by the budget's state."""

    cause: str
    forbidden: str = ""
    retry_after_s: int = 0


def refusal(budget: Mapping[str, Any]) -> Refusal | None:
    """None: the budget has a disruption left."""
    status, name = budget.get("status") or {}, budget["metadata"]["name"]
    cause = f"The disruption budget {name} does not allow evicting pods currently"
    if (status.get("observedGeneration") or 0) < (budget["metadata"].get("generation") or 0):
        return Refusal(f"The disruption budget {name} is still being processed by the server.", retry_after_s=RETRY_S)
    allowed = status.get("disruptionsAllowed") or 0
    if allowed < 0:
        why = "pdb disruptions allowed is negative"
        return Refusal(f"{cause}: {why}", why)
    if len(status.get("disruptedPods") or {}) > MAX_DISRUPTED_PODS:
        why = "too many pending evictions not confirmed by PDB controller"
        return Refusal(
            f"{cause}: {why}", "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        )
    return Refusal(_exhausted(status, name, cause)) if allowed == 0 else None


def _exhausted(status: Mapping[str, Any], name: str, cause: str) -> str:
    """The counts of a budget whose synchronization failed are not current: its message says more."""
    healthy, desired = status.get("currentHealthy") or 0, status.get("desiredHealthy") or 0
    conditions = (each for each in status.get("conditions") or () if each.get("type") == "DisruptionAllowed")
    condition: Mapping[str, Any] = next(conditions, {})
    message = (condition.get("message") or "") if condition.get("status") == "False" else ""
    if message and condition.get("reason") == "SyncFailed":
        return f"{cause} because it failed sync: {message}"
    if healthy <= desired:
        return f"The disruption budget {name} needs {desired} healthy pods and has {healthy} currently"
    return f"{cause} ({condition.get('reason')}): {message}" if message else cause


def _count(value: object, total: int) -> int:
    """A percentage is rounded up, for both kinds."""
    if isinstance(value, str) and value.endswith("%"):
        return -(-int(value[:-1]) * total // 100)
    return int(str(value))
