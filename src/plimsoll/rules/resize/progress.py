"""The progress of a resize, read from the pod alone (03 §3.2, §8, §9).

    proposed ──▶ allocated ──▶ kernel ──▶ reported
        └──▶ deferred, infeasible                       ended: no node judges it any more

*Proposed*: the spec requests it. *Allocated*: the node has accepted. *Kernel*: the runtime reports the new values.
*Reported*: nothing is pending or in progress. Profiles report this differently (`status.resize`, conditions), so both
are read.

Reported values may differ from the requested ones: runtimes and the kernel round them (§9). If the node reports the
observed generation, its pending and in-progress conditions alone decide. If it does not, new limits leave no trace in
the status other than the limits themselves, and these are compared with tolerance for rounding.
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
PENDING, IN_PROGRESS = "PodResizePending", "PodResizeInProgress"
ENFORCED = "Enforced"  # Plimsoll's own condition, False on a node that cannot write cgroups
_STATUSES = {"containers": "containerStatuses", "initContainers": "initContainerStatuses"}
_ENDED = ("Succeeded", "Failed")
LARGEST_PAGE_BYTES = 1 << 16  # the kernel rounds limits down to whole pages
_VERDICT_FIELDS = ("reason", "message", "lastProbeTime", "observedGeneration")
_VERDICTS: dict[str, Stage] = {"Deferred": "deferred", "Infeasible": "infeasible"}


class ResizeProgress(msgspec.Struct, frozen=True):
    stage: Stage
    message: str = ""  # of the node
    restarts: int = 0
    unenforced: str = ""  # why the node writes no limits; empty if it does


PendingVerdict = tuple[str, ...]


def pending_verdict(pod: JsonObject) -> PendingVerdict:
    """The verdict in the status, to compare with a later one; empty if there is none."""
    status: JsonObject = pod.get("status") or {}
    word = str(status.get("resize") or "")
    for condition in status.get("conditions") or ():
        if isinstance(condition, dict) and condition.get("type") == PENDING:
            return (word, *(str(condition.get(field)) for field in _VERDICT_FIELDS))
    return (word,) if word in _VERDICTS else ()


class _Reading:
    """What the rows of the table ask of one pod."""

    def __init__(self, pod: JsonObject, earlier: PendingVerdict) -> None:
        self.pod = pod
        self.metadata: JsonObject = pod.get("metadata") or {}
        self.status: JsonObject = pod.get("status") or {}
        self.word = str(self.status.get("resize") or "")
        found = self.status.get("conditions") or ()
        conditions = {str(condition.get("type")): condition for condition in found if isinstance(condition, dict)}
        self.pending, in_progress = conditions.get(PENDING), conditions.get(IN_PROGRESS)
        self.message = str((in_progress or {}).get("message") or "")
        enforced = conditions.get(ENFORCED) or {}
        self.unenforced = str(enforced.get("message") or "") if enforced.get("status") == "False" else ""
        self.is_active = in_progress is not None or self.pending is not None or bool(self.word)
        self.generation = int(self.metadata.get("generation") or 0)
        self.is_outdated = (
            self.word == "Proposed"
            or not _observed(self.status, self.generation)
            or (bool(earlier) and pending_verdict(pod) == earlier)
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
    (lambda it: not spec_of(it.pod).get("nodeName"), "proposed", lambda _: "it is not scheduled yet"),
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


def progress(pod: JsonObject, earlier: PendingVerdict = ()) -> ResizeProgress:
    """Of the resize that the pod's spec requests.

    `earlier` is the verdict on the request before this one: as long as the status repeats it, the node has not
    answered. Only in `documents` is that in question, and only where requests stay the same.
    """
    reading = _Reading(pod, earlier)
    restarts = sum(int(status.get("restartCount") or 0) for status in reading.status.get("containerStatuses") or ())
    stage, message = next((stage, message) for applies, stage, message in _ROWS if applies(reading))
    return ResizeProgress(stage, message(reading), restarts, reading.unenforced)


def _observed(condition: JsonObject, generation: int) -> bool:
    observed = condition.get("observedGeneration")
    return not observed or int(observed) >= generation


def _all_allocated(pod: JsonObject) -> bool:
    """Whether the status shows every request as allocated; these values are exact."""
    own, status = spec_of(pod).get("resources") or {}, pod.get("status") or {}
    if "allocatedResources" in status and not _same(own.get("requests") or {}, status["allocatedResources"] or {}):
        return False
    return all(
        "allocatedResources" not in shown
        or _same((container.get("resources") or {}).get("requests") or {}, shown["allocatedResources"] or {})
        for container, shown in _running(pod)
    ) and _has_statuses(pod)


def _all_shown(pod: JsonObject, *, requests: bool) -> bool:
    """Whether the status shows the limits as the kernel rounds them, and the requests. Requests are read back from
    shares or weights: if too much precision was lost, they never match."""
    whole = _limits(spec_of(pod).get("resources") or {})
    for container, shown in _running(pod):
        if "resources" not in shown:
            continue
        wanted, actual = container.get("resources") or {}, shown["resources"] or {}
        # A container without a limit has the pod's; 0 is no limit.
        limits = {name: each if _amount(each) else whole.get(name, each) for name, each in _limits(wanted).items()}
        if not _kept(limits, _limits(actual)):
            return False
        if requests and not _same(wanted.get("requests") or {}, actual.get("requests") or {}):
            return False
    return _has_statuses(pod)


def _limits(resources: JsonObject) -> JsonObject:
    return resources.get("limits") or {}


def _has_statuses(pod: JsonObject) -> bool:
    known = {status.get("name") for status in (pod.get("status") or {}).get("containerStatuses") or ()}
    return all(container.get("name") in known for container in containers_of(pod, "containers"))


def _running(pod: JsonObject) -> Iterator[tuple[JsonObject, JsonObject]]:
    """Containers that have a status, with that status."""
    status: JsonObject = pod.get("status") or {}
    for kind in CONTAINER_KINDS:
        known = {each.get("name"): each for each in status.get(_STATUSES[kind]) or () if isinstance(each, dict)}
        for container in containers_of(pod, kind):
            if container.get("name") in known:
                yield container, known[container.get("name")]


def _same(wanted: Mapping[str, Any], shown: Mapping[str, Any]) -> bool:
    return all(_amount(wanted[name]) == _amount(shown.get(name)) for name in (CPU, MEMORY) if name in wanted)


def _kept(wanted: Mapping[str, Any], shown: Mapping[str, Any]) -> bool:
    """Whether limits agree after rounding (§9)."""
    cpu, memory = _amount(wanted.get(CPU)), _amount(wanted.get(MEMORY))
    actual_cpu, actual_memory = _amount(shown.get(CPU)), _amount(shown.get(MEMORY))
    return (cpu is None or (actual_cpu is not None and _is_quota_of(cpu, actual_cpu))) and (
        memory is None or (actual_memory is not None and 0 <= memory.value - actual_memory.value < LARGEST_PAGE_BYTES)
    )


def _is_quota_of(wanted: Quantity, shown: Quantity) -> bool:
    """The smallest limits are reported as requested, or as the smallest quota."""
    if wanted.milli <= LEAST_LIMIT_MILLI:
        return shown.milli <= LEAST_LIMIT_MILLI
    return -1 <= shown.milli - wanted.milli < SYSTEMD_STEP_MILLI


def _amount(text: Any) -> Quantity | None:
    try:
        return None if text is None else QUANTITIES[str(text)]
    except InvalidQuantityError:
        return None
