"""The walk of `batch`: one pod → its figures, by the rules of `effective` and `qos`.

Everything is added up in thousandths, which amounts are whole numbers of once R-2 has rounded them, and rounded up to
bytes and pieces at the end. Pods with pod-level resources go by name (`batch_by_name`), and so do those with fractions
that a maximum or overhead would meet.
"""

from __future__ import annotations

from plimsoll.rules.batch_by_name import figures_by_name
from plimsoll.rules.defaulting import defaulted
from plimsoll.rules.effective import added, peak, with_overhead
from plimsoll.rules.figures import Amounts, Columns, Figures, in_bounds, thousandths, whole
from plimsoll.rules.held import held_pod
from plimsoll.rules.objects import CPU, MEMORY, NO_STATUS, Pod, ResourceList
from plimsoll.rules.policy import NodePolicy
from plimsoll.rules.qos import BEST_EFFORT, BURSTABLE, GUARANTEED, class_of
from plimsoll.rules.quantity import ZERO
from plimsoll.rules.sizes import has_page_size
from plimsoll.rules.values import declared_limits

_all_usual = frozenset({CPU, MEMORY}).issuperset


def figures(pod: Pod, columns: Columns, start: int, end: int, policy: NodePolicy) -> Figures | None:
    """The figures of the pod whose containers stand at start:end; what pod level leaves them is written there.

    None where only `pod_plan` knows what to do: an amount is negative or beyond every node, a resize is pending.
    """
    status = pod.status
    if status is not NO_STATUS and (status.container_statuses or status.init_container_statuses):
        pod = defaulted(pod, pod_level=policy.pod_level)
        if held_pod(pod) is not pod:
            return None
    if pod.spec.resources is None:
        found = _plain(pod, columns, start, end)
        if found is not None:
            return found
    return figures_by_name(pod, columns, start, end, policy)


def _plain(pod: Pod, columns: Columns, start: int, end: int) -> Figures | None:
    spec = pod.spec
    requests, limits = columns.requests[start:end], columns.limits[start:end]
    requested, limited = _summed(requests), _summed(limits)
    every_cpu, every_memory = all(columns.cpu_limits[start:end]), all(columns.own_memory_limits[start:end])
    memory_request, memory_limit = requested.get(MEMORY, 0), limited.get(MEMORY, 0)
    qos = pod.status.qos_class or class_of(
        every_cpu and every_memory,
        (requested.get(CPU, 0), memory_request),
        (limited.get(CPU, 0), memory_limit),
    )
    if spec.init_containers or spec.overhead:
        if memory_request % 1000 or memory_limit % 1000:
            return None
        if spec.init_containers:
            sidecars = [each.restart_policy == "Always" for each in spec.init_containers]
            if not all(sidecars):  # with sidecars only, the worst moment is when everybody runs
                _take_peaks(requested, requests, sidecars)
                _take_peaks(limited, limits, sidecars)
            if qos == BURSTABLE and not (every_cpu and every_memory):
                every_cpu, every_memory = declared_limits(pod)
        if spec.overhead:
            overhead = thousandths(spec.overhead)
            requested, limited = added(requested, overhead), with_overhead(limited, overhead)
    if not (in_bounds(requested) and in_bounds(limited)):
        return None
    if not _all_usual(requested) and not _others_whole(requested, limited):
        return None
    requested, limited = whole(requested), whole(limited)
    if qos == BEST_EFFORT:
        return qos, requested, limited, None, None, 0
    return (
        qos,
        requested,
        limited,
        limited.get(CPU, 0) if every_cpu or qos == GUARANTEED else None,
        limited.get(MEMORY, 0) if every_memory or qos == GUARANTEED else None,
        0,
    )


def _summed(lists: list[ResourceList]) -> Amounts:
    if len(lists) == 1:
        return thousandths(lists[0])
    total: Amounts = {}
    for each in lists:
        for name, quantity in each.items():
            total[name] = total.get(name, 0) + quantity.tally
    return total


def _take_peaks(total: Amounts, lists: list[ResourceList], sidecars: list[bool]) -> None:
    """Replace sums by what is asked for at the worst moment, name by name."""
    count = len(sidecars)
    regular = _summed(lists[count:])
    for name in total:
        column = [each.get(name, ZERO).tally for each in lists[:count]]
        total[name] = peak(regular.get(name, 0), zip(sidecars, column, strict=True)) or 0


def _others_whole(requests: Amounts, limits: Amounts) -> bool:
    """Are all but cpu and memory whole, and page sizes readable? Every limited name is requested too (D-1)."""
    for name, amount in requests.items():
        if name != CPU and name != MEMORY:
            if amount % 1000 or limits.get(name, 0) % 1000 or not has_page_size(name):
                return False
    return True
