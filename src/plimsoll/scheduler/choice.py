"""One scheduling decision, by the scalar rules or, on large clusters, by their vectorized twin."""

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
from plimsoll.scheduler.cache import SchedulerCache

if TYPE_CHECKING:
    from plimsoll.rules.scheduling.vectorized import Fleet

LARGE = 256  # the number of nodes above which the arrays are faster; numpy is not loaded below it

log = logging.getLogger(__name__)


class Choice:
    """Starts each search where the last one ended, so that large clusters fill evenly."""

    def __init__(self, cache: SchedulerCache, profile: Profile, *, large: int = LARGE) -> None:
        self._cache, self._profile, self._large = cache, profile, large
        self._start = 0
        self._fleet: Fleet | None = None
        self._fleet_version = -1
        self._has_arrays: bool | None = None

    def decide(self, pod: Pod, nominated: Nominated, budgets: Sequence[PodDisruptionBudget]) -> SchedulingDecision:
        decision = None
        topology = self._cache.topology(pod)
        volumes, blocked = self._cache.claims.filter_for(pod, self._profile)
        if topology is None and volumes is None and not blocked and self._uses_arrays():
            decision = self._synced_fleet().decide(pod, nominated, self._start)
        if decision is None:
            loads = self._cache.loads()
            start = self._start % len(loads) if loads else 0
            decision = decide(
                pod,
                loads,
                self._profile,
                nominated=nominated,
                budgets=budgets,
                start=start,
                topology=topology,
                volumes=volumes,
                blocked=blocked,
            )
        self._start = decision.next_start
        return decision

    def _uses_arrays(self) -> bool:
        if len(self._cache) <= self._large:
            return False
        if self._has_arrays is None:
            self._has_arrays = importlib.util.find_spec("numpy") is not None
            if not self._has_arrays:
                log.warning("more than %d nodes without numpy: decisions are slow; install plimsoll-k8s[sim]", LARGE)
        return self._has_arrays

    def _synced_fleet(self) -> Fleet:
        """The arrays with all changes of the cache."""
        cache = self._cache
        if self._fleet is None or self._fleet_version != cache.nodes_version:
            from plimsoll.rules.scheduling.vectorized import Fleet

            self._fleet, self._fleet_version = Fleet(cache.loads(), self._profile), cache.nodes_version
            self._start %= max(len(cache), 1)
        else:
            for name in cache.changed:
                load = cache.load(name)
                if load is not None:
                    self._fleet.update(load)
        cache.changed.clear()
        return self._fleet
