"""The loop of attach: look at pods, policy and cgroups again whenever something changes, and at least every `PERIOD_S`.

    pods · policy ─decided─▶ targets ─planned_writes─▶ journal, write, read back       (canary, enforce)
                                                    └▶ the list of what would be done   (observe)

Files that the policy no longer asks for get the value from before. A file that another program keeps writing is left to
it after a few attempts, and reported.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Literal

import msgspec

from plimsoll.aio import Wakeup, in_slices
from plimsoll.attach.bursts import restore_bursts
from plimsoll.attach.guard import BurstGuard
from plimsoll.attach.journal import STATUS, AttachJournal, JournalError
from plimsoll.attach.plugin import AttachPlugin
from plimsoll.attach.pods import PodBook
from plimsoll.attach.report import MOST_LISTED, AttachMeters, AttachStatus, Change
from plimsoll.attach.scores import stale_entries
from plimsoll.attach.watchdog import Watchdog
from plimsoll.attach.writer import PROC, AttachWriter
from plimsoll.cgroups.drivers.block_io import on_this_machine
from plimsoll.errors import InvalidConfigError
from plimsoll.linux.files.state_dir import replace_private
from plimsoll.rules.attach.bursts import bounded, has_burst, without_bursts
from plimsoll.rules.attach.policy import AttachPolicy
from plimsoll.rules.attach.values import BURSTS, AttachedPod, Decision, KnownPods, Target, decided, switch_problems
from plimsoll.rules.attach.writes import (
    Entry,
    PlannedWrite,
    gives_up,
    missing_files,
    obsolete,
    overwriter,
    planned_writes,
)
from plimsoll.rules.node.node_config import NodeConfig

Mode = Literal["observe", "canary", "enforce"]
PERIOD_S = 15.0
SETTLE_S = 0.05  # several changes in a row are one round

log = logging.getLogger(__name__)


class Scope(msgspec.Struct, frozen=True):
    """Which namespaces take part."""

    mode: Mode
    namespaces: frozenset[str] = frozenset()
    label: tuple[str, str] | None = None

    def includes(self, namespace: str, labels: Mapping[str, str]) -> bool:
        if self.mode != "canary":
            return True
        if namespace in self.namespaces:
            return True
        return self.label is not None and labels.get(self.label[0]) == self.label[1]


class AttachService:
    def __init__(
        self,
        node: str,
        setting: NodeConfig,
        scope: Scope,
        policy: Callable[[], AttachPolicy],
        book: PodBook,
        journal: AttachJournal,
        writer: AttachWriter,
        guard: BurstGuard | None = None,
    ) -> None:
        """`guard`: without one, CPU bursts stay if this process is killed."""
        self.node, self.setting, self.scope, self.book = node, setting, scope, book
        self.journal, self.writer, self.guard = journal, writer, guard
        self._policy = policy
        self.meters = AttachMeters()
        self._wake = Wakeup()
        page_size = setting.policy.page_size
        self.plugin = AttachPlugin(
            book,
            journal,
            self.meters,
            self._container_target,
            self._acts,
            self._has,
            writer.read,
            self._lower_bursts,
            self._changed,
            page_size,
        )
        book.changed = self._changed
        if guard is not None:
            guard.changed = self._changed
        self.watchdog = Watchdog(writer, self.meters, acts=scope.mode != "observe")
        self.decision = Decision(())
        self._known: KnownPods = {}
        self._decided_for: AttachPolicy | None = None  # None: something has changed since
        self.pending: list[Change] = []
        self.reasserts: dict[str, int] = {}
        self._ending = False
        self._overwritten_s: dict[str, list[float]] = {}
        self._abandoned: set[str] = set()
        self._reported: set[str] = set()  # messages of the last round, which are not repeated
        self._messages: set[str] = set()  # of this round
        self._has_psi = os.path.exists("/proc/pressure/memory")
        self._plain = setting  # without block I/O, which is a part of the policy
        self._adopted: AttachPolicy | None = None
        self._problems: list[str] = []
        self._unguarded = ""  # why no burst is set
        self._current()

    def _current(self) -> AttachPolicy:
        """The policy; if it is another one than before, with what it means on this machine."""
        policy = self._policy()
        if policy is self._adopted:
            return policy
        setting, notes = self._plain, list[str]()
        if policy.io is not None:
            with_io = msgspec.structs.replace(setting, policy=msgspec.structs.replace(setting.policy, io=policy.io))
            try:
                setting, notes = on_this_machine(with_io, self.writer.driver, by_runtime=True)
            except InvalidConfigError as error:
                notes = [f"ioControl is ignored: {error}"]
        self._adopted, self.setting, self._known = policy, setting, {}
        self._problems = [*switch_problems(policy, setting, self._has_psi), *notes]
        for problem in self._problems:
            log.warning("%s", problem)
        return policy

    def _changed(self) -> None:
        self._decided_for = None
        self._wake.set()

    # Deciding

    def in_scope(self, namespace: str) -> bool:
        return self.scope.includes(namespace, self.book.namespaces.get(namespace, {}))

    def _scope(self) -> Callable[[str], bool] | None:
        return self.in_scope if self.scope.mode == "canary" else None

    def _acts(self, namespace: str) -> bool:
        return not self._ending and self.scope.mode != "observe" and self.in_scope(namespace)

    def _has(self, file: str) -> bool:
        return self.writer.driver.has(file) is None

    def _attached(self, uid: str) -> AttachedPod:
        known = self.book.pods[uid]
        ids = {name: facts.id for name, facts in known.containers.items() if facts.state == "running" and facts.id}
        if self.plugin.is_synchronized:
            ids = self.plugin.ids(uid)  # the runtime knows better than the API
        return AttachedPod(known.pod, ids)

    def _decided(self, policy: AttachPolicy) -> Decision:
        ended = ("Succeeded", "Failed")
        pods = [self._attached(uid) for uid, each in self.book.pods.items() if each.pod.status.phase not in ended]
        self._known = {uid: pod for uid, pod in self._known.items() if uid in self.book.pods}
        return decided(pods, policy, self.setting, self._scope(), self._known)

    def _container_target(self, uid: str, name: str, container_id: str) -> Target | None:
        """One container alone: its answer must not wait until all pods are computed."""
        pod = self.book.pods[uid].pod
        own = f"{pod.metadata.namespace or 'default'}/{pod.metadata.name}"
        others = sum(
            int(target.files.get("memory.min", 0))
            for target in self.decision.targets
            if target.level == "pod" and target.subject != own
        )
        policy = self._current()
        policy = msgspec.structs.replace(policy, reserve_bytes=policy.reserve_bytes + others)
        found = decided([AttachedPod(pod, {name: container_id})], policy, self.setting, self._scope())
        for target in found.targets:
            if target.container_id == container_id:
                lifted = {f: v for f in target.files if (v := self.watchdog.lifted.get(f"{target.path}\t{f}"))}
                return msgspec.structs.replace(target, files=target.files | lifted)
        return None

    async def _lower_bursts(self, uid: str) -> None:
        """To the quotas that the runtime is asked for, before it and the kubelet write them."""
        if self.scope.mode == "observe" or uid not in self.book.pods:
            return
        found = decided([self._attached(uid)], self._current(), self.setting, self._scope())
        for target in bounded(found.targets, self.plugin.quotas_us):
            files = self.writer.read(target.path, BURSTS) or ({}, 0)
            for file, text in files[0].items():
                if int(text) > int(target.files.get(file, text)):
                    problem = await self.writer.rewrite(target.path, file, target.files[file])
                    done = problem or f"{text} → {target.files[file]}, before its limit is lowered"
                    log.log(logging.WARNING if problem else logging.INFO, "%s: %s %s", target.subject, file, done)

    # The loop

    async def begin(self) -> None:
        """In every mode: an attach that was killed together with its guard has left its bursts."""
        await restore_bursts(self.writer)

    async def run(self) -> None:
        """Without end."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.watchdog.run(lambda: self.decision))
            while True:
                await self.round()
                await self._wake.wait(PERIOD_S)
                await asyncio.sleep(SETTLE_S)

    async def round(self) -> None:
        """One look at everything."""
        self._check_runtime()
        policy = self._current()
        if policy is not self._decided_for:
            self.decision, self._decided_for = self._decided(policy), policy
        for note in self.decision.notes:
            self._say_once(note, logging.WARNING)
        observed = {}
        async for target in in_slices(self.decision.targets):  # the runtime may ask meanwhile
            found = self.writer.read(target.path, tuple(target.files))
            if found is not None:
                observed[target.path] = found
        for target, file in missing_files(self.decision.targets, observed):
            reason = self.writer.driver.has(file) or "its controller is not enabled in the cgroup above"
            self._say_once(f"{target.subject}: {target.path} has no {file}: {reason}", logging.WARNING)
        page_size = self.setting.policy.page_size
        targets = self._guarded(bounded(self.decision.targets, self.plugin.quotas_us))
        writes = planned_writes(targets, observed, self.journal.entries, page_size)
        writes = [write for write in writes if self._may_write(write)]
        writes += stale_entries(self.decision.targets, self.writer)
        self.pending = [_change(write) for write in writes]
        if self.scope.mode != "observe":
            await self._apply(writes)
            try:
                await self._clean_up(targets, observed.keys())
            except JournalError as error:
                self._say_once(str(error))
        self._publish()
        self._forget_ended()

    def _guarded(self, targets: Sequence[Target]) -> Sequence[Target]:
        """Bursts are set only while the guard runs."""
        self._unguarded = ""
        if self.guard is None or self.scope.mode == "observe" or not any(map(has_burst, targets)):
            return targets
        self._unguarded = self.guard.start(self.journal.guard_lock)
        if not self._unguarded:
            return targets
        self._say_once(f"no CPU burst is set: {self._unguarded}")
        return [without_bursts(target) for target in targets]

    def _check_runtime(self) -> None:
        self.writer.runtime_updates_unified = self.plugin.updates_unified and self.writer.driver.version == 2

    def _forget_ended(self) -> None:
        """What was noted about files that are no longer attached to."""
        self._reported, self._messages = self._messages, set()
        keys = {f"{target.path}\t{file}" for target in self.decision.targets for file in target.files}
        self._abandoned &= keys
        self._overwritten_s = {key: times for key, times in self._overwritten_s.items() if key in keys}

    def _may_write(self, write: PlannedWrite) -> bool:
        key = write.entry.key
        if key in self.watchdog.lifted or self.plugin.is_owned(write.target.container_id, write.file):
            return False
        if not write.overwritten:
            return key not in self._abandoned
        now_s = time.monotonic()
        times_s = self._overwritten_s.setdefault(key, [])
        if gives_up(times_s, now_s):
            if key not in self._abandoned:
                self._abandoned.add(key)
                log.error(
                    "%s: another program keeps writing %s; attach does not write it any more",
                    write.target.subject,
                    write.file,
                )
            return False
        self._abandoned.discard(key)
        times_s[:] = [*times_s[-20:], now_s]
        entry = self.journal.entries[key]
        by = overwriter(write.target.level, self.setting.driver, entry, write.found, self.setting.policy.page_size)
        self.reasserts[by] = self.reasserts.get(by, 0) + 1
        self.meters.reasserts.add(by)
        log.info(
            "%s: %s was set to %s by %s; writing %s again",
            write.target.subject,
            write.file,
            write.found,
            by,
            write.wanted,
        )
        return True

    async def _apply(self, writes: list[PlannedWrite]) -> None:
        if not writes:
            return
        try:
            failures = await self.writer.apply(writes)
        except JournalError as error:
            failures = {write.entry.key: str(error) for write in writes}
        failed = []
        for write in writes:
            problem = failures.get(write.entry.key, "")
            if problem == "it is gone":
                continue
            if problem:
                self.meters.failures.add()
                failed.append(_change(write, problem))
                self._say_once(f"{write.target.subject}: {write.file} cannot be set to {write.wanted}: {problem}")
            else:
                self.meters.writes.add(write.target.level, write.file)
                log.info("%s: %s %s → %s", write.target.subject, write.file, write.found, write.wanted)
        self.pending = failed

    def _say_once(self, text: str, level: int = logging.ERROR) -> None:
        if text not in self._reported and text not in self._messages:
            log.log(level, "%s", text)
        self._messages.add(text)

    async def _clean_up(self, targets: Sequence[Target], seen: Set[str]) -> None:
        """Forget cgroups that are gone, and restore what the policy no longer asks for."""
        gone = [
            entry
            for entry in self.journal.entries.values()
            if entry.path not in seen and self._has_ended(entry) and self.writer.read(entry.path, ()) is None
        ]
        self.journal.forget(gone)
        if not self.book.synced:
            return
        old = [entry for entry in obsolete(targets, self.journal.entries) if not self._must_stay(entry)]
        for each in await self.writer.restore(old, self.plugin.unsettled()):
            if each.outcome != "already":
                log.info("%s: %s → %s: %s", each.path, each.file, each.value, each.outcome)
        is_set = any(entry.file in BURSTS for entry in self.journal.entries.values())
        if self.guard is not None and not is_set and not any(map(has_burst, targets)):
            self.guard.stop()

    def _has_ended(self, entry: Entry) -> bool:
        """A container that was created and has not started has no cgroup yet; only the runtime knows of it."""
        if not entry.container_id:
            return True
        return self.plugin.is_synchronized and entry.container_id not in self.plugin.containers

    def _must_stay(self, entry: Entry) -> bool:
        """A repaired process keeps its score; before the runtime is connected, its containers are not known."""
        return entry.path.startswith(PROC) or (bool(entry.container_id) and not self.plugin.is_synchronized)

    def _publish(self) -> None:
        self.meters.files.set(len(self.journal.entries))
        self.meters.pending.set(len(self.pending))
        session = self.writer.session
        connected = session is not None and session.connected
        self.meters.connected.set(int(connected))
        try:
            replace_private(self.journal.directory / STATUS, msgspec.json.encode(self.status()))
        except OSError as error:
            self._say_once(f"the status cannot be written: {error}")

    def status(self) -> AttachStatus:
        session = self.writer.session
        connected = session is not None and session.connected
        problems = [*self._problems]
        if self._unguarded:
            problems.append(f"no CPU burst is set: {self._unguarded}")
        if session is not None and not connected:
            problems.append(f"NRI: {session.problem}")
        if self.book.problem:
            problems.append(f"pods: {self.book.problem}")
        return AttachStatus(
            self.scope.mode,
            os.getpid(),
            self.node,
            self.plugin.runtime,
            connected,
            self.book.synced,
            time.time(),
            len(self.book.pods),
            len(self.plugin.containers),
            len(self.journal.entries),
            tuple(self.pending[:MOST_LISTED]),
            self.decision.notes[:MOST_LISTED],
            tuple(problems),
            dict(self.reasserts),
            tuple(sorted(key.replace("\t", "/") for key in self._abandoned)),
            self.watchdog.above_high(),
            self.plugin.late,
        )

    async def end(self) -> None:
        """At the end of the process, after `run` was cancelled: restore bursts, and all if the policy says so."""
        self._ending = True
        self._check_runtime()
        if await restore_bursts(self.writer) and self.guard is not None:
            self.guard.stop()
        if self._policy().restore_on_exit and self.scope.mode != "observe":
            for each in await self.writer.restore(list(self.journal.entries.values()), self.plugin.unsettled()):
                if each.outcome == "failed":
                    log.error("%s/%s cannot be restored to %s: %s", each.path, each.file, each.value, each.reason)


def _change(write: PlannedWrite, problem: str = "") -> Change:
    target = write.target
    return Change(target.level, target.subject, write.entry.path, write.file, write.found, write.wanted, problem)
