"""The differences between Kubernetes versions: one field each, in two profiles, `documents` and `1.36`.

`documents` is Kubernetes 1.27 as the five documents describe it; `1.36` is how the code behaves. If the 1.27 code
differs from the documents, `notes` has a sentence, which is printed with the value.
"""

from __future__ import annotations

from typing import Literal, TypeVar

import msgspec

from plimsoll.errors import InvalidConfigError

DOCUMENTED = "documented; real "  # the start of notes that are printed even in brief output
_T = TypeVar("_T")
_IN_1_36: list[object] = []  # in the order of the rows


def _row(documents: _T, in_1_36: _T) -> _T:
    _IN_1_36.append(in_1_36)
    return documents


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """One row per difference: the value in `documents`, which is the default of the field, and the value in 1.36."""

    name: str
    release: str  # what /version and kubeletVersion tell
    notes: dict[str, str] = {}  # field → what is printed with its value
    # Memory QoS, gate on: memory.min = requests at every level, or by memoryReservationPolicy (02 §6.2).
    memory_min_from_requests: bool = _row(True, False)
    # memory.high for a container with neither memory request nor limit (02 §6.1).
    memory_high_without_request: bool = _row(True, False)
    memory_oom_group: bool = _row(False, True)  # group kill written on v2 unless singleProcessOOMKill (02 §5)
    resize_by_plain_patch: bool = _row(True, False)  # 03 §4.3
    resize_status_field: bool = _row(True, False)  # `status.resize` beside the conditions (03 §2)
    allocated_at_create: bool = _row(True, False)  # document 003, T=1
    qos_change_at_metadata: bool = _row(True, False)  # where and how a QoS change is refused (03 §4.2 step 4)
    too_large_is_infeasible: bool = _row(True, False)  # larger than the node: the agent's Infeasible (03 §6 step 6)
    too_large_refused_by_api: bool = _row(False, True)  # … or the API's 403 (03 §4.2, PodResizeValidator)
    resize_may_remove: bool = _row(True, False)  # a request or limit may be removed (01 §12)
    resize_policy_defaulted: bool = _row(True, False)  # D-3
    static_cpu_resize: bool = _row(True, False)  # integers allowed under the static CPU policy (02 §10)
    quota_with_exclusive_cpus: bool = _row(True, False)  # 02 §4.3
    limit_range_on_resize: bool = _row(False, True)  # 01 §12
    # 05 A1: max(spec, actual, allocated) against max(spec, allocated)
    scheduler_counts_actual: bool = _row(False, True)
    sidecar_oom_rule: bool = _row(False, True)  # O-3 step 5
    pod_level_oom_share: bool = _row(False, True)  # O-3 step 3
    shares_after_limit_on_shrink: bool = _row(True, False)  # 02 §9: pod limit before pod shares when shrinking
    # 03 §10: the runtime may refuse a pod's new size; otherwise it is only notified
    sandbox_updated_first: bool = _row(False, True)
    # 05 A4: the text before `preemption:` in FailedScheduling
    preemption_text: str = _row("", "no new claims to deallocate, ")
    taint_text_names_taint: bool = _row(True, False)  # 05 A2
    # 03 §6: whether the node's message ends with the scheduler's reason
    predicate_text_has_reason: bool = _row(False, True)
    # keys of envFrom that are not C identifiers: skipped with an event, or used
    invalid_variables_skipped: bool = _row(True, False)
    node_grace_s: int = _row(40, 50)  # 05 B9: how long after the last heartbeat a node becomes unknown
    scheduler_observed_generation: bool = _row(False, True)  # 05 A4: observedGeneration of the PodScheduled condition
    balanced_by_difference: bool = _row(False, True)  # 05 A3: BalancedAllocation compares with and without the pod
    # 04 §8: only BestEffort pods are kept from a node under memory pressure
    memory_pressure_tolerated: bool = _row(True, False)
    driver_from_cri: bool = _row(False, True)  # 02 §2.2
    # as runtimes of that time write it (02 §4.2)
    container_weight: Literal["linear", "quadratic"] = _row("linear", "quadratic")
    # Texts and fields of events and pod status.
    start_event_names_container: bool = _row(True, False)  # `Created container c` against `Container created`
    # … `already present on machine` `and can be accessed by the pod`
    image_event_says_accessible: bool = _row(False, True)
    pull_event_says_size: bool = _row(False, True)  # … `Image size: 2 bytes.`
    pull_backoff_says_why: bool = _row(False, True)  # the waiting message repeats the error of the last pull
    probe_error_says_state: bool = _row(False, True)  # `Liveness probe errored and resulted in unknown state: …`
    init_started_reported: bool = _row(False, True)  # `started` of ordinary init containers
    ready_to_start_condition: bool = _row(False, True)  # PodReadyToStartContainers
    pod_observed_generation: bool = _row(False, True)  # observedGeneration of the status and its conditions
    host_ips_reported: bool = _row(False, True)  # `hostIPs` beside `hostIP`
    volume_mounts_reported: bool = _row(False, True)  # `volumeMounts` of container statuses


PROFILE_DOCUMENTS = Profile(
    name="documents",
    release="1.27",
    notes={
        "memory_high_without_request": "documented; real 1.27 did not: it leaves memory.high unset when the request "
        "equals the limit, and absent equals absent",
        "allocated_at_create": "documented; real 1.27 did not: the kubelet writes allocatedResources with "
        "its first report",
        "memory_pressure_tolerated": "documented; real 1.27 did so only with the admission plugin "
        "PodTolerationRestriction",
        "static_cpu_resize": "documented; real 1.27 did not: it changed the quota and left the cpuset",
    },
)
_ROWS = Profile.__struct_fields__[3:]
PROFILE_1_36 = msgspec.convert({"name": "1.36", "release": "1.36", **dict(zip(_ROWS, _IN_1_36, strict=True))}, Profile)

PROFILES = {profile.name: profile for profile in (PROFILE_DOCUMENTS, PROFILE_1_36)}
DEFAULT_PROFILE = PROFILE_DOCUMENTS


def profile_named(name: str) -> Profile:
    try:
        return PROFILES[name]
    except KeyError:
        raise InvalidConfigError("profile", f"unknown profile {name!r}; known: {', '.join(PROFILES)}") from None
