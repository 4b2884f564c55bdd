"""Which containers get exclusive CPUs under the static CPU manager policy (02 §10).

Kubernetes: pkg/kubelet/cm/cpumanager/policy_static.go.
"""

from __future__ import annotations

from plimsoll.rules.model.objects import CPU, Container, Pod, QoSClass, is_sidecar
from plimsoll.rules.resources.effective import pod_level_set
from plimsoll.rules.resources.node_policy import NodePolicy
from plimsoll.rules.resources.qos import GUARANTEED


def exclusive_cpus(pod: Pod, container: Container, qos: QoSClass, policy: NodePolicy) -> int:
    """The container's request, if it is a whole number and the pod is Guaranteed; otherwise 0."""
    if not policy.static_cpus or qos != GUARANTEED:
        return 0
    if left_out_by_managers(pod, policy):
        return 0
    request = (container.resources.requests or {}).get(CPU)
    if request is None or request.milli % 1000:
        return 0
    return request.value


def left_out_by_managers(pod: Pod, policy: NodePolicy) -> bool:
    """Whether the pod gets no exclusive CPUs, and no memory of chosen NUMA nodes, because it has pod-level resources
    (CM-10, MM-5). An empty `spec.resources` is none."""
    return policy.pod_level_unmanaged and policy.gates.pod_level and pod_level_set(pod.spec.resources, policy.gates)


def pod_exclusive_cpus(pod: Pod, qos: QoSClass, policy: NodePolicy) -> int:
    """CPUs of the pod: the containers and sidecars together, or the largest ordinary init container with the sidecars
    before it (CM-21).

    Init 4, sidecar 1, init 4, containers 2 and 1: max(2 + 1 + 1, 4, 1 + 4) = 5.
    """
    spec = pod.spec
    regular = sum(exclusive_cpus(pod, container, qos, policy) for container in spec.containers)
    sidecars = largest = 0
    for container in spec.init_containers:
        own = exclusive_cpus(pod, container, qos, policy)
        if is_sidecar(container):
            sidecars += own
        else:
            largest = max(largest, sidecars + own)
    return max(regular + sidecars, largest)
