"""A pod's status as this node tells it: the rules' status, with what only the node knows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from plimsoll.node.checkpoint import PodRecord
from plimsoll.node.dependencies import Dependencies
from plimsoll.node.resources.pod_cgroups import lean_pod_of
from plimsoll.rules.lifecycle.status import NodeView, pod_status, rejected_status
from plimsoll.rules.model.observed import ObservedPod, SyncState
from plimsoll.rules.model.pod_status import RunCondition, RunStatus
from plimsoll.rules.model.runnable import RunPod
from plimsoll.rules.resize.conditions import ResizeConditions, resize_conditions, resize_word
from plimsoll.rules.resize.status import status_resources
from plimsoll.rules.resources.effective import pod_requests


def made_status(
    tools: Dependencies,
    record: PodRecord,
    pod: RunPod,
    seen: ObservedPod,
    memory: SyncState,
    marks: ResizeConditions,
    *,
    desired: RunPod,
    is_final: bool = False,
) -> RunStatus:
    """`pod` is the allocated one, `desired` the newest document as it is."""
    profile, now_s = tools.setting.profile, tools.clock()
    if record.refused and record.verdict is not None:
        return rejected_status(pod, record.verdict.reason, record.verdict.message, now_s, profile)
    return pod_status(
        pod,
        seen,
        memory,
        now_s,
        NodeView((tools.node_ip,), tools.runtime.name, profile),
        verdict=record.verdict,
        is_final=is_final,
        conditions=(*_conditions(tools), *resize_conditions(marks, profile)),
        resize=resize_word(marks, desired, profile),
        **_pod_level(tools, record, pod, seen),
    )


def _pod_level(tools: Dependencies, record: PodRecord, pod: RunPod, seen: ObservedPod) -> dict[str, Any]:
    """Resources of the pod as a whole, where it has some and they can be resized (03 §3.2)."""
    own = pod.spec.resources
    if own is None or not tools.gates.pod_level_resize:
        return {}
    reported = tools.cgroups.pod_kernel_values(lean_pod_of(pod)) if seen.live() else None
    shown = status_resources(own, running=reported is not None, reported=reported, actuated=record.actuated_pod)
    # Overhead comes on top of both wherever they are counted (01 E-11).
    allocated = pod_requests(pod, gates=tools.gates, overhead=False)
    return {"resources": shown, "allocated_resources": allocated}


def _conditions(tools: Dependencies) -> Iterable[RunCondition]:
    if tools.cgroups.enforced:
        return ()
    message = tools.unenforced or "cgroups of this machine cannot be written"
    return (RunCondition("Enforced", "False", "CgroupsNotWritable", message),)
