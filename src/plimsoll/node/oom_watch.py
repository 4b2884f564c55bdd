"""Watches for out-of-memory kills in pods' cgroups, tells each once, and keeps a small record of them.

Two witnesses (`oom_ledger` puts them together): the kernel's log, where it may be read, and the `oom_kill` counter of
every container's cgroup, woken by memory.events (v2) or the OOM notification (v1). The record is one small file with
the counters beside it. A kill is in it before it is told: an agent killed in between has it in the record at least.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from plimsoll.cgroups.events import Watcher
from plimsoll.cgroups.usage import Opens, usage
from plimsoll.codec.kernel_log import OomReports, kernel_record
from plimsoll.linux.beneath import CgroupError
from plimsoll.linux.kernel_log import KernelLog
from plimsoll.linux.state_dir import write_private
from plimsoll.node.oom_ledger import LastSeen, OomLedger, Watched
from plimsoll.rules.oom_story import Level, OomKill

LOOK_S = 10.0
_LOG_KEY = "kernel log"
log = logging.getLogger(__name__)


class OomRecord(msgspec.Struct, frozen=True, rename="camel"):
    """The file. `sequence` is the last record of the kernel's log that was read, in this boot."""

    boot_id: str = ""
    sequence: int = -1
    counters: dict[str, int] = {}
    kills: tuple[OomKill, ...] = ()


class OomWatch:
    def __init__(
        self,
        files: Opens | None,
        containers: Callable[[], Iterable[Watched]],
        told: Callable[[OomKill], None],
        file: Path,
        *,
        clock: Callable[[], float],
        wall: Callable[[], float],
        boot_id: str,
        device: str = "/dev/kmsg",
        prefix: str = "",
    ) -> None:
        """`files`: None on a kernel in memory, where nobody is killed. `prefix`: what precedes our paths in the log.

        `clock` is the monotonic one, by which the kernel's log counts as well.
        """
        self._files, self._containers, self._told, self._file = files, containers, told, file
        self._clock, self._wall, self._boot_id, self._device, self._prefix = clock, wall, boot_id, device, prefix
        record = read_record(file)
        self._sequence = record.sequence if record.boot_id == boot_id else -1
        self._first_start = record.boot_id == ""
        self._ledger = OomLedger(record.counters if record.boot_id == boot_id else {})
        self._ledger.kills.extend(record.kills)
        self._watched: dict[str, Watched] = {}
        self._reports = OomReports()
        self.log_is_read = False
        self.total = 0  # kills told since the start, for metrics

    @property
    def kills(self) -> tuple[OomKill, ...]:
        return tuple(self._ledger.kills)

    async def run(self) -> None:
        """For ever."""
        if self._files is None:
            return
        async with Watcher[str]() as watcher:
            kernel_log = self._opened(watcher)
            self._save()
            try:
                fired: Iterable[str] = ()
                while True:
                    self._follow(watcher)  # wakes each new one, so that its counter is looked at
                    if kernel_log is not None and (_LOG_KEY in fired or self._first_look):
                        self._read(kernel_log)
                    self._look(fired)
                    fired = await self._wait(watcher)
            finally:
                if kernel_log is not None:
                    asyncio.get_running_loop().remove_reader(kernel_log.fileno())
                    kernel_log.close()

    def final(self, container_id: str) -> None:
        """The container has ended and its cgroup is about to be removed: count once more, and do not wait."""
        if container_id in self._watched:
            self._count(container_id)
            self._tell(self._ledger.due(self._clock(), self._wall(), at_once=(container_id,)))

    # ---

    def _opened(self, watcher: Watcher[str]) -> KernelLog | None:
        self._first_look = True
        try:
            kernel_log = KernelLog(self._device)
        except OSError as error:
            log.info("the kernel's log cannot be read (%s): OOM kills are known from counters only", error)
            return None
        asyncio.get_running_loop().add_reader(kernel_log.fileno(), watcher.fire, _LOG_KEY)
        self.log_is_read = True
        return kernel_log

    def _follow(self, watcher: Watcher[str]) -> None:
        """Exactly the containers that there are."""
        assert self._files is not None
        now = {each.id: each for each in self._containers()}
        for gone in self._watched.keys() - now.keys():
            watcher.forget(gone)
        for container_id, each in now.items():
            if container_id in self._watched:
                continue
            try:
                file = "memory.events" if self._files.version == 2 else "memory.oom_control"
                with self._files.directory(each.path, file) as directory:
                    if self._files.version == 2:
                        watcher.file_changes(container_id, directory, "memory.events")
                    else:
                        watcher.out_of_memory(container_id, directory)
            except (CgroupError, OSError) as error:
                log.debug("%s is not watched for OOM kills: %s", each.path, error)
        self._watched = now
        self._ledger.watch(now.values())

    def _read(self, kernel_log: KernelLog) -> None:
        kills = []
        for data in kernel_log.read():
            record = kernel_record(data)
            if record is None or record.sequence <= self._sequence:
                continue
            self._sequence = record.sequence
            kill = self._reports.take(record)
            # What was in the log before Plimsoll first ran here is not its business.
            if kill is not None and not (self._first_look and self._first_start):
                ago_s = max(0.0, self._clock() - kill.time_us / 1e6)
                told = self._ledger.logged(kill, self._wall() - ago_s, self._prefix, while_away=self._first_look)
                if told is not None:
                    kills.append(told)
        self._first_look = False
        self._tell(kills)

    def _look(self, fired: Iterable[str]) -> None:
        for container_id in fired:
            if container_id in self._watched:
                self._count(container_id)
        self._tell(self._ledger.due(self._clock(), self._wall()))

    def _count(self, container_id: str) -> None:
        assert self._files is not None
        seen = usage(self._files, self._watched[container_id].path, ("memory", "events"))
        if seen is None or seen.events_local is None or seen.events_local.oom_kill is None:
            return
        # v2 counts `oom` where the limit stands and `oom_kill` where the victim was.
        level: Level = "container" if seen.events_local.oom else "unknown"
        self._ledger.counted(container_id, seen.events_local.oom_kill, self._clock(), level)
        if seen.memory is not None:
            last = LastSeen(self._wall(), seen.memory.usage_bytes, seen.memory.limit_bytes)
            self._ledger.sampled(container_id, last)

    def _tell(self, kills: Iterable[OomKill]) -> None:
        found = list(kills)
        if not found:
            return
        self._save()
        for kill in found:
            self.total += kill.killed
            self._told(kill)

    def _save(self) -> None:
        record = OomRecord(self._boot_id, self._sequence, self._ledger.counters(), self.kills)
        write_private(self._file, msgspec.json.encode(record))

    async def _wait(self, watcher: Watcher[str]) -> frozenset[str]:
        due_s = self._ledger.next_due_s()
        pause_s = LOOK_S if due_s is None else max(0.0, due_s - self._clock())
        try:
            async with asyncio.timeout(min(pause_s, LOOK_S)):
                return await anext(watcher)
        except TimeoutError:
            return frozenset()


def read_record(file: Path) -> OomRecord:
    """An empty one where there is none, or none that can be read: it only tells of the past."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=OomRecord)
    except FileNotFoundError:
        return OomRecord()
    except (msgspec.DecodeError, OSError) as error:
        log.warning("%s cannot be read and begins anew: %s", file, error)
        return OomRecord()
