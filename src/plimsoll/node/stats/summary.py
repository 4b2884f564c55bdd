"""/stats/summary: a snapshot in the kubelet's format (04 §13b). Pure; unknown values are left out."""

from __future__ import annotations

from typing import Any

import msgspec

from plimsoll.cgroups.stats.usage import Pressures
from plimsoll.codec.kernel.files import PressureLine
from plimsoll.node.stats.disk_usage import FileSystem
from plimsoll.node.stats.stats import ContainerSample, Measured, NodeSample, PodSample, StatsSnapshot
from plimsoll.rules.eviction.usage import FsUsage
from plimsoll.rules.model.json_object import JsonObject
from plimsoll.rules.timestamps import rfc3339


def summary_json(snapshot: StatsSnapshot, pressures: Pressures | None = None) -> bytes:
    return msgspec.json.encode(summary(snapshot, pressures))


def summary(snapshot: StatsSnapshot, pressures: Pressures | None = None) -> JsonObject:
    """`pressures`: of the whole node, where its kernel reports them."""
    at = rfc3339(snapshot.at_s)
    return {
        "node": _with_pressures(_node(snapshot.node, at), pressures, at),
        "pods": [_pod(pod, snapshot.node, at) for pod in snapshot.pods],
    }


def _node(node: NodeSample, at: str) -> JsonObject:
    place = node.place
    start = rfc3339(place.system_started_s or place.started_s)
    system = {**node.system, **({"pods": node.pods} if node.pods is not None else {})}
    return {
        "nodeName": place.name,
        "systemContainers": [
            {"name": name, "startTime": start, **_measured(measured, at)} for name, measured in sorted(system.items())
        ],
        "startTime": rfc3339(place.started_s),
        **_measured(node.measured, at, node.capacity_bytes),
        **({} if node.nodefs is None else {"fs": _file_system(node.nodefs, at)}),
        "runtime": {
            "imageFs": _part(node.images, node.imagefs, at),
            "containerFs": _part(node.images, node.containerfs, at),
        },
        "rlimit": {"time": at, "maxpid": node.most_processes, "curproc": node.processes},
    }


def _with_pressures(node: JsonObject, pressures: Pressures | None, at: str) -> JsonObject:
    if pressures is None:
        return node
    by_name = {"cpu": pressures.cpu, "memory": pressures.memory, "io": pressures.io}
    stalls = {
        name: {"time": at, **node.get(name, {}), "psi": _known(full=_stalls(psi.full), some=_stalls(psi.some))}
        for name, psi in by_name.items()
        if psi is not None
    }
    return {**node, **stalls}


def _stalls(line: PressureLine | None) -> JsonObject | None:
    """In nanoseconds and percent."""
    if line is None:
        return None
    return {"total": line.total_us * 1000, "avg10": line.avg10, "avg60": line.avg60, "avg300": line.avg300}


def _pod(pod: PodSample, node: NodeSample, at: str) -> JsonObject:
    place, disk = pod.place, node.nodefs
    stats: JsonObject = {
        "podRef": {"name": place.name, "namespace": place.namespace, "uid": place.uid},
        "startTime": rfc3339(place.started_s),
        "containers": [_container(container, node, at) for container in pod.containers],
    }
    if pod.measured is not None:
        stats |= _measured(pod.measured, at)
        if pod.measured.usage.pids is not None:
            stats["process_stats"] = {"process_count": pod.measured.usage.pids.current}
    volumes = [
        {"name": name, **_part(used, disk, at)} for name, used in pod.volumes.items() if used.used_bytes is not None
    ]
    if volumes:
        stats["volume"] = volumes
    stats["ephemeral-storage"] = _part(pod.stored(), disk, at)
    return stats


def _container(container: ContainerSample, node: NodeSample, at: str) -> JsonObject:
    place = container.place
    return {
        "name": place.name,
        "startTime": rfc3339(place.started_s),
        **_measured(container.measured, at),
        "rootfs": _part(container.rootfs, node.containerfs, at),
        "logs": _part(container.logs, node.nodefs, at),
    }


def _measured(measured: Measured, at: str, capacity_bytes: int | None = None) -> JsonObject:
    stats: JsonObject = {}
    cpu, memory = measured.usage.cpu, measured.usage.memory
    if cpu is not None and cpu.usage_us is not None:
        stats["cpu"] = _known(time=at, usageNanoCores=measured.cpu_nanocores, usageCoreNanoSeconds=cpu.usage_us * 1000)
    if memory is not None:
        limit, working_set = capacity_bytes or memory.limit_bytes, memory.working_set_bytes
        available = None if limit is None or working_set is None else max(0, limit - working_set)
        stats["memory"] = _known(
            time=at,
            availableBytes=available,
            usageBytes=memory.usage_bytes,
            workingSetBytes=working_set,
            rssBytes=memory.anon_bytes,
            pageFaults=memory.page_faults,
            majorPageFaults=memory.major_page_faults,
        )
    return stats


def _file_system(disk: FileSystem, at: str) -> JsonObject:
    return {
        "time": at,
        "availableBytes": disk.available_bytes,
        "capacityBytes": disk.capacity_bytes,
        "usedBytes": disk.used_bytes,
        "inodesFree": disk.inodes_free,
        "inodes": disk.inodes,
        "inodesUsed": disk.inodes_used,
    }


def _part(used: FsUsage, disk: FileSystem | None, at: str) -> JsonObject:
    """One user of a file system."""
    whole = _file_system(disk, at) if disk is not None else {"time": at}
    whole.pop("usedBytes", None), whole.pop("inodesUsed", None)
    return {**whole, **_known(usedBytes=used.used_bytes, inodesUsed=used.inodes)}


def _known(**fields: Any) -> JsonObject:
    return {key: value for key, value in fields.items() if value is not None}
