"""The machines of the worked examples (07 §9), and short forms of CPU lists."""

from __future__ import annotations

from plimsoll.rules.config.manager_options import CpuOptions
from plimsoll.rules.cpumanager.assignment import CpuPlan, assigned
from plimsoll.rules.cpumanager.pools import Owned
from plimsoll.rules.cpumanager.topology import CpuTopology, LogicalCpu
from plimsoll.rules.cpuset import cpu_numbers, cpu_text
from plimsoll.rules.model.objects import Pod
from plimsoll.rules.profile import profile_named
from plimsoll.rules.resources.node_policy import NodePolicy

T = CpuTopology({cpu: LogicalCpu(cpu % 4, 0, 0) for cpu in range(8)})
D = CpuTopology({cpu: LogicalCpu(cpu % 6, cpu % 2, cpu % 2) for cpu in range(12)})
M = CpuTopology({cpu: LogicalCpu(cpu % 16, cpu % 16 // 8, cpu % 16 // 4) for cpu in range(32)})
E = CpuTopology({cpu: LogicalCpu(cpu % 32, cpu % 32 // 16, cpu % 32 // 4) for cpu in range(64)})
U = CpuTopology({cpu: LogicalCpu(cpu % 16, 0, 0, cpu % 16 // 4) for cpu in range(32)})
N = CpuTopology({cpu: LogicalCpu(cpu, cpu // 2, cpu // 4) for cpu in range(8)})
SIX = CpuTopology({cpu: LogicalCpu(cpu % 24, 0, cpu % 24 // 4) for cpu in range(48)})


def cpus(text: str) -> frozenset[int]:
    return frozenset(cpu_numbers(text) or ())


def text(found: frozenset[int]) -> str:
    return cpu_text(found)


def plan(topology: CpuTopology, reserved: str = "", **options: bool) -> CpuPlan:
    return CpuPlan(topology, cpus(reserved), CpuOptions(**options), profile_named("1.36"))


def assigned_cpus(pod: Pod, owned: Owned, plan: CpuPlan, policy: NodePolicy) -> dict[str, frozenset[int]]:
    """What its containers get, if all CPUs that are not owned are free."""
    return dict(assigned(pod, plan.pools(owned), plan, policy).owned.get(pod.metadata.uid, {}))
