"""Node lifecycle: what follows from missing heartbeats and from node conditions (04 §8, 05 B9).

A node renews its lease every 10 s. After the grace period without renewal its conditions become Unknown. Taints follow
conditions: NoSchedule for pressure, and for a node that is not ready or unreachable also NoExecute, which evicts pods
when their tolerations expire. The functions take documents, so that all other fields are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.objects import Taint, Toleration
from plimsoll.rules.scheduling.selectors import tolerates

PREFIX = "node.kubernetes.io/"
NOT_READY, UNREACHABLE = f"{PREFIX}not-ready", f"{PREFIX}unreachable"
# condition and status → taint
_TAINT_OF = {
    ("MemoryPressure", "True"): f"{PREFIX}memory-pressure",
    ("DiskPressure", "True"): f"{PREFIX}disk-pressure",
    ("PIDPressure", "True"): f"{PREFIX}pid-pressure",
    ("NetworkUnavailable", "True"): f"{PREFIX}network-unavailable",
    ("Ready", "False"): NOT_READY,
    ("Ready", "Unknown"): UNREACHABLE,
}
_UNSCHEDULABLE = f"{PREFIX}unschedulable"
_MANAGED = frozenset({*_TAINT_OF.values(), _UNSCHEDULABLE})
_EXECUTES = frozenset({NOT_READY, UNREACHABLE})
_REPORTED = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
_SILENT = "Kubelet stopped posting node status."
_NEVER = "Kubelet never posted node status."


def unknown_conditions(node: Mapping[str, Any], now: str) -> list[JsonObject]:
    """The conditions of an unreachable node: as last reported, now Unknown. Empty if they are Unknown already."""
    known = {condition.get("type"): condition for condition in node.get("status", {}).get("conditions") or ()}
    conditions = []
    for kind in _REPORTED:
        before = known.get(kind)
        if before is not None and before.get("status") == "Unknown":
            continue
        conditions.append(
            {
                "type": kind,
                "status": "Unknown",
                "lastHeartbeatTime": before.get("lastHeartbeatTime") if before else now,
                "lastTransitionTime": now,
                "reason": "NodeStatusUnknown" if before else "NodeStatusNeverUpdated",
                "message": _SILENT if before else _NEVER,
            }
        )
    return conditions


def taints(node: Mapping[str, Any], now: str) -> list[JsonObject] | None:
    """The node's taints as its conditions require, with all other taints; None if they are correct already."""
    spec, conditions = node.get("spec", {}), node.get("status", {}).get("conditions") or ()
    wanted = {(_TAINT_OF[key], "NoSchedule") for condition in conditions if (key := _state(condition)) in _TAINT_OF}
    if not any(condition.get("type") == "Ready" for condition in conditions):
        wanted.add((NOT_READY, "NoSchedule"))  # as at its creation: it has not reported Ready yet
    else:
        wanted |= {(key, "NoExecute") for key, _ in wanted if key in _EXECUTES}
    if spec.get("unschedulable"):
        wanted.add((_UNSCHEDULABLE, "NoSchedule"))
    before: list[JsonObject] = spec.get("taints") or []
    remaining = [
        each for each in before if each.get("key") not in _MANAGED or (each["key"], each.get("effect")) in wanted
    ]
    present = {(each["key"], each.get("effect")) for each in remaining}
    new = [{"key": key, "effect": effect, "timeAdded": now} for key, effect in sorted(wanted - present)]
    return None if not new and len(remaining) == len(before) else remaining + new


def _state(condition: Mapping[str, Any]) -> tuple[str, str]:
    return condition.get("type", ""), condition.get("status", "")


def stay_s(tolerations: Iterable[Toleration], node_taints: Iterable[Taint]) -> float | None:
    """How long a pod may stay with these NoExecute taints: None without limit, 0 if one is not tolerated.

    Counted from the first taint; the shortest of the matching tolerations decides.
    """
    times: list[int] = []
    tolerated = list(tolerations)
    for taint in node_taints:
        if taint.effect != "NoExecute":
            continue
        fitting = [each for each in tolerated if tolerates(each, taint)]
        if not fitting:
            return 0
        times += [each.toleration_seconds for each in fitting if each.toleration_seconds is not None]
    return max(min(times), 0) if times else None
