"""The timeline of a pod's resizes (03 §5): what its object had after each step, and what that step was in words.

    T0 created · T1 received by the node · T2 running · T3 first resize requested · T4 accepted by the node · …

A step is a change of the requested, allocated or actual resources, or of the state that is reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from plimsoll.rules.model.objects import CPU, MEMORY, ResourceList, Resources
from plimsoll.rules.model.pod_status import RunContainerStatus
from plimsoll.rules.model.runnable import RunPod
from plimsoll.rules.resize.allocation import all_containers

AMOUNTS = ("cpu request", "cpu limit", "memory request", "memory limit")
PROPOSED, IN_PROGRESS, DEFERRED, INFEASIBLE = "Proposed", "InProgress", "Deferred", "Infeasible"
Amounts = tuple[str, ...]  # in the order of AMOUNTS; empty: none
_NONE: Amounts = ("", "", "", "")
_CONDITIONS = {"PodResizePending": "", "PodResizeInProgress": IN_PROGRESS}


class ResizeRow(msgspec.Struct, frozen=True):
    """One row of the table of document 003, for every container by its name. `state`: of the profile's own words."""

    spec: dict[str, Amounts]
    allocated: dict[str, Amounts]
    actual: dict[str, Amounts]
    state: str = ""
    message: str = ""


def resize_row(pod: RunPod) -> ResizeRow:
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    state, message = _state(pod)
    return ResizeRow(
        {each.name: _amounts(each.resources) for each in all_containers(pod.spec)},
        dict(_allocated(statuses)),
        {each.name: _amounts(each.resources) for each in statuses if each.resources is not None},
        state,
        message,
    )


def _allocated(statuses: Iterable[RunContainerStatus]) -> Iterable[tuple[str, Amounts]]:
    for each in statuses:
        if (found := each.allocated_resources) is not None:
            yield each.name, (_text(found, CPU), "", _text(found, MEMORY), "")


def _amounts(resources: Resources) -> Amounts:
    requests, limits = resources.requests or {}, resources.limits or {}
    return _text(requests, CPU), _text(limits, CPU), _text(requests, MEMORY), _text(limits, MEMORY)


def _text(amounts: ResourceList, name: str) -> str:
    return str(amounts[name]) if name in amounts else ""


def _state(pod: RunPod) -> tuple[str, str]:
    """`status.resize`, or what the conditions of later releases say; a pending resize before one in progress."""
    found = {each.type: each for each in pod.status.conditions if each.type in _CONDITIONS and each.status == "True"}
    message = next((found[name].message for name in _CONDITIONS if name in found and found[name].message), "")
    for name, word in _CONDITIONS.items():
        if not pod.status.resize and name in found:
            return word or found[name].reason, message
    return pod.status.resize, message


def is_resize(before: ResizeRow, after: ResizeRow) -> bool:
    return before.spec != after.spec or (after.state != "" and before.state != after.state)


def step_words(before: ResizeRow, after: ResizeRow) -> str:
    """What happened from one row to the next."""
    parts = []
    if before.spec != after.spec:
        parts.append(f"resize requested: {_changes(before.spec, after.spec)}")
    if after.state in (DEFERRED, INFEASIBLE) and before.state != after.state:
        parts.append(f"{after.state}: {after.message}" if after.message else after.state)
    if before.allocated != after.allocated and after.allocated:
        words = "accepted by the node" if before.allocated else "allocated"
        parts.append(f"{words}: {_changes(before.allocated, after.allocated)}")
    if before.actual != after.actual:
        if not before.actual:
            parts.append("running")
        elif after.actual:
            parts.append(f"applied: {_changes(before.actual, after.actual)}")
        else:
            parts.append("not running")
    if not parts and before.state != after.state:
        parts.append(after.state or "nothing is pending any more")
    return "; ".join(parts) or "the message of the node has changed"


def _changes(before: Mapping[str, Amounts], after: Mapping[str, Amounts]) -> str:
    found = []
    for name in sorted({*before, *after}):
        old, new = before.get(name, _NONE), after.get(name, _NONE)
        changed = [
            f"{amount} {was or 'none'} → {now or 'none'}" if was else f"{amount} {now}"
            for amount, was, now in zip(AMOUNTS, old, new, strict=True)
            if was != now
        ]
        if changed:
            found.append(f"{f'{name}: ' if len(after) > 1 else ''}{', '.join(changed)}")
    return "; ".join(found) or "unchanged"
