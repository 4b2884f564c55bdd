"""OOM kills, combined from two sources: the kernel log and the counters of cgroups.

The log names process and limit but may be unreadable or overwritten; the counter of a container's cgroup misses no kill
but has only their number. A kill is recorded once: from the log where it has an entry, and what a counter has beyond
those is recorded after `LOG_TIMEOUT_S`. Counters are kept on disk, so kills while no agent ran are found as the
difference at the next start.

There is no I/O here: `OomLedger` gets what the sources have and returns records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

import msgspec

from plimsoll.codec.kernel.kmsg import KernelOomKill
from plimsoll.rules.cgroups.cgroup_owner import CgroupOwner, owner_of
from plimsoll.rules.oom.report import Level, OomKill, Victim, level_of

LOG_TIMEOUT_S = 0.3
KEPT = 200
TOGETHER_S = 2.0  # processes of one container that are killed together
PAGE_BYTES = 4096


class MonitoredContainer(msgspec.Struct, frozen=True):
    """A container whose OOM kills are reported."""

    id: str
    name: str
    pod_uid: str
    namespace: str
    pod: str
    path: str  # of its cgroup
    pid: int = 0  # of its first process, while it runs
    group: bool = False  # the kernel kills it as a whole (memory.oom.group)


ContainerKey = tuple[str, str, str]  # container, namespace, pod

UNKNOWN_CONTAINER = MonitoredContainer("", "", "", "", "", "")


class MemorySample(msgspec.Struct, frozen=True):
    """The last sample of a container's memory, for kills that the log does not have."""

    time_s: float
    usage_bytes: int


class LimitHit(msgspec.Struct, frozen=True):
    """Which limit was reached, as far as counters show, and its value."""

    level: Level = "unknown"
    path: str = ""
    limit_bytes: int | None = None


UNKNOWN = LimitHit()


class _Count(msgspec.Struct):
    counted: int = 0  # the last value of the kernel's counter
    recorded: int = 0  # kills of this container that have a record
    due_s: float | None = None  # when missing kills are recorded without the log
    hit: LimitHit = UNKNOWN


