"""Kills as they are kept: a log in a pipe, counters in plain files, and the record that the next agent reads."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec
import pytest

from plimsoll.node.pressure.oom_ledger import MonitoredContainer
from plimsoll.node.pressure.oom_watcher import OomWatcher, read_record
from plimsoll.rules.oom.report import OomKill, oom_sentence
from tests.unit.node.played_node import MIB, PlayedCgroups

UID, ID = "0a1b2c3d-0000-4000-8000-000000000001", "ab" * 32
PATH = f"/kubepods/burstable/pod{UID}/{ID}"
CONTAINER = MonitoredContainer(ID, "app", UID, "ns", "web", PATH)


class PlayedLog:
    """One record per read, as the device gives them."""

    def __init__(self) -> None:
        self._fd, self._writing = os.pipe2(os.O_DIRECT | os.O_NONBLOCK | os.O_CLOEXEC)
        self.device, self._sequence = f"/proc/self/fd/{self._fd}", 0

    def say(self, *texts: str) -> None:
        for text in texts:
            self._sequence += 1
            os.write(self._writing, f"6,{self._sequence},1,-;{text}\n".encode())

    def kill(self, pid: int) -> None:
        self.say(f"Memory cgroup out of memory: Killed process {pid} (hog) total-vm:7kB, anon-rss:6kB, oom_score_adj:0")

    def close(self) -> None:
        os.close(self._fd)
        os.close(self._writing)


@pytest.fixture
def log() -> Iterator[PlayedLog]:
    made = PlayedLog()
    yield made
    made.close()


Start = Callable[[], OomWatcher]


@pytest.fixture
def reported() -> list[OomKill]:
    return []


@pytest.fixture
def start(log: PlayedLog, reported: list[OomKill], tmp_path: Path) -> Iterator[Start]:
    cgroups, made = PlayedCgroups(tmp_path / "cgroup"), []
    cgroups.put(PATH, memory_oom_group="1", memory_events="oom 0\noom_kill 0\n", memory_current=str(MIB))

    def started() -> OomWatcher:
        watch = OomWatcher(
            cgroups, lambda: [CONTAINER], reported.append, tmp_path / "oom.json",
            pods_path="/kubepods", clock=lambda: 1.0, wall=lambda: 100.0, boot_id="b", device=log.device,
        )  # fmt: skip
        made.append(watch)
        watch.changing(UID)
        return watch

    yield started
    for each in made:
        each.close()


def test_every_process_of_a_whole_container_is_counted_and_kept(
    start: Start, log: PlayedLog, reported: list[OomKill], tmp_path: Path
) -> None:
    watch = start()
    log.say(
        "hog invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
        f"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg={PATH},"
        f"task_memcg={PATH},task=hog,pid=1,uid=0",
    )
    log.kill(1)
    log.say(f"Tasks in {PATH} are going to be killed due to memory.oom.group set")
    log.kill(2)
    watch.changing(UID)
    assert (len(reported), dict(watch.totals), watch.kills[-1].killed) == (1, {"container": 2}, 2)
    log.kill(3)  # written after the first of them was reported
    log.kill(4)
    watch.changing(UID)
    assert (len(reported), dict(watch.totals), watch.kills[-1].killed) == (1, {"container": 4}, 4)
    kept = read_record(tmp_path / "oom.json")
    assert (kept.totals, [each.killed for each in kept.kills]) == ({"container": 4}, [4])
    watch.close()
    again = start()
    assert (dict(again.totals), [each.killed for each in again.kills], len(reported)) == ({"container": 4}, [4], 1)
    again.close()


def test_a_container_whose_end_is_known_before_its_kill_ended_with_it(log: PlayedLog, tmp_path: Path) -> None:
    cgroups, reported, pid = PlayedCgroups(tmp_path / "cgroup"), list[OomKill](), 41
    cgroups.put(PATH, memory_events="oom 0\noom_kill 0\n", memory_current=str(MIB))
    watch = OomWatcher(
        cgroups, lambda: [msgspec.structs.replace(CONTAINER, pid=pid)], reported.append, tmp_path / "oom.json",
        pods_path="/kubepods", clock=lambda: 1.0, wall=lambda: 100.0, boot_id="b", device=log.device,
        survives=lambda watched, killed: killed != watched.pid if watched.pid else None,
    )  # fmt: skip
    watch.changing(UID)
    pid = 0
    log.say(
        "hog invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
        f"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg={PATH},"
        f"task_memcg={PATH},task=hog,pid=41,uid=0",
    )
    log.kill(41)
    watch.changing(UID)
    watch.close()
    assert [each.container_lives for each in reported] == [False]


# --- v1 without a log ---

PATHS = (PATH, f"/kubepods/burstable/pod{UID}", "/kubepods/burstable", "/kubepods")
LIMITS_MIB = dict(zip(PATHS, (2, 3, 4, 5), strict=True))


class Counted:
    """No log, only counters of v1."""

    def __init__(self, root: Path) -> None:
        self._root, self.reported, self.is_reported = root, list[OomKill](), asyncio.Event()
        self.passes = asyncio.Queue[int]()
        self._cgroups = PlayedCgroups(root / "cgroup")
        self._cgroups.version = 1
        for path in PATHS:
            self.put(path, 0)
        self.watch = OomWatcher(
            self._cgroups, lambda: [CONTAINER], self._report, root / "oom.json",
            pods_path="/kubepods", clock=time.monotonic, wall=time.time, boot_id="b", device=str(root / "none"),
        )  # fmt: skip
        assert self.watch._log is None

        read = self.watch._read_counters

        def noticed(fired: Iterable[str]) -> None:
            read(fired)
            self.passes.put_nowait(1)

        self.watch._read_counters = noticed  # type: ignore[method-assign]

    def _report(self, kill: OomKill) -> None:
        self.reported.append(kill)
        self.is_reported.set()

    def put(self, path: str, failures: int, kills: int = 0, most: int = 0) -> None:
        self._cgroups.put(path)
        place = self._root / "cgroup" / path.lstrip("/")
        (place / "memory.failcnt").write_text(f"{failures}\n")
        (place / "memory.memsw.max_usage_in_bytes").write_text(f"{most}\n")
        (place / "memory.memsw.limit_in_bytes").write_text(f"{LIMITS_MIB[path] * MIB}\n")
        (place / "memory.oom_control").write_text(f"oom_kill_disable 0\nunder_oom 0\noom_kill {kills}\n")
        (place / "memory.usage_in_bytes").write_text(f"{MIB}\n")
        (place / "memory.limit_in_bytes").write_text(f"{LIMITS_MIB[path] * MIB}\n")


@pytest.mark.parametrize(("rests", "level"), [(True, "pod"), (False, "container")], ids=["read before", "at once"])
def test_a_limit_that_was_hit_without_harm_before_is_not_taken_for_the_one_that_killed(
    rests: bool, level: str, tmp_path: Path
) -> None:
    """Page cache met the container's limit, and later a process is killed at the pod's limit."""
    counted = Counted(tmp_path)
    counted.watch.changing(UID)
    counted.put(PATHS[0], 7)
    if rests:
        counted.watch._renew_evidence()
    counted.put(PATHS[0], 7, kills=1)
    counted.put(PATHS[1], 3)
    counted.watch.changing(UID)
    assert [(each.level, each.source) for each in counted.reported] == [(level, "counters")]


@pytest.mark.parametrize(
    ("most", "pods_failures", "level", "limit"),
    [
        (2 * MIB, 0, "container", "(2Mi)"),
        (MIB, 3, "pod", "(3Mi)"),
        (2 * MIB, 3, "pod", "(3Mi)"),
        (MIB, 0, "unknown", ""),
    ],
    ids=["the container's", "the pod's", "both were reached, the pod's now", "unknown"],
)
def test_whose_limit_it_was_where_memory_and_swap_together_have_the_same(
    most: int, pods_failures: int, level: str, limit: str, tmp_path: Path
) -> None:
    """The kernel then checks both together and counts no failure; the report has the limit and its value."""
    counted = Counted(tmp_path)
    counted.watch.changing(UID)
    counted.put(PATHS[0], 0, kills=1, most=most)
    counted.put(PATHS[1], pods_failures)
    counted.watch.changing(UID)
    (reported,) = counted.reported
    paths = {"container": PATHS[0], "pod": PATHS[1], "unknown": ""}
    assert (reported.level, reported.limit_path) == (level, paths[level])
    assert f"{limit}; known from" in oom_sentence(reported)


async def test_a_notification_that_comes_before_the_kill_is_enough(tmp_path: Path) -> None:
    """v1 notifies that a cgroup is out of memory before it chooses a process."""
    counted = Counted(tmp_path)
    running = asyncio.create_task(counted.watch.run())
    try:
        async with asyncio.timeout(8):  # POLL_S would be ten
            await counted.passes.get()  # the first pass
            assert counted.watch._watcher is not None
            counted.watch._watcher.fire(ID)
            await counted.passes.get()
            counted.put(PATHS[0], 7, kills=1)
            await counted.is_reported.wait()
    finally:
        running.cancel()
        await asyncio.wait([running])
    assert counted.reported[0].level == "container"
