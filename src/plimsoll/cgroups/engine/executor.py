"""Carries steps out on a driver, all or nothing.

A plan is written into the journal, then made step by step. When one is refused, everything goes back the same way and
`StepError` says which step, why, and that nothing is left (or what is). Only when the caller has kept the result
(`commit`) does the plan count as made; a process that dies before leaves an unfinished plan, which `recover` undoes.
Whoever cancels a plan (Ctrl-C) gets it undone as well; the step that was being made is finished first, as nobody could
say otherwise whether it comes true.

A resize is all or nothing for each container by itself: containers that are done stay (spec 03 §10).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

import msgspec

from plimsoll.cgroups.drivers.interface import CgroupDriver, CgroupError, CgroupGoneError
from plimsoll.cgroups.drivers.write import is_slow
from plimsoll.cgroups.engine.journal import Begin, Journal, StateWriteError
from plimsoll.cgroups.engine.observe import observe_touched
from plimsoll.cgroups.engine.shrink import ShrinkError
from plimsoll.errors import PlimsollError
from plimsoll.rules.cgroups.reconcile import MEMORY_LIMITS, amount
from plimsoll.rules.cgroups.rollback import completed, undo, undo_halves
from plimsoll.rules.cgroups.steps import Make, ObservedCgroup, Remove, Snapshot, Step, Write

SCOPE = ".scope"


def step_text(step: Step) -> str:
    """One line for people: `write /kubepods/burstable cpu.weight 73 (was 10)`."""
    match step:
        case Make(path):
            return f"make {path}"
        case Remove(path):
            return f"remove {path}"
        case Write(path, file, value, was):
            return f"write {path} {file} {value}" + ("" if was is None else f" (was {was})")


class StepError(PlimsollError):
    """`left`: what could not be brought back, each with the reason; empty when everything is as it was."""

    def __init__(
        self,
        subject: str,
        step: Step,
        cause: CgroupError | ShrinkError,
        left: Sequence[tuple[Step, str]] = (),
        done: Collection[str] = (),
        lacks_file: bool = False,
    ) -> None:
        super().__init__(subject, step, cause, tuple(left), tuple(done), lacks_file)
        self.subject = subject
        self.step = step
        self.cause = cause
        self.left = tuple(left)
        self.done = tuple(done)  # of a resize: the containers that have their new values
        self.lacks_file = lacks_file  # the kernel does not have it, and only now it could be seen

    def __str__(self) -> str:
        if self.left:
            rest = "; ".join(f"{step_text(step)}: {reason}" for step, reason in self.left)
            after = f"not everything could be undone: {rest}; the next start tries again"
        elif self.done:
            after = f"{len(self.done)} of its containers keep what they have got, the rest was undone"
        else:
            after = "everything was undone"
        return f"{self.subject}: {step_text(self.step)} was refused: {self.cause}; {after}"


class RecoveryError(PlimsollError):
    """An earlier run was killed half-way, and what it has left could not be undone either."""

    def __init__(self, subject: str, left: Sequence[tuple[Step, str]]) -> None:
        super().__init__(subject, tuple(left))
        self.subject = subject
        self.left = tuple(left)

    def __str__(self) -> str:
        rest = "; ".join(f"{step_text(step)}: {reason}" for step, reason in self.left)
        return f"{self.subject} was left unfinished by an earlier run and could not be undone: {rest}; then try again"


class ExecutionOutcome(msgspec.Struct, frozen=True):
    number: int  # of the plan in the journal
    made: dict[str, int]  # path → inode
    removed: tuple[str, ...]


class Lower(Protocol):
    async def __call__(self, path: str, file: str, value: str) -> None:
        """Bring a memory limit down in a cgroup with processes; raises ShrinkRefused with everything as before."""


class Holders(Protocol):
    """Processes for systemd's scopes, which live only as long as one is in them."""

    def start(self, path: str) -> int: ...

    def end(self, pid: int, path: str) -> object: ...

    def held_by(self, pid: int) -> str | None: ...


Commit = Callable[[ExecutionOutcome], None]
Remade = Callable[[Mapping[str, int]], None]


