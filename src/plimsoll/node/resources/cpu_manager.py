"""Who owns which CPUs of this node, under the static policy; under `none` nobody owns any.

Decisions are `rules.cpumanager.assignment`'s. What was given is kept in `cpu_manager_state`, a file of the kubelet's
own form, before anybody runs on it: an agent that comes back finds every container on the CPUs it had. A pod keeps its
CPUs until nothing of it runs any more, whatever restarts meanwhile.

A file that does not fit (another policy, other CPUs, damaged) is refused while pods are known here, as a kubelet
refuses it: nobody could say who runs where. On a drained node it is begun anew.

Brings containers onto their CPUs: exclusive ones onto their own, all others onto the shared pool.

Where the agent makes the cgroups, `cpuset.cpus` is a file like the others in one turn of the node's tree; whoever must
leave a CPU is written first, and before a new owner starts. A runtime that makes them itself is told by an update that
holds the list of CPUs and nothing else, so that no quota is disturbed (02 §10).

It is done whenever CPUs were given away or came back, and compared anew every `cpuManagerReconcilePeriod`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from pathlib import Path

from plimsoll.codec.kernel.cpu_state import CpuState, CpuStateCorruptError, cpu_state_from_json, cpu_state_json
from plimsoll.errors import InvalidConfigError, PlimsollError
from plimsoll.linux.atomic_file import replace_whole
from plimsoll.node.resources.pleg import RuntimeView
from plimsoll.node.resources.pod_cgroups import PodCgroups
from plimsoll.rules.config.kubelet import host_errors
from plimsoll.rules.cpumanager.assignment import (
    FULL_CORES,
    HONOURED_OPTIONS,
    NO_CPUS,
    STRICT_RESERVATION,
    CpuPlan,
    NotEnoughCpusError,
    NotWholeCoresError,
    assigned,
    reserved_set,
    state_error,
)
from plimsoll.rules.cpumanager.topology import Cpus, CpuTopology
from plimsoll.rules.cpuset import cpu_text
from plimsoll.rules.model.objects import Pod
from plimsoll.rules.node.admission import AdmissionRefusal
from plimsoll.rules.node.node_config import NodeConfig, reserved_cpus
from plimsoll.rules.resources.defaulting import defaulted
from plimsoll.runtime.interface import ContainerRuntime, CriResources, RuntimeCallError

log = logging.getLogger(__name__)

STATE = "cpu_manager_state"
CPUSET = "cpuset.cpus"
NONE, STATIC = "none", "static"


class CpuStateError(PlimsollError):
    def __init__(self, path: Path, trouble: str) -> None:
        super().__init__(path, trouble)
        self.path, self.trouble = path, trouble

    def __str__(self) -> str:
        return (
            f"could not restore state from checkpoint: {self.trouble}, please drain this node and delete the CPU "
            f'manager checkpoint file "{self.path}" before restarting'
        )


class CpuManager:
    def __init__(self, directory: Path, setting: NodeConfig, topology: CpuTopology) -> None:
        """Raises InvalidConfig where the configuration cannot be had on these CPUs."""
        self._path, self._policy = directory / STATE, setting.policy
        self._owned: dict[str, dict[str, Cpus]] = {}
        self.is_static = setting.policy.static_cpus
        self.plan = cpu_plan(setting, topology) if self.is_static else None
        self.shared_text = ""

    def load(self, *, drained: bool) -> None:
        """`drained`: no pod of an earlier run is known here."""
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            self._save()
            return
        try:
            state = cpu_state_from_json(data)
            trouble = self._trouble(state)
        except CpuStateCorruptError as error:
            state, trouble = CpuState("", NO_CPUS, {}), str(error)
        if trouble and not drained:
            raise CpuStateError(self._path, trouble)
        if trouble:
            log.warning("%s: %s; there are no pods here, so it is begun anew", self._path, trouble)
        else:
            self._owned = {uid: dict(containers) for uid, containers in state.owned.items()}
        self._save()

    def _trouble(self, state: CpuState) -> str:
        configured = STATIC if self.is_static else NONE
        if state.policy != configured:
            return f'configured policy "{configured}" differs from state checkpoint policy "{state.policy}"'
        return state_error(state.owned, state.shared, self.plan) if self.plan is not None else ""

    # --- deciding ---

    def wanted(self, pod: Pod) -> dict[str, Cpus] | AdmissionRefusal:
        """The CPUs that its containers would own; `pod` with its allocated resources. Nothing is given away yet."""
        if self.plan is None:
            return {}
        whole = defaulted(pod, gates=self._policy.gates)
        try:
            return assigned(whole, self._owned, self.plan, self._policy)
        except (NotEnoughCpusError, NotWholeCoresError) as error:
            return AdmissionRefusal(error.reason, str(error))

    def give(self, uid: str, cpus: dict[str, Cpus]) -> bool:
        """Kept on disk when this returns, if the disk takes it. True where it is news."""
        if self._owned.get(uid, {}) == cpus:
            return False
        if cpus:
            self._owned[uid] = cpus
        else:
            self._owned.pop(uid, None)
        self._save()
        return True

    def keep(self, uids: Collection[str]) -> bool:
        """Whoever is not among them gives back what it owned. True where somebody did."""
        gone = [uid for uid in self._owned if uid not in uids]
        for uid in gone:
            del self._owned[uid]
        if gone:
            self._save()
        return bool(gone)

    # --- asking ---

    def cpus_of(self, uid: str, container: str) -> str:
        """As a cpuset file wants them: its own, or the shared pool. Empty under the policy `none`."""
        own = self._owned.get(uid, {}).get(container)
        return self.shared_text if own is None else cpu_text(own)

    def owned_by(self, uid: str) -> dict[str, Cpus]:
        return dict(self._owned.get(uid, {}))

    @property
    def shared(self) -> Cpus:
        return self.plan.shared(self._owned) if self.plan is not None else NO_CPUS

    def _save(self) -> None:
        self.shared_text = cpu_text(self.shared)
        state = CpuState(STATIC if self.is_static else NONE, self.shared, self._owned)
        try:
            replace_whole(self._path, cpu_state_json(state))
        except OSError as error:  # as a kubelet, go on: a full disk is no reason to refuse pods
            log.error("%s cannot be written: %s; free some space", self._path, error.strerror or error)


def cpu_plan(setting: NodeConfig, topology: CpuTopology) -> CpuPlan:
    config = setting.config
    if len(topology.cpus) < setting.machine.cores:
        raise InvalidConfigError(
            "cpuManagerPolicy",
            f"static: the capacity says {setting.machine.cores} CPUs and the machine has {len(topology.cpus)}; "
            "nobody can own one that is not there",
        )
    options = {name for name, value in config.cpu_manager_policy_options.items() if value == "true"}
    if others := sorted(options - HONOURED_OPTIONS):
        honoured = " and ".join(sorted(HONOURED_OPTIONS))
        raise InvalidConfigError(f"cpuManagerPolicyOptions[{others[0]}]", f"is not offered here; {honoured} are")
    for error in host_errors(config, setting.policy.cgroup_version, topology.cpus):
        if error.path == "reservedSystemCPUs":
            raise error
    count = reserved_cpus(config)
    if count >= len(topology.cpus):
        raise InvalidConfigError(
            "cpuManagerPolicy", f"{count} of {len(topology.cpus)} CPUs are reserved: nothing is left to give away"
        )
    return CpuPlan(
        topology,
        reserved_set(topology, config.reserved_system_cpus, count),
        full_cores=FULL_CORES in options,
        strict=STRICT_RESERVATION in options,
    )


class CpuPinning:
    def __init__(
        self, cpus: CpuManager, cgroups: PodCgroups, runtime: ContainerRuntime, view: RuntimeView, period_s: float
    ) -> None:
        self.cpus, self._cgroups, self._runtime, self._view, self._period_s = cpus, cgroups, runtime, view, period_s
        self._told: dict[str, str] = {}  # container id → what a runtime was told last
        self._wake = asyncio.Event()
        if cpus.is_static:
            cgroups.cpus = cpus.cpus_of

    def check(self) -> None:
        """A policy that no kernel could carry out is refused at the start."""
        if self.cpus.is_static and (why := self._cgroups.lacks(CPUSET)):
            raise InvalidConfigError("cpuManagerPolicy", f"static needs the cpuset controller: {why}")

    def wake(self) -> None:
        """Somebody may have given CPUs back."""
        self._wake.set()

    async def now(self, *, every: bool = False) -> None:
        """Everybody that runs is on its CPUs when this returns."""
        if not self.cpus.is_static:
            return
        if self._runtime.makes_cgroups:
            await self._tell_runtime()
        else:
            await self._cgroups.pin(every=every)

    async def run(self, active: Callable[[], Collection[str] | None], freed: Callable[[], None]) -> None:
        """`active`: the pods of which something may run; None while not all of them are known. `freed`: is told when
        CPUs came back."""
        while True:
            try:
                async with asyncio.timeout(self._period_s):
                    await self._wake.wait()
            except TimeoutError:
                pass
            is_periodic = not self._wake.is_set()
            self._wake.clear()
            if not self.cpus.is_static:
                continue
            try:
                uids = active()
                if uids is not None and self.cpus.keep(uids):
                    freed()
                await self.now(every=is_periodic)
            except (PlimsollError, OSError) as error:
                log.warning("CPUs of containers: %s; trying again", error)

    async def _tell_runtime(self) -> None:
        running = {
            each.id: (each.pod_uid, each.name)
            for parts in (await self._view.all()).values()
            for each in parts.containers
            if each.phase == "running"
        }
        self._told = {key: text for key, text in self._told.items() if key in running}
        wanted = {key: self.cpus.cpus_of(*who) for key, who in running.items()}
        changed = [key for key, text in wanted.items() if self._told.get(key) != text]
        # Fewer CPUs first: nobody gets one that another one still has.
        for key in sorted(changed, key=lambda each: wanted[each] != self.cpus.shared_text):
            try:
                await self._runtime.update_container(key, CriResources(cpuset_cpus=wanted[key]))
            except RuntimeCallError as trouble:  # it may have ended just now; else the next look finds it
                log.info("CPUs of container %s: %s", key, trouble)
            else:
                self._told[key] = wanted[key]
