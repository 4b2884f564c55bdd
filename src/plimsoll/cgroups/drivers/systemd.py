"""The systemd driver: cgroups are slices and scopes of systemd, created over D-Bus, on v1 and on v2 (02 §2.3).

systemd owns the cgroup tree: it may remove a cgroup that it does not know, and it overwrites a value that it does not
know at the next `daemon-reload`. So a cgroup is created as a transient unit, and a value is set as a property first.
Then the same text is written to the file, to get the kernel's verdict; if the kernel refuses it, the property is
restored. A file without a property (memory.oom.group, hugetlb) is only written; systemd resets memory.oom.group at
`daemon-reload`, and the next sync finds that. The inner cgroupfs driver reads, freezes and kills.

A scope exists as long as it has processes: it is created with one (such as a `cgroups.engine.scope_holder`) and removed
with the last. Below a scope the tree is delegated: there are no units, only files.
See https://systemd.io/CGROUP_DELEGATION/
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from dbus_fast import Variant

from plimsoll.cgroups.drivers.dbus import JOB_S, BusLostError, SystemdBus, SystemdError
from plimsoll.cgroups.drivers.interface import CgroupDriver, CgroupError, CgroupGoneError
from plimsoll.cgroups.drivers.write import is_command
from plimsoll.errors import InvalidNameError
from plimsoll.linux.block_devices import device_path
from plimsoll.linux.cgroup_files import check_text, components
from plimsoll.rules.blockio.files import is_keyed
from plimsoll.rules.cgroups.steps import ObservedCgroup
from plimsoll.rules.cgroups.systemd import Property, Unit, files_beside, properties, unit_of
from plimsoll.rules.model.cgroup_names import Driver as DriverName
from plimsoll.rules.model.kernel import CgroupVersion

# systemd 252 also writes this file whenever it applies a unit: always 0, as scopes have no setting for it.
_RESET_BY_SYSTEMD = "memory.oom.group"
_ERRNO = {
    "org.freedesktop.systemd1.UnitExists": errno.EEXIST,
    "org.freedesktop.systemd1.NoSuchUnit": errno.ENOENT,
    "org.freedesktop.systemd1.PropertyReadOnly": errno.EINVAL,
    "org.freedesktop.systemd1.BadUnitSetting": errno.EINVAL,
    "org.freedesktop.DBus.Error.InvalidArgs": errno.EINVAL,
    "org.freedesktop.DBus.Error.PropertyReadOnly": errno.EINVAL,
    "org.freedesktop.DBus.Error.AccessDenied": errno.EACCES,
    "org.freedesktop.DBus.Error.InteractiveAuthorizationRequired": errno.EACCES,
    "org.freedesktop.DBus.Error.UnixProcessIdUnknown": errno.ESRCH,
}
_UNKNOWN_METHOD = "org.freedesktop.DBus.Error.UnknownMethod"


class CgroupfsDriver(CgroupDriver, Protocol):
    async def complete(self, path: str) -> None:
        """Add what is missing in a cgroup that systemd created: controllers on v2, hierarchies on v1."""


class SystemdCgroups:
    name: DriverName = "systemd"
    simulated = False

    def __init__(self, files: CgroupfsDriver, bus: SystemdBus | None = None) -> None:
        self.files = files
        self.version: CgroupVersion = files.version
        self.bus = bus or SystemdBus()

    async def close(self) -> None:
        await self.bus.close()

    # Reading

    def read(self, path: str, files: Iterable[str]) -> ObservedCgroup | None:
        return self.files.read(path, files)

    def texts(self, path: str, files: Iterable[str]) -> Mapping[str, str] | None:
        return self.files.texts(path, files)

    def incomplete(self, path: str) -> list[str]:
        return self.files.incomplete(path)

    def children(self, path: str) -> list[str]:
        return self.files.children(path)

    def members(self, path: str, *, deep: bool = False) -> list[int]:
        return self.files.members(path, deep=deep)

    def has(self, file: str) -> str | None:
        return self.files.has(file)

    def mark(self, path: str, text: str) -> None:
        self.files.mark(path, text)

    def marked(self, path: str) -> str:
        return self.files.marked(path)

    # Changing

    async def make(self, path: str, *, pid: int | None = None) -> None:
        unit = _own_unit(path, "make")
        if unit.is_scope and pid is None:
            raise CgroupError("make", path, "", errno.EINVAL, "a systemd scope needs a process from the start")
        if self.files.read(path, ()) is not None:
            raise CgroupError("make", path, "", errno.EEXIST)
        if self.files.read(_parent(path), ()) is None:
            raise CgroupGoneError("make", path, "", errno.ENOENT, "its parent does not exist")
        try:
            result = await self.bus.job(
                "StartTransientUnit", "ssa(sv)a(sa(sv))", [unit.name, "replace", self._initial(unit, pid), []]
            )
            if result != "done":
                raise CgroupError("make", path, "", errno.EIO, f"systemd's job for {unit.name} ended: {result}")
        except (SystemdError, BusLostError) as error:
            # A slice may be loaded without a cgroup, because a unit named it as its parent (02 §2.3).
            if unit.is_scope or _errno(error) != errno.EEXIST:
                raise _failed("make", path, "", error) from error
        await self._complete(path, unit, pid)

    def _initial(self, unit: Unit, pid: int | None) -> list[list[Any]]:
        """The properties of a new unit, as 02 §2.3 lists them."""
        initial: list[tuple[str, str, Any]] = [("Description", "s", f"libcontainer container {unit.name}")]
        if unit.is_scope:
            initial += [("Slice", "s", unit.parent), ("Delegate", "b", True), ("PIDs", "au", [pid])]
        else:
            initial += [("Wants", "as", [unit.parent])]
        io = "BlockIOAccounting" if self.version == 1 else "IOAccounting"
        initial += [(name, "b", True) for name in ("MemoryAccounting", "CPUAccounting", io, "TasksAccounting")]
        initial += [("DefaultDependencies", "b", False)]
        return [[name, Variant(signature, value)] for name, signature, value in initial]

    async def _complete(self, path: str, unit: Unit, pid: int | None) -> None:
        try:
            await self.files.complete(path)
            if pid is not None:
                await self.files.move(path, pid)  # into the hierarchies that systemd does not use
        except CgroupError as error:
            try:
                await self._stop(path, unit)
            except CgroupError as second:
                detail = f"{error.detail or error}; the rollback failed too: {second}"
                raise CgroupError(error.op, error.path, error.data, error.errno, detail) from error
            raise

    async def write(self, path: str, file: str, value: str) -> None:
        unit = _unit(path, "write")
        for text in value.splitlines() if is_keyed(file) else (value,):
            check_text(path, file, text)
        if unit is None or is_command(file):  # systemd has no property for a command, and the kernel no value
            await self.files.write(path, file, value)
            return
        before = self.files.read(path, {file, *files_beside(file, self.version), _RESET_BY_SYSTEMD})
        if before is None:
            raise CgroupGoneError("write", f"{path}/{file}", value, errno.ENOENT)
        new = self._properties(path, file, value, before)
        if new:
            await self._set_properties(path, unit, new, f"{file}={value}")
        try:
            await self.files.write(path, file, value)
        except CgroupError:
            if new and file in before.files:
                old = self._properties(path, file, before.files[file], before)
                await self._set_properties(path, unit, old, f"{file} as it was")
            raise
        finally:
            if new and before.files.get(_RESET_BY_SYSTEMD) == "1":
                await self.files.write(path, _RESET_BY_SYSTEMD, "1")

    def _properties(self, path: str, file: str, value: str, before: ObservedCgroup) -> tuple[Property, ...]:
        try:
            return properties(file, value, self.version, before.files, device_path)
        except InvalidNameError as problem:
            raise CgroupError("refuse", f"{path}/{file}", value, errno.EINVAL, str(problem)) from problem

    async def _set_properties(self, path: str, unit: Unit, values: tuple[Property, ...], what: str) -> None:
        pairs = [[value.name, Variant(value.signature, value.value)] for value in values]
        try:
            await self.bus.call("SetUnitProperties", "sba(sv)", [unit.name, True, pairs])
            # systemd replies first and writes the files when it is idle; the reply to a second call comes only after
            # that. Without it, the late write could overwrite the one that follows here.
            await self.bus.call("GetUnit", "s", [unit.name])
        except (SystemdError, BusLostError) as error:
            raise _failed("set", path, what, error) from error

    async def remove(self, path: str) -> None:
        unit = _unit(path, "remove")
        if unit is None:
            await self.files.remove(path)
            return
        unit = _own_unit(path, "remove")
        await self._remove_ended_scopes(path)
        if self.files.children(path) or self.files.members(path):
            raise CgroupError("remove", path, "", errno.EBUSY, "it has processes or cgroups in it")
        exists = self.files.read(path, ()) is not None
        await self._stop(path, unit)
        if not exists:
            raise CgroupGoneError("remove", path, "", errno.ENOENT)

    async def _remove_ended_scopes(self, path: str) -> None:
        """On v1, systemd tries to remove each directory of an ended scope only once, which may be too early."""
        for name in self.files.children(path):
            child = f"{path}/{name}"
            if name.endswith(".scope") and not self.files.members(child, deep=True):
                with contextlib.suppress(CgroupGoneError):
                    await self.files.remove(child)

    async def _stop(self, path: str, unit: Unit) -> None:
        """Stop the unit, reset its failed state, and remove the directories that systemd left."""
        try:
            result = await self.bus.job("StopUnit", "ss", [unit.name, "replace"], JOB_S)
            if result != "done":
                raise CgroupError("remove", path, "", errno.EIO, f"systemd's job to stop {unit.name} ended: {result}")
            await self.bus.call("ResetFailedUnit", "s", [unit.name])
        except (SystemdError, BusLostError) as error:
            if _errno(error) != errno.ENOENT:  # systemd has removed a scope without processes
                raise _failed("remove", path, "", error) from error
        with contextlib.suppress(CgroupGoneError):
            await self.files.remove(path)

    async def move(self, path: str, pid: int) -> None:
        unit = _unit(path, "move")
        if unit is not None and unit.is_scope:
            try:
                await self.bus.call("AttachProcessesToUnit", "ssau", [unit.name, "", [pid]])
            except (SystemdError, BusLostError) as error:
                # Before systemd 235, only the file can be written.
                if isinstance(error, BusLostError) or error.name != _UNKNOWN_METHOD:
                    raise _failed("move", path, str(pid), error) from error
        await self.files.move(path, pid)

    async def freeze(self, path: str, *, frozen: bool) -> None:
        _own_unit_or_below(path, "freeze" if frozen else "thaw")
        await self.files.freeze(path, frozen=frozen)

    async def kill(self, path: str) -> None:
        _own_unit_or_below(path, "kill")
        await self.files.kill(path)


def _unit(path: str, op: str) -> Unit | None:
    """Validates the path before anything is changed."""
    try:
        components(path)
        return unit_of(path)
    except InvalidNameError as problem:
        raise CgroupError(op, path, "", errno.EINVAL, str(problem)) from problem


def _own_unit_or_below(path: str, op: str) -> Unit | None:
    unit = _unit(path, op)
    if unit is not None and unit.is_machines_own:
        raise CgroupError(op, path, "", errno.EPERM, f"{unit.name} belongs to the machine: plimsoll does not {op} it")
    return unit


def _own_unit(path: str, op: str) -> Unit:
    unit = _own_unit_or_below(path, op)
    if unit is None:
        raise CgroupError(op, path, "", errno.EINVAL, "below a scope there are no units")
    return unit


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _errno(error: SystemdError | BusLostError) -> int:
    return errno.ETIMEDOUT if isinstance(error, BusLostError) else _ERRNO.get(error.name, errno.EIO)


def _failed(op: str, path: str, data: str, error: SystemdError | BusLostError) -> CgroupError:
    number = _errno(error)
    kind = CgroupGoneError if number == errno.ENOENT else CgroupError
    return kind(op, path, data, number, str(error) if isinstance(error, BusLostError) else f"systemd: {error}")
