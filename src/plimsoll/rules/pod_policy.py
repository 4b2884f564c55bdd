"""What one pod may say about itself beyond its spec: two annotations of ours that change the node's policy for it.

    plimsoll.dev/oom-group: "true"    the kernel kills whole containers of this pod, "false": single processes
    plimsoll.dev/memory-qos: "off"    no memory.min, memory.low and memory.high for this pod

The first stands beside `singleProcessOOMKill`, the second beside the gate MemoryQoS; both need cgroup v2. Any other
value is as if the annotation were not there.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from plimsoll.rules.objects import Pod
from plimsoll.rules.policy import NodePolicy

OOM_GROUP = "plimsoll.dev/oom-group"
MEMORY_QOS = "plimsoll.dev/memory-qos"
OFF = "off"
_TRUTH = {"true": True, "false": False}


def asked_oom_group(annotations: Mapping[str, str] | None) -> bool | None:
    """None where the pod leaves it to the node."""
    return _TRUTH.get(annotations[OOM_GROUP]) if annotations and OOM_GROUP in annotations else None


def declines_memory_qos(annotations: Mapping[str, str] | None) -> bool:
    return bool(annotations) and (annotations or {}).get(MEMORY_QOS) == OFF


def is_plain(pod: Pod) -> bool:
    """Whether the node's own policy is the pod's, too."""
    annotations = pod.metadata.annotations
    return not annotations or (OOM_GROUP not in annotations and MEMORY_QOS not in annotations)


def pod_policy(pod: Pod, policy: NodePolicy) -> NodePolicy:
    if is_plain(pod) or policy.cgroup_version == 1:
        return policy
    group = asked_oom_group(pod.metadata.annotations)
    return msgspec.structs.replace(
        policy,
        memory_qos=policy.memory_qos and not declines_memory_qos(pod.metadata.annotations),
        oom_group=policy.oom_group if group is None else group,
    )
