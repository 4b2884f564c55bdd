"""The checker of histories notices each kind of fault."""

from __future__ import annotations

import pytest

from tests.e2e.etcd_history import Event, Operation, linearizability_faults, watch_faults

HISTORY = [Event(1, "k", "a"), Event(2, "k", "b"), Event(3, "other", "x"), Event(4, "k", None), Event(5, "k", "c")]


def write(version: int, value: str, began: float, ended: float, based_on: int = 0) -> Operation:
    return Operation("write", "k", began, ended, version, value, based_on)


def read(version: int, value: str, began: float, ended: float) -> Operation:
    return Operation("read", "k", began, ended, version, value)


@pytest.mark.parametrize(
    ("operations", "fault"),
    [
        ([write(1, "a", 0, 1), write(2, "b", 2, 3, 1), read(2, "b", 3.5, 4), write(5, "c", 5, 6)], ""),
        ([write(1, "a", 0, 5), read(2, "b", 1, 2), write(2, "b", 0, 9)], ""),  # concurrent
        ([write(3, "z", 0, 1)], "is lost"),
        ([write(2, "a", 0, 1)], "is lost"),
        ([write(5, "c", 0, 1, 2)], "did not follow 2"),
        ([read(2, "a", 0, 1)], "which never was"),
        ([write(2, "b", 0, 1), read(1, "a", 2, 3)], "began after 2 was acknowledged"),
        ([write(2, "b", 0, 1), write(1, "a", 2, 3)], "began after 2 was acknowledged"),
        ([read(2, "b", 0, 1), read(1, "a", 2, 3)], "began after 2 was acknowledged"),
    ],
)
def test_linearizability(operations: list[Operation], fault: str) -> None:
    found = linearizability_faults(HISTORY, operations)
    assert (fault in found[0]) if fault else found == []


def test_a_value_that_is_written_twice() -> None:
    assert "written twice" in linearizability_faults([*HISTORY, Event(6, "k", "c")], [read(5, "c", 0, 1)])[0]


@pytest.mark.parametrize(
    ("events", "fault"),
    [
        (HISTORY[1:], ""),
        (HISTORY[2:], "missing"),
        ([HISTORY[1], *HISTORY[3:]], "missing"),
        (HISTORY[1:4], "missing"),
        ([HISTORY[2], HISTORY[1], *HISTORY[3:]], "out of order"),
        ([HISTORY[1], HISTORY[1], *HISTORY[2:]], "seen twice"),
        ([*HISTORY[1:], Event(6, "k", "ghost")], "others"),
    ],
)
def test_watches(events: list[Event], fault: str) -> None:
    found = " ".join(watch_faults(HISTORY, {"w": (1, events)}))
    assert (fault in found) if fault else found == ""
