"""Exclusive CPUs under the static policy: which container gets which, and the shared pool (02 §10).

CPUs are taken in whole parts first: NUMA nodes and sockets that are entirely free, then whole cores, then single
threads of cores and sockets already in use, so that free ones stay whole. Reserved CPUs are never assigned. CPUs that
no container owns are the shared pool; it includes reserved CPUs, unless `strict-cpu-reservation` excludes them.

Containers reuse the CPUs of ordinary init containers; a sidecar keeps its own.

Kubernetes: pkg/kubelet/cm/cpumanager/policy_static.go, cpu_assignment.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from plimsoll.errors import StructuredError
from plimsoll.rules.cpumanager.topology import Cpus, CpuTopology
from plimsoll.rules.cpuset import cpu_text
from plimsoll.rules.model.objects import Pod, is_sidecar
from plimsoll.rules.resources.exclusive_cpus import exclusive_cpus
from plimsoll.rules.resources.node_policy import NodePolicy
from plimsoll.rules.resources.qos import qos_class

UNEXPECTED, SMT_ALIGNMENT = "UnexpectedAdmissionError", "SMTAlignmentError"
# Supported options of the policy; a node with another option does not start.
FULL_CORES, STRICT_RESERVATION = "full-pcpus-only", "strict-cpu-reservation"
HONOURED_OPTIONS = frozenset({FULL_CORES, STRICT_RESERVATION})
NO_CPUS: Cpus = frozenset()
Owned = Mapping[str, Mapping[str, Cpus]]  # pod uid → container name → its CPUs


class NotEnoughCpusError(StructuredError):
    reason = UNEXPECTED

    requested: int
    available: int
    template = (
        "Allocate failed due to not enough cpus available to satisfy request: requested={requested}, "
        "available={available}, which is unexpected"
    )


class NotWholeCoresError(StructuredError):
    """`full-pcpus-only`. `free`: CPUs in whole free cores, if too few; None: not a multiple of a core."""

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


class CpuPlan(msgspec.Struct, frozen=True):
    """A machine's CPUs, the reserved ones, and the options of the policy."""

    topology: CpuTopology
    reserved: Cpus
    full_cores: bool = False
    strict: bool = False

    def shared(self, owned: Owned) -> Cpus:
        """The CPUs of containers without exclusive CPUs: all that are not owned."""
        taken = taken_by(owned)
        return self.topology.cpus - taken - (self.reserved if self.strict else NO_CPUS)

    def assignable(self, owned: Owned) -> Cpus:
        return self.topology.cpus - taken_by(owned) - self.reserved


def reserved_set(topology: CpuTopology, explicit: Iterable[int], count: int) -> Cpus:
    """The configured CPUs, or as many from the low cores: 8 CPUs with siblings i, i+4, reserve 2 → {0, 4}."""
    named = frozenset(explicit)
    return named or take(topology, topology.cpus, count)


def taken_by(owned: Owned) -> Cpus:
    return frozenset(cpu for containers in owned.values() for cpus in containers.values() for cpu in cpus)


def assigned(pod: Pod, owned: Owned, plan: CpuPlan, policy: NodePolicy) -> dict[str, Cpus]:
    """Container → its CPUs, for the containers of the pod with exclusive CPUs; owned CPUs are kept (02 §10).

    A resized container keeps as many of its CPUs as possible: it grows by free CPUs, or shrinks to a part of its own.
    Raises NotEnoughCpusError or NotWholeCoresError; nothing is assigned then.
    """
    before, spec = owned.get(pod.metadata.uid, {}), pod.spec
    qos = qos_class(pod, gates=policy.gates)
    containers = spec.init_containers + spec.containers
    counts = {container.name: exclusive_cpus(pod, container, qos, policy) for container in containers}
    kept = {
        name: own if len(own) <= counts[name] else take(plan.topology, own, counts[name])
        for name, own in before.items()
        if name in counts
    }
    free = set(plan.assignable({**owned, pod.metadata.uid: kept}))
    reusable: set[int] = set()
    result: dict[str, Cpus] = {}
    for container in containers:
        count, own = counts[container.name], kept.get(container.name, NO_CPUS)
        if count == 0:
            continue
        cpus = own if len(own) == count else _other_number(own, count, frozenset(free), frozenset(reusable), plan)
        result[container.name] = cpus
        free -= cpus
        if container in spec.init_containers and not is_sidecar(container):
            reusable |= cpus
        else:
            reusable -= cpus
    return result


