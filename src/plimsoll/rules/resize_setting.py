"""From a resolved node to what its verdicts on resizes depend on: one copy for the agent and for whoever foretells it.

`Setting` knows the configuration; who is on the node, which pressure it is under and whether exclusive CPUs can be had
come from the caller.
"""

from __future__ import annotations

from collections.abc import Callable

from plimsoll.rules.allocation import NodeResizeGates
from plimsoll.rules.config import KubeletConfig
from plimsoll.rules.eviction import NodeCondition
from plimsoll.rules.fit import NodeLoad
from plimsoll.rules.node_admission import Refused
from plimsoll.rules.objects import Container, Pod
from plimsoll.rules.qos import qos_class
from plimsoll.rules.resize import ResizeSetting
from plimsoll.rules.setting import Setting
from plimsoll.rules.values import uses_limited_swap


def node_resize_gates(config: KubeletConfig) -> NodeResizeGates:
    return NodeResizeGates(
        pod_level=config.gate("PodLevelResources"),
        pod_level_resize=config.gate("InPlacePodLevelResourcesVerticalScaling"),
        init_containers=config.gate("InPlacePodVerticalScalingInitContainers"),
        exclusive_cpus=config.gate("InPlacePodVerticalScalingExclusiveCPUs"),
        exclusive_memory=config.gate("InPlacePodVerticalScalingExclusiveMemory"),
    )


def resize_setting(
    setting: Setting,
    load: NodeLoad,
    conditions: tuple[NodeCondition, ...] = (),
    cpu_refusal: Callable[[Pod], Refused | None] = lambda _pod: None,
) -> ResizeSetting:
    config = setting.config

    def may_swap(pod: Pod, container: Container) -> bool:
        return uses_limited_swap(pod, container, qos_class(pod), setting.policy)

    return ResizeSetting(
        load,
        setting.profile,
        node_resize_gates(config),
        static_cpus=setting.policy.static_cpus,
        static_memory=config.memory_manager_policy == "Static",
        conditions=conditions,
        absolute_allocatable=setting.absolute,
        may_swap=may_swap,
        cpu_refusal=cpu_refusal,
        enabled=config.gate("InPlacePodVerticalScaling"),
    )
