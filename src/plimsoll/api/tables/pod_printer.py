"""One line of `kubectl get pods`: READY, STATUS and RESTARTS, rule by rule (05 B7)."""

from __future__ import annotations

from typing import Any

import msgspec

from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.timestamps import epoch_seconds, human_duration

NONE = "<none>"
_ENDED = {
    "Succeeded": ("Succeeded", "The pod has completed successfully."),
    "Failed": ("Failed", "The pod failed."),
}


class _Shown(msgspec.Struct):
    """What the walk over container statuses collects."""

    reason: str
    ready: int = 0
    restarts: int = 0
    last_restart_s: float | None = None

    def count_restarts(self, status: JsonObject) -> None:
        self.restarts += status.get("restartCount") or 0
        ended = epoch_seconds(part(status, "lastState", "terminated").get("finishedAt"))
        if ended is not None and (self.last_restart_s is None or ended > self.last_restart_s):
            self.last_restart_s = ended


def pod_cells(pod: JsonObject, now_s: float) -> list[Any]:
    """Ready, Status, Restarts, then the wide ones: IP, Node, Nominated Node, Readiness Gates."""
    spec, status = part(pod, "spec"), part(pod, "status")
    shown = _walked(spec, status)
    total = len(_items(spec, "containers")) + len(_sidecar_names(spec))
    restarts = str(shown.restarts)
    if shown.restarts and shown.last_restart_s is not None:
        restarts = f"{restarts} ({human_duration(now_s - shown.last_restart_s)} ago)"
    ips = _items(status, "podIPs")
    return [
        f"{shown.ready}/{total}",
        _with_deletion(shown.reason, pod, status),
        restarts,
        (ips[0].get("ip") if ips else status.get("podIP")) or NONE,
        spec.get("nodeName") or NONE,
        status.get("nominatedNodeName") or NONE,
        _readiness_gates(spec, status),
    ]


def pod_conditions(pod: JsonObject) -> list[JsonObject]:
    """Of the row, not of the pod: kubectl omits finished pods from some views by them."""
    ended = _ENDED.get(part(pod, "status").get("phase") or "")
    if ended is None:
        return []
    return [{"type": "Completed", "status": "True", "reason": ended[0], "message": ended[1]}]


def _walked(spec: JsonObject, status: JsonObject) -> _Shown:
    reason = status.get("reason") or status.get("phase") or ""
    conditions = _items(status, "conditions")
    if any(
        condition.get("type") == "PodScheduled" and condition.get("reason") == "SchedulingGated"
        for condition in conditions
    ):
        reason = "SchedulingGated"
    sidecar_names = _sidecar_names(spec)
    initializing, of_sidecars = _Shown(reason), _Shown(reason)
    still = False
    for index, container in enumerate(_items(status, "initContainerStatuses")):
        is_sidecar = container.get("name") in sidecar_names
        initializing.count_restarts(container)
        if is_sidecar:
            of_sidecars.count_restarts(container)
        terminated, waiting = part(container, "state", "terminated"), part(container, "state", "waiting")
        has_ended = _present(container, "state", "terminated")
        if has_ended and not terminated.get("exitCode"):
            continue
        if is_sidecar and container.get("started"):
            initializing.ready += bool(container.get("ready"))
            continue
        still = True
        if has_ended:
            initializing.reason = f"Init:{_end_reason(terminated)}"
        elif waiting.get("reason") not in (None, "", "PodInitializing"):
            initializing.reason = f"Init:{waiting['reason']}"
        else:
            initializing.reason = f"Init:{index}/{len(_items(spec, 'initContainers'))}"
        break
    if still and not _is_true(conditions, "Initialized"):
        return initializing
    of_sidecars.ready = initializing.ready
    of_sidecars.reason = initializing.reason
    return _running(of_sidecars, status, conditions)


def _sidecar_names(spec: JsonObject) -> list[str]:
    containers = _items(spec, "initContainers")
    return [container.get("name") or "" for container in containers if container.get("restartPolicy") == "Always"]


def _running(shown: _Shown, status: JsonObject, conditions: list[JsonObject]) -> _Shown:
    """From the last container to the first, so that the first one with a reason wins."""
    some_run, failure = False, ""
    for container in reversed(_items(status, "containerStatuses")):
        shown.count_restarts(container)
        waiting, terminated = part(container, "state", "waiting"), part(container, "state", "terminated")
        if waiting.get("reason"):
            shown.reason = waiting["reason"]
        elif _present(container, "state", "terminated"):
            shown.reason = _end_reason(terminated)
            if terminated.get("exitCode"):
                failure = shown.reason
        elif container.get("ready") and _present(container, "state", "running"):
            some_run = True
            shown.ready += 1
    if shown.reason == "Completed":
        if some_run and _is_true(conditions, "Ready"):
            shown.reason = "Running"
        elif failure:
            shown.reason = failure
        elif some_run:
            shown.reason = "NotReady"
    return shown


def _end_reason(terminated: JsonObject) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode') or 0}"


def _with_deletion(reason: str, pod: JsonObject, status: JsonObject) -> str:
    if not part(pod, "metadata").get("deletionTimestamp"):
        return reason
    if status.get("reason") == "NodeLost":
        return "Unknown"
    return reason if status.get("phase") in _ENDED else "Terminating"


def _readiness_gates(spec: JsonObject, status: JsonObject) -> str:
    gates = _items(spec, "readinessGates")
    if not gates:
        return NONE
    conditions = _items(status, "conditions")
    met = sum(1 for gate in gates if _is_true(conditions, gate.get("conditionType")))
    return f"{met}/{len(gates)}"


def _is_true(conditions: list[JsonObject], type_: str | None) -> bool:
    return any(condition.get("type") == type_ and condition.get("status") == "True" for condition in conditions)


def _present(document: JsonObject, outer: str, inner: str) -> bool:
    return (document.get(outer) or {}).get(inner) is not None


def part(document: JsonObject, *path: str) -> JsonObject:
    for step in path:
        document = document.get(step) or {}
    return document


def _items(document: JsonObject, field: str) -> list[JsonObject]:
    return document.get(field) or []
