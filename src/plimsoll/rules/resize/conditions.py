"""How a resize is reported: the two conditions, `status.resize`, and events (03 §2, §3.2, §8).

*Pending*: the desired resources differ from the allocated ones; the condition carries the node's last verdict. *In
progress*: the allocated resources are not fully actuated. Both can be present: an accepted resize in progress, and a
newer one that waits. `ResizeConditions` holds both as a frozen value that each step replaces. The pod's conditions are
computed from it, and after a restart of the agent it is restored from them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

from plimsoll.rules.model.objects import CPU, MEMORY, SYSTEM_CRITICAL_PRIORITY, Container, Pod, ResourceList
from plimsoll.rules.model.observed import LifecycleEvent
from plimsoll.rules.model.pod_status import RunCondition
from plimsoll.rules.profile import Profile
from plimsoll.rules.resize.allocation import Allocation, all_containers, is_allocated
from plimsoll.rules.resize.verdict import ResizeVerdict
from plimsoll.rules.timestamps import epoch_seconds, rfc3339

PENDING, IN_PROGRESS = "PodResizePending", "PodResizeInProgress"
DEFERRED, INFEASIBLE, ERROR = "Deferred", "Infeasible", "Error"
PROPOSED, WORKING = "Proposed", "InProgress"


class PendingCondition(msgspec.Struct, frozen=True):
    reason: Literal["Deferred", "Infeasible"]
    message: str
    generation: int  # of the spec that was judged
    since_s: float | None = None  # None: as the API reports
    probed_s: float | None = None  # the last verdict
    desired: Allocation | None = None  # the judged resources; None if the agent has restarted since


class ProgressCondition(msgspec.Struct, frozen=True):
    generation: int  # of the spec that was accepted
    since_s: float
    error: str = ""


class ResizeConditions(msgspec.Struct, frozen=True):
    pending: PendingCondition | None = None
    progress: ProgressCondition | None = None


NO_RESIZE_CONDITIONS = ResizeConditions()


def priority_bucket(pod: Pod | None) -> str:
    """The label of the metrics of pending resizes; no pod: it is gone."""
    if pod is None:
        return "unknown"
    priority = pod.spec.priority or 0
    if priority == 0:
        return "normal"
    bounds = ((SYSTEM_CRITICAL_PRIORITY, "system-critical"), (100_000, "high"), (1, "medium"), (-999, "low"))
    return next((name for least, name in bounds if priority >= least), "very-low")


def judged(
    conditions: ResizeConditions, pod: Pod, verdict: ResizeVerdict, now_s: float
) -> tuple[ResizeConditions, LifecycleEvent | None]:
    """After the node's verdict on the newest spec: the conditions, and an event if the verdict is new."""
    generation = pod.metadata.generation
    if verdict.decision == "NoChange":
        return msgspec.structs.replace(conditions, pending=None), None
    if verdict.decision == "Accepted":
        return ResizeConditions(progress=ProgressCondition(generation, now_s)), _event("ResizeStarted", "started", pod)
    before = conditions.pending
    same = before is not None and before.reason == verdict.decision
    since_s = before.since_s if same and before is not None else now_s
    pending = PendingCondition(verdict.decision, verdict.message, generation, since_s, now_s, _desired(pod))
    event = None
    if not same or before is None or before.generation != generation:
        word = verdict.reason if verdict.decision == DEFERRED else INFEASIBLE
        event = _event(f"Resize{verdict.decision}", word, pod, verdict.message)
    return msgspec.structs.replace(conditions, pending=pending), event


def _desired(pod: Pod) -> Allocation:
    """All fields that a resize may change; a change of any other field does not affect the verdict."""
    return Allocation(
        {container.name: container.resources for container in all_containers(pod.spec)}, True, pod.spec.resources
    )


def is_news(before: ResizeConditions, after: ResizeConditions) -> bool:
    """Whether the pod's status must be updated: not if the same verdict was only repeated."""
    return _without_probe_time(before) != _without_probe_time(after)


def _without_probe_time(conditions: ResizeConditions) -> ResizeConditions:
    if conditions.pending is None:
        return conditions
    return msgspec.structs.replace(conditions, pending=msgspec.structs.replace(conditions.pending, probed_s=None))


def finished(conditions: ResizeConditions, pod: Pod) -> tuple[ResizeConditions, LifecycleEvent | None]:
    """All allocated resources are actuated; `pod` is the allocated pod."""
    if conditions.progress is None:
        return conditions, None
    event = _event("ResizeCompleted", "completed", pod, generation=conditions.progress.generation)
    return msgspec.structs.replace(conditions, progress=None), event


