"""Exclusive CPUs under the static policy: which container gets which, and the shared pool (07 §2.2, 07 §2.3).

CPUs are taken in whole parts first (`packing`), or from several NUMA nodes (`distribution`). Reserved CPUs are never
assigned. CPUs that no container owns are the shared pool; it includes reserved CPUs, unless `strict-cpu-reservation`
excludes them. Containers may reuse the CPUs of ordinary init containers; a sidecar keeps its own.

Kubernetes: pkg/kubelet/cm/cpumanager/policy_static.go.
"""

from __future__ import annotations

import msgspec

from plimsoll.errors import StructuredError
from plimsoll.rules.config.manager_options import NO_CPU_OPTIONS, CpuOptions
from plimsoll.rules.cpumanager.distribution import DistributionError, distributed
from plimsoll.rules.cpumanager.packing import UNEXPECTED, NotEnoughCpusError, packed, single_threads
from plimsoll.rules.cpumanager.pools import CpuPools, Owned, taken_by
from plimsoll.rules.cpumanager.topology import NO_CPUS, Cpus, CpuTopology
from plimsoll.rules.cpuset import cpu_text
from plimsoll.rules.model.objects import CPU, Container, Pod, is_sidecar
from plimsoll.rules.numa import NO_HINT, Hint, HintLists, Hints, masks, nodes_of
from plimsoll.rules.profile import DEFAULT_PROFILE, Profile
from plimsoll.rules.resources.exclusive_cpus import exclusive_cpus, pod_exclusive_cpus
from plimsoll.rules.resources.node_policy import NodePolicy
from plimsoll.rules.resources.qos import qos_class

__all__ = ["NO_CPUS", "UNEXPECTED", "NotEnoughCpusError"]
SMT_ALIGNMENT = "SMTAlignmentError"


class NotWholeCoresError(StructuredError):
    """`full-pcpus-only`. `free`: CPUs outside reserved cores, if too few; None: not a multiple of a core (CM-16)."""

    reason = SMT_ALIGNMENT

    requested: int
    per_core: int
    free: int | None = None

    def __str__(self) -> str:
        if self.free is None:
            return f"SMT Alignment Error: requested {self.requested} cpus not multiple cpus per core = {self.per_core}"
        return (
            f"SMT Alignment Error: not enough free physical CPUs: available physical CPUs = {self.free}, "
            f"requested CPUs = {self.requested}, CPUs per core = {self.per_core}"
        )


CPU_ERRORS = (NotEnoughCpusError, NotWholeCoresError, DistributionError)


class CpuPlan(msgspec.Struct, frozen=True):
    """A machine's CPUs, the reserved ones, the options of the policy, and the release that it follows."""

    topology: CpuTopology
    reserved: Cpus
    options: CpuOptions = NO_CPU_OPTIONS
    profile: Profile = DEFAULT_PROFILE

    @property
    def reserved_physical(self) -> Cpus:
        """All CPUs of the cores with a reserved CPU (CM-6)."""
        return frozenset(
            cpu for members in self.topology.by_core.values() if members & self.reserved for cpu in members
        )

    def pools(self, owned: Owned) -> CpuPools:
        """All CPUs that are not owned are the shared pool."""
        reserved = self.reserved if self.options.strict_cpu_reservation else NO_CPUS
        return CpuPools(owned, self.topology.cpus - taken_by(owned) - reserved)

    def assignable(self, pools: CpuPools) -> Cpus:
        return pools.shared - self.reserved

    def take(self, available: Cpus, count: int, free: Cpus = NO_CPUS) -> Cpus:
        """Only available CPUs, or others that are free; `cpus_by_average`: also one of another container. Raises one of
        CPU_ERRORS."""
        try:
            found = self.kubelet_choice(available, count)
        except NotEnoughCpusError as error:
            counted = self.profile.cpu_shortage_counted
            raise NotEnoughCpusError(error.requested, error.available, counted) from None
        # [quirk] CM-2: with an offline CPU the real allocator takes a core as free of which one thread is in use; with
        # sockets of several sizes it takes a socket as free that is not.
        if self.profile.cpus_by_average or (found <= available | free and len(found) == count):
            return found
        return single_threads(self.topology, available, count)

    def kubelet_choice(self, available: Cpus, count: int) -> Cpus:
        """What a kubelet takes. Raises one of CPU_ERRORS."""
        options, spread = self.options, self.options.distribute_cpus_across_cores
        if options.distribute_cpus_across_numa:
            group = self.topology.threads_per_core if options.full_pcpus_only else 1
            capped = self.profile.distribution_by_socket
            by_socket = capped and options.align_by_socket
            return distributed(
                self.topology, available, count, group, spread=spread, capped=capped, by_socket=by_socket
            )
        by_uncore = options.prefer_align_cpus_by_uncorecache
        odd = self.profile.uncore_odd_counts
        return packed(self.topology, available, count, spread=spread, by_uncore=by_uncore, odd_uncore=odd)

    def near(self, pool: Cpus, count: int, mask: int | None) -> Cpus:
        """CPUs of the mask's NUMA nodes first, then others: the mask does not confine (CM-14, CM-17). If the others are
        too few, the error counts them only. Raises one of CPU_ERRORS."""
        near: Cpus = NO_CPUS
        if mask is not None:
            aligned = pool & self._aligned(mask)
            near = self.take(aligned, min(count, len(aligned)), pool)
        return near | self.take(pool - near, count - len(near))

    def _aligned(self, mask: int) -> Cpus:
        nodes = nodes_of(mask)
        if not self.options.align_by_socket:
            return self.topology.in_nodes(nodes)
        sockets = self.topology.sockets_of(nodes)
        return NO_CPUS.union(*(self.topology.by_socket[socket] for socket in sockets))

    def check_whole_cores(self, count: int, free: Cpus) -> None:
        """`free`: the shared pool. Raises NotWholeCoresError (CM-16)."""
        per_core = self.topology.threads_per_core
        if not self.options.full_pcpus_only:
            return
        if count % per_core:
            raise NotWholeCoresError(count, per_core)
        physical = len(free - self.reserved_physical)
        if count > physical:
            raise NotWholeCoresError(count, per_core, physical if physical or self.profile.smt_error_by_cause else None)


