"""A simulated kernel in memory that implements the driver interface: for dry runs, and as the fallback of `up`.

It stores files, rounds as a kernel does and refuses what a kernel refuses: invalid values, a v1 quota above the
parent's, memory+swap below memory, a v1 limit below the usage, the removal of a cgroup in use. Setting v2's memory.max
below the usage is not refused: pages are reclaimed, and then processes are killed.

The caller simulates what happens on a machine: `spawn` and `exit` processes, `use` memory, `report` pressure.
The memory of a cgroup is two numbers: what can be reclaimed (`cache`) and what cannot (`anon`).
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator, Mapping

from plimsoll.cgroups.drivers.interface import CgroupError, CgroupGoneError
from plimsoll.cgroups.drivers.simulated_files import ErrnoError, byte_count, control_files
from plimsoll.rules.cgroups.desired_files import MAX_NAME_BYTES, ancestors, parent_path
from plimsoll.rules.cgroups.steps import ObservedCgroup
from plimsoll.rules.model.cgroup_names import Driver as DriverName
from plimsoll.rules.model.kernel import DEFAULT_PERIOD_US, CgroupVersion
from plimsoll.rules.resources.files import MAX

_NO_STALL = "avg10=0.00 avg60=0.00 avg300=0.00 total=0"
_REPORTS = {  # read-only files that a test or a simulation writes with `report`
    "cpu.pressure": f"some {_NO_STALL}\nfull {_NO_STALL}",
    "memory.pressure": f"some {_NO_STALL}\nfull {_NO_STALL}",
    "io.pressure": f"some {_NO_STALL}\nfull {_NO_STALL}",
    "cpu.stat": "usage_usec 0\nuser_usec 0\nsystem_usec 0\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0",
}
_EVENTS = ("low", "high", "max", "oom", "oom_kill", "oom_group_kill")


class _Cgroup:
    def __init__(self, inode: int, files: Mapping[str, str]) -> None:
        self.inode = inode
        self.files = dict(files)
        self.reports = dict(_REPORTS)
        self.children: set[str] = set()
        self.pids: set[int] = set()
        self.anon_bytes = 0
        self.cache_bytes = 0
        self.frozen = False
        self.mark = ""
        self.events = dict.fromkeys(_EVENTS, 0)  # of this cgroup alone


class SimulatedKernel:
    simulated = True

    def __init__(
        self,
        version: CgroupVersion = 2,
        name: DriverName = "cgroupfs",
        *,
        page_size: int = 4096,
        hugepage_sizes: Iterable[int] = (),
        swap: bool = True,
        cpus: int = 4,
        lacking: Mapping[str, str] | None = None,
    ) -> None:
        """`lacking`: files that this kernel does not have, each with the reason."""
        self.version = version
        self.name = name
        self._lacking = dict(lacking or {})
        table = control_files(version, page_size, hugepage_sizes, swap=swap, cpus=cpus)
        self._table = {file: entry for file, entry in table.items() if file not in self._lacking}
        self._defaults = {file: default for file, (default, _) in self._table.items()}
        self._groups = {"/": _Cgroup(1, {})}
        self._inodes = 1
        self._pids = 1000

    # --- reading ---

    def read(self, path: str, files: Iterable[str]) -> ObservedCgroup | None:
        group = self._groups.get(path)
        if group is None:
            return None
        texts = {file: self._text(path, group, file) for file in files}
        return ObservedCgroup({file: text for file, text in texts.items() if text is not None}, group.inode)

    def texts(self, path: str, files: Iterable[str]) -> Mapping[str, str] | None:
        cgroup = self.read(path, files)
        return None if cgroup is None else cgroup.files

    def incomplete(self, path: str) -> list[str]:
        return []  # a simulated cgroup is in all hierarchies

    def children(self, path: str) -> list[str]:
        group = self._groups.get(path)
        return sorted(group.children) if group is not None else []

    def members(self, path: str, *, deep: bool = False) -> list[int]:
        groups = self._tree(path) if deep else [self._groups[path]] if path in self._groups else []
        return sorted(pid for group in groups for pid in group.pids)

    def has(self, file: str) -> str | None:
        if file in self._table or file in self._commands:
            return None
        return self._lacking.get(file, f"the simulated kernel with cgroup v{self.version} has no {file}")

    # --- changing ---

    def mark(self, path: str, text: str) -> None:
        self._groups[path].mark = text

    def marked(self, path: str) -> str:
        group = self._groups.get(path)
        return "" if group is None else group.mark

    async def make(self, path: str, *, pid: int | None = None) -> None:
        name, above = path.rpartition("/")[2], parent_path(path)
        if path in self._groups:
            raise CgroupError("make", path, "", errno.EEXIST)
        if not name or "\n" in name or name in (".", ".."):
            raise CgroupError("make", path, "", errno.EINVAL)
        if len(name.encode()) > MAX_NAME_BYTES:
            raise CgroupError("make", path, "", errno.ENAMETOOLONG)
        if above not in self._groups:
            raise CgroupGoneError("make", path, "", errno.ENOENT)
        if self.version == 2 and above != "/" and self._groups[above].pids:
            raise CgroupError("make", path, "", errno.EBUSY, "the parent has processes: no controller can be enabled")
        if name.endswith(".scope") and pid is None:
            raise CgroupError("make", path, "", errno.EINVAL, "a scope needs a process")
        self._inodes += 1
        self._groups[path] = _Cgroup(self._inodes, self._defaults)
        self._groups[above].children.add(name)
        if pid is not None:
            await self.move(path, pid)

    async def write(self, path: str, file: str, value: str) -> None:
        group = self._existing("write", path, f"{file}={value}")
        try:
            if file in self._commands:
                self._command(path, file, value)
                return
            if file not in group.files:
                raise ErrnoError(errno.ENOENT, self.has(file) or "")
            self._set(path, group, file, self._table[file][1](value))
        except ErrnoError as refused:
            raise CgroupError("write", f"{path}/{file}", value, refused.number, refused.detail) from None

    async def remove(self, path: str) -> None:
        group = self._existing("remove", path)
        if group.pids or group.children or path == "/":
            raise CgroupError("remove", path, "", errno.EBUSY)
        self._drop(path)

    async def move(self, path: str, pid: int) -> None:
        group = self._existing("move", path, str(pid))
        if self.version == 2 and path != "/" and group.children:
            raise CgroupError("move", path, str(pid), errno.EBUSY, "a cgroup with children takes no processes")
        if self.version == 1 and path != "/" and not (group.files["cpuset.cpus"] and group.files["cpuset.mems"]):
            raise CgroupError("move", path, str(pid), errno.ENOSPC)
        home = next((other for other in self._groups.values() if pid in other.pids), None)
        if home is None:
            raise CgroupError("move", path, str(pid), errno.ESRCH)
        home.pids.remove(pid)
        group.pids.add(pid)

    async def freeze(self, path: str, *, frozen: bool) -> None:
        self._existing("freeze", path)
        for group in self._tree(path):
            group.frozen = frozen

    async def kill(self, path: str) -> None:
        self._existing("kill", path)
        for pid in self.members(path, deep=True):
            self.exit(pid)

    # --- simulated activity ---

    def spawn(self, path: str = "/") -> int:
        """Start a process in the cgroup."""
        self._pids += 1
        self._existing("spawn", path).pids.add(self._pids)
        return self._pids

    def exit(self, pid: int) -> None:
        """The last process frees the cgroup's memory; systemd removes a scope without processes."""
        path, group = next((path, group) for path, group in self._groups.items() if pid in group.pids)
        group.pids.remove(pid)
        if group.pids:
            return
        group.anon_bytes = 0
        if path.endswith(".scope") and not group.children:
            self._drop(path)

    def use(self, path: str, *, anon_bytes: int = 0, cache_bytes: int = 0) -> None:
        """Set this cgroup's own usage; above a limit, pages are reclaimed and then processes are killed."""
        group = self._existing("use", path)
        group.anon_bytes, group.cache_bytes = anon_bytes, cache_bytes
        for limited in (*ancestors(path), path):
            self._enforce_limits(limited)

    def report(self, path: str, file: str, text: str) -> None:
        """Set the text of a read-only file (pressure, cpu.stat)."""
        self._existing("report", path).reports[file] = text

    # --- inside ---

    _commands = ("memory.reclaim", "memory.force_empty", "cgroup.kill")

    def _existing(self, op: str, path: str, data: str = "") -> _Cgroup:
        group = self._groups.get(path)
        if group is None:
            raise CgroupGoneError(op, path, data, errno.ENOENT)
        return group

    def _tree(self, path: str) -> Iterator[_Cgroup]:
        """The cgroup and its descendants."""
        group = self._groups.get(path)
        if group is not None:
            yield group
            for name in group.children:
                yield from self._tree(f"{path.rstrip('/')}/{name}")

    def _drop(self, path: str) -> None:
        group = self._groups.pop(path)
        above, _, name = path.rpartition("/")
        self._groups[above or "/"].children.remove(name)
        self._groups[above or "/"].cache_bytes += group.cache_bytes  # the rest is charged to the parent

    def _usage(self, path: str) -> int:
        return sum(group.anon_bytes + group.cache_bytes for group in self._tree(path))

    def _command(self, path: str, file: str, value: str) -> None:
        if file == "cgroup.kill":
            for pid in self.members(path, deep=True):
                self.exit(pid)
        elif file == "memory.force_empty":
            self._reclaim(path, self._usage(path))
        else:
            requested = byte_count(value)
            if self._reclaim(path, requested) < requested:
                raise ErrnoError(errno.EAGAIN)

    def _set(self, path: str, group: _Cgroup, file: str, text: str) -> None:
        files = group.files
        if file == "cpu.max":
            words = text.split()
            period = words[1] if len(words) == 2 else files[file].split()[1] or str(DEFAULT_PERIOD_US)
            text = f"{words[0]} {period}"
        elif file in ("cpu.cfs_quota_us", "cpu.cfs_period_us"):
            self._check_bandwidth(path, {**files, file: text})
        elif file in ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"):
            limits = {**files, file: text}
            memory = limits["memory.limit_in_bytes"]
            if int(memory) > int(limits.get("memory.memsw.limit_in_bytes", memory)):
                raise ErrnoError(errno.EINVAL)
            self._make_room(path, int(text))
        _check_burst({**files, file: text})
        files[file] = text
        self._enforce_limits(path)

    def _check_bandwidth(self, path: str, files: Mapping[str, str]) -> None:
        """v1: a child's quota/period must not be above that of its nearest limited ancestor."""
        ratio = _ratio(files)
        if ratio is None:
            return
        for above in reversed(ancestors(path)):
            limit = _ratio(self._groups[above].files)
            if limit is not None:
                if ratio > limit:
                    raise ErrnoError(errno.EINVAL, "the parent has less")
                break
        for below in self._tree(path):
            part = _ratio(below.files) if below is not self._groups[path] else None
            if part is not None and part > ratio:
                raise ErrnoError(errno.EINVAL, "a child has more")

    def _make_room(self, path: str, limit_bytes: int) -> None:
        excess = self._usage(path) - limit_bytes
        if excess > 0 and self._reclaim(path, excess) < excess:
            raise ErrnoError(errno.EBUSY, f"{self._usage(path)} bytes are in use")

    def _reclaim(self, path: str, requested_bytes: int) -> int:
        freed = 0
        for group in self._tree(path):
            part = min(group.cache_bytes, requested_bytes - freed)
            group.cache_bytes -= part
            freed += part
        return freed

    def _enforce_limits(self, path: str) -> None:
        group = self._groups.get(path)
        for file in ("memory.high", "memory.max", "memory.limit_in_bytes"):
            limit = MAX if group is None else group.files.get(file, MAX)
            if limit == MAX or group is None:
                continue
            excess = self._usage(path) - int(limit)
            if excess > 0:
                group.events["high" if file == "memory.high" else "max"] += 1
                while self._reclaim(path, excess) < excess and file != "memory.high" and self._oom_kill(path, group):
                    excess = self._usage(path) - int(limit)

    def _oom_kill(self, path: str, group: _Cgroup) -> bool:
        """Kill all processes of the cgroup with the most memory that cannot be reclaimed."""
        victims = [victim for victim in self._tree(path) if victim.pids and victim.anon_bytes]
        if not victims:
            return False
        victim = max(victims, key=lambda victim: victim.anon_bytes)
        group.events["oom"] += 1
        victim.events["oom_kill"] += len(victim.pids)
        if victim.files.get("memory.oom.group") == "1":
            victim.events["oom_group_kill"] += 1
        for pid in tuple(victim.pids):
            self.exit(pid)
        return True

    def _text(self, path: str, group: _Cgroup, file: str) -> str | None:
        """The text of a file, stored or computed; None where there is no such file."""
        if file in group.files:
            return group.files[file]
        usage = {1: "memory.usage_in_bytes", 2: "memory.current"}[self.version]
        if file in (usage, "memory.memsw.usage_in_bytes"):
            return str(self._usage(path))
        if file == "memory.stat":
            return self._memory_stat(path)
        if file in ("memory.events", "memory.events.local") and self.version == 2:
            groups = list(self._tree(path)) if file == "memory.events" else [group]
            return "\n".join(f"{name} {sum(group.events[name] for group in groups)}" for name in _EVENTS)
        if file == "cgroup.events" and self.version == 2:
            populated = any(below.pids for below in self._tree(path))
            return f"populated {populated:d}\nfrozen {group.frozen:d}"
        if file == "cgroup.freeze" and self.version == 2:
            return f"{group.frozen:d}"
        if file == "cgroup.procs":
            return "\n".join(map(str, sorted(group.pids)))
        if file == "pids.current":
            return str(sum(len(below.pids) for below in self._tree(path)))
        return group.reports.get(file)

    def _memory_stat(self, path: str) -> str:
        anon = sum(group.anon_bytes for group in self._tree(path))
        cache = sum(group.cache_bytes for group in self._tree(path))
        if self.version == 2:
            return f"anon {anon}\nfile {cache}\ninactive_file {cache}\nactive_file 0"
        own = self._groups[path]
        return (
            f"cache {own.cache_bytes}\nrss {own.anon_bytes}\ninactive_file {own.cache_bytes}\n"
            f"total_cache {cache}\ntotal_rss {anon}\ntotal_inactive_file {cache}"
        )


