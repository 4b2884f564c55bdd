"""The cgroupfs driver of cgroup v1: one path is a directory of that name in every hierarchy in use.

Controllers may share a hierarchy (`cpu,cpuacct`), so files are found by mount: a file is in the mount of its
controller. `name=systemd` and, on a hybrid host, the unified hierarchy get the directory as well; the latter has PSI
and `cgroup.kill`. A cgroup exists when it exists in every hierarchy that Kubernetes needs (02 §3). Making one that
exists in some of them makes the rest, all or nothing. A new cpuset accepts no process before it has CPUs and memory
nodes, so it inherits those of its parent.

To kill: freeze the cgroup, so that no process can fork, send SIGKILL through pidfds, and thaw.
See https://docs.kernel.org/admin-guide/cgroup-v1/cgroups.html
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from plimsoll.cgroups.drivers import v2
from plimsoll.cgroups.drivers.write import fits, is_slow, until, write_checked
from plimsoll.linux.cgroup_files import CgroupError, CgroupGoneError, CgroupMount, Directory, components
from plimsoll.linux.processes import cgroups_of, signal_members
from plimsoll.rules.cgroups.steps import ObservedCgroup
from plimsoll.rules.model.cgroup_names import Driver as DriverName
from plimsoll.rules.model.kernel import CgroupVersion
from plimsoll.rules.resources.files import controller_of

SYSTEMD = "name=systemd"
UNIFIED = "unified"
# A cgroup is made in the hierarchies USED; it exists if it exists in all of those NEEDED (02 §3).
NEEDED = ("cpu", "cpuacct", "cpuset", "memory", "pids", "hugetlb", SYSTEMD)
USED = (*NEEDED, "freezer", "blkio", "devices", UNIFIED)
_OPTIONAL = frozenset({SYSTEMD, "blkio", "devices", UNIFIED})
_REFUSALS = (errno.EACCES, errno.EPERM, errno.EROFS)
_NOT_IN_ROOT = frozenset({"pids", "freezer"})  # the root cgroup does not have their files
_STATE = "freezer.state"


class CgroupsV1:
    version: CgroupVersion = 1
    name: DriverName = "cgroupfs"
    simulated = False

    def __init__(
        self,
        mounts: Mapping[str, str],
        unified: str | None = None,
        roots: Mapping[str, str] | None = None,
        *,
        page_size: int = 0,
    ) -> None:
        """`mounts`: controller (or `name=systemd`) → mount point, as `detect` finds them; joint controllers share one.

        `roots`: mount point → the cgroup that is mounted there, where it is not the root cgroup.
        """
        self.page_size = page_size or os.sysconf("SC_PAGE_SIZE")
        root_of = dict(roots or {}).get
        opened: dict[str, CgroupMount] = {}
        self.hierarchies: dict[str, CgroupMount] = {}
        for controller, mount_point in mounts.items():
            if mount_point not in opened:
                opened[mount_point] = CgroupMount(mount_point, "cgroup", root_of(mount_point, "/"))
            self.hierarchies[controller] = opened[mount_point]
        if unified is not None:
            self.hierarchies[UNIFIED] = CgroupMount(unified, "cgroup2", root_of(unified, "/"))
        self.refused: dict[str, CgroupError] = {}  # optional hierarchy → why it is not used
        self._made: str | None = None  # a cgroup in which `has` checks for files

    def close(self) -> None:
        for mount in self._distinct(self.hierarchies):
            mount.close()

    def _distinct(self, controllers: Iterable[str]) -> list[CgroupMount]:
        """The mounts of these controllers, joint ones once."""
        return list(dict.fromkeys(self.hierarchies[name] for name in controllers if name in self.hierarchies))

    def mount_of(self, file: str) -> CgroupMount | None:
        """The mount of the file's controller; PSI and cgroup.kill are in the unified hierarchy."""
        if file.endswith(".pressure") or file in ("cgroup.kill", "cgroup.events", "cgroup.freeze", "cgroup.stat"):
            return self.hierarchies.get(UNIFIED)
        controller = controller_of(file)
        return self._main if controller == "cgroup" else self.hierarchies.get(controller)

    @property
    def _main(self) -> CgroupMount:
        """The hierarchy whose inode identifies the cgroup."""
        return self.hierarchies["memory"] if "memory" in self.hierarchies else next(iter(self.hierarchies.values()))

    def directory(self, path: str, file: str = v2.PROCS) -> Directory:
        """The open cgroup in the hierarchy that has `file`; the caller closes it."""
        if (mount := self.mount_of(file)) is None:
            raise CgroupError("open", f"{path}/{file}", "", errno.ENOENT, self.has(file) or "")
        return mount.directory(path)

    # Reading

    def read(self, path: str, files: Iterable[str]) -> ObservedCgroup | None:
        needed = self._distinct(name for name in NEEDED if name not in self.refused) or [self._main]
        opened: dict[CgroupMount, Directory] = {}
        try:
            for mount in needed:
                opened[mount] = mount.directory(path)
            texts = {}
            for file in files:
                if (mount_of := self.mount_of(file)) is None:
                    continue
                if mount_of not in opened:
                    with suppress(CgroupGoneError):
                        opened[mount_of] = mount_of.directory(path)
                if (directory := opened.get(mount_of)) and (text := directory.read_if_there(file)) is not None:
                    texts[file] = text
            return ObservedCgroup(texts, opened.get(self._main, next(iter(opened.values()))).inode)
        except CgroupGoneError:
            return None
        finally:
            for directory in opened.values():
                directory.close()

    def texts(self, path: str, files: Iterable[str]) -> Mapping[str, str] | None:
        opened: dict[CgroupMount, Directory] = {}
        texts = {}
        try:
            for file in files:
                if (mount := self.mount_of(file)) is None:
                    continue
                if mount not in opened:
                    opened[mount] = mount.directory(path)
                if (text := opened[mount].read_if_there(file)) is not None:
                    texts[file] = text
            return texts
        except CgroupGoneError:
            return None
        finally:
            for directory in opened.values():
                directory.close()

    def incomplete(self, path: str) -> list[str]:
        needed = self._distinct(name for name in NEEDED if name not in self.refused)
        missing = [mount.shown(path) for mount in needed if not mount.has(path)]
        return missing if len(missing) < len(needed) else []

    def children(self, path: str) -> list[str]:
        names: set[str] = set()
        for mount in self._distinct(self.hierarchies):
            with suppress(CgroupGoneError), mount.directory(path) as directory:
                names.update(directory.children())
        return sorted(names)

    def members(self, path: str, *, deep: bool = False) -> list[int]:
        """The pids in any of the hierarchies USED."""
        return sorted({pid for mount in self._distinct(USED) for pid in v2.member_pids(mount, path, deep=deep)})

    def has(self, file: str) -> str | None:
        controller = controller_of(file)
        if (mount := self.mount_of(file)) is None:
            where = "the unified hierarchy" if file.endswith(".pressure") else f"controller {controller}"
            return f"{where} is not mounted on this cgroup v1 host"
        for path in self._samples(mount, controller):
            with suppress(CgroupGoneError), mount.directory(path) as directory:
                return v2.lacking(directory, file)
        return None  # there is no cgroup to check: the first write shows whether the file exists

    def _samples(self, mount: CgroupMount, controller: str) -> Iterator[str]:
        if self._made:
            yield self._made
        if controller in _NOT_IN_ROOT or mount.kind == "cgroup2":
            with mount.directory("/") as top:
                yield from (f"/{name}" for name in top.children())
        else:
            yield "/"

    # Changing

    def mark(self, path: str, text: str) -> None:
        self._main.mark(path, text)

    def marked(self, path: str) -> str:
        return self._main.marked(path)

    async def make(self, path: str, *, pid: int | None = None) -> None:
        """`pid` is ignored: only a systemd scope is made with a process."""
        if not self._make_missing(path, new=True):
            raise CgroupError("make", self._main.shown(path), "", errno.EEXIST)
        self._made = path

    async def complete(self, path: str) -> None:
        """For a cgroup that systemd makes: make it in the hierarchies that systemd does not use, or has not done yet.

        Its ancestors as well: systemd removes the directories of its slices from hierarchies that they no longer need.
        """
        names = components(path)
        for depth in range(len(names)):
            self._make_missing("/" + "/".join(names[: depth + 1]), new=False)
        self._made = path

    def _make_missing(self, path: str, *, new: bool) -> bool:
        """Make all missing directories or none; False where a `new` cgroup exists already in all hierarchies NEEDED.

        Those are made last, and `remove` removes them first: a process that is killed in between leaves a cgroup that
        does not read as one, and that the next `make` completes.
        """
        needed = self._distinct(NEEDED)
        if new and all(mount.has(path) for mount in needed):
            return False
        created: list[CgroupMount] = []
        try:
            for mount in sorted(self._distinct(USED), key=needed.__contains__):
                if is_made := self._make_in(mount, path):
                    created.append(mount)
                if is_made or new:
                    self._prepare(mount, path)
        except CgroupError:
            for mount in reversed(created):
                mount.remove(path)
            raise
        return True

    def _make_in(self, mount: CgroupMount, path: str) -> bool:
        """False where it exists already, or where an optional hierarchy refuses it."""
        try:
            mount.make(path)
        except CgroupGoneError as error:
            names = self._names(mount)
            if names <= _OPTIONAL and names & self.refused.keys():
                return False  # its parent was refused already
            raise CgroupGoneError("make", error.path, "", error.errno, "its parent does not exist") from error
        except CgroupError as error:
            if error.errno == errno.EEXIST:
                return False
            names = self._names(mount)
            if error.errno == errno.ENOMEM and "memory" in names:
                detail = "the memory limit above it leaves no room for another cgroup"
                raise CgroupError("make", error.path, "", error.errno, detail) from error
            if error.errno not in _REFUSALS or not names <= _OPTIONAL:
                raise
            self.refused.update(dict.fromkeys(names, error))
            return False
        return True

    def _names(self, mount: CgroupMount) -> set[str]:
        return {name for name, other in self.hierarchies.items() if other is mount and name in USED}

    def _prepare(self, mount: CgroupMount, path: str) -> None:
        if mount is self.hierarchies.get("cpuset"):
            self._inherit_cpuset(mount, path)
        if mount is self.hierarchies.get("memory"):
            with mount.directory(path) as directory:
                # Kernels before 5.11: without it, a pod's limit does not count the usage of its containers.
                if directory.read_if_there("memory.use_hierarchy") == "0":
                    directory.write("memory.use_hierarchy", "1")

    def _inherit_cpuset(self, mount: CgroupMount, path: str) -> None:
        with mount.directory(path.rpartition("/")[0] or "/") as parent, mount.directory(path) as directory:
            for file in ("cpuset.cpus", "cpuset.mems"):
                if directory.read(file):
                    continue  # inherited through cgroup.clone_children
                if not (value := parent.read(file)):
                    detail = "the parent has none: set them there, or choose another cgroup root"
                    raise CgroupError("inherit", f"{parent.path}/{file}", "", errno.ENOSPC, detail)
                directory.write(file, value)

    async def write(self, path: str, file: str, value: str) -> None:
        if is_slow(file) and not self._fits(path, file, value):
            await asyncio.to_thread(self._write, path, file, value)
        else:
            self._write(path, file, value)

    def _fits(self, path: str, file: str, value: str) -> bool:
        with suppress(CgroupGoneError), self.directory(path, file) as directory:
            return fits(directory, file, value)
        return False

    def _write(self, path: str, file: str, value: str) -> None:
        with self.directory(path, file) as directory:
            try:
                write_checked(directory, file, value, self.page_size)
            except CgroupGoneError:
                raise
            except CgroupError as error:
                raise _explained(error, directory, file, value) from error

    async def remove(self, path: str) -> None:
        """Remove it from every hierarchy, also where a runtime made it. If it is busy in one, it stays in all."""
        v2.refuse_root(path, "remove")
        mounts: list[CgroupMount] = []
        for mount in self._distinct((*NEEDED, *self.hierarchies)):
            with suppress(CgroupGoneError), mount.directory(path) as directory:
                if v2.is_occupied(directory):
                    raise CgroupError("remove", mount.shown(path), "", errno.EBUSY, v2.NOT_EMPTY)
                mounts.append(mount)
        if not mounts:
            raise CgroupGoneError("remove", self._main.shown(path), "", errno.ENOENT)
        for mount in mounts:
            with suppress(CgroupGoneError):
                await v2.remove_empty(mount, path)
        if self._made == path:
            self._made = None

    async def move(self, path: str, pid: int) -> None:
        """All or nothing: if a hierarchy refuses, the process is moved back in the others."""
        before = self._paths_of(pid)
        moved: list[CgroupMount] = []
        for mount in self._distinct(USED):
            try:
                with mount.directory(path) as directory:
                    directory.write(v2.PROCS, str(pid))
            except CgroupError as error:
                if isinstance(error, CgroupGoneError) and self._names(mount) & self.refused.keys():
                    continue
                for done in reversed(moved):
                    _move_back(done, before.get(done), pid)
                raise
            moved.append(mount)

    def _paths_of(self, pid: int) -> dict[CgroupMount, str]:
        paths: dict[CgroupMount, str] = {}
        for line in cgroups_of(pid) or ():
            for name in line.controllers or (UNIFIED,):
                mount = self.hierarchies.get(name)
                if mount is not None and (path := mount.below(line.path)) is not None:
                    paths[mount] = path
        return paths

    async def freeze(self, path: str, *, frozen: bool) -> None:
        op = "freeze" if frozen else "thaw"
        v2.refuse_root(path, op)
        if (mount := self.hierarchies.get("freezer")) is None:
            raise CgroupError(op, path, "", errno.EOPNOTSUPP, "the freezer controller is not mounted")
        word = "FROZEN" if frozen else "THAWED"
        with mount.directory(path) as directory:
            directory.write(_STATE, word)
            if not await until(lambda: directory.read(_STATE) == word, v2.FREEZE_S):
                state = directory.read(_STATE)
                if frozen:
                    directory.write(_STATE, "THAWED")
                detail = f"{_STATE} was still {state} after {v2.FREEZE_S:g} s"
                raise CgroupError(op, directory.path, "", errno.ETIMEDOUT, detail)

    async def kill(self, path: str) -> None:
        v2.refuse_root(path, "kill")
        if not any(mount.has(path) for mount in self._distinct(USED)):
            raise CgroupGoneError("kill", self._main.shown(path), "", errno.ENOENT)
        clock = asyncio.get_running_loop().time
        end = clock() + v2.KILL_S
        left = self.members(path, deep=True)
        while left:
            await self._kill_round(path)
            # A process that was moved in meanwhile, or that the freezer missed, is killed in the next round.
            await until(lambda: not self.members(path, deep=True), 0.5)
            before, left = left, self.members(path, deep=True)
            if len(left) < len(before):
                end = clock() + v2.KILL_S
            elif left and clock() > end:
                raise v2.still_alive("kill", self._main.shown(path), left, v2.KILL_S)

    async def _kill_round(self, path: str) -> None:
        self._kill_unified(path)
        if freezer := "freezer" in self.hierarchies:
            try:
                await self.freeze(path, frozen=True)
            except CgroupGoneError:
                freezer = False
            except CgroupError as error:
                # A task that cannot be frozen now can still be killed, or is killed in the next round.
                if error.errno != errno.ETIMEDOUT:
                    raise
        try:
            signal_members(lambda: self.members(path, deep=True), signal.SIGKILL)
        finally:
            if freezer:
                with suppress(CgroupGoneError), self.hierarchies["freezer"].directory(path) as directory:
                    directory.write(_STATE, "THAWED")

    def _kill_unified(self, path: str) -> None:
        """On a hybrid host, the kernel kills all processes of the unified cgroup at once."""
        if (mount := self.hierarchies.get(UNIFIED)) is not None:
            with suppress(CgroupGoneError), mount.directory(path) as directory:
                v2.write_kill(directory)


