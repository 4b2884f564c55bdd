"""`plimsoll explain --topology FILE`: which CPUs, memory and devices each pod gets on a machine, and why not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from plimsoll.cli import console
from plimsoll.cli.failure import FailedError
from plimsoll.cli.terminal import echo_json, inert, table
from plimsoll.codec.kernel.topology_file import MachineTopology, topology_from
from plimsoll.errors import InvalidConfigError
from plimsoll.linux.numa import NumaMemory
from plimsoll.node.resources.cpu_manager import cpu_plan
from plimsoll.node.resources.memory_manager import static_machine
from plimsoll.node.resources.resource_managers import REFUSALS, topology_of
from plimsoll.rules.cpumanager.assignment import CpuAllocation, CpuPlan
from plimsoll.rules.cpumanager.pools import CpuPools, conflicts
from plimsoll.rules.cpumanager.topology import NO_CPUS
from plimsoll.rules.cpuset import cpu_text
from plimsoll.rules.devices.allocation import DeviceAllocation, Ids, Pool
from plimsoll.rules.memorymanager.allocation import MemoryAllocation
from plimsoll.rules.memorymanager.blocks import Blocks, Machine, numa_text
from plimsoll.rules.model.objects import Pod
from plimsoll.rules.node.node_config import NodeConfig
from plimsoll.rules.scheduling.fit import load_key
from plimsoll.rules.topologymanager.admission import HintProvider, TopologyAffinityError, TopologySetting, allocate

MAX_FILE = 16 << 20
HEADER = ("POD", "CONTAINER", "CPUS", "NUMA MEMORY", "DEVICES", "HINT")


class ContainerPlacement(msgspec.Struct, frozen=True):
    name: str
    cpus: str
    memory: str
    devices: Mapping[str, Sequence[str]]
    hint: str


class Placement(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one pod gets; `reason`, `message` and `why` for one that is refused; `notes`: CPUs with two owners."""

    pod: str
    containers: tuple[ContainerPlacement, ...] = ()
    reason: str = ""
    message: str = ""
    why: str = ""
    notes: tuple[str, ...] = ()


class Placements(msgspec.Struct, frozen=True):
    policy: str
    scope: str
    reserved: str
    shared: str
    pods: tuple[Placement, ...]


def read_topology(path: str) -> MachineTopology:
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_FILE + 1)
        if len(data) > MAX_FILE:
            raise FailedError(f"--topology {path}: larger than {MAX_FILE >> 20} MiB")
        return topology_from(msgspec.json.decode(data))
    except OSError as error:
        raise FailedError(f"--topology {path}: {error.strerror}") from None
    except msgspec.DecodeError as error:
        raise FailedError(f"--topology {path}: not JSON: {error}; `lscpu -J -e` prints a file that works") from None
    except InvalidConfigError as error:
        raise FailedError(f"--topology {path}: {error}") from None


