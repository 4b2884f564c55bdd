"""ReplicaSets: how many pods to create, and which pods to delete if there are too many.

A pod counts until it terminates or is being deleted; an evicted pod has terminated, so it is replaced. Deleted first:
not scheduled, pending before unknown before running, not ready, then the youngest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from plimsoll.rules.model.json_object import JsonObject

MOST_AT_ONCE = 500

_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}


class Scaling(msgspec.Struct, frozen=True):
    create: int = 0
    delete: tuple[JsonObject, ...] = ()


def is_active(pod: Mapping[str, Any]) -> bool:
    return pod.get("status", {}).get("phase") not in ("Succeeded", "Failed") and not pod["metadata"].get(
        "deletionTimestamp"
    )


def has_condition(document: Mapping[str, Any], *types: str) -> bool:
    """Whether one of these conditions is True."""
    conditions = document.get("status", {}).get("conditions") or ()
    return any(condition.get("type") in types and condition.get("status") == "True" for condition in conditions)


def is_ready(pod: Mapping[str, Any]) -> bool:
    return has_condition(pod, "Ready")


def desired_replicas(document: Mapping[str, Any]) -> int:
    replicas = document.get("spec", {}).get("replicas")
    return 1 if replicas is None else int(replicas)


def scaling(owner: Mapping[str, Any], pods: Iterable[JsonObject]) -> Scaling:
    if owner["metadata"].get("deletionTimestamp"):
        return Scaling()
    active = [pod for pod in pods if is_active(pod)]
    difference = desired_replicas(owner) - len(active)
    if difference >= 0:
        return Scaling(create=min(difference, MOST_AT_ONCE))
    return Scaling(delete=tuple(sorted(active, key=_expendable)[: min(-difference, MOST_AT_ONCE)]))


def _expendable(pod: Mapping[str, Any]) -> tuple[bool, int, bool, _Youngest]:
    status, metadata = pod.get("status", {}), pod["metadata"]
    return (
        bool(pod.get("spec", {}).get("nodeName")),
        _PHASES.get(status.get("phase", ""), 0),
        is_ready(pod),
        _Youngest(metadata.get("creationTimestamp", "")),
    )


class _Youngest(str):
    """Reverses the order of texts: the later time first."""

    __slots__ = ()

    def __lt__(self, other: str) -> bool:
        return str.__gt__(self, other)


def replica_status(owner: Mapping[str, Any], pods: Iterable[Mapping[str, Any]]) -> JsonObject:
    active = [pod for pod in pods if is_active(pod)]
    labels = owner["spec"].get("template", {}).get("metadata", {}).get("labels") or {}
    full = sum(1 for pod in active if labels.items() <= (pod["metadata"].get("labels") or {}).items())
    ready = sum(map(is_ready, active))
    return {
        "replicas": len(active),
        "fullyLabeledReplicas": full,
        "readyReplicas": ready,
        "availableReplicas": ready,
        "observedGeneration": owner["metadata"].get("generation", 0),
    }


def pod_from_template(owner: Mapping[str, Any], reference: JsonObject, name_prefix: str) -> JsonObject:
    template = owner["spec"].get("template", {})
    metadata: JsonObject = {"generateName": name_prefix, "ownerReferences": [reference]}
    for key in ("labels", "annotations"):
        if template.get("metadata", {}).get(key):
            metadata[key] = dict(template["metadata"][key])
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template.get("spec", {})}
