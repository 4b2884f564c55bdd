"""Memory blocks under the static policy: hints, and the blocks of a pod's containers (MM-5 to MM-14).

Only Guaranteed pods get blocks. Nodes that serve an assignment over several nodes form a group; a node of a group
serves nothing else until the group is free again. Containers reuse the memory of ordinary init containers.

Kubernetes: pkg/kubelet/cm/memorymanager/policy_static.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from plimsoll.errors import StructuredError
from plimsoll.rules.memorymanager.blocks import (
    HUGEPAGES_PREFIX,
    MEMORY,
    UINT64,
    Block,
    Blocks,
    Machine,
    OwnedBlocks,
    charge,
    release_all,
)
from plimsoll.rules.model.objects import Container, Pod, is_sidecar
from plimsoll.rules.numa import NO_HINT, Hint, HintLists, Hints, masks, narrowness, nodes_of
from plimsoll.rules.resources.exclusive_cpus import left_out_by_managers
from plimsoll.rules.resources.node_policy import NodePolicy
from plimsoll.rules.resources.qos import GUARANTEED, qos_class

NO_DEFAULT = "failed to get the default NUMA affinity, no NUMA nodes with enough memory is available"
NOT_PREFERRED_DEFAULT = "failed to find the default preferred hint"
NO_EXTENSION = "failed to find NUMA nodes to extend the current topology hint"
NOT_PREFERRED_EXTENSION = "failed to find the extended preferred hint"
VIOLATION = "preferred hint violates NUMA node allocation"

Request = Mapping[str, int]  # resource type → bytes
Reusable = Mapping[tuple[int, str], int]  # mask and type → bytes of ordinary init containers


class MemoryAssignmentError(StructuredError):
    reason = "UnexpectedAdmissionError"

    why: str
    template = "Allocate failed due to [memorymanager] {why}, which is unexpected"


def memory_request(container: Container) -> dict[str, int]:
    requests = container.resources.requests or {}
    return {
        name: quantity.value
        for name, quantity in requests.items()
        if name == MEMORY or name.startswith(HUGEPAGES_PREFIX)
    }


def pod_memory_request(pod: Pod) -> dict[str, int]:
    """Types that only init containers request are left out (MM-8)."""
    inits: dict[str, int] = {}
    sidecars: dict[str, int] = {}
    for container in pod.spec.init_containers:
        for kind, size in memory_request(container).items():
            if is_sidecar(container):
                sidecars[kind] = sidecars.get(kind, 0) + size
            else:
                inits[kind] = max(inits.get(kind, 0), sidecars.get(kind, 0) + size)
    apps: dict[str, int] = {}
    for container in pod.spec.containers:
        for kind, size in memory_request(container).items():
            apps[kind] = apps.get(kind, 0) + size
    return {kind: max(size + sidecars.get(kind, 0), inits.get(kind, 0)) for kind, size in apps.items()}


def memory_hints(machine: Machine, request: Request, reusable: Reusable) -> dict[str, Hints]:
    """Every requested type has the same hints. Nothing fits: no entry, which means no preference (MM-6, MM-7)."""
    smallest, found = len(machine), []
    for mask in masks(machine):
        nodes, size = nodes_of(mask), mask.bit_count()
        if any(_sum(machine, nodes, kind, "allocatable") < wanted for kind, wanted in request.items()):
            continue
        smallest = min(smallest, size)
        if size == 1 and len(machine[nodes[0]].cells) > 1:
            continue
        if size > 1 and _violates(machine, nodes):
            continue
        if any(
            (_sum(machine, nodes, kind, "free") + reusable.get((mask, kind), 0)) % UINT64 < wanted
            for kind, wanted in request.items()
        ):
            continue
        found.append(mask)
    hints = tuple(Hint(mask, mask.bit_count() == smallest) for mask in found)
    return dict.fromkeys(request, hints) if hints else {}


def _sum(machine: Machine, nodes: Iterable[int], kind: str, field: str) -> int:
    total: int = sum(getattr(machine[node].memory[kind], field) for node in nodes if kind in machine[node].memory)
    return total % UINT64


def _violates(machine: Machine, nodes: tuple[int, ...]) -> bool:
    """Whether a node with assignments belongs to no group, or to another one (MM-11)."""
    return any(
        machine[node].assignments > 0 and (len(machine[node].cells) == 1 or tuple(sorted(machine[node].cells)) != nodes)
        for node in nodes
    )


class MemoryAllocation:
    """The blocks of one pod, container by container: a hint provider of the topology manager (AD-4)."""

    def __init__(
        self, pod: Pod, owned: OwnedBlocks, machine: Machine, policy: NodePolicy, *, checks_groups: bool = True
    ) -> None:
        """`checks_groups`: a hint that breaks a group is refused (since 1.32)."""
        self._pod, self.machine, self._checks_groups = pod, machine, checks_groups
        self._before = owned.get(pod.metadata.uid, {})
        self.result: dict[str, Blocks] = dict(self._before)
        self._reusable: dict[tuple[int, str], int] = {}
        is_guaranteed = qos_class(pod, gates=policy.gates) == GUARANTEED
        self._applies = is_guaranteed and not left_out_by_managers(pod, policy)

    # --- hints ---

    def hints(self, container: Container) -> HintLists:
        if not self._applies:
            return {}
        request, blocks = memory_request(container), self.result.get(container.name)
        if blocks is not None:
            return _again(blocks, request)
        return memory_hints(self.machine, request, self._reusable)

    def pod_hints(self) -> HintLists:
        """The first container that has blocks is compared with the request of the whole pod (MM-8)."""
        if not self._applies:
            return {}
        request = pod_memory_request(self._pod)
        for container in (*self._pod.spec.init_containers, *self._pod.spec.containers):
            blocks = self.result.get(container.name)
            if blocks is not None:
                return _again(blocks, request)
        return memory_hints(self.machine, request, self._reusable)

    # --- blocks ---

    def allocate(self, container: Container, hint: Hint = NO_HINT) -> None:
        """Raises MemoryAssignmentError."""
        if not self._applies:
            return
        request, name = memory_request(container), container.name
        blocks = self.result.get(name)
        if blocks is None:
            mask = self._mask(request, hint)
            nodes = nodes_of(mask)
            blocks = tuple(Block(nodes, kind, size) for kind, size in request.items())
            for block in blocks:
                rest = max(0, block.size - self._reusable.get((mask, block.type), 0))
                self.machine = charge(self.machine, nodes, block.type, rest)
            self._reuse(container, blocks)
            self.result[name] = blocks
            self._shrink_inits(container, blocks)
        else:
            self._reuse(container, blocks)

    def undone(self) -> Machine:
        """The machine after what was assigned here is released again: not always as before, because the nodes of a
        group that were assigned alone have left it (AD-2)."""
        new = {name: blocks for name, blocks in self.result.items() if name not in self._before}
        return release_all(self.machine, new)

    def _mask(self, request: Request, hint: Hint) -> int:
        best = hint
        if best.mask is None:
            hints = memory_hints(self.machine, request, self._reusable)
            if not hints:
                raise MemoryAssignmentError(NO_DEFAULT)
            best = _best(hints.get(MEMORY, ()))
            if hint.preferred and not best.preferred:
                raise MemoryAssignmentError(NOT_PREFERRED_DEFAULT)
        mask = best.mask or 0
        if any(_sum(self.machine, nodes_of(mask), kind, "free") < size for kind, size in request.items()):
            wider = [
                each
                for each in memory_hints(self.machine, request, self._reusable).get(MEMORY, ())
                if each.mask is not None and each.mask & mask == mask
            ]
            if not wider:
                raise MemoryAssignmentError(NO_EXTENSION)
            extended = _best(wider)
            if best.preferred and not extended.preferred:
                raise MemoryAssignmentError(NOT_PREFERRED_EXTENSION)
            mask = extended.mask or 0
        nodes = nodes_of(mask)
        if self._checks_groups and len(nodes) > 1 and _violates(self.machine, nodes):
            raise MemoryAssignmentError(VIOLATION)
        return mask

    def _reuse(self, container: Container, blocks: Blocks) -> None:
        """What later containers of the pod may reuse, by exact mask (MM-13)."""
        is_init = any(each.name == container.name and not is_sidecar(each) for each in self._pod.spec.init_containers)
        for block in blocks:
            key = block.mask, block.type
            before = self._reusable.get(key, 0)
            self._reusable[key] = max(before, block.size) if is_init else max(0, before - block.size)

    def _shrink_inits(self, container: Container, blocks: Blocks) -> None:
        """Blocks of earlier ordinary init containers become smaller by what was reused, so that the sum of all blocks
        is what the pod has (MM-13)."""
        for block in blocks:
            left = block.size
            for init in self._pod.spec.init_containers:
                if init.name == container.name or not left:
                    break
                if is_sidecar(init):
                    continue
                changed = []
                for own in self.result.get(init.name, ()):
                    is_same = own.type == block.type and own.mask == block.mask
                    part = min(own.size, left) if is_same else 0
                    left -= part
                    changed.append(Block(own.nodes, own.type, own.size - part))
                if changed:
                    self.result[init.name] = tuple(changed)


def _again(blocks: Blocks, request: Request) -> HintLists:
    """The hints of a container that has its blocks; other sizes than requested mean no preference (MM-8)."""
    if len(blocks) != len(request) or any(request.get(block.type) != block.size for block in blocks):
        return {}
    return {block.type: (Hint(block.mask, preferred=True),) for block in blocks}


def _best(hints: Iterable[Hint]) -> Hint:
    return min(hints, key=lambda hint: (not hint.preferred, narrowness(hint.mask or 0)), default=Hint(0, False))


def finished_inits(pod: Pod, container: str, blocks: Mapping[str, Blocks]) -> tuple[str, ...]:
    """Ordinary init containers before this one: starting it releases their blocks (MM-14)."""
    names = []
    for init in pod.spec.init_containers:
        if init.name == container:
            break
        if not is_sidecar(init) and init.name in blocks:
            names.append(init.name)
    return tuple(names)
