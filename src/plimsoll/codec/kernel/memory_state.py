"""The memory manager's state file in the kubelet's format: the same fields and the same checksum (MM-16)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from plimsoll.codec.kernel.go_checksum import CorruptCheckpointError, fnv1a
from plimsoll.rules.memorymanager.blocks import Block, Machine, MemoryTable, NumaNode, OwnedBlocks


class MemoryState(msgspec.Struct, frozen=True):
    policy: str
    machine: Machine
    owned: OwnedBlocks


class _Table(msgspec.Struct):
    total: int
    system_reserved: int = msgspec.field(name="systemReserved")
    allocatable: int
    reserved: int
    free: int


class _Node(msgspec.Struct):
    assignments: int = msgspec.field(name="numberOfAssignments")
    memory: dict[str, _Table] = msgspec.field(name="memoryMap")
    cells: list[int]


class _Block(msgspec.Struct):
    nodes: list[int] = msgspec.field(name="numaAffinity")
    type: str
    size: int


class _File(msgspec.Struct, omit_defaults=True):
    policy: str = msgspec.field(name="policyName")
    machine: dict[str, _Node] = msgspec.field(name="machineState")
    checksum: int
    entries: dict[str, dict[str, list[_Block]]] = {}


def memory_state_json(state: MemoryState) -> bytes:
    machine: dict[str, Any] = {
        str(node): {
            "numberOfAssignments": each.assignments,
            "memoryMap": {
                kind: {
                    "total": table.total,
                    "systemReserved": table.system_reserved,
                    "allocatable": table.allocatable,
                    "reserved": table.reserved,
                    "free": table.free,
                }
                for kind, table in sorted(each.memory.items())
            },
            "cells": list(each.cells),
        }
        for node, each in state.machine.items()
    }
    entries = {
        uid: {
            name: [{"numaAffinity": list(each.nodes), "type": each.type, "size": each.size} for each in blocks]
            for name, blocks in containers.items()
        }
        for uid, containers in state.owned.items()
    }
    return msgspec.json.encode(
        {
            "policyName": state.policy,
            "machineState": machine,
            **({"entries": entries} if entries else {}),
            "checksum": checksum(state),
        }
    )


def memory_state_from_json(data: bytes) -> MemoryState:
    try:
        file = msgspec.json.decode(data, type=_File)
        machine = {
            int(node): NumaNode(
                each.assignments,
                {
                    kind: MemoryTable(table.total, table.system_reserved, table.allocatable, table.reserved, table.free)
                    for kind, table in each.memory.items()
                },
                tuple(each.cells),
            )
            for node, each in file.machine.items()
        }
    except (msgspec.DecodeError, ValueError) as error:
        raise CorruptCheckpointError(str(error)) from None
    owned = {
        uid: {
            name: tuple(Block(tuple(each.nodes), each.type, each.size) for each in blocks)
            for name, blocks in containers.items()
        }
        for uid, containers in file.entries.items()
    }
    state = MemoryState(file.policy, machine, owned)
    if file.checksum not in (0, checksum(state)):
        raise CorruptCheckpointError("checkpoint is corrupted")
    return state


def checksum(state: MemoryState) -> int:
    nodes = " ".join(
        f"{node}:<*>{{NumberOfAssignments:(int){each.assignments} "
        f"MemoryMap:(map[v1.ResourceName]*state.MemoryTable)map[{_tables(each.memory)}] "
        f"Cells:([]int)[{_numbers(each.cells)}]}}"
        for node, each in sorted(state.machine.items())
    )
    entries = " ".join(
        f"{uid}:map[{' '.join(f'{name}:[{_blocks(each)}]' for name, each in sorted(containers.items()))}]"
        for uid, containers in sorted(state.owned.items())
    )
    return fnv1a(
        f"(*state.MemoryManagerCheckpoint){{PolicyName:(string){state.policy} "
        f"MachineState:(state.NUMANodeMap)map[{nodes}] "
        f"Entries:(state.ContainerMemoryAssignments)map[{entries}] Checksum:(checksum.Checksum)0}}"
    )


def _tables(memory: Mapping[str, MemoryTable]) -> str:
    return " ".join(
        f"{kind}:<*>{{TotalMemSize:(uint64){table.total} SystemReserved:(uint64){table.system_reserved} "
        f"Allocatable:(uint64){table.allocatable} Reserved:(uint64){table.reserved} Free:(uint64){table.free}}}"
        for kind, table in sorted(memory.items())
    )


def _blocks(blocks: tuple[Block, ...]) -> str:
    return " ".join(
        f"{{NUMAAffinity:([]int)[{_numbers(each.nodes)}] Type:(v1.ResourceName){each.type} Size:(uint64){each.size}}}"
        for each in blocks
    )


def _numbers(numbers: tuple[int, ...]) -> str:
    return " ".join(map(str, numbers))
