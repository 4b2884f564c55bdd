"""What is told of a resize: the two conditions, `status.resize`, and events (spec 03 §2, §3.2, §8).

A resize leaves two marks on a pod. *Pending*: the spec asks for something else than what is allocated, with the node's
last verdict on it. *In progress*: what is allocated is not yet what the runtime was given. Both may stand at once: an
accepted resize still on its way, and a newer one that has to wait. `ResizeConditions` is both, a frozen value that each
step replaces; the conditions are computed from it, and after a restart of the agent it is read back from them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

from plimsoll.rules.model.objects import CPU, MEMORY, Container, Pod, ResourceList
from plimsoll.rules.model.observed import LifecycleEvent
from plimsoll.rules.model.pod_status import RunCondition
from plimsoll.rules.profile import Profile
from plimsoll.rules.resize.allocation import Allocation, all_containers, is_allocated
from plimsoll.rules.resize.verdict import ResizeVerdict
from plimsoll.rules.timestamps import epoch_seconds, rfc3339

PENDING, IN_PROGRESS = "PodResizePending", "PodResizeInProgress"
DEFERRED, INFEASIBLE, ERROR = "Deferred", "Infeasible", "Error"
PROPOSED, WORKING = "Proposed", "InProgress"


class PendingMark(msgspec.Struct, frozen=True):
    reason: Literal["Deferred", "Infeasible"]
    message: str
    generation: int  # of the spec that was judged
    since_s: float | None = None  # None: as long as the API says
    probed_s: float | None = None  # when it was judged last
    wanted: Allocation | None = None  # the sizes that were judged; None where an earlier agent has done that


class ProgressMark(msgspec.Struct, frozen=True):
    generation: int  # of the spec that was accepted
    since_s: float
    error: str = ""


class ResizeConditions(msgspec.Struct, frozen=True):
    pending: PendingMark | None = None
    progress: ProgressMark | None = None


NO_MARKS = ResizeConditions()


def judged(
    marks: ResizeConditions, pod: Pod, verdict: ResizeVerdict, now_s: float
) -> tuple[ResizeConditions, LifecycleEvent | None]:
    """After the node's verdict on the newest spec: the marks, and an event where the verdict is news."""
    generation = pod.metadata.generation
    if verdict.decision == "NoChange":
        return msgspec.structs.replace(marks, pending=None), None
    if verdict.decision == "Accepted":
        return ResizeConditions(progress=ProgressMark(generation, now_s)), _event("ResizeStarted", "started", pod)
    before = marks.pending
    same = before is not None and before.reason == verdict.decision
    since_s = before.since_s if same and before is not None else now_s
    mark = PendingMark(verdict.decision, verdict.message, generation, since_s, now_s, _wanted(pod))
    event = None
    if not same or before is None or before.generation != generation:
        word = verdict.reason if verdict.decision == DEFERRED else INFEASIBLE
        event = _event(f"Resize{verdict.decision}", word, pod, verdict.message)
    return msgspec.structs.replace(marks, pending=mark), event


def _wanted(pod: Pod) -> Allocation:
    """Whatever a resize may touch; a change of anything else leaves the verdict as it is."""
    return Allocation({each.name: each.resources for each in all_containers(pod.spec)}, True, pod.spec.resources)


def is_news(before: ResizeConditions, after: ResizeConditions) -> bool:
    """Whether the pod's status is to be told anew: not for a verdict that was only repeated."""
    return _lasting(before) != _lasting(after)


def _lasting(marks: ResizeConditions) -> ResizeConditions:
    if marks.pending is None:
        return marks
    return msgspec.structs.replace(marks, pending=msgspec.structs.replace(marks.pending, probed_s=None))


def finished(marks: ResizeConditions, pod: Pod) -> tuple[ResizeConditions, LifecycleEvent | None]:
    """Everything allocated was handed to the runtime; `pod` is the allocated one."""
    if marks.progress is None:
        return marks, None
    event = _event("ResizeCompleted", "completed", pod, generation=marks.progress.generation)
    return msgspec.structs.replace(marks, progress=None), event


def failed(
    marks: ResizeConditions, pod: Pod, error: str, now_s: float
) -> tuple[ResizeConditions, LifecycleEvent | None]:
    """The last attempt to hand it over did not go well; it will be tried again. `pod` is the allocated one."""
    before = marks.progress or ProgressMark(pod.metadata.generation, now_s)
    mark = msgspec.structs.replace(before, error=error)
    event = _event("ResizeError", "error", pod, error, before.generation) if before.error != error else None
    return msgspec.structs.replace(marks, progress=mark), event


def resize_conditions(marks: ResizeConditions, profile: Profile) -> tuple[RunCondition, ...]:
    """Only those that hold: a resize condition is True or absent."""
    found = []
    numbered = profile.pod_observed_generation
    if (pending := marks.pending) is not None:
        generation = pending.generation if numbered else 0
        probed, since = (None if each is None else rfc3339(each) for each in (pending.probed_s, pending.since_s))
        found.append(RunCondition(PENDING, "True", pending.reason, pending.message, probed, since, generation))
    if (progress := marks.progress) is not None:
        generation = progress.generation if numbered else 0
        reason = ERROR if progress.error else ""
        since = rfc3339(progress.since_s)
        found.append(RunCondition(IN_PROGRESS, "True", reason, progress.error, None, since, generation))
    return tuple(found)


def resize_word(marks: ResizeConditions, pod: Pod, profile: Profile) -> str:
    """`status.resize` of a pod with this spec, where the profile has it. A verdict on other sizes does not count: then
    the wish is Proposed, as the API server has marked it."""
    if not profile.resize_status_field:
        return ""
    if (pending := marks.pending) is None:
        return WORKING if marks.progress is not None else ""
    is_judged = pod.status.resize != PROPOSED if pending.wanted is None else is_allocated(pod, pending.wanted)
    return pending.reason if is_judged else PROPOSED


def marks_of(conditions: Iterable[RunCondition], generation: int, now_s: float) -> ResizeConditions:
    """What an earlier agent has told the API."""
    marks = NO_MARKS
    for each in conditions:
        if each.type == PENDING and each.status == "True" and each.reason in (DEFERRED, INFEASIBLE):
            reason: Literal["Deferred", "Infeasible"] = "Deferred" if each.reason == DEFERRED else "Infeasible"
            since_s = epoch_seconds(each.last_transition_time)
            probed_s = epoch_seconds(each.last_probe_time)
            mark = PendingMark(reason, each.message, each.observed_generation or generation, since_s, probed_s)
            marks = msgspec.structs.replace(marks, pending=mark)
        elif each.type == IN_PROGRESS and each.status == "True":
            begun_s = epoch_seconds(each.last_transition_time)
            progress = ProgressMark(
                each.observed_generation or generation, now_s if begun_s is None else begun_s, each.message
            )
            marks = msgspec.structs.replace(marks, progress=progress)
    return marks


# --- what was asked for ---


def operations(before: Pod, after: Pod) -> Iterator[tuple[str, str, str]]:
    """Resource, `requests` or `limits`, and what a new spec does to it: for the count of requested resizes (§8)."""
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
    """`Pod resize started: {…}` with the pod's sizes, letter by letter as Go writes them: empty members are left out,
    but not the resources of a container that has none; names in order; `<`, `>` and `&` escaped."""
    told = {
        "initContainers": [*map(_named, pod.spec.init_containers)],
        "containers": [*map(_named, pod.spec.containers)],
        "generation": pod.metadata.generation if generation is None else generation,
        "error": error,
    }
    text = msgspec.json.encode({name: value for name, value in told.items() if value}).decode().translate(_ESCAPED)
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
