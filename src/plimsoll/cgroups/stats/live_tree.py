"""Read a whole live tree at once: every cgroup below a path, with the files that a view of it needs.

A node has a thousand cgroups and on v1 nine hierarchies, so nothing is read twice: the tree is walked in one hierarchy
(a link count of 2 means no children, without listing them), and each file is opened from its mount's fd. A cgroup that
is removed meanwhile is omitted. `usage` parses the texts. A simulated kernel is read through the driver interface.

Task states come from the kernel's cgroupstats on v1 and from /proc on v2; a cgroup's own tasks only. Since Linux 6.1
cgroupstats omits tasks in a freezable sleep (nanosleep, futex); where its sum differs from the number of tasks, /proc
is read on v1 too. Each count is logged at debug level in the kubelet's format (document 004, 5.4).
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Self

from plimsoll.cgroups.drivers.interface import CgroupDriver, CgroupError, CgroupGoneError
from plimsoll.cgroups.drivers.v1 import CgroupsV1
from plimsoll.cgroups.drivers.v2 import CgroupsV2
from plimsoll.cgroups.engine.observe import walk
from plimsoll.cgroups.stats.usage import CpuUsage, Pressures, from_texts
from plimsoll.codec.kernel.files import cpu_max, flat_keyed, number_or_max, process_stat
from plimsoll.linux.cgroup_files import LEAF_LINKS, CgroupMount, Directory, open_beneath
from plimsoll.linux.processes import oom_score_adj, stat
from plimsoll.linux.taskstats import Taskstats
from plimsoll.rules.blockio.entries import TARGET
from plimsoll.rules.blockio.files import IO_LATENCY_FILE, IO_MAX_FILE, KEYED_FILES, THROTTLE_V1, WEIGHT_FILES, lines_of
from plimsoll.rules.cgroups.rounding import kept
from plimsoll.rules.cgroups.view import (
    CpuUsageView,
    IoView,
    MemoryParts,
    MemoryUsageView,
    Standing,
    TaskStates,
    counted,
    log_line,
)
from plimsoll.rules.model.kernel import CgroupVersion
from plimsoll.rules.resources.oom_score import SANDBOX_SCORE

log = logging.getLogger(__name__)

_STAT_BYTES = 1 << 12


def logs_task_stats() -> bool:
    """As klog.V(4).Infof: an information that is written only at a higher verbosity."""
    return log.isEnabledFor(logging.DEBUG)


class TaskCounter:
    """Keeps an fd of /proc and, on v1, the netlink socket open for many counts."""

    def __init__(self, version: CgroupVersion) -> None:
        self._taskstats = Taskstats() if version == 1 else None
        self._proc = os.open("/proc", os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._taskstats is not None:
            self._taskstats.close()
        if self._proc >= 0:
            os.close(self._proc)
            self._proc = -1

    def count(self, directory: Directory) -> TaskStates | None:
        """On v1 in any hierarchy. None where the cgroup is gone; a task that ends meanwhile is not counted."""
        try:
            states = self._by_kernel(directory, self._taskstats) if self._taskstats else self._by_proc(directory)
        except CgroupGoneError:
            return None
        if logs_task_stats():
            log.info("%s", log_line(directory.path, states))
        return states

    def _by_kernel(self, directory: Directory, taskstats: Taskstats) -> TaskStates:
        threads = directory.read("tasks").split()  # raises for a removed cgroup, where cgroupstats reports 0
        fd = open_beneath(directory.fd, ".", os.O_RDONLY | os.O_DIRECTORY)
        try:
            states = taskstats.counts(fd)
        finally:
            os.close(fd)
        return states if states.total() == len(threads) else counted(self._letters(threads))

    def _by_proc(self, directory: Directory) -> TaskStates:
        return counted(self._letters(directory.read("cgroup.threads").split()))

    def _letters(self, threads: list[str]) -> Iterator[str]:
        for thread in threads:
            try:
                fd = os.open(f"{thread}/stat", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._proc)
                try:
                    yield process_stat(os.read(fd, _STAT_BYTES).decode(errors="replace")).state
                finally:
                    os.close(fd)
            except (FileNotFoundError, ProcessLookupError):
                continue


PRESSURE_FILES = ("memory.pressure", "cpu.pressure", "io.pressure")
FILES_V2 = (
    *("memory.current", "memory.stat", "memory.min", "memory.low", "memory.high", "memory.max", "memory.events"),
    *("cpu.weight", "cpu.max", "cpu.stat", "pids.current", "pids.max"),
    *PRESSURE_FILES,
)
FILES_V1 = (
    *("memory.usage_in_bytes", "memory.stat", "memory.limit_in_bytes", "memory.oom_control"),
    *("cpu.shares", "cpu.cfs_quota_us", "cpu.cfs_period_us", "cpu.stat", "cpuacct.usage"),
    *("pids.current", "pids.max"),
    *PRESSURE_FILES,
)
# Shown where they differ from the default; a kernel without them is no news.
IO_FILES_V2 = ("io.bfq.weight", "io.weight", *KEYED_FILES[2])
IO_FILES_V1 = ("blkio.bfq.weight", *KEYED_FILES[1])
PAUSE = "pause"
DEFAULT_IO_WEIGHT = 100
_IO_FILES = (*IO_FILES_V2, *IO_FILES_V1)
_KERNEL_PARTS = ("kernel_stack", "pagetables", "percpu", "sock", "slab")

_READ_BYTES = 1 << 14
_ABSENT = (errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP)

Texts = Mapping[str, bytes]


def files_of(driver: CgroupDriver) -> Sequence[str]:
    return FILES_V2 if driver.version == 2 else FILES_V1


def live_tree(driver: CgroupDriver, root: str, depth: int | None = None) -> dict[str, Standing]:
    """path → figures, for `root` and its descendants; empty where there is no such cgroup.

    Cgroups more than `depth` levels below are listed without figures.
    """
    deepest = None if depth is None else _level(root) + depth
    files = (*files_of(driver), *(IO_FILES_V2 if driver.version == 2 else IO_FILES_V1))
    texts = tree_texts(driver, root, files, deepest)
    return {path: standing(each, driver.version) for path, each in texts}


def _level(path: str) -> int:
    return path.rstrip("/").count("/")


def tree_texts(
    driver: CgroupDriver, root: str, files: Sequence[str], deepest: int | None = None, *, everywhere: bool = False
) -> Iterator[tuple[str, Texts]]:
    """The files of a cgroup and of all its descendants, parents first; those below `deepest` without files.

    `everywhere`: cgroups that only some hierarchies of v1 have are found as well."""
    if not isinstance(driver, CgroupsV1 | CgroupsV2):
        for path in (root, *walk(driver, root)):
            if (cgroup := driver.read(path, files)) is not None:
                yield path, {file: text.encode() for file, text in cgroup.files.items()}
        return
    main, by_mount = _mounts(driver, root, files)
    walked = [main, *(driver.hierarchies.values() if everywhere and isinstance(driver, CgroupsV1) else ())]
    paths = _walk(main, root) if len(walked) == 1 else sorted({path for each in walked for path in _walk(each, root)})
    for path in paths:
        if deepest is not None and _level(path) > deepest:
            yield path, {}
            continue
        texts = {name: _text(mount, path, name) for mount, names in by_mount for name in names}
        yield path, {name: text for name, text in texts.items() if text is not None}


def _mounts(
    driver: CgroupsV1 | CgroupsV2, root: str, files: Iterable[str]
) -> tuple[CgroupMount, list[tuple[CgroupMount, list[str]]]]:
    """The hierarchy to walk, and the files to read in each hierarchy that has the root."""
    if isinstance(driver, CgroupsV2):
        return driver.mount, [(driver.mount, list(files))]
    by_mount: dict[CgroupMount, list[str]] = {}
    for file in files:
        mount = driver.mount_of(file)
        if mount is not None:
            by_mount.setdefault(mount, []).append(file)
    having = [(mount, names) for mount, names in by_mount.items() if mount.has(root)]
    if having:
        return having[0][0], having
    return next((mount for mount in driver.hierarchies.values() if mount.has(root)), next(iter(by_mount))), []


def _walk(mount: CgroupMount, path: str) -> Iterator[str]:
    """The cgroup and its descendants, parents first."""
    leaves: dict[str, bool] = {}
    try:
        with mount.directory(path) as directory:
            for name in directory.children():
                try:
                    status = os.stat(name, dir_fd=directory.fd, follow_symlinks=False)
                except FileNotFoundError:
                    continue
                leaves[f"{path.rstrip('/')}/{name}"] = status.st_nlink <= LEAF_LINKS
    except CgroupGoneError:
        return
    yield path
    for child, leaf in leaves.items():
        if leaf:
            yield child
        else:
            yield from _walk(mount, child)


def _text(mount: CgroupMount, path: str, file: str) -> bytes | None:
    """`path` comes from the walk; openat2 stays below the mount."""
    try:
        fd = open_beneath(mount.fd, f"{path[1:]}/{file}" if path != "/" else file, os.O_RDONLY)
        try:
            return os.read(fd, _READ_BYTES)
        finally:
            os.close(fd)
    except OSError as error:
        if error.errno in _ABSENT:
            return None
        raise CgroupError("read", f"{mount.shown(path)}/{file}", "", error.errno or 0) from error


# --- texts to figures ---


def standing(texts: Texts, version: CgroupVersion) -> Standing:
    """Usage comes from `usage`, protections and limits from their own files."""
    used = from_texts(texts, version)
    memory = None
    if (usage := used.memory) is not None:
        working_set = usage.usage_bytes if usage.working_set_bytes is None else usage.working_set_bytes
        low, least, high = (_number(texts, f"memory.{name}") for name in ("low", "min", "high"))
        memory = MemoryUsageView(working_set, usage.usage_bytes, least or 0, low or 0, high, usage.limit_bytes)
    events = used.events or used.events_local
    return Standing(
        memory,
        _cpu(texts, used.cpu),
        None if used.pids is None else used.pids.current,
        None if used.pids is None else used.pids.limit,
        _shares(used.pressure),
        None if events is None else events.oom_kill,
        parts=memory_parts(texts["memory.stat"], version) if "memory.stat" in texts else None,
        io=io_view({file: texts[file].decode().strip() for file in _IO_FILES if file in texts}),
    )


def io_view(texts: Mapping[str, str]) -> IoView | None:
    """None where everything is at its default."""
    weights = (int(kept(file, texts[file])) for file in WEIGHT_FILES if file in texts)
    limits: dict[str, dict[str, int]] = {}
    for file, key in ((IO_MAX_FILE, ""), *((file, key) for key, file in THROTTLE_V1.items())):
        for device, values in lines_of(file, texts.get(file, "")).items():
            limits.setdefault(device, {}).update({key or name: int(amount) for name, amount in values.items()})
    latency = lines_of(IO_LATENCY_FILE, texts.get(IO_LATENCY_FILE, ""))
    targets = {device: int(values[TARGET]) for device, values in latency.items()}
    weight = next((weight for weight in weights if weight != DEFAULT_IO_WEIGHT), None)
    return IoView(weight, limits, targets) if weight is not None or limits or targets else None


def memory_parts(stat: bytes, version: CgroupVersion) -> MemoryParts:
    """From memory.stat. Kernels before 5.18 have no `kernel`: then it is the sum of its parts."""
    values = flat_keyed(stat)
    if version == 1:
        return MemoryParts(
            values.get("total_rss"),
            values.get("total_active_file"),
            values.get("total_inactive_file"),
            values.get("total_shmem"),
        )
    kernel = values.get("kernel")
    return MemoryParts(
        values.get("anon"),
        values.get("active_file"),
        values.get("inactive_file"),
        values.get("shmem"),
        sum(values.get(name, 0) for name in _KERNEL_PARTS) if kernel is None else kernel,
    )


def _cpu(texts: Texts, used: CpuUsage | None) -> CpuUsageView | None:
    weight = _number(texts, "cpu.weight") or _number(texts, "cpu.shares")
    if used is None and weight is None:
        return None
    quota, period = _number(texts, "cpu.cfs_quota_us"), _number(texts, "cpu.cfs_period_us")
    if "cpu.max" in texts:
        both = cpu_max(texts["cpu.max"].decode())
        quota, period = both.quota_us, both.period_us
    milli = quota * 1000 // period if quota is not None and quota >= 0 and period else None  # −1 on v1: no limit
    if used is None:
        return CpuUsageView(milli, weight)
    counts = used.periods or 0, used.throttled_periods or 0, used.throttled_us or 0
    return CpuUsageView(milli, weight, *counts, used.usage_us)


def _shares(pressures: Pressures | None) -> dict[str, float]:
    if pressures is None:
        return {}
    stalls = {"memory": pressures.memory, "cpu": pressures.cpu, "io": pressures.io}
    return {name: stall.some.avg10 for name, stall in stalls.items() if stall is not None and stall.some is not None}


def _number(texts: Texts, file: str) -> int | None:
    return number_or_max(texts[file]) if file in texts else None


# --- processes ---


def is_sandbox(command: str, score: int | None) -> bool:
    """Its oom_score_adj is −998 (01 §7) where the machine allows it; otherwise the program is still named pause."""
    return score == SANDBOX_SCORE or command == PAUSE


def sandboxes(driver: CgroupDriver, containers: Iterable[str], standings: Mapping[str, Standing]) -> set[str]:
    """The paths of pause containers, which have one process each."""
    paths, mount = set(), _mount_of(driver, "cgroup.procs")
    for path in containers:
        if mount is None or standings[path].pids not in (1, None):
            continue
        for pid in (_text(mount, path, "cgroup.procs") or b"").split()[:1]:
            process = stat(int(pid)) if pid != b"0" else None
            if process is not None and is_sandbox(process.name, oom_score_adj(int(pid))):
                paths.add(path)
    return paths


def task_states(driver: CgroupDriver, paths: Iterable[str]) -> dict[str, TaskStates]:
    """The states of each cgroup's own tasks. A simulated kernel has none."""
    if (mount := _mount_of(driver, "cpu.stat", "cgroup.procs")) is None:
        return {}
    states_by_path: dict[str, TaskStates] = {}
    with TaskCounter(driver.version) as counter:
        for path in paths:
            with suppress(CgroupGoneError), mount.directory(path) as directory:
                if (states := counter.count(directory)) is not None:
                    states_by_path[path] = states
    return states_by_path


def _mount_of(driver: CgroupDriver, *files: str) -> CgroupMount | None:
    """The hierarchy with the first of these files that there is; None for a simulated kernel."""
    if isinstance(driver, CgroupsV2):
        return driver.mount
    mounts = map(driver.mount_of, files) if isinstance(driver, CgroupsV1) else ()
    return next((mount for mount in mounts if mount is not None), None)
