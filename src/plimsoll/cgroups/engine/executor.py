"""Apply the steps of a plan on a driver, all or nothing.

A plan is recorded in the journal, then applied step by step. When a step is refused, all steps are rolled back, and
`StepError` reports the step, the reason, and what could not be rolled back. The plan counts as applied once the caller
has saved the result (`commit`); a process that dies before that leaves an unfinished plan, which `recover` rolls back.
A cancelled plan (Ctrl-C) is rolled back as well; the current step is completed first, so that its result is known.

A resize is all or nothing for each container: containers that are done stay so (03 §10).
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
from plimsoll.errors import StructuredError
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


class StepError(StructuredError):
    """`left`: the steps that could not be rolled back, each with the reason."""

    subject: str
    step: Step
    cause: CgroupError | ShrinkError
    left: Sequence[tuple[Step, str]] = ()
    done: Collection[str] = ()  # of a resize: the containers that have their new values
    lacks_file: bool = False  # the kernel does not have the file, which only the write revealed

    def __str__(self) -> str:
        if self.left:
            rest = "; ".join(f"{step_text(step)}: {reason}" for step, reason in self.left)
            after = f"not everything could be rolled back: {rest}; the next start tries again"
        elif self.done:
            after = f"{len(self.done)} of its containers keep their new values, the rest was rolled back"
        else:
            is_lowered = isinstance(self.cause, ShrinkError) and self.cause.lowered_to is not None
            after = "the rest was rolled back" if is_lowered else "everything was rolled back"
        return f"{self.subject}: {step_text(self.step)} was refused: {self.cause}; {after}"


class RecoveryError(StructuredError):
    """An earlier run was interrupted, and its plan could not be rolled back."""

    subject: str
    left: Sequence[tuple[Step, str]]

    def __str__(self) -> str:
        rest = "; ".join(f"{step_text(step)}: {reason}" for step, reason in self.left)
        return f"an earlier run of {self.subject} was interrupted and could not be rolled back: {rest}; then try again"


class ExecutionOutcome(msgspec.Struct, frozen=True):
    number: int  # of the plan in the journal
    made: dict[str, int]  # path → inode
    removed: tuple[str, ...]


class LowerLimit(Protocol):
    async def __call__(self, path: str, file: str, value: str) -> None:
        """Lower a memory limit in a cgroup with processes; raises ShrinkError where it cannot be lowered so far."""


class Holders(Protocol):
    """Placeholder processes for systemd scopes, which exist only while they have a process."""

    def start(self, path: str) -> int: ...

    def end(self, pid: int, path: str) -> object: ...

    def scope_of(self, pid: int) -> str | None: ...


Commit = Callable[[ExecutionOutcome], None]
SaveInodes = Callable[[Mapping[str, int]], None]


class Executor:
    def __init__(
        self,
        driver: CgroupDriver,
        journal: Journal,
        *,
        boot_id: str,
        save_inodes: SaveInodes,
        page_size: int = 4096,
        lower: LowerLimit | None = None,
        lower_only_on_rollback: bool = False,
        may_lower: Callable[[str], bool] = lambda _path: True,
        holders: Holders | None = None,
    ) -> None:
        """`save_inodes` gets path and inode of the owned cgroups that exist after a rollback.

        `may_lower`: the cgroups in which `lower` sets lower memory limits; never one that may contain this process.
        With `lower_only_on_rollback` a plan writes them directly, but a rollback still kills no process.
        """
        self._driver = driver
        self._journal = journal
        self._boot_id = boot_id
        self._save_inodes = save_inodes
        self._page_size = page_size
        self._lower = lower
        self._lower_only_on_rollback = lower_only_on_rollback
        self._may_lower = may_lower
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
        """`pids`: the first process of a new systemd scope, instead of a holder. `containers`: those of a resize."""
        removed = {step.path: before[step.path] for step in steps if isinstance(step, Remove)}
        entry = self._journal.begin(subject, self._boot_id, steps, removed, containers, after=after)
        for step in steps:
            try:
                await self._complete(step, pids or {})
            except asyncio.CancelledError:
                await self._roll_back(entry, steps)
                raise
            except (CgroupError, ShrinkError) as error:
                if isinstance(error, CgroupGoneError) and isinstance(step, Write) and step.path in removed:
                    continue  # it was to be removed, and is removed already
                foreign = isinstance(step, Make) and isinstance(error, CgroupError) and error.errno == errno.EEXIST
                lacks_file = self._lacks(step, error)
                own_steps = [other for other in steps if not foreign or other.path != step.path]
                lowered = step if isinstance(error, ShrinkError) and error.lowered_to is not None else None
                left = await self._roll_back(entry, own_steps, lowered)
                now = observe_touched(self._driver, steps)
                done = completed(steps, containers, now, self._page_size)
                raise StepError(subject, step, error, left, done, lacks_file) from error
        outcome = ExecutionOutcome(entry.number, self._inodes(steps), tuple(removed))
        try:
            commit(outcome)
        except StateWriteError:
            # A new cgroup that the state does not list would be foreign to the next run. A removed one stays removed
            # until `recover`, which can save the inode of the cgroup that it creates in its place.
            if not outcome.removed:
                await self._roll_back(entry, steps)
            raise
        self._journal.end(entry, "made")
        return outcome

    async def recover(self, committed: int) -> Begin | None:
        """Finish the plan of an interrupted run; `committed` is the last plan whose result was saved."""
        entry = self._journal.unfinished()
        if entry is None:
            return None
        if entry.number == committed:
            self._journal.end(entry, "made")
        elif entry.boot_id != self._boot_id:  # cgroups do not outlive a boot
            self._journal.end(entry, "void")
        elif left := await self._roll_back(entry, entry.steps):
            # A raised limit that is in use by now cannot be lowered again; the next plan starts from what exists.
            if not all(isinstance(step, Write) and step.file in MEMORY_LIMITS for step, _ in left):
                raise RecoveryError(entry.subject, left)
            self._journal.end(entry, "void")
        return entry

    async def _roll_back(
        self, entry: Begin, steps: Sequence[Step], lowered: Step | None = None
    ) -> list[tuple[Step, str]]:
        """`lowered`: the write of a memory limit that stays as low as the usage allowed."""
        now = observe_touched(self._driver, steps)
        if entry.containers:
            back = undo_halves(steps, entry.containers, entry.before, now, self._page_size)
        else:
            back = undo(steps, entry.before, {**_possibly_made(steps), **now}, self._page_size)
        left: list[tuple[Step, str]] = []
        for step in back:
            if isinstance(lowered, Write) and isinstance(step, Write) and _same_file(step, lowered):
                continue
            try:
                await self._do(step, {}, rollback=True)
            except CgroupGoneError:
                continue
            except (CgroupError, ShrinkError) as error:
                left.append((step, str(error)))
        self._save_inodes(self._inodes((*steps, *back)))
        if not left:
            self._journal.end(entry, "undone")
        return left

    async def _complete(self, step: Step, pids: Mapping[str, int]) -> None:
        """Apply one step; a cancellation waits until it is complete."""
        if isinstance(step, Write) and self._is_immediate(step):
            await self._driver.write(step.path, step.file, step.value)
            return
        task = asyncio.ensure_future(self._do(step, pids))
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait([task])
            task.exception()  # retrieved only: the rollback reads what the step has changed
            raise

    async def _do(self, step: Step, pids: Mapping[str, int], *, rollback: bool = False) -> None:
        match step:
            case Make(path):
                await self._make(path, pids.get(path))
            case Remove(path):
                with contextlib.suppress(CgroupGoneError):
                    if self._driver.members(path):  # a cgroup with processes cannot be removed
                        await self._driver.kill(path)
                    await self._driver.remove(path)
            case Write(path, file, value):
                if (lower := self._lowering(step, rollback=rollback)) is not None:
                    await lower(path, file, value)
                else:
                    await self._driver.write(path, file, value)

    def _is_immediate(self, step: Write) -> bool:
        """The write does not suspend, so that it cannot be cancelled half-way. A cgroup that this plan has made has no
        memory to reclaim."""
        is_plain = self._driver.name == "cgroupfs" and (step.was is None or not is_slow(step.file))
        return is_plain and self._lowering(step, rollback=False) is None

    def _lowering(self, step: Write, *, rollback: bool) -> LowerLimit | None:
        """The function that lowers this memory limit; None where a plain write does."""
        lower = self._lower if rollback or not self._lower_only_on_rollback else None
        if lower is None or step.was is None or step.file not in MEMORY_LIMITS:
            return None
        old, new = (amount(step.file, value, self._page_size) for value in (step.was, step.value))
        is_used = new < old and self._may_lower(step.path) and self._driver.members(step.path, deep=True)
        return lower if is_used else None

    async def _make(self, path: str, pid: int | None) -> None:
        if pid is not None or self._holders is None or not path.endswith(SCOPE):
            await self._driver.make(path, pid=pid)
            return
        holder = self._holders.start(path)
        try:
            await self._driver.make(path, pid=holder)
        except CgroupError:
            self._holders.end(holder, path)
            raise

    def _lacks(self, step: Step, error: Exception) -> bool:
        missing = (
            isinstance(error, CgroupError) and error.errno == errno.ENOENT and not isinstance(error, CgroupGoneError)
        )
        if not missing or not isinstance(step, Write):
            return False
        cgroup = self._driver.read(step.path, (step.file,))
        return cgroup is not None and step.file not in cgroup.files

    def _inodes(self, steps: Sequence[Step]) -> dict[str, int]:
        """path → inode of the cgroups that the steps make and that exist."""
        cgroups = {step.path: self._driver.read(step.path, ()) for step in steps if isinstance(step, Make)}
        return {path: cgroup.inode for path, cgroup in cgroups.items() if cgroup is not None}


def _same_file(one: Write, other: Write) -> bool:
    return (one.path, one.file) == (other.path, other.file)


def _possibly_made(steps: Sequence[Step]) -> dict[str, ObservedCgroup]:
    """On v1, a cgroup that exists in some hierarchies only does not read as one, and keeps its parent busy.

    So every cgroup that was to be made is removed; removing one that does not exist does no harm.
    """
    return {step.path: ObservedCgroup({}, 0) for step in steps if isinstance(step, Make)}
