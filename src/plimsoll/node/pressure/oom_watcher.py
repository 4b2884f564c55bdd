"""Watch the pods' cgroups for out-of-memory kills, report each once, and keep a small record of them.

There are two sources, which `oom_ledger` combines: the kernel log, where it may be read, and the `oom_kill` counter of
each container's cgroup, woken by memory.events (v2) or the OOM notification (v1). The counter of a cgroup that is about
to be removed is read once more (`changing`). The record is one small file that also has the counters. A kill is written
to it before it is reported, so that an agent killed in between has at least the record.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from plimsoll.cgroups.stats.notifications import CgroupWatcher
from plimsoll.cgroups.stats.usage import CgroupOpener, CgroupUsage, MemoryEvents, usage
from plimsoll.codec.kernel.kmsg import OomReports, kernel_record
from plimsoll.linux.cgroup_files import CgroupError
from plimsoll.linux.files.state_dir import replace_private
from plimsoll.linux.kernel_log import DEVICE, KernelLog
from plimsoll.node.pressure.oom_ledger import (
    LOG_TIMEOUT_S,
    UNKNOWN,
    ContainerKey,
    LimitHit,
    MemorySample,
    MonitoredContainer,
    OomLedger,
)
from plimsoll.rules.cgroups.desired_files import parent_path
from plimsoll.rules.oom.report import Level, OomKill

POLL_S = 10.0
_LOG_KEY, _NEW_KEY = "kernel log", "new containers"
_LEVELS: tuple[Level, ...] = ("container", "pod", "class", "pods")
log = logging.getLogger(__name__)


class OomRecord(msgspec.Struct, frozen=True, rename="camel"):
    """The file. `sequence`: the last entry of the kernel log that was read since boot."""

    boot_id: str = ""
    sequence: int = -1
    counters: dict[str, int] = {}
    kills: tuple[OomKill, ...] = ()
    totals: dict[str, int] = {}  # level of the limit → number of killed processes, since the file was created


class OomWatcher:
    def __init__(
        self,
        files: CgroupOpener | None,
        containers: Callable[[], Iterable[MonitoredContainer]],
        report: Callable[[OomKill], None],
        file: Path,
        *,
        pods_path: str,
        clock: Callable[[], float],
        wall: Callable[[], float],
        boot_id: str,
        survives: Callable[[MonitoredContainer, int], bool | None] = lambda _container, _pid: None,
        device: str = DEVICE,
        prefix: str = "",
    ) -> None:
        """`files`: None on a simulated kernel, which kills nothing. `prefix`: what precedes the node's paths in the
        log.

        `containers`: those that have a cgroup, running or not. `survives`: whether a container continues after this
        process of it was killed (0: unknown which). `clock` is monotonic, as the timestamps of the log are.
        """
        self._files, self._containers, self._report, self._file = files, containers, report, file
        self._pods_path, self._clock, self._wall, self._boot_id = pods_path, clock, wall, boot_id
        record = read_record(file)
        is_same_boot = record.boot_id == boot_id
        self._sequence = record.sequence if is_same_boot else -1
        self._is_first_start = record.boot_id == ""
        self._ledger = OomLedger(record.counters if is_same_boot else {}, pods_path, prefix, survives)
        self._ledger.kills.extend(record.kills)
        self._ledger.totals.update(record.totals)
        for kill in record.kills:
            self._ledger.count(kill)
        self._watched: dict[str, MonitoredContainer] = {}
        self._subscribed: set[str] = set()  # containers whose cgroup notifies the watcher
        self._early: frozenset[str] = frozenset()  # v1 notifies before it kills: to be read once more
        self._evidence: dict[str, int] = {}  # path → how often its own limit was hit, as last read
        self._reports = OomReports()
        self._is_first_pass = True
        self._watcher: CgroupWatcher[str] | None = None
        self._log = None if files is None else _opened(device)

    @property
    def kills(self) -> tuple[OomKill, ...]:
        return tuple(self._ledger.kills)

    @property
    def totals(self) -> Mapping[str, int]:
        """Level of the limit → number of killed processes, over all runs of the agent."""
        return self._ledger.totals

    @property
    def by_container(self) -> Mapping[ContainerKey, int]:
        """Container, namespace and pod → number of killed processes, over all its instances that are remembered."""
        return self._ledger.by_container

    async def run(self) -> None:
        """Until cancelled."""
        if self._files is None:
            return
        loop = asyncio.get_running_loop()
        async with CgroupWatcher[str]() as watcher:
            self._watcher = watcher
            self._subscribed.clear()
            if self._log is not None:
                loop.add_reader(self._log.fileno(), watcher.fire, _LOG_KEY)
            try:
                fired: Iterable[str] = ()
                while True:
                    self._refresh()  # also wakes for each new container, so that its counter is read
                    if _LOG_KEY in fired or self._is_first_pass:
                        self._read_log()
                    self._read_counters(fired)
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

    # --- CgroupListener ---

    def changing(self, uid: str) -> None:
        """Cgroups of this pod are about to be removed: read them once more, and do not wait for the log."""
        if self._files is None:
            return
        self._refresh()
        ids = [container.id for container in self._watched.values() if container.pod_uid == uid]
        if ids:
            self._read_log()
            for container_id in ids:
                self._count(container_id)
            self._record(self._ledger.due(self._clock(), self._wall(), at_once=ids))

    def changed(self) -> None:
        """Cgroups were created or removed."""
        if self._watcher is not None:
            self._watcher.fire(_NEW_KEY)

    # ---

    def _refresh(self) -> None:
        """Watch exactly the containers that exist."""
        now = {container.id: container for container in self._containers()}
        for gone in self._watched.keys() - now.keys():
            self._unwatch(gone)
        for container_id, container in now.items():
            before = self._watched.get(container_id)
            if before is None:
                now[container_id] = self._with_group(container)
                self._note_evidence(now[container_id])
            # The runtime may report the exit before the log has the kill: keep the pid.
            elif container.pid in (0, before.pid):
                now[container_id] = before
            else:
                now[container_id] = msgspec.structs.replace(container, group=before.group)
        self._watched = now
        self._ledger.watch(now.values())
        if self._watcher is not None:
            for container_id in now.keys() - self._subscribed:
                self._subscribe(self._watcher, now[container_id])

    def _unwatch(self, container_id: str) -> None:
        path = self._watched[container_id].path
        self._evidence.pop(path, None)
        self._subscribed.discard(container_id)
        if self._watcher is not None:
            self._watcher.forget(container_id)

    def _subscribe(self, watcher: CgroupWatcher[str], container: MonitoredContainer) -> None:
        assert self._files is not None
        self._subscribed.add(container.id)
        try:
            file = "memory.events" if self._files.version == 2 else "memory.oom_control"
            with self._files.directory(container.path, file) as directory:
                if self._files.version == 2:
                    watcher.file_changes(container.id, directory, "memory.events")
                else:
                    watcher.out_of_memory(container.id, directory)
        except (CgroupError, OSError) as error:
            log.debug("%s is not watched for OOM kills: %s", container.path, error)

    def _with_group(self, container: MonitoredContainer) -> MonitoredContainer:
        """Whether the kernel kills it as a whole."""
        (text,) = self._read(2, container.path, "memory.oom.group")
        return msgspec.structs.replace(container, group=text is not None and text.strip() == "1")

    def _read_log(self) -> None:
        kills, has_changed = [], self._is_first_pass
        for data in self._log.read() if self._log is not None else ():
            record = kernel_record(data)
            if record is None or record.sequence <= self._sequence:
                continue
            self._sequence = record.sequence
            kill = self._reports.take(record)
            # Entries from before Plimsoll first ran here are ignored.
            if kill is not None and not (self._is_first_pass and self._is_first_start):
                ago_s = max(0.0, self._clock() - kill.time_us / 1e6)
                record_of_kill = self._ledger.logged(kill, self._wall() - ago_s, while_away=self._is_first_pass)
                has_changed = True  # also where it is one more process of a kill that was reported
                if record_of_kill is not None:
                    kills.append(record_of_kill)
        self._is_first_pass = False
        if has_changed:
            self._save()
        for logged in kills:
            self._report(logged)

    def _read_counters(self, fired: Iterable[str]) -> None:
        for container_id in fired:
            if container_id in self._watched:
                self._count(container_id)
        self._record(self._ledger.due(self._clock(), self._wall()))

    def _count(self, container_id: str) -> None:
        container = self._watched[container_id]
        current = self._usage(container.path)
        kills = None if current is None else _kills(current)
        if current is None or kills is None:
            return
        self._ledger.counted(container_id, kills, self._clock(), lambda: self._hit(container))
        if current.memory is not None:
            self._ledger.sampled(container_id, MemorySample(self._wall(), current.memory.usage_bytes))

    def _usage(self, path: str) -> CgroupUsage | None:
        assert self._files is not None
        try:
            return usage(self._files, path, ("memory", "events"))
        except CgroupError:
            return None

    # --- which limit was reached, from counters alone ---

    def _hit(self, container: MonitoredContainer) -> LimitHit:
        """The lowest cgroup whose own limit was hit since the last read: v2 counts that (`oom`), v1 its failures."""
        hit = UNKNOWN
        for level, path in self._levels(container):
            count = self._hits(path)
            if count is not None:
                if count > self._evidence.get(path, count) and hit is UNKNOWN:
                    hit = self._limit(level, path)
                self._evidence[path] = count
        return self._limit("container", container.path) if hit is UNKNOWN and self._is_full(container.path) else hit

    def _is_full(self, path: str) -> bool:
        """Whether the limit of memory and swap was reached. v1 counts no failure there, and checks it first where both
        limits are equal; but the highest usage shows it."""
        limit, most = self._read(1, path, "memory.memsw.limit_in_bytes", "memory.memsw.max_usage_in_bytes")
        return most is not None and limit is not None and int(most) >= int(limit)

    def _read(self, version: int, path: str, *names: str) -> list[str | None]:
        """Files that only this cgroup version has; None for one that cannot be read."""
        assert self._files is not None
        if self._files.version == version:
            with suppress(CgroupError), self._files.directory(path, names[0]) as directory:
                return [directory.read_if_there(name) for name in names]
        return [None] * len(names)

    def _limit(self, level: Level, path: str) -> LimitHit:
        current = self._usage(path)
        return LimitHit(level, path, None if current is None or current.memory is None else current.memory.limit_bytes)

    def _note_evidence(self, container: MonitoredContainer) -> None:
        for level, path in self._levels(container):
            if path not in self._evidence:
                # The cgroup of a container is created for it, so every hit in it is its own.
                hits = 0 if level == "container" else self._hits(path)
                if hits is not None:
                    self._evidence[path] = hits

    def _renew_evidence(self) -> None:
        """v1 also counts failures at a limit that were resolved by freeing page cache: they must not count as evidence
        at the next kill. The log, where it can be read, names the limit itself."""
        if self._files is None or self._files.version == 2 or self._log is not None:
            return
        for path in {path for container in self._watched.values() for _, path in self._levels(container)}:
            if (hits := self._hits(path)) is not None:
                self._evidence[path] = hits

    def _hits(self, path: str) -> int | None:
        current = self._usage(path)
        own = None if current is None else current.events_local
        return None if own is None else own.oom if self._files is not None and self._files.version == 2 else own.max

    def _levels(self, container: MonitoredContainer) -> list[tuple[Level, str]]:
        """The container's cgroup and those above it, up to the pods' root."""
        paths = [container.path]
        while paths[-1] != self._pods_path and paths[-1] != "/":
            paths.append(parent_path(paths[-1]))
        # A Guaranteed pod has no QoS class cgroup above it.
        levels = _LEVELS if len(paths) == len(_LEVELS) else tuple(level for level in _LEVELS if level != "class")
        return list(zip(levels, paths, strict=False))

    # --- reports ---

    def _record(self, kills: list[OomKill]) -> None:
        if kills:
            self._save()
        for kill in kills:
            self._report(kill)

    def _save(self) -> None:
        record = OomRecord(self._boot_id, self._sequence, self._ledger.counters(), self.kills, dict(self.totals))
        try:
            replace_private(self._file, msgspec.json.encode(record))
        except OSError as error:  # a full disk: the kill is still reported, and perhaps again after a restart
            log.error("OOM kills not written to %s: %s", self._file, error)

    async def _wait(self, watcher: CgroupWatcher[str]) -> frozenset[str]:
        due_s = self._ledger.next_due_s()
        pause_s = POLL_S if due_s is None else max(0.0, due_s - self._clock())
        try:
            async with asyncio.timeout(min(pause_s, LOG_TIMEOUT_S if self._early else POLL_S)):
                fired = await anext(watcher)
        except TimeoutError:
            fired, self._early = self._early, frozenset()
            return fired
        if self._files is not None and self._files.version == 1:
            self._early |= fired - {_LOG_KEY, _NEW_KEY}
        return fired


def _kills(current: CgroupUsage) -> int | None:
    """Including cgroups that the container itself created, where the kernel counts them together."""
    counted: MemoryEvents | None = current.events or current.events_local
    return None if counted is None else counted.oom_kill


def _opened(device: str) -> KernelLog | None:
    try:
        return KernelLog(device)
    except OSError as error:
        log.info("the kernel log cannot be read, OOM kills are found by counters only: %s", error)
        return None


def read_record(file: Path) -> OomRecord:
    """Empty where the file is missing or cannot be read."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=OomRecord)
    except FileNotFoundError:
        return OomRecord()
    except (msgspec.DecodeError, OSError) as error:
        log.warning("%s cannot be read, starting with an empty record: %s", file, error)
        return OomRecord()
