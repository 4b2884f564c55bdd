"""Why pods were evicted, after the agent that decided it is gone."""

from __future__ import annotations

from pathlib import Path

import pytest

from plimsoll.node.pressure.decision_log import KEPT, DecisionLog
from plimsoll.rules.eviction.decision import EvictionCandidate, EvictionDecision, why_sentence


def decision(name: str, at_s: float = 0.0) -> EvictionDecision:
    place = EvictionCandidate(name, "ns", name, 0, 300 << 20, "100Mi", True, before="larger excess")
    following = EvictionCandidate("next", "ns", "next", 5, 10 << 20, "0", True)
    order = (place, following)
    return EvictionDecision(
        "memory.available", "memory", "100Mi", "52Mi", True, 1.0, order, place, time_s=at_s, pods=2, following=following
    )


def test_another_agent_finds_them(tmp_path: Path) -> None:
    first = DecisionLog(tmp_path / "log")
    for name in ("a", "b"):
        first.add(decision(name))
    assert list(DecisionLog(tmp_path / "log")) == [decision("a"), decision("b")]


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    kept = DecisionLog(tmp_path / "log")
    for number in range(5 * KEPT):
        kept.add(decision(f"p{number}"))
    again = DecisionLog(tmp_path / "log")
    assert [each.victim.name for each in again if each.victim] == [f"p{number}" for number in range(4 * KEPT, 5 * KEPT)]
    assert len((tmp_path / "log").read_bytes().splitlines()) <= 2 * KEPT


def test_a_pod_is_there_once(tmp_path: Path) -> None:
    kept = DecisionLog(tmp_path / "log")
    kept.add(decision("a", 1.0))
    kept.add(decision("b", 2.0))
    again = DecisionLog(tmp_path / "log")  # killed before it began with `a`
    again.add(decision("a", 3.0))
    assert [each.time_s for each in again] == [2.0, 3.0]
    assert [each.time_s for each in DecisionLog(tmp_path / "log")] == [2.0, 3.0]


@pytest.mark.parametrize("line", [b"{", b"\x00\xff", b'{"signal": 3}'], ids=["cut off", "no text", "another kind"])
def test_a_line_that_cannot_be_read_is_left_out(line: bytes, tmp_path: Path) -> None:
    DecisionLog(tmp_path / "log").add(decision("a"))
    with (tmp_path / "log").open("ab") as file:
        file.write(line + b"\n")
    assert list(DecisionLog(tmp_path / "log")) == [decision("a")]


def test_why_this_pod_and_who_is_next() -> None:
    assert why_sentence(decision("web")) == (
        "memory.available is 52Mi and should be 100Mi: chosen before 1 other pod; priority 0, uses 300Mi, requests "
        "100Mi; before ns/next (priority 5, uses 10Mi, requests 0) because: larger excess"
    )
