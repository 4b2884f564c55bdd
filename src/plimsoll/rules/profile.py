"""The differences between Kubernetes versions: one field each, in two profiles, `1.27` and `1.36`.

`1.27` is Kubernetes as the five documents describe it; `1.36` is how the code behaves. If the 1.27 code differs from
the documents, `notes` has a sentence, which is printed with the value.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from plimsoll.errors import InvalidConfigError

DOCUMENTED = "documented; real "  # the start of notes that are printed even in brief output


class Profile(msgspec.Struct, frozen=True):
    name: str
    # Memory QoS, gate on: memory.min = requests at every level, or by memoryReservationPolicy (02 §6.2).
    memory_min_from_requests: bool
    # memory.high for a container with neither memory request nor limit (02 §6.1).
    memory_high_without_request: bool
    memory_oom_group: bool  # group kill written on v2 unless singleProcessOOMKill (02 §5)
    resize_by_plain_patch: bool  # 03 §4.3
    resize_status_field: bool  # `status.resize` beside the conditions (03 §2)
    allocated_at_create: bool  # document 003, T=1
    qos_change_at_metadata: bool  # where and how a QoS change is refused (03 §4.2 step 4)
    too_large_is_infeasible: bool  # larger than the node: the agent's Infeasible (03 §6 step 6)
    too_large_refused_by_api: bool  # … or the API's 403 (03 §4.2, PodResizeValidator)
    resize_may_remove: bool  # a request or limit may be removed (01 §12)
    resize_policy_defaulted: bool  # D-3
    static_cpu_resize: bool  # integers allowed under the static CPU policy (02 §10)
    quota_with_exclusive_cpus: bool  # 02 §4.3
    limit_range_on_resize: bool  # 01 §12
    scheduler_counts_actual: bool  # 05 A1: max(spec, actual, allocated) against max(spec, allocated)
    sidecar_oom_rule: bool  # O-3 step 5
    pod_level_oom_share: bool  # O-3 step 3
    shares_after_limit_on_shrink: bool  # 02 §9: pod limit before pod shares when shrinking
    sandbox_updated_first: bool  # 03 §10: the runtime may refuse a pod's new size; otherwise it is only notified
    preemption_text: str  # 05 A4: the text before `preemption:` in FailedScheduling
    taint_text_names_taint: bool  # 05 A2
    predicate_text_has_reason: bool  # 03 §6: whether the node's message ends with the scheduler's reason
    invalid_variables_skipped: bool  # keys of envFrom that are not C identifiers: skipped with an event, or used
    node_grace_s: int  # 05 B9: how long after the last heartbeat a node becomes unknown
    scheduler_observed_generation: bool  # 05 A4: observedGeneration of the PodScheduled condition
    balanced_by_difference: bool  # 05 A3: BalancedAllocation compares with and without the pod
    memory_pressure_tolerated: bool  # 04 §8: only BestEffort pods are kept from a node under memory pressure
    driver_from_cri: bool  # 02 §2.2
    container_weight: Literal["linear", "quadratic"]  # as runtimes of that time write it (02 §4.2)
    # Texts and fields of events and pod status.
    start_event_names_container: bool  # `Created container c` against `Container created`
    image_event_says_accessible: bool  # … `already present on machine` `and can be accessed by the pod`
    pull_event_says_size: bool  # … `Image size: 2 bytes.`
    pull_backoff_says_why: bool  # the waiting message repeats the error of the last pull
    probe_error_says_state: bool  # `Liveness probe errored and resulted in unknown state: …`
    init_started_reported: bool  # `started` of ordinary init containers
    ready_to_start_condition: bool  # PodReadyToStartContainers
    pod_observed_generation: bool  # observedGeneration of the status and its conditions
    host_ips_reported: bool  # `hostIPs` beside `hostIP`
    volume_mounts_reported: bool  # `volumeMounts` of container statuses
    notes: dict[str, str]


PROFILE_1_27 = Profile(
    name="1.27",
    memory_min_from_requests=True,
    memory_high_without_request=True,
    memory_oom_group=False,
    resize_by_plain_patch=True,
    resize_status_field=True,
    allocated_at_create=True,
    qos_change_at_metadata=True,
    too_large_is_infeasible=True,
    too_large_refused_by_api=False,
    resize_may_remove=True,
    resize_policy_defaulted=True,
    static_cpu_resize=True,
    quota_with_exclusive_cpus=True,
    limit_range_on_resize=False,
    scheduler_counts_actual=False,
    sidecar_oom_rule=False,
    pod_level_oom_share=False,
    shares_after_limit_on_shrink=True,
    sandbox_updated_first=False,
    preemption_text="",
    taint_text_names_taint=True,
    predicate_text_has_reason=False,
    invalid_variables_skipped=True,
    node_grace_s=40,
    scheduler_observed_generation=False,
    balanced_by_difference=False,
    memory_pressure_tolerated=True,
    driver_from_cri=False,
    container_weight="linear",
    start_event_names_container=True,
    image_event_says_accessible=False,
    pull_event_says_size=False,
    pull_backoff_says_why=False,
    probe_error_says_state=False,
    init_started_reported=False,
    ready_to_start_condition=False,
    pod_observed_generation=False,
    host_ips_reported=False,
    volume_mounts_reported=False,
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

PROFILE_1_36 = Profile(
    name="1.36",
    memory_min_from_requests=False,
    memory_high_without_request=False,
    memory_oom_group=True,
    resize_by_plain_patch=False,
    resize_status_field=False,
    allocated_at_create=False,
    qos_change_at_metadata=False,
    too_large_is_infeasible=False,
    too_large_refused_by_api=True,
    resize_may_remove=False,
    resize_policy_defaulted=False,
    static_cpu_resize=False,
    quota_with_exclusive_cpus=False,
    limit_range_on_resize=True,
    scheduler_counts_actual=True,
    sidecar_oom_rule=True,
    pod_level_oom_share=True,
    shares_after_limit_on_shrink=False,
    sandbox_updated_first=True,
    preemption_text="no new claims to deallocate, ",
    taint_text_names_taint=False,
    predicate_text_has_reason=True,
    invalid_variables_skipped=False,
    node_grace_s=50,
    scheduler_observed_generation=True,
    balanced_by_difference=True,
    memory_pressure_tolerated=False,
    driver_from_cri=True,
    container_weight="quadratic",
    start_event_names_container=False,
    image_event_says_accessible=True,
    pull_event_says_size=True,
    pull_backoff_says_why=True,
    probe_error_says_state=True,
    init_started_reported=True,
    ready_to_start_condition=True,
    pod_observed_generation=True,
    host_ips_reported=True,
    volume_mounts_reported=True,
    notes={},
)

PROFILES = {profile.name: profile for profile in (PROFILE_1_27, PROFILE_1_36)}
DEFAULT_PROFILE = PROFILE_1_27


def profile_named(name: str) -> Profile:
    try:
        return PROFILES[name]
    except KeyError:
        raise InvalidConfigError("profile", f"unknown profile {name!r}; known: {', '.join(PROFILES)}") from None
