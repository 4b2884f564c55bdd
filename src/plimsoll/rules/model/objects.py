"""The lean objects that the rules use: only the fields that matter to a rule, frozen, decoded from JSON.

A user's document is stored and served unchanged; these are views of it. Absent and empty differ in a few places (01
QC-2, D-1), so `None` is absent and an empty mapping is empty. Mappings inside these objects never change after
decoding: a rule that needs another value builds another object.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec

from plimsoll.rules.quantity import Quantity

ResourceList = dict[str, Quantity]
Int = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]  # as in Go
Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
QoSClass = Literal["Guaranteed", "Burstable", "BestEffort"]

CPU = "cpu"
MEMORY = "memory"
EPHEMERAL_STORAGE = "ephemeral-storage"
MEMORY_MEDIUM = "Memory"  # of an emptyDir
PODS = "pods"
HUGEPAGES_PREFIX = "hugepages-"

MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
SOURCE_ANNOTATION = "kubernetes.io/config.source"
SYSTEM_CRITICAL_PRIORITY = 2_000_000_000


class Lean(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """Base: frozen, no cycles, Kubernetes' camelCase names on the wire."""


class Claim(Lean, frozen=True, gc=False):
    name: str = ""
    request: str = ""


class Resources(Lean, frozen=True, gc=False):
    requests: ResourceList | None = None
    limits: ResourceList | None = None
    claims: tuple[Claim, ...] | None = None


NO_RESOURCES = Resources()


def listed(resources: Resources | None, kind: str) -> ResourceList:
    """One list, `requests` or `limits`; empty if absent."""
    if resources is None:
        return {}
    return (resources.requests if kind == "requests" else resources.limits) or {}


class ResizePolicy(Lean, frozen=True, gc=False):
    resource_name: str = ""
    restart_policy: str = ""


class Port(Lean, frozen=True, gc=False):
    container_port: Int = 0
    host_port: Int = 0
    host_ip: str = msgspec.field(name="hostIP", default="")
    protocol: str = "TCP"


class ExitCodes(Lean, frozen=True, gc=False):
    operator: str = ""
    values: tuple[Int32, ...] = ()


class RestartRule(Lean, frozen=True, gc=False):
    action: str = ""
    exit_codes: ExitCodes | None = None


class Container(Lean, frozen=True, gc=False):
    name: str = ""
    image: str = ""
    resources: Resources = NO_RESOURCES
    restart_policy: str | None = None
    restart_policy_rules: tuple[RestartRule, ...] = ()
    resize_policy: tuple[ResizePolicy, ...] = ()
    ports: tuple[Port, ...] = ()


class EmptyDir(Lean, frozen=True, gc=False):
    medium: str = ""
    size_limit: Quantity | None = None


class Volume(Lean, frozen=True, gc=False):
    """Only what eviction needs: whether it is local storage (04 §1.2)."""

    name: str = ""
    empty_dir: EmptyDir | None = None
    config_map: dict[str, object] | None = None
    git_repo: dict[str, object] | None = None
    host_path: dict[str, object] | None = None


class Toleration(Lean, frozen=True, gc=False):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: Int | None = None


