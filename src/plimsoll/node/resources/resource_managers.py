"""The resource managers of the node together: CPUs, memory and devices of a pod, aligned by the topology manager.

A pod is decided as a whole: `rules.topologymanager.admission` collects hints, merges them, and lets each manager
choose. Only for an admitted pod the choices are saved. Without a static policy and without devices nothing is
computed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress

import msgspec

from plimsoll.linux.numa import NumaMemory
from plimsoll.node.devices.manager import DeviceManager
from plimsoll.node.resources.cpu_manager import CpuManager
from plimsoll.node.resources.memory_manager import MemoryManager
from plimsoll.rules.cpumanager.assignment import CPU_ERRORS, CpuAllocation
from plimsoll.rules.cpumanager.pools import conflicts
from plimsoll.rules.cpumanager.topology import NO_CPUS, CpuTopology
from plimsoll.rules.devices.allocation import DeviceAllocation, DeviceError
from plimsoll.rules.memorymanager.allocation import MemoryAllocation, MemoryAssignmentError
from plimsoll.rules.memorymanager.blocks import Block
from plimsoll.rules.model.objects import Pod
from plimsoll.rules.node.admission import AdmissionRefusal
from plimsoll.rules.node.node_config import NodeConfig
from plimsoll.rules.resources.defaulting import defaulted
from plimsoll.rules.topologymanager.admission import (
    HintProvider,
    TopologyAffinityError,
    TopologySetting,
    allocate,
)
from plimsoll.rules.topologymanager.creation import topology_setting
from plimsoll.rules.topologymanager.merge import NumaLayout

REFUSALS = (*CPU_ERRORS, MemoryAssignmentError, TopologyAffinityError, DeviceError)


class Choice(msgspec.Struct, frozen=True):
    """What an admitted pod gets."""

    cpus: CpuAllocation | None = None
    memory: MemoryAllocation | None = None
    devices: DeviceAllocation | None = None

    @property
    def providers(self) -> list[HintProvider]:
        return [each for each in (self.devices, self.cpus, self.memory) if each is not None]


NOTHING = Choice()


class ResourceManagers:
    def __init__(
        self,
        setting: NodeConfig,
        cpus: CpuManager,
        memory: MemoryManager,
        topology: TopologySetting,
        devices: DeviceManager | None = None,
    ) -> None:
        self._setting, self.cpus, self.memory, self.devices = setting, cpus, memory, devices
        self.topology = topology
        self._asked = ""  # the pod that the managers decided about last

    @property
    def is_static(self) -> bool:
        return self.cpus.is_static or self.memory.is_static

    @property
    def assigns(self) -> bool:
        """Whether pods may own something here."""
        return self.is_static or (self.devices is not None and bool(self.devices.records))

    def load(self, *, drained: bool) -> None:
        self.cpus.load(drained=drained)
        self.memory.load(drained=drained)

    def choice(self, pod: Pod, *, trusts: bool = False) -> Choice | AdmissionRefusal:
        """What its containers would get; `pod` with its allocated resources. Nothing is assigned yet.

        `trusts`: the pod was admitted before, so it keeps its devices even if their plugin is not there now."""
        wants_devices = self.devices is not None and self.devices.concerns(pod)
        if not self.is_static and not wants_devices:
            return NOTHING
        whole = defaulted(pod, gates=self._setting.policy.gates)
        try:
            found = self._untried(whole, trusts=trusts, wants_devices=wants_devices)
            allocate(whole, found.providers, self.topology)
        except REFUSALS as error:
            return AdmissionRefusal(error.reason, str(error))
        return found

    def _untried(self, pod: Pod, *, trusts: bool, wants_devices: bool) -> Choice:
        devices = None
        if self.devices is not None and wants_devices:
            devices = self.devices.allocation(pod, trusts=trusts)
        return Choice(self.cpus.allocation(pod), self.memory.allocation(pod), devices)

    def refused(self, pod: Pod) -> None:
        """A pod is not admitted. If the managers were asked for it, a kubelet has assigned what it could, and releases
        that: memory groups and CPUs with two owners may have changed (AD-2)."""
        uid = pod.metadata.uid
        if not self._setting.profile.refused_pods_assigned or uid != self._asked or not self.is_static:
            return
        if uid in self.cpus.owned or uid in self.memory.owned:
            return  # it was admitted before; `retain` releases what it has
        whole = defaulted(pod, gates=self._setting.policy.gates)
        wants_devices = self.devices is not None and self.devices.concerns(pod)
        found = self._untried(whole, trusts=False, wants_devices=wants_devices)
        with suppress(*REFUSALS):
            allocate(whole, found.providers, self.topology)
        if found.memory is not None:
            self.memory.undo(found.memory)
        if found.cpus is not None:
            self.cpus.commit(found.cpus.pools.released([uid]))

    def conflicts(self, pod: Pod, names: Mapping[str, str]) -> list[str]:
        """CPUs of the pod that have another owner as well, because the release of the profile assigns them so (CM-2).
        `names`: of pods, by uid."""
        plan, profile = self.cpus.plan, self._setting.profile
        if plan is None or not profile.cpus_by_average:
            return []
        found = conflicts(self.cpus.owned, pod, plan.reserved)
        return [each.text(profile.release, {**names, pod.metadata.uid: pod.metadata.name}) for each in found]

    def refusal(self, pod: Pod, *, trusts: bool = False) -> AdmissionRefusal | None:
        if self.devices is not None and (failure := self.devices.failure(pod.metadata.uid)) is not None:
            return failure
        self._asked = pod.metadata.uid
        found = self.choice(pod, trusts=trusts)
        return found if isinstance(found, AdmissionRefusal) else None

    def waits_for_devices(self, pod: Pod) -> bool:
        """Whether its devices must be prepared before the pod can be admitted."""
        return self.devices is not None and self.devices.concerns(pod) and not self.devices.is_prepared(pod)

    async def prepare(self, pod: Pod) -> None:
        """Reserve what the pod needs, and ask plugins for its devices. Whether that failed, `refusal` tells."""

        def choose() -> AdmissionRefusal | None:
            refusal = self.refusal(pod)
            if refusal is None:
                self.assign(pod)
            return refusal

        assert self.devices is not None
        await self.devices.prepare(pod, choose)

    def assign(self, pod: Pod, *, trusts: bool = False) -> bool:
        """Assign CPUs, memory and devices to a pod that was not refused, and save that. True if CPUs have changed."""
        found = self.choice(pod, trusts=trusts)
        if isinstance(found, AdmissionRefusal) or found is NOTHING:
            return False
        uid = pod.metadata.uid
        if found.devices is not None and self.devices is not None:
            self.devices.commit(uid, found.devices)
        if found.memory is not None:
            self.memory.commit(uid, found.memory)
        return found.cpus is not None and self.cpus.commit(found.cpus.pools)

    def retain(self, uids: Collection[str]) -> bool:
        """Release what all other pods own. True if there was something."""
        freed = self.devices is not None and self.devices.retain(uids)
        freed = self.memory.retain(uids) or freed
        return self.cpus.retain(uids) or freed


class NodeResources:
    """What the managers have assigned, as the PodResources API asks for it."""

    def __init__(self, managers: ResourceManagers, active: Callable[[], Iterable[Pod]]) -> None:
        self._managers, self._active = managers, active

    def active_pods(self) -> Iterable[Pod]:
        return self._active()

    def cpu_ids(self, uid: str, container: str) -> Iterable[int]:
        return self._managers.cpus.owned.get(uid, {}).get(container, NO_CPUS)

    def blocks(self, uid: str, container: str) -> Iterable[Block]:
        return self._managers.memory.owned.get(uid, {}).get(container, ())

    def allocatable_cpus(self) -> Iterable[int]:
        plan = self._managers.cpus.plan
        return NO_CPUS if plan is None else plan.topology.cpus - plan.reserved

    def allocatable_memory(self) -> Iterable[Block]:
        return [
            Block((node,), kind, table.allocatable)
            for node, state in self._managers.memory.machine.items()
            for kind, table in state.memory.items()
            if table.allocatable
        ]


def topology_of(setting: NodeConfig, topology: CpuTopology, numa: NumaMemory) -> TopologySetting:
    """Raises InvalidConfigError if the policy cannot work on this machine (TM-2)."""
    config = setting.config
    return topology_setting(
        config.topology_manager_policy,
        config.topology_manager_scope,
        config.topology_manager_policy_options,
        NumaLayout(tuple(sorted({*topology.by_numa, *numa.memory})), numa.distances),
        config.gate,
        setting.profile,
    )
