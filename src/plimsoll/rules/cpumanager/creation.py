"""The static policy on one machine: which CPUs are reserved, and why a kubelet cannot create its CPU manager (07 §2).

The checks and their texts are the kubelet's, in its order: the reservation exists, each option, pairs of options,
options that this machine does not support, the number of reserved CPUs, and each of them.

Kubernetes: pkg/kubelet/cm/cpumanager/cpu_manager.go NewManager, policy_static.go NewStaticPolicy.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import msgspec

from plimsoll.errors import InvalidConfigError
from plimsoll.rules.config.manager_options import (
    CPU_OPTIONS_PATH,
    STATIC_ERROR,
    cpu_option_errors,
    cpu_options,
    no_reservation,
)
from plimsoll.rules.cpumanager.assignment import CPU_ERRORS, CpuPlan
from plimsoll.rules.cpumanager.topology import NO_CPUS, Cpus, CpuTopology
from plimsoll.rules.cpuset import cpu_text
from plimsoll.rules.profile import Profile

PATH = "cpuManagerPolicy"
MORE_SOCKETS = "Align by socket is not compatible with hardware where number of sockets are more than number of NUMA"


class StaticSetting(msgspec.Struct, frozen=True):
    """What the kubelet's configuration says. `explicit`: reservedSystemCPUs; `count`: how many CPUs are reserved."""

    options: Mapping[str, str]
    explicit: Collection[int]
    count: int
    topology_policy: str = "none"


def static_plan(
    topology: CpuTopology, setting: StaticSetting, gate: Callable[[str], bool], profile: Profile
) -> CpuPlan:
    """`gate`: whether a feature gate is on. Raises InvalidConfigError."""
    if not setting.count:
        raise no_reservation()
    for error in cpu_option_errors(setting.options, gate, profile, setting.topology_policy):
        raise error
    options = cpu_options(setting.options)
    if options.align_by_socket and topology.sockets > topology.numa_nodes:
        raise InvalidConfigError(f"{CPU_OPTIONS_PATH}[align-by-socket]", f"{STATIC_ERROR}{MORE_SOCKETS}")
    plan = CpuPlan(topology, NO_CPUS, options, profile)
    return msgspec.structs.replace(plan, reserved=reserved_set(plan, setting.explicit, setting.count))


def reserved_set(plan: CpuPlan, explicit: Collection[int], count: int) -> Cpus:
    """The configured CPUs, or as many as the allocator with these options takes (CM-5): 8 CPUs with siblings i, i+4,
    reserve 2 → {0, 4}, with distribute-cpus-across-cores {0, 1}. Raises InvalidConfigError."""
    try:
        chosen = frozenset(explicit) or plan.take(plan.topology.cpus, count)
    except CPU_ERRORS:
        chosen = NO_CPUS
    if len(chosen) != count:  # also where a kubelet counts CPUs twice (CM-2)
        size = f"size of {cpu_text(chosen)} did not equal {count}"
        raise InvalidConfigError(
            PATH, f"{STATIC_ERROR}[cpumanager] unable to reserve the required amount of CPUs ({size})"
        )
    for cpu in sorted(chosen - plan.topology.cpus):
        raise InvalidConfigError(
            PATH,
            f"{STATIC_ERROR}[cpumanager] unable to build the reserved physical CPUs from the reserved set: "
            f"unknown CPU ID: {cpu}",
        )
    return chosen