def failed(
    conditions: ResizeConditions, pod: Pod, error: str, now_s: float
) -> tuple[ResizeConditions, LifecycleEvent | None]:
    """The last attempt to actuate failed and will be retried; `pod` is the allocated pod."""
    before = conditions.progress or ProgressCondition(pod.metadata.generation, now_s)
    progress = msgspec.structs.replace(before, error=error)
    event = _event("ResizeError", "error", pod, error, before.generation) if before.error != error else None
    return msgspec.structs.replace(conditions, progress=progress), event


def resize_conditions(conditions: ResizeConditions, profile: Profile) -> tuple[RunCondition, ...]:
    """A resize condition is True or absent."""
    if not profile.resize_conditions:
        return ()
    result = []
    has_generation = profile.pod_observed_generation
    if (pending := conditions.pending) is not None:
        generation = pending.generation if has_generation else 0
        probed, since = (None if time_s is None else rfc3339(time_s) for time_s in (pending.probed_s, pending.since_s))
        result.append(RunCondition(PENDING, "True", pending.reason, pending.message, probed, since, generation))
    if (progress := conditions.progress) is not None:
        generation = progress.generation if has_generation else 0
        reason = ERROR if progress.error else ""
        since = rfc3339(progress.since_s)
        result.append(RunCondition(IN_PROGRESS, "True", reason, progress.error, None, since, generation))
    return tuple(result)


def resize_word(conditions: ResizeConditions, pod: Pod, profile: Profile) -> str:
    """`status.resize` of a pod with this spec, if the profile has the field. A verdict on other resources does not
    count: then the resize is Proposed, as the API server has set it."""
    if not profile.resize_status_field:
        return ""
    if (pending := conditions.pending) is None:
        return WORKING if conditions.progress is not None else ""
    is_judged = pod.status.resize != PROPOSED if pending.desired is None else is_allocated(pod, pending.desired)
    return pending.reason if is_judged else PROPOSED


def conditions_from_status(conditions: Iterable[RunCondition], generation: int, now_s: float) -> ResizeConditions:
    """As reported to the API before the agent restarted."""
    pending, progress = None, None
    for condition in conditions:
        if condition.status != "True":
            continue
        judged_generation = condition.observed_generation or generation
        since_s = epoch_seconds(condition.last_transition_time)
        if condition.type == PENDING and condition.reason in (DEFERRED, INFEASIBLE):
            reason: Literal["Deferred", "Infeasible"] = "Deferred" if condition.reason == DEFERRED else "Infeasible"
            probed_s = epoch_seconds(condition.last_probe_time)
            pending = PendingCondition(reason, condition.message, judged_generation, since_s, probed_s)
        elif condition.type == IN_PROGRESS:
            progress = ProgressCondition(judged_generation, now_s if since_s is None else since_s, condition.message)
    return ResizeConditions(pending, progress)


# --- what was requested ---


def operations(before: Pod, after: Pod) -> Iterator[tuple[str, str, str]]:
    """Resource, `requests` or `limits`, and the operation of a new spec: for the metric of requested resizes (§8)."""
    was = {each.name: each.resources for each in all_containers(before.spec)}
    for container in all_containers(after.spec):
        for requirement in ("requests", "limits"):
            old = getattr(was.get(container.name), requirement, None) or {}
            new = getattr(container.resources, requirement) or {}
            for name in (CPU, MEMORY):
                if name in new and name not in old:
                    yield name, requirement, "add"
                elif name in old and name not in new:
                    yield name, requirement, "remove"
                elif name in old and old[name] != new[name]:
                    yield name, requirement, "increase" if new[name] > old[name] else "decrease"


# --- events ---

_ESCAPED = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"})


def _event(reason: str, word: str, pod: Pod, error: str = "", generation: int | None = None) -> LifecycleEvent:
    """`Pod resize started: {…}` with the pod's resources, byte for byte as Go encodes them: empty members are omitted,
    except the resources of a container that has none; names are sorted; `<`, `>` and `&` are escaped."""
    members = {
        "initContainers": [*map(_named, pod.spec.init_containers)],
        "containers": [*map(_named, pod.spec.containers)],
        "generation": pod.metadata.generation if generation is None else generation,
        "error": error,
    }
    text = msgspec.json.encode({name: value for name, value in members.items() if value}).decode().translate(_ESCAPED)
    warns = reason in ("ResizeDeferred", "ResizeInfeasible", "ResizeError")
    return LifecycleEvent(reason, f"Pod resize {word}: {text}", "Warning" if warns else "Normal")


def _named(container: Container) -> dict[str, object]:
    resources = container.resources
    lists = {
        "limits": _texts(resources.limits),
        "requests": _texts(resources.requests),
        "claims": msgspec.to_builtins(resources.claims),
    }
    return {"name": container.name, "resources": {name: each for name, each in lists.items() if each}}


def _texts(amounts: ResourceList | None) -> dict[str, str]:
    return {name: str(amount) for name, amount in sorted((amounts or {}).items())}
