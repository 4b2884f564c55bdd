"""Who gets CPUs for itself under the static CPU manager policy (spec 02 §10)."""

from __future__ import annotations

from plimsoll.rules.model.objects import CPU, Container, Pod, QoSClass, is_sidecar
from plimsoll.rules.resources.node_policy import NodePolicy
from plimsoll.rules.resources.qos import GUARANTEED


def exclusive_cpus(pod: Pod, container: Container, qos: QoSClass, policy: NodePolicy) -> int:
    """How many CPUs the container owns: its request, where that is whole and the pod is Guaranteed; else 0."""
    if not policy.static_cpus or qos != GUARANTEED:
        return 0
    if policy.gates.pod_level and pod.spec.resources is not None:
        return 0
    request = (container.resources.requests or {}).get(CPU)
    if request is None or request.milli % 1000:
        return 0
    return request.value


def pod_exclusive_cpus(pod: Pod, qos: QoSClass, policy: NodePolicy) -> int:
    """CPUs the pod holds while it runs: plain init containers hand theirs on to the containers after them."""
    spec = pod.spec
    kept = sum(exclusive_cpus(pod, container, qos, policy) for container in spec.containers)
    sidecars = largest = 0
    for container in spec.init_containers:
        own = exclusive_cpus(pod, container, qos, policy)
        if is_sidecar(container):
            sidecars += own
        else:
            largest = max(largest, own)
    return max(kept, largest) + sidecars
