"""Watches for out-of-memory kills in pods' cgroups, tells each once, and keeps a small record of them.

Two witnesses (`oom_ledger` puts them together): the kernel's log, where it may be read, and the `oom_kill` counter of
every container's cgroup, woken by memory.events (v2) or the OOM notification (v1). A cgroup that is about to be removed
is asked once more before (`changing`), because its counter goes with it. The record is one small file with the counters
beside it. A kill is in it before it is told: an agent killed in between has it in the record at least.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import msgspec

from plimsoll.cgroups.stats.notifications import CgroupWatcher
from plimsoll.cgroups.stats.usage import CgroupOpener, CgroupUsage, MemoryEvents, usage
from plimsoll.codec.kernel.kmsg import OomReports, kernel_record
from plimsoll.linux.cgroup_files import CgroupError
from plimsoll.linux.kernel_log import DEVICE, KernelLog
from plimsoll.linux.state_dir import replace_private
from plimsoll.node.pressure.oom_ledger import PATIENCE_S, UNKNOWN, LastSeen, LimitHit, MonitoredContainer, OomLedger
from plimsoll.rules.cgroups.desired_files import parent_path
from plimsoll.rules.oom.report import Level, OomKill

LOOK_S = 10.0
_LOG_KEY, _NEW_KEY = "kernel log", "new containers"
_ABOVE: tuple[Level, ...] = ("container", "pod", "class", "pods")
log = logging.getLogger(__name__)


class OomRecord(msgspec.Struct, frozen=True, rename="camel"):
    """The file. `sequence` is the last record of the kernel's log that was read, in this boot."""

    boot_id: str = ""
    sequence: int = -1
    counters: dict[str, int] = {}
    kills: tuple[OomKill, ...] = ()
    totals: dict[str, int] = {}  # whose limit → how many processes, since the file was made


