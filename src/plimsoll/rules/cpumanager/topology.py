"""The CPU topology of a machine: threads of a core, cores of a socket, NUMA nodes, caches of the last level.

A core is named by its lowest CPU, because the kernel's `core_id` restarts in every socket (CM-1). `details` parses the
texts of `/sys/devices/system/cpu`; `flat` is a machine of which only the number of CPUs is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property

import msgspec

from plimsoll.errors import InvalidConfigError
from plimsoll.rules.cpuset import cpu_numbers

Cpus = frozenset[int]
NO_CPUS: Cpus = frozenset()


class LogicalCpu(msgspec.Struct, frozen=True, gc=False):
    """The core, socket and NUMA node of one CPU. `cache`: its cache of the last level; None: one for the socket."""

    core: int
    socket: int
    numa: int
    cache: int | None = None

    @property
    def uncore(self) -> int:
        return self.socket if self.cache is None else self.cache


class CpuTopology(msgspec.Struct, frozen=True, dict=True):
    places: Mapping[int, LogicalCpu]

    @cached_property
    def cpus(self) -> Cpus:
        return frozenset(self.places)

    @cached_property
    def by_core(self) -> Mapping[int, Cpus]:
        return self.parts(self.places, "core")

    @cached_property
    def by_socket(self) -> Mapping[int, Cpus]:
        return self.parts(self.places, "socket")

    @cached_property
    def by_numa(self) -> Mapping[int, Cpus]:
        return self.parts(self.places, "numa")

    @cached_property
    def by_uncore(self) -> Mapping[int, Cpus]:
        return self.parts(self.places, "uncore")

    def parts(self, cpus: Iterable[int], level: str) -> dict[int, Cpus]:
        """Of these CPUs: number of the core, socket, NUMA node or cache → its CPUs."""
        found: dict[int, set[int]] = {}
        for cpu in cpus:
            found.setdefault(getattr(self.places[cpu], level), set()).add(cpu)
        return {key: frozenset(members) for key, members in found.items()}

    # Averages, as the kubelet computes them: with an offline sibling no core of two threads counts as free (CM-2).

    @property
    def threads_per_core(self) -> int:
        return len(self.places) // len(self.by_core) if self.places else 1

    @property
    def cpus_per_socket(self) -> int:
        return len(self.places) // len(self.by_socket) if self.places else 0

    @property
    def cpus_per_uncore(self) -> int:
        return len(self.places) // len(self.by_uncore) if self.places else 0

    @property
    def sockets(self) -> int:
        return len(self.by_socket)

    @property
    def numa_nodes(self) -> int:
        return len(self.by_numa)

    def in_nodes(self, nodes: Iterable[int]) -> Cpus:
        """The CPUs of these NUMA nodes."""
        return NO_CPUS.union(*(self.by_numa.get(node, NO_CPUS) for node in nodes))

    def sockets_of(self, nodes: Iterable[int]) -> frozenset[int]:
        """The sockets that these NUMA nodes touch."""
        return frozenset(self.places[cpu].socket for cpu in self.in_nodes(nodes))

    def only(self, cpus: Iterable[int]) -> CpuTopology:
        return CpuTopology({cpu: self.places[cpu] for cpu in sorted(cpus)})


def flat(count: int) -> CpuTopology:
    """One socket, each CPU a core of its own."""
    return CpuTopology({cpu: LogicalCpu(cpu, 0, 0) for cpu in range(count)})


class CpuTexts(msgspec.Struct, frozen=True):
    """Of one CPU, from `cpuN/topology`: `physical_package_id` and `thread_siblings_list`; `cache`: the
    `shared_cpu_list` of its cache of level 3."""

    package: str
    siblings: str
    cache: str = ""


def details(online: str, cpus: Mapping[int, CpuTexts], numa_lists: Mapping[int, str]) -> CpuTopology:
    """`online`: the list of online CPUs; `numa_lists`: NUMA node → its `cpulist` (empty: all in node 0)."""
    numbers = _numbers("online", online)
    numa_of = {cpu: node for node, text in numa_lists.items() for cpu in _numbers(f"node{node}/cpulist", text)}
    places = {}
    for cpu in numbers:
        texts = cpus.get(cpu)
        siblings = _numbers(f"cpu{cpu}/topology/thread_siblings_list", texts.siblings) if texts is not None else ()
        core = min((sibling for sibling in siblings if sibling in numbers), default=cpu)
        package = int(texts.package) if texts is not None and texts.package.strip().isdigit() else 0  # −1: not known
        sharing = _numbers(f"cpu{cpu}/cache/index3/shared_cpu_list", texts.cache) if texts is not None else ()
        places[cpu] = LogicalCpu(core, package, numa_of.get(cpu, 0), min(sharing, default=None))
    return CpuTopology(places)


def _numbers(name: str, text: str) -> tuple[int, ...]:
    found = cpu_numbers(text.strip())
    if found is None:
        raise InvalidConfigError(
            "cpuManagerPolicy", f"the kernel's {name} is {text.strip()!r}, which is not a list of CPUs"
        )
    return found
