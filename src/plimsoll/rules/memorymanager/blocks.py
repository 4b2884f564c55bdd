"""Memory of NUMA nodes: what each node has, what is reserved, free and assigned, and blocks that containers own.

Kubernetes: pkg/kubelet/cm/memorymanager/policy_static.go, state/state.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from plimsoll.rules.numa import mask_of

MEMORY, HUGEPAGES_PREFIX = "memory", "hugepages-"
UINT64 = 1 << 64  # sums of a kubelet are modulo this; only wrapped amounts come near (MM-4)
NodeMemory = Mapping[str, int]  # resource type → bytes


class MemoryTable(msgspec.Struct, frozen=True):
    """One type of memory on one NUMA node, in bytes."""

    total: int
    system_reserved: int
    allocatable: int
    reserved: int
    free: int

    def charged(self, size: int) -> MemoryTable:
        return msgspec.structs.replace(self, reserved=self.reserved + size, free=self.free - size)


class NumaNode(msgspec.Struct, frozen=True):
    """`cells`: the group of nodes that assignments on this node use together; `[id]` where there is none."""

    assignments: int
    memory: Mapping[str, MemoryTable]
    cells: tuple[int, ...]


class Block(msgspec.Struct, frozen=True):
    """Memory that one container owns: `size` bytes of a type on these NUMA nodes."""

    nodes: tuple[int, ...]
    type: str
    size: int

    @property
    def mask(self) -> int:
        return mask_of(self.nodes)


Machine = Mapping[int, NumaNode]
Blocks = tuple[Block, ...]
OwnedBlocks = Mapping[str, Mapping[str, Blocks]]  # pod uid → container name → its blocks


def fresh_machine(
    nodes: Mapping[int, NodeMemory], reserved: Mapping[int, NodeMemory], *, wraps: bool = False
) -> Machine:
    """`nodes`: NUMA node → bytes of `memory` and of each size of huge pages; huge pages are part of the memory (MM-4).
    `wraps`: less than nothing is almost 16Ei, as in a kubelet.

    10Gi with 2 huge pages of 1Gi and 1Gi reserved: 7Gi of memory and 2Gi of huge pages are allocatable.
    """
    machine = {}
    for node, types in sorted(nodes.items()):
        huge = sum(size for name, size in types.items() if name != MEMORY)
        tables = {}
        for name, total in types.items():
            withheld = reserved.get(node, {}).get(name, 0)
            left = total - withheld - (huge if name == MEMORY else 0)
            allocatable = left % UINT64 if wraps else max(0, left)
            tables[name] = MemoryTable(total, withheld, allocatable, 0, allocatable)
        machine[node] = NumaNode(0, tables, (node,))
    return machine


def charge(machine: Machine, nodes: Iterable[int], kind: str, size: int) -> Machine:
    """An assignment of `size` bytes: the lowest node is filled first (MM-12)."""
    changed, cells = dict(machine), tuple(sorted(nodes))
    for node in cells:
        before = changed[node]
        memory = dict(before.memory)
        table = memory.get(kind)
        part = min(table.free, size) if table is not None and table.free > 0 else 0
        if table is not None and part:
            memory[kind] = table.charged(part)
            size -= part
        changed[node] = NumaNode(before.assignments + 1, memory, cells)
    return changed


def release(machine: Machine, blocks: Iterable[Block]) -> Machine:
    """Give the blocks back: the lowest node gets back first (MM-14)."""
    changed = dict(machine)
    for block in blocks:
        size = block.size
        for node in block.nodes:
            before = changed[node]
            memory, left = dict(before.memory), before.assignments - 1
            table = memory.get(block.type)
            part = min(table.reserved, size) if table is not None else 0
            if table is not None and part:
                memory[block.type] = table.charged(-part)
                size -= part
            changed[node] = NumaNode(left, memory, before.cells if left else (node,))
    return changed


def release_all(machine: Machine, containers: Mapping[str, Blocks]) -> Machine:
    """Give back the blocks of these containers. A kubelet does so in any order, which matters where one of several NUMA
    nodes was assigned alone; here it is by name."""
    for _, blocks in sorted(containers.items()):
        machine = release(machine, blocks)
    return machine


def numa_text(blocks: Iterable[Block]) -> str:
    """`cpuset.mems` of a container: the NUMA nodes of its blocks, `0,1` (AD-11). Empty without blocks."""
    return ",".join(str(node) for node in sorted({node for block in blocks for node in block.nodes}))


# --- the checkpoint ---

UNEQUAL = "[memorymanager] the expected machine state is different from the real one"
EMPTY_WITH_ASSIGNMENTS = "[memorymanager] machine state can not be empty when it has memory assignments"


def policy_error(configured: str, found: str) -> str:
    """Why a checkpoint of this policy cannot be restored; empty if it can (MM-16)."""
    if found == configured:
        return ""
    return f'[memorymanager] configured policy "{configured}" differs from state checkpoint policy "{found}"'


def state_error(found: Machine, owned: OwnedBlocks, fresh: Machine) -> str:
    """Why a checkpoint does not fit this machine and configuration; empty if it does (MM-16).

    [quirk] A kubelet replays assignments in any order, which decides where a NUMA node of a group was assigned alone.
    """
    if not found:
        return EMPTY_WITH_ASSIGNMENTS if owned else ""
    expected = fresh
    for uid, containers in sorted(owned.items()):
        for name, blocks in sorted(containers.items()):
            for block in blocks:
                where = f"[memorymanager] (pod: {uid}, container: {name}) the memory assignment uses"
                if any(node not in expected for node in block.nodes):
                    return f"{where} the NUMA that does not exist"
                if any(block.type not in expected[node].memory for node in block.nodes):
                    return f"{where} memory resource that does not exist"
                expected = charge(expected, block.nodes, block.type, block.size)
    return "" if _same(found, expected) else UNEQUAL


def _same(one: Machine, other: Machine) -> bool:
    """Counts, groups and totals of each node; free and reserved memory as sums of the group."""
    if one.keys() != other.keys():
        return False
    for node, state in one.items():
        against = other[node]
        if state.assignments != against.assignments or sorted(state.cells) != sorted(against.cells):
            return False
        if state.memory.keys() != against.memory.keys():
            return False
        for kind, table in state.memory.items():
            theirs = against.memory[kind]
            fixed = table.total, table.system_reserved, table.allocatable
            if fixed != (theirs.total, theirs.system_reserved, theirs.allocatable):
                return False
            if _sums(one, state.cells, kind) != _sums(other, state.cells, kind):
                return False
    return True


def _sums(machine: Machine, nodes: Iterable[int], kind: str) -> tuple[int, int]:
    tables = [machine[node].memory[kind] for node in nodes if node in machine and kind in machine[node].memory]
    return sum(table.free for table in tables) % UINT64, sum(table.reserved for table in tables) % UINT64
