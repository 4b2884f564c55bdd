"""How far a resize has come, read from the pod alone (03 §3.2, §8, §9).

    proposed ──▶ allocated ──▶ kernel ──▶ reported
        └──▶ deferred, infeasible                       ended: no node judges it any more

*Proposed*: the spec asks for it. *Allocated*: the node has accepted. *Kernel*: the runtime reports the new values.
*Reported*: nothing is pending or in progress any more. Profiles tell it differently (`status.resize`, conditions), so
both are looked at.

Values that come back need not be those that went out: runtimes and the kernel round them (§9). So where the node tells
which generation it has seen, what it says is pending or in progress decides alone. Where it does not, a wish for limits
leaves no other trace in the status than the limits themselves, and these are compared as far as rounding goes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

import msgspec

from plimsoll.errors import InvalidQuantityError
from plimsoll.rules.admission.comparison import CONTAINER_KINDS, containers_of, spec_of
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.objects import CPU, MEMORY
from plimsoll.rules.quantity import QUANTITIES, Quantity
from plimsoll.rules.resources.cpu import LEAST_LIMIT_MILLI, SYSTEMD_STEP_MILLI

Stage = Literal["proposed", "deferred", "infeasible", "allocated", "kernel", "reported", "ended"]
STAGES: tuple[Stage, ...] = ("proposed", "allocated", "kernel", "reported")
PENDING, IN_PROGRESS = "PodResizePending", "PodResizeInProgress"
_STATUSES = {"containers": "containerStatuses", "initContainers": "initContainerStatuses"}
_ENDED = ("Succeeded", "Failed")
LARGEST_PAGE_BYTES = 1 << 16  # the kernel rounds limits down to whole pages
_TOLD_BY = ("reason", "message", "lastProbeTime", "observedGeneration")
_VERDICTS: dict[str, Stage] = {"Deferred": "deferred", "Infeasible": "infeasible"}


class ResizeProgress(msgspec.Struct, frozen=True):
    stage: Stage
    message: str = ""  # the node's own words
    restarts: int = 0


Said = tuple[str, ...]


def verdict_said(pod: JsonObject) -> Said:
    """What the status says of a pending resize, to know it again; empty where it says nothing."""
    status: JsonObject = pod.get("status") or {}
    word = str(status.get("resize") or "")
    for each in status.get("conditions") or ():
        if isinstance(each, dict) and each.get("type") == PENDING:
            return (word, *(str(each.get(field)) for field in _TOLD_BY))
    return (word,) if word in _VERDICTS else ()


class _Reading:
    """What the rows of the table ask of one pod."""

    def __init__(self, pod: JsonObject, earlier: Said) -> None:
        self.pod = pod
        self.metadata: JsonObject = pod.get("metadata") or {}
        self.status: JsonObject = pod.get("status") or {}
        self.word = str(self.status.get("resize") or "")
        found = self.status.get("conditions") or ()
        conditions = {str(condition.get("type")): condition for condition in found if isinstance(condition, dict)}
        self.pending, in_progress = conditions.get(PENDING), conditions.get(IN_PROGRESS)
        self.message = str((in_progress or {}).get("message") or "")
        self.is_active = in_progress is not None or self.pending is not None or bool(self.word)
        self.generation = int(self.metadata.get("generation") or 0)
        self.is_outdated = (
            self.word == "Proposed"
            or not _observed(self.status, self.generation)
            or (bool(earlier) and verdict_said(pod) == earlier)
        )
        self.verdict, self.verdict_message = self._verdict()

    def _verdict(self) -> tuple[Stage | None, str]:
        if self.pending is not None and _observed(self.pending, self.generation):
            reason = str(self.pending.get("reason") or self.word)
            if reason in _VERDICTS:
                return _VERDICTS[reason], str(self.pending.get("message") or "")
        return _VERDICTS.get(self.word), ""


_Row = tuple[Callable[[_Reading], bool], Stage, Callable[[_Reading], str]]


def _silent(_reading: _Reading) -> str:
    return ""


# The first row that applies decides.
_ROWS: tuple[_Row, ...] = (
    (lambda it: it.status.get("phase") in _ENDED, "ended", lambda it: f"its phase is {it.status['phase']}"),
    (lambda it: bool(it.metadata.get("deletionTimestamp")), "ended", lambda _: "it is being deleted"),
    (lambda it: not spec_of(it.pod).get("nodeName"), "proposed", lambda _: "it is on no node yet"),
    (lambda it: it.is_outdated, "proposed", _silent),
    (lambda it: it.verdict == "deferred", "deferred", lambda it: it.verdict_message),
    (lambda it: it.verdict == "infeasible", "infeasible", lambda it: it.verdict_message),
    (lambda it: not _all_allocated(it.pod), "proposed", _silent),
    (lambda it: it.is_active and _all_shown(it.pod, requests=True), "kernel", lambda it: it.message),
    (lambda it: it.is_active, "allocated", lambda it: it.message),
    (lambda it: bool(it.status.get("observedGeneration")), "reported", _silent),
    (lambda it: _all_shown(it.pod, requests=False), "reported", _silent),
    (lambda _: True, "proposed", _silent),
)


def progress(pod: JsonObject, earlier: Said = ()) -> ResizeProgress:
    """Of the resize that the pod's spec requests.

    `earlier` is the verdict on the request before this one: as long as the status repeats it, the node has not
    answered. Only in 1.27 is that in question, and only where requests stay the same.
    """
    reading = _Reading(pod, earlier)
    restarts = sum(int(status.get("restartCount") or 0) for status in reading.status.get("containerStatuses") or ())
    stage, message = next((stage, message) for applies, stage, message in _ROWS if applies(reading))
    return ResizeProgress(stage, message(reading), restarts)


def _observed(condition: JsonObject, generation: int) -> bool:
    observed = condition.get("observedGeneration")
    return not observed or int(observed) >= generation


def _all_allocated(pod: JsonObject) -> bool:
    """Does the status show every request as allocated? These are exact."""
    own, status = spec_of(pod).get("resources") or {}, pod.get("status") or {}
    if "allocatedResources" in status and not _same(own.get("requests") or {}, status["allocatedResources"] or {}):
        return False
    return all(
        "allocatedResources" not in shown
        or _same((container.get("resources") or {}).get("requests") or {}, shown["allocatedResources"] or {})
        for container, shown in _running(pod)
    ) and _has_statuses(pod)


def _all_shown(pod: JsonObject, *, requests: bool) -> bool:
    """Does the status show the limits as the kernel would keep them, and the requests? These come back from shares or
    weights: where too much was lost on the way, they never do."""
    whole = _limits(spec_of(pod).get("resources") or {})
    for container, shown in _running(pod):
        if "resources" not in shown:
            continue
        wanted, actual = container.get("resources") or {}, shown["resources"] or {}
        # Without a limit of its own a container has the pod's, and 0 is none.
        limits = {name: each if _amount(each) else whole.get(name, each) for name, each in _limits(wanted).items()}
        if not _kept(limits, _limits(actual)):
            return False
        if requests and not _same(wanted.get("requests") or {}, actual.get("requests") or {}):
            return False
    return _has_statuses(pod)


def _limits(resources: JsonObject) -> JsonObject:
    return resources.get("limits") or {}


def _has_statuses(pod: JsonObject) -> bool:
    known = {each.get("name") for each in (pod.get("status") or {}).get("containerStatuses") or ()}
    return all(container.get("name") in known for container in containers_of(pod, "containers"))


def _running(pod: JsonObject) -> Iterator[tuple[JsonObject, JsonObject]]:
    """Containers that have a status, with it."""
    status: JsonObject = pod.get("status") or {}
    for kind in CONTAINER_KINDS:
        known = {each.get("name"): each for each in status.get(_STATUSES[kind]) or () if isinstance(each, dict)}
        for container in containers_of(pod, kind):
            if container.get("name") in known:
                yield container, known[container.get("name")]


def _same(wanted: Mapping[str, Any], shown: Mapping[str, Any]) -> bool:
    return all(_amount(wanted[name]) == _amount(shown.get(name)) for name in (CPU, MEMORY) if name in wanted)


def _kept(wanted: Mapping[str, Any], shown: Mapping[str, Any]) -> bool:
    """Limits, as far as rounding goes (§9)."""
    cpu, memory = _amount(wanted.get(CPU)), _amount(wanted.get(MEMORY))
    actual_cpu, actual_memory = _amount(shown.get(CPU)), _amount(shown.get(MEMORY))
    return (cpu is None or (actual_cpu is not None and _is_quota_of(cpu, actual_cpu))) and (
        memory is None or (actual_memory is not None and 0 <= memory.value - actual_memory.value < LARGEST_PAGE_BYTES)
    )


def _is_quota_of(wanted: Quantity, shown: Quantity) -> bool:
    """The smallest ones come back as they were asked for, or as the smallest quota."""
    if wanted.milli <= LEAST_LIMIT_MILLI:
        return shown.milli <= LEAST_LIMIT_MILLI
    return -1 <= shown.milli - wanted.milli < SYSTEMD_STEP_MILLI


def _amount(text: Any) -> Quantity | None:
    try:
        return None if text is None else QUANTITIES[str(text)]
    except InvalidQuantityError:
        return None
