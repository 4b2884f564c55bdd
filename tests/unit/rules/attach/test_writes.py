"""Writes, restores, overwrites; stale scores; proactive reclaim."""

from __future__ import annotations

import msgspec
import pytest

from plimsoll.rules.attach.reclaim import ReclaimSample, reclaim_bytes, within_budget
from plimsoll.rules.attach.scores import stale_pids
from plimsoll.rules.attach.values import Target
from plimsoll.rules.attach.writes import (
    Entry,
    Outcome,
    gives_up,
    missing_files,
    obsolete,
    overwriter,
    planned_writes,
    restoring,
)
from plimsoll.rules.blockio.files import lines_of
from tests.unit.rules.attach.nodes import MIB

PAGE = 4096
TARGET = Target("/kubepods/pod1", "pod", "default/a", {"memory.low": "8192", "memory.min": "4096"})
ENTRY = Entry("/kubepods/pod1", "memory.low", "0", "8192", 7)


def test_only_what_differs_is_written_and_the_first_value_is_kept() -> None:
    observed = {TARGET.path: ({"memory.low": "4096", "memory.min": "4097"}, 7)}
    (write,) = planned_writes([TARGET], observed, {ENTRY.key: ENTRY}, PAGE)  # 4097 is 4096 in the kernel
    assert (write.file, write.found, write.wanted, write.overwritten) == ("memory.low", "4096", "8192", True)
    assert write.entry == ENTRY  # with the value before attach, not the one of the overwriter
    (fresh,) = planned_writes([TARGET], observed, {}, PAGE)
    assert (fresh.entry.before, fresh.overwritten) == ("4096", False)


def test_a_new_cgroup_with_an_old_name_has_its_own_value_before() -> None:
    observed = {TARGET.path: ({"memory.low": "max", "memory.min": "4096"}, 8)}
    (write,) = planned_writes([TARGET], observed, {ENTRY.key: ENTRY}, PAGE)
    assert (write.entry.before, write.entry.inode, write.overwritten) == ("max", 8, False)


def test_missing_cgroups_and_files_are_not_written() -> None:
    assert planned_writes([TARGET], {}, {}, PAGE) == []
    assert planned_writes([TARGET], {TARGET.path: ({}, 7)}, {}, PAGE) == []


def test_what_the_policy_no_longer_asks_for() -> None:
    other = Entry("/kubepods", "memory.min", "0", "4096", 1)
    journal = {each.key: each for each in (ENTRY, other)}
    assert obsolete([TARGET], journal) == [other]
    assert obsolete([], journal, keep=frozenset({"/kubepods"})) == [ENTRY]


@pytest.mark.parametrize(
    ("found", "inode", "outcome"),
    [
        ("8192", 7, "restored"),
        ("0", 7, "already"),
        ("12288", 7, "changed by another"),
        ("8192", 8, "gone"),  # another cgroup with that name
        (None, None, "gone"),
    ],
)
def test_restoring(found: str | None, inode: int | None, outcome: Outcome) -> None:
    assert restoring(ENTRY, found, inode, PAGE) == outcome


def test_restoring_after_a_kill_between_the_entry_of_a_new_value_and_its_write() -> None:
    observed = {TARGET.path: ({"memory.low": "8192", "memory.min": "4096"}, 7)}
    changed = msgspec.structs.replace(TARGET, files={**TARGET.files, "memory.low": "16384"})
    (write,) = planned_writes([changed], observed, {ENTRY.key: ENTRY}, PAGE)
    assert not write.overwritten
    assert [restoring(write.entry, text, 7, PAGE) for text in ("8192", "16384", "0", "12288")] == [
        "restored",
        "restored",
        "already",
        "changed by another",
    ]
    (again,) = planned_writes([changed], observed, {write.entry.key: write.entry}, PAGE)
    assert (again.entry, again.overwritten) == (write.entry, False)


def test_restoring_after_two_kills_in_a_row() -> None:
    """The file has the value of the first entry all the time; systemd may still carry out the second write."""
    observed = {TARGET.path: ({"memory.low": "8192", "memory.min": "4096"}, 7)}
    journal = {ENTRY.key: ENTRY}
    for wanted in ("16384", "24576"):
        changed = msgspec.structs.replace(TARGET, files={**TARGET.files, "memory.low": wanted})
        (write,) = planned_writes([changed], observed, journal, PAGE)
        journal = {write.entry.key: write.entry}
    assert [restoring(write.entry, text, 7, PAGE) for text in ("8192", "24576", "0", "16384")] == [
        "restored",
        "restored",
        "already",
        "restored",
    ]


def test_lines_of_devices_of_which_only_some_were_written() -> None:
    limits = Target("/kubepods/pod1", "pod", "default/a", {"io.max": "8:0 wbps=5\n8:16 wbps=5"})
    (write,) = planned_writes(
        [limits], {limits.path: ({"io.max": "8:0 rbps=max wbps=9 riops=max wiops=max"}, 7)}, {}, PAGE
    )
    outcomes = {
        "8:0 wbps=5\n8:16 wbps=5": "restored",
        "8:0 wbps=5": "restored",
        "8:0 wbps=9\n8:16 wbps=5": "restored",
        "8:0 wbps=9": "already",
        "8:0 wbps=7\n8:16 wbps=5": "changed by another",
        "8:0 wbps=5\n8:32 riops=1": "restored",
    }
    assert {text: restoring(write.entry, text, 7, PAGE) for text in outcomes} == outcomes


