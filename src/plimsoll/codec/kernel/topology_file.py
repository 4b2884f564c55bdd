"""A machine's topology from a document: `lscpu -J`, `lscpu -J -e`, a Node, or Plimsoll's own form.

The own form names what is known; everything is optional except `cpus`:

    {"cpus": [{"cpu": 0, "core": 0, "socket": 0, "node": 0, "cache": 0}, …],
     "memory": {"0": {"memory": "8Gi", "hugepages-1Gi": "2Gi"}},
     "distances": {"0": [10, 21], "1": [21, 10]},
     "devices": {"example.com/gpu": [{"id": "gpu-0", "nodes": [0]}]}}
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from plimsoll.errors import InvalidConfigError, InvalidQuantityError
from plimsoll.rules.cpumanager.topology import CpuTopology, LogicalCpu, flat
from plimsoll.rules.cpuset import cpu_numbers
from plimsoll.rules.devices.allocation import Device
from plimsoll.rules.model.names import is_extended
from plimsoll.rules.quantity import QUANTITIES

_NODE_CPUS = re.compile(r"NUMA node([0-9]{1,4}) CPU\(s\):")
MAX_CPUS = 65_536
MAX_DEVICES = 100_000


class MachineTopology(msgspec.Struct, frozen=True):
    """`memory`: NUMA node → resource → bytes. `notes`: what the document does not say, and what is assumed."""

    cpus: CpuTopology
    memory: Mapping[int, Mapping[str, int]] = {}
    distances: Mapping[int, tuple[int, ...]] = {}
    devices: Mapping[str, Mapping[str, Device]] = {}
    notes: tuple[str, ...] = ()


def topology_from(document: object) -> MachineTopology:
    """Raises InvalidConfigError with the path in the document."""
    if not isinstance(document, Mapping):
        raise InvalidConfigError("", "must be an object: the output of lscpu -J, a Node, or one with `cpus`")
    if document.get("kind") == "Node":
        return _of_node(document)
    if isinstance(document.get("lscpu"), list):
        return _of_summary(document["lscpu"])
    if not isinstance(document.get("cpus"), list):
        raise InvalidConfigError("cpus", "required: a list of CPUs (lscpu -J -e prints one)")
    return MachineTopology(
        _of_cpus(document["cpus"]),
        _memory(document.get("memory") or {}),
        _distances(document.get("distances") or {}),
        _devices(document.get("devices") or {}),
    )


def _of_node(node: Mapping[str, Any]) -> MachineTopology:
    capacity = (node.get("status") or {}).get("capacity") or {}
    cores = _whole(capacity.get("cpu"), "status.capacity[cpu]")
    devices = {
        name: {f"{number}": Device(f"{number}") for number in range(_whole(text, f"status.capacity[{name}]"))}
        for name, text in capacity.items()
        if is_extended(name)
    }
    memory = _bytes(capacity.get("memory", "0"), "status.capacity[memory]")
    note = "a Node does not tell its sockets and NUMA nodes: one of each is assumed"
    return MachineTopology(flat(cores), {0: {"memory": memory}}, {}, devices, (note,))


def _of_cpus(entries: list[Any]) -> CpuTopology:
    """`lscpu -J -e` names cores by number within the machine; the lowest thread names the core here (CM-1)."""
    found: dict[int, tuple[tuple[int, int], int, int, int | None]] = {}
    if len(entries) > MAX_CPUS:
        raise InvalidConfigError("cpus", f"more than {MAX_CPUS}")
    for index, entry in enumerate(entries):
        path = f"cpus[{index}]"
        if not isinstance(entry, Mapping):
            raise InvalidConfigError(path, "must be an object with cpu, core, socket and node")
        if str(entry.get("online", "yes")).lower() in ("no", "false"):
            continue
        cpu, socket = _whole(entry.get("cpu"), f"{path}.cpu"), _whole(entry.get("socket", 0), f"{path}.socket")
        core = _whole(entry.get("core", cpu), f"{path}.core")
        numa = entry.get("node", 0)
        node = 0 if numa in (None, "-") else _whole(numa, f"{path}.node")
        cache = entry.get("cache")
        last = next((str(text) for name, text in entry.items() if str(name).endswith("l3")), "")
        if cache is None and last.rpartition(":")[2].isdecimal():
            cache = int(last.rpartition(":")[2])
        found[cpu] = (socket, core), socket, node, None if cache is None else _whole(cache, f"{path}.cache")
    if not found:
        raise InvalidConfigError("cpus", "required: at least one CPU")
    lowest: dict[tuple[int, int], int] = {}
    for cpu in sorted(found):
        lowest.setdefault(found[cpu][0], cpu)
    return CpuTopology(
        {cpu: LogicalCpu(lowest[key], socket, node, cache) for cpu, (key, socket, node, cache) in sorted(found.items())}
    )


def _of_summary(entries: list[Any]) -> MachineTopology:
    fields = dict(_fields(entries))
    online = cpu_numbers(fields.get("On-line CPU(s) list:", ""))
    if not online:
        raise InvalidConfigError("lscpu", "has no `On-line CPU(s) list`; is this the output of lscpu -J?")
    threads = _whole(fields.get("Thread(s) per core:", "1"), "lscpu[Thread(s) per core]") or 1
    sockets = _whole(fields.get("Socket(s):", "1"), "lscpu[Socket(s)]") or 1
    cores = max(1, len(online) // threads)
    numa: dict[int, int] = {}
    for name, text in fields.items():
        if match := _NODE_CPUS.fullmatch(name):
            numa.update(dict.fromkeys(cpu_numbers(text) or (), int(match[1])))
    places = {}
    for cpu in online:
        core = cpu % cores  # Linux numbers all first threads, then all second ones
        places[cpu] = LogicalCpu(core, core * sockets // cores, numa.get(cpu, 0))
    note = "siblings and sockets are assumed as Linux numbers them; lscpu -J -e tells each CPU's"
    return MachineTopology(CpuTopology(places), notes=(note,) if threads > 1 or sockets > 1 else ())


def _fields(entries: list[Any]) -> Iterator[tuple[str, str]]:
    for entry in entries:
        if isinstance(entry, Mapping):
            yield str(entry.get("field", "")), str(entry.get("data", ""))
            yield from _fields(entry.get("children") or [])


def _memory(given: Any) -> dict[int, dict[str, int]]:
    return {
        _whole(node, f"memory[{node}]"): {
            str(kind): _bytes(text, f"memory[{node}][{kind}]") for kind, text in dict(amounts).items()
        }
        for node, amounts in dict(given).items()
    }


def _distances(given: Any) -> dict[int, tuple[int, ...]]:
    return {
        _whole(node, f"distances[{node}]"): tuple(_whole(each, f"distances[{node}]") for each in row)
        for node, row in dict(given).items()
    }


def _devices(given: Any) -> dict[str, dict[str, Device]]:
    found: dict[str, dict[str, Device]] = {}
    for resource, entries in dict(given).items():
        if not is_extended(str(resource)) or not isinstance(entries, list) or len(entries) > MAX_DEVICES:
            raise InvalidConfigError(f"devices[{resource}]", "must be an extended resource with a list of devices")
        devices = {}
        for index, entry in enumerate(entries):
            path = f"devices[{resource}][{index}]"
            if not isinstance(entry, Mapping) or not isinstance(entry.get("id"), str):
                raise InvalidConfigError(path, "must have an id")
            nodes = entry.get("nodes")
            on = None if nodes is None else tuple(_whole(node, f"{path}.nodes") for node in nodes)
            devices[entry["id"]] = Device(entry["id"], entry.get("healthy", True) is not False, on)
        found[str(resource)] = devices
    return found


def _whole(value: object, path: str) -> int:
    text = str(value).strip()
    if not text.isascii() or not text.isdecimal() or len(text) > 9:
        raise InvalidConfigError(path, f"must be a whole number, not {value!r}")
    return int(text)


def _bytes(value: object, path: str) -> int:
    try:
        return QUANTITIES[str(value)].value
    except InvalidQuantityError as error:
        raise InvalidConfigError(path, error.reason) from None
