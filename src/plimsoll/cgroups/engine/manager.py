"""The whole node's cgroups, kept as the rules want them: set-up, pods that come, change and go, teardown.

Every call is the same turn: lock the state, undo what an earlier run has left half done, say what is wanted now, look
at what is there, plan the difference, make it, keep the result. So shares, sums and reservations of the upper cgroups
follow at once when a pod comes or goes, a value changed behind our back is found, and a second call writes nothing.

Pods count as long as they are known (`marks.NodeState`). What we did not make is never changed or removed, except for
values of the reserved cgroups, which are kept for teardown.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from plimsoll.cgroups.drivers.interface import CgroupDriver, CgroupGoneError
from plimsoll.cgroups.drivers.simulated import SimulatedHolders, SimulatedKernel
from plimsoll.cgroups.engine import scope_holder
from plimsoll.cgroups.engine.desired import Containers, CpusOf
from plimsoll.cgroups.engine.executor import Holders
from plimsoll.cgroups.engine.journal import Begin
from plimsoll.cgroups.engine.observe import every_file, files_to_look_at, observe, observe_going, walk
from plimsoll.cgroups.engine.ownership import ForeignTreeError, KnownPod, NodeState
from plimsoll.cgroups.engine.shrink import Shrinker, check_as_kubernetes
from plimsoll.cgroups.engine.transaction import Applied, Planned, Transactions
from plimsoll.errors import InvalidNameError, PlimsollError
from plimsoll.rules.cgroups.desired_files import DesiredCgroup
from plimsoll.rules.cgroups.reconcile import Plan, Unmet, reconcile
from plimsoll.rules.cgroups.shrink import ShrinkPolicy
from plimsoll.rules.cgroups.steps import Make, Step
from plimsoll.rules.model.objects import Pod
from plimsoll.rules.node.node_config import NodeConfig

Shrink = Literal["safe", "kubernetes"]


class StillRunningError(PlimsollError):
    def __init__(self, pids: Mapping[str, Sequence[int]]) -> None:
        super().__init__(dict(pids))
        self.pids = dict(pids)

    def __str__(self) -> str:
        running = ", ".join(f"{path} ({len(pids)})" for path, pids in self.pids.items())
        return f"there are still processes in {running}: remove these pods first, or have them killed (--kill)"


class UnfinishedError(PlimsollError):
    def __init__(self, subject: str) -> None:
        super().__init__(subject)
        self.subject = subject

    def __str__(self) -> str:
        return (
            f"{self.subject} was left unfinished, and is undone before anything else: only then can be said what would "
            "be done (plimsoll node status shows it, plimsoll node setup undoes it)"
        )


class TreeStatus(msgspec.Struct, frozen=True):
    path: str  # of kubepods
    is_set_up: bool
    pods: tuple[str, ...]  # namespace/name of those that have cgroups
    unfinished: Begin | None  # what an earlier run was doing when it died
    drift: tuple[Step, ...]  # what the next turn would do
    unmet: tuple[Unmet, ...]
    in_progress: bool = False  # somebody is at it: what is unfinished is being done, what differs may be about to
    refusal: str = ""  # why the next turn would do nothing at all


class CgroupManager:
    def __init__(
        self,
        driver: CgroupDriver,
        setting: NodeConfig,
        state_dir: Path,
        *,
        shrink: Shrink = "safe",
        ladder: ShrinkPolicy | None = None,
        holders: Holders | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        proc: Path = Path("/proc"),
    ) -> None:
        """`shrink`: how a memory limit comes down in a cgroup with processes. `holders`: processes for scopes."""
        self._shrink = shrink
        if holders is None and driver.name == "systemd":
            holders = SimulatedHolders(driver) if isinstance(driver, SimulatedKernel) else scope_holder
        self._holders = holders
        self._shrinker = Shrinker(driver, clock=clock, sleep=sleep, ladder=ladder)
        self._turns = Transactions(
            driver,
            setting,
            state_dir,
            lower=self._shrinker,
            lower_only_back=shrink == "kubernetes",
            holders=holders,
            proc=proc,
        )

    @property
    def shrinks_safely(self) -> bool:
        return self._shrink == "safe"

    def hurry(self, ladder: ShrinkPolicy) -> None:
        """From now on a memory limit that cannot come down is given up as this ladder says."""
        self._shrinker.ladder = ladder

    async def setup(self, *, pods: bool = True) -> Applied:
        """kubepods, the classes, node allocatable, the reserved cgroups; and whatever pods are known.

        Without `pods` those count above them and stay as they are: one of which a limit cannot come down, say, is not
        the node's trouble.
        """
        async with self._turns.mine():
            return await self._turns.bring("node set-up", self._turns.state.pods, only=None if pods else ())

    async def recover(self) -> None:
        """Only undo what an earlier run has left half done; every other call does this first, too."""
        async with self._turns.mine():
            pass

    async def refresh(self) -> Applied:
        """Everything as it should be; pod cgroups of ours that no known pod has are removed."""
        async with self._turns.mine():
            return await self._exactly("node refresh", self._turns.state.pods)

    async def apply(self, pods: Iterable[Pod], *, containers: Containers | None = None) -> Applied:
        """Exactly these pods: others that are known are killed and removed."""
        async with self._turns.mine():
            known = self._turns.wants.known(pods, containers)
            return await self._exactly(_titles(known.values()), known)

    async def add(
        self,
        pods: Iterable[Pod],
        *,
        containers: Containers | None = None,
        pids: Mapping[str, int] | None = None,
        cpus: CpusOf | None = None,
    ) -> Applied:
        """These pods beside those that are known, or in place of the same.

        `containers`: uid → name → id of the containers that have a cgroup; a pod that is not there has one for each,
        with an id of our own. `pids`: cgroup path → process for its systemd scope, where it is not a holder's.
        `cpus`: which CPUs containers run on, of these pods and of all others: whoever must leave one does so first.
        """
        async with self._turns.mine():
            known = self._turns.wants.known(pods, containers, self._turns.state.pods)
            every = _on_cpus({**self._turns.state.pods, **known}, cpus)
            only = {uid for uid, each in every.items() if uid in known or each is not self._turns.state.pods.get(uid)}
            gone = self._outgrown(known, every)
            return await self._turns.bring(_titles(known.values()), every, only=only, gone=gone, pids=pids)

    async def pin(self, cpus: CpusOf, *, every: bool = False) -> Applied:
        """Containers onto their CPUs: those for which they are others than before, or all, compared with the kernel."""
        async with self._turns.mine():
            before = self._turns.state.pods
            pods = _on_cpus(before, cpus)
            only = {uid for uid, each in pods.items() if every or each is not before[uid]}
            return await self._turns.bring("CPUs of containers", pods, only=only) if only else Applied("")

    async def resize(self, pod: Pod) -> Applied:
        """New sizes for a known pod, container by container: those that are done stay when one is refused.

        Only the pod's own cgroups are looked at, and above them those whose values follow from its size.
        The new size counts from the start, so that after a refusal or a crash the next turn goes on with the rest.
        """
        async with self._turns.mine():
            state = self._turns.state
            known = state.pods.get(pod.metadata.uid)
            if known is None:
                raise InvalidNameError(f"no cgroups are known for a pod with uid {pod.metadata.uid!r}: add it first")
            every = {**state.pods, known.uid: msgspec.structs.replace(known, pod=pod)}
            # Once more after a refusal: the size is known already, but what is above the pod may not follow it yet.
            again = known.pod == pod
            drawn = self._turns.draw(every, {known.uid}) if again else self._turns.draw_resize(every, known)
            self._turns.refuse(drawn)
            if self._shrink == "kubernetes":
                check_as_kubernetes(self._turns.driver, drawn.plan.steps, drawn.wanted)
            self._turns.save(msgspec.structs.replace(state, pods=every))
            return await self._turns.bring(_titles([known]), every, only={known.uid}, by_container=True, drawn=drawn)

    async def lift(self, uid: str, container_id: str, high: str) -> Applied:
        """Another memory.high for one container, until it ends: wanted from now on, so that nobody repairs it."""
        async with self._turns.mine():
            pods = self._turns.state.pods
            known = pods.get(uid)
            if known is None or container_id not in known.containers.values():
                raise InvalidNameError(f"no cgroup is known here for a container with id {container_id!r}")
            lifted = msgspec.structs.replace(known, lifted={**known.lifted, container_id: high})
            return await self._turns.bring(_titles([known]), {**pods, uid: lifted}, only={uid})

    async def remove(self, *uids: str) -> Applied:
        """Kill what runs in these pods, remove their cgroups, and give back what they counted for."""
        async with self._turns.mine():
            pods = self._turns.state.pods
            known = [pods[uid] for uid in uids if uid in pods]
            if not known:
                return Applied(f"pod with uid {', '.join(uids)}")
            every = {uid: each for uid, each in pods.items() if uid not in uids}
            gone = self._left_behind(known, every)
            applied = await self._turns.bring(_titles(known), every, only=(), gone=gone)
            self._turns.wants.forget(uids)
            return applied

    async def sweep(self) -> list[str]:
        """Remove pods' cgroups in our classes that we did not make and in which nobody is.

        A runtime makes the whole path anew for a container that it was told to start before its pod was removed."""
        async with self._turns.mine():
            driver, gone = self._turns.driver, []
            for path in self._turns.unmarked_pods():
                if driver.members(path, deep=True):
                    continue
                for each in (*reversed([*walk(driver, path)]), path):
                    with contextlib.suppress(CgroupGoneError):
                        await driver.remove(each)
                gone.append(path)
            return gone

    async def teardown(self, *, kill: bool = False) -> Applied:
        """Remove all that we made and restore all that we changed, or refuse and change nothing."""
        async with self._turns.mine():
            turns, state = self._turns, self._turns.state
            turns.refuse_other_node(turns.wants.wanted({}))
            gone = turns.with_children(turns.marked())
            running = {path: pids for path in gone if (pids := self.processes(path))}
            if running and not kill:
                raise StillRunningError(running)
            kept = {path: DesiredCgroup("reserved", path, files) for path, files in state.kept.items()}
            wanted_files = files_to_look_at({**kept, **turns.wants.wanted(state.pods)}, turns.driver.version)
            files = sorted({*wanted_files, *every_file(turns.driver.version)})
            snapshot = {**observe_going(turns.driver, gone, files), **observe(turns.driver, kept, files)}
            there = {path: each for path, each in kept.items() if path in snapshot}
            plan = reconcile(there, snapshot, ours=gone, page_size=turns.page_size)
            empty = NodeState(state.boot_id, state.committed)
            return await turns.execute("node teardown", Planned(plan, there, snapshot), empty)

    def status(self) -> TreeStatus:
        """Looks only, and may be asked while somebody else has the turn."""
        self._turns.load()
        state = self._turns.state
        drawn = self._turns.draw(state.pods)
        top = next((path for path, each in drawn.wanted.items() if each.level == "pods"), "")
        refusal = ""
        unfinished = self._turns.unfinished()
        begun = {step.path for step in unfinished.steps if isinstance(step, Make)} if unfinished else ()
        try:
            self._turns.refuse(drawn)
        except PlimsollError as error:
            if not (isinstance(error, ForeignTreeError) and error.path in begun):  # the next turn takes it away first
                refusal = str(error)
        return TreeStatus(
            top,
            top in self._turns.marked(),
            tuple(_titles([each]) for each in state.pods.values()),
            unfinished,
            drawn.plan.steps,
            drawn.plan.unmet,
            self._turns.journal.is_locked(),
            refusal,
        )

    def plan(self, pods: Iterable[Pod] = (), *, containers: Containers | None = None) -> Plan:
        """What `add` (without pods: `setup`) would do, without doing it."""
        self._turns.load()
        if unfinished := self._turns.unfinished():
            raise UnfinishedError(unfinished.subject)
        known = self._turns.wants.known(pods, containers)
        every = {**self._turns.state.pods, **known}
        drawn = self._turns.draw(every, set(known) or None, self._outgrown(known, every))
        self._turns.refuse(drawn)
        return drawn.plan

    def paths(self, uid: str) -> dict[str, str]:
        """container name → path of its cgroup, "" → the pod's own; empty where the pod is not known."""
        self._turns.load()
        known = self._turns.state.pods.get(uid)
        return {} if known is None else self._turns.wants.pod_paths(known)

    def sized_for(self, uid: str) -> Pod | None:
        """The pod as its cgroups were last sized, or are being; None where it has none."""
        self._turns.load()
        known = self._turns.state.pods.get(uid)
        return None if known is None else known.pod

    def planned_paths(self, pod: Pod) -> dict[str, str]:
        """The same for a pod that need not be known."""
        ((_, known),) = self._turns.wants.known([pod], None).items()
        return self._turns.wants.pod_paths(known)

    def known(self) -> dict[str, str]:
        """uid → namespace/name of the pods that have cgroups here."""
        self._turns.load()
        return {
            uid: f"{each.pod.metadata.namespace or 'default'}/{each.pod.metadata.name}"
            for uid, each in self._turns.state.pods.items()
        }

    # ---

    async def _exactly(self, subject: str, pods: Mapping[str, KnownPod]) -> Applied:
        wanted = self._turns.wants.wanted(pods)
        gone = self._turns.with_children(path for path in self._turns.marked() if path not in wanted)
        return await self._turns.bring(subject, pods, gone=gone)

    def _outgrown(self, known: Collection[str], every: Mapping[str, KnownPod]) -> list[str]:
        """Cgroups that pods which are known already had so far, and do not have in their new form."""
        pods = self._turns.state.pods
        return self._left_behind([pods[uid] for uid in known if uid in pods], every)

    def _left_behind(self, before: Iterable[KnownPod], every: Mapping[str, KnownPod]) -> list[str]:
        """Cgroups of ours that these pods had and nobody wants any more."""
        had = {path for each in before for path in self._turns.wants.pod_paths(each).values()}
        has = {
            path
            for each in before
            if each.uid in every
            for path in self._turns.wants.pod_paths(every[each.uid]).values()
        }
        return self._turns.with_children(self._turns.marked(had - has))

    def processes(self, path: str, *, deep: bool = False) -> list[int]:
        """Who is in a cgroup, without processes that only hold its scope."""
        pids, holders = self._turns.driver.members(path, deep=deep), self._holders
        return [pid for pid in pids if holders is None or holders.held_by(pid) != path]


def _on_cpus(pods: Mapping[str, KnownPod], cpus: CpusOf | None) -> dict[str, KnownPod]:
    """A pod for which nothing changes stays the very same."""
    found = dict(pods)
    if cpus is None:
        return found
    for uid, each in pods.items():
        lists = {name: cpus(uid, name) for name in each.containers}
        if lists != each.cpus:
            found[uid] = msgspec.structs.replace(each, cpus=lists)
    return found


def titles(pods: Collection[Pod]) -> str:
    """What a turn for these pods is called."""
    names = [f"pod {each.metadata.namespace or 'default'}/{each.metadata.name}" for each in pods]
    return ", ".join(names) if len(names) < 4 else f"{names[0]} and {len(names) - 1} others"


def _titles(pods: Collection[KnownPod]) -> str:
    return titles([each.pod for each in pods])
