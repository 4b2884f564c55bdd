"""Memory blocks of containers under the static memory manager policy; under `None` memory comes from every NUMA node.

`rules.memorymanager` decides. What is assigned is written to `memory_manager_state`, a file in the kubelet's format,
before a container runs with it, so a restarted agent finds every container on the NUMA nodes it had.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from plimsoll.codec.kernel.memory_state import MemoryState, memory_state_from_json, memory_state_json
from plimsoll.errors import InvalidConfigError
from plimsoll.linux.numa import NumaMemory
from plimsoll.node.resources.state_file import StateFile
from plimsoll.rules.config.reserved_memory import reserved_by_node
from plimsoll.rules.memorymanager.allocation import MemoryAllocation, finished_inits
from plimsoll.rules.memorymanager.blocks import (
    Blocks,
    Machine,
    fresh_machine,
    numa_text,
    policy_error,
    release,
    release_all,
    state_error,
)
from plimsoll.rules.model.names import is_hugepages
from plimsoll.rules.model.objects import MEMORY, Pod
from plimsoll.rules.node.allocatable import total_reservation
from plimsoll.rules.node.node_config import NodeConfig

STATE = "memory_manager_state"
NONE, STATIC = "None", "Static"


class MemoryManager:
    def __init__(self, directory: Path, setting: NodeConfig, numa: NumaMemory) -> None:
        """Raises InvalidConfigError if this machine does not fit the configuration."""
        self._file = StateFile("memory", directory / STATE, memory_state_from_json, memory_state_json)
        self._setting = setting
        self.is_static = setting.config.static_memory
        self._fresh: Machine = static_machine(setting, numa) if self.is_static else {}
        self.machine = self._fresh
        self.owned: dict[str, dict[str, Blocks]] = {}

    def load(self, *, drained: bool) -> None:
        """`drained`: no pod of an earlier run is known here. Raises StateMismatchError."""
        state = self._file.load(self._other_policy, self._unfit, drained=drained)
        if state is not None and self.is_static and state.machine:
            self.machine = state.machine
            self.owned = {uid: dict(containers) for uid, containers in state.owned.items()}
        self._save()

    def _other_policy(self, state: MemoryState) -> str:
        return policy_error(STATIC if self.is_static else NONE, state.policy)

    def _unfit(self, state: MemoryState) -> str:
        return state_error(state.machine, state.owned, self._fresh) if self.is_static else ""

    # --- assignments ---

    def allocation(self, pod: Pod) -> MemoryAllocation | None:
        """What would be assigned to a pod; nothing is assigned yet."""
        if not self.is_static:
            return None
        checks = self._setting.profile.memory_groups_checked
        return MemoryAllocation(pod, self.owned, self.machine, self._setting.policy, checks_groups=checks)

    def commit(self, uid: str, allocation: MemoryAllocation) -> None:
        if allocation.result == self.owned.get(uid, {}):
            return
        self.machine, self.owned[uid] = allocation.machine, allocation.result
        self._save()

    def undo(self, allocation: MemoryAllocation) -> None:
        """A refused pod leaves the NUMA nodes as a kubelet does (AD-2)."""
        if (machine := allocation.undone()) != self.machine:
            self.machine = machine
            self._save()

    def started(self, pod: Pod, container: str) -> None:
        """A container starts: the blocks of ordinary init containers before it are released (MM-14)."""
        blocks = self.owned.get(pod.metadata.uid)
        names = finished_inits(pod, container, blocks) if blocks else ()
        for name in names:
            self.machine = release(self.machine, self.owned[pod.metadata.uid].pop(name))
        if names:
            self._save()

    def retain(self, uids: Collection[str]) -> bool:
        """Release the blocks of all other pods. True if there were some."""
        gone = [uid for uid in self.owned if uid not in uids]
        for uid in gone:
            self.machine = release_all(self.machine, self.owned.pop(uid))
        if gone:
            self._save()
        return bool(gone)

    def mems_of(self, uid: str, container: str) -> str:
        """`cpuset.mems` of a container; empty: not bound."""
        return numa_text(self.owned.get(uid, {}).get(container, ()))

    def _save(self) -> None:
        self._file.save(MemoryState(STATIC if self.is_static else NONE, self.machine, self.owned))


def static_machine(setting: NodeConfig, numa: NumaMemory) -> Machine:
    nodes = declared_memory(setting, numa)
    totals = total_reservation(setting.capacity, setting.reserved)
    expected = {name: amount for name, amount in totals.items() if name == MEMORY or is_hugepages(name)}
    reserved = reserved_by_node(setting.config.reserved_memory or (), nodes, expected)
    return fresh_machine(nodes, reserved, wraps=setting.profile.memory_wraps_around)


def declared_memory(setting: NodeConfig, numa: NumaMemory) -> Mapping[int, Mapping[str, int]]:
    """The memory of the NUMA nodes; a node with less memory than its machine has one NUMA node only."""
    memory = setting.machine.memory_bytes
    if len(numa.memory) <= 1:
        node = next(iter(numa.memory), 0)
        return {node: {**numa.memory.get(node, {}), MEMORY: memory}}
    total = sum(each.get(MEMORY, 0) for each in numa.memory.values())
    if memory < total * 9 // 10:  # the kernel's own share is not part of MemTotal
        raise InvalidConfigError(
            "memoryManagerPolicy",
            f"Static: the capacity says {memory} bytes of memory and the NUMA nodes of the machine have {total}; "
            "leave out the capacity, or use the policy None",
        )
    return numa.memory
