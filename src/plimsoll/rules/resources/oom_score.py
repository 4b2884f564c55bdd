"""oom_score_adj: which process the kernel kills first (01 §7).

The kernel adds oom_score_adj to a process's own score, which is its share of memory in thousandths. A Burstable
container gets 1000 less the share that it requests, so a container within its request scores below one that exceeds it.

Kubernetes: pkg/kubelet/qos/policy.go. Kernel: Documentation/filesystems/proc.rst, oom_score_adj.
"""

from __future__ import annotations

from plimsoll.rules.model.objects import MEMORY, Container, Pod, QoSClass, is_node_critical, is_sidecar
from plimsoll.rules.resources.claims import has_claims, memory_share_bytes, with_claims
from plimsoll.rules.resources.effective import container_requests, pod_level_requests_set
from plimsoll.rules.resources.node_policy import NodePolicy
from plimsoll.rules.resources.qos import BEST_EFFORT, GUARANTEED

KUBELET_SCORE = -999
SANDBOX_SCORE = -998  # the runtime's constant for the pause container
GUARANTEED_SCORE = -997
BEST_EFFORT_SCORE = 1000
LOWEST_BURSTABLE = 1000 + GUARANTEED_SCORE


def pod_share_bytes(pod: Pod, policy: NodePolicy) -> int:
    """O-3 step 3: what pod level requests beyond its containers, divided evenly among them."""
    spec = pod.spec
    if spec.resources is None or not pod_level_requests_set(spec.resources, policy.gates):
        return 0
    requested = (spec.resources.requests or {}).get(MEMORY)
    if not requested:
        return 0
    requests = container_requests(pod)
    if has_claims(pod, policy.gates):
        requests = with_claims(requests, pod)
    aggregated = requests.get(MEMORY)
    count = len(spec.containers) + len(spec.init_containers)
    share = surplus_share(requested.value, aggregated.value if aggregated is not None else 0, count)
    return max(share, 0) if policy.pod_level_oom_share_floored else share


def surplus_share(pod_bytes: int, container_bytes: int, count: int) -> int:
    """One container's part, truncated as Go divides: 2Gi at pod level, 1Gi in 2 containers: (2Gi − 1Gi) / 2 = 512Mi."""
    surplus, heads = pod_bytes - container_bytes, count or 1  # a pod without containers has one share
    return surplus // heads if surplus >= 0 else -(-surplus // heads)


def smallest_request_bytes(pod: Pod) -> int:
    """The smallest memory request of the regular containers: no sidecar is killed before its app (O-3 step 5)."""
    return min((memory_request_bytes(container) for container in pod.spec.containers), default=0)


def oom_scores(pod: Pod, qos: QoSClass, policy: NodePolicy) -> list[int]:
    """One score per init container, then per container, then per ephemeral container, which requests nothing of its
    own, and counts the share of pod level as the others do (O-5)."""
    spec = pod.spec
    constant = pod_score(pod, qos)
    if constant is not None:
        return [constant] * (len(spec.init_containers) + len(spec.containers) + len(spec.ephemeral_containers))
    shared = spec.resources is not None and policy.gates.pod_level and policy.pod_level_oom_share
    extra = pod_share_bytes(pod, policy) if shared else 0
    claims = has_claims(pod, policy.gates)

    def counted(container: Container) -> int:
        share = memory_share_bytes(pod, container.name) if claims else 0
        return memory_request_bytes(container) + share + extra

    regular, initial = [*map(counted, spec.containers)], [*map(counted, spec.init_containers)]
    sidecars = [policy.sidecar_oom_rule and is_sidecar(container) for container in spec.init_containers]
    return [
        clamped(burstable_score(request, policy.memory_capacity_bytes))
        for request in (*counted_bytes(initial, sidecars, regular), *(extra for _ in spec.ephemeral_containers))
    ]


def counted_bytes(initial_bytes: list[int], sidecars: list[bool], regular_bytes: list[int]) -> list[int]:
    """The memory request that each score is computed from, init containers first (O-3 step 5).

    A sidecar counts at least the smallest request of the regular containers: 64Mi beside 256Mi counts as 256Mi.
    """
    least = min(regular_bytes, default=0)
    initial = zip(initial_bytes, sidecars, strict=True)
    return [max(own, least) if sidecar else own for own, sidecar in initial] + regular_bytes


def pod_score(pod: Pod, qos: QoSClass) -> int | None:
    """The score of all containers of the pod; None where requests decide (O-3 steps 1 and 2)."""
    if pod.spec.priority_class_name and is_node_critical(pod):
        return GUARANTEED_SCORE
    if qos == GUARANTEED:
        return GUARANTEED_SCORE
    return BEST_EFFORT_SCORE if qos == BEST_EFFORT else None


def clamped(score: int) -> int:
    """O-3 step 6: at least 3, above Guaranteed (−997 → 3), and 999 in place of 1000, below BestEffort."""
    if score < LOWEST_BURSTABLE:
        return LOWEST_BURSTABLE
    return BEST_EFFORT_SCORE - 1 if score == BEST_EFFORT_SCORE else score


def burstable_score(request_bytes: int, memory_capacity_bytes: int) -> int:
    """Requests 1Gi on 8Gi: 1000 − 1000 · 1/8 = 875, truncated as Go divides, before clamping (O-3 step 4)."""
    thousandths = 1000 * request_bytes
    if thousandths >= 0:
        return 1000 - thousandths // memory_capacity_bytes
    return 1000 + -thousandths // memory_capacity_bytes


def memory_request_bytes(container: Container) -> int:
    requests = container.resources.requests
    if not requests:
        return 0
    quantity = requests.get(MEMORY)
    return 0 if quantity is None else quantity.value
