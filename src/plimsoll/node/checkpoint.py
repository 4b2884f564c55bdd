"""What the agent must still know after it was killed, in one small file.

For each pod: what was allocated to it and what of that was handed out (03 §11), its back-offs, which of its containers
the kernel killed for want of memory, and whether the node has refused or ended it. What runs, with which exit codes and
how often it was restarted, is the runtime's to know; which cgroups there are, the kernel's. So a file that is lost or
damaged costs little: it is put aside, and everything is read anew from there.

Changes are gathered for a moment and written together; `save` writes at once where an action depends on it.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from plimsoll.codec.lean.lean import quantity_hook
from plimsoll.errors import PlimsollError
from plimsoll.linux.append_log import AppendLog
from plimsoll.rules.lifecycle.termination import TerminationVerdict
from plimsoll.rules.model.objects import Resources
from plimsoll.rules.model.observed import Backoff
from plimsoll.rules.resize.allocation import Allocation

log = logging.getLogger(__name__)

GATHER_S = 0.02


class PodRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    allocation: Allocation | None = None
    actuated: dict[str, Resources] = {}  # container name → what its cgroup was last given
    actuated_pod: Resources | None = None  # the same of the pod-level block
    backoffs: dict[str, Backoff] = {}
    image_backoffs: dict[str, Backoff] = {}
    oom_killed: tuple[str, ...] = ()  # container ids
    oom_bases: dict[str, int] = {}  # container id → what the pod's slice had counted when it started (systemd)
    verdict: TerminationVerdict | None = None  # the node itself ends it
    refused: bool = False  # … before it ever ran here
    start_s: float = 0.0  # when the node took it


NO_RECORD = PodRecord()


class CheckpointWriteError(PlimsollError):
    def __init__(self, path: Path, error: OSError) -> None:
        super().__init__(path, error)
        self.path, self.error = path, error

    def __str__(self) -> str:
        return f"{self.path} cannot be written: {self.error.strerror or self.error}; free some space"


class Checkpoint:
    def __init__(self, path: Path) -> None:
        self._path, self._file = path, AppendLog(path)
        self._pods: dict[str, PodRecord] = {}
        self._stale: set[str] = set()  # uids whose record in the file is not the one here any more
        self._changed = asyncio.Event()
        self.note = ""  # what was wrong with the file at the start

    def load(self) -> None:
        """A file that cannot be read is put aside, and the node begins without."""
        try:
            members = self._file.read()
            self._pods = {
                uid: msgspec.json.decode(text, type=PodRecord, dec_hook=quantity_hook) for uid, text in members.items()
            }
        except FileNotFoundError:
            return
        except (msgspec.DecodeError, PlimsollError) as error:
            self._file.discard()
            aside = self._path.with_suffix(".damaged")
            os.replace(self._path, aside)
            self.note = (
                f"{self._path} could not be read ({error}): it is now {aside}; pods count with what their status says"
            )
            log.warning("%s", self.note)

    def get(self, uid: str) -> PodRecord:
        return self._pods.get(uid, NO_RECORD)

    def all(self) -> Mapping[str, PodRecord]:
        return self._pods

    def put(self, uid: str, **changes: Any) -> PodRecord:
        """The record with these members changed."""
        before = self._pods.get(uid)
        after = msgspec.structs.replace(before or NO_RECORD, **changes)
        if after != before:
            self._pods[uid] = after
            self._stale.add(uid)
            self._changed.set()
        return after

    def forget(self, uid: str) -> None:
        if self._pods.pop(uid, None) is not None:
            self._stale.add(uid)
            self._changed.set()

    def save(self) -> None:
        """CheckpointUnwritable where it cannot be written; then it is tried again soon (`run`)."""
        self._changed.clear()
        if not self._stale:
            return
        changed = {
            uid: msgspec.json.encode(self._pods[uid], enc_hook=str) if uid in self._pods else None
            for uid in self._stale
        }
        try:
            self._file.write(changed)
        except OSError as error:
            self._changed.set()
            raise CheckpointWriteError(self._path, error) from error
        self._stale.clear()

    async def run(self) -> None:
        while True:
            await self._changed.wait()
            await asyncio.sleep(GATHER_S)
            try:
                self.save()
            except CheckpointWriteError as error:
                log.error("%s", error)
                await asyncio.sleep(1.0)

    def save_if_possible(self) -> None:
        """For what has happened whether or not it can be written down; it is told where it cannot."""
        try:
            self.save()
        except CheckpointWriteError as error:
            log.error("%s", error)
