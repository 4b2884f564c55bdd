"""Usage of the node, its pods and containers, as one snapshot for all consumers (04 §13b).

`Stats.sample` reads every cgroup once, through files that stay open between samples, and only on request: scrapes,
`kubectl top`, eviction. After a minute without a request the files are closed. CPU is a counter; its rate is computed
over at least ten seconds where two samples are that far apart, else over the time there is. A value that the kernel
does not report is None.

Where cgroups are simulated, containers are measured by their processes. The root file system of a container of the
embedded runtime is a tmpfs: memory, and nothing on disk. Other runtimes report the writable layers (`disk_usage`).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import msgspec

from plimsoll.cgroups.stats.readers import OpenReaders
from plimsoll.cgroups.stats.usage import (
    CgroupOpener,
    CgroupUsage,
    CpuUsage,
    MemoryUsage,
    Part,
    Pids,
    UsageReader,
)
from plimsoll.linux.machine import meminfo_bytes
from plimsoll.node.stats.disk_usage import MAX_AGE_S, DiskUsage, FileSystem, UsageRequest, WritableLayers, file_system
from plimsoll.node.stats.process_usage import PROC, process_numbers, process_usage
from plimsoll.rules.eviction.usage import NO_FS_USAGE, ContainerUsage, FsUsage, PodUsage, working_set_bytes

IDLE_S = 60.0  # open files keep the kernel from freeing removed cgroups
RATE_S = 10.0  # the kubelet's housekeeping interval: rates over less are noise
FIRST_RATE_S = 1.0  # the minimum for a new container: ten periods of its quota
_POD_PARTS: tuple[Part, ...] = ("memory", "cpu", "pids_current")
_CONTAINER_PARTS: tuple[Part, ...] = ("memory", "cpu", "pids_current", "failcnt")
MACHINE = "/"  # the root cgroup: a kubelet reports the usage of the machine, not of its pods
_SCRAPED_PARTS: tuple[Part, ...] = ("lines", "pressure", "cpu_limit")  # what a sample does not have
_CLASS_PARTS: tuple[Part, ...] = ("memory", "lines")
_NODE_PARTS: tuple[Part, ...] = ("memory", "cpu")
_FDS_PER_READER = 9  # the most that v1 needs


class ContainerPlace(msgspec.Struct, frozen=True):
    """Where a running container is measured: its cgroup or, where that is empty, its processes."""

    name: str
    id: str
    cgroup: str = ""
    pid: int = 0
    started_s: float = 0.0
    image: str = ""
    log_directory: str = ""


class VolumePlace(msgspec.Struct, frozen=True):
    name: str
    directory: str
    on_disk: bool = True  # part of the pod's local ephemeral storage (04 §1.2)


class PodPlace(msgspec.Struct, frozen=True):
    uid: str
    name: str
    namespace: str
    cgroup: str = ""
    started_s: float = 0.0
    containers: tuple[ContainerPlace, ...] = ()
    volumes: tuple[VolumePlace, ...] = ()
    files: str = ""  # the directory of its /etc/hosts and termination messages, where that is on disk


class NodePlace(msgspec.Struct, frozen=True):
    """`node_path`: the cgroup whose memory counts for eviction; statistics of the node are those of the machine."""

    name: str
    pods_path: str
    nodefs: str
    imagefs: str
    containerfs: str = ""  # of writable layers; empty: on imagefs
    node_path: str = "/"
    started_s: float = 0.0  # of the machine
    system_started_s: float = 0.0  # of the agent
    withheld_bytes: int = 0  # huge pages, which are not among the available memory (HugepageAwareEviction)


class Measured(msgspec.Struct, frozen=True):
    usage: CgroupUsage
    cpu_nanocores: int | None = None


class ContainerSample(msgspec.Struct, frozen=True):
    place: ContainerPlace
    measured: Measured
    rootfs: FsUsage
    logs: FsUsage


class PodSample(msgspec.Struct, frozen=True):
    place: PodPlace
    measured: Measured | None
    containers: tuple[ContainerSample, ...]
    volumes: Mapping[str, FsUsage]
    files: FsUsage = NO_FS_USAGE

    def stored(self) -> FsUsage:
        """Local ephemeral storage: writable layers, logs, local volumes, /etc/hosts and termination messages."""
        local = [self.volumes[volume.name] for volume in self.place.volumes if volume.on_disk]
        parts = [*(one.rootfs for one in self.containers), *(one.logs for one in self.containers), *local, self.files]
        return FsUsage(sum(part.used_bytes or 0 for part in parts), sum(part.inodes or 0 for part in parts))


class NodeSample(msgspec.Struct, frozen=True):
    place: NodePlace
    measured: Measured
    pods: Measured | None  # of all pods together
    system: Mapping[str, Measured]
    capacity_bytes: int  # of memory, without what is withheld
    nodefs: FileSystem | None
    imagefs: FileSystem | None
    containerfs: FileSystem | None
    images: FsUsage
    most_processes: int
    processes: int


class StatsSnapshot(msgspec.Struct, frozen=True):
    at_s: float
    node: NodeSample
    pods: tuple[PodSample, ...]

    def pod_usage(self) -> dict[str, PodUsage]:
        """By uid, as eviction needs it."""
        return {pod.place.uid: _pod_usage(pod) for pod in self.pods}


class Stats:
    """`files`: how cgroup files are opened; None on a simulated kernel. `places`: returns the running pods. `system`:
    returns the pids of the node's own processes (`kubelet`, `runtime`). `clock`: the wall clock. `layers`: reads the
    writable layers from the runtime.
    """

    def __init__(
        self,
        files: CgroupOpener | None,
        node: NodePlace,
        places: Callable[[], Iterable[PodPlace]],
        *,
        clock: Callable[[], float],
        system: Callable[[], Mapping[str, int]] = dict,
        layers: UsageRequest | None = None,
        proc: Path = PROC,
    ) -> None:
        self._system = system
        self._node, self._places, self._clock, self._proc = node, places, clock, proc
        self._readers, self._scraped = _Readers(files), _Readers(files)
        self._rates = _Rates()
        self.disks = DiskUsage(clock)
        self._layers = WritableLayers(layers, clock)
        self._last: StatsSnapshot | None = None
        self._idle: asyncio.TimerHandle | None = None

    def close(self) -> None:
        """Close all files; the next sample opens them again."""
        self._readers.keep_only(())
        self._scraped.keep_only(())
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    def sample(self, max_age_s: float = 0.0) -> StatsSnapshot:
        """A new snapshot, or the last one if it is not older than that."""
        now_s = self._clock()
        if self._last is not None and 0 <= now_s - self._last.at_s < max_age_s:
            return self._last
        places = list(self._places())
        pods = tuple(self._pod(place) for place in places)
        node = self._node_sample()
        self._last = StatsSnapshot(now_s, node, pods)
        paths = {path for place in places for path in (place.cgroup, *(one.cgroup for one in place.containers))}
        self._readers.keep_only(paths | {self._node.pods_path, MACHINE})
        self._rates.forget_before(now_s)
        self._close_when_idle()
        return self._last

    def scraped(self, snapshot: StatsSnapshot) -> dict[str, CgroupUsage]:
        """By cgroup path: kubepods, its classes, pods and containers with their lines, pressure and CPU limits, read
        now; the usage of memory is that of the sample."""
        node = snapshot.node
        sampled = {node.place.pods_path: node.pods}
        for pod in snapshot.pods:
            sampled[pod.place.cgroup] = pod.measured
            sampled.update((one.place.cgroup, one.measured) for one in pod.containers)
        classes = self.class_paths(snapshot)
        self._scraped.keep_only({*sampled, *classes})
        found: dict[str, CgroupUsage] = {}
        for path, measured in sampled.items():
            read = self._scraped.read(path, _SCRAPED_PARTS)
            if read is not None and measured is not None:
                memory = measured.usage.memory
                found[path] = CgroupUsage(memory, pressure=read.pressure, lines=read.lines, cpu_limit=read.cpu_limit)
        own = ((path, self._scraped.read(path, _CLASS_PARTS)) for path in classes)
        return found | {path: read for path, read in own if read is not None}

    @staticmethod
    def class_paths(snapshot: StatsSnapshot) -> list[str]:
        """The cgroups between kubepods and the pods; a Guaranteed pod has none."""
        above = {pod.place.cgroup.rpartition("/")[0] for pod in snapshot.pods if pod.place.cgroup}
        return sorted(above - {snapshot.node.place.pods_path, ""})

    def _close_when_idle(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        try:
            self._idle = asyncio.get_running_loop().call_later(IDLE_S, self.close)
        except RuntimeError:  # outside an event loop the caller closes
            self._idle = None

    async def measure_disks(self, max_age_s: float | None = None) -> None:
        """Measure the disk usage of all pods where it is older than that (default: `MAX_AGE_S`)."""
        paths = [
            path
            for place in self._places()
            for path in (
                *(container.log_directory for container in place.containers if container.log_directory),
                *(volume.directory for volume in place.volumes),
                *((place.files,) if place.files else ()),
            )
        ]
        age_s = MAX_AGE_S if max_age_s is None else max_age_s
        await asyncio.gather(self.disks.refresh(paths, age_s), self._layers.refresh(age_s))

    # ---

    def _pod(self, place: PodPlace) -> PodSample:
        own = self._readers.read(place.cgroup, _POD_PARTS)
        containers = []
        for container in place.containers:
            current = self._readers.read(container.cgroup, _CONTAINER_PARTS)
            if current is None and container.pid and not self._readers.real:
                current = process_usage(container.pid, deep=True, proc=self._proc)
            if current is not None:
                measured = self._measured(f"{container.id} {container.cgroup}", current)
                logs = self.disks.of(container.log_directory)
                containers.append(ContainerSample(container, measured, self._layers.of(container.id), logs))
        if own is None and not self._readers.real and containers:
            own = _sum(container.measured.usage for container in containers)
        return PodSample(
            place,
            None if own is None else self._measured(f"{place.uid} {place.cgroup}", own),
            tuple(containers),
            {volume.name: self.disks.of(volume.directory) for volume in place.volumes},
            self.disks.of(place.files),
        )

    def _node_sample(self) -> NodeSample:
        place, meminfo = self._node, meminfo_bytes((self._proc / "meminfo").read_text())
        own = self._readers.read(MACHINE, _NODE_PARTS) or CgroupUsage()
        withheld_bytes = 0 if own.memory is None else place.withheld_bytes  # MemFree does not contain them
        if own.memory is None or own.cpu is None or own.cpu.usage_us is None:
            own = _machine_usage(own, meminfo, (self._proc / "stat").read_text())
        pods = self._readers.read(place.pods_path, _POD_PARTS)
        system = {name: process_usage(pid, proc=self._proc) for name, pid in self._system().items() if pid}
        return NodeSample(
            place,
            self._measured("node", own),
            None if pods is None else self._measured("pods", pods),
            {name: self._measured(f"/{name}", own) for name, own in system.items() if own is not None},
            meminfo["MemTotal"] - withheld_bytes,
            file_system(place.nodefs),
            file_system(place.imagefs),
            file_system(place.containerfs or place.imagefs),
            self._layers.default,
            *process_numbers(self._proc),
        )

    def _measured(self, key: str, current: CgroupUsage) -> Measured:
        """Reads the clock for each cgroup: on a busy machine the last is read long after the first."""
        counted = None if current.cpu is None else current.cpu.usage_us
        return Measured(current, None if counted is None else self._rates.nanocores(key, self._clock(), counted))


class _Readers(OpenReaders[UsageReader]):
    def __init__(self, files: CgroupOpener | None) -> None:
        super().__init__(1 / 2, _FDS_PER_READER)
        self._files = files

    @property
    def real(self) -> bool:
        return self._files is not None

    def read(self, path: str, parts: Iterable[Part]) -> CgroupUsage | None:
        """None where there is no such cgroup."""
        files = self._files
        if files is None or not path:
            return None
        return self.reading(path, lambda: UsageReader(files, path, parts), UsageReader.read)


class _Rates:
    """CPU rates from counters, against a reading that is at least ten seconds old where there is one."""

    def __init__(self) -> None:
        self._readings: dict[str, tuple[float, int, float, int]] = {}  # an older reading, and the next one

    def nanocores(self, key: str, at_s: float, counted_us: int) -> int | None:
        readings = self._readings.get(key)
        if readings is None or counted_us < readings[3] or at_s < readings[2]:  # new, or the counter was reset
            self._readings[key] = (at_s, counted_us, at_s, counted_us)
            return None
        older_s, older_us, newer_s, newer_us = readings
        if at_s - newer_s >= RATE_S:
            self._readings[key] = (newer_s, newer_us, at_s, counted_us)
            older_s, older_us = newer_s, newer_us
        if at_s - older_s < FIRST_RATE_S:
            return None
        return round((counted_us - older_us) * 1000 / (at_s - older_s))

    def forget_before(self, now_s: float) -> None:
        """Drop counters that were not read for a while."""
        for key in [key for key, readings in self._readings.items() if now_s - readings[2] > 60 * RATE_S]:
            del self._readings[key]


def _machine_usage(known: CgroupUsage, meminfo: Mapping[str, int], stat: str) -> CgroupUsage:
    """The usage of the machine, where the root cgroup does not report it."""
    used = meminfo["MemTotal"] - meminfo["MemFree"]
    inactive = meminfo.get("Inactive(file)", 0)
    memory = known.memory or MemoryUsage(
        used, working_set_bytes(used, inactive), None, meminfo.get("AnonPages"), meminfo.get("Cached"), inactive
    )
    cpu = known.cpu
    if cpu is None or cpu.usage_us is None:
        # user nice system idle iowait irq softirq steal
        ticks = [int(field) for field in stat.split("\n", 1)[0].split()[1:9]]
        tick_us = 1_000_000 // os.sysconf("SC_CLK_TCK")
        user, system = (ticks[0] + ticks[1]) * tick_us, (ticks[2] + ticks[5] + ticks[6]) * tick_us
        cpu = CpuUsage(user + system, user, system)
    return msgspec.structs.replace(known, memory=memory, cpu=cpu)


def _sum(usages: Iterable[CgroupUsage]) -> CgroupUsage:
    """The usage of a pod whose containers are measured by their processes."""
    memory_bytes = cpu_us = count = 0
    for one in usages:
        memory_bytes += one.memory.usage_bytes if one.memory else 0
        cpu_us += (one.cpu.usage_us or 0) if one.cpu else 0
        count += one.pids.current if one.pids else 0
    return CgroupUsage(MemoryUsage(memory_bytes, memory_bytes), cpu=CpuUsage(cpu_us), pids=Pids(count))


def _pod_usage(sample: PodSample) -> PodUsage:
    own = None if sample.measured is None else sample.measured.usage
    containers = tuple(
        ContainerUsage(container.place.name, _working_set(container.measured.usage), container.rootfs, container.logs)
        for container in sample.containers
    )
    return PodUsage(
        None if own is None else _working_set(own),
        None if own is None or own.pids is None else own.pids.current,
        containers,
        dict(sample.volumes),
        sample.stored().used_bytes,
    )


def _working_set(current: CgroupUsage) -> int | None:
    return None if current.memory is None else current.memory.working_set_bytes
