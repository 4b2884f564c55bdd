"""Control files and OOM scores of many cgroups at once: the rules of `values`, `files` and `oom`, column by column.

What depends on one number alone (a weight, a quota's text, a score) is remembered per number: a fleet writes the same
few hundred amounts over and over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from itertools import repeat
from typing import TypeVar

from plimsoll.rules.cpu import shares
from plimsoll.rules.figures import Amounts
from plimsoll.rules.files import Files, FilesV2, cpu_max, cpu_weight, files_v1, hugepage_file
from plimsoll.rules.memory import memory_high
from plimsoll.rules.objects import CPU, HUGEPAGES_PREFIX, MEMORY, QoSClass
from plimsoll.rules.oom import burstable_score, clamped
from plimsoll.rules.policy import CgroupVersion, NodePolicy
from plimsoll.rules.qos import BEST_EFFORT
from plimsoll.rules.values import (
    container_cgroup,
    container_protection,
    container_quota,
    page_size_bytes,
    pod_cgroup,
    pod_protection,
    pod_quota,
)

Number = TypeVar("Number")  # or a resource's name
Answer = TypeVar("Answer")


class _Memo(dict[Number, Answer]):
    """The answers of a function of one number or name. Cleared when full: a bound, paid by computing again."""

    bound = 8192

    def __init__(self, compute: Callable[[Number], Answer]) -> None:
        self._compute = compute

    def __missing__(self, number: Number) -> Answer:
        if len(self) >= self.bound:
            self.clear()
        self[number] = answer = self._compute(number)
        return answer


class Conversions:
    """What a node makes of single numbers."""

    def __init__(self, policy: NodePolicy) -> None:
        capacity = policy.memory_capacity_bytes
        self.score = _Memo[int, int](lambda request: clamped(burstable_score(request, capacity)))
        self.container_weight = _Memo[int, int](lambda milli: cpu_weight(shares(milli), policy.weight))
        self.container_max = _Memo[int, str | None](lambda milli: cpu_max(*container_quota(milli, policy)))
        self.pod_weight = _Memo[int, int](lambda milli: cpu_weight(shares(milli), "linear"))
        self.hugepage_file = _Memo[str, str | None](partial(_hugepage_file, policy.cgroup_version))
        self.pod_max = _Memo[int | None, str | None](lambda milli: cpu_max(*pod_quota(milli, policy)))


def _hugepage_file(version: CgroupVersion, name: str) -> str | None:
    return hugepage_file(page_size_bytes(name), version) if name.startswith(HUGEPAGES_PREFIX) else None


conversions = lru_cache(maxsize=4)(Conversions)


def container_files(
    classes: Sequence[QoSClass],
    cpu_asks: Sequence[int],
    memory_asks: Sequence[int],
    cpu_caps: Sequence[int],
    own_memory_caps: Sequence[int],
    memory_caps: Sequence[int],
    policy: NodePolicy,
) -> Iterable[Files]:
    if policy.cgroup_version == 1:
        columns = (classes, cpu_asks, memory_asks, cpu_caps, own_memory_caps, memory_caps)
        return map(files_v1, map(container_cgroup, *columns, repeat(0), repeat(None), repeat(policy)))
    known = conversions(policy)
    minima: Iterable[int | None] = repeat(None)
    low: Iterable[int | None] = repeat(None)
    high: Iterable[int | None] = repeat(None)
    if policy.memory_qos:
        reservation, allocatable, factor = policy.reservation, policy.allocatable_memory_bytes, policy.throttling_factor
        page_size, without_request = policy.page_size, policy.high_without_request
        minima, low = zip(
            *[container_protection(each, qos, reservation) for each, qos in zip(memory_asks, classes, strict=True)],
            strict=True,
        )
        high = [
            memory_high(each, limit, allocatable, factor, page_size, without_request)
            for each, limit in zip(memory_asks, own_memory_caps, strict=True)
        ]
    return map(
        FilesV2,
        map(known.container_weight.__getitem__, cpu_asks),
        map(known.container_max.__getitem__, cpu_caps),
        minima,
        low,
        high,
        [each or None for each in memory_caps],
        repeat(0 if policy.swap_controller else None),
        repeat(1 if policy.oom_group else None),
    )


def hugepages(amounts: Amounts, policy: NodePolicy) -> dict[str, int] | None:
    """The files of every huge page size that a pod names; None where it names none."""
    known = conversions(policy).hugepage_file
    return {file: amount for name, amount in amounts.items() if (file := known[name]) is not None} or None


def pod_files(
    classes: Sequence[QoSClass],
    requests: Sequence[Amounts],
    cpu_limits: Sequence[int | None],
    memory_limits: Sequence[int | None],
    policy: NodePolicy,
) -> Iterable[Files]:
    cpu = [0 if qos == BEST_EFFORT else each.get(CPU, 0) for qos, each in zip(classes, requests, strict=True)]
    memory = [each.get(MEMORY, 0) for each in requests]
    if policy.cgroup_version == 1:
        columns = (classes, cpu, memory, cpu_limits, memory_limits)
        return map(files_v1, map(pod_cgroup, *columns, repeat(None), repeat(policy)))
    known = conversions(policy)
    minima: Iterable[int | None] = repeat(None)
    low: Iterable[int | None] = repeat(None)
    if policy.memory_qos:
        reservation = policy.reservation
        minima, low = zip(
            *[pod_protection(each, qos, reservation) for each, qos in zip(memory, classes, strict=True)],
            strict=True,
        )
    return map(
        FilesV2,
        map(known.pod_weight.__getitem__, cpu),
        map(known.pod_max.__getitem__, cpu_limits),
        minima,
        low,
        repeat(None),
        [each or None for each in memory_limits],
        repeat(None),
        repeat(None),
        repeat(policy.pod_pids_limit if policy.pod_pids_limit > 0 else None),
    )
