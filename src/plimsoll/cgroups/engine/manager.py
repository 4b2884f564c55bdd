"""The cgroup manager: keeps the cgroups of the whole node as the rules desire them.

Every verb is one transaction: lock the state, roll back what an interrupted run left, compute the desired cgroups,
read the existing ones, plan the difference, apply it, save the result. So the shares, sums and reservations of the
upper cgroups follow at once when a pod is added or removed, a value that another process changed is found, and a
second call writes nothing.

A pod counts as long as it is known (`ownership.NodeState`). A cgroup that this node did not create is never changed or
removed, except for values of the reserved cgroups, which teardown restores.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import msgspec

from plimsoll.cgroups.drivers.interface import CgroupDriver, CgroupGoneError
from plimsoll.cgroups.drivers.simulated import SimulatedHolders, SimulatedKernel
from plimsoll.cgroups.engine import scope_holder
from plimsoll.cgroups.engine.desired import Containers, CpusOf, MemsOf
from plimsoll.cgroups.engine.executor import Holders, StepError
from plimsoll.cgroups.engine.journal import Begin
from plimsoll.cgroups.engine.observe import walk
from plimsoll.cgroups.engine.ownership import ForeignTreeError, KnownPod
from plimsoll.cgroups.engine.shrink import Shrinker, check_as_kubernetes
from plimsoll.cgroups.engine.transaction import Applied, Transaction
from plimsoll.errors import InvalidNameError, PlimsollError, StructuredError
from plimsoll.rules.cgroups.reconcile import Plan, Unmet
from plimsoll.rules.cgroups.repair import Difference, FileOfCgroup, difference_of, differences, repair_plan
from plimsoll.rules.cgroups.shrink import ShrinkPolicy
from plimsoll.rules.cgroups.steps import Make, Step, Write
from plimsoll.rules.model.objects import Pod
from plimsoll.rules.node.node_config import NodeConfig

Shrink = Literal["safe", "kubernetes"]


class StillRunningError(StructuredError):
    pids: Mapping[str, Sequence[int]]

    def __str__(self) -> str:
        running = ", ".join(f"{path} ({len(pids)})" for path, pids in self.pids.items())
        return f"processes are still running in {running}: remove these pods first, or kill them with --kill"


class UnfinishedError(StructuredError):
    subject: str
    template = (
        "an earlier run of {subject} was interrupted; it must be rolled back before a plan can be computed "
        "(plimsoll node status shows it, plimsoll node setup rolls it back)"
    )


class TreeStatus(msgspec.Struct, frozen=True):
    path: str  # of kubepods
    is_set_up: bool
    pods: tuple[str, ...]  # namespace/name of those that have cgroups
    unfinished: Begin | None  # the plan that an interrupted run left
    drift: tuple[Step, ...]  # what the next transaction would do
    unmet: tuple[Unmet, ...]
    in_progress: bool = False  # a transaction is open: `unfinished` is being applied, `drift` may be next
    refusal: str = ""  # why the next transaction would be refused


class Repaired(msgspec.Struct, frozen=True):
    done: tuple[Difference, ...] = ()
    refused: tuple[tuple[Difference, str], ...] = ()  # … with the reason


class CgroupManager:
    def __init__(
        self,
        driver: CgroupDriver,
        node_config: NodeConfig,
        state_dir: Path,
        *,
        shrink: Shrink = "safe",
        shrink_policy: ShrinkPolicy | None = None,
        holders: Holders | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        proc: Path = Path("/proc"),
    ) -> None:
        """`shrink`: how a memory limit is lowered in a cgroup with processes. `holders`: processes for scopes."""
        self._driver = driver
        self._shrink = shrink
        if holders is None and driver.name == "systemd":
            holders = SimulatedHolders(driver) if isinstance(driver, SimulatedKernel) else scope_holder
        self._holders = holders
        self._shrinker = Shrinker(driver, clock=clock, sleep=sleep, policy=shrink_policy)
        self._transaction = Transaction(
            driver,
            node_config,
            state_dir,
            lower=self._shrinker,
            lower_only_on_rollback=shrink == "kubernetes",
            holders=holders,
            proc=proc,
        )

    @property
    def shrinks_safely(self) -> bool:
        return self._shrink == "safe"

    def set_shrink_policy(self, policy: ShrinkPolicy) -> None:
        """When to give up on a memory limit that cannot be lowered."""
        self._shrinker.policy = policy

    async def setup(self, *, pods: bool = True) -> Applied:
        """Create kubepods, the QoS classes, node allocatable and the reserved cgroups; then sync the known pods.

        Without `pods`, the known pods count in the sums and their own cgroups stay unchanged: one pod whose limit
        cannot be lowered must not fail the node.
        """
        async with self._transaction.begin() as transaction:
            return await transaction.apply("node set-up", transaction.pods, only=None if pods else ())

    async def recover(self) -> None:
        """Only roll back what an interrupted run left; every other verb does this first, too."""
        async with self._transaction.begin():
            pass

    async def refresh(self) -> Applied:
        """Sync everything; remove owned pod cgroups that no known pod has."""
        async with self._transaction.begin() as transaction:
            return await transaction.apply_exactly("node refresh", transaction.pods)

    async def apply(self, pods: Iterable[Pod], *, containers: Containers | None = None) -> Applied:
        """Exactly these pods: other known pods are killed and removed."""
        async with self._transaction.begin() as transaction:
            known = transaction.known_pods(pods, containers)
            return await transaction.apply_exactly(_titles(known.values()), known)

    async def add(
        self,
        pods: Iterable[Pod],
        *,
        containers: Containers | None = None,
        pids: Mapping[str, int] | None = None,
        cpus: CpusOf | None = None,
        mems: MemsOf | None = None,
    ) -> Applied:
        """Add these pods to the known ones, or replace those with the same uid.

        `containers`: uid → name → id of the containers that have a cgroup; a pod that is not in it has one for each
        container, with a derived id. `pids`: cgroup path → first process of its systemd scope, instead of a holder.
        `cpus`: the CPUs of the containers of all pods; containers that lose a CPU are moved off it first. `mems`: the
        NUMA nodes that their memory comes from.
        """
        async with self._transaction.begin() as transaction:
            before = transaction.pods
            known = transaction.known_pods(pods, containers, keep_overrides=True)
            every = _in_cpusets({**before, **known}, cpus, mems)
            only = {uid for uid, pod in every.items() if uid in known or pod is not before.get(uid)}
            removed = transaction.obsolete(known, every)
            return await transaction.apply(_titles(known.values()), every, only=only, removed=removed, pids=pids)

    async def pin(self, cpus: CpusOf, *, every: bool = False) -> Applied:
        """Move containers onto their CPUs: those whose CPUs changed, or all, compared with the kernel."""
        async with self._transaction.begin() as transaction:
            before = transaction.pods
            pods = _in_cpusets(before, cpus, None)
            only = {uid for uid, pod in pods.items() if every or pod is not before[uid]}
            return await transaction.apply("CPUs of containers", pods, only=only) if only else Applied("")

    async def resize(self, pod: Pod) -> Applied:
        """Resize a known pod, container by container: containers that are done stay so when another one is refused.

        Only the pod's own cgroups are read, and above them those whose values depend on its size. The new size is
        saved first, so that after a refusal or a crash the next transaction continues with the rest.
        """
        async with self._transaction.begin() as transaction:
            before = transaction.pods
            known = before.get(pod.metadata.uid)
            if known is None:
                raise InvalidNameError(f"no cgroups are known for a pod with uid {pod.metadata.uid!r}: add it first")
            every = {**before, known.uid: msgspec.structs.replace(known, pod=pod)}
            # A retry after a refusal: the size is saved, but the cgroups above the pod may still have to follow.
            is_retry = known.pod == pod
            planned = transaction.plan(every, {known.uid}) if is_retry else transaction.plan_resize(every, known)
            transaction.validate(planned)
            if self._shrink == "kubernetes":
                check_as_kubernetes(self._driver, planned.plan.steps, planned.desired)
            transaction.save_pods(every)
            return await transaction.apply(
                _titles([known]), every, only={known.uid}, by_container=True, planned=planned
            )

    async def repair(self, uids: Callable[[], Collection[str]]) -> Repaired:
        """Write what another process has changed in the node's own cgroups and in those of these pods (004-68).

        Reads first, without the lock: where nothing differs, nothing waits. `uids` is called again under the lock,
        because a resize may have begun meanwhile. A write that is refused does not keep the others from being done.
        """
        if not self._differing(self._transaction.read(), uids()).steps:
            return Repaired()
        refused: dict[FileOfCgroup, tuple[Difference, str]] = {}
        async with self._transaction.begin() as transaction:
            while True:
                only = uids()
                repairs = partial(repair_plan, refused=refused.keys())
                planned = transaction.plan(transaction.pods, only, repairs=repairs)
                if not planned.plan.steps:
                    return Repaired((), tuple(refused.values()))
                transaction.validate(planned)
                try:
                    await transaction.apply(
                        "cgroup repair", transaction.pods, only=only, planned=planned, repairs=repairs
                    )
                except StepError as error:
                    step = error.step
                    if error.left or not isinstance(step, Write):
                        raise
                    difference = difference_of(step, planned.desired)
                    refused[step.path, step.file] = difference, str(error.cause)
                else:
                    return Repaired(tuple(differences(planned.plan, planned.desired)), tuple(refused.values()))

    def _differing(self, transaction: Transaction, uids: Collection[str]) -> Plan:
        return transaction.plan(transaction.pods, uids, repairs=repair_plan).plan

    def node_paths(self) -> list[str]:
        """kubepods, its classes and the reserved cgroups: those that belong to no pod."""
        return [path for path, level in self._transaction.read().upper_paths().items() if level != "root"]

    async def lift(self, uid: str, container_id: str, high: str) -> Applied:
        """Override memory.high of one container until it ends; later syncs keep the override."""
        async with self._transaction.begin() as transaction:
            pods = transaction.pods
            known = pods.get(uid)
            if known is None or container_id not in known.containers.values():
                raise InvalidNameError(f"no cgroup is known here for a container with id {container_id!r}")
            lifted = msgspec.structs.replace(known, lifted={**known.lifted, container_id: high})
            return await transaction.apply(_titles([known]), {**pods, uid: lifted}, only={uid})

    async def remove(self, *uids: str) -> Applied:
        """Kill the processes of these pods, remove their cgroups, and subtract the pods from the sums above."""
        async with self._transaction.begin() as transaction:
            pods = transaction.pods
            known = [pods[uid] for uid in uids if uid in pods]
            if not known:
                return Applied(f"pod with uid {', '.join(uids)}")
            every = {uid: pod for uid, pod in pods.items() if uid not in uids}
            removed = transaction.obsolete(uids, every)
            applied = await transaction.apply(_titles(known), every, only=(), removed=removed)
            transaction.forget(uids)
            return applied

    async def sweep(self) -> list[str]:
        """Remove empty pod cgroups below owned QoS classes that this node did not create.

        A runtime creates the whole path again for a container that it was asked to start before its pod was removed.
        """
        async with self._transaction.begin() as transaction:
            driver, removed = self._driver, []
            for pod_path in transaction.unowned_pods():
                if driver.members(pod_path, deep=True):
                    continue
                for path in (*reversed([*walk(driver, pod_path)]), pod_path):
                    with contextlib.suppress(CgroupGoneError):
                        await driver.remove(path)
                removed.append(pod_path)
            return removed

    async def teardown(self, *, kill: bool = False) -> Applied:
        """Remove every owned cgroup and restore every changed value, or refuse and change nothing."""
        async with self._transaction.begin() as transaction:
            removed = transaction.owned_tree()
            running = {path: pids for path in removed if (pids := self.processes(path))}
            if running and not kill:
                raise StillRunningError(running)
            return await transaction.teardown("node teardown", removed)

    def status(self) -> TreeStatus:
        """Read-only; may be called while a transaction is open."""
        transaction = self._transaction.read()
        planned = transaction.plan(transaction.pods)
        top = next((path for path, cgroup in planned.desired.items() if cgroup.level == "pods"), "")
        refusal = ""
        unfinished = transaction.unfinished()
        half_made = {step.path for step in unfinished.steps if isinstance(step, Make)} if unfinished else ()
        try:
            transaction.validate(planned)
        except PlimsollError as error:
            if not (isinstance(error, ForeignTreeError) and error.path in half_made):  # the rollback removes it first
                refusal = str(error)
        return TreeStatus(
            top,
            top in transaction.owned(),
            tuple(_titles([known]) for known in transaction.pods.values()),
            unfinished,
            planned.plan.steps,
            planned.plan.unmet,
            transaction.is_locked(),
            refusal,
        )

    def plan(self, pods: Iterable[Pod] = (), *, containers: Containers | None = None) -> Plan:
        """The dry run of `add`; without pods, of `setup`."""
        transaction = self._transaction.read()
        if unfinished := transaction.unfinished():
            raise UnfinishedError(unfinished.subject)
        known = transaction.known_pods(pods, containers)
        every = {**transaction.pods, **known}
        planned = transaction.plan(every, set(known) or None, transaction.obsolete(known, every))
        transaction.validate(planned)
        return planned.plan

    def paths(self, uid: str) -> dict[str, str]:
        """container name → path of its cgroup, "" → the pod's own; empty where the pod is not known."""
        transaction = self._transaction.read()
        known = transaction.pods.get(uid)
        return {} if known is None else transaction.pod_paths(known)

    def planned_paths(self, pod: Pod) -> dict[str, str]:
        """`paths` for a pod that need not be known."""
        (known,) = self._transaction.known_pods([pod], None).values()
        return self._transaction.pod_paths(known)

    def sized_for(self, uid: str) -> Pod | None:
        """The pod as its cgroups were last sized, or are being sized; None where it has no cgroups."""
        known = self._transaction.read().pods.get(uid)
        return None if known is None else known.pod

    def known(self) -> dict[str, str]:
        """uid → namespace/name of the pods that have cgroups here."""
        return {uid: _full_name(known.pod) for uid, known in self._transaction.read().pods.items()}

    def processes(self, path: str, *, deep: bool = False) -> list[int]:
        """The pids in a cgroup, without the holder of its scope."""
        pids, holders = self._driver.members(path, deep=deep), self._holders
        return [pid for pid in pids if holders is None or holders.scope_of(pid) != path]


def _in_cpusets(pods: Mapping[str, KnownPod], cpus: CpusOf | None, mems: MemsOf | None) -> dict[str, KnownPod]:
    """A pod whose CPUs and NUMA nodes do not change stays the same object."""
    pinned = dict(pods)
    if cpus is None and mems is None:
        return pinned
    for uid, known in pods.items():
        lists = {name: cpus(uid, name) for name in known.containers} if cpus is not None else known.cpus
        nodes = known.mems
        if mems is not None:
            nodes = {name: text for name in known.containers if (text := mems(uid, name))}
        if lists != known.cpus or nodes != known.mems:
            pinned[uid] = msgspec.structs.replace(known, cpus=lists, mems=nodes)
    return pinned


def titles(pods: Collection[Pod]) -> str:
    """The subject of a transaction on these pods."""
    names = [f"pod {_full_name(pod)}" for pod in pods]
    return ", ".join(names) if len(names) < 4 else f"{names[0]} and {len(names) - 1} others"


def _titles(pods: Collection[KnownPod]) -> str:
    return titles([known.pod for known in pods])


def _full_name(pod: Pod) -> str:
    return f"{pod.metadata.namespace or 'default'}/{pod.metadata.name}"
