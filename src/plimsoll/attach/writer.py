"""Carries out the writes of attach, each after its journal entry, and takes them back.

    journal the values before (fsync) → write → read back

A container's files go through the runtime, if it applies `unified` on updates: it then keeps them in its own record of
the container and writes them again at each update. What the runtime does not write, and all levels above containers,
are written by the cgroup driver: systemd properties on systemd nodes, files otherwise. So are CPU bursts, which the
runtime is not given.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence, Set

import msgspec

from plimsoll.attach.journal import AttachJournal, JournalError
from plimsoll.cgroups.drivers.interface import CgroupDriver, CgroupError, CgroupGoneError
from plimsoll.linux.processes import oom_score_adj, set_oom_score_adj, stat
from plimsoll.net.ttrpc.peer import UNKNOWN, TtrpcError
from plimsoll.rules.attach.values import BURSTS
from plimsoll.rules.attach.writes import Entry, Outcome, PlannedWrite, restoring
from plimsoll.rules.cgroups.rounding import same_value
from plimsoll.runtime.nri.messages import ContainerUpdate, unified_update
from plimsoll.runtime.nri.plugin import NriSession

PROC = "/proc/"
SCORE = "oom_score_adj"

log = logging.getLogger(__name__)


def is_of_container(entry: Entry) -> bool:
    """A file of its cgroup, which a runtime can keep in its record; no score of a process."""
    return bool(entry.container_id) and not entry.path.startswith(PROC)


class Restored(msgspec.Struct, frozen=True, rename="camel"):
    path: str
    file: str
    value: str  # from before
    outcome: Outcome
    reason: str = ""


class AttachWriter:
    def __init__(
        self, driver: CgroupDriver, journal: AttachJournal, page_size: int, session: NriSession | None = None
    ) -> None:
        self.driver, self.journal, self.page_size, self.session = driver, journal, page_size, session
        # Until the runtime is known, it is one that keeps them. On v1 no value of ours is given to it.
        self.runtime_updates_unified = driver.version == 2
        self.not_forgotten: Set[str] = frozenset()  # at the last restore: containers whose record may have our values

    def read(self, path: str, files: Sequence[str]) -> tuple[Mapping[str, str], int] | None:
        """The texts and the inode; for a process, its score and start time. None if it is gone."""
        if path.startswith(PROC):
            pid = int(path.removeprefix(PROC))
            process, score = stat(pid), oom_score_adj(pid)
            return None if process is None or score is None else ({SCORE: str(score)}, process.start_ticks)
        found = self.driver.read(path, files)
        return None if found is None else (found.files, found.inode)

    async def apply(self, writes: Sequence[PlannedWrite]) -> dict[str, str]:
        """Journal, write and read back; the key of each write that failed, and why. Bursts come first: while the
        runtime works, a kubelet may lower the quota that they were computed for."""
        self.journal.record(write.entry for write in writes)
        failures = await self._each([write for write in writes if write.file in BURSTS])
        await self._through_runtime({write.entry: write.wanted for write in writes})
        return failures | await self._each([write for write in writes if write.file not in BURSTS])

    async def _each(self, writes: Sequence[PlannedWrite]) -> dict[str, str]:
        done = {write.entry.key: await self._write(write.entry, write.wanted) for write in writes}
        return {key: problem for key, problem in done.items() if problem}

    async def _through_runtime(self, values: Mapping[Entry, str], *, may_fail: bool = True) -> Set[str]:
        """The containers whose record, if the runtime keeps one, does not have the values; with `may_fail`, those that
        the runtime could not update are not among them. What it has not written, the driver writes."""
        session = self.session
        if session is None or not self.runtime_updates_unified:
            return frozenset()
        by_container: dict[str, dict[str, str]] = {}
        for entry, value in values.items():
            if is_of_container(entry):
                by_container.setdefault(entry.container_id, {})[entry.file] = value
        if not by_container or not session.connected:
            return by_container.keys()
        updates = [unified_update(each, files, may_fail=may_fail) for each, files in by_container.items()]
        asking = asyncio.create_task(_asked(session, updates))
        try:
            return await asyncio.shield(asking)
        except asyncio.CancelledError:
            # The runtime carries it out in any case. Were it later than a restore, it would bring our values back.
            await asyncio.wait({asking})
            raise

    async def _write(self, entry: Entry, value: str) -> str:
        """Empty if the file has the value, otherwise the reason."""
        found = self.read(entry.path, (entry.file,))
        if found is None or (entry.inode and found[1] != entry.inode):
            return "it is gone"
        if same_value(entry.file, value, found[0].get(entry.file, ""), self.page_size):
            return ""  # the runtime has written it
        if entry.path.startswith(PROC):
            return set_oom_score_adj(int(entry.path.removeprefix(PROC)), int(value)).reason
        try:
            await self.driver.write(entry.path, entry.file, value)
        except CgroupGoneError:
            return "it is gone"
        except CgroupError as error:
            return str(error)
        return ""

    async def _restore(self, entry: Entry) -> str:
        found = self.read(entry.path, (entry.file,))
        return "it is gone" if found is None else await self._write(entry, entry.restored(found[0].get(entry.file, "")))

    async def rewrite(self, path: str, file: str, value: str) -> str:
        """Another value for a file that has one of ours: the journal gets it first. The reason if it is not written."""
        found = self.read(path, (file,))
        if found is None:
            return "it is gone"
        text, entry = found[0].get(file, ""), self.journal.entries.get(f"{path}\t{file}")
        if entry is None or not entry.is_of(found[1]) or not entry.is_ours(text, self.page_size):
            return f"{file} is not as attach has set it"
        entry = entry.wants(value, text, self.page_size)
        try:
            self.journal.record([entry])
        except JournalError as error:
            return str(error)
        return await self._write(entry, value)

    def outcome(self, entry: Entry) -> Outcome:
        """What a restore does with this entry now."""
        found = self.read(entry.path, (entry.file,))
        text, inode = (None, None) if found is None else (found[0].get(entry.file), found[1])
        return restoring(entry, text, inode, self.page_size)

    async def restore(self, entries: Sequence[Entry], unsettled: Set[str] = frozenset()) -> list[Restored]:
        """Write the values from before, where ours are still there; entries that are done leave the journal. Those of
        containers into which the runtime may bring a value back stay: it could not update them, or they are
        `unsettled`."""
        states = {entry: self.outcome(entry) for entry in entries}
        self.not_forgotten = await self._through_runtime(self._records(states), may_fail=False)
        done: list[Restored] = []
        for entry, outcome in states.items():
            reason = "it has another value than attach wrote" if outcome == "changed by another" else ""
            if outcome == "restored":
                problem = await self._restore(entry)
                outcome = "gone" if problem == "it is gone" else "failed" if problem else outcome
                reason = problem if outcome == "failed" else ""
            done.append(Restored(entry.path, entry.file, entry.before, outcome, reason))
        failed = {(each.path, each.file) for each in done if each.outcome == "failed"}
        self.journal.forget(
            entry
            for entry in states
            if (entry.path, entry.file) not in failed
            and not (is_of_container(entry) and entry.container_id in {*self.not_forgotten, *unsettled})
        )
        return done

    def _records(self, states: Mapping[Entry, Outcome]) -> dict[Entry, str]:
        """What the runtime is to write at the next update of a container, in place of a value of ours: also where
        another program has changed the file, and for a container that was created and has not started."""
        values = {}
        for entry, outcome in states.items():
            if outcome in ("restored", "already") or (outcome == "gone" and not entry.inode):
                values[entry] = entry.before
            elif outcome == "changed by another" and (found := self.read(entry.path, (entry.file,))) is not None:
                values[entry] = found[0].get(entry.file, entry.before)
        return values


async def _asked(session: NriSession, updates: Sequence[ContainerUpdate]) -> Set[str]:
    """The ids of those that failed. containerd carries out what it can, and does not say which of several failed."""
    try:
        return await session.update(updates)
    except TtrpcError as error:
        if error.code == UNKNOWN and len(updates) > 1:
            return {container_id for each in updates for container_id in await _asked(session, [each])}
        log.warning("the runtime did not update containers: %s", error)
        return {each.container_id for each in updates}