class OomWatch:
    def __init__(
        self,
        files: CgroupOpener | None,
        containers: Callable[[], Iterable[MonitoredContainer]],
        told: Callable[[OomKill], None],
        file: Path,
        *,
        pods_path: str,
        clock: Callable[[], float],
        wall: Callable[[], float],
        boot_id: str,
        lives: Callable[[MonitoredContainer, int], bool | None] = lambda _watched, _pid: None,
        device: str = DEVICE,
        prefix: str = "",
    ) -> None:
        """`files`: None on a kernel in memory, where nobody is killed. `prefix`: what precedes our paths in the log.

        `containers`: those that have a cgroup, running or not. `lives`: whether a container goes on after this process
        of it was killed (0: it is not known which). `clock` is the monotonic one, by which the log counts as well.
        """
        self._files, self._containers, self._told, self._file = files, containers, told, file
        self._pods_path, self._clock, self._wall, self._boot_id = pods_path, clock, wall, boot_id
        record = read_record(file)
        is_same_boot = record.boot_id == boot_id
        self._sequence = record.sequence if is_same_boot else -1
        self._is_first_start = record.boot_id == ""
        self._ledger = OomLedger(record.counters if is_same_boot else {}, pods_path, prefix, lives)
        self._ledger.kills.extend(record.kills)
        self._ledger.totals.update(record.totals)
        self._watched: dict[str, MonitoredContainer] = {}
        self._listened: set[str] = set()  # those of which the kernel tells the watcher
        self._early: frozenset[str] = frozenset()  # v1 tells of them before it kills: to be looked at once more
        self._evidence: dict[str, int] = {}  # path → how often its own limit was hit, as last seen
        self._reports = OomReports()
        self._is_first_look = True
        self._watcher: CgroupWatcher[str] | None = None
        self._log = None if files is None else _opened(device)

    @property
    def kills(self) -> tuple[OomKill, ...]:
        return tuple(self._ledger.kills)

    @property
    def totals(self) -> Mapping[str, int]:
        """Whose limit → how many processes, also by earlier agents."""
        return self._ledger.totals

    @property
    def log_is_read(self) -> bool:
        return self._log is not None

    async def run(self) -> None:
        """For ever."""
        if self._files is None:
            return
        loop = asyncio.get_running_loop()
        async with CgroupWatcher[str]() as watcher:
            self._watcher = watcher
            self._listened.clear()
            if self._log is not None:
                loop.add_reader(self._log.fileno(), watcher.fire, _LOG_KEY)
            try:
                fired: Iterable[str] = ()
                while True:
                    self._follow()  # wakes each new one, so that its counter is looked at
                    if _LOG_KEY in fired or self._is_first_look:
                        self._read()
                    self._look(fired)
                    fired = await self._wait(watcher)
                    if not fired:
                        self._renew_evidence()
            finally:
                self._watcher = None
                if self._log is not None:
                    loop.remove_reader(self._log.fileno())

    def close(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None

    # --- told by whoever makes and removes cgroups ---

    def changing(self, uid: str) -> None:
        """Cgroups of this pod may be removed now: ask them once more, and do not wait for the other witness."""
        if self._files is None:
            return
        self._follow()
        ids = [each.id for each in self._watched.values() if each.pod_uid == uid]
        if ids:
            self._read()
            for container_id in ids:
                self._count(container_id)
            self._tell(self._ledger.due(self._clock(), self._wall(), at_once=ids))

    def changed(self) -> None:
        """There are other cgroups than before."""
        if self._watcher is not None:
            self._watcher.fire(_NEW_KEY)

    # ---

    def _follow(self) -> None:
        """Exactly the containers that there are."""
        now = {each.id: each for each in self._containers()}
        for gone in self._watched.keys() - now.keys():
            self._unwatch(gone)
        for container_id in now.keys() - self._watched.keys():
            now[container_id] = self._with_group(now[container_id])
            self._note_evidence(now[container_id])
        for container_id in now.keys() & self._watched.keys():
            before = self._watched[container_id]
            # The runtime may tell of its end before the kernel's log does of the kill: whose end that was is known.
            pid = now[container_id].pid or before.pid
            now[container_id] = msgspec.structs.replace(now[container_id], group=before.group, pid=pid)
        self._watched = now
        self._ledger.watch(now.values())
        if self._watcher is not None:
            for container_id, each in now.items():
                if container_id not in self._listened:
                    self._listen(self._watcher, each)

    def _unwatch(self, container_id: str) -> None:
        path = self._watched[container_id].path
        self._evidence.pop(path, None)
        self._listened.discard(container_id)
        if self._watcher is not None:
            self._watcher.forget(container_id)

    def _listen(self, watcher: CgroupWatcher[str], each: MonitoredContainer) -> None:
        assert self._files is not None
        self._listened.add(each.id)
        try:
            file = "memory.events" if self._files.version == 2 else "memory.oom_control"
            with self._files.directory(each.path, file) as directory:
                if self._files.version == 2:
                    watcher.file_changes(each.id, directory, "memory.events")
                else:
                    watcher.out_of_memory(each.id, directory)
        except (CgroupError, OSError) as error:
            log.debug("%s is not watched for OOM kills: %s", each.path, error)

    def _with_group(self, each: MonitoredContainer) -> MonitoredContainer:
        """Whether the kernel kills it as a whole."""
        assert self._files is not None
        if self._files.version == 1:
            return each
        try:
            with self._files.directory(each.path, "memory.oom.group") as directory:
                text = directory.read_if_there("memory.oom.group")
        except CgroupError:
            return each
        return msgspec.structs.replace(each, group=text is not None and text.strip() == "1")

    def _read(self) -> None:
        kills, is_news = [], self._is_first_look
        for data in self._log.read() if self._log is not None else ():
            record = kernel_record(data)
            if record is None or record.sequence <= self._sequence:
                continue
            self._sequence = record.sequence
            kill = self._reports.take(record)
            # What was in the log before Plimsoll first ran here is not its business.
            if kill is not None and not (self._is_first_look and self._is_first_start):
                ago_s = max(0.0, self._clock() - kill.time_us / 1e6)
                told = self._ledger.logged(kill, self._wall() - ago_s, while_away=self._is_first_look)
                is_news = True  # also where it is one more process of a record that was told
                if told is not None:
                    kills.append(told)
        self._is_first_look = False
        if is_news:
            self._save()
        for each in kills:
            self._told(each)

    def _look(self, fired: Iterable[str]) -> None:
        for container_id in fired:
            if container_id in self._watched:
                self._count(container_id)
        self._tell(self._ledger.due(self._clock(), self._wall()))

    def _count(self, container_id: str) -> None:
        watched = self._watched[container_id]
        seen = self._seen(watched.path)
        kills = None if seen is None else _kills(seen)
        if seen is None or kills is None:
            return
        self._ledger.counted(container_id, kills, self._clock(), lambda: self._hit(watched))
        if seen.memory is not None:
            self._ledger.sampled(container_id, LastSeen(self._wall(), seen.memory.usage_bytes))

    def _seen(self, path: str) -> CgroupUsage | None:
        assert self._files is not None
        try:
            return usage(self._files, path, ("memory", "events"))
        except CgroupError:
            return None

    # --- whose limit it was, where only counters tell ---

    def _hit(self, watched: MonitoredContainer) -> LimitHit:
        """The lowest cgroup whose own limit was hit since the last look: v2 counts that (`oom`), v1 its failures."""
        found = UNKNOWN
        for level, path in self._above(watched):
            hits = self._hits(path)
            if hits is not None:
                if hits > self._evidence.get(path, hits) and found is UNKNOWN:
                    found = self._limit(level, path)
                self._evidence[path] = hits
        return self._limit("container", watched.path) if found is UNKNOWN and self._is_full(watched.path) else found

    def _is_full(self, path: str) -> bool:
        """v1 counts no failure at a limit of memory and swap together, which comes first where that of memory is the
        same; but how much there ever was shows that it was reached."""
        assert self._files is not None
        most, limit = "memory.memsw.max_usage_in_bytes", "memory.memsw.limit_in_bytes"
        if self._files.version == 2:
            return False
        try:
            with self._files.directory(path, limit) as directory:
                texts = directory.read_if_there(most), directory.read_if_there(limit)
        except CgroupError:
            return False
        return texts[0] is not None and texts[1] is not None and int(texts[0]) >= int(texts[1])

    def _limit(self, level: Level, path: str) -> LimitHit:
        seen = self._seen(path)
        return LimitHit(level, path, None if seen is None or seen.memory is None else seen.memory.limit_bytes)

    def _note_evidence(self, watched: MonitoredContainer) -> None:
        for level, path in self._above(watched):
            if path not in self._evidence:
                # A container's cgroup is its own from birth, so whatever it counts is its own.
                hits = 0 if level == "container" else self._hits(path)
                if hits is not None:
                    self._evidence[path] = hits

    def _renew_evidence(self) -> None:
        """v1 counts every failure at a limit, also those that page cache caused and nobody died of: those are old news
        by the next kill. The log would name the limit itself."""
        if self._files is None or self._files.version == 2 or self._log is not None:
            return
        for path in {path for each in self._watched.values() for _, path in self._above(each)}:
            if (hits := self._hits(path)) is not None:
                self._evidence[path] = hits

    def _hits(self, path: str) -> int | None:
        seen = self._seen(path)
        own = None if seen is None else seen.events_local
        return None if own is None else own.oom if self._files is not None and self._files.version == 2 else own.max

    def _above(self, watched: MonitoredContainer) -> list[tuple[Level, str]]:
        paths = [watched.path]
        while paths[-1] != self._pods_path and paths[-1] != "/":
            paths.append(parent_path(paths[-1]))
        # A Guaranteed pod has no class above it.
        levels = _ABOVE if len(paths) == len(_ABOVE) else tuple(each for each in _ABOVE if each != "class")
        return list(zip(levels, paths, strict=False))

    # --- telling ---

    def _tell(self, kills: Iterable[OomKill]) -> None:
        found = list(kills)
        if not found:
            return
        self._save()
        for kill in found:
            self._told(kill)

    def _save(self) -> None:
        record = OomRecord(self._boot_id, self._sequence, self._ledger.counters(), self.kills, dict(self.totals))
        try:
            replace_private(self._file, msgspec.json.encode(record))
        except OSError as error:  # a full disk: it is told all the same, and perhaps once more after a restart
            log.error("OOM kills cannot be kept in %s: %s", self._file, error)

    async def _wait(self, watcher: CgroupWatcher[str]) -> frozenset[str]:
        due_s = self._ledger.next_due_s()
        pause_s = LOOK_S if due_s is None else max(0.0, due_s - self._clock())
        try:
            async with asyncio.timeout(min(pause_s, PATIENCE_S if self._early else LOOK_S)):
                fired = await anext(watcher)
        except TimeoutError:
            fired, self._early = self._early, frozenset()
            return fired
        if self._files is not None and self._files.version == 1:
            self._early |= fired - {_LOG_KEY, _NEW_KEY}
        return fired


def _kills(seen: CgroupUsage) -> int | None:
    """With those in cgroups that the container itself has made, where the kernel counts them together."""
    counted: MemoryEvents | None = seen.events or seen.events_local
    return None if counted is None else counted.oom_kill


def _opened(device: str) -> KernelLog | None:
    try:
        return KernelLog(device)
    except OSError as error:
        log.info("the kernel's log cannot be read (%s): OOM kills are known from counters only", error)
        return None


def read_record(file: Path) -> OomRecord:
    """An empty one where there is none, or none that can be read: it only tells of the past."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=OomRecord)
    except FileNotFoundError:
        return OomRecord()
    except (msgspec.DecodeError, OSError) as error:
        log.warning("%s cannot be read and begins anew: %s", file, error)
        return OomRecord()
