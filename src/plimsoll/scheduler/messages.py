"""The objects and patches that the scheduler sends to the API server (05 A4, A5; 06 E9)."""

from __future__ import annotations

from typing import Any

from plimsoll.rules.model.names import event_name
from plimsoll.rules.model.objects import Pod
from plimsoll.rules.scheduling.cycle import DISRUPTION_MESSAGE
from plimsoll.rules.scheduling.preemption import PREEMPTED_REASON

SCHEDULER = "default-scheduler"


def binding(pod: Pod, node: str) -> dict[str, Any]:
    metadata = pod.metadata
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": metadata.name, "namespace": metadata.namespace, "uid": metadata.uid},
        "target": {"kind": "Node", "name": node},
    }


def unschedulable(pod: Pod, message: str, now: str, *, generation: int | None, nominated: str | None) -> dict[str, Any]:
    """A patch of the status. `nominated`: the nominated node; `""` clears it, None keeps it."""
    status: dict[str, Any] = {
        "conditions": [_condition("PodScheduled", "False", "Unschedulable", message, now, generation)]
    }
    if nominated is not None:
        status["nominatedNodeName"] = nominated or None
    return {"metadata": {"uid": pod.metadata.uid}, "status": status}


def disruption(victim: Pod, now: str, *, generation: int | None) -> dict[str, Any]:
    condition = _condition("DisruptionTarget", "True", PREEMPTED_REASON, DISRUPTION_MESSAGE, now, generation)
    return {"metadata": {"uid": victim.metadata.uid}, "status": {"conditions": [condition]}}


def _condition(type_: str, status: str, reason: str, message: str, now: str, generation: int | None) -> dict[str, Any]:
    times = {"lastProbeTime": None, "lastTransitionTime": now}
    observed = {} if generation is None else {"observedGeneration": generation}
    return {"type": type_, "status": status, **times, "reason": reason, "message": message, **observed}


def no_nomination(pod: Pod) -> dict[str, Any]:
    return {"metadata": {"uid": pod.metadata.uid}, "status": {"nominatedNodeName": None}}


def event(
    pod: Pod, at_ns: int, kind: str, reason: str, action: str, note: str, now: str, host: str, version: str
) -> dict[str, Any]:
    """An events.k8s.io/v1 event; `now` has microseconds."""
    metadata = pod.metadata
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": event_name(metadata.name, at_ns), "namespace": metadata.namespace},
        "eventTime": now,
        "type": kind,
        "reason": reason,
        "action": action,
        "note": note,
        "regarding": {
            "kind": "Pod",
            "namespace": metadata.namespace,
            "name": metadata.name,
            "uid": metadata.uid,
            "apiVersion": "v1",
            "resourceVersion": version,
        },
        "reportingController": SCHEDULER,
        "reportingInstance": f"{SCHEDULER}-{host}",
    }


def repeated(count: int, now: str) -> dict[str, Any]:
    return {"series": {"count": count, "lastObservedTime": now}}
