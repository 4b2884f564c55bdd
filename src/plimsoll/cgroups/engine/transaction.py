"""One turn at the node's cgroups: the state locked, earlier leftovers dealt with, then plan, make and keep.

`Transactions` knows how; what for is `manager`'s business. A turn that ends by an error leaves the state file as it
was.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from plimsoll.cgroups.drivers.interface import CgroupDriver, CgroupError
from plimsoll.cgroups.engine.desired import DesiredState
from plimsoll.cgroups.engine.executor import ExecutionOutcome, Executor, Holders, Lower, StepError
from plimsoll.cgroups.engine.journal import Begin, Journal
from plimsoll.cgroups.engine.observe import every_file, files_to_look_at, observe, observe_going, walk
from plimsoll.cgroups.engine.ownership import (
    ForeignTreeError,
    KnownPod,
    KubeletRunningError,
    NodeState,
    OtherNodeError,
    OwnedCgroup,
    StateFile,
    is_ours,
    running_kubelet,
    this_boot,
)
from plimsoll.cgroups.engine.shrink import usage_bytes
from plimsoll.errors import PlimsollError
from plimsoll.rules.cgroups.cgroup_owner import owner_of
from plimsoll.rules.cgroups.desired_files import DesiredFiles, parent_path, protected
from plimsoll.rules.cgroups.limits_in_use import UPPER, capped_protection, fitted
from plimsoll.rules.cgroups.reconcile import MEMORY_LIMITS, Plan, Unmet, reconcile
from plimsoll.rules.cgroups.steps import Snapshot, Step, Write
from plimsoll.rules.model.cgroup_names import KUBEPODS
from plimsoll.rules.node.node_config import NodeConfig


class MissingCgroupError(PlimsollError):
    """A reserved cgroup must be there before its values can be enforced (01 §10.4)."""

    def __init__(self, path: str, name: str) -> None:
        super().__init__(path, name)
        self.path, self.name = path, name

    def __str__(self) -> str:
        return (
            f"{self.path} does not exist, but {self.name} is enforced on it: make it, or change enforceNodeAllocatable"
        )


class Applied(msgspec.Struct, frozen=True):
    subject: str
    steps: tuple[Step, ...] = ()
    unmet: tuple[Unmet, ...] = ()


class Planned(msgspec.Struct, frozen=True):
    """A plan with what it was drawn from."""

    plan: Plan
    wanted: DesiredFiles
    snapshot: Snapshot


class Transactions:
    def __init__(
        self,
        driver: CgroupDriver,
        setting: NodeConfig,
        state_dir: Path,
        *,
        lower: Lower,
        lower_only_back: bool,
        holders: Holders | None,
        proc: Path,
    ) -> None:
        self.driver = driver
        self.wants = DesiredState(setting)
        self.page_size = setting.machine.page_size
        self._is_at_the_top = setting.pods_root == (KUBEPODS,)
        self._proc = proc
        self._state_dir = state_dir
        boot_id = this_boot(proc)
        self.journal = Journal(state_dir / "journal.jsonl")
        self._file = StateFile(state_dir / "node.jsonl", boot_id)
        self.state = NodeState(boot_id)
        self._one_at_a_time = asyncio.Lock()
        self._lacking: dict[str, str] = {}  # files that were only found missing when they were written
        self._there: set[str] = set()  # files that this kernel has
        self._executor = Executor(
            driver,
            self.journal,
            boot_id=boot_id,
            remade=self._keep_inodes,
            page_size=self.page_size,
            lower=lower,
            lower_only_back=lower_only_back,
            is_squeezed=self._is_pods,
            holders=holders,
        )

    @contextlib.asynccontextmanager
    async def mine(self) -> AsyncIterator[None]:
        async with self._one_at_a_time:
            with self.journal.locked():
                self.load()
                await self._executor.recover(self.state.committed)
                yield

    def load(self) -> None:
        self.state = self._file.load()

    def save(self, state: NodeState) -> None:
        self._file.save(state)
        self.state = state

    # --- deciding ---

    def draw(
        self, pods: Mapping[str, KnownPod], only: Collection[str] | None = None, gone: Collection[str] = ()
    ) -> Planned:
        """`only`: uids of the pods that are looked at below the classes; None is all. `gone`: cgroups to remove."""
        plain = self.wants.wanted(pods, only)
        files = sorted(
            {*files_to_look_at(plain, self.driver.version), *(every_file(self.driver.version) if gone else ())}
        )
        snapshot = {**observe(self.driver, plain, files), **observe_going(self.driver, gone, files)}
        own_roots = {
            path
            for path, each in plain.items()
            if each.level == "root" and (path not in snapshot or is_ours(self.state, path, snapshot[path].inode))
        }
        full = protected(plain, own_roots)
        upper = [path for path, each in full.items() if each.level in UPPER and path in snapshot]
        fits = fitted(full, snapshot, {path: usage_bytes(self.driver, path) for path in upper}, self.page_size)
        lacking = {file: reason for file in files if (reason := self._lacking.get(file) or self._why_not(file))}
        plan = reconcile(fits.plan, snapshot, ours=gone, lacking=lacking, page_size=self.page_size)
        unmet = (*plan.unmet, *fits.unmet, *capped_protection(full, snapshot, own_roots))
        return Planned(Plan(plan.steps, unmet), fits.plan, snapshot)

    def draw_resize(self, pods: Mapping[str, KnownPod], before: KnownPod) -> Planned:
        """The same for one pod that has another size now. What does not depend on its size is not looked at."""
        above = self.wants.changed_above(before, pods)
        if above is None:
            return self.draw(pods, {before.uid})
        plan = {**above, **self.wants.own(pods[before.uid])}
        files = files_to_look_at(plan, self.driver.version)
        snapshot = observe(self.driver, plan, files)
        lacking = {file: reason for file in files if (reason := self._lacking.get(file) or self._why_not(file))}
        return Planned(reconcile(plan, snapshot, lacking=lacking, page_size=self.page_size), plan, snapshot)

    def _why_not(self, file: str) -> str | None:
        """A kernel that has a file keeps it; should one turn out to be missing after all, a refused step tells."""
        if file in self._there:
            return None
        reason = self.driver.has(file)
        if reason is None:
            self._there.add(file)
        return reason

    def refuse(self, drawn: Planned) -> None:
        """Raises where what is there is not ours to touch, or not there although it must be."""
        if self._is_at_the_top and not self.driver.simulated and (pid := running_kubelet(self._proc)):
            raise KubeletRunningError(pid)
        self.refuse_other_node(drawn.wanted)
        for path, each in drawn.wanted.items():
            seen = drawn.snapshot.get(path)
            if each.level == "reserved" and seen is None:
                raise MissingCgroupError(path, each.name)
            if (
                each.level in ("pods", "class", "pod")
                and seen is not None
                and not is_ours(self.state, path, seen.inode)
            ):
                raise ForeignTreeError(path)

    def refuse_other_node(self, wanted: DesiredFiles) -> None:
        """One state is one node's: what is known of its pods says nothing about cgroups that stand elsewhere."""
        top = next((path for path, each in wanted.items() if each.level == "pods"), None)
        if top is None or top in self.state.made:
            return
        others = {path for path, mark in self.state.made.items() if mark.level == "pods"}
        if there := others and self.marked(others):
            raise OtherNodeError(self._state_dir, there[0], top)

    def unfinished(self) -> Begin | None:
        """What an earlier run of this boot was doing when it died, or another one is doing now."""
        entry = self.journal.unfinished()
        if entry is None or entry.number == self.state.committed or entry.boot_id != self.state.boot_id:
            return None
        return entry

    def marked(self, among: Collection[str] | None = None) -> list[str]:
        """Every cgroup (of these) that we made and that is still the same one, parents first."""
        made = self.state.made if among is None else self.state.made.keys() & among
        seen = {path: self.driver.look(path, ()) for path in made}
        return sorted(path for path, each in seen.items() if each is not None and is_ours(self.state, path, each.inode))

    def with_children(self, paths: Iterable[str]) -> list[str]:
        """What must go when these go: all of a pod's tree, as its processes may have made cgroups of their own.

        Raises ForeignTree where something that we did not make stands below kubepods or a class.
        """
        found = dict.fromkeys(paths)
        for path in tuple(found):
            whole = self.state.made[path].level in ("pod", "container")
            for name in self.driver.children(path):
                below = f"{path}/{name}"
                if not whole and below in found:
                    continue
                if not whole and not self._is_half_gone(below):
                    raise ForeignTreeError(below)
                found.update(dict.fromkeys((below, *walk(self.driver, below))))
        return list(found)

    def unmarked_pods(self) -> list[str]:
        """Pods' cgroups in classes of ours that bear no mark of ours."""
        found = []
        for path in self.marked([path for path, mark in self.state.made.items() if mark.level in ("pods", "class")]):
            below = [f"{path}/{name}" for name in self.driver.children(path)]
            found += [each for each in below if each not in self.state.made and owner_of(each).kind == "pod"]
        return found

    def _is_half_gone(self, path: str) -> bool:
        """A pod's cgroup of ours whose remover was killed: on v1 some hierarchies still have it."""
        mark = self.state.made.get(path)
        return mark is not None and mark.level == "pod" and self.driver.look(path, ()) is None

    # --- doing ---

    async def bring(
        self,
        subject: str,
        pods: Mapping[str, KnownPod],
        *,
        only: Collection[str] | None = None,
        gone: Collection[str] = (),
        pids: Mapping[str, int] | None = None,
        by_container: bool = False,
        drawn: Planned | None = None,
    ) -> Applied:
        """`drawn`: what is to be done, where that is known and was not refused."""
        fits_again = True
        while True:
            if drawn is None:
                drawn = self.draw(pods, only, gone)
                self.refuse(drawn)
            containers = [path for path, each in drawn.wanted.items() if each.level == "container"]
            try:
                return await self.execute(
                    subject, drawn, self._after(pods, drawn), pids=pids, containers=containers if by_container else ()
                )
            except StepError as refused:
                step, level = refused.step, getattr(drawn.wanted.get(refused.step.path), "level", "")
                if refused.left:
                    raise
                if refused.lacks_file and isinstance(step, Write) and step.file not in self._lacking:
                    self._lacking[step.file] = str(refused.cause)
                elif fits_again and level in UPPER and _is_in_use(step, refused.cause):
                    fits_again = False  # usage has grown since we looked: once more with what it is now (02 §8.5)
                else:
                    raise
                drawn = None

    def _after(self, pods: Mapping[str, KnownPod], drawn: Planned) -> NodeState:
        """The state when the plan is made: the pods, and what stood in cgroups that are not ours."""
        kept = {path: dict(files) for path, files in self.state.kept.items()}
        reserved = {path for path, each in drawn.wanted.items() if each.level == "reserved"}
        for step in drawn.plan.steps:
            if isinstance(step, Write) and step.was is not None and step.path in reserved:
                kept.setdefault(step.path, {}).setdefault(step.file, step.was)
        return msgspec.structs.replace(self.state, pods=dict(pods), kept=kept)

    async def execute(
        self,
        subject: str,
        drawn: Planned,
        after: NodeState,
        *,
        pids: Mapping[str, int] | None = None,
        containers: Sequence[str] = (),
    ) -> Applied:
        def commit(outcome: ExecutionOutcome) -> None:
            made = after.made
            if outcome.made or outcome.removed:
                made = {path: mark for path, mark in made.items() if path not in outcome.removed}
                made |= {path: OwnedCgroup(inode, drawn.wanted[path].level) for path, inode in outcome.made.items()}
            self.save(msgspec.structs.replace(after, committed=outcome.number, made=made))

        steps = drawn.plan.steps
        if steps:
            if after.kept and after.kept != self.state.kept:  # before they are written over
                self.save(msgspec.structs.replace(self.state, kept=after.kept))
            number = self.state.committed
            await self._executor.run(
                subject, steps, drawn.snapshot, commit, pids=pids, containers=containers, after=number
            )
        elif after != self.state:
            self.save(after)
        return Applied(subject, steps, drawn.plan.unmet)

    def _is_pods(self, path: str) -> bool:
        """A pod's cgroup or a container's, also one that a runtime made."""
        mark, above = self.state.made.get(path), self.state.made.get(parent_path(path))
        return mark.level in ("pod", "container") if mark is not None else above is not None and above.level == "pod"

    def _keep_inodes(self, inodes: Mapping[str, int]) -> None:
        """After a refusal: what was removed and made anew, or stays, is ours under the inode that it has now."""
        made = self.state.made
        marks = {path: OwnedCgroup(inode, made[path].level if path in made else "") for path, inode in inodes.items()}
        if any(made.get(path) != mark for path, mark in marks.items()):
            self.save(msgspec.structs.replace(self.state, made=made | marks))


def _is_in_use(step: Step, cause: PlimsollError) -> bool:
    is_limit = isinstance(step, Write) and step.file in MEMORY_LIMITS
    return is_limit and isinstance(cause, CgroupError) and cause.errno == errno.EBUSY
