"""Jobs: create pods until enough have succeeded, or too many have failed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from plimsoll.rules.controllers.replicasets import has_condition, is_active, is_ready
from plimsoll.rules.model.json_object import JsonObject

DEFAULT_BACKOFF_LIMIT = 6


class JobStep(msgspec.Struct, frozen=True):
    create: int = 0
    delete: tuple[JsonObject, ...] = ()
    finished: str = ""  # Complete or Failed
    reason: str = ""
    message: str = ""


def job_step(job: Mapping[str, Any], pods: Iterable[JsonObject]) -> JobStep:
    spec = job["spec"]
    every = list(pods)
    active = tuple(pod for pod in every if is_active(pod))
    if has_condition(job, "Complete", "Failed") or job["metadata"].get("deletionTimestamp"):
        return JobStep()
    succeeded, failed = _ended(every, "Succeeded"), _ended(every, "Failed")
    if failed > _number(spec, "backoffLimit", DEFAULT_BACKOFF_LIMIT):
        message = "Job has reached the specified backoff limit"
        return JobStep(delete=active, finished="Failed", reason="BackoffLimitExceeded", message=message)
    completions, parallelism = spec.get("completions"), _number(spec, "parallelism", 1)
    if completions is None:  # a work queue: the first success means that there is no more work
        if succeeded:
            done = not active
            return JobStep(finished="Complete" if done else "", reason="CompletionsReached" if done else "")
        wanted = parallelism
    else:
        if succeeded >= completions:
            return JobStep(delete=active, finished="Complete", reason="CompletionsReached")
        wanted = min(parallelism, completions - succeeded)
    if spec.get("suspend"):
        return JobStep(delete=active)
    if len(active) > wanted:
        return JobStep(delete=active[wanted:])
    return JobStep(create=wanted - len(active))


def job_status(job: Mapping[str, Any], pods: Iterable[Mapping[str, Any]], step: JobStep, now: str) -> JsonObject:
    """The status after this step; fields that it does not decide are kept."""
    every, before = list(pods), job.get("status", {})
    active = [pod for pod in every if is_active(pod)]
    status = {
        **before,
        "active": len(active),
        "ready": sum(map(is_ready, active)),
        "succeeded": _ended(every, "Succeeded"),
        "failed": _ended(every, "Failed"),
        "startTime": before.get("startTime") or now,
    }
    if step.finished:
        condition = {"type": step.finished, "status": "True", "lastProbeTime": now, "lastTransitionTime": now}
        condition |= {"reason": step.reason, "message": step.message}
        status["conditions"] = [*(before.get("conditions") or ()), condition]
        status["active"] = status["ready"] = 0
        if step.finished == "Complete":
            status["completionTime"] = now
    return {key: value for key, value in status.items() if value != 0}


def _ended(pods: Iterable[Mapping[str, Any]], phase: str) -> int:
    return sum(pod.get("status", {}).get("phase") == phase for pod in pods)


def _number(spec: Mapping[str, Any], field: str, absent: int) -> int:
    value = spec.get(field)
    return absent if value is None else int(value)