class Placer:
    """Admits pods one after the other, as a node does."""

    def __init__(self, setting: NodeConfig, machine: MachineTopology) -> None:
        """Raises InvalidConfigError if the configuration does not fit the machine."""
        size = {node: dict(each) for node, each in machine.memory.items()}
        numa = NumaMemory(size, machine.distances)
        self._setting = setting
        self.topology: TopologySetting = topology_of(setting, machine.cpus, numa)
        self.plan: CpuPlan | None = cpu_plan(setting, machine.cpus) if setting.policy.static_cpus else None
        is_static = setting.config.static_memory
        self._memory: Machine | None = static_machine(setting, numa) if is_static else None
        self._pools = {name: Pool(devices) for name, devices in machine.devices.items()}
        self.pools = CpuPools({}, NO_CPUS) if self.plan is None else self.plan.pools({})
        self._blocks: dict[str, dict[str, Blocks]] = {}
        self._devices: dict[str, dict[str, dict[str, Ids]]] = {}
        self._titles: dict[str, str] = {}

    def place(self, pod: Pod, title: str) -> Placement:
        uid, policy = pod.metadata.uid, self._setting.policy
        self._titles[uid] = title
        providers: list[HintProvider] = []
        narrow = self._setting.profile.device_hints_of_used_nodes
        devices = DeviceAllocation(pod, self._pools, self._devices, self.topology.layout.nodes, narrow=narrow)
        providers.append(devices)
        cpus = memory = None
        try:
            if self.plan is not None:
                cpus = CpuAllocation(pod, self.pools, self.plan, policy)
                providers.append(cpus)
            if self._memory is not None:
                checks = self._setting.profile.memory_groups_checked
                memory = MemoryAllocation(pod, self._blocks, self._memory, policy, checks_groups=checks)
                providers.append(memory)
            hints = allocate(pod, providers, self.topology)
        except REFUSALS as error:
            why = error.why if isinstance(error, TopologyAffinityError) else ""
            if self._setting.profile.refused_pods_assigned:
                self.pools = self.pools if cpus is None else cpus.pools.released([uid])
                self._memory = self._memory if memory is None else memory.undone()
            return Placement(title, reason=error.reason, message=str(error), why=why)
        self._devices[uid] = devices.result
        if cpus is not None:
            self.pools = cpus.pools
        if memory is not None:
            self._memory, self._blocks[uid] = memory.machine, memory.result
        return Placement(
            title,
            tuple(
                ContainerPlacement(
                    each.name,
                    cpu_text(own) if cpus is not None and (own := cpus.result.get(each.name)) else "shared",
                    numa_text(memory.result.get(each.name, ())) if memory is not None else "",
                    {name: sorted(ids) for name, ids in devices.result.get(each.name, {}).items()},
                    "" if self.topology.policy == "none" else str(hints[each.name]),
                )
                for each in (*pod.spec.init_containers, *pod.spec.containers)
            ),
            notes=self._conflicts(pod),
        )

    def _conflicts(self, pod: Pod) -> tuple[str, ...]:
        profile = self._setting.profile
        if self.plan is None or not profile.cpus_by_average:
            return ()
        found = conflicts(self.pools.owned, pod, self.plan.reserved)
        return tuple(each.text(profile.release, self._titles) for each in found)


def placements(pods: Sequence[tuple[Pod, str]], setting: NodeConfig, machine: MachineTopology) -> Placements:
    placer = Placer(setting, machine)
    found = []
    for pod, title in pods:
        keyed = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, uid=load_key(pod) + title))
        found.append(placer.place(keyed, title))
    plan = placer.plan
    return Placements(
        placer.topology.policy,
        placer.topology.scope,
        "" if plan is None else cpu_text(plan.reserved),
        cpu_text(machine.cpus.cpus if plan is None else placer.pools.shared),
        tuple(found),
    )


def run(pods: Sequence[tuple[Pod, str]], setting: NodeConfig, machine: MachineTopology, output: str) -> bool:
    """Print what each pod gets. False if one is refused."""
    found = placements(pods, setting, machine)
    if output == "json":
        echo_json(found)
    else:
        rows = []
        for pod in found.pods:
            for each in pod.containers:
                devices = "; ".join(f"{name}: {', '.join(ids)}" for name, ids in each.devices.items())
                rows.append(
                    (inert(pod.pod), each.name, each.cpus, each.memory or "any", inert(devices) or "-", each.hint)
                )
            if pod.reason:
                rows.append((inert(pod.pod), f"refused: {pod.reason}", "", "", "", ""))
        for line in table(rows, HEADER):
            console.echo(line)
        console.echo(f"topology manager: {found.policy}, scope {found.scope}")
        console.echo(f"shared CPUs: {found.shared}" + (f" (reserved: {found.reserved})" if found.reserved else ""))
        for pod in found.pods:
            if pod.reason:
                console.echo(f"{inert(pod.pod)}: {pod.message}" + (f" ({pod.why})" if pod.why else ""))
            for note in pod.notes:
                console.echo(f"{inert(pod.pod)}: warning: {inert(note)}")
    return not any(pod.reason for pod in found.pods)
