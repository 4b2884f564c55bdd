"""What the deployment controller does next: create a ReplicaSet, scale, delete old ones, write the status."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from plimsoll.rules.controllers import deployment_status as statuses
from plimsoll.rules.controllers.deployments import (
    REVISION,
    annotation,
    is_recreate,
    is_scaling,
    name_of,
    new_and_old,
    next_revision,
    proportional,
    replica_set_of,
    rollout,
    scaled,
    scaling_message,
    surplus_sets,
    synced_annotations,
)
from plimsoll.rules.controllers.pods import condition_of, desired_replicas, min_ready_seconds
from plimsoll.rules.model.json_object import JsonObject


class ReplicaSetChange(NamedTuple):
    name: str
    patch: JsonObject
    event: str = ""  # the message of ScalingReplicaSet


class DeploymentStep(msgspec.Struct, frozen=True):
    """At most one of `create` and `changes`; the next step follows when they are stored."""

    create: JsonObject | None = None
    changes: tuple[ReplicaSetChange, ...] = ()
    delete: tuple[JsonObject, ...] = ()
    revision: str = ""  # to set on the deployment
    status: JsonObject | None = None  # as it should be; None: not to be written now
    requeue_s: float | None = None


def deployment_step(
    deployment: Mapping[str, Any],
    sets: Sequence[JsonObject],
    now_s: float,
    *,
    reference: JsonObject,
    runs_old: bool = False,
    terminating: bool = True,
) -> DeploymentStep:
    """`sets`: its ReplicaSets. `runs_old`: whether pods of older templates have not stopped (for Recreate)."""
    new, old = new_and_old(deployment, sets)
    conditions: list[JsonObject] = statuses.paused_conditions(deployment, now_s)
    if deployment["metadata"].get("deletionTimestamp"):
        status = statuses.deployment_status(deployment, new, old, conditions, now_s, terminating=terminating)
        return DeploymentStep(status=status)
    is_paused = bool(deployment["spec"].get("paused"))
    resizes = is_paused or is_scaling(deployment, sets)
    if new is None and not resizes and not (is_recreate(deployment) and (runs_old or any(map(desired_replicas, old)))):
        return _creation(deployment, old, conditions, reference, now_s)
    synced = _synced(deployment, new, old) if new is not None else None
    if synced is not None:
        return DeploymentStep(changes=(synced,))
    revision = "" if new is None else annotation(new, REVISION)
    if new is not None and statuses.has_deadline(deployment) and not _progress(conditions):
        message = f'Found new replica set "{name_of(new)}"'
        conditions = statuses.with_condition(conditions, statuses.PROGRESSING, "True", statuses.FOUND, message, now_s)
    if resizes:
        sizes, touched = proportional(deployment, new, old)
    else:
        sizes = rollout(deployment, new, old, runs_old=runs_old) if new is not None else _stopped(old)
        touched = [each for each in sets if name_of(each) in sizes]
    changes = _changes(deployment, touched, sizes)
    make = statuses.deployment_status if resizes else statuses.rollout_status
    status = make(deployment, new, old, conditions, now_s, terminating=terminating)
    done = is_paused or statuses.is_complete(deployment, status)
    return DeploymentStep(
        changes=changes,
        delete=tuple(surplus_sets(deployment, old)) if done and not changes else (),
        revision=revision if revision != annotation(deployment, REVISION) else "",
        status=status,
        requeue_s=None if is_paused else _deadline(deployment, status, now_s),
    )


def _deadline(deployment: Mapping[str, Any], status: JsonObject, now_s: float) -> float | None:
    left_s = statuses.deadline_in_s(deployment, status["conditions"], now_s)
    return None if left_s is None else left_s + 1


def _progress(conditions: Sequence[JsonObject]) -> JsonObject | None:
    return condition_of({"status": {"conditions": conditions}}, statuses.PROGRESSING)


def _stopped(old: Sequence[JsonObject]) -> dict[str, int]:
    """Recreate stops everything before there is a new ReplicaSet."""
    return {name_of(each): 0 for each in old if desired_replicas(each)}


def _creation(
    deployment: Mapping[str, Any],
    old: Sequence[JsonObject],
    conditions: list[JsonObject],
    reference: JsonObject,
    now_s: float,
) -> DeploymentStep:
    """The status is the one after the ReplicaSet was created."""
    made = replica_set_of(deployment, reference, old)
    if statuses.has_deadline(deployment):
        message = f'Created new replica set "{name_of(made)}"'
        conditions = statuses.with_condition(conditions, statuses.PROGRESSING, "True", statuses.CREATED, message, now_s)
    status = {**(deployment.get("status") or {}), "conditions": conditions}
    return DeploymentStep(create=made, revision=str(next_revision(old)), status=status)


def failed_creation(deployment: Mapping[str, Any], name: str, error: str, now_s: float) -> tuple[str, JsonObject]:
    """The message of the event, and the status, when the ReplicaSet could not be created."""
    message = f'Failed to create new replica set "{name}": {error}'
    before = deployment.get("status") or {}
    conditions = before.get("conditions") or []
    if statuses.has_deadline(deployment):
        conditions = statuses.with_condition(
            conditions, statuses.PROGRESSING, "False", statuses.CREATE_ERROR, message, now_s
        )
    return message, {**before, "conditions": conditions}


def collided(deployment: Mapping[str, Any]) -> JsonObject:
    """The status when another object has the name of the new ReplicaSet."""
    before = deployment.get("status") or {}
    return {**before, "collisionCount": (before.get("collisionCount") or 0) + 1}


def _synced(deployment: Mapping[str, Any], new: JsonObject, old: Sequence[JsonObject]) -> ReplicaSetChange | None:
    annotations = synced_annotations(deployment, new, old)
    change: JsonObject = {"metadata": {"annotations": annotations}} if annotations else {}
    if min_ready_seconds(new) != min_ready_seconds(deployment):
        change["spec"] = {"minReadySeconds": min_ready_seconds(deployment)}
    return ReplicaSetChange(name_of(new), change) if change else None


def _changes(
    deployment: Mapping[str, Any], sets: Sequence[JsonObject], sizes: Mapping[str, int]
) -> tuple[ReplicaSetChange, ...]:
    changes = []
    for each in sets:
        size = sizes[name_of(each)]
        patch = scaled(deployment, each, size)
        if patch is not None:
            event = scaling_message(each, size) if size != desired_replicas(each) else ""
            changes.append(ReplicaSetChange(name_of(each), patch, event))
    return tuple(changes)