class Executor:
    def __init__(
        self,
        driver: CgroupDriver,
        journal: Journal,
        *,
        boot_id: str,
        remade: Remade,
        page_size: int = 4096,
        lower: Lower | None = None,
        lower_only_back: bool = False,
        is_squeezed: Callable[[str], bool] = lambda _path: True,
        holders: Holders | None = None,
    ) -> None:
        """`remade` is told path and inode of cgroups that stand there after a refusal and are ours.

        `is_squeezed`: in which cgroups `lower` brings memory limits down, never in one that we may be in ourselves;
        with `lower_only_back` the way there is written as it is, but going back still kills nobody.
        """
        self._driver = driver
        self._journal = journal
        self._boot_id = boot_id
        self._remade = remade
        self._page_size = page_size
        self._lower = lower
        self._lower_only_back = lower_only_back
        self._is_squeezed = is_squeezed
        self._holders = holders

    async def run(
        self,
        subject: str,
        steps: Sequence[Step],
        before: Snapshot,
        commit: Commit,
        *,
        pids: Mapping[str, int] | None = None,
        containers: Sequence[str] = (),
        after: int = 0,
    ) -> ExecutionOutcome:
        """`pids`: who goes into a new systemd scope, else a holder. `containers`: of a resize, kept one by one."""
        removed = {step.path: before[step.path] for step in steps if isinstance(step, Remove)}
        entry = self._journal.begin(subject, self._boot_id, steps, removed, containers, after=after)
        for step in steps:
            try:
                await self._whole(step, pids or {})
            except asyncio.CancelledError:
                await self._undo(entry, steps)
                raise
            except (CgroupError, ShrinkError) as error:
                if isinstance(error, CgroupGoneError) and isinstance(step, Write) and step.path in removed:
                    continue  # it was to go, and has gone by itself
                foreign = isinstance(step, Make) and isinstance(error, CgroupError) and error.errno == errno.EEXIST
                lacks_file = self._lacks(step, error)
                left = await self._undo(entry, [each for each in steps if not foreign or each.path != step.path])
                now = observe_touched(self._driver, steps)
                done = completed(steps, containers, now, self._page_size)
                raise StepError(subject, step, error, left, done, lacks_file) from error
        outcome = self._outcome(entry, steps)
        try:
            commit(outcome)
        except StateWriteError:
            # Without its marks nobody would know a new cgroup as ours. One that is gone stays so until `recover`, which
            # can say then that what is made in its place is ours.
            if not outcome.removed:
                await self._undo(entry, steps)
            raise
        self._journal.end(entry, "made")
        return outcome

    async def recover(self, committed: int) -> Begin | None:
        """Deal with what a dead process has left; `committed` is the last plan whose result was kept."""
        entry = self._journal.unfinished()
        if entry is None:
            return None
        if entry.number == committed:
            self._journal.end(entry, "made")
        elif entry.boot_id != self._boot_id:  # cgroups do not outlive a boot
            self._journal.end(entry, "void")
        elif left := await self._undo(entry, entry.steps):
            # A larger limit that is in use by now cannot be taken back; the next plan goes on from what is there.
            if not all(isinstance(step, Write) and step.file in MEMORY_LIMITS for step, _ in left):
                raise RecoveryError(entry.subject, left)
            self._journal.end(entry, "void")
        return entry

    async def _undo(self, entry: Begin, steps: Sequence[Step]) -> list[tuple[Step, str]]:
        now = observe_touched(self._driver, steps)
        if entry.containers:
            back = undo_halves(steps, entry.containers, entry.before, now, self._page_size)
        else:
            back = undo(steps, entry.before, {**_perhaps_begun(steps), **now}, self._page_size)
        left: list[tuple[Step, str]] = []
        for step in back:
            try:
                await self._do(step, {}, back=True)
            except CgroupGoneError:
                continue
            except (CgroupError, ShrinkError) as error:
                left.append((step, str(error)))
        self._remade(self._inodes((*steps, *back)))
        if not left:
            self._journal.end(entry, "undone")
        return left

    async def _whole(self, step: Step, pids: Mapping[str, int]) -> None:
        if isinstance(step, Write) and self._at_once(step):
            await self._driver.write(step.path, step.file, step.value)  # waits for nobody: nothing comes in between
            return
        doing = asyncio.ensure_future(self._do(step, pids))
        try:
            await asyncio.shield(doing)
        except asyncio.CancelledError:
            await asyncio.wait([doing])
            doing.exception()  # it will be seen how far it came
            raise

    async def _do(self, step: Step, pids: Mapping[str, int], *, back: bool = False) -> None:
        match step:
            case Make(path):
                await self._make(path, pids.get(path))
            case Remove(path):
                with contextlib.suppress(CgroupGoneError):
                    if self._driver.members(path):  # whoever is in a cgroup that goes, goes first
                        await self._driver.kill(path)
                    await self._driver.remove(path)
            case Write(path, file, value):
                if (lower := self._lowering(step, back=back)) is not None:
                    await lower(path, file, value)
                else:
                    await self._driver.write(path, file, value)

    def _at_once(self, step: Write) -> bool:
        return self._driver.name == "cgroupfs" and not is_slow(step.file) and self._lowering(step, back=False) is None

    def _lowering(self, step: Write, *, back: bool) -> Lower | None:
        """Who brings this limit down, where it is one that comes down."""
        lower = self._lower if back or not self._lower_only_back else None
        if lower is None or step.was is None or not self._squeezes(step.path, step.file, step.value, step.was):
            return None
        return lower

    async def _make(self, path: str, pid: int | None) -> None:
        if pid is not None or self._holders is None or not path.endswith(SCOPE):
            await self._driver.make(path, pid=pid)
            return
        held = self._holders.start(path)
        try:
            await self._driver.make(path, pid=held)
        except CgroupError:
            self._holders.end(held, path)
            raise

    def _lacks(self, step: Step, error: Exception) -> bool:
        missing = (
            isinstance(error, CgroupError) and error.errno == errno.ENOENT and not isinstance(error, CgroupGoneError)
        )
        if not missing or not isinstance(step, Write):
            return False
        seen = self._driver.look(step.path, (step.file,))
        return seen is not None and step.file not in seen.files

    def _squeezes(self, path: str, file: str, value: str, was: str) -> bool:
        lowers = file in MEMORY_LIMITS and amount(file, value, self._page_size) < amount(file, was, self._page_size)
        return lowers and self._is_squeezed(path) and bool(self._driver.members(path, deep=True))

    def _outcome(self, entry: Begin, steps: Sequence[Step]) -> ExecutionOutcome:
        removed = tuple(step.path for step in steps if isinstance(step, Remove))
        return ExecutionOutcome(entry.number, self._inodes(steps), removed)

    def _inodes(self, steps: Sequence[Step]) -> dict[str, int]:
        """Of the cgroups that the steps make, as far as they are there."""
        seen = {step.path: self._driver.look(step.path, ()) for step in steps if isinstance(step, Make)}
        return {path: each.inode for path, each in seen.items() if each is not None}


def _perhaps_begun(steps: Sequence[Step]) -> dict[str, ObservedCgroup]:
    """A cgroup that a killed process made in some hierarchies only is not seen as one, and keeps its parent busy.

    So all that were to be made are taken away; one that was never begun is gone, which is as good."""
    return {step.path: ObservedCgroup({}, 0) for step in steps if isinstance(step, Make)}
