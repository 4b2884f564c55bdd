"""Kills that were seen, put together from two witnesses: the kernel's log and the cgroups' counters.

The log names process and limit but may be unreadable or overwritten; a counter of a container's cgroup misses nothing
but says only that it rose. A kill is told once: the log's word is taken where it comes, and what a counter has beyond
the log's kills is told by itself after `PATIENCE_S`. Counters are kept on disk, so kills while no agent ran are found
as the difference at the next start.

Here is no I/O: `OomLedger` is told what the witnesses say and returns records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

import msgspec

from plimsoll.codec.kernel.kmsg import KernelOomKill
from plimsoll.rules.cgroups.cgroup_owner import CgroupOwner, owner_of
from plimsoll.rules.oom.report import Level, OomKill, Victim, level_of

PATIENCE_S = 0.3
KEPT = 200
TOGETHER_S = 2.0  # processes of one container that are killed as one
PAGE_BYTES = 4096


class MonitoredContainer(msgspec.Struct, frozen=True):
    """A container whose kills are told."""

    id: str
    name: str
    pod_uid: str
    namespace: str
    pod: str
    path: str  # of its cgroup
    pid: int = 0  # of its first process, while it runs
    group: bool = False  # the kernel kills it as a whole (memory.oom.group)


class LastSeen(msgspec.Struct, frozen=True):
    """The last sample of a container's memory, for kills that the log does not describe."""

    time_s: float
    usage_bytes: int


class LimitHit(msgspec.Struct, frozen=True):
    """Whose limit it was as far as counters tell, and how much that is."""

    level: Level = "unknown"
    path: str = ""
    limit_bytes: int | None = None


UNKNOWN = LimitHit()


class _Count(msgspec.Struct):
    counted: int = 0  # what the kernel's counter said last
    told: int = 0  # kills of this container that have a record
    due_s: float | None = None  # when what is missing is told without the log
    hit: LimitHit = UNKNOWN


