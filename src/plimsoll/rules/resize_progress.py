"""How far a resize has come, read from the pod alone (03 §3.2, §8, §9).

    proposed ──▶ allocated ──▶ kernel ──▶ reported
        └──▶ deferred, infeasible

*Proposed*: the spec asks for it. *Allocated*: the node has accepted. *Kernel*: the runtime reports the new values.
*Reported*: nothing is pending or in progress any more. Profiles tell it differently (`status.resize`, conditions), so
both are looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from plimsoll.errors import InvalidQuantity
from plimsoll.rules.objects import CPU, MEMORY
from plimsoll.rules.quantity import QUANTITIES, Quantity
from plimsoll.rules.versions import CONTAINER_KINDS, LISTS, Document, containers_of

Stage = Literal["proposed", "deferred", "infeasible", "allocated", "kernel", "reported"]
STAGES: tuple[Stage, ...] = ("proposed", "allocated", "kernel", "reported")
PENDING, IN_PROGRESS = "PodResizePending", "PodResizeInProgress"
_STATUSES = {"containers": "containerStatuses", "initContainers": "initContainerStatuses"}
_VERDICTS: dict[str, Stage] = {"Deferred": "deferred", "Infeasible": "infeasible"}


class Progress(msgspec.Struct, frozen=True):
    stage: Stage
    message: str = ""  # the node's own words
    restarts: int = 0


def progress(pod: Document) -> Progress:
    """Of the resize that the pod's spec asks for."""
    status: Document = pod.get("status") or {}
    conditions = {str(each.get("type")): each for each in status.get("conditions") or () if isinstance(each, dict)}
    generation = int((pod.get("metadata") or {}).get("generation") or 0)
    restarts = sum(int(each.get("restartCount") or 0) for each in status.get("containerStatuses") or ())
    pending, going = conditions.get(PENDING), conditions.get(IN_PROGRESS)
    word = str(status.get("resize") or "")
    # Whatever was said of an earlier wish is not about this one.
    if word == "Proposed" or not _observed(status, generation):
        return Progress("proposed", "", restarts)
    if pending is not None and _observed(pending, generation):
        reason = str(pending.get("reason") or status.get("resize") or "")
        if reason in _VERDICTS:
            return Progress(_VERDICTS[reason], str(pending.get("message") or ""), restarts)
    if word in _VERDICTS:
        return Progress(_VERDICTS[word], "", restarts)
    if not _all(pod, "allocatedResources"):
        return Progress("proposed", "", restarts)
    message = str((going or {}).get("message") or "")
    if not _all(pod, "resources"):
        return Progress("allocated", message, restarts)
    done = going is None and pending is None and not word
    return Progress("reported" if done else "kernel", message, restarts)


def _observed(condition: Document, generation: int) -> bool:
    observed = condition.get("observedGeneration")
    return not observed or int(observed) >= generation


def _all(pod: Document, field: str) -> bool:
    """Does every running container's status show what its spec asks for? A container without a status shows nothing
    yet; a status without the field says nothing about it."""
    status: Document = pod.get("status") or {}
    for kind in CONTAINER_KINDS:
        known = {each.get("name"): each for each in status.get(_STATUSES[kind]) or () if isinstance(each, dict)}
        for container in containers_of(pod, kind):
            found = known.get(container.get("name"))
            if found is None:
                if kind == "containers":
                    return False
                continue
            if field in found and not _shows(container.get("resources") or {}, found[field] or {}, field):
                return False
    return True


def _shows(wanted: Document, shown: Document, field: str) -> bool:
    if field == "allocatedResources":
        return _same(wanted.get("requests") or {}, shown)
    return all(_same(wanted.get(kind) or {}, shown.get(kind) or {}) for kind in LISTS)


def _same(wanted: Mapping[str, Any], shown: Mapping[str, Any]) -> bool:
    return all(_amount(wanted[name]) == _amount(shown.get(name)) for name in (CPU, MEMORY) if name in wanted)


def _amount(text: Any) -> Quantity | None:
    try:
        return None if text is None else QUANTITIES[str(text)]
    except InvalidQuantity:
        return None
