"""The cgroups of this node as vessels: what the rules want of each (`rules.picture`), with its real path and its pod.

Computed in a thread, and only when pods or containers have changed, because every value gets its formula.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from plimsoll.rules.cgroups.desired import Cgroup, Shown, Workload, workload
from plimsoll.rules.explain.explanation import Explanation, explanation
from plimsoll.rules.model.objects import CPU, MEMORY, Pod
from plimsoll.rules.node.node_config import NodeConfig
from plimsoll.rules.picture.model import Vessel
from plimsoll.rules.picture.vessels import About, vessel_tree

Containers = Mapping[str, Mapping[str, str]]  # pod uid → container name → id


class NodeVessels(msgspec.Struct, frozen=True):
    """`listed`: parents first, each with its id, its parent's id and its pod."""

    listed: list[dict[str, Any]]
    paths: dict[str, str]  # id → cgroup path
    facts: dict[str, Any]  # of the node


class VesselIds:
    """Short names of cgroup paths, for as long as the agent runs."""

    def __init__(self) -> None:
        self._ids: dict[str, str] = {}

    def of(self, path: str) -> str:
        return self._ids.setdefault(path, f"c{len(self._ids)}")

    def keep_only(self, paths: Iterable[str]) -> None:
        """Bounded: a path that is gone and comes back gets a new name."""
        if len(self._ids) > 20_000:
            kept = set(paths)
            last = len(self._ids)
            self._ids = {path: name for path, name in self._ids.items() if path in kept}
            for number in range(last - len(self._ids)):
                self._ids[f"\0{number}"] = ""  # numbers are not used again


def title(pod: Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


def node_vessels(
    pods: list[Pod], containers: Containers, paths: Mapping[str, Mapping[str, str]], setting: NodeConfig, ids: VesselIds
) -> NodeVessels:
    """`paths`: pod uid → container name → path of its cgroup, "" for the pod's own."""
    by_title = {title(pod): pod for pod in pods}
    works = [workload(pod, setting, title=title(pod)) for pod in pods]
    shown = Shown(container_id=lambda uid, container: containers.get(uid, {}).get(container))
    found = explanation(works, setting, shown=shown)
    reasons = {pod.name: pod for pod in found.pods}

    def about(cgroup: Cgroup) -> About:
        if cgroup.level == "pod":
            explained = reasons[cgroup.name]
            remarks = (f"{explained.qos_class} because {explained.because}", *explained.warnings, *explained.notes)
            return About(qos_class=explained.qos_class, remarks=remarks)
        return About(qos_class=cgroup.name) if cgroup.level == "class" else About()

    memory_bytes, cpu_milli = setting.capacity[MEMORY].value, setting.capacity[CPU].milli
    trees = [vessel_tree(child, about, memory_bytes, cpu_milli) for child in found.tree.children]
    listed: list[dict[str, Any]] = []
    by_id: dict[str, str] = {}
    for tree in trees:
        _list(tree, "", None, by_title, paths, ids, listed, by_id)
    return NodeVessels(listed, by_id, node_facts(found, works, setting))


def _list(
    vessel: Vessel,
    parent: str,
    pod: Pod | None,
    by_title: Mapping[str, Pod],
    paths: Mapping[str, Mapping[str, str]],
    ids: VesselIds,
    listed: list[dict[str, Any]],
    by_id: dict[str, str],
) -> None:
    path = vessel.path
    if vessel.level == "pod":
        pod = by_title[vessel.name]
        path = paths.get(pod.metadata.uid, {}).get("", path)
    elif vessel.level == "container" and pod is not None:
        path = paths.get(pod.metadata.uid, {}).get(vessel.name, path)
    name = ids.of(path)
    by_id[name] = path
    shown: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(vessel, path=path, children=()))
    shown |= {"id": name, "parent": parent}
    if pod is not None:
        shown |= {"namespace": pod.metadata.namespace, "pod": pod.metadata.name, "uid": pod.metadata.uid}
    listed.append(shown)
    for child in vessel.children:
        _list(child, name, pod, by_title, paths, ids, listed, by_id)


def node_facts(found: Explanation, works: list[Workload], setting: NodeConfig) -> dict[str, Any]:
    """How the capacity is split, in bytes and thousandths of a CPU."""

    def amount(resource: str, quantities: Mapping[str, Any] | None) -> int:
        quantity = (quantities or {}).get(resource)
        return 0 if quantity is None else quantity.milli if resource == CPU else quantity.value

    def split(resource: str) -> dict[str, int]:
        return {
            "capacity": amount(resource, setting.capacity),
            "systemReserved": amount(resource, setting.reserved.system),
            "kubeReserved": amount(resource, setting.reserved.kube),
            "eviction": amount(resource, setting.reserved.eviction),
            "allocatable": amount(resource, setting.allocatable),
            "allocated": sum(amount(resource, work.counted) for work in works),
            "limits": sum(amount(resource, work.limits) for work in works),
        }

    node = found.node
    return {
        "name": node.name,
        "profile": node.profile,
        "cgroupVersion": node.cgroup_version,
        "driver": node.driver,
        "runtime": node.runtime,
        "memory": split(MEMORY),
        "cpu": split(CPU),
        "pods": len(works),
        "maxPods": amount("pods", setting.capacity),
        "steps": dict(node.steps),
        "warnings": list(node.warnings),
    }
