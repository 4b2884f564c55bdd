"""Events about the pods of this node."""

from __future__ import annotations

from collections.abc import Mapping

from plimsoll.node.reporting.event_correlator import EventType, ObjectReference
from plimsoll.node.reporting.event_recorder import Recorder
from plimsoll.rules.model.observed import LifecycleEvent
from plimsoll.rules.model.runnable import RunPod


class PodEvents:
    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def emit(
        self,
        pod: RunPod,
        kind: EventType,
        reason: str,
        message: str,
        field_path: str = "",
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        self._recorder.record(pod_reference(pod, field_path), kind, reason, message, annotations)

    def emit_lifecycle(self, pod: RunPod, event: LifecycleEvent) -> None:
        self.emit(pod, event.type, event.reason, event.message, event.field_path)


def pod_reference(pod: RunPod, field_path: str = "") -> ObjectReference:
    meta = pod.metadata
    return ObjectReference("Pod", meta.name, meta.namespace, meta.uid, meta.resource_version, "v1", field_path)
