"""The status of a deployment: counts, and the conditions Available, Progressing and ReplicaFailure.

Progressing is True while pods are replaced, and stays True with the reason NewReplicaSetAvailable once all are. It
becomes False when nothing has changed for `progressDeadlineSeconds`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from plimsoll.rules.controllers.deployments import UNLIMITED, bounds, name_of, total
from plimsoll.rules.controllers.pods import condition_of, desired_replicas
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.timestamps import epoch_seconds, rfc3339

PROGRESSING, AVAILABLE, FAILURE = "Progressing", "Available", "ReplicaFailure"
CREATED, FOUND, UPDATED, DONE = (
    "NewReplicaSetCreated",
    "FoundNewReplicaSet",
    "ReplicaSetUpdated",
    "NewReplicaSetAvailable",
)
TIMED_OUT, CREATE_ERROR = "ProgressDeadlineExceeded", "ReplicaSetCreateError"
PAUSED, RESUMED = "DeploymentPaused", "DeploymentResumed"


def with_condition(
    conditions: Sequence[JsonObject], type_: str, status: str, reason: str, message: str, now_s: float
) -> list[JsonObject]:
    """A condition with the same status and reason stays as it is; with the same status it keeps its transition time."""
    before = condition_of({"status": {"conditions": conditions}}, type_)
    if before is not None and (before.get("status"), before.get("reason")) == (status, reason):
        return list(conditions)
    return _replaced(conditions, type_, status, reason, message, now_s)


def _replaced(
    conditions: Sequence[JsonObject], type_: str, status: str, reason: str, message: str, now_s: float
) -> list[JsonObject]:
    before, now = condition_of({"status": {"conditions": conditions}}, type_) or {}, rfc3339(now_s)
    since = before.get("lastTransitionTime", now) if before.get("status") == status else now
    condition = {"type": type_, "status": status, "lastUpdateTime": now, "lastTransitionTime": since}
    return [*without(conditions, type_), {**condition, "reason": reason, "message": message}]


def without(conditions: Sequence[JsonObject], type_: str) -> list[JsonObject]:
    return [each for each in conditions if each.get("type") != type_]


def has_deadline(deployment: Mapping[str, Any]) -> bool:
    deadline = deployment["spec"].get("progressDeadlineSeconds")
    return deadline is not None and deadline != UNLIMITED


def paused_conditions(deployment: Mapping[str, Any], now_s: float) -> list[JsonObject]:
    """The conditions after the deployment was paused or resumed."""
    conditions = (deployment.get("status") or {}).get("conditions") or []
    before = condition_of(deployment, PROGRESSING) or {}
    if not has_deadline(deployment) or before.get("reason") == TIMED_OUT:
        return conditions
    is_paused, was_paused = bool(deployment["spec"].get("paused")), before.get("reason") == PAUSED
    if is_paused and not was_paused:
        return with_condition(conditions, PROGRESSING, "Unknown", PAUSED, "Deployment is paused", now_s)
    if was_paused and not is_paused:
        return with_condition(conditions, PROGRESSING, "Unknown", RESUMED, "Deployment is resumed", now_s)
    return conditions


def deployment_status(
    deployment: Mapping[str, Any],
    new: Mapping[str, Any] | None,
    old: Sequence[Mapping[str, Any]],
    conditions: Sequence[JsonObject],
    now_s: float,
    *,
    terminating: bool = True,
) -> JsonObject:
    """Counts and the condition Available. `conditions`: those that are set already."""
    every = [*old, *([] if new is None else [new])]
    available = total(every, "availableReplicas")
    counts = {
        "observedGeneration": deployment["metadata"].get("generation", 0),
        "replicas": total(every, "replicas"),
        "updatedReplicas": 0 if new is None else total([new], "replicas"),
        "readyReplicas": total(every, "readyReplicas"),
        "availableReplicas": available,
        "unavailableReplicas": max(sum(map(desired_replicas, every)) - available, 0),
    }
    status: JsonObject = {name: value for name, value in counts.items() if value}
    if terminating:
        status["terminatingReplicas"] = total(every, "terminatingReplicas")
    is_available = available >= bounds(deployment)[1]
    reason = "MinimumReplicasAvailable" if is_available else "MinimumReplicasUnavailable"
    message = f"Deployment {'has' if is_available else 'does not have'} minimum availability."
    status["conditions"] = with_condition(conditions, AVAILABLE, str(is_available), reason, message, now_s)
    if (collisions := (deployment.get("status") or {}).get("collisionCount")) is not None:
        status["collisionCount"] = collisions
    return status


def is_complete(deployment: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
    wanted = desired_replicas(deployment)
    counts = ("updatedReplicas", "replicas", "availableReplicas")
    return all((status.get(name) or 0) == wanted for name in counts)


def _progresses(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    def count(status: Mapping[str, Any], name: str) -> int:
        return int(status.get(name) or 0)

    def outdated(status: Mapping[str, Any]) -> int:
        return count(status, "replicas") - count(status, "updatedReplicas")

    more = (
        count(after, name) > count(before, name) for name in ("updatedReplicas", "readyReplicas", "availableReplicas")
    )
    return any(more) or outdated(after) < outdated(before)


def deadline_in_s(deployment: Mapping[str, Any], conditions: Sequence[JsonObject], now_s: float) -> float | None:
    """The time until the progress deadline, at least 0; None where none is running."""
    progressing = condition_of({"status": {"conditions": conditions}}, PROGRESSING)
    if not has_deadline(deployment) or progressing is None or progressing.get("reason") in (DONE, TIMED_OUT):
        return None
    since = epoch_seconds(progressing.get("lastUpdateTime"))
    return None if since is None else max(since + deployment["spec"]["progressDeadlineSeconds"] - now_s, 0.0)


def rollout_status(
    deployment: Mapping[str, Any],
    new: Mapping[str, Any] | None,
    old: Sequence[Mapping[str, Any]],
    conditions: Sequence[JsonObject],
    now_s: float,
    *,
    terminating: bool = True,
) -> JsonObject:
    """The whole status during and after a rollout."""
    status = deployment_status(deployment, new, old, conditions, now_s, terminating=terminating)
    made: list[JsonObject] = status["conditions"]
    if not has_deadline(deployment):
        made = without(made, PROGRESSING)
    progressing = condition_of({"status": {"conditions": conditions}}, PROGRESSING) or {}
    was_done = status.get("replicas") == status.get("updatedReplicas") and progressing.get("reason") == DONE
    if has_deadline(deployment) and not was_done:
        name = f'Deployment "{name_of(deployment)}"' if new is None else f'ReplicaSet "{name_of(new)}"'
        if is_complete(deployment, status):
            made = with_condition(made, PROGRESSING, "True", DONE, f"{name} has successfully progressed.", now_s)
        elif _progresses(deployment.get("status") or {}, status):
            made = _replaced(made, PROGRESSING, "True", UPDATED, f"{name} is progressing.", now_s)
        elif deadline_in_s(deployment, made, now_s) == 0 or progressing.get("reason") == TIMED_OUT:
            made = with_condition(made, PROGRESSING, "False", TIMED_OUT, f"{name} has timed out progressing.", now_s)
    failures = [each for each in (*([] if new is None else [new]), *old) if condition_of(each, FAILURE)]
    if failures:
        failed = condition_of(failures[0], FAILURE) or {}
        words = (failed.get("status") or "", failed.get("reason") or "", failed.get("message") or "")
        made = with_condition(made, FAILURE, *words, now_s)
    else:
        made = without(made, FAILURE)
    status["conditions"] = made
    return status
