"""Two witnesses of a kill, one record: whichever speaks first, whatever the other adds."""

from __future__ import annotations

import msgspec
import pytest

from plimsoll.codec.kernel.kmsg import KernelOomKill
from plimsoll.node.pressure.oom_ledger import (
    KEPT,
    LOG_TIMEOUT_S,
    LimitHit,
    MemorySample,
    MonitoredContainer,
    OomLedger,
)
from plimsoll.rules.oom.report import OomKill, oom_sentence

UID, ID = "0a1b2c3d-0000-4000-8000-000000000001", "ab" * 32
PODS = "/root/kubepods"
POD = f"{PODS}/burstable/pod{UID}"
WATCHED = MonitoredContainer(ID, "app", UID, "default", "web", f"{POD}/{ID}")
KILL = KernelOomKill(41, "hog", 5_000_000, 7, "hog", WATCHED.path, WATCHED.path, limit_bytes=64 << 20)


def ledger(**counters: int) -> OomLedger:
    found = OomLedger(counters)
    found.watch([])
    found.watch([WATCHED])
    return found


def test_the_log_comes_first() -> None:
    found = ledger()
    record = found.logged(KILL, 100.0)
    assert record is not None
    assert (record.container, record.level, record.source, record.pod) == ("app", "container", "kernel log", "web")
    found.counted(ID, 1, 0.0)
    assert (found.next_due_s(), found.due(99.0, 200.0)) == (None, [])
    assert found.counters() == {ID: 1}


def test_the_counter_comes_first() -> None:
    found = ledger()
    found.counted(ID, 1, 0.0)
    assert found.next_due_s() == LOG_TIMEOUT_S
    assert found.due(0.1, 100.1) == []
    assert found.logged(KILL, 100.0) is not None
    assert (found.next_due_s(), found.due(99.0, 200.0)) == (None, [])


def test_the_log_is_silent() -> None:
    found = ledger()
    found.sampled(ID, MemorySample(98.0, 60 << 20))
    found.counted(ID, 2, 0.0, lambda: LimitHit("container", WATCHED.path, 64 << 20))
    (record,) = found.due(LOG_TIMEOUT_S, 100.0)
    assert (record.killed, record.source, record.level, record.sample_age_s) == (2, "counters", "container", 2.0)
    assert oom_sentence(record) == (
        "2 processes in container app were killed by the kernel: out of memory at the container's memory limit (64Mi); "
        "known from the kernel's counters (usage 60Mi, last seen 2.0 s before)"
    )
    assert found.due(99.0, 101.0) == []


def test_the_end_of_a_container_does_not_wait() -> None:
    found = ledger()
    found.counted(ID, 1, 0.0)
    assert len(found.due(0.0, 100.0, at_once=(ID,))) == 1


def test_kills_while_no_agent_ran() -> None:
    found = OomLedger({ID: 1})
    found.watch([WATCHED])
    found.counted(ID, 3, 0.0)
    (record,) = found.due(1.0, 100.0)
    assert (record.killed, record.while_away) == (2, True)
    found.counted(ID, 4, 2.0)
    (record,) = found.due(3.0, 101.0)
    assert (record.killed, record.while_away) == (1, False)


@pytest.mark.parametrize(
    ("limit", "level", "text"),
    [
        (WATCHED.path, "container", "the container's memory limit"),
        (POD, "pod", "the pod's memory limit"),
        (f"{PODS}/burstable", "class", "the limit of its QoS class"),
        (PODS, "pods", "the limit of all pods together"),
        ("/root", "node", "a limit above all pods"),
        (None, "system", "the memory of the whole machine"),
    ],
)
def test_whose_limit_it_was(limit: str | None, level: str, text: str) -> None:
    record = ledger().logged(msgspec.structs.replace(KILL, limit_cgroup=limit), 1.0)
    assert record is not None
    assert record.level == level
    assert text in oom_sentence(record)


def test_a_foreign_kill_is_recorded_only_if_the_machine_is_out_of_memory() -> None:
    other = msgspec.structs.replace(KILL, limit_cgroup="/user.slice", victim_cgroup="/user.slice/x")
    assert ledger().logged(other, 1.0) is None
    record = ledger().logged(msgspec.structs.replace(other, limit_cgroup=None), 1.0)
    assert record is not None
    assert (record.level, record.container) == ("system", "")


def test_paths_may_begin_further_up_in_the_log() -> None:
    moved = msgspec.structs.replace(KILL, limit_cgroup=f"/outer{WATCHED.path}", victim_cgroup=f"/outer{WATCHED.path}")
    found = OomLedger(prefix="/outer", pods_path=PODS)
    found.watch([WATCHED])
    record = found.logged(moved, 1.0)
    assert record is not None
    assert record.container == "app"


def test_a_container_that_is_gone_is_forgotten() -> None:
    found = ledger()
    found.counted(ID, 1, 0.0)
    found.watch([])
    assert (found.counters(), found.due(9.0, 9.0)) == ({}, [])


def test_what_is_below_another_kubepods_is_not_ours() -> None:
    found = OomLedger(pods_path="/other/kubepods")
    assert found.logged(KILL, 1.0) is None


def test_a_container_killed_as_a_whole_is_one_record() -> None:
    asked: list[int] = []
    found = OomLedger(survives=lambda _watched, pid: asked.append(pid) is not None)
    found.watch([msgspec.structs.replace(WATCHED, group=True)])
    first = found.logged(KILL, 100.0)
    assert first is not None
    assert (first.whole_container, first.container_lives) == (True, False)
    assert found.logged(msgspec.structs.replace(KILL, pid=42, group=True), 100.0) is None
    assert (len(found.kills), found.kills[0].killed, asked) == (1, 2, [])
    found.counted(ID, 3, 0.0)  # the kernel counts the first one twice
    assert found.due(99.0, 101.0) == []


@pytest.mark.parametrize(("pid", "lives"), [(41, False), (40, True)], ids=["the first process", "a child"])
def test_whether_the_container_survives(pid: int, lives: bool) -> None:
    found = OomLedger(survives=lambda watched, killed: killed != watched.pid)
    found.watch([msgspec.structs.replace(WATCHED, pid=pid)])
    record = found.logged(KILL, 1.0)
    assert record is not None
    assert record.container_lives is lives
    assert ("continues" in oom_sentence(record)) is lives


def test_kills_are_counted_over_all_instances_of_a_container() -> None:
    """The instance with its counter is gone after a restart; the count of the container goes on."""
    found = OomLedger()
    for instance in ("first", "second"):
        found.watch([MonitoredContainer(instance, "app", "u", "shop", "web", f"/kubepods/podu/{instance}")])
        found.counted(instance, 2, 0.0)
        assert found.due(1.0, 100.0)
    assert dict(found.by_container) == {("app", "shop", "web"): 4}


def test_counts_of_the_oldest_containers_are_forgotten() -> None:
    found = OomLedger()
    for index in range(KEPT + 5):
        found.count(OomKill(0.0, "counters", "container", "u", "shop", f"p{index}", "app", str(index), killed=1))
    assert len(found.by_container) == KEPT
    assert ("app", "shop", "p0") not in found.by_container
    assert ("app", "shop", f"p{KEPT + 4}") in found.by_container