def test_lines_of_devices_that_the_policy_does_not_name_stay() -> None:
    limits = Target("/kubepods/pod1", "pod", "default/a", {"io.max": "8:0 wbps=5\n8:16 wbps=5"})
    found = "8:0 wbps=9\n8:32 riops=1"
    (write,) = planned_writes([limits], {limits.path: ({"io.max": found}, 7)}, {}, PAGE)
    assert lines_of("io.max", write.wanted) == {
        "8:0": {"wbps": "5"},
        "8:16": {"wbps": "5"},
        "8:32": {"riops": "1"},
    }
    journal = {write.entry.key: write.entry}
    other = f"{limits.files['io.max']}\n8:32 riops=2\n8:48 wiops=3"
    assert planned_writes([limits], {limits.path: ({"io.max": other}, 7)}, journal, PAGE) == []
    less = Target("/kubepods/pod1", "pod", "default/a", {"io.max": "8:16 wbps=5"})
    (change,) = planned_writes([less], {limits.path: ({"io.max": other}, 7)}, journal, PAGE)
    assert lines_of("io.max", change.wanted) == {
        "8:0": {"wbps": "9"},  # as before attach
        "8:16": {"wbps": "5"},
        "8:32": {"riops": "2"},
        "8:48": {"wiops": "3"},
    }
    assert restoring(change.entry, other, 7, PAGE) == "restored"
    assert lines_of("io.max", change.entry.restored(other)) == {
        "8:0": {"wbps": "9"},
        "8:32": {"riops": "2"},
        "8:48": {"wiops": "3"},
    }


def test_the_weight_before_can_be_written_again() -> None:
    weight = Target("/kubepods", "pods", "all pods", {"io.weight": "500"})
    (write,) = planned_writes([weight], {weight.path: ({"io.weight": "default 100\n8:0 200"}, 7)}, {}, PAGE)
    assert write.entry.before == "100"
    assert restoring(write.entry, "default 500\n8:0 200", 7, PAGE) == "restored"


def test_files_whose_controller_is_not_enabled() -> None:
    assert missing_files([TARGET], {TARGET.path: ({"memory.low": "0"}, 7)}) == [(TARGET, "memory.min")]
    assert missing_files([TARGET], {}) == []


def test_restoring_before_the_cgroup_was_seen() -> None:
    created = Entry("/kubepods/pod1/c", "memory.high", "max", "8192", 0, "c")
    assert restoring(created, "8192", 99, PAGE) == "restored"


def test_who_overwrote() -> None:
    assert "runtime" in overwriter("container", "systemd", ENTRY, "0", PAGE)
    assert "systemd" in overwriter("pod", "systemd", ENTRY, "0", PAGE)
    assert overwriter("pod", "cgroupfs", ENTRY, "0", PAGE) == "the kubelet"
    assert "person" in overwriter("pods", "cgroupfs", ENTRY, "12288", PAGE)


def test_a_fight_is_given_up() -> None:
    assert not gives_up([1.0, 2.0, 3.0, 4.0], 5.0)
    assert gives_up([1.0, 2.0, 3.0, 4.0, 5.0], 6.0)
    assert not gives_up([1.0, 2.0, 3.0, 4.0, 5.0], 400.0)


@pytest.mark.parametrize(
    ("scores", "stale"),
    [
        ({}, []),
        ({10: 990, 11: 990, 12: 1000}, [10, 11]),  # 12 has set its own
        ({10: 900, 11: 990}, []),  # the first has the expected one: 11 has set its own
        ({10: 900}, []),
    ],
)
def test_stale_scores(scores: dict[int, int], stale: list[int]) -> None:
    assert stale_pids(scores, 900) == stale


@pytest.mark.parametrize(
    ("usage", "stalled_us", "protected", "step"),
    [
        (1024 * MIB, 0, 256 * MIB, 1024 * MIB // 100 // PAGE * PAGE),
        (1024 * MIB, 9_000, 256 * MIB, 1024 * MIB // 100 // PAGE * PAGE),  # 0.09 % of 10 s
        (1024 * MIB, 11_000, 256 * MIB, 0),  # 0.11 %: it waits for memory
        (1024 * MIB, -1, 0, 0),  # another container with that name
        (256 * MIB, 0, 256 * MIB, 0),
        (10 * MIB, 0, 0, MIB),
        (MIB // 2, 0, 0, 0),
    ],
)
def test_proactive_reclaim(usage: int, stalled_us: int, protected: int, step: int) -> None:
    before = ReclaimSample(100.0, usage, 5_000)
    assert reclaim_bytes(before, ReclaimSample(110.0, usage, 5_000 + stalled_us), protected, PAGE) == step
    assert reclaim_bytes(None, before, 0, PAGE) == 0


def test_the_cpu_budget() -> None:
    assert within_budget(0.19, 100.0) and not within_budget(0.21, 100.0)
