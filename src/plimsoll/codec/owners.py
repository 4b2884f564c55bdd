"""Which container owns which CPUs, memory of NUMA nodes, and devices: the node's page `/owners`, and its checkpoints.

`owned_in` reads the three checkpoints that a kubelet has too; the page is for callers on other machines.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from plimsoll.codec.kernel.cpu_state import cpu_state_from_json
from plimsoll.codec.kernel.device_state import device_state_from_json
from plimsoll.codec.kernel.memory_state import memory_state_from_json
from plimsoll.rules.cpuset import cpu_text
from plimsoll.rules.memorymanager.blocks import Block
from plimsoll.rules.quantity import from_units

CPU_STATE, MEMORY_STATE = "cpu_manager_state", "memory_manager_state"
DEVICE_STATE = "device-plugins/kubelet_internal_checkpoint"
Key = tuple[str, str]  # pod uid, container name


class Owned(msgspec.Struct, frozen=True, omit_defaults=True):
    """`cpus`: a list such as `2-3`. `memory`: `64Mi on NUMA node 0`. `devices`: resource → ids."""

    cpus: str = ""
    memory: tuple[str, ...] = ()
    devices: dict[str, tuple[str, ...]] = {}

    def __bool__(self) -> bool:
        return bool(self.cpus or self.memory or self.devices)

    def words(self) -> list[str]:
        """For people, one for each kind."""
        cpus = [f"CPUs {self.cpus}"] if self.cpus else []
        return [*cpus, *self.memory, *(f"{name} {' '.join(ids)}" for name, ids in self.devices.items())]


class Owner(msgspec.Struct, frozen=True):
    namespace: str
    pod: str
    container: str
    owns: Owned


class OwnersPage(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """`shared_cpus`: of all containers that own none; empty without the static policy."""

    owners: tuple[Owner, ...] = ()
    shared_cpus: str = ""


def owned(cpus: Iterable[int], blocks: Iterable[Block], devices: Mapping[str, Iterable[str]]) -> Owned:
    """What one container owns."""
    return Owned(
        cpu_text(cpus),
        tuple(_block(block) for block in blocks),
        {name: tuple(sorted(ids)) for name, ids in sorted(devices.items())},
    )


def _block(block: Block) -> str:
    nodes = cpu_text(block.nodes)
    kind = "" if block.type == "memory" else f" {block.type}"
    return f"{from_units(block.size, 'BinarySI')}{kind} on NUMA node{'s' if len(block.nodes) > 1 else ''} {nodes}"


def owned_in(files: Mapping[str, bytes]) -> dict[Key, Owned]:
    """From the checkpoints in a state directory, by their names above. Raises PlimsollError if one is damaged."""
    cpus: dict[Key, frozenset[int]] = {}
    blocks: dict[Key, tuple[Block, ...]] = {}
    devices: dict[Key, dict[str, list[str]]] = {}
    if CPU_STATE in files:
        for uid, own_cpus in cpu_state_from_json(files[CPU_STATE]).owned.items():
            cpus |= {(uid, name): frozenset(each) for name, each in own_cpus.items()}
    if MEMORY_STATE in files:
        for uid, own_blocks in memory_state_from_json(files[MEMORY_STATE]).owned.items():
            blocks |= {(uid, name): tuple(each) for name, each in own_blocks.items()}
    for entry in device_state_from_json(files[DEVICE_STATE]).entries if DEVICE_STATE in files else ():
        ids = devices.setdefault((entry.pod_uid, entry.container), {}).setdefault(entry.resource, [])
        ids += [each for group in entry.ids.values() for each in group if each not in ids]
    keys = dict.fromkeys((*cpus, *blocks, *devices))
    return {key: owned(cpus.get(key, ()), blocks.get(key, ()), devices.get(key, {})) for key in keys}
