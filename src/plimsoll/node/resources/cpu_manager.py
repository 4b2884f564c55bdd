"""Exclusive CPUs of containers under the static CPU manager policy; under `none` every container runs on all.

`rules.cpumanager.assignment` decides. The assignment is written to `cpu_manager_state`, a file in the kubelet's format,
before a container runs on it: a restarted agent finds every container on the CPUs it had. A pod keeps its CPUs until
none of its processes runs any more, even if containers restart meanwhile.

`CpuPinning` moves containers onto their CPUs whenever the assignment changes, and compares all of them every
`cpuManagerReconcilePeriod`. A container leaves a CPU before another one that owns it starts there (02 §10).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path

from plimsoll.aio import Wakeup
from plimsoll.codec.kernel.cpu_state import CpuState, cpu_state_from_json, cpu_state_json
from plimsoll.errors import InvalidConfigError, PlimsollError
from plimsoll.node.resources.container_cgroups import ContainerCgroups
from plimsoll.node.resources.pod_cgroups import PodCgroups
from plimsoll.node.resources.state_file import StateFile
from plimsoll.rules.config.kubelet import host_errors
from plimsoll.rules.cpumanager.assignment import CpuAllocation, CpuPlan, policy_error, state_error
from plimsoll.rules.cpumanager.creation import StaticSetting, static_plan
from plimsoll.rules.cpumanager.pools import CpuPools, Owned
from plimsoll.rules.cpumanager.topology import NO_CPUS, Cpus, CpuTopology
from plimsoll.rules.cpuset import cpu_text
from plimsoll.rules.model.objects import Pod
from plimsoll.rules.node.node_config import NodeConfig, reserved_cpus

log = logging.getLogger(__name__)

STATE = "cpu_manager_state"
CPUSET, MEMS = "cpuset.cpus", "cpuset.mems"
NONE, STATIC = "none", "static"


class CpuManager:
    def __init__(self, directory: Path, setting: NodeConfig, topology: CpuTopology) -> None:
        """Raises InvalidConfigError if these CPUs cannot satisfy the configuration."""
        read = partial(cpu_state_from_json, tries_v1=setting.profile.damaged_cpu_file_as_v1)
        self._file = StateFile("CPU", directory / STATE, read, cpu_state_json)
        self._policy = setting.policy
        self.is_static = setting.policy.static_cpus
        self._keeps_cpus = setting.profile.static_cpu_resize == "quota only"
        self.plan = cpu_plan(setting, topology) if self.is_static else None
        self._pools = CpuPools({}, NO_CPUS) if self.plan is None else self.plan.pools({})
        self.shared_text = ""

    def load(self, *, drained: bool) -> None:
        """`drained`: no pod of an earlier run is known here. Raises StateMismatchError."""
        state = self._file.load(self._other_policy, self._unfit, drained=drained)
        if state is not None and state.owned:
            self._pools = CpuPools(state.owned, state.shared)
        self._save()

    def _other_policy(self, state: CpuState) -> str:
        return policy_error(STATIC if self.is_static else NONE, state.policy)

    def _unfit(self, state: CpuState) -> str:
        return "" if self.plan is None else state_error(CpuPools(state.owned, state.shared), self.plan)

    # --- assignments ---

    def allocation(self, pod: Pod) -> CpuAllocation | None:
        """What would be assigned to a pod with defaults; nothing is assigned yet. None under the policy `none`, and for
        a pod that keeps its CPUs whatever it requests now. Raises one of CPU_ERRORS."""
        if self.plan is None or (self._keeps_cpus and pod.metadata.uid in self.owned):
            return None
        return CpuAllocation(pod, self._pools, self.plan, self._policy)

    def commit(self, pools: CpuPools) -> bool:
        """Take over what an allocation has assigned, and save that. True if the assignment has changed."""
        if pools == self._pools:
            return False
        self._pools = pools
        self._save()
        return True

    @property
    def owned(self) -> Owned:
        return self._pools.owned

    def retain(self, uids: Collection[str]) -> bool:
        """Release the CPUs of all other pods. True if there were some."""
        return self.commit(self._pools.released([uid for uid in self.owned if uid not in uids]))

    def cpus_of(self, uid: str, container: str) -> str:
        """In cpuset format: its own CPUs, or the shared pool. Empty under the policy `none`."""
        own = self.owned.get(uid, {}).get(container)
        return self.shared_text if own is None else cpu_text(own)

    @property
    def shared(self) -> Cpus:
        return self._pools.shared

    def _save(self) -> None:
        self.shared_text = cpu_text(self.shared)
        self._file.save(CpuState(STATIC if self.is_static else NONE, self.shared, self.owned))


def cpu_plan(setting: NodeConfig, topology: CpuTopology) -> CpuPlan:
    config = setting.config
    if len(topology.cpus) < setting.machine.cores:
        raise InvalidConfigError(
            "cpuManagerPolicy",
            f"static: the capacity says {setting.machine.cores} CPUs and the machine has {len(topology.cpus)}; "
            "declare at most as many, or use the policy none",
        )
    for error in host_errors(config, setting.profile, setting.policy.cgroup_version, topology.cpus):
        if error.path == "reservedSystemCPUs":
            raise error
    options, policy = config.cpu_manager_policy_options, config.topology_manager_policy
    static = StaticSetting(options, config.reserved_system_cpus, reserved_cpus(config), policy)
    return static_plan(topology, static, config.gate, setting.profile)


class CpuPinning:
    def __init__(
        self,
        cpus: CpuManager,
        pods: PodCgroups,
        containers: ContainerCgroups,
        period_s: float,
        release: Callable[[Collection[str]], bool],
        *,
        binds_memory: bool = False,
    ) -> None:
        """`release` frees what pods other than the given ones own; `binds_memory`: containers have NUMA nodes."""
        self._cpus, self._pods, self._containers, self._period_s = cpus, pods, containers, period_s
        self._release, self._binds_memory = release, binds_memory
        self._wake = Wakeup()

    def check(self) -> None:
        """Refuse a policy that this kernel cannot enforce, when the agent starts."""
        if self._cpus.is_static and (why := self._pods.lacks(CPUSET)):
            raise InvalidConfigError("cpuManagerPolicy", f"static needs the cpuset controller: {why}")
        if self._binds_memory and (why := self._pods.lacks(MEMS)):
            raise InvalidConfigError("memoryManagerPolicy", f"Static needs the cpuset controller: {why}")

    def wake(self) -> None:
        """CPUs may have been assigned or released."""
        self._wake.set()

    async def now(self, *, every: bool = False) -> None:
        """All running containers are on their CPUs when this returns."""
        if self._cpus.is_static:
            await self._containers.pin(every=every)

    async def run(self, active: Callable[[], Collection[str] | None], freed: Callable[[], None]) -> None:
        """`active`: uids of pods that may have processes; None while not all pods are known. `freed` is called when
        CPUs were released."""
        while True:
            is_periodic = not await self._wake.wait(self._period_s)
            try:
                uids = active()
                if uids is not None and self._release(uids):
                    freed()
                await self.now(every=is_periodic)
            except (PlimsollError, OSError) as error:
                log.warning("CPUs of containers: %s; trying again", error)
