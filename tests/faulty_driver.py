"""A wrapper for any cgroup driver that counts changes, fails one operation or kills the process, and observes each step.

The same scenarios run on the simulated kernel and on real ones. An operation is `make`, `write` or `remove`; the first
is number 1. A kill is a BaseException that only the test catches; the test then continues as a new process would, with
nothing but the state directory and the kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from plimsoll.cgroups.drivers.interface import CgroupDriver, CgroupError
from plimsoll.rules.cgroups.steps import Make, ObservedCgroup, Remove, Step, Write
from plimsoll.rules.model.cgroup_names import Driver as DriverName
from plimsoll.rules.model.kernel import CgroupVersion


class Killed(BaseException):
    """kill −9."""


class FaultyDriver:
    def __init__(self, inner: CgroupDriver, *, after_each: Callable[[Step], None] | None = None) -> None:
        self.inner = inner
        self.version: CgroupVersion = inner.version
        self.name: DriverName = inner.name
        self.simulated = inner.simulated
        self.after_each = after_each
        self.fail_at: dict[int, int] = {}  # number of the operation → errno
        self.die_before: int | None = None
        self.die_after: int | None = None
        self.made: list[Step] = []  # every requested step, also those that failed

    # Reading

    def read(self, path: str, files: Iterable[str]) -> ObservedCgroup | None:
        return self.inner.read(path, files)

    def texts(self, path: str, files: Iterable[str]) -> Mapping[str, str] | None:
        return self.inner.texts(path, files)

    def children(self, path: str) -> list[str]:
        return self.inner.children(path)

    def members(self, path: str, *, deep: bool = False) -> list[int]:
        return self.inner.members(path, deep=deep)

    def incomplete(self, path: str) -> list[str]:
        return self.inner.incomplete(path)

    def has(self, file: str) -> str | None:
        return self.inner.has(file)

    # Changing

    def mark(self, path: str, text: str) -> None:
        self.inner.mark(path, text)

    def marked(self, path: str) -> str:
        return self.inner.marked(path)

    async def make(self, path: str, *, pid: int | None = None) -> None:
        self._before(Make(path))
        await self.inner.make(path, pid=pid)
        self._after(Make(path))

    async def write(self, path: str, file: str, value: str) -> None:
        step = Write(path, file, value)
        self._before(step)
        await self.inner.write(path, file, value)
        self._after(step)

    async def remove(self, path: str) -> None:
        self._before(Remove(path))
        try:
            await self.inner.remove(path)
        finally:  # systemd may have removed a scope
            self._after(Remove(path))

    async def move(self, path: str, pid: int) -> None:
        await self.inner.move(path, pid)

    async def freeze(self, path: str, *, frozen: bool) -> None:
        await self.inner.freeze(path, frozen=frozen)

    async def kill(self, path: str) -> None:
        await self.inner.kill(path)

    def _before(self, step: Step) -> None:
        self.made.append(step)
        number = len(self.made)
        if number in self.fail_at:
            data = step.value if isinstance(step, Write) else ""
            raise CgroupError(type(step).__name__.lower(), step.path, data, self.fail_at[number], "made to fail")
        if self.die_before == number:
            raise Killed

    def _after(self, step: Step) -> None:
        if self.after_each is not None:
            self.after_each(step)
        if self.die_after == len(self.made):
            raise Killed