class OomLedger:
    def __init__(
        self,
        counters: Mapping[str, int] | None = None,
        pods_path: str = "",
        prefix: str = "",
        lives: Callable[[MonitoredContainer, int], bool | None] = lambda _watched, _pid: None,
    ) -> None:
        """`counters`: container id → kills told so far, from an earlier run. `pods_path`: only what is below is ours.

        `prefix`: what stands before our paths in the log. `lives`: does the container go on after that process died?
        """
        self._pods_path, self._prefix, self._lives = pods_path, prefix, lives
        self._counts: dict[str, _Count] = {key: _Count(told, told) for key, told in (counters or {}).items()}
        self._away: set[str] | None = None  # ran before we did, and not looked at yet; None until the first list
        self._watched: dict[str, MonitoredContainer] = {}
        self._last: dict[str, LastSeen] = {}
        self.kills: list[OomKill] = []
        self.totals: Counter[str] = Counter()  # whose limit → how many processes

    def watch(self, containers: Iterable[MonitoredContainer]) -> None:
        """Exactly these; counts of others are forgotten."""
        self._watched = {each.id: each for each in containers}
        for gone in self._counts.keys() - self._watched.keys():
            del self._counts[gone]
        self._away = set(self._watched) if self._away is None else self._away & self._watched.keys()
        self._last = {key: seen for key, seen in self._last.items() if key in self._watched}

    def sampled(self, container_id: str, seen: LastSeen) -> None:
        self._last[container_id] = seen

    def counters(self) -> dict[str, int]:
        """What must be on disk before a record is told."""
        return {key: count.told for key, count in self._counts.items()}

    def logged(self, kill: KernelOomKill, wall_s: float, *, while_away: bool = False) -> OomKill | None:
        """The log's word. None for what is nobody's here, and for one more process of a container killed as a whole."""
        path = _below(kill.victim_cgroup, self._prefix)
        victim = owner_of(path) if self._is_ours(path) else CgroupOwner(path, "other")
        if victim.kind == "other" and kill.limit_cgroup is not None:
            return None
        watched = self._watched.get(victim.container_id)
        limit = None if kill.limit_cgroup is None else owner_of(_below(kill.limit_cgroup, self._prefix))
        if watched is not None:
            count = self._counts.setdefault(watched.id, _Count())
            count.told += 1
            if count.counted <= count.told:
                count.due_s = None
        if self._joined(victim, wall_s):
            return None
        record = _from_log(kill, wall_s, victim, watched, limit, while_away)
        if watched is not None:
            record = self._with_life(record, watched)
        self._keep(record)
        return record

    def _is_ours(self, path: str) -> bool:
        return not self._pods_path or path == self._pods_path or path.startswith(f"{self._pods_path}/")

    def _joined(self, victim: CgroupOwner, wall_s: float) -> bool:
        """The kernel names every process of a container that it kills as a whole: one record stands for them."""
        if not self.kills or not victim.container_id:
            return False
        last = self.kills[-1]
        if not last.whole_container or last.container_id != victim.container_id:
            return False
        if abs(wall_s - last.time_s) >= TOGETHER_S:
            return False
        self.kills[-1] = msgspec.structs.replace(last, killed=last.killed + 1)
        self.totals[last.level] += 1
        return True

    def _with_life(self, record: OomKill, watched: MonitoredContainer) -> OomKill:
        lives = False if record.whole_container else self._lives(watched, record.pid)
        return msgspec.structs.replace(record, container_lives=lives)

    def counted(self, container_id: str, kills: int, now_s: float, hit: Callable[[], LimitHit] = LimitHit) -> None:
        """What a container's counter says now; `hit` is asked whose limit it seems to have been."""
        count = self._counts.setdefault(container_id, _Count())
        if kills > count.counted:
            count.hit = hit()
        count.counted = kills
        watched = self._watched.get(container_id)
        if kills > count.told and count.told and watched is not None and watched.group:
            # Its processes went as one, and that was told; the first of them may be counted twice.
            count.told = kills
        if kills <= count.told:
            count.due_s = None
            self._looked_at(container_id)
        elif count.due_s is None:
            count.due_s = now_s + PATIENCE_S

    def next_due_s(self) -> float | None:
        return min((each.due_s for each in self._counts.values() if each.due_s is not None), default=None)

    def due(self, now_s: float, wall_s: float, *, at_once: Iterable[str] = ()) -> list[OomKill]:
        """Kills that only a counter knows of and that have waited long enough; for `at_once` there is no waiting."""
        hurried, records = set(at_once), []
        for container_id, count in self._counts.items():
            if count.due_s is None or (count.due_s > now_s and container_id not in hurried):
                continue
            watched, last = self._watched.get(container_id), self._last.get(container_id)
            record = OomKill(
                wall_s,
                "counters",
                count.hit.level,
                watched.pod_uid if watched else "",
                watched.namespace if watched else "",
                watched.pod if watched else "",
                watched.name if watched else "",
                container_id,
                killed=count.counted - count.told,
                limit_path=count.hit.path,
                usage_bytes=last.usage_bytes if last else None,
                limit_bytes=count.hit.limit_bytes,
                sample_age_s=wall_s - last.time_s if last else None,
                while_away=self._away is not None and container_id in self._away,
                whole_container=watched.group if watched else False,
            )
            if watched is not None:
                record = self._with_life(record, watched)
            count.told, count.due_s = count.counted, None
            self._looked_at(container_id)
            self._keep(record)
            records.append(record)
        return records

    def _looked_at(self, container_id: str) -> None:
        if self._away is not None:
            self._away.discard(container_id)

    def _keep(self, record: OomKill) -> None:
        self.totals[record.level] += record.killed
        self.kills.append(record)
        del self.kills[:-KEPT]


def _from_log(
    kill: KernelOomKill,
    wall_s: float,
    victim: CgroupOwner,
    watched: MonitoredContainer | None,
    limit: CgroupOwner | None,
    while_away: bool,
) -> OomKill:
    return OomKill(
        wall_s,
        "kernel log",
        level_of(limit, kill.limit_cgroup),
        victim.pod_uid,
        watched.namespace if watched else "",
        watched.pod if watched else "",
        watched.name if watched else "",
        victim.container_id,
        kill.name,
        kill.pid,
        limit_path=kill.limit_cgroup or "/",
        limit_bytes=kill.limit_bytes,
        usage_bytes=kill.usage_bytes,
        oom_score_adj=kill.oom_score_adj,
        whole_container=kill.group or (watched is not None and watched.group),
        while_away=while_away,
        stat=dict(kill.stat),
        candidates=tuple(
            Victim(each.pid, each.name, each.resident_pages * PAGE_BYTES, each.oom_score_adj)
            for each in kill.candidates
        ),
    )


def _below(path: str, prefix: str) -> str:
    """The kernel prints paths from the top of the hierarchy, which need not be where our mount begins."""
    return path.removeprefix(prefix) if prefix and path.startswith(f"{prefix}/") else path
