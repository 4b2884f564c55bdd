"""The last known state of the node with a sequence number on every part, so that any reader can ask for what is newer.

Also finds, by comparing two readings, what happened in between: a limit that was written, a throttled container.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from plimsoll.codec.live_page import COLUMN, NONE, Frame, Mark, Orders
from plimsoll.rules.cgroups.reasons import human_bytes, human_cores

MOST_MARKS = 500
GONE_KEPT = 2000
THROTTLED_SHARE = 0.25  # of the periods between two readings
MARK_AGAIN_S = 30.0
_LINES = {"max": "memory limit", "high": "memory.high", "low": "memory.low", "min": "memory.min"}
_PERIODS, _THROTTLED = COLUMN["periods"], COLUMN["throttledPeriods"]


class LiveState:
    def __init__(self, run: str) -> None:
        self.run, self.seq, self.at_s = run, 0, 0.0
        self.vessels: dict[str, dict[str, Any]] = {}
        self._vessel_seq: dict[str, int] = {}
        self.rows: dict[str, list[int]] = {}
        self._row_seq: dict[str, int] = {}
        self._gone: deque[tuple[int, str]] = deque(maxlen=GONE_KEPT)
        self._forgotten = 0  # readers before this number need everything
        self.node: dict[str, Any] = {}
        self._node_seq = 0
        self.orders: Orders = {}
        self._orders_seq = 0
        self._entry_seq: dict[tuple[str, str], int] = {}
        self.marks: deque[tuple[int, Mark]] = deque(maxlen=MOST_MARKS)
        self._throttled_s: dict[str, float] = {}

    def begin(self, at_s: float) -> None:
        """What is set from now on has the next sequence number."""
        self.seq += 1
        self.at_s = at_s

    def set_vessels(self, listed: Iterable[Mapping[str, Any]]) -> None:
        vessels = {str(vessel["id"]): dict(vessel) for vessel in listed}
        for name in self.vessels.keys() - vessels.keys():
            if len(self._gone) == GONE_KEPT:
                self._forgotten = self._gone[0][0]
            self._gone.append((self.seq, name))
            self.rows.pop(name, None)
            self._row_seq.pop(name, None)
            self._vessel_seq.pop(name, None)
            self._throttled_s.pop(name, None)
        for name, vessel in vessels.items():
            if self.vessels.get(name) != vessel:
                self._vessel_seq[name] = self.seq
        self.vessels = vessels

    def set_row(self, name: str, row: list[int]) -> None:
        before = self.rows.get(name)
        if before == row:
            return
        if before is not None and self.vessels[name]["level"] == "container":
            self._compare(name, before, row)
        self.rows[name] = row
        self._row_seq[name] = self.seq

    def set_node(self, node: dict[str, Any]) -> None:
        if node != self.node:
            self.node, self._node_seq = node, self.seq

    def set_orders(self, orders: Orders) -> None:
        if orders == self.orders:
            return
        seqs: dict[tuple[str, str], int] = {}
        for name, entries in orders.items():
            before = {each["id"]: each for each in self.orders.get(name, ())}
            for each in entries:
                key = name, each["id"]
                seqs[key] = self._entry_seq[key] if each == before.get(each["id"]) else self.seq
        self.orders, self._orders_seq, self._entry_seq = orders, self.seq, seqs

    def _orders_since(self, since: int) -> Orders:
        """An entry that has not changed is only named."""
        return {
            name: [
                each if not each["id"] or self._entry_seq[name, each["id"]] > since else each["id"] for each in entries
            ]
            for name, entries in self.orders.items()
        }

    def add_mark(self, mark: Mark) -> None:
        """Belongs to the reading that comes next."""
        self.marks.append((self.seq + 1, mark))

    def frame(self, since: int = 0) -> Frame:
        """What is newer than `since`; everything for 0, and for a number that is too old or of another run."""
        if since > self.seq or since < self._forgotten:
            since = 0
        return Frame(
            self.run,
            self.seq,
            self.at_s,
            since,
            self.node if self._node_seq > since else None,
            [vessel for name, vessel in self.vessels.items() if self._vessel_seq[name] > since],
            {name: row for name, row in self.rows.items() if self._row_seq[name] > since},
            [name for seq, name in self._gone if seq > since] if since else [],
            self._orders_since(since) if self._orders_seq > since else None,
            [mark for seq, mark in self.marks if since < seq <= self.seq],
        )

    # --- what happened between two readings ---

    def _compare(self, name: str, before: list[int], after: list[int]) -> None:
        for column, file in _LINES.items():
            old, new = before[COLUMN[column]], after[COLUMN[column]]
            if old != new:
                self._mark(name, "resize", f"{file} {_bytes(old)} → {_bytes(new)}")
        old, new = before[COLUMN["quotaMilli"]], after[COLUMN["quotaMilli"]]
        if old != new:
            self._mark(name, "resize", f"CPU limit {_cores(old)} → {_cores(new)}")
        periods, throttled = after[_PERIODS] - before[_PERIODS], after[_THROTTLED] - before[_THROTTLED]
        if periods > 0 and throttled >= THROTTLED_SHARE * periods:
            if self.at_s - self._throttled_s.get(name, -MARK_AGAIN_S) >= MARK_AGAIN_S:
                self._mark(name, "throttling", f"throttled in {throttled} of {periods} CPU periods")
            self._throttled_s[name] = self.at_s

    def _mark(self, name: str, kind: Any, text: str) -> None:
        vessel = self.vessels[name]
        mark = Mark(
            self.at_s,
            kind,
            text,
            namespace=vessel.get("namespace", ""),
            pod=vessel.get("pod", ""),
            uid=vessel.get("uid", ""),
            container=vessel["name"],
        )
        self.marks.append((self.seq, mark))


def _bytes(amount: int) -> str:
    return "none" if amount == NONE else human_bytes(amount)


def _cores(milli: int) -> str:
    return "none" if milli == NONE else human_cores(milli)
