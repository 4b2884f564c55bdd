"""Pods, nodes and events as the dashboard shows them: the few fields that it needs, and what changed since last time.

A kind is listed where the store has a change of it; records are compared by their version, so that only a changed
object is decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from plimsoll.api.machinery.cluster import Cluster, decoded, prefix
from plimsoll.api.machinery.kinds import stored_resource
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.timestamps import epoch_seconds

MOST_EVENTS = 300
Shown = dict[str, Any]


def pod_shown(pod: JsonObject) -> Shown:
    metadata, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    states = {each.get("name"): each for each in status.get("containerStatuses") or ()}
    return {
        "uid": metadata.get("uid", ""),
        "namespace": metadata.get("namespace", ""),
        "name": metadata["name"],
        "node": spec.get("nodeName", ""),
        "phase": status.get("phase", ""),
        "qosClass": status.get("qosClass", ""),
        "reason": status.get("reason", ""),
        "message": status.get("message", ""),
        "priority": spec.get("priority", 0),
        "created": epoch_seconds(metadata.get("creationTimestamp")) or 0,
        "deleting": bool(metadata.get("deletionTimestamp")),
        "resize": status.get("resize", ""),
        "conditions": [
            {key: each[key] for key in ("type", "status", "reason", "message") if each.get(key)}
            for each in status.get("conditions") or ()
            if each.get("type") in ("Ready", "PodResizePending", "PodResizeInProgress", "DisruptionTarget")
        ],
        "containers": [_container_shown(each, states.get(each["name"]) or {}) for each in spec.get("containers") or ()],
    }


def _container_shown(container: JsonObject, status: JsonObject) -> Shown:
    resources = container.get("resources") or {}
    state, last = status.get("state") or {}, status.get("lastState") or {}
    kind = next(iter(state), "waiting")
    return {
        "name": container["name"],
        "requests": resources.get("requests") or {},
        "limits": resources.get("limits") or {},
        "applied": status.get("resources") or {},
        "restarts": status.get("restartCount", 0),
        "ready": bool(status.get("ready")),
        "state": kind,
        "reason": (state.get(kind) or {}).get("reason", ""),
        "lastReason": (last.get("terminated") or {}).get("reason", ""),
    }


def node_shown(node: JsonObject) -> Shown:
    status, spec = node.get("status") or {}, node.get("spec") or {}
    info = status.get("nodeInfo") or {}
    return {
        "name": node["metadata"]["name"],
        "conditions": [
            {key: each[key] for key in ("type", "status", "reason") if key in each}
            for each in status.get("conditions") or ()
        ],
        "capacity": status.get("capacity") or {},
        "allocatable": status.get("allocatable") or {},
        "version": info.get("kubeletVersion", ""),
        "kernel": info.get("kernelVersion", ""),
        "runtime": info.get("containerRuntimeVersion", ""),
        "unschedulable": bool(spec.get("unschedulable")),
        "taints": [each.get("key", "") for each in spec.get("taints") or ()],
    }


def event_shown(event: JsonObject) -> Shown:
    about = event.get("involvedObject") or event.get("regarding") or {}
    last = event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp")
    return {
        "key": f"{event['metadata'].get('namespace', '')}/{event['metadata']['name']}",
        "kind": about.get("kind", ""),
        "namespace": about.get("namespace", ""),
        "name": about.get("name", ""),
        "uid": about.get("uid", ""),
        "type": event.get("type", ""),
        "reason": event.get("reason", ""),
        "message": event.get("message") or event.get("note") or "",
        "count": event.get("count") or 1,
        "last": epoch_seconds(last) or 0,
    }


class _Kind:
    """The objects of one kind. `most`: only so many, the newest by version."""

    def __init__(self, storage: str, show: Callable[[JsonObject], Shown], most: int | None = None) -> None:
        self._prefix, self._show, self._most = prefix(stored_resource(storage)), show, most
        self._changes: int | None = None  # of the store, at the last reading
        self._versions: dict[str, int] = {}
        self.shown: dict[str, Shown] = {}

    def changed(self, cluster: Cluster) -> tuple[list[str], list[str]]:
        """Keys that are new or have changed, and keys that are gone."""
        changes = cluster.store.changes_of(self._prefix).end
        if changes == self._changes:
            return [], []
        self._changes = changes
        records: Iterable[Any] = cluster.store.list(self._prefix)[1]
        if self._most is not None:
            records = sorted(records, key=lambda record: record.version)[-self._most :]
        versions = {record.key: record.version for record in records}
        gone = [key for key in self._versions if key not in versions]
        for key in gone:
            self.shown.pop(key, None)
        changed = []
        for record in records:
            if self._versions.get(record.key) != record.version:
                shown = self._show(decoded(record))
                if self.shown.get(record.key) != shown:
                    self.shown[record.key] = shown
                    changed.append(record.key)
        self._versions = versions
        return changed, gone


class ObjectsShown:
    def __init__(self) -> None:
        self._kinds = {
            "pods": _Kind("pods", pod_shown),
            "nodes": _Kind("nodes", node_shown),
            "events": _Kind("events", event_shown, MOST_EVENTS),
        }

    def delta(self, cluster: Cluster) -> Shown | None:
        """What has changed since the last call; None where nothing has."""
        delta: Shown = {}
        for name, kind in self._kinds.items():
            changed, gone = kind.changed(cluster)
            if changed:
                delta[name] = {key: kind.shown[key] for key in changed}
            if gone:
                delta[f"{name}Gone"] = gone
        return delta or None

    def everything(self) -> Shown:
        return {name: kind.shown for name, kind in self._kinds.items()}

    def nodes(self) -> list[str]:
        return [node["name"] for node in self._kinds["nodes"].shown.values()]
