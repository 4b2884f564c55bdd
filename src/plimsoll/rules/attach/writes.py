"""Which writes lead from the observed files to the desired ones, which ones lead back, and who overwrote a value.

The journal has one entry per file that attach has written or is about to write: the value before, the last value of
attach, and those that may still be there, or come back. attach may be killed after the entry and before the write, and
a container runtime writes the last value that it was given again whenever the kubelet updates the container. Whatever
happens in between, a file has one of these, or one of another writer. That one is never restored over: it is not ours.

In a file with a line for each device, only the lines of the policy's devices are attach's: those of other devices stay
as another program writes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from plimsoll.rules.attach.values import BURSTS, Level, Target
from plimsoll.rules.blockio.files import WEIGHT_FILES, is_keyed, is_mixture, lines_of, with_lines
from plimsoll.rules.cgroups.rounding import kept, same_value
from plimsoll.rules.model.cgroup_names import Driver

MOST_REASSERTS = 5  # of one file within FIGHT_S: then another program wants it, and attach stops
FIGHT_S = 300.0
MOST_PREVIOUS = 128  # more than the steps in which the watchdog raises memory.high


class Entry(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """`inode`: of the cgroup; 0 if it does not exist yet, because the container is being created. `previous`: values of
    attach that `wanted` replaces. `container_id`: of a container whose runtime may have the values in its record. It is
    not given bursts: without attach, its record would make it write a burst above a lower quota."""

    path: str
    file: str
    before: str
    wanted: str
    inode: int = 0
    container_id: str = ""
    previous: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return f"{self.path}\t{self.file}"

    def is_of(self, inode: int) -> bool:
        """Whether this is the cgroup of the entry, and not another one with that name."""
        return self.inode in (0, inode)

    def wants(self, value: str, found: str | None, page_size: int) -> Entry:
        """The entry for another value of the same file. `found`: the text of the file, if it is known.

        A runtime can have any earlier value in its record of a container. Elsewhere a file has what was found, unless
        systemd still has to carry out the last write of an attach that was killed.
        """
        if value == self.wanted:
            return self
        previous: tuple[str, ...] = self.previous
        if found is not None and not self.container_id:
            previous = (self._own_lines(found),) if self.is_ours(found, page_size) else ()
        values = dict.fromkeys((*previous, self.wanted))
        values.pop(value, None)
        return msgspec.structs.replace(self, wanted=value, previous=tuple(values)[-MOST_PREVIOUS:])

    def _own_lines(self, found: str) -> str:
        return with_lines(self.file, "", found, self.devices) if is_keyed(self.file) else found

    @property
    def devices(self) -> list[str]:
        """Of a file with a line for each device: those whose lines attach writes."""
        return list(dict.fromkeys(line for text in (self.wanted, *self.previous) for line in lines_of(self.file, text)))

    def is_ours(self, found: str, page_size: int) -> bool:
        """Whether attach can have written this."""
        ours = (self.wanted, *self.previous)
        if is_keyed(self.file):
            return is_mixture(self.file, found, (*ours, self.before), self.devices)
        return any(same_value(self.file, each, found, page_size) for each in ours)

    def restored(self, found: str) -> str:
        """The text of the file with the value from before."""
        return with_lines(self.file, found, self.before, self.devices) if is_keyed(self.file) else self.before


class PlannedWrite(msgspec.Struct, frozen=True):
    target: Target
    file: str
    found: str
    wanted: str
    entry: Entry  # to be journalled first
    overwritten: bool = False  # attach had written it, and another process has changed it


Outcome = Literal["restored", "already", "changed by another", "gone", "failed"]


def planned_writes(
    targets: Sequence[Target],
    observed: Mapping[str, tuple[Mapping[str, str], int]],
    journal: Mapping[str, Entry],
    page_size: int,
) -> list[PlannedWrite]:
    """`observed`: path → files and inode; cgroups that do not exist are not in it. Parents come first."""
    found = []
    for target in targets:
        if target.path not in observed:
            continue
        files, inode = observed[target.path]
        for file, wanted in target.files.items():
            text = files.get(file)
            known = journal.get(f"{target.path}\t{file}")
            if known is not None and not known.is_of(inode):
                known = None  # another cgroup with that name
            if text is None:
                continue
            written = wanted
            if is_keyed(file):
                restored = text if known is None else known.restored(text)
                written = with_lines(file, restored, wanted, lines_of(file, wanted))
            if same_value(file, written, text, page_size):
                continue
            overwritten = known is not None and not known.is_ours(text, page_size)
            before = kept(file, text) if file in WEIGHT_FILES else text  # io.weight shows more than can be written
            container_id = target.container_id
            if file in BURSTS:
                container_id = "" if known is None else known.container_id
            entry = known or Entry(target.path, file, before, wanted, inode, container_id)
            entry = msgspec.structs.replace(entry, inode=inode, container_id=container_id)
            entry = entry.wants(wanted, text, page_size)
            found.append(PlannedWrite(target, file, text, written, entry, overwritten))
    return found


def missing_files(
    targets: Sequence[Target], observed: Mapping[str, tuple[Mapping[str, str], int]]
) -> list[tuple[Target, str]]:
    """Files that an existing cgroup should have a value in and does not have: their controller is not enabled there."""
    return [
        (target, file)
        for target in targets
        if target.path in observed
        for file in target.files
        if file not in observed[target.path][0]
    ]


def obsolete(
    targets: Sequence[Target], journal: Mapping[str, Entry], keep: frozenset[str] = frozenset()
) -> list[Entry]:
    """Entries of files that the policy no longer asks for; `keep`: paths whose pods are not known at the moment. Also
    bursts that an earlier version has given to the runtime: it forgets them, and they are written again without it."""
    wanted = {f"{target.path}\t{file}" for target in targets for file in target.files}
    return [
        entry
        for key, entry in journal.items()
        if (key not in wanted or (entry.file in BURSTS and entry.container_id)) and entry.path not in keep
    ]


def restoring(entry: Entry, found: str | None, inode: int | None, page_size: int) -> Outcome:
    """What a restore does: `restored` means that `before` is to be written."""
    if found is None or inode is None or not entry.is_of(inode):
        return "gone"
    if same_value(entry.file, entry.restored(found), found, page_size):
        return "already"
    return "restored" if entry.is_ours(found, page_size) else "changed by another"


def overwriter(level: Level, driver: Driver, entry: Entry, found: str, page_size: int) -> str:
    """Who has probably written the value that was found in place of ours."""
    back = same_value(entry.file, entry.before, found, page_size)
    if level == "container":
        return "the container runtime, on an update by the kubelet" if back else "another program, or a resize"
    if back and driver == "systemd":
        return "systemd, at daemon-reload, or the kubelet"
    return "the kubelet" if back else "a person or another program"


def gives_up(times_s: Sequence[float], now_s: float) -> bool:
    """Whether a file was overwritten so often that attach stops writing it."""
    return sum(now_s - time_s <= FIGHT_S for time_s in times_s) >= MOST_REASSERTS
