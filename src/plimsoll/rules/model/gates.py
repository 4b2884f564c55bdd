"""The feature gates and the version differences that the rules of pods use, as one value.

A component resolves its `featureGates` and its profile once and passes the value on.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from plimsoll.rules.profile import EvictionGrace, InitResizePolicy, Profile


class Gates(msgspec.Struct, frozen=True):
    pod_level: bool = True  # PodLevelResources
    pod_level_resize: bool = True  # InPlacePodLevelResourcesVerticalScaling
    init_containers: bool = True  # InPlacePodVerticalScalingInitContainers
    exclusive_cpus: bool = False  # InPlacePodVerticalScalingExclusiveCPUs
    exclusive_memory: bool = False  # InPlacePodVerticalScalingExclusiveMemory
    memory_volumes: bool = False  # InPlacePodVerticalScalingMemoryBackedVolumes
    scheduler_preempts: bool = False  # InPlacePodVerticalScalingSchedulerPreemption
    claims: bool = False  # DRANodeAllocatableResources
    fixed_defaulting: bool = False  # PodLevelResourcesFixDefaulting
    fixed_class: bool = False  # PodLevelResourcesFixKubeletQOSClass
    in_place: bool = True  # InPlacePodVerticalScaling
    sidecars: bool = True  # SidecarContainers
    restart_rules: bool = True  # ContainerRestartRules
    restart_all: bool = True  # RestartAllContainersOnContainerExits
    stop_signals: bool = True  # ContainerStopSignals
    scale_to_zero: bool = False  # HPAScaleToZero
    suspended_resources: bool = True  # MutablePodResourcesForSuspendedJobs
    suspended_scheduling: bool = True  # MutableSchedulingDirectivesForSuspendedJobs
    off: frozenset[str] = frozenset()  # the names of all gates that are off
    # Rows of the profile
    class_from_status: bool = True
    class_per_container: bool = False
    pod_level_hugepages: bool = True
    pod_level_requests_complete: bool = False
    pod_level_status_counted: bool = True
    declared_limits_cumulative: bool = True
    ranking_counts_pod_level: bool = True
    sidecar_storage_limits: bool = False
    memory_request_restarts: bool = True
    eviction_names_init_containers: bool = True
    eviction_grace: EvictionGrace = "least"
    init_resize_policy: InitResizePolicy = "not restart"
    restart_policy_dropped: bool = True


DEFAULT_GATES = Gates()
_ROWS = (
    "class_from_status",
    "class_per_container",
    "pod_level_hugepages",
    "pod_level_requests_complete",
    "pod_level_status_counted",
    "declared_limits_cumulative",
    "ranking_counts_pod_level",
    "sidecar_storage_limits",
    "memory_request_restarts",
    "eviction_names_init_containers",
    "eviction_grace",
    "init_resize_policy",
    "restart_policy_dropped",
)


def resolved_gates(feature_gates: Mapping[str, bool], profile: Profile) -> Gates:
    """`feature_gates` names every gate, as `KubeletConfig.feature_gates` does."""
    return Gates(
        in_place=feature_gates["InPlacePodVerticalScaling"],
        sidecars=feature_gates["SidecarContainers"],
        pod_level=feature_gates["PodLevelResources"],
        pod_level_resize=feature_gates["InPlacePodLevelResourcesVerticalScaling"],
        init_containers=feature_gates["InPlacePodVerticalScalingInitContainers"],
        exclusive_cpus=feature_gates["InPlacePodVerticalScalingExclusiveCPUs"],
        exclusive_memory=feature_gates["InPlacePodVerticalScalingExclusiveMemory"],
        memory_volumes=feature_gates["InPlacePodVerticalScalingMemoryBackedVolumes"],
        scheduler_preempts=feature_gates["InPlacePodVerticalScalingSchedulerPreemption"],
        scale_to_zero=feature_gates["HPAScaleToZero"],
        suspended_resources=feature_gates["MutablePodResourcesForSuspendedJobs"],
        suspended_scheduling=feature_gates["MutableSchedulingDirectivesForSuspendedJobs"],
        claims=feature_gates["DRANodeAllocatableResources"],
        fixed_defaulting=feature_gates["PodLevelResourcesFixDefaulting"],
        fixed_class=feature_gates["PodLevelResourcesFixKubeletQOSClass"],
        restart_rules=feature_gates["ContainerRestartRules"],
        restart_all=feature_gates["RestartAllContainersOnContainerExits"],
        stop_signals=feature_gates["ContainerStopSignals"],
        off=frozenset(name for name, on in feature_gates.items() if not on),
        **{row: getattr(profile, row) for row in _ROWS},
    )
