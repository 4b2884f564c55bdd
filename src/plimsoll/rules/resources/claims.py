"""What resource claims add to a pod's cpu, memory and huge pages (feature gate DRANodeAllocatableResources).

The pod's status lists the claims: the containers that use each, what its device takes of the node (`mapping`) and the
overhead per pod and per container. The pod counts every claim once; each container may use all of it.

Claim of 1Gi with 64Mi per container, used by two containers: the pod counts 1Gi + 2 · 64Mi = 1152Mi, each container's
limit grows by 1088Mi, and for its OOM score it counts 512Mi + 64Mi.

Kubernetes: staging/src/k8s.io/component-helpers/resource/helpers.go, pkg/kubelet/qos/policy.go.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from plimsoll.rules.model.gates import Gates
from plimsoll.rules.model.objects import HUGEPAGES_PREFIX, MEMORY, Pod, ResourceList
from plimsoll.rules.quantity import QUANTITIES, ZERO, Quantity


class _Claim(msgspec.Struct, frozen=True):
    containers: tuple[str, ...]
    mapping: tuple[tuple[str, Quantity], ...]
    overhead: tuple[tuple[str, Quantity, Quantity], ...]  # per pod, per container


def has_claims(pod: Pod, gates: Gates) -> bool:
    return gates.claims and bool(pod.status.node_allocatable_resource_claim_statuses)


def _claims(pod: Pod) -> Iterator[_Claim]:
    found: Any = pod.status.node_allocatable_resource_claim_statuses or ()
    for each in found:
        yield _Claim(
            tuple(each.get("containers") or ()),
            tuple((one["name"], QUANTITIES[str(one["quantity"])]) for one in each.get("mapping") or () if _given(one)),
            tuple(
                (one["name"], _amount(one.get("perPod")), _amount(one.get("perContainer")))
                for one in each.get("overhead") or ()
            ),
        )


def _given(mapping: dict[str, Any]) -> bool:
    return mapping.get("quantity") is not None


def _amount(text: object) -> Quantity:
    return ZERO if text is None else QUANTITIES[str(text)]


def pod_claims(pod: Pod) -> ResourceList:
    total: ResourceList = {}
    for claim in _claims(pod):
        for name, amount in claim.mapping:
            total[name] = total.get(name, ZERO) + amount
        for name, per_pod, per_container in claim.overhead:
            amount = per_pod + sum([per_container] * len(claim.containers), ZERO)
            total[name] = total.get(name, ZERO) + amount
    return total


def container_claims(pod: Pod, container: str) -> ResourceList:
    total: ResourceList = {}
    for claim in _claims(pod):
        if container in claim.containers:
            for name, amount in claim.mapping:
                total[name] = total.get(name, ZERO) + amount
            for name, per_pod, per_container in claim.overhead:
                total[name] = total.get(name, ZERO) + per_pod + per_container
    return total


def memory_share_bytes(pod: Pod, container: str) -> int:
    """What a container counts for its OOM score: its part of what the claim's containers share."""
    share = 0
    for claim in _claims(pod):
        if container in claim.containers:
            count = len(claim.containers)
            share += sum(amount.value // count for name, amount in claim.mapping if name == MEMORY)
            share += sum(
                per_pod.value // count + per_container.value
                for name, per_pod, per_container in claim.overhead
                if name == MEMORY
            )
    return share


def with_claims(requests: ResourceList, pod: Pod) -> ResourceList:
    claimed = pod_claims(pod)
    return requests | {name: requests.get(name, ZERO) + amount for name, amount in claimed.items()}


def with_claimed_limits(limits: ResourceList, pod: Pod) -> ResourceList:
    """Only where there is a limit, and for huge pages, which are not allowed without one."""
    return limits | {
        name: limits.get(name, ZERO) + amount
        for name, amount in pod_claims(pod).items()
        if name in limits or name.startswith(HUGEPAGES_PREFIX)
    }
