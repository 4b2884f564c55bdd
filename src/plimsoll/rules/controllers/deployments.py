"""Deployments: a ReplicaSet for each pod template; the newest one grows while the others shrink.

`rollout` computes the next sizes, and is called again after every change until it returns nothing. At any time there
are at most as many pods as maxSurge allows, and no available pod is removed below what maxUnavailable requires.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from plimsoll.rules.controllers.replicasets import desired_replicas
from plimsoll.rules.model.json_object import JsonObject

POD_TEMPLATE_HASH = "pod-template-hash"


def template_hash(template: Mapping[str, Any]) -> str:
    """A short name for a pod template: equal templates have equal names (letters that spell no words)."""
    text = json.dumps(template, sort_keys=True, separators=(",", ":"))
    value = 0x811C9DC5  # FNV-1a, 32 bits
    for byte in text.encode():
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    letters = "bcdfghjklmnpqrstvwxz2456789"
    name = ""
    while value:
        value, index = divmod(value, len(letters))
        name += letters[index]
    return name or letters[0]


def replica_set_of(deployment: Mapping[str, Any], reference: JsonObject) -> JsonObject:
    """The ReplicaSet for the deployment's current template, without replicas."""
    spec, metadata = deployment["spec"], deployment["metadata"]
    template = spec["template"]
    digest = template_hash(template)
    labels = {**(template.get("metadata", {}).get("labels") or {}), POD_TEMPLATE_HASH: digest}
    selector = spec.get("selector") or {}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": f"{metadata['name']}-{digest}",
            "namespace": metadata.get("namespace", ""),
            "labels": labels,
            "ownerReferences": [reference],
        },
        "spec": {
            "replicas": 0,
            "selector": {
                **selector,
                "matchLabels": {**(selector.get("matchLabels") or {}), POD_TEMPLATE_HASH: digest},
            },
            "template": {**template, "metadata": {**template.get("metadata", {}), "labels": labels}},
        },
    }


def _of_percent(value: object, total: int, *, up: bool) -> int:
    if isinstance(value, str) and value.endswith("%"):
        percent = int(value[:-1]) * total
        return -(-percent // 100) if up else percent // 100
    return int(str(value))


def bounds(deployment: Mapping[str, Any]) -> tuple[int, int]:
    """The maximum number of pods, and the minimum number of available pods, during a rollout."""
    wanted = desired_replicas(deployment)
    strategy = deployment["spec"].get("strategy") or {}
    if strategy.get("type") == "Recreate":
        return wanted, 0
    rolling = strategy.get("rollingUpdate") or {}
    surge = _of_percent(rolling.get("maxSurge", "25%"), wanted, up=True)
    unavailable = _of_percent(rolling.get("maxUnavailable", "25%"), wanted, up=False)
    if not surge and not unavailable:
        unavailable = 1
    return wanted + surge, max(wanted - unavailable, 0)


def rollout(deployment: Mapping[str, Any], new: JsonObject, old: Sequence[JsonObject]) -> dict[str, int]:
    """The next number of replicas for each ReplicaSet that must change, by name. Called again until nothing changes."""
    wanted, (most, least) = desired_replicas(deployment), bounds(deployment)
    recreate = (deployment["spec"].get("strategy") or {}).get("type") == "Recreate"
    sizes = {each["metadata"]["name"]: desired_replicas(each) for each in (new, *old)}
    name, before = new["metadata"]["name"], dict(sizes)
    remaining = [each for each in old if sizes[each["metadata"]["name"]] or _count(each, "replicas")]
    if recreate and remaining:
        sizes.update({each["metadata"]["name"]: 0 for each in remaining})
    else:
        room = max(most - sum(sizes.values()), 0)
        sizes[name] = min(wanted, sizes[name] + room) if sizes[name] < wanted else wanted
        _shrink(remaining, new, sizes, least)
    return {each: size for each, size in sizes.items() if size != before[each]}


def _shrink(old: Sequence[JsonObject], new: JsonObject, sizes: dict[str, int], least: int) -> None:
    """Shrink old ReplicaSets: unavailable pods first, then as many as stay above the minimum."""
    spare = sum(_count(each, "availableReplicas") for each in (new, *old)) - least
    for each in sorted(old, key=lambda each: each["metadata"].get("creationTimestamp", "")):
        name = each["metadata"]["name"]
        broken = max(sizes[name] - _count(each, "availableReplicas"), 0)
        working = min(max(sizes[name] - broken, 0), max(spare, 0))
        sizes[name] -= broken + working
        spare -= working


def _count(replica_set: Mapping[str, Any], field: str) -> int:
    return int(replica_set.get("status", {}).get(field) or 0)


def deployment_status(
    deployment: Mapping[str, Any], new: Mapping[str, Any], old: Sequence[Mapping[str, Any]]
) -> JsonObject:
    every = (new, *old)
    available = sum(_count(each, "availableReplicas") for each in every)
    replicas = sum(_count(each, "replicas") for each in every)
    return {
        "observedGeneration": deployment["metadata"].get("generation", 0),
        "replicas": replicas,
        "updatedReplicas": _count(new, "replicas"),
        "readyReplicas": sum(_count(each, "readyReplicas") for each in every),
        "availableReplicas": available,
        "unavailableReplicas": max(desired_replicas(deployment) - available, 0),
    }


def deployment_conditions(deployment: Mapping[str, Any], status: JsonObject, new: str, now: str) -> list[JsonObject]:
    """Available and Progressing, as `kubectl wait` and `describe` read them; `new` is the name of the newest
    ReplicaSet.

    An unchanged condition keeps its times.
    """
    wanted, (_, least) = desired_replicas(deployment), bounds(deployment)
    is_available = status["availableReplicas"] >= least
    is_complete = status["updatedReplicas"] == status["replicas"] == status["availableReplicas"] == wanted
    known = {each["type"]: each for each in deployment.get("status", {}).get("conditions") or ()}
    conditions = []
    for kind, is_true, reason, message in (
        (
            "Available",
            is_available,
            "MinimumReplicasAvailable" if is_available else "MinimumReplicasUnavailable",
            f"Deployment {'has' if is_available else 'does not have'} minimum availability.",
        ),
        (
            "Progressing",
            True,
            "NewReplicaSetAvailable" if is_complete else "ReplicaSetUpdated",
            f'ReplicaSet "{new}" {"has successfully progressed" if is_complete else "is progressing"}.',
        ),
    ):
        condition = {"type": kind, "status": str(is_true), "reason": reason, "message": message}
        before = known.get(kind, {})
        if condition.items() <= before.items():
            conditions.append(before)
            continue
        since = before.get("lastTransitionTime", now) if before.get("status") == condition["status"] else now
        conditions.append({**condition, "lastUpdateTime": now, "lastTransitionTime": since})
    return conditions
