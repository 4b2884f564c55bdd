"""One decision, by the scalar rules or, on large clusters, by their twin over arrays."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from plimsoll.rules.model.objects import Pod
from plimsoll.rules.model.policies import PodDisruptionBudget
from plimsoll.rules.profile import Profile
from plimsoll.rules.scheduling.cycle import SchedulingDecision, decide
from plimsoll.rules.scheduling.preemption import Nominated
from plimsoll.scheduler.cluster import SchedulerCache

if TYPE_CHECKING:
    from plimsoll.rules.scheduling.vectorized import Fleet

LARGE = 256  # nodes from which on the arrays pay; below, numpy is never loaded

log = logging.getLogger(__name__)


class Choice:
    """Keeps where the last search ended, so that large clusters fill evenly."""

    def __init__(self, cluster: SchedulerCache, profile: Profile, *, large: int = LARGE) -> None:
        self._cluster, self._profile, self._large = cluster, profile, large
        self._start = 0
        self._fleet: Fleet | None = None
        self._fleet_version = -1
        self._has_arrays: bool | None = None

    def decide(self, pod: Pod, nominated: Nominated, budgets: Sequence[PodDisruptionBudget]) -> SchedulingDecision:
        decision = None
        if self._arrays():
            decision = self._mirrored().decide(pod, nominated, self._start)
        if decision is None:
            loads = self._cluster.loads()
            start = self._start % len(loads) if loads else 0
            decision = decide(pod, loads, self._profile, nominated=nominated, budgets=budgets, start=start)
        self._start = decision.next_start
        return decision

    def _arrays(self) -> bool:
        if len(self._cluster) <= self._large:
            return False
        if self._has_arrays is None:
            self._has_arrays = importlib.util.find_spec("numpy") is not None
            if not self._has_arrays:
                log.warning("more than %d nodes without numpy: decisions are slow; install plimsoll-k8s[sim]", LARGE)
        return self._has_arrays

    def _mirrored(self) -> Fleet:
        cluster = self._cluster
        if self._fleet is None or self._fleet_version != cluster.nodes_version:
            from plimsoll.rules.scheduling.vectorized import Fleet

            self._fleet, self._fleet_version = Fleet(cluster.loads(), self._profile), cluster.nodes_version
            self._start %= max(len(cluster), 1)
        else:
            for name in cluster.changed:
                load = cluster.load(name)
                if load is not None:
                    self._fleet.update(load)
        cluster.changed.clear()
        return self._fleet
