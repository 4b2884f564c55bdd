"""ReplicaSets and ReplicationControllers: how many pods to create, and which pods to delete if there are too many.

Deleted first: not scheduled, pending before unknown before running, not ready, with the lower deletion cost, beside
more pods of the same owner, ready for a shorter time, with more restarts, younger. Times are compared by powers of
two, so that of pods with nearly the same age one is chosen by chance (its uid) and not always the newest.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cmp_to_key
from typing import Any

import msgspec

from plimsoll.rules.controllers.pods import (
    condition_of,
    desired_replicas,
    is_active,
    is_available,
    is_ready,
    is_terminating,
    min_ready_seconds,
    phase_of,
    ready_since,
    restarts,
)
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.scheduling.selectors import go_integer
from plimsoll.rules.timestamps import epoch_seconds, rfc3339

MOST_AT_ONCE = 500
FIRST_BATCH = 1
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
FAILURE = "ReplicaFailure"

_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}
_MAX_COST = 2**31


class Scaling(msgspec.Struct, frozen=True):
    create: int = 0
    delete: tuple[JsonObject, ...] = ()


def scaling(owner: Mapping[str, Any], pods: Iterable[JsonObject], now_s: float = 0.0) -> Scaling:
    if owner["metadata"].get("deletionTimestamp"):
        return Scaling()
    active = [pod for pod in pods if is_active(pod)]
    difference = desired_replicas(owner) - len(active)
    if difference >= 0:
        return Scaling(create=min(difference, MOST_AT_ONCE))
    return Scaling(delete=tuple(by_deletion_order(active, now_s)[: min(-difference, MOST_AT_ONCE)]))


def batches(count: int) -> list[int]:
    """How many pods to create at once: 1, 2, 4, … The first batch with an error is the last one."""
    sizes, size = [], FIRST_BATCH
    while count > 0:
        sizes.append(min(size, count))
        count -= sizes[-1]
        size *= 2
    return sizes


# --- the order of deletion ---


def deletion_cost(annotations: Mapping[str, str] | None) -> int:
    """0 where there is none, or none that the API would accept."""
    text = (annotations or {}).get(DELETION_COST, "")
    plain = text.removeprefix("-")
    cost = go_integer(text) if plain and plain[0] != "+" and (plain == "0" or plain[0] != "0") else None
    return cost if cost is not None and -_MAX_COST <= cost < _MAX_COST else 0


def by_deletion_order(pods: Sequence[JsonObject], now_s: float) -> list[JsonObject]:
    together = Counter(node for pod in pods if is_ready(pod) and (node := (pod.get("spec") or {}).get("nodeName")))
    keys = {id(pod): _Expendable.of(pod, together) for pod in pods}

    def compare(one: JsonObject, other: JsonObject) -> int:
        return keys[id(one)].compared(keys[id(other)], now_s)

    return sorted(pods, key=cmp_to_key(compare))


class _Expendable(msgspec.Struct, frozen=True):
    order: tuple[bool, int, bool, int, int]  # what decides before the times
    ready_s: float | None
    restarts: int
    created_s: float | None
    uid: str

    @classmethod
    def of(cls, pod: JsonObject, together: Mapping[str, int]) -> _Expendable:
        metadata, node = pod["metadata"], (pod.get("spec") or {}).get("nodeName") or ""
        phase = _PHASES.get(phase_of(pod), 0)
        order = (bool(node), phase, is_ready(pod), deletion_cost(metadata.get("annotations")), -together.get(node, 0))
        created_s = epoch_seconds(metadata.get("creationTimestamp"))
        return cls(order, ready_since(pod), restarts(pod), created_s, metadata.get("uid") or metadata["name"])

    def compared(self, other: _Expendable, now_s: float) -> int:
        if self.order != other.order:
            return -1 if self.order < other.order else 1
        if self.order[2] and self.ready_s != other.ready_s:
            return _by_age(self.ready_s, other.ready_s, now_s) or _compared(self.uid, other.uid)
        if self.restarts != other.restarts:
            return _compared(other.restarts, self.restarts)
        if self.created_s != other.created_s:
            return _by_age(self.created_s, other.created_s, now_s) or _compared(self.uid, other.uid)
        return 0


def _compared(one: Any, other: Any) -> int:
    return int(one > other) - int(one < other)


def _by_age(one: float | None, other: float | None, now_s: float) -> int:
    """An absent time first, then the power of two of the age in nanoseconds."""
    if one is None or other is None:
        return -1 if one is None else 1
    return _compared(_magnitude(now_s - one), _magnitude(now_s - other))


def _magnitude(age_s: float) -> int:
    return int(math.log2(age_s * 1e9)) if age_s > 1e-9 else 0


# --- status ---


def replica_status(
    owner: Mapping[str, Any],
    pods: Iterable[Mapping[str, Any]],
    now_s: float,
    *,
    error: str = "",
    terminating: bool = True,
) -> JsonObject:
    """`error`: of the pods that could not be created or deleted. `terminating`: whether the release counts those."""
    every, before = list(pods), owner.get("status") or {}
    active = [pod for pod in every if is_active(pod)]
    labels = ((owner["spec"].get("template") or {}).get("metadata") or {}).get("labels") or {}
    wait_s = min_ready_seconds(owner)
    status = {
        "replicas": len(active),
        "fullyLabeledReplicas": sum(labels.items() <= (pod["metadata"].get("labels") or {}).items() for pod in active),
        "readyReplicas": sum(map(is_ready, active)),
        "availableReplicas": sum(is_available(pod, wait_s, now_s) for pod in active),
        "observedGeneration": owner["metadata"].get("generation", 0),
    }
    shown: JsonObject = {name: value for name, value in status.items() if value or name == "replicas"}
    if terminating:
        shown["terminatingReplicas"] = sum(map(is_terminating, every))
    conditions = _failure(owner, len(active), error, now_s, before.get("conditions") or [])
    return {**shown, **({"conditions": conditions} if conditions else {})}


def _failure(
    owner: Mapping[str, Any], active: int, error: str, now_s: float, before: list[JsonObject]
) -> list[JsonObject]:
    others = [each for each in before if each.get("type") != FAILURE]
    known = condition_of({"status": {"conditions": before}}, FAILURE)
    if not error:
        return others
    if known is not None:
        return before
    reason = "FailedCreate" if active < desired_replicas(owner) else "FailedDelete"
    condition = {"type": FAILURE, "status": "True", "lastTransitionTime": rfc3339(now_s), "reason": reason}
    return [*others, {**condition, "message": error}]
