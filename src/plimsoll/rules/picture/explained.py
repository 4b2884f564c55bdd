"""An explanation of pods on a node → a picture."""

from __future__ import annotations

from plimsoll.rules.cgroups.desired import Cgroup
from plimsoll.rules.explain.explanation import Explanation
from plimsoll.rules.model.objects import CPU, HUGEPAGES_PREFIX, MEMORY
from plimsoll.rules.node.node_config import NodeConfig
from plimsoll.rules.picture.model import Part, Picture
from plimsoll.rules.picture.vessels import About, vessel_tree
from plimsoll.rules.quantity import parse


def explained_picture(found: Explanation, setting: NodeConfig) -> Picture:
    """Every number is one that `explain` prints."""
    node, pods = found.node, {pod.name: pod for pod in found.pods}
    memory_bytes, cpu_milli = setting.capacity[MEMORY].value, setting.capacity[CPU].milli

    def about(cgroup: Cgroup) -> About:
        if cgroup.level == "class":
            return About(qos_class=cgroup.name)
        if cgroup.level != "pod":
            return About()
        pod = pods[cgroup.name]
        return About(
            qos_class=pod.qos_class,
            remarks=(f"{pod.qos_class} because {pod.because}", *pod.warnings, *pod.notes),
        )

    return Picture(
        f"node {node.name}" if node.name else "node",
        f"profile {node.profile} · cgroup v{node.cgroup_version} · {node.driver} · {node.runtime}",
        memory_bytes,
        cpu_milli,
        tuple(vessel_tree(child, about, memory_bytes, cpu_milli) for child in found.tree.children),
        memory_parts(setting),
        sum(parse(pod.requests[MEMORY]).value for pod in found.pods if MEMORY in pod.requests),
        dict(node.steps),
        remarks=node.warnings,
    )


def memory_parts(setting: NodeConfig) -> tuple[Part, ...]:
    """Allocatable and what is withheld, in the order of a pile: pods at the bottom, the system on top (N-8)."""
    reserved = setting.reserved
    withheld = [
        ("evictionHard", reserved.eviction, "memory.available"),
        ("kubeReserved", reserved.kube, "memory"),
        ("systemReserved", reserved.system, "memory"),
    ]
    parts = [Part("allocatable", setting.allocatable[MEMORY].value, "status.allocatable.memory")]
    for name, resources, field in withheld:
        if resources and resources.get(MEMORY):
            parts.append(Part(name, resources[MEMORY].value, f"{name}.{field}"))
    pages = sum(amount.value for name, amount in setting.capacity.items() if name.startswith(HUGEPAGES_PREFIX))
    if pages:
        parts.append(Part("huge pages", pages, "capacity.hugepages-*"))
    return tuple(parts)
