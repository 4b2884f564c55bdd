"""A transaction on the node's cgroups: lock, recover, plan the difference, apply it, save the state.

`CgroupManager` has the verbs and works on the transaction that `Transaction.begin` yields. A transaction that ends with
an error leaves the state file as it was.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Self

import msgspec

from plimsoll.cgroups.drivers.interface import CgroupDriver, CgroupError
from plimsoll.cgroups.engine import ownership
from plimsoll.cgroups.engine.desired import Containers, DesiredState
from plimsoll.cgroups.engine.executor import ExecutionOutcome, Executor, Holders, LowerLimit, StepError
from plimsoll.cgroups.engine.journal import Begin, Journal
from plimsoll.cgroups.engine.observe import every_file, files_to_read, observe, observe_removed, walk
from plimsoll.cgroups.engine.shrink import usage_bytes
from plimsoll.errors import PlimsollError, StructuredError
from plimsoll.rules.cgroups.cgroup_owner import owner_of
from plimsoll.rules.cgroups.desired_files import DesiredCgroup, DesiredFiles, parent_path, protected
from plimsoll.rules.cgroups.limits_in_use import UPPER, capped_protection, fitted
from plimsoll.rules.cgroups.reconcile import MEMORY_LIMITS, Plan, Unmet, reconcile
from plimsoll.rules.cgroups.steps import Snapshot, Step, Write
from plimsoll.rules.model.cgroup_names import KUBEPODS
from plimsoll.rules.model.objects import Pod
from plimsoll.rules.node.node_config import NodeConfig


class MissingCgroupError(StructuredError):
    """A reserved cgroup must exist before its values can be enforced (01 §10.4)."""

    path: str
    name: str
    missing: Sequence[str] = ()  # v1: its directories that do not exist, where others do

    def __str__(self) -> str:
        if not self.missing:
            lack, advice = "does not exist", "create it"
        else:
            lack, advice = "exists in some hierarchies only", f"create it there too (mkdir {' '.join(self.missing)})"
        return f"{self.path} {lack}, but {self.name} is enforced on it: {advice}, or change enforceNodeAllocatable"


class Applied(msgspec.Struct, frozen=True):
    subject: str
    steps: tuple[Step, ...] = ()
    unmet: tuple[Unmet, ...] = ()


class Planned(msgspec.Struct, frozen=True):
    """A plan, with the desired cgroups and the snapshot that it was computed from."""

    plan: Plan
    desired: DesiredFiles
    snapshot: Snapshot


RepairPlan = Callable[[Plan, DesiredFiles], Plan]


class Transaction:
    """Reusable: at most one is open at a time in this process (`_lock`) and on this machine (the journal's lock)."""

    def __init__(
        self,
        driver: CgroupDriver,
        node_config: NodeConfig,
        state_dir: Path,
        *,
        lower: LowerLimit,
        lower_only_on_rollback: bool,
        holders: Holders | None,
        proc: Path,
    ) -> None:
        self._driver = driver
        self._desired = DesiredState(node_config)
        self._page_size = node_config.machine.page_size
        self._io = node_config.policy.io is not None
        self._is_at_the_top = node_config.pods_root == (KUBEPODS,)
        self._proc = proc
        self._state_dir = state_dir
        boot_id = ownership.this_boot(proc)
        self._journal = Journal(state_dir / "journal.jsonl")
        self._file = ownership.StateFile(state_dir / "node.jsonl", boot_id)
        self._state = ownership.NodeState(boot_id)
        self._lock = asyncio.Lock()
        self._missing_files: dict[str, str] = {}  # file → reason, for files whose absence only a write revealed
        self._present_files: set[str] = set()
        self._executor = Executor(
            driver,
            self._journal,
            boot_id=boot_id,
            save_inodes=self._save_inodes,
            page_size=self._page_size,
            lower=lower,
            lower_only_on_rollback=lower_only_on_rollback,
            may_lower=self._belongs_to_pod,
            holders=holders,
        )

    @contextlib.asynccontextmanager
    async def begin(self) -> AsyncIterator[Self]:
        """Lock the state, read it, and roll back what an interrupted run left."""
        async with self._lock:
            with self._journal.locked():
                self.read()
                await self._executor.recover(self._state.committed)
                yield self

    def read(self) -> Self:
        """The current state without the lock: for status and dry runs."""
        self._state = self._file.load()
        return self

    @property
    def pods(self) -> Mapping[str, ownership.KnownPod]:
        """The pods that have cgroups here, by uid."""
        return self._state.pods

    def save_pods(self, pods: Mapping[str, ownership.KnownPod]) -> None:
        self._save(msgspec.structs.replace(self._state, pods=dict(pods)))

    def _save(self, state: ownership.NodeState) -> None:
        self._file.save(state)
        self._state = state

    def is_locked(self) -> bool:
        """Whether a transaction is open in any process."""
        return self._journal.is_locked()

    def unfinished(self) -> Begin | None:
        """The plan of this boot that an interrupted run left, or that another process is applying now."""
        entry = self._journal.unfinished()
        if entry is None or entry.number == self._state.committed or entry.boot_id != self._state.boot_id:
            return None
        return entry

    # --- plan ---

    def known_pods(
        self, pods: Iterable[Pod], containers: Containers | None, *, keep_overrides: bool = False
    ) -> dict[str, ownership.KnownPod]:
        return self._desired.known_pods(pods, containers, self._state.pods if keep_overrides else None)

    def pod_paths(self, known: ownership.KnownPod) -> dict[str, str]:
        """container name → path of its cgroup; "" → the pod's own."""
        return self._desired.pod_paths(known)

    def upper_paths(self) -> dict[str, str]:
        """path → level of the cgroups that belong to no pod."""
        return {path: cgroup.level for path, cgroup in self._desired.cgroups({}).items()}

    def forget(self, uids: Iterable[str]) -> None:
        """Drop what was computed for these pods."""
        self._desired.forget(uids)

    def plan(
        self,
        pods: Mapping[str, ownership.KnownPod],
        only: Collection[str] | None = None,
        removed: Collection[str] = (),
        repairs: RepairPlan | None = None,
    ) -> Planned:
        """`only`: uids of the pods whose own cgroups are read; None for all. `removed`: cgroups to remove. `repairs`:
        which part of the plan is a repair."""
        plain = self._desired.cgroups(pods, only)
        of_removed = every_file(self._driver.version) if removed else ()
        files = sorted({*files_to_read(plain, self._driver.version, io=self._io), *of_removed})
        snapshot = {**observe(self._driver, plain, files), **observe_removed(self._driver, removed, files)}
        own_roots = {
            path
            for path, cgroup in plain.items()
            if cgroup.level == "root"
            and (path not in snapshot or ownership.is_owned(self._state, path, snapshot[path].inode))
        }
        full = protected(plain, own_roots)
        upper = [path for path, cgroup in full.items() if cgroup.level in UPPER and path in snapshot]
        usage = {path: usage_bytes(self._driver, path) for path in upper}
        fits = fitted(full, snapshot, usage, self._page_size)
        lacking = self._lacking(files)
        plan = reconcile(fits.plan, snapshot, ours=removed, lacking=lacking, page_size=self._page_size)
        unmet = (*plan.unmet, *fits.unmet, *capped_protection(full, snapshot, own_roots))
        every = Plan(plan.steps, unmet)
        return Planned(every if repairs is None else repairs(every, fits.plan), fits.plan, snapshot)

    def plan_resize(self, pods: Mapping[str, ownership.KnownPod], before: ownership.KnownPod) -> Planned:
        """`plan` for one pod with a new size; reads only the cgroups whose values depend on that size."""
        above = self._desired.changed_above(before, pods)
        if above is None:
            return self.plan(pods, {before.uid})
        desired = {**above, **self._desired.pod_cgroups(pods[before.uid])}
        files = files_to_read(desired, self._driver.version, io=self._io)
        snapshot = observe(self._driver, desired, files)
        plan = reconcile(desired, snapshot, lacking=self._lacking(files), page_size=self._page_size)
        return Planned(plan, desired, snapshot)

    def plan_teardown(self, removed: Collection[str]) -> Planned:
        """Remove these cgroups and restore the values that were changed in reserved cgroups."""
        driver, state = self._driver, self._state
        reserved = {path: DesiredCgroup("reserved", path, files) for path, files in state.original.items()}
        desired_files = files_to_read({**reserved, **self._desired.cgroups(state.pods)}, driver.version, io=self._io)
        files = sorted({*desired_files, *every_file(driver.version)})
        snapshot = {**observe_removed(driver, removed, files), **observe(driver, reserved, files)}
        present = {path: cgroup for path, cgroup in reserved.items() if path in snapshot}
        return Planned(reconcile(present, snapshot, ours=removed, page_size=self._page_size), present, snapshot)

    def _lacking(self, files: Iterable[str]) -> dict[str, str]:
        """file → reason, for the files that this kernel does not have."""
        return {file: reason for file in files if (reason := self._missing_files.get(file) or self._why_missing(file))}

    def _why_missing(self, file: str) -> str | None:
        """A file that was present once is not checked again; if it is missing after all, its write is refused."""
        if file in self._present_files:
            return None
        reason = self._driver.has(file)
        if reason is None:
            self._present_files.add(file)
        return reason

    # --- ownership ---

    def validate(self, planned: Planned) -> None:
        """Raise where an existing cgroup is not owned by this node, or a required one does not exist."""
        if self._is_at_the_top and not self._driver.simulated and (pid := ownership.running_kubelet(self._proc)):
            raise ownership.KubeletRunningError(pid)
        self._validate_node(planned.desired)
        for path, cgroup in planned.desired.items():
            observed = planned.snapshot.get(path)
            if observed is None:
                if cgroup.level == "reserved":
                    raise MissingCgroupError(path, cgroup.name, self._driver.incomplete(path))
            elif cgroup.level in ("pods", "class", "pod") and not ownership.is_owned(self._state, path, observed.inode):
                owner = self._driver.marked(path)
                raise ownership.OtherStateError(path, owner) if owner else ownership.ForeignTreeError(path)

    def _validate_node(self, desired: DesiredFiles) -> None:
        """A state file belongs to one node: its pods say nothing about cgroups at another path."""
        top = next((path for path, cgroup in desired.items() if cgroup.level == "pods"), None)
        if top is None or top in self._state.owned:
            return
        others = {path for path, owned in self._state.owned.items() if owned.level == "pods"}
        if existing := others and self.owned(others):
            raise ownership.OtherNodeError(self._state_dir, existing[0], top)

    def owned(self, among: Collection[str] | None = None) -> list[str]:
        """Every cgroup (of `among`) that this node created and that still has the same inode, parents first."""
        owned = self._state.owned if among is None else self._state.owned.keys() & among
        cgroups = observe(self._driver, owned, ())
        return sorted(path for path, cgroup in cgroups.items() if ownership.is_owned(self._state, path, cgroup.inode))

    def with_descendants(self, paths: Iterable[str]) -> list[str]:
        """These cgroups and all that must be removed with them: a pod's processes may have made cgroups of their own.

        Raises ForeignTreeError for a cgroup below kubepods or a QoS class that this node did not create.
        """
        tree = dict.fromkeys(paths)
        for path in tuple(tree):
            is_pods = self._state.owned[path].level in ("pod", "container")
            for name in self._driver.children(path):
                child = f"{path}/{name}"
                if not is_pods and child in tree:
                    continue
                if not is_pods and not self._is_partly_removed(child):
                    raise ownership.ForeignTreeError(child)
                tree.update(dict.fromkeys((child, *walk(self._driver, child))))
        return list(tree)

    def obsolete(self, before: Iterable[str], pods: Mapping[str, ownership.KnownPod]) -> list[str]:
        """Owned cgroups that these known pods have now and do not have in `pods`, with their descendants."""
        now = [self._state.pods[uid] for uid in before if uid in self._state.pods]
        next_ = [pods[known.uid] for known in now if known.uid in pods]
        paths = {path for known in now for path in self.pod_paths(known).values()}
        paths -= {path for known in next_ for path in self.pod_paths(known).values()}
        return self.with_descendants(self.owned(paths))

    def unowned_pods(self) -> list[str]:
        """Pod cgroups below owned QoS classes that this node did not create."""
        classes = [path for path, owned in self._state.owned.items() if owned.level in ("pods", "class")]
        children = [f"{path}/{name}" for path in self.owned(classes) for name in self._driver.children(path)]
        return [path for path in children if path not in self._state.owned and owner_of(path).kind == "pod"]

    def _is_partly_removed(self, path: str) -> bool:
        """An owned pod cgroup whose removal was interrupted: on v1 some hierarchies still have it."""
        owned = self._state.owned.get(path)
        return owned is not None and owned.level == "pod" and self._driver.read(path, ()) is None

    def _belongs_to_pod(self, path: str) -> bool:
        """A pod's or a container's cgroup, including one that a runtime created."""
        owned, above = self._state.owned.get(path), self._state.owned.get(parent_path(path))
        return owned.level in ("pod", "container") if owned is not None else above is not None and above.level == "pod"

    # --- apply ---

    async def apply(
        self,
        subject: str,
        pods: Mapping[str, ownership.KnownPod],
        *,
        only: Collection[str] | None = None,
        removed: Collection[str] = (),
        pids: Mapping[str, int] | None = None,
        by_container: bool = False,
        planned: Planned | None = None,
        repairs: RepairPlan | None = None,
    ) -> Applied:
        """`planned`: a plan that is validated already; otherwise one is computed."""
        may_fit = True
        while True:
            if planned is None:
                planned = self.plan(pods, only, removed, repairs)
                self.validate(planned)
            containers = [path for path, cgroup in planned.desired.items() if cgroup.level == "container"]
            try:
                after = self._state_after(pods, planned)
                return await self._execute(subject, planned, after, pids, containers if by_container else ())
            except StepError as error:
                step, level = error.step, getattr(planned.desired.get(error.step.path), "level", "")
                if error.left:
                    raise
                if error.lacks_file and isinstance(step, Write) and step.file not in self._missing_files:
                    self._missing_files[step.file] = str(error.cause)
                elif may_fit and level in UPPER and _is_in_use(step, error.cause):
                    may_fit = False  # usage has grown since it was read: plan once more with the new usage (02 §8.5)
                else:
                    raise
                planned = None

    async def apply_exactly(self, subject: str, pods: Mapping[str, ownership.KnownPod]) -> Applied:
        """`apply`, and remove every owned cgroup that none of these pods has."""
        desired = self._desired.cgroups(pods)
        removed = self.with_descendants(path for path in self.owned() if path not in desired)
        return await self.apply(subject, pods, removed=removed)

    async def teardown(self, subject: str, removed: Collection[str]) -> Applied:
        empty = ownership.NodeState(self._state.boot_id, self._state.committed)
        return await self._execute(subject, self.plan_teardown(removed), empty)

    def owned_tree(self) -> list[str]:
        """Everything that a teardown removes."""
        self._validate_node(self._desired.cgroups({}))
        return self.with_descendants(self.owned())

    def _state_after(self, pods: Mapping[str, ownership.KnownPod], planned: Planned) -> ownership.NodeState:
        """The state once the plan is applied: the pods, and the original values of reserved cgroups."""
        original = {path: dict(files) for path, files in self._state.original.items()}
        reserved = {path for path, cgroup in planned.desired.items() if cgroup.level == "reserved"}
        for step in planned.plan.steps:
            if isinstance(step, Write) and step.was is not None and step.path in reserved:
                original.setdefault(step.path, {}).setdefault(step.file, step.was)
        return msgspec.structs.replace(self._state, pods=dict(pods), original=original)

    async def _execute(
        self,
        subject: str,
        planned: Planned,
        after: ownership.NodeState,
        pids: Mapping[str, int] | None = None,
        containers: Sequence[str] = (),
    ) -> Applied:
        def commit(outcome: ExecutionOutcome) -> None:
            owned = after.owned
            if outcome.made or outcome.removed:
                owned = {path: cgroup for path, cgroup in owned.items() if path not in outcome.removed}
                levels = {path: planned.desired[path].level for path in outcome.made}
                owned |= {path: ownership.OwnedCgroup(inode, levels[path]) for path, inode in outcome.made.items()}
            self._save(msgspec.structs.replace(after, committed=outcome.number, owned=owned))
            for path in outcome.made:
                if owned[path].level == "pods":
                    self._driver.mark(path, str(self._state_dir.parent))  # what --state-dir names

        steps, number = planned.plan.steps, self._state.committed
        if steps:
            if after.original and after.original != self._state.original:  # save them before they are overwritten
                self._save(msgspec.structs.replace(self._state, original=after.original))
            await self._executor.run(
                subject, steps, planned.snapshot, commit, pids=pids, containers=containers, after=number
            )
        elif after != self._state:
            self._save(after)
        return Applied(subject, steps, planned.plan.unmet)

    def _save_inodes(self, inodes: Mapping[str, int]) -> None:
        """After a rollback: cgroups that were created again are owned under their new inode."""
        owned = self._state.owned
        levels = {path: owned[path].level if path in owned else "" for path in inodes}
        now = {path: ownership.OwnedCgroup(inode, levels[path]) for path, inode in inodes.items()}
        if any(owned.get(path) != cgroup for path, cgroup in now.items()):
            self._save(msgspec.structs.replace(self._state, owned=owned | now))


def _is_in_use(step: Step, cause: PlimsollError) -> bool:
    is_limit = isinstance(step, Write) and step.file in MEMORY_LIMITS
    return is_limit and isinstance(cause, CgroupError) and cause.errno == errno.EBUSY
