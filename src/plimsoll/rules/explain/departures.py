"""Notes beside a value that differs from what articles about Kubernetes say, where a reader would be misled.

docs/documents.md lists every such difference of the five documents with its clause.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from plimsoll.rules.cgroups.desired import Workload
from plimsoll.rules.config.parse import default_config
from plimsoll.rules.model.objects import MEMORY, Pod, QoSClass, container_fields, is_sidecar, listed
from plimsoll.rules.node.node_config import NodeConfig
from plimsoll.rules.profile import Profile
from plimsoll.rules.quantity import ZERO
from plimsoll.rules.resources.qos import BEST_EFFORT, BURSTABLE, GUARANTEED

if TYPE_CHECKING:
    from plimsoll.rules.eviction.decision import EvictionCandidate

_RANKS: dict[QoSClass, int] = {BEST_EFFORT: 0, BURSTABLE: 1, GUARANTEED: 2}
RESIZE_GATE, MEMORY_QOS_GATE = "InPlacePodVerticalScaling", "MemoryQoS"


def class_order_note(order: Sequence[EvictionCandidate], classes: Mapping[str, QoSClass]) -> str | None:
    """Where the order of eviction is not BestEffort, Burstable, Guaranteed (04 §5). `classes`: by uid."""
    ranked = [each for each in order if not each.critical]
    for first, second in pairwise(ranked):
        before, after = classes[first.uid], classes[second.uid]
        if _RANKS[before] > _RANKS[after]:
            return (
                f"the QoS class is no key of this order: {first.name} ({before}) comes before {second.name} ({after}) "
                f"because of: {first.before}"
            )
    return None


def dropped_notes(pod: Pod, setting: NodeConfig, base: str = "spec") -> Iterator[str]:
    """Fields that an API server of the release drops, because a feature gate is off or the field is not there yet."""
    gates = setting.policy.gates
    if pod.spec.resources is not None and not gates.pod_level:
        yield f"{base}.resources is dropped: the feature gate PodLevelResources is off, or the release has none"
    if not gates.sidecars:
        for index, container in enumerate(pod.spec.init_containers):
            if is_sidecar(container):
                yield (
                    f"{base}.initContainers[{index}].restartPolicy ({container.name}) is dropped: the feature gate "
                    "SidecarContainers is off, or the release has none; it is an ordinary init container"
                )


def memory_high_notes(work: Workload, setting: NodeConfig) -> Iterator[str]:
    """Containers that Memory QoS does not throttle (02 §6.1)."""
    if not setting.policy.memory_qos or setting.policy.throttling_factor is None:
        return
    fields = container_fields(work.pod.spec, work.base)
    for (field, container), values in zip(fields, work.container_values, strict=True):
        if values.memory_high_bytes is not None:
            continue
        request, limit = (listed(container.resources, kind).get(MEMORY, ZERO) for kind in ("requests", "limits"))
        if limit and request == limit:
            yield f"{field} ({container.name}): memory.high is not set, because the memory request equals the limit"
        elif not (limit or request or setting.policy.high_without_request):
            yield f"{field} ({container.name}): memory.high is not set, because it has neither memory request nor limit"


def memory_qos_gate_note(profile: Profile) -> str | None:
    """Where a node of this profile writes memory.high only if its configuration says so (02 §6.1)."""
    if default_config(profile).feature_gates.get(MEMORY_QOS_GATE):
        return None
    return f"feature gate {MEMORY_QOS_GATE} is off by default here; a node writes this value only if it is set"


def throttling_factor_note(profile: Profile, assumed: float) -> str | None:
    """Where a node of this profile writes no memory.high, with the gate or without, unless the factor is set (1.37)."""
    if default_config(profile).memory_throttling_factor is not None:
        return None
    return (
        f"memoryThrottlingFactor has no default here, {assumed} is assumed; a node writes this value only if it is set"
    )


def resize_notes(setting: NodeConfig, *, cpus_change: bool) -> Iterator[str]:
    """About a resize that the node accepts."""
    profile = setting.profile
    if profile.allocated_at_create:  # the documents' profile: they describe an alpha feature that they turn on
        yield f"feature gate {RESIZE_GATE} is on by default here; a real 1.27 needs it set on API server and kubelet"
    if not profile.limit_range_on_resize:
        yield "a LimitRange is checked when a pod is created, not on a resize (1.32 and later: on both)"
    if cpus_change:
        note = profile.notes.get("static_cpu_resize", "")
        yield "which CPUs a node takes depends on its topology" + (f"; cpuset.cpus: {note}" if note else "")
