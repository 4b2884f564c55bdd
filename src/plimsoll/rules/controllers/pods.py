"""Pods as controllers see them: active, ready, available, and made from a template.

A pod is active until it terminates or is being deleted. It is available when it has been ready for `minReadySeconds`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.timestamps import epoch_seconds

TERMINAL = ("Succeeded", "Failed")


def phase_of(pod: Mapping[str, Any]) -> str:
    return str((pod.get("status") or {}).get("phase") or "")


def is_active(pod: Mapping[str, Any]) -> bool:
    return phase_of(pod) not in TERMINAL and not pod["metadata"].get("deletionTimestamp")


def is_terminating(pod: Mapping[str, Any]) -> bool:
    """It is being deleted, and has not terminated."""
    return bool(pod["metadata"].get("deletionTimestamp")) and phase_of(pod) not in TERMINAL


def condition_of(document: Mapping[str, Any], type_: str) -> JsonObject | None:
    conditions = (document.get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each.get("type") == type_), None)


def has_condition(document: Mapping[str, Any], *types: str) -> bool:
    """Whether one of these conditions is True."""
    conditions = (document.get("status") or {}).get("conditions") or ()
    return any(condition.get("type") in types and condition.get("status") == "True" for condition in conditions)


def is_ready(pod: Mapping[str, Any]) -> bool:
    return has_condition(pod, "Ready")


def ready_since(pod: Mapping[str, Any]) -> float | None:
    """When the pod became ready, if it is."""
    ready = condition_of(pod, "Ready")
    if ready is None or ready.get("status") != "True":
        return None
    return epoch_seconds(ready.get("lastTransitionTime"))


def available_in_s(pod: Mapping[str, Any], min_ready_s: int, now_s: float) -> float | None:
    """After how many seconds the pod is available; 0 if it is, None if it is not ready."""
    if not is_ready(pod):
        return None
    if not min_ready_s:
        return 0.0
    since = ready_since(pod)
    return None if since is None else max(since + min_ready_s - now_s, 0.0)


def is_available(pod: Mapping[str, Any], min_ready_s: int, now_s: float) -> bool:
    return available_in_s(pod, min_ready_s, now_s) == 0


def next_available_s(pods: Iterable[Mapping[str, Any]], min_ready_s: int, now_s: float) -> float | None:
    """After how many seconds one more of these pods is available; None: only a change of a pod can do that."""
    waits = [wait for pod in pods if (wait := available_in_s(pod, min_ready_s, now_s))]
    return min(waits, default=None)


def min_ready_seconds(owner: Mapping[str, Any]) -> int:
    return int((owner.get("spec") or {}).get("minReadySeconds") or 0)


def desired_replicas(document: Mapping[str, Any]) -> int:
    replicas = (document.get("spec") or {}).get("replicas")
    return 1 if replicas is None else int(replicas)


def count_or_percent(value: object, total: int, *, up: bool) -> int:
    """25% of 3 is 1 rounded up and 0 rounded down."""
    if isinstance(value, str) and value.endswith("%"):
        percent = int(value[:-1]) * total
        return -(-percent // 100) if up else percent // 100
    return int(str(value))


def pod_from_template(
    template: Mapping[str, Any], reference: JsonObject, *, name: str = "", prefix: str = ""
) -> JsonObject:
    """A pod with a name of its own, or one that the server generates from `prefix`."""
    metadata: JsonObject = {"name": name} if name else {"generateName": prefix}
    metadata["ownerReferences"] = [reference]
    for key in ("labels", "annotations", "finalizers"):
        if value := (template.get("metadata") or {}).get(key):
            metadata[key] = list(value) if key == "finalizers" else dict(value)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": dict(template.get("spec") or {})}


def restarts(pod: Mapping[str, Any]) -> int:
    """The restarts of the container that restarted most."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return max((int(each.get("restartCount") or 0) for each in statuses), default=0)
