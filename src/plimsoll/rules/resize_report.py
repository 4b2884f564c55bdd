"""What is told of a resize: the two conditions, `status.resize`, and events (spec 03 §2, §3.2, §8).

A resize leaves two marks on a pod. *Pending*: the spec asks for something else than what is allocated, with the node's
last verdict on it. *In progress*: what is allocated is not yet what the runtime was given. Both may stand at once: an
accepted resize still on its way, and a newer one that has to wait. `ResizeMarks` is both, a frozen value that each step
replaces; the conditions are computed from it, and after a restart of the agent it is read back from them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

from plimsoll.rules.allocation import all_containers
from plimsoll.rules.civil_time import epoch_s, utc_text
from plimsoll.rules.objects import CPU, MEMORY, Container, Pod
from plimsoll.rules.pod_seen import LifecycleEvent
from plimsoll.rules.profile import Profile
from plimsoll.rules.resize import ResizeVerdict
from plimsoll.rules.run_status import RunCondition

PENDING, IN_PROGRESS = "PodResizePending", "PodResizeInProgress"
DEFERRED, INFEASIBLE, ERROR = "Deferred", "Infeasible", "Error"
PROPOSED, WORKING = "Proposed", "InProgress"


class PendingMark(msgspec.Struct, frozen=True):
    reason: Literal["Deferred", "Infeasible"]
    message: str
    generation: int  # of the spec that was judged
    since_s: float | None = None  # None: as long as the API says


class ProgressMark(msgspec.Struct, frozen=True):
    generation: int  # of the spec that was accepted
    since_s: float
    error: str = ""


class ResizeMarks(msgspec.Struct, frozen=True):
    pending: PendingMark | None = None
    progress: ProgressMark | None = None


NO_MARKS = ResizeMarks()


def judged(
    marks: ResizeMarks, pod: Pod, verdict: ResizeVerdict, now_s: float
) -> tuple[ResizeMarks, LifecycleEvent | None]:
    """After the node's verdict on the newest spec: the marks, and an event where the verdict is news."""
    generation = pod.metadata.generation
    if verdict.decision == "NoChange":
        return msgspec.structs.replace(marks, pending=None), None
    if verdict.decision == "Accepted":
        return ResizeMarks(progress=ProgressMark(generation, now_s)), _event("ResizeStarted", "started", pod)
    before = marks.pending
    same = before is not None and before.reason == verdict.decision
    mark = PendingMark(
        verdict.decision, verdict.message, generation, before.since_s if same and before is not None else now_s
    )
    event = None
    if not same or before is None or before.generation != generation:
        word = verdict.reason if verdict.decision == DEFERRED else INFEASIBLE
        event = _event(f"Resize{verdict.decision}", word, pod, verdict.message)
    return msgspec.structs.replace(marks, pending=mark), event


def finished(marks: ResizeMarks, pod: Pod) -> tuple[ResizeMarks, LifecycleEvent | None]:
    """Everything allocated was handed to the runtime."""
    if marks.progress is None:
        return marks, None
    return msgspec.structs.replace(marks, progress=None), _event("ResizeCompleted", "completed", pod)


def failed(marks: ResizeMarks, pod: Pod, error: str, now_s: float) -> tuple[ResizeMarks, LifecycleEvent | None]:
    """The last attempt to hand it over did not go well; it will be tried again."""
    before = marks.progress or ProgressMark(pod.metadata.generation, now_s)
    mark = msgspec.structs.replace(before, error=error)
    event = _event("ResizeError", "error", pod, error) if before.error != error else None
    return msgspec.structs.replace(marks, progress=mark), event


def resize_conditions(marks: ResizeMarks, profile: Profile) -> tuple[RunCondition, ...]:
    """Only those that hold: a resize condition is True or absent."""
    found = []
    numbered = profile.pod_observed_generation
    if (pending := marks.pending) is not None:
        generation = pending.generation if numbered else 0
        since = None if pending.since_s is None else utc_text(pending.since_s)
        found.append(RunCondition(PENDING, "True", pending.reason, pending.message, None, since, generation))
    if (progress := marks.progress) is not None:
        generation = progress.generation if numbered else 0
        reason = ERROR if progress.error else ""
        since = utc_text(progress.since_s)
        found.append(RunCondition(IN_PROGRESS, "True", reason, progress.error, None, since, generation))
    return tuple(found)


def resize_word(marks: ResizeMarks, pod: Pod, profile: Profile) -> str:
    """`status.resize`, where the profile has it. A verdict on an older spec does not count: that one is Proposed."""
    if not profile.resize_status_field:
        return ""
    if marks.pending is not None:
        return marks.pending.reason if marks.pending.generation == pod.metadata.generation else PROPOSED
    return WORKING if marks.progress is not None else ""


def marks_of(conditions: Iterable[RunCondition], generation: int, now_s: float) -> ResizeMarks:
    """What an earlier agent has told the API."""
    marks = NO_MARKS
    for each in conditions:
        if each.type == PENDING and each.status == "True" and each.reason in (DEFERRED, INFEASIBLE):
            reason: Literal["Deferred", "Infeasible"] = "Deferred" if each.reason == DEFERRED else "Infeasible"
            since_s = epoch_s(each.last_transition_time)
            mark = PendingMark(reason, each.message, each.observed_generation or generation, since_s)
            marks = msgspec.structs.replace(marks, pending=mark)
        elif each.type == IN_PROGRESS and each.status == "True":
            begun_s = epoch_s(each.last_transition_time)
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


class _Named(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    resources: object


class _Told(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    init_containers: tuple[_Named, ...] = ()
    containers: tuple[_Named, ...] = ()
    generation: int = 0
    error: str = ""


def _event(reason: str, word: str, pod: Pod, error: str = "") -> LifecycleEvent:
    """`Pod resize started: {…}` with what was asked for."""
    told = _Told(
        tuple(map(_named, filter(_has_resources, pod.spec.init_containers))),
        tuple(map(_named, pod.spec.containers)),
        pod.metadata.generation,
        error,
    )
    text = msgspec.json.encode(told, enc_hook=str).decode()
    warns = reason in ("ResizeDeferred", "ResizeInfeasible", "ResizeError")
    return LifecycleEvent(reason, f"Pod resize {word}: {text}", "Warning" if warns else "Normal")


def _named(container: Container) -> _Named:
    return _Named(container.name, container.resources)


def _has_resources(container: Container) -> bool:
    return bool(container.resources.requests or container.resources.limits)