def _other_number(own: Cpus, count: int, free: Cpus, reusable: Cpus, plan: CpuPlan) -> Cpus:
    topology, per_core = plan.topology, plan.topology.threads_per_core
    if plan.full_cores:
        if count % per_core:
            raise NotWholeCoresError(count, per_core)
        whole = _in_whole_cores(topology, free | own | reusable)
        if len(whole) < count:
            raise NotWholeCoresError(count, per_core, len(whole))
    if len(free | own | reusable) < count:
        raise NotEnoughCpusError(count, len(free | own | reusable))
    # CPUs of the pod's init containers come first: they would be idle otherwise.
    missing = count - len(own)
    inherited = reusable - own
    again = inherited if len(inherited) <= missing else take(topology, inherited, missing)
    return own | again | take(topology, free - own - again, missing - len(again))


def _in_whole_cores(topology: CpuTopology, cpus: Cpus) -> Cpus:
    cores = _groups(topology, topology.cpus, "core")
    return frozenset(cpu for members in cores.values() if members <= cpus for cpu in members)


# --- choosing by topology ---


def take(topology: CpuTopology, available: Cpus, count: int) -> Cpus:
    """`count` of the available CPUs, in whole parts first. Raises NotEnoughCpusError."""
    if len(available) < count:
        raise NotEnoughCpusError(count, len(available))
    taken: set[int] = set()
    levels = ("numa", "socket") if topology.sockets >= topology.numa_nodes else ("socket", "numa")
    for level in (*levels, "core"):
        for members in _free_parts(topology, frozenset(available - taken), level, levels):
            if len(members) <= count - len(taken):
                taken |= members
    for cpu in _by_place(topology, frozenset(available - taken), levels):
        if len(taken) == count:
            break
        taken.add(cpu)
    return frozenset(taken)


def _groups(topology: CpuTopology, cpus: Cpus, level: str) -> dict[int, Cpus]:
    found: dict[int, set[int]] = {}
    for cpu in cpus:
        found.setdefault(getattr(topology.places[cpu], level), set()).add(cpu)
    return {key: frozenset(members) for key, members in found.items()}


def _free_parts(topology: CpuTopology, available: Cpus, level: str, levels: tuple[str, ...]) -> list[Cpus]:
    """Parts with all CPUs available, in the order in which they are taken."""
    whole = _groups(topology, topology.cpus, level)
    order = dict.fromkeys(getattr(topology.places[cpu], level) for cpu in _by_place(topology, available, levels))
    return [whole[key] for key in order if whole[key] <= available]


def _by_place(topology: CpuTopology, available: Cpus, levels: tuple[str, ...]) -> list[int]:
    """Parts with the fewest available CPUs first, at every level: parts in use before free ones."""
    nested = (*levels, "core")
    left = {level: _groups(topology, available, level) for level in nested}

    def key(cpu: int) -> tuple[int, ...]:
        parts = ((len(left[level][part]), part) for level in nested for part in (getattr(topology.places[cpu], level),))
        return (*(number for pair in parts for number in pair), cpu)

    return sorted(available, key=key)


# --- the checkpoint ---


def state_error(owned: Owned, shared: Cpus, plan: CpuPlan) -> str:
    """Why the checkpoint does not fit this machine and configuration; empty if it does."""
    if plan.strict:
        if plan.reserved & shared:
            return (
                f'some of strictly reserved cpus: "{cpu_text(plan.reserved & shared)}" are present in defaultCpuSet: '
                f'"{cpu_text(shared)}"'
            )
    elif not plan.reserved <= shared:
        return f'not all reserved cpus: "{cpu_text(plan.reserved)}" are present in defaultCpuSet: "{cpu_text(shared)}"'
    for uid, containers in owned.items():
        for name, cpus in containers.items():
            if cpus & shared:
                return (
                    f'pod: {uid}, container: {name} cpuset: "{cpu_text(cpus)}" overlaps with default cpuset '
                    f'"{cpu_text(shared)}"'
                )
    every = plan.topology.cpus - (plan.reserved if plan.strict else NO_CPUS)
    if taken_by(owned) | shared != every:
        return (
            f'current set of available CPUs "{cpu_text(every)}" doesn\'t match with CPUs in state '
            f'"{cpu_text(taken_by(owned) | shared)}"'
        )
    return ""
