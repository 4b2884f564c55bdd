"""The CPUs of this machine, as the kernel tells them in /sys."""

from __future__ import annotations

from pathlib import Path

from plimsoll.rules.cpumanager.topology import CpuTexts, CpuTopology, details, flat
from plimsoll.rules.cpuset import cpu_numbers

SYSTEM = Path("/sys/devices/system")


def this_topology(system: Path = SYSTEM) -> CpuTopology:
    online = _text(system / "cpu/online")
    texts = {}
    for cpu in cpu_numbers(online.strip()) or ():
        place = system / f"cpu/cpu{cpu}/topology"
        texts[cpu] = CpuTexts(_text(place / "physical_package_id"), _text(place / "thread_siblings_list"))
    nodes = {
        int(path.name.removeprefix("node")): _text(path / "cpulist")
        for path in sorted((system / "node").glob("node[0-9]*"))
    }
    return details(online, texts, nodes)


def node_topology(cores: int, *, simulated: bool) -> CpuTopology:
    """Of a node with so many CPUs: all of the machine's, or the first ones where fewer were declared."""
    if simulated:
        return flat(cores)
    topology = this_topology()
    return topology.only(sorted(topology.cpus)[:cores])


def _text(path: Path) -> str:
    """Empty where this kernel does not tell."""
    try:
        return path.read_text(encoding="ascii")
    except FileNotFoundError:
        return ""
