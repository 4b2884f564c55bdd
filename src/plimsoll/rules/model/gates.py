"""The feature gates that the rules consult, as one value.

A component resolves its `featureGates` once and passes the value on, as it does with the profile.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class Gates(msgspec.Struct, frozen=True):
    pod_level: bool = True  # PodLevelResources
    pod_level_resize: bool = True  # InPlacePodLevelResourcesVerticalScaling
    init_containers: bool = True  # InPlacePodVerticalScalingInitContainers
    exclusive_cpus: bool = False  # InPlacePodVerticalScalingExclusiveCPUs
    exclusive_memory: bool = False  # InPlacePodVerticalScalingExclusiveMemory


DEFAULT_GATES = Gates()


def resolved_gates(feature_gates: Mapping[str, bool]) -> Gates:
    """`feature_gates` names every gate, as `KubeletConfig.feature_gates` does."""
    return Gates(
        pod_level=feature_gates["PodLevelResources"],
        pod_level_resize=feature_gates["InPlacePodLevelResourcesVerticalScaling"],
        init_containers=feature_gates["InPlacePodVerticalScalingInitContainers"],
        exclusive_cpus=feature_gates["InPlacePodVerticalScalingExclusiveCPUs"],
        exclusive_memory=feature_gates["InPlacePodVerticalScalingExclusiveMemory"],
    )
