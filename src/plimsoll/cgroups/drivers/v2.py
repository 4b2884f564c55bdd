"""The cgroupfs driver of cgroup v2: one hierarchy, one directory per cgroup.

A controller's files are in a cgroup only if its parent lists the controller in `cgroup.subtree_control`. So making a
cgroup first switches on, from the top down to the parent, every controller that is there (spec 02 §2.4); one that an
ancestor refuses is remembered with the kernel's reason, which `has` gives. Killing is `cgroup.kill`; kernels before
5.14 get the older way: freeze, signal everybody, let go.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
from collections.abc import Iterable, Iterator

from plimsoll.cgroups.drivers.write import is_slow, until, write_checked
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
Switched = list[tuple[str, list[str]]]  # cgroup and the controllers that it now hands down
_LIMITS = frozenset({"cpu", "memory", "pids"})  # without these a cgroup of a node is not worth making
_THREADED = ("threaded", "domain invalid")


class CgroupsV2:
    version: CgroupVersion = 2
    name: DriverName = "cgroupfs"
    simulated = False

    def __init__(self, mount_point: str = "/sys/fs/cgroup", root: str = "/", *, page_size: int = 0) -> None:
        """`root`: the cgroup that is mounted there, where it is not the top."""
        self.mount = CgroupMount(mount_point, "cgroup2", root)
        self.page_size = page_size or os.sysconf("SC_PAGE_SIZE")
        self.refused: dict[str, CgroupError] = {}  # controller → why an ancestor would not hand it down
        self._made: str | None = None  # a cgroup to ask which files there are

    def close(self) -> None:
        self.mount.close()

    def directory(self, path: str, file: str = PROCS) -> Directory:
        """The open cgroup; the caller closes it. On v1 it depends on the file which of its directories that is."""
        return self.mount.directory(path)

    # Looking

    def read(self, path: str, files: Iterable[str]) -> ObservedCgroup | None:
        try:
            with self.mount.directory(path) as directory:
                found = {file: text for file in files if (text := directory.read_if_there(file)) is not None}
                return ObservedCgroup(found, directory.inode)
        except CgroupGoneError:
            return None

    def children(self, path: str) -> list[str]:
        try:
            with self.mount.directory(path) as directory:
                return directory.children()
        except CgroupGoneError:
            return []

    def members(self, path: str, *, deep: bool = False) -> list[int]:
        return sorted(self._pids(path, deep=deep))

    def _pids(self, path: str, *, deep: bool) -> Iterator[int]:
        for at in descendants(self.mount, path) if deep else (path,):
            try:
                with self.mount.directory(at) as directory:
                    yield from pids(directory)
            except CgroupGoneError:
                continue

    def has(self, file: str) -> str | None:
        controller = controller_of(file)
        core = controller == "cgroup" or is_core(file)
        if not core:
            if controller not in self.controllers():
                return f"controller {controller} is not in {self.mount.shown('/')}/{CONTROLLERS}"
            if refusal := self.refused.get(controller):
                return str(refusal)
        for path in self._samples():
            try:
                with self.mount.directory(path) as directory:
                    if core or controller in directory.read(CONTROLLERS).split():
                        return lacking(directory, file)
            except CgroupGoneError:
                continue
        return None  # no cgroup with that controller to ask: making one will show

    def _samples(self) -> Iterator[str]:
        """Cgroups below the top, which has few files itself."""
        if self._made:
            yield self._made
        yield from (f"/{name}" for name in self.children("/"))

    def controllers(self, path: str = "/") -> list[str]:
        """The controllers that a cgroup can hand down; at the top, all that v2 has here."""
        with self.mount.directory(path) as directory:
            return directory.read(CONTROLLERS).split()

    # Changing

    async def make(self, path: str, *, pid: int | None = None) -> None:
        """`pid` is for systemd's scopes; here a process is moved when the cgroup is ready."""
        if self.mount.has(path):
            raise CgroupError("make", self.mount.shown(path), "", errno.EEXIST)
        switched: Switched = []
        try:
            self._hand_down_to(path, switched)
            self.mount.make(path)
        except CgroupError:
            self._take_back(switched)
            raise
        self._made = path

    async def complete(self, path: str) -> None:
        """For a cgroup that systemd makes: every controller switched on all the way down to it, and the directory."""
        self._hand_down_to(path, [])
        if not self.mount.has(path):
            self.mount.make(path)
        self._made = path

    def _hand_down_to(self, path: str, switched: Switched) -> None:
        names = components(path)
        for depth in range(len(names)):
            above = "/" + "/".join(names[:depth])
            if on := self._hand_down(above):
                switched.append((above, on))

    def _hand_down(self, path: str) -> list[str]:
        """Switches on what is missing in one cgroup for its children; returns what it switched on."""
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
                    return self._held_by_processes(error, missing)
                missing = [name for name in missing if self._hand_down_one(directory, name)]
            return missing

    def _held_by_processes(self, error: CgroupError, missing: list[str]) -> list[str]:
        """Never one by one: cpu and pids alone would come on, and make every child a thread's cgroup, of no use."""
        if not _LIMITS.isdisjoint(missing):
            detail = "it has processes of its own: move them into a cgroup below it first"
            raise CgroupError(error.op, error.path, error.data, error.errno, detail) from error
        self.refused.update(dict.fromkeys(missing, error))
        return []

    def _hand_down_one(self, directory: Directory, controller: str) -> bool:
        try:
            directory.write(SUBTREE, f"+{controller}")
        except CgroupGoneError:
            raise
        except CgroupError as error:
            self.refused[controller] = error
            return False
        return True

    def _take_back(self, switched: Switched) -> None:
        """As it was before a make that failed; a child that came meanwhile and needs it keeps it (EBUSY)."""
        for path, controllers in reversed(switched):
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
        """A limit above what is in use is taken at once: no thread is waited for while a cgroup is frozen for it."""
        if file not in ("memory.max", "memory.high"):
            return False
        seen = self.read(path, ("memory.current",))
        return value == "max" or (
            seen is not None and value.isdecimal() and int(seen.files.get("memory.current", value)) < int(value)
        )

    def _write(self, path: str, file: str, value: str) -> None:
        with self.mount.directory(path) as directory:
            try:
                write_checked(directory, file, value, self.page_size)
            except CgroupGoneError:
                raise
            except CgroupError as error:
                if error.errno != errno.ENOENT:
                    raise
                reason = self.has(file) or f"controller {controller_of(file)} is not switched on in the parent"
                raise CgroupError(error.op, error.path, value, error.errno, reason) from error

    async def remove(self, path: str) -> None:
        await remove_empty(self.mount, path)
        if self._made == path:
            self._made = None

    async def move(self, path: str, pid: int) -> None:
        with self.mount.directory(path) as directory:
            directory.write(PROCS, str(pid))

    async def freeze(self, path: str, *, frozen: bool) -> None:
        not_the_top(path, "freeze" if frozen else "thaw")
        with self.mount.directory(path) as directory:
            directory.write("cgroup.freeze", "1" if frozen else "0")
            if not await until(lambda: _event(directory, "frozen") == frozen, FREEZE_S):
                if frozen:
                    directory.write("cgroup.freeze", "0")
                detail = f"cgroup.events did not say frozen {int(frozen)} within {FREEZE_S:g} s"
                raise CgroupError("freeze" if frozen else "thaw", directory.path, "", errno.ETIMEDOUT, detail)

    async def kill(self, path: str) -> None:
        not_the_top(path, "kill")
        with self.mount.directory(path) as directory:
            if not self._kill_at_once(directory):
                await self._kill_frozen(path, directory)
            if not await until(lambda: not _event(directory, "populated"), KILL_S):
                raise still_there("kill", directory.path, self.members(path, deep=True), KILL_S)

    def _kill_at_once(self, directory: Directory) -> bool:
        try:
            directory.write("cgroup.kill", "1")
        except CgroupError as error:
            if error.errno == errno.ENOENT and not isinstance(error, CgroupGoneError):
                return False
            raise
        return True

    async def _kill_frozen(self, path: str, directory: Directory) -> None:
        await self.freeze(path, frozen=True)
        try:
            signal_members(lambda: self._pids(path, deep=True), signal.SIGKILL)
        finally:
            directory.write("cgroup.freeze", "0")