class OomLedger:
    def __init__(
        self,
        counters: Mapping[str, int] | None = None,
        pods_path: str = "",
        prefix: str = "",
        survives: Callable[[MonitoredContainer, int], bool | None] = lambda _container, _pid: None,
    ) -> None:
        """`counters`: container id → kills recorded by earlier runs. `pods_path`: only cgroups below it are the node's.

        `prefix`: what precedes the node's paths in the log. `survives`: whether the container continues after that
        process was killed.
        """
        self._pods_path, self._prefix, self._survives = pods_path, prefix, survives
        self._counts: dict[str, _Count] = {key: _Count(count, count) for key, count in (counters or {}).items()}
        self._away: set[str] | None = None  # older than this agent, counter not read yet; None until the first list
        self._watched: dict[str, MonitoredContainer] = {}
        self._last: dict[str, MemorySample] = {}
        self.kills: list[OomKill] = []
        self.totals: Counter[str] = Counter()  # level of the limit → number of killed processes
        self.by_container: Counter[ContainerKey] = Counter()  # over all instances of a container

    def watch(self, containers: Iterable[MonitoredContainer]) -> None:
        """Watch exactly these; counts of others are forgotten."""
        self._watched = {container.id: container for container in containers}
        for gone in self._counts.keys() - self._watched.keys():
            del self._counts[gone]
        self._away = set(self._watched) if self._away is None else self._away & self._watched.keys()
        self._last = {key: sample for key, sample in self._last.items() if key in self._watched}

    def sampled(self, container_id: str, sample: MemorySample) -> None:
        self._last[container_id] = sample

    def counters(self) -> dict[str, int]:
        """What must be on disk before a record is reported."""
        return {key: count.recorded for key, count in self._counts.items()}

    def logged(self, kill: KernelOomKill, wall_s: float, *, while_away: bool = False) -> OomKill | None:
        """Record an entry of the log. None for a process outside this node's pods, and for one more process of a
        container that is killed as a whole."""
        path = _below(kill.victim_cgroup, self._prefix)
        victim = owner_of(path) if self._is_ours(path) else CgroupOwner(path, "other")
        if victim.kind == "other" and kill.limit_cgroup is not None:
            return None
        watched = self._watched.get(victim.container_id, UNKNOWN_CONTAINER)
        limit = None if kill.limit_cgroup is None else owner_of(_below(kill.limit_cgroup, self._prefix))
        if watched is not UNKNOWN_CONTAINER:
            count = self._counts.setdefault(watched.id, _Count())
            count.recorded += 1
            if count.counted <= count.recorded:
                count.due_s = None
        if self._joined(victim, wall_s):
            return None
        record = _from_log(kill, wall_s, victim, watched, limit, while_away)
        if watched is not UNKNOWN_CONTAINER:
            record = self._with_survival(record, watched)
        self._keep(record)
        return record

    def _is_ours(self, path: str) -> bool:
        return not self._pods_path or path == self._pods_path or path.startswith(f"{self._pods_path}/")

    def _joined(self, victim: CgroupOwner, wall_s: float) -> bool:
        """The log has each process of a container that is killed as a whole: they share one record."""
        if not self.kills or not victim.container_id:
            return False
        last = self.kills[-1]
        if not last.whole_container or last.container_id != victim.container_id:
            return False
        if abs(wall_s - last.time_s) >= TOGETHER_S:
            return False
        self.kills[-1] = msgspec.structs.replace(last, killed=last.killed + 1)
        self.totals[last.level] += 1
        self.by_container[_key(last)] += 1
        return True

    def _with_survival(self, record: OomKill, watched: MonitoredContainer) -> OomKill:
        survives = False if record.whole_container else self._survives(watched, record.pid)
        return msgspec.structs.replace(record, container_lives=survives)

    def counted(self, container_id: str, kills: int, now_s: float, hit: Callable[[], LimitHit] = LimitHit) -> None:
        """The counter of a container as it is now; `hit` finds out which limit was reached."""
        count = self._counts.setdefault(container_id, _Count())
        if kills > count.counted:
            count.hit = hit()
        count.counted = kills
        watched = self._watched.get(container_id)
        if kills > count.recorded and count.recorded and watched is not None and watched.group:
            # Its processes were killed together and have a record; the first of them may be counted twice.
            count.recorded = kills
        if kills <= count.recorded:
            count.due_s = None
            self._mark_read(container_id)
        elif count.due_s is None:
            count.due_s = now_s + LOG_TIMEOUT_S

    def next_due_s(self) -> float | None:
        return min((count.due_s for count in self._counts.values() if count.due_s is not None), default=None)

    def due(self, now_s: float, wall_s: float, *, at_once: Iterable[str] = ()) -> list[OomKill]:
        """Record kills that only a counter has and whose wait for the log is over; those of `at_once` do not wait."""
        urgent, records = set(at_once), []
        for container_id, count in self._counts.items():
            if count.due_s is None or (count.due_s > now_s and container_id not in urgent):
                continue
            watched = self._watched.get(container_id, UNKNOWN_CONTAINER)
            last = self._last.get(container_id)
            record = OomKill(
                wall_s,
                "counters",
                count.hit.level,
                watched.pod_uid,
                watched.namespace,
                watched.pod,
                watched.name,
                container_id,
                killed=count.counted - count.recorded,
                limit_path=count.hit.path,
                usage_bytes=last.usage_bytes if last else None,
                limit_bytes=count.hit.limit_bytes,
                sample_age_s=wall_s - last.time_s if last else None,
                while_away=self._away is not None and container_id in self._away,
                whole_container=watched.group,
            )
            if watched is not UNKNOWN_CONTAINER:
                record = self._with_survival(record, watched)
            count.recorded, count.due_s = count.counted, None
            self._mark_read(container_id)
            self._keep(record)
            records.append(record)
        return records

    def _mark_read(self, container_id: str) -> None:
        if self._away is not None:
            self._away.discard(container_id)

    def _keep(self, record: OomKill) -> None:
        self.totals[record.level] += record.killed
        self.count(record)
        self.kills.append(record)
        del self.kills[:-KEPT]

    def count(self, record: OomKill) -> None:
        """Count a kill for its container; the containers of the oldest kills are forgotten."""
        if record.container:
            count = self.by_container.pop(_key(record), 0) + record.killed
            self.by_container[_key(record)] = count  # the newest is last
            while len(self.by_container) > KEPT:
                del self.by_container[next(iter(self.by_container))]


def _key(record: OomKill) -> ContainerKey:
    return record.container, record.namespace, record.pod


def _from_log(
    kill: KernelOomKill,
    wall_s: float,
    victim: CgroupOwner,
    watched: MonitoredContainer,
    limit: CgroupOwner | None,
    while_away: bool,
) -> OomKill:
    return OomKill(
        wall_s,
        "kernel log",
        level_of(limit, kill.limit_cgroup),
        victim.pod_uid,
        watched.namespace,
        watched.pod,
        watched.name,
        victim.container_id,
        kill.name,
        kill.pid,
        limit_path=kill.limit_cgroup or "/",
        limit_bytes=kill.limit_bytes,
        usage_bytes=kill.usage_bytes,
        oom_score_adj=kill.oom_score_adj,
        whole_container=kill.group or watched.group,
        while_away=while_away,
        stat=dict(kill.stat),
        candidates=tuple(
            Victim(process.pid, process.name, process.resident_pages * PAGE_BYTES, process.oom_score_adj)
            for process in kill.candidates
        ),
    )


def _below(path: str, prefix: str) -> str:
    """The kernel prints paths from the root of the hierarchy, which may be above the mount."""
    return path.removeprefix(prefix) if prefix and path.startswith(f"{prefix}/") else path
