"""A pod's status on this node: the status that the rules compute, with what only the node knows, sent to the API."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plimsoll.codec.lean.runnable import status_document
from plimsoll.node.checkpoint import PodRecord
from plimsoll.node.reporting.status_manager import Reporter, StoredVersion
from plimsoll.node.resources.cgroup_readings import CgroupReadings
from plimsoll.node.resources.workloads import lean_pod_of
from plimsoll.node.sources.mirror_pods import Mirror
from plimsoll.rules.lifecycle.status import NodeView, pod_status, rejected_status
from plimsoll.rules.model.gates import Gates
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.model.objects import is_static
from plimsoll.rules.model.observed import ObservedPod, SyncState
from plimsoll.rules.model.pod_status import RunCondition, RunStatus
from plimsoll.rules.model.runnable import RunPod
from plimsoll.rules.resize.conditions import ResizeConditions, resize_conditions, resize_word
from plimsoll.rules.resize.status import pod_status_resources
from plimsoll.rules.resources.effective import pod_limits, pod_requests

StatusListener = Callable[[str, RunStatus | None], None]  # the uid, and the status; None: the pod has terminated


class PodReports:
    def __init__(
        self,
        reporter: Reporter,
        readings: CgroupReadings,
        node: Callable[[], NodeView],
        gates: Gates,
        clock: Callable[[], float],
        mirror_of: Callable[[str], Mirror | None],
        unenforced: str,
    ) -> None:
        """`mirror_of`: a static pod's mirror, by the pod's uid. `unenforced`: why limits have no effect; "" if they
        have."""
        self._reporter, self._readings, self._node, self._gates = reporter, readings, node, gates
        self._clock, self._mirror_of = clock, mirror_of
        enforced = RunCondition("Enforced", "False", "CgroupsNotWritable", unenforced)
        self._conditions = (enforced,) if unenforced else ()
        self.listeners: list[StatusListener] = []

    def status(
        self,
        record: PodRecord,
        allocated: RunPod,
        observed: ObservedPod,
        state: SyncState,
        resize: ResizeConditions,
        *,
        desired: RunPod,
        is_final: bool = False,
    ) -> RunStatus:
        node, now_s = self._node(), self._clock()
        profile = node.profile
        if record.refused and record.verdict is not None:
            return rejected_status(allocated, record.verdict.reason, record.verdict.message, now_s, profile)
        return pod_status(
            allocated,
            observed,
            state,
            now_s,
            node,
            verdict=record.verdict,
            is_final=is_final,
            conditions=(*self._conditions, *resize_conditions(resize, profile)),
            resize=resize_word(resize, desired, profile),
            **self._pod_level(record, allocated, observed),
        )

    def send(self, pod: RunPod, known: JsonObject, status: RunStatus, *, must_be_seen: bool) -> None:
        """`known`: the status that the API server has. `must_be_seen`: watchers must get this one."""
        meta = pod.metadata
        self._notify(meta.uid, status)
        uid, version = meta.uid, StoredVersion(meta.resource_version, meta.generation)
        if is_static(pod):
            mirror = self._mirror_of(uid)
            if mirror is None:
                return  # not created yet; the worker is woken when it is
            uid, known, version = mirror.uid, mirror.status, mirror.version
        self._reporter.report(
            uid, meta.namespace, meta.name, known, status_document(status), version, must_be_seen=must_be_seen
        )

    def ended(self, uid: str) -> None:
        """No process of the pod runs any more, and none will."""
        self._notify(uid, None)

    def _notify(self, uid: str, status: RunStatus | None) -> None:
        for listener in self.listeners:
            listener(uid, status)

    def finish(self, pod: RunPod) -> None:
        """Delete a terminated pod from the API server."""
        self._reporter.finish(pod.metadata.uid, pod.metadata.namespace, pod.metadata.name)

    def _pod_level(self, record: PodRecord, pod: RunPod, observed: ObservedPod) -> dict[str, Any]:
        """Resources of the pod as a whole, of every pod whose resources can be resized there (03 §3.2)."""
        if not self._gates.pod_level_resize:
            return {}
        # Overhead is added to both wherever they are counted (01 E-11).
        allocated = pod_requests(pod, gates=self._gates, overhead=False)
        reported = self._readings.pod_kernel_values(lean_pod_of(pod)) if observed.live() else None
        shown = pod_status_resources(
            pod.spec.resources,
            allocated,
            pod_limits(pod, gates=self._gates, overhead=False),
            reported,
            record.actuated_pod,
        )
        return {"resources": shown, "allocated_resources": allocated}
