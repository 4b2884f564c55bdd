"""Kills as they are kept: a log in a pipe, counters in plain files, and the record that the next agent reads."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from plimsoll.node.oom_ledger import Watched
from plimsoll.node.oom_watch import OomWatch, read_record
from plimsoll.rules.oom_story import OomKill
from tests.unit.node.played_node import MIB, PlayedCgroups

UID, ID = "0a1b2c3d-0000-4000-8000-000000000001", "ab" * 32
PATH = f"/kubepods/burstable/pod{UID}/{ID}"
CONTAINER = Watched(ID, "app", UID, "ns", "web", PATH)


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


Start = Callable[[], OomWatch]


@pytest.fixture
def told() -> list[OomKill]:
    return []


@pytest.fixture
def start(log: PlayedLog, told: list[OomKill], tmp_path: Path) -> Iterator[Start]:
    cgroups, made = PlayedCgroups(tmp_path / "cgroup"), []
    cgroups.put(PATH, memory_oom_group="1", memory_events="oom 0\noom_kill 0\n", memory_current=str(MIB))

    def started() -> OomWatch:
        watch = OomWatch(
            cgroups, lambda: [CONTAINER], told.append, tmp_path / "oom.json",
            pods_path="/kubepods", clock=lambda: 1.0, wall=lambda: 100.0, boot_id="b", device=log.device,
        )  # fmt: skip
        made.append(watch)
        watch.changing(UID)
        return watch

    yield started
    for each in made:
        each.close()


def test_every_process_of_a_whole_container_is_counted_and_kept(
    start: Start, log: PlayedLog, told: list[OomKill], tmp_path: Path
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
    assert (len(told), dict(watch.totals), watch.kills[-1].killed) == (1, {"container": 2}, 2)
    log.kill(3)  # written after the first of them was told
    log.kill(4)
    watch.changing(UID)
    assert (len(told), dict(watch.totals), watch.kills[-1].killed) == (1, {"container": 4}, 4)
    kept = read_record(tmp_path / "oom.json")
    assert (kept.totals, [each.killed for each in kept.kills]) == ({"container": 4}, [4])
    watch.close()
    again = start()
    assert (dict(again.totals), [each.killed for each in again.kills], len(told)) == ({"container": 4}, [4], 1)
    again.close()
