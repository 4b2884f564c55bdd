"""The CPU topology of this machine, read from /sys/devices/system."""

from __future__ import annotations

from pathlib import Path

from plimsoll.linux.machine import text_or_empty
from plimsoll.rules.cpumanager.topology import CpuTexts, CpuTopology, details, flat
from plimsoll.rules.cpuset import cpu_numbers

SYSTEM = Path("/sys/devices/system")


def this_topology(system: Path = SYSTEM) -> CpuTopology:
    online = text_or_empty(system / "cpu/online")
    texts = {}
    for cpu in cpu_numbers(online.strip()) or ():
        topology = system / f"cpu/cpu{cpu}/topology"
        package, siblings = topology / "physical_package_id", topology / "thread_siblings_list"
        cache = system / f"cpu/cpu{cpu}/cache/index3/shared_cpu_list"
        texts[cpu] = CpuTexts(text_or_empty(package), text_or_empty(siblings), text_or_empty(cache))
    nodes = {
        int(path.name.removeprefix("node")): text_or_empty(path / "cpulist")
        for path in sorted((system / "node").glob("node[0-9]*"))
    }
    return details(online, texts, nodes)


def node_topology(cores: int, *, simulated: bool) -> CpuTopology:
    """The topology of a node with so many CPUs: those of the machine, or the first of them where fewer are declared."""
    if simulated:
        return flat(cores)
    topology = this_topology()
    return topology.only(sorted(topology.cpus)[:cores])