class SelectorTerm(Lean, frozen=True, gc=False):
    """One requirement of a node selector: `key operator values`."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class NodeSelectorTerm(Lean, frozen=True, gc=False):
    match_expressions: tuple[SelectorTerm, ...] = ()
    match_fields: tuple[SelectorTerm, ...] = ()


class NodeSelector(Lean, frozen=True, gc=False):
    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class PreferredTerm(Lean, frozen=True, gc=False):
    weight: Int = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(Lean, frozen=True, gc=False):
    required: NodeSelector | None = msgspec.field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)
    preferred: tuple[PreferredTerm, ...] = msgspec.field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=()
    )


class LabelSelector(Lean, frozen=True, gc=False):
    match_labels: dict[str, str] | None = None
    match_expressions: tuple[SelectorTerm, ...] = ()


class PodAffinityTerm(Lean, frozen=True, gc=False):
    """Pods of some namespaces, and the node label that says what counts as one place."""

    label_selector: LabelSelector | None = None
    topology_key: str = ""
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class WeightedPodAffinityTerm(Lean, frozen=True, gc=False):
    weight: Int = 0
    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


class PodAffinity(Lean, frozen=True, gc=False):
    """Also what podAntiAffinity holds."""

    required: tuple[PodAffinityTerm, ...] = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=()
    )
    preferred: tuple[WeightedPodAffinityTerm, ...] = msgspec.field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=()
    )


class Affinity(Lean, frozen=True, gc=False):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(Lean, frozen=True, gc=False):
    max_skew: Int32 = 1
    topology_key: str = ""
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelector | None = None
    min_domains: Int32 | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: tuple[str, ...] = ()


class PodOS(Lean, frozen=True, gc=False):
    name: str = ""


class PodSpec(Lean, frozen=True, gc=False):
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    ephemeral_containers: tuple[Container, ...] = ()
    resources: Resources | None = None
    overhead: ResourceList | None = None
    node_name: str = ""
    priority: Int32 | None = None
    priority_class_name: str = ""
    preemption_policy: str | None = None
    runtime_class_name: str | None = None
    restart_policy: str | None = None
    os: PodOS | None = None
    volumes: tuple[Volume, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    host_network: bool = False
    termination_grace_period_seconds: Int | None = None
    active_deadline_seconds: Int | None = None


class Metadata(Lean, frozen=True, gc=False):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    generation: Int = 0
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: Int | None = None
    generate_name: str = ""


class Condition(Lean, frozen=True, gc=False):
    type: str = ""
    status: str = ""
    reason: str = ""


class ContainerState(Lean, frozen=True, gc=False):
    running: dict[str, object] | None = None


class ContainerStatus(Lean, frozen=True, gc=False):
    name: str = ""
    resources: Resources | None = None
    allocated_resources: ResourceList | None = None
    state: ContainerState | None = None


class PodStatus(Lean, frozen=True, gc=False):
    phase: str = ""
    qos_class: QoSClass | None = None
    start_time: str | None = None
    resize: str = ""
    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    resources: Resources | None = None
    allocated_resources: ResourceList | None = None
    nominated_node_name: str = ""
    node_allocatable_resource_claim_statuses: tuple[dict[str, object], ...] | None = None


NO_STATUS = PodStatus()


class Pod(Lean, frozen=True, gc=False):
    metadata: Metadata = Metadata()
    spec: PodSpec = PodSpec()
    status: PodStatus = NO_STATUS
    kind: str = ""


class Taint(Lean, frozen=True, gc=False):
    key: str = ""
    value: str = ""
    effect: str = ""


class NodePodPreemptionPolicy(Lean, frozen=True, gc=False):
    """`disable_resize_preemption`: who does not want pods to be preempted for resizes on this node."""

    disable_resize_preemption: tuple[str, ...] = ()


class NodeSpec(Lean, frozen=True, gc=False):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()
    pod_preemption_policy: NodePodPreemptionPolicy = NodePodPreemptionPolicy()


class NodeSwap(Lean, frozen=True, gc=False):
    capacity: Int = 0


class NodeInfo(Lean, frozen=True, gc=False):
    kubelet_version: str = ""
    container_runtime_version: str = ""
    operating_system: str = ""
    swap: NodeSwap = NodeSwap()


class NodeStatus(Lean, frozen=True, gc=False):
    capacity: ResourceList | None = None
    allocatable: ResourceList | None = None
    node_info: NodeInfo = NodeInfo()


class Node(Lean, frozen=True, gc=False):
    metadata: Metadata = Metadata()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


def container_fields(spec: PodSpec, base: str = "spec") -> Iterator[tuple[str, Container]]:
    """Each container with its path in the manifest; init containers first, ephemeral ones last."""
    for kind, containers in (
        ("initContainers", spec.init_containers),
        ("containers", spec.containers),
        ("ephemeralContainers", spec.ephemeral_containers),
    ):
        for index, container in enumerate(containers):
            yield f"{base}.{kind}[{index}]", container


def is_sidecar(container: Container) -> bool:
    """A restartable init container."""
    return container.restart_policy == "Always"


def is_pod_level_resource(name: str, hugepages: bool = True) -> bool:
    """Whether the name is allowed in `spec.resources` (R-3)."""
    return name in (CPU, MEMORY) or (hugepages and name.startswith(HUGEPAGES_PREFIX))


def is_mirror(pod: Pod) -> bool:
    annotations = pod.metadata.annotations
    return annotations is not None and MIRROR_ANNOTATION in annotations


def is_static(pod: Pod) -> bool:
    annotations = pod.metadata.annotations
    return annotations is not None and annotations.get(SOURCE_ANNOTATION, "api") != "api"


def is_critical(pod: Pod) -> bool:
    """Static, mirror, or priority of the system classes; the class name alone does not matter (O-3)."""
    priority = pod.spec.priority
    if priority is not None and priority >= SYSTEM_CRITICAL_PRIORITY:
        return True
    return pod.metadata.annotations is not None and (is_mirror(pod) or is_static(pod))


def is_node_critical(pod: Pod) -> bool:
    return pod.spec.priority_class_name == "system-node-critical" and is_critical(pod)


# Where kinds describe the pods that are created for them.
POD_TEMPLATES: dict[str, tuple[str, ...]] = {
    "Deployment": ("spec", "template"),
    "ReplicaSet": ("spec", "template"),
    "StatefulSet": ("spec", "template"),
    "DaemonSet": ("spec", "template"),
    "ReplicationController": ("spec", "template"),
    "Job": ("spec", "template"),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
    "PodTemplate": ("template",),
}