class SimulatedHolders:
    """Placeholder processes for the scopes of a simulated systemd."""

    def __init__(self, kernel: SimulatedKernel) -> None:
        self._kernel = kernel
        self._scopes: dict[int, str] = {}  # by pid

    def start(self, path: str) -> int:
        pid = self._kernel.spawn()
        self._scopes[pid] = path
        return pid

    def end(self, pid: int, path: str) -> None:
        self._kernel.exit(pid)

    def scope_of(self, pid: int) -> str | None:
        return self._scopes.get(pid)


def _check_burst(files: Mapping[str, str]) -> None:
    """A quota is at least the burst: https://docs.kernel.org/scheduler/sched-bwc.html"""
    quota = files["cpu.max"].split()[0] if "cpu.max" in files else files.get("cpu.cfs_quota_us", "-1")
    burst = files.get("cpu.max.burst") or files.get("cpu.cfs_burst_us", "0")
    if quota not in (MAX, "-1") and int(burst) > int(quota):
        raise ErrnoError(errno.EINVAL, "the burst is larger than the quota")


def _ratio(files: Mapping[str, str]) -> float | None:
    quota = int(files.get("cpu.cfs_quota_us", "-1"))
    return None if quota < 0 else quota / int(files["cpu.cfs_period_us"])
