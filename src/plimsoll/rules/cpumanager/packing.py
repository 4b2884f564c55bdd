"""The packed allocator: a number of CPUs out of the available ones, in whole parts first (CM-2, CM-11, CM-12).

Whole NUMA nodes and sockets are taken first, then caches (option `prefer-align-cpus-by-uncorecache`), whole cores and
single threads. Parts with the fewest available CPUs come first at every level, so that free parts stay whole.

Kubernetes: pkg/kubelet/cm/cpumanager/cpu_assignment.go, takeByTopologyNUMAPacked.
"""

from __future__ import annotations

from collections.abc import Mapping

from plimsoll.errors import StructuredError
from plimsoll.rules.cpumanager.topology import NO_CPUS, Cpus, CpuTopology

UNEXPECTED = "UnexpectedAdmissionError"


class NotEnoughCpusError(StructuredError):
    """`counted`: the text has the numbers (since 1.29)."""

    reason = UNEXPECTED

    requested: int
    available: int
    counted: bool = True

    def __str__(self) -> str:
        counts = f": requested={self.requested}, available={self.available}" if self.counted else ""
        return f"Allocate failed due to not enough cpus available to satisfy request{counts}, which is unexpected"


def packed(
    topology: CpuTopology,
    available: Cpus,
    count: int,
    *,
    spread: bool = False,
    by_uncore: bool = False,
    odd_uncore: bool = True,
) -> Cpus:
    """`count` of the available CPUs. `spread`: single threads of different cores (`distribute-cpus-across-cores`);
    `by_uncore`: CPUs that share a cache; `odd_uncore`: also for a part of a core (since 1.34). Raises
    NotEnoughCpusError."""
    if count < 1:
        return NO_CPUS
    if len(available) < count:
        raise NotEnoughCpusError(count, len(available))
    return _Packing(topology, available, count, odd_uncore=odd_uncore).result(spread=spread, by_uncore=by_uncore)


def single_threads(topology: CpuTopology, available: Cpus, count: int) -> Cpus:
    """`count` of the available CPUs, thread by thread, fewest available first."""
    return frozenset(list(dict.fromkeys(_Packing(topology, available, count).packed_singles()))[:count])


def numa_order(topology: CpuTopology, available: Cpus) -> list[int]:
    """The NUMA nodes with available CPUs: fewest first, below the sockets if these are larger (07 §2.2)."""
    return _Packing(topology, available, 0).numa_nodes()


class _Packing:
    def __init__(self, topology: CpuTopology, available: Cpus, count: int, *, odd_uncore: bool = True) -> None:
        self._topology, self._left, self._needed, self._odd_uncore = topology, available, count, odd_uncore
        self._taken: Cpus = NO_CPUS

    def result(self, *, spread: bool, by_uncore: bool) -> Cpus:
        first, second = (
            (self._take_numa_nodes, self._take_sockets)
            if self._is_numa_first
            else (self._take_sockets, self._take_numa_nodes)
        )
        first()
        if self._needed:
            second()
        if self._needed and by_uncore:
            self._take_uncores()
        if self._needed and not spread:
            self._take_whole(self._cores(), self._topology.by_core, self._topology.threads_per_core)
        if self._needed:
            singles = self._spread_singles() if spread else self.packed_singles()
            self._take(frozenset(singles[: self._needed]))
        return self._taken

    def _take(self, cpus: Cpus) -> None:
        self._taken |= cpus
        self._left -= cpus
        self._needed -= len(cpus)

    # --- orders: parts with at least one available CPU, fewest available first, then by number ---
    # A socket in several NUMA nodes, on a machine with as many sockets as nodes, is listed and counted for each.

    @property
    def _is_numa_first(self) -> bool:
        return self._topology.sockets >= self._topology.numa_nodes

    def _sorted(self, cpus: Cpus, level: str, within: Mapping[int, Cpus]) -> list[int]:
        """The parts of `cpus`, ordered by what is available in the whole part."""
        return sorted(self._topology.parts(cpus, level), key=lambda part: (len(within[part]), part))

    def numa_nodes(self) -> list[int]:
        parts = self._topology.parts(self._left, "numa")
        if self._is_numa_first:
            return self._sorted(self._left, "numa", parts)
        sockets = self._topology.parts(self._left, "socket")
        return [node for socket in self._sockets() for node in self._sorted(sockets[socket], "numa", parts)]

    def _sockets(self) -> list[int]:
        parts = self._topology.parts(self._left, "socket")
        if not self._is_numa_first:
            return self._sorted(self._left, "socket", parts)
        nodes = self._topology.parts(self._left, "numa")
        return [socket for node in self.numa_nodes() for socket in self._sorted(nodes[node], "socket", parts)]

    def _cores(self) -> list[int]:
        outer, parts = (self._sockets(), "socket") if self._is_numa_first else (self.numa_nodes(), "numa")
        groups, cores = self._topology.parts(self._left, parts), self._topology.parts(self._left, "core")
        return [core for part in outer for core in self._sorted(groups[part], "core", cores)]

    def _uncores(self) -> list[int]:
        nodes, uncores = self._topology.parts(self._left, "numa"), self._topology.parts(self._left, "uncore")
        return [each for node in self.numa_nodes() for each in self._sorted(nodes[node], "uncore", uncores)]

    def packed_singles(self) -> list[int]:
        cores = self._topology.parts(self._left, "core")
        return [cpu for core in self._cores() for cpu in sorted(cores[core])]

    def _spread_singles(self) -> list[int]:
        sockets = self._topology.parts(self._left, "socket")
        return [cpu for socket in self._sockets() for cpu in sorted(sockets[socket])]

    # --- steps ---

    def _take_whole(self, order: list[int], every: Mapping[int, Cpus], size: int | None = None) -> None:
        """Parts that are free: all of their CPUs are available, or as many as an average part has (`size`)."""
        free = [part for part in order if len(every[part] & self._left) == (size or len(every[part]))]
        for part in free:
            if self._needed >= len(every[part]):
                self._take(every[part])

    def _take_numa_nodes(self) -> None:
        self._take_whole(self.numa_nodes(), self._topology.by_numa)

    def _take_sockets(self) -> None:
        self._take_whole(self._sockets(), self._topology.by_socket, self._topology.cpus_per_socket)

    def _take_uncores(self) -> None:
        """Whole caches, then a part of one cache that is large enough (CM-12)."""
        for uncore in self._uncores():
            if self._needed >= self._topology.cpus_per_uncore:
                self._take_whole(self._uncores(), self._topology.by_uncore)
            if not self._needed:
                return
            self._take_part_of(uncore)
            if not self._needed:
                return

    def _take_part_of(self, uncore: int) -> None:
        per_core = self._topology.threads_per_core
        in_cache = self._topology.by_uncore[uncore] & self._left
        number = -(-self._needed // per_core) if self._odd_uncore else self._needed // per_core
        cores = sorted(self._topology.parts(in_cache, "core"))[:number]
        # All available CPUs of these cores, as real kubelets count them.
        found = sorted(cpu for core in cores for cpu in self._topology.by_core[core] & self._left)
        if self._odd_uncore and self._needed % 2 and per_core > 1 and len(found) > self._needed:
            found.pop()
        if len(found) == self._needed:
            self._take(frozenset(found))