def cpu_hints(plan: CpuPlan, available: Cpus, reusable: Cpus, count: int) -> Hints:
    """NUMA masks from which so many CPUs can come (CM-19). `reusable`: of the pod's init containers, all are kept."""
    topology = plan.topology
    smallest, found = topology.numa_nodes, []
    places = topology.places
    reused = [places[cpu].numa for cpu in reusable]
    offered = [places[cpu].numa for cpu in available]
    for mask in masks(topology.by_numa):
        size = mask.bit_count()
        if size < smallest and sum(len(topology.by_numa[node]) for node in nodes_of(mask)) >= count:
            smallest = size
        if not all(mask >> node & 1 for node in reused):
            continue
        if len(reused) + sum(mask >> node & 1 for node in offered) >= count:
            found.append(mask)
    return tuple(Hint(mask, mask.bit_count() == smallest or _fills_sockets(plan, mask, smallest)) for mask in found)


def _fills_sockets(plan: CpuPlan, mask: int, smallest: int) -> bool:
    """align-by-socket: no more sockets than the smallest number of nodes needs (CM-22)."""
    per_socket = plan.topology.numa_nodes // plan.topology.sockets
    if not plan.options.align_by_socket or not per_socket:
        return False
    return len(plan.topology.sockets_of(nodes_of(mask))) == -(-smallest // per_socket)


class CpuAllocation:
    """The CPUs of one pod, container by container: a hint provider of the topology manager (AD-4)."""

    def __init__(self, pod: Pod, pools: CpuPools, plan: CpuPlan, policy: NodePolicy) -> None:
        """A resized container keeps as many of its CPUs as possible: it grows by free CPUs, or shrinks to a part of
        its own (profile `documents`)."""
        self._pod, self._plan, self._policy = pod, plan, policy
        self._qos = qos_class(pod, gates=policy.gates)
        spec = pod.spec
        self._inits = {each.name for each in spec.init_containers if not is_sidecar(each)}
        self._counts = {
            each.name: exclusive_cpus(pod, each, self._qos, policy)
            for each in (*spec.init_containers, *spec.containers)
        }
        self._reusable = NO_CPUS
        self.before = pools.owned.get(pod.metadata.uid, {})
        kept = {
            name: own if len(own) <= self._counts[name] else plan.take(own, self._counts[name])
            for name, own in self.before.items()
            if self._counts.get(name)
        }
        self._kept = kept
        self.pools = pools if kept == self.before else pools.narrowed(pod.metadata.uid, kept)

    @property
    def result(self) -> dict[str, Cpus]:
        """Container → its CPUs."""
        return dict(self.pools.owned.get(self._pod.metadata.uid, {}))

    def hints(self, container: Container) -> HintLists:
        count = self._counts[container.name]
        if not count:
            return {}
        own = self.before.get(container.name)
        if own is not None:
            return {CPU: cpu_hints(self._plan, own, NO_CPUS, count) if len(own) == count else ()}
        return {CPU: cpu_hints(self._plan, self._plan.assignable(self.pools), self._reusable, count)}

    def pod_hints(self) -> HintLists:
        """Of the whole pod, before any of its containers is assigned CPUs in this run (CM-21)."""
        count = pod_exclusive_cpus(self._pod, self._qos, self._policy)
        if not count:
            return {}
        if any(len(own) != self._counts.get(name, 0) for name, own in self.before.items()):
            return {CPU: ()}
        assigned = NO_CPUS.union(*self.before.values())
        if len(assigned) == count:
            return {CPU: cpu_hints(self._plan, assigned, NO_CPUS, count)}
        return {CPU: cpu_hints(self._plan, self._plan.assignable(self.pools), assigned, count)}

    def allocate(self, container: Container, hint: Hint = NO_HINT) -> None:
        """Raises one of CPU_ERRORS."""
        name = container.name
        count, own = self._counts[name], self._kept.get(name, NO_CPUS)
        if not count:
            return
        if self._plan.profile.smt_checked_again:  # [quirk] CM-16: also for a container that has its CPUs
            self._plan.check_whole_cores(count, self.pools.shared)
        cpus = own if len(own) == count else self._more(count, own, hint)
        if cpus != own:
            self.pools = self.pools.assigned(self._pod.metadata.uid, name, cpus)
        if name in self._inits:
            self._reusable |= cpus
        else:
            self._reusable -= cpus

    def _more(self, count: int, own: Cpus, hint: Hint) -> Cpus:
        self._plan.check_whole_cores(count, self.pools.shared | own)
        pool = (self._plan.assignable(self.pools) | self._reusable) - own
        if own and len(pool) + len(own) < count:
            raise NotEnoughCpusError(count, len(pool) + len(own))
        return own | self._plan.near(pool, count - len(own), hint.mask)


def assigned(pod: Pod, pools: CpuPools, plan: CpuPlan, policy: NodePolicy) -> CpuPools:
    """The pools after the containers of the pod with exclusive CPUs have got theirs; owned CPUs are kept.

    Without a topology manager. Raises one of CPU_ERRORS; nothing is assigned then.
    """
    allocation = CpuAllocation(pod, pools, plan, policy)
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        allocation.allocate(container)
    return allocation.pools


# --- the checkpoint ---


def policy_error(configured: str, found: str) -> str:
    """Why a checkpoint of this policy cannot be restored; empty if it can (CM-28)."""
    if found == configured:
        return ""
    return f'configured policy "{configured}" differs from state checkpoint policy "{found}"'


def state_error(pools: CpuPools, plan: CpuPlan) -> str:
    """Why the checkpoint does not fit this machine and configuration; empty if it does (CM-28)."""
    owned, shared, strict = pools.owned, pools.shared, plan.options.strict_cpu_reservation
    if not shared and not owned:
        return ""  # a fresh file
    # [quirk] CM-28: with strict-cpu-reservation pods may own every other CPU.
    if not shared and (plan.profile.empty_pool_refused or plan.pools(owned).shared):
        return "default cpuset cannot be empty"
    if strict:
        if plan.reserved & shared:
            return (
                f'some of strictly reserved cpus: "{cpu_text(plan.reserved & shared)}" are present in defaultCpuSet: '
                f'"{cpu_text(shared)}"'
            )
    elif not plan.reserved <= shared:
        return f'not all reserved cpus: "{cpu_text(plan.reserved)}" are present in defaultCpuSet: "{cpu_text(shared)}"'
    for uid, containers in sorted(owned.items()):
        for name, cpus in sorted(containers.items()):
            if cpus & shared:
                return (
                    f'pod: {uid}, container: {name} cpuset: "{cpu_text(cpus)}" overlaps with default cpuset '
                    f'"{cpu_text(shared)}"'
                )
    every = plan.topology.cpus - (plan.reserved if strict else NO_CPUS)
    if taken_by(owned) | shared != every:
        return (
            f'current set of available CPUs "{cpu_text(every)}" doesn\'t match with CPUs in state '
            f'"{cpu_text(taken_by(owned) | shared)}"'
        )
    return ""
