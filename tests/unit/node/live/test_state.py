"""The state with sequence numbers: any reader that applies the frames it asked for has the whole state."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.codec.live_page import COLUMN, COLUMNS, NONE, Mark, folded_orders
from plimsoll.node.live.state import GONE_KEPT, LiveState


def row(**figures: int) -> list[int]:
    found = [NONE] * len(COLUMNS)
    for name, value in figures.items():
        found[COLUMN[name]] = value
    return found


def vessel(name: str, **more: Any) -> dict[str, Any]:
    return {"id": name, "parent": "", "level": "container", "name": "app", "pod": "web", "uid": "u", **more}


class Reader:
    """Applies frames as the API server and the browser do."""

    def __init__(self) -> None:
        self.seq = 0
        self.vessels: dict[str, Any] = {}
        self.rows: dict[str, Any] = {}

    def read(self, state: LiveState) -> None:
        frame = state.frame(self.seq)
        if not frame.since:
            self.vessels, self.rows = {}, {}
        for name in frame.gone:
            self.vessels.pop(name, None)
            self.rows.pop(name, None)
        self.vessels |= {each["id"]: each for each in frame.vessels}
        self.rows |= frame.rows
        self.seq = frame.seq


@given(st.lists(st.tuples(st.sets(st.sampled_from("abcd")), st.integers(0, 3), st.booleans()), min_size=1, max_size=12))
def test_a_reader_that_misses_frames_has_the_same_state(steps: list[tuple[set[str], int, bool]]) -> None:
    state, reader = LiveState("run"), Reader()
    for at, (names, amount, reads) in enumerate(steps):
        state.begin(float(at))
        state.set_vessels([vessel(name) for name in sorted(names)])
        for index, name in enumerate(sorted(names)):
            state.set_row(name, row(usage=amount * index))
        if reads:
            reader.read(state)
    reader.read(state)
    assert reader.vessels == state.vessels
    assert reader.rows == state.rows


def test_a_frame_has_only_what_changed() -> None:
    state = LiveState("run")
    state.begin(1.0)
    state.set_vessels([vessel("a"), vessel("b")])
    state.set_row("a", row(usage=1))
    state.set_row("b", row(usage=1))
    state.begin(2.0)
    state.set_vessels([vessel("a"), vessel("b")])
    state.set_row("a", row(usage=2))
    state.set_row("b", row(usage=1))
    frame = state.frame(1)
    assert (frame.since, frame.vessels, list(frame.rows)) == (1, [], ["a"])
    assert state.frame(7).since == 0, "a number of another run: everything"


def test_a_reader_older_than_the_kept_removals_gets_everything() -> None:
    state = LiveState("run")
    for number in range(GONE_KEPT + 10):
        state.begin(float(number))
        state.set_vessels([vessel(f"c{number}")])
    assert state.frame(3).since == 0
    assert state.frame(state.seq - 2).since == state.seq - 2


@pytest.mark.parametrize(
    ("before", "after", "marks"),
    [
        pytest.param(
            {"max": 64 << 20}, {"max": 96 << 20}, [("resize", "memory limit 64.0 MiB → 96.0 MiB")], id="limit"
        ),
        pytest.param({"quotaMilli": 100}, {"quotaMilli": -1}, [("resize", "CPU limit 0.1 CPU → none")], id="quota"),
        pytest.param({"usage": 1}, {"usage": 2}, [], id="usage only"),
        pytest.param(
            {"periods": 10, "throttledPeriods": 0},
            {"periods": 20, "throttledPeriods": 3},
            [("throttling", "throttled in 3 of 10 CPU periods")],
            id="throttled in 30 %",
        ),
        pytest.param(
            {"periods": 10, "throttledPeriods": 0}, {"periods": 20, "throttledPeriods": 2}, [], id="throttled in 20 %"
        ),
    ],
)
def test_marks_of_two_readings(before: dict[str, int], after: dict[str, int], marks: list[tuple[str, str]]) -> None:
    state = LiveState("run")
    for at, figures in enumerate((before, after)):
        state.begin(float(at))
        state.set_vessels([vessel("a")])
        state.set_row("a", row(**figures))
    assert [(each.kind, each.text) for each in state.frame().marks] == marks


def test_a_mark_belongs_to_the_next_reading() -> None:
    state = LiveState("run")
    state.begin(1.0)
    state.add_mark(Mark(1.5, "oom", "killed"))
    assert state.frame(0).marks == []
    state.begin(2.0)
    assert [each.text for each in state.frame(1).marks] == ["killed"]


def test_an_order_repeats_only_entries_that_have_changed() -> None:
    state = LiveState("run")
    first = [{"id": "a", "points": 3}, {"id": "b", "points": 2}, {"id": "", "points": 1}]
    state.begin(1.0)
    state.set_orders({"oom": first})
    assert state.frame(0).orders == {"oom": first}
    state.begin(2.0)
    state.set_orders({"oom": [{"id": "b", "points": 4}, {"id": "a", "points": 3}, {"id": "", "points": 1}]})
    changed = state.frame(1).orders
    assert changed == {"oom": [{"id": "b", "points": 4}, "a", {"id": "", "points": 1}]}
    assert folded_orders({"oom": first}, changed) == state.frame(0).orders
    state.begin(3.0)
    state.set_orders(dict(state.orders))
    assert state.frame(2).orders is None
    assert state.frame(1).orders == changed, "for a reader that is one frame behind"
