"""The cgroupfs driver of cgroup v2: one hierarchy, one directory per cgroup.

A cgroup has a controller's files only if its parent lists the controller in `cgroup.subtree_control`. So `make` first
enables, from the root down to the parent, every available controller (02 §2.4); for one that an ancestor refuses,
`has` returns the kernel's reason. `kill` writes `cgroup.kill`; on kernels before 5.14 it freezes the cgroup, signals
every process and thaws. See https://docs.kernel.org/admin-guide/cgroup-v2.html#controlling-controllers
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from plimsoll.cgroups.drivers.write import fits, is_slow, until, write_checked
from plimsoll.codec.kernel.files import flat_keyed
from plimsoll.linux.cgroup_files import CgroupError, CgroupGoneError, CgroupMount, Directory, components
from plimsoll.linux.processes import signal_members
from plimsoll.rules.cgroups.steps import ObservedCgroup
from plimsoll.rules.model.cgroup_names import Driver as DriverName
from plimsoll.rules.model.kernel import CgroupVersion
from plimsoll.rules.resources.files import controller_of

PROCS = "cgroup.procs"
SUBTREE = "cgroup.subtree_control"
CONTROLLERS = "cgroup.controllers"
FREEZE_S = 2.0
KILL_S = 10.0
REMOVE_S = 0.5
Enabled = list[tuple[str, list[str]]]  # cgroup and the controllers that were enabled in it
_REQUIRED = frozenset({"cpu", "memory", "pids"})  # without these, a cgroup cannot limit a pod
_THREADED = ("threaded", "domain invalid")
NOT_EMPTY = "it has processes or cgroups in it: end and remove those first"


class CgroupsV2:
    version: CgroupVersion = 2
    name: DriverName = "cgroupfs"
    simulated = False

    def __init__(self, mount_point: str = "/sys/fs/cgroup", root: str = "/", *, page_size: int = 0) -> None:
        """`root`: the cgroup that is mounted there, where it is not the root cgroup."""
        self.mount = CgroupMount(mount_point, "cgroup2", root)
        self.page_size = page_size or os.sysconf("SC_PAGE_SIZE")
        self.refused: dict[str, CgroupError] = {}  # controller → why an ancestor could not enable it
        self._made: str | None = None  # a cgroup in which `has` checks for files

    def close(self) -> None:
        self.mount.close()

    def mount_of(self, file: str) -> CgroupMount:
        return self.mount

    def directory(self, path: str, file: str = PROCS) -> Directory:
        """The open cgroup; the caller closes it. On v1, `file` selects the hierarchy."""
        return self.mount.directory(path)

    # Reading

    def read(self, path: str, files: Iterable[str]) -> ObservedCgroup | None:
        with suppress(CgroupGoneError), self.mount.directory(path) as directory:
            return ObservedCgroup(_texts(directory, files), directory.inode)
        return None

    def texts(self, path: str, files: Iterable[str]) -> Mapping[str, str] | None:
        with suppress(CgroupGoneError), self.mount.directory(path) as directory:
            return _texts(directory, files)
        return None

    def incomplete(self, path: str) -> list[str]:
        return []  # there is one hierarchy

    def children(self, path: str) -> list[str]:
        with suppress(CgroupGoneError), self.mount.directory(path) as directory:
            return directory.children()
        return []

    def members(self, path: str, *, deep: bool = False) -> list[int]:
        return sorted(member_pids(self.mount, path, deep=deep))

    def has(self, file: str) -> str | None:
        controller = controller_of(file)
        core = controller == "cgroup" or is_core(file)
        if not core:
            if controller not in self.controllers():
                return f"controller {controller} is not in {self.mount.shown('/')}/{CONTROLLERS}"
            if refusal := self.refused.get(controller):
                return str(refusal)
        for path in self._samples():
            with suppress(CgroupGoneError), self.mount.directory(path) as directory:
                if core or controller in directory.read(CONTROLLERS).split():
                    return lacking(directory, file)
        return None  # no cgroup has that controller yet: the first write shows whether the file exists

    def _samples(self) -> Iterator[str]:
        """Cgroups below the root, which itself has few files."""
        if self._made:
            yield self._made
        yield from (f"/{name}" for name in self.children("/"))

    def controllers(self, path: str = "/") -> list[str]:
        """The controllers that a cgroup can enable for its children; in the root, all that v2 has here."""
        with self.mount.directory(path) as directory:
            return directory.read(CONTROLLERS).split()

    # Changing

    def mark(self, path: str, text: str) -> None:
        self.mount.mark(path, text)

    def marked(self, path: str) -> str:
        return self.mount.marked(path)

    async def make(self, path: str, *, pid: int | None = None) -> None:
        """`pid` is ignored: only a systemd scope is made with a process."""
        if self.mount.has(path):
            raise CgroupError("make", self.mount.shown(path), "", errno.EEXIST)
        enabled: Enabled = []
        try:
            self._enable_down_to(path, enabled)
            self.mount.make(path)
        except CgroupError:
            self._disable(enabled)
            raise
        self._made = path

    async def complete(self, path: str) -> None:
        """For a cgroup that systemd makes: enable every controller down to it, and make the directory if missing."""
        self._enable_down_to(path, [])
        if not self.mount.has(path):
            self.mount.make(path)
        self._made = path

    def _enable_down_to(self, path: str, enabled: Enabled) -> None:
        names = components(path)
        for depth in range(len(names)):
            ancestor = "/" + "/".join(names[:depth])
            if controllers := self._enable(ancestor):
                enabled.append((ancestor, controllers))

    def _enable(self, path: str) -> list[str]:
        """Enable the missing controllers of one cgroup for its children; return those that were enabled."""
        with self.mount.directory(path) as directory:
            if (kind := directory.read_if_there("cgroup.type")) in _THREADED:
                raise CgroupError("make below", directory.path, "", errno.EOPNOTSUPP, f"its cgroup.type is {kind}")
            active = directory.read(SUBTREE).split()
            self.refused = {
                name: error
                for name, error in self.refused.items()
                if name not in active or error.path != f"{directory.path}/{SUBTREE}"
            }
            missing = [name for name in directory.read(CONTROLLERS).split() if name not in active]
            if not missing:
                return []
            try:
                directory.write(SUBTREE, " ".join(f"+{name}" for name in missing))
            except CgroupGoneError:
                raise
            except CgroupError as error:
                if error.errno == errno.EBUSY:
                    return self._refused_as_busy(error, missing)
                missing = [name for name in missing if self._enable_one(directory, name)]
            return missing

    def _refused_as_busy(self, error: CgroupError, missing: list[str]) -> list[str]:
        """Never one by one: cpu and pids alone would be enabled, and make every child a threaded cgroup."""
        if not _REQUIRED.isdisjoint(missing):
            detail = "it has processes of its own: move them into a cgroup below it first"
            raise CgroupError(error.op, error.path, error.data, error.errno, detail) from error
        self.refused.update(dict.fromkeys(missing, error))
        return []

    def _enable_one(self, directory: Directory, controller: str) -> bool:
        try:
            directory.write(SUBTREE, f"+{controller}")
        except CgroupGoneError:
            raise
        except CgroupError as error:
            self.refused[controller] = error
            return False
        return True

    def _disable(self, enabled: Enabled) -> None:
        """After a make that failed; a controller that a new child uses meanwhile stays enabled (EBUSY)."""
        for path, controllers in reversed(enabled):
            for controller in controllers:
                try:
                    with self.mount.directory(path) as directory:
                        directory.write(SUBTREE, f"-{controller}")
                except CgroupError as error:
                    if error.errno != errno.EBUSY and not isinstance(error, CgroupGoneError):
                        self.refused.setdefault(controller, error)

    async def write(self, path: str, file: str, value: str) -> None:
        if is_slow(file) and not self._fits(path, file, value):
            await asyncio.to_thread(self._write, path, file, value)
        else:
            self._write(path, file, value)

    def _fits(self, path: str, file: str, value: str) -> bool:
        with suppress(CgroupGoneError), self.mount.directory(path) as directory:
            return fits(directory, file, value)
        return False

    def _write(self, path: str, file: str, value: str) -> None:
        with self.mount.directory(path) as directory:
            try:
                write_checked(directory, file, value, self.page_size)
            except CgroupGoneError:
                raise
            except CgroupError as error:
                if error.errno != errno.ENOENT:
                    raise
                reason = self.has(file) or f"controller {controller_of(file)} is not enabled in the parent"
                raise CgroupError(error.op, error.path, value, error.errno, reason) from error

    async def remove(self, path: str) -> None:
        await remove_empty(self.mount, path)
        if self._made == path:
            self._made = None

    async def move(self, path: str, pid: int) -> None:
        with self.mount.directory(path) as directory:
            directory.write(PROCS, str(pid))

    async def freeze(self, path: str, *, frozen: bool) -> None:
        refuse_root(path, "freeze" if frozen else "thaw")
        with self.mount.directory(path) as directory:
            directory.write("cgroup.freeze", "1" if frozen else "0")
            if not await until(lambda: _event(directory, "frozen") == frozen, FREEZE_S):
                if frozen:
                    directory.write("cgroup.freeze", "0")
                detail = f"cgroup.events did not report frozen {int(frozen)} within {FREEZE_S:g} s"
                raise CgroupError("freeze" if frozen else "thaw", directory.path, "", errno.ETIMEDOUT, detail)

    async def kill(self, path: str) -> None:
        refuse_root(path, "kill")
        with self.mount.directory(path) as directory:
            if not write_kill(directory):
                await self._kill_frozen(path, directory)
            if not await until(lambda: not _event(directory, "populated"), KILL_S):
                raise still_alive("kill", directory.path, self.members(path, deep=True), KILL_S)

    async def _kill_frozen(self, path: str, directory: Directory) -> None:
        await self.freeze(path, frozen=True)
        try:
            signal_members(lambda: member_pids(self.mount, path, deep=True), signal.SIGKILL)
        finally:
            directory.write("cgroup.freeze", "0")


def is_core(file: str) -> bool:
    """Files that exist even if the controller in their name is not enabled."""
    return file.endswith(".pressure") or file in ("cpu.stat", "cpu.stat.local")


def lacking(directory: Directory, file: str) -> str | None:
    """None where the cgroup has the file, otherwise the reason; raises CgroupGoneError where there is no cgroup."""
    if not directory.has(file):
        if not directory.alive():
            raise CgroupGoneError("open", directory.path, "", errno.ENOENT)
        return f"this kernel's cgroups have no {file}"
    if file.endswith(".pressure") and directory.read_if_there(file) is None:
        return f"{file} is disabled: boot with psi=1"
    return None


def _texts(directory: Directory, files: Iterable[str]) -> dict[str, str]:
    return {file: text for file in files if (text := directory.read_if_there(file)) is not None}


def refuse_root(path: str, op: str) -> None:
    if not components(path):
        raise CgroupError(op, path, "", errno.EINVAL, "the root cgroup contains every process of this machine")


def still_alive(op: str, path: str, left: list[int], deadline_s: float) -> CgroupError:
    listed = " ".join(map(str, left[:10])) or "none that this pid namespace can see"
    detail = f"still alive after {deadline_s:g} s: {listed} (a process in an uninterruptible wait ends when that does)"
    return CgroupError(op, path, "", errno.ETIMEDOUT, detail)


def pids(directory: Directory) -> Iterator[int]:
    """Without 0, which stands for a process of an outer pid namespace."""
    return (int(word) for word in directory.read(PROCS).split() if word != "0")


def is_occupied(directory: Directory) -> bool:
    return bool(directory.children()) or any(True for _ in pids(directory))


def member_pids(mount: CgroupMount, path: str, *, deep: bool) -> Iterator[int]:
    """The pids in the cgroup; with `deep`, also in its descendants."""
    for at in descendants(mount, path) if deep else (path,):
        with suppress(CgroupGoneError), mount.directory(at) as directory:
            yield from pids(directory)


def write_kill(directory: Directory) -> bool:
    """False where the kernel has no cgroup.kill."""
    try:
        directory.write("cgroup.kill", "1")
    except CgroupError as error:
        if error.errno == errno.ENOENT and not isinstance(error, CgroupGoneError):
            return False
        raise
    return True


def descendants(mount: CgroupMount, path: str) -> Iterator[str]:
    """The cgroup and its descendants, parents first, without those that are removed meanwhile."""
    yield path
    try:
        with mount.directory(path) as directory:
            names = directory.children()
    except CgroupGoneError:
        return
    for name in names:
        yield from descendants(mount, f"{path.rstrip('/')}/{name}")


async def remove_empty(mount: CgroupMount, path: str) -> None:
    """Retries for a moment: an exiting process is no longer listed while the kernel still counts it."""
    refusal: CgroupError | None = None

    def removed() -> bool:
        nonlocal refusal
        try:
            mount.remove(path)
        except CgroupError as error:
            if error.errno != errno.EBUSY:
                raise
            with mount.directory(path) as directory:
                if is_occupied(directory):
                    raise CgroupError("remove", directory.path, "", errno.EBUSY, NOT_EMPTY) from error
            refusal = error
            return False
        return True

    if not await until(removed, REMOVE_S) and refusal is not None:
        raise refusal


def _event(directory: Directory, key: str) -> bool:
    """A removed cgroup is neither populated nor frozen."""
    with suppress(CgroupGoneError):
        return flat_keyed(directory.read("cgroup.events")).get(key) == 1
    return False
