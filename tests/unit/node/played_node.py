"""A node to be measured: cgroups and /proc as plain files, which a test changes as a kernel would."""

from __future__ import annotations

import os
from pathlib import Path

from plimsoll.linux.cgroup_files import CgroupGoneError, Directory
from plimsoll.node.stats.stats import ContainerPlace, NodePlace, PodPlace, Stats, VolumePlace
from plimsoll.rules.model.kernel import CgroupVersion

PODS, POD = "/kubepods", "/kubepods/burstable/podu1"
MIB = 1 << 20


class PlayedCgroups:
    """A directory of files that opens like a v2 driver."""

    version: CgroupVersion = 2

    def __init__(self, root: Path) -> None:
        self._root = root

    def directory(self, path: str, file: str) -> Directory:
        try:
            return Directory(os.open(self._root / path.lstrip("/"), os.O_RDONLY | os.O_DIRECTORY), path)
        except FileNotFoundError as error:
            raise CgroupGoneError("open", path, "", error.errno or 0) from error

    def mount_of(self, file: str) -> object:
        return self._root

    def put(self, path: str, **files: str) -> None:
        """`memory_current=…` is memory.current."""
        place = self._root / path.lstrip("/")
        place.mkdir(parents=True, exist_ok=True)
        (place / "cgroup.procs").touch()
        for name, text in files.items():
            (place / name.replace("_", ".")).write_text(text)

    def use(self, path: str, *, cpu_us: int, memory_bytes: int = 10 * MIB, limit: str = "max") -> None:
        stat = f"anon {memory_bytes // 2}\nfile {memory_bytes // 2}\ninactive_file {2 * MIB}\npgfault 5\npgmajfault 1\n"
        self.put(
            path,
            cpu_stat=f"usage_usec {cpu_us}\nuser_usec {cpu_us}\nsystem_usec 0\nnr_periods 7\nnr_throttled 3\nthrottled_usec 500000\n",
            memory_stat=stat,
            pids_current="4",
            pids_max="max",
            memory_events="low 0\nhigh 0\nmax 2\noom 1\noom_kill 1\n",
            memory_events_local="low 0\nhigh 0\nmax 2\noom 1\noom_kill 1\n",
        )
        if path != "/":  # the top has no such files
            self.put(path, memory_current=str(memory_bytes), memory_max=limit)


class PlayedNode:
    def __init__(self, root: Path) -> None:
        self.cgroups, self.proc, self.now_s = PlayedCgroups(root / "cgroup"), root / "proc", 1_700_000_000.0
        self.logs, self.volume = root / "logs", root / "volume"
        for each in (self.logs, self.volume, self.proc / "sys/kernel"):
            each.mkdir(parents=True)
        (self.logs / "0.log").write_bytes(b"x" * 10_000)
        (self.volume / "data").write_bytes(b"y" * 100_000)
        (self.proc / "meminfo").write_text("MemTotal: 1048576 kB\nMemFree: 524288 kB\nInactive(file): 1024 kB\n")
        (self.proc / "stat").write_text("cpu  100 0 50 9999 0 0 0 0 0 0\n")
        (self.proc / "loadavg").write_text("0.00 0.01 0.05 2/345 9999\n")
        (self.proc / "sys/kernel/pid_max").write_text("32768\n")
        (self.proc / "sys/kernel/threads-max").write_text("8000\n")
        self.cgroups.use("/", cpu_us=5_000_000, memory_bytes=300 * MIB)
        self.cgroups.use(PODS, cpu_us=3_000_000, memory_bytes=100 * MIB, limit=str(800 * MIB))
        self.cgroups.use(POD, cpu_us=2_000_000, memory_bytes=20 * MIB)
        self.cgroups.use(f"{POD}/c1", cpu_us=1_000_000, limit=str(64 * MIB))
        self.places = [self.pod()]
        self.place = NodePlace("n1", PODS, str(root), str(root), started_s=1_600_000_000)
        self.stats = Stats(self.cgroups, self.place, lambda: self.places, clock=lambda: self.now_s, proc=self.proc)

    def pod(self) -> PodPlace:
        container = ContainerPlace("app", "c1", f"{POD}/c1", 0, 1_699_999_000, "nginx", str(self.logs))
        volumes = (VolumePlace("data", str(self.volume)),)
        return PodPlace("u1", "web", "default", POD, 1_699_999_000, (container,), volumes)
