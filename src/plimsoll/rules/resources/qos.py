"""The QoS class of a pod (01 §5). Zero counts as absent, and only cpu and memory count (QC-1).

Requests = limits in every container, cpu 500m and memory 1Gi: Guaranteed. Any request or limit that differs: Burstable.
No request and no limit: BestEffort.

Kubernetes: pkg/apis/core/v1/helper/qos/qos.go.
"""

from __future__ import annotations

from plimsoll.rules.model.gates import DEFAULT_GATES, Gates
from plimsoll.rules.model.objects import CPU, MEMORY, Pod, PodSpec, QoSClass, ResourceList, Resources
from plimsoll.rules.resources.effective import pod_level_set

GUARANTEED: QoSClass = "Guaranteed"
BURSTABLE: QoSClass = "Burstable"
BEST_EFFORT: QoSClass = "BestEffort"


def qos_class(pod: Pod, *, gates: Gates = DEFAULT_GATES) -> QoSClass:
    """The class in the pod's status, or computed from the spec if there is none."""
    stored = pod.status.qos_class if gates.class_from_status else None
    return stored or computed_qos_class(pod, gates=gates)


def decided_by_pod_level(resources: Resources | None, gates: Gates) -> bool:
    """Whether `spec.resources` decides the class: if present, or, fixed, if it names a resource (QC-2)."""
    return resources is not None and gates.pod_level and (not gates.fixed_class or pod_level_set(resources))


def computed_qos_class(pod: Pod, *, gates: Gates = DEFAULT_GATES) -> QoSClass:
    """From the spec alone: sums over all containers and init containers, without the maximum rule (QC-3)."""
    spec = pod.spec
    if spec.resources is not None and decided_by_pod_level(spec.resources, gates):
        return _requirements_class(spec.resources) if gates.class_per_container else _pod_level_class(spec.resources)
    if gates.class_per_container:
        return _combined_class(spec)
    cpu_request = memory_request = cpu_limit = memory_limit = 0
    candidate = True
    containers = spec.containers + spec.init_containers if spec.init_containers else spec.containers
    for container in containers:
        resources = container.resources
        if requests := resources.requests:
            if (quantity := requests.get(CPU)) is not None and quantity.nanos > 0:
                cpu_request += quantity.nanos
            if (quantity := requests.get(MEMORY)) is not None and quantity.nanos > 0:
                memory_request += quantity.nanos
        limited = 0
        if limits := resources.limits:
            if (quantity := limits.get(CPU)) is not None and quantity.nanos > 0:
                cpu_limit += quantity.nanos
                limited += 1
            if (quantity := limits.get(MEMORY)) is not None and quantity.nanos > 0:
                memory_limit += quantity.nanos
                limited += 1
        if limited != 2:
            candidate = False
    return class_of(candidate, (cpu_request, memory_request), (cpu_limit, memory_limit))


def _combined_class(spec: PodSpec) -> QoSClass:
    """QC-3 since 1.37: the class of each container, Burstable if they differ."""
    classes = {_requirements_class(each.resources) for each in spec.init_containers + spec.containers}
    return classes.pop() if len(classes) == 1 else BURSTABLE if classes else BEST_EFFORT


def _requirements_class(resources: Resources) -> QoSClass:
    requests, limits = resources.requests or {}, resources.limits or {}
    pairs = [(_nanos(requests, name), _nanos(limits, name)) for name in (CPU, MEMORY)]
    if any(request != limit for request, limit in pairs):
        return BURSTABLE
    present = [bool(request) for request, _ in pairs]
    return GUARANTEED if all(present) else BURSTABLE if any(present) else BEST_EFFORT


def _nanos(resources: ResourceList, name: str) -> int:
    quantity = resources.get(name)
    return 0 if quantity is None else quantity.nanos


def _pod_level_class(resources: Resources) -> QoSClass:
    """QC-2: with a pod-level block, even an empty one, the containers do not count."""
    requests, limits = resources.requests or {}, resources.limits or {}
    return pod_level_class(
        (_positive(requests, CPU), _positive(requests, MEMORY)),
        (_positive(limits, CPU), _positive(limits, MEMORY)),
        bool(limits),
    )


def pod_level_class(requests: tuple[int, int], limits: tuple[int, int], any_limit: bool) -> QoSClass:
    """QC-2 on amounts of cpu and memory; `any_limit`: of any resource."""
    return class_of(not any_limit or all(limits), requests, limits)


def class_of(candidate: bool, requests: tuple[int, int], limits: tuple[int, int]) -> QoSClass:
    """QC-4 on sums of cpu and memory. All amounts are positive, so equal sums also mean equal sets of names.

    `candidate`: every container has a positive cpu limit and a positive memory limit.
    """
    if requests != limits:
        return BURSTABLE
    if requests == (0, 0):
        return BEST_EFFORT
    return GUARANTEED if candidate else BURSTABLE


def _positive(resources: ResourceList, name: str) -> int:
    quantity = resources.get(name)
    return quantity.nanos if quantity is not None and quantity.nanos > 0 else 0
