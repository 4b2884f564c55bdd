"""What the agent must still know after a restart, in one small file.

For each pod: what was allocated to it and what of that was actuated (03 §11), its back-offs, which of its containers
were OOM-killed, and whether the node has refused or terminated it. The runtime knows what runs, with which exit codes
and restart counts; the kernel knows which cgroups exist. So a lost or damaged file costs little: it is renamed, and the
agent starts without it.

Changes are collected for a moment and written together; `save` writes at once if an action depends on it.
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
from plimsoll.errors import PlimsollError, StructuredError
from plimsoll.linux.files.append_log import AppendLog
from plimsoll.rules.lifecycle.termination import TerminationVerdict
from plimsoll.rules.model.objects import Resources
from plimsoll.rules.model.observed import Backoff
from plimsoll.rules.resize.allocation import Allocation

log = logging.getLogger(__name__)

COLLECT_S = 0.02


class PodRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    allocation: Allocation | None = None
    actuated: dict[str, Resources] = {}  # container name → the resources of its cgroup
    actuated_pod: Resources | None = None  # the same of the pod-level block
    inherited: dict[str, Resources] = {}  # container name → its limits from another block, see `Allocation`
    backoffs: dict[str, Backoff] = {}
    image_backoffs: dict[str, Backoff] = {}
    oom_killed: tuple[str, ...] = ()  # container ids
    oom_bases: dict[str, int] = {}  # container id → OOM kills of the pod's cgroup when it started (systemd, CRI)
    verdict: TerminationVerdict | None = None  # the node itself terminates it
    refused: bool = False  # … before it ran here
    start_s: float = 0.0  # when the node admitted it

    def actuated_sizes(self, *, pod_level: bool) -> Allocation:
        """`pod_level`: whether the pod-level block can be resized."""
        return Allocation(self.actuated, pod_level, self.actuated_pod, inherited=self.inherited)


NO_RECORD = PodRecord()


class CheckpointWriteError(StructuredError):
    path: Path
    error: OSError

    def __str__(self) -> str:
        return f"{self.path} cannot be written: {self.error.strerror or self.error}; free some space"


class Checkpoint:
    def __init__(self, path: Path) -> None:
        self._path, self._file = path, AppendLog(path)
        self._pods: dict[str, PodRecord] = {}
        self._stale: set[str] = set()  # uids whose record in the file is outdated
        self._changed = asyncio.Event()
        self.note = ""  # what was wrong with the file at the start

    def load(self) -> None:
        """A file that cannot be read is renamed, and the node starts without it."""
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
                f"{self._path} could not be read ({error}) and is now {aside}; "
                "allocations are taken from the statuses of pods"
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

    def put_actuated(self, uid: str, sizes: Allocation, **changes: Any) -> PodRecord:
        return self.put(
            uid, actuated=sizes.containers, actuated_pod=sizes.pod_level, inherited=sizes.inherited, **changes
        )

    def forget(self, uid: str) -> None:
        if self._pods.pop(uid, None) is not None:
            self._stale.add(uid)
            self._changed.set()

    def save(self) -> None:
        """Raises CheckpointWriteError if it cannot be written; `run` retries soon."""
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
            await asyncio.sleep(COLLECT_S)
            if not self.save_if_possible():
                await asyncio.sleep(1.0)

    def save_if_possible(self) -> bool:
        """For what has happened already; a failure is only logged."""
        try:
            self.save()
        except CheckpointWriteError as error:
            log.error("%s", error)
            return False
        return True
