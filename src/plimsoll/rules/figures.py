"""What pods and their containers ask for, as plain whole numbers: between the walk and the stages of `batch`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from plimsoll.rules.objects import CPU, MEMORY, Pod, QoSClass, ResourceList
from plimsoll.rules.quantity import MAX_INT64, ZERO

Amounts = dict[str, int]

# class, effective requests, effective limits, cpu and memory limit of the pod's cgroup (None: none), and what each
# container's OOM score counts beside its own request (O-3 step 3)
Figures = tuple[QoSClass, Amounts, Amounts, int | None, int | None, int]

_NOTHING: ResourceList = {}


class Columns:
    """The containers of a block, init containers before the others of their pod: one list per figure.

    `bounds` says where each pod's containers begin and end. Amounts are milli-cores and bytes, 0 for none.
    """

    def __init__(self, pods: Sequence[Pod]) -> None:
        specs = [pod.spec for pod in pods]
        everybody = [
            spec.init_containers + spec.containers if spec.init_containers else spec.containers for spec in specs
        ]
        containers = list(chain.from_iterable(everybody))
        self.bounds = [0]
        for count in map(len, everybody):
            self.bounds.append(self.bounds[-1] + count)
        self.names = [each.name for each in containers]
        resources = [each.resources for each in containers]
        self.limits = [each.limits or _NOTHING for each in resources]
        self.requests = [
            _requested(each.requests or _NOTHING, limits) for each, limits in zip(resources, self.limits, strict=True)
        ]
        self.cpu_requests = [each.get(CPU, ZERO).milli for each in self.requests]
        self.memory_requests = [each.get(MEMORY, ZERO).value for each in self.requests]
        self.cpu_limits = [each.get(CPU, ZERO).milli for each in self.limits]
        self.own_memory_limits = [each.get(MEMORY, ZERO).value for each in self.limits]
        self.memory_limits = list(self.own_memory_limits)


def _requested(requests: ResourceList, limits: ResourceList) -> ResourceList:
    """D-1: limits stand in for the requests that are missing. cpu and memory come first."""
    if not limits or limits.keys() <= requests.keys():
        return requests
    if not requests:
        return limits
    both = {**limits, **requests}
    return {name: both[name] for name in (CPU, MEMORY) if name in both} | both


def thousandths(resources: ResourceList | None) -> Amounts:
    return {name: each.tally for name, each in resources.items()} if resources else {}


def in_bounds(amounts: Amounts) -> bool:
    """Nothing is negative (`Quantity.tally`) or more than any node has."""
    return not amounts or max(amounts.values()) <= MAX_INT64


def whole(amounts: Amounts) -> Amounts:
    """Thousandths → what is shown: cpu stays in milli-cores, everything else becomes bytes or pieces (Q-13)."""
    return {name: each if name == CPU else -(-each // 1000) for name, each in amounts.items()}