def _move_back(mount: CgroupMount, path: str | None, pid: int) -> None:
    """Into its former cgroup; a process that has ended is ignored."""
    if path is None:
        return
    try:
        with mount.directory(path) as directory:
            directory.write(v2.PROCS, str(pid))
    except CgroupError as error:
        if error.errno not in (errno.ESRCH, errno.ENOENT, errno.ENODEV):
            raise


def _explained(error: CgroupError, directory: Directory, file: str, value: str) -> CgroupError:
    """The error with the meaning of its errno for this file on v1 (02 §4.3, §5)."""
    detail = error.detail
    if error.errno == errno.EBUSY and file == "memory.limit_in_bytes":
        used, peak = directory.read("memory.usage_in_bytes"), directory.read("memory.max_usage_in_bytes")
        detail = f"unable to set memory limit to {value} (current usage: {used}, peak usage: {peak})"
    elif error.errno == errno.EINVAL and file == "cpu.cfs_quota_us":
        detail = "quota/period is above the parent's, below a child's, or below 1 ms"
    elif error.errno == errno.EINVAL and file == "memory.limit_in_bytes":
        detail = "above memory.memsw.limit_in_bytes: raise that first"
    elif error.errno == errno.EINVAL and file == "memory.memsw.limit_in_bytes":
        detail = "below memory.limit_in_bytes: lower that first"
    return CgroupError(error.op, error.path, value, error.errno, detail)