def is_core(file: str) -> bool:
    """Files that are there without their first word being a controller that is switched on."""
    return file.endswith(".pressure") or file in ("cpu.stat", "cpu.stat.local")


def lacking(directory: Directory, file: str) -> str | None:
    """None where the cgroup has the file, else the reason in words; CgroupGone where there is no cgroup."""
    if not directory.has(file):
        if not directory.alive():
            raise CgroupGoneError("open", directory.path, "", errno.ENOENT)
        return f"this kernel's cgroups have no {file}"
    if file.endswith(".pressure") and directory.read_if_there(file) is None:
        return f"{file} is switched off: boot with psi=1"
    return None


def not_the_top(path: str, op: str) -> None:
    if not components(path):
        raise CgroupError(op, path, "", errno.EINVAL, "the top holds every process of this machine")


def still_there(op: str, path: str, left: list[int], deadline_s: float) -> CgroupError:
    shown = " ".join(map(str, left[:10])) or "none that this pid namespace can see"
    detail = f"still alive after {deadline_s:g} s: {shown} (a process in an uninterruptible wait ends when that does)"
    return CgroupError(op, path, "", errno.ETIMEDOUT, detail)


def pids(directory: Directory) -> Iterator[int]:
    """0 stands for a process of an outer pid namespace: it cannot be named from here."""
    return (int(word) for word in directory.read(PROCS).split() if word != "0")


def descendants(mount: CgroupMount, path: str) -> Iterator[str]:
    """The cgroup and all below it, parents first; what goes away meanwhile is left out."""
    yield path
    try:
        with mount.directory(path) as directory:
            names = directory.children()
    except CgroupGoneError:
        return
    for name in names:
        yield from descendants(mount, f"{path.rstrip('/')}/{name}")


async def remove_empty(mount: CgroupMount, path: str) -> None:
    """The last process may be on its way out, no longer listed but still counted: a moment later it can be removed."""
    refusal: CgroupError | None = None

    def removed() -> bool:
        nonlocal refusal
        try:
            mount.remove(path)
        except CgroupError as error:
            if error.errno != errno.EBUSY:
                raise
            with mount.directory(path) as directory:
                if directory.children() or any(True for _ in pids(directory)):
                    detail = "it has processes or cgroups in it: end and remove those first"
                    raise CgroupError("remove", directory.path, "", errno.EBUSY, detail) from error
            refusal = error
            return False
        return True

    if not await until(removed, REMOVE_S) and refusal is not None:
        raise refusal


def _event(directory: Directory, key: str) -> bool:
    """A cgroup that was removed holds nobody and is not frozen."""
    try:
        return flat_keyed(directory.read("cgroup.events")).get(key) == 1
    except CgroupGoneError:
        return False
