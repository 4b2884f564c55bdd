"""The CPU topology of a machine: threads of a core, cores of a socket, NUMA nodes.

A core is named by its lowest CPU, because the kernel's `core_id` restarts in every socket. `details` parses the texts
of `/sys/devices/system/cpu`; `flat` is a machine of which only the number of CPUs is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from plimsoll.errors import InvalidConfigError
from plimsoll.rules.cpuset import cpu_numbers

Cpus = frozenset[int]


class LogicalCpu(msgspec.Struct, frozen=True, gc=False):
    """The core, socket and NUMA node of one CPU."""

    core: int
    socket: int
    numa: int


class CpuTopology(msgspec.Struct, frozen=True):
    places: Mapping[int, LogicalCpu]

    @property
    def cpus(self) -> Cpus:
        return frozenset(self.places)

    @property
    def threads_per_core(self) -> int:
        cores = {each.core for each in self.places.values()}
        return len(self.places) // len(cores) if cores else 1

    @property
    def sockets(self) -> int:
        return len({each.socket for each in self.places.values()})

    @property
    def numa_nodes(self) -> int:
        return len({each.numa for each in self.places.values()})

    def only(self, cpus: Iterable[int]) -> CpuTopology:
        return CpuTopology({cpu: self.places[cpu] for cpu in sorted(cpus)})


def flat(count: int) -> CpuTopology:
    """One socket, each CPU a core of its own."""
    return CpuTopology({cpu: LogicalCpu(cpu, 0, 0) for cpu in range(count)})


class CpuTexts(msgspec.Struct, frozen=True):
    """Of one CPU, from `cpuN/topology`: `physical_package_id` and `thread_siblings_list`."""

    package: str
    siblings: str


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
        places[cpu] = LogicalCpu(core, package, numa_of.get(cpu, 0))
    return CpuTopology(places)


def _numbers(name: str, text: str) -> tuple[int, ...]:
    found = cpu_numbers(text.strip())
    if found is None:
        raise InvalidConfigError(
            "cpuManagerPolicy", f"the kernel's {name} is {text.strip()!r}, which is not a list of CPUs"
        )
    return found
