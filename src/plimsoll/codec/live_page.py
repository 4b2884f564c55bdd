"""The pages `/live` and `/history` of a node: cgroups with their figures, the node's signals, and what happened when.

A page is a frame. A frame without `since` is complete; another one has only what changed after that sequence number, so
that a reader which applies frames in order always has the node's state. The agent, the API server, the browser and an
exported incident use this one format. A row is a list of integers in the order of `COLUMNS`; −1 is unknown or no limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal

import msgspec

NONE = -1
COLUMNS = (
    "usage",
    "anon",
    "shmem",
    "kernel",
    "activeFile",
    "inactiveFile",
    "max",  # the kernel's files, read at the same moment as the usage
    "high",
    "low",
    "min",
    "cpuMilli",  # CPUs in use since the last frame
    "quotaMilli",
    "weight",
    "periods",
    "throttledPeriods",
    "throttledUs",
    "oomKills",
    "pids",
    "pidsMax",
    "memoryStall",  # hundredths of a percent of the last 10 s in which some task stalled
    "cpuStall",
    "ioStall",
)
COLUMN = {name: index for index, name in enumerate(COLUMNS)}

Orders = dict[str, list[Any]]  # `eviction` and `oom`: entries by rank, each with the id of its vessel
MarkKind = Literal["oom", "eviction", "restart", "resize", "throttling", "stall", "repair", "event"]


class Mark(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that happened at a moment. `step`: of a resize (03 §5): its number and what the pod had after it."""

    at: float
    kind: MarkKind
    text: str
    reason: str = ""
    namespace: str = ""
    pod: str = ""
    uid: str = ""
    container: str = ""
    warning: bool = False
    step: dict[str, Any] | None = None


class SignalLive(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """`threshold` is what must be available; at the present slope it is reached in `seconds` (−1: it does not fall)."""

    signal: str
    available: int
    capacity: int
    threshold: int
    grace_s: float = msgspec.field(default=0.0, name="graceSeconds")
    met: bool = False
    slope: float = 0.0  # per second; negative: it falls
    seconds: float = -1.0

    @property
    def distance(self) -> int:
        return self.available - self.threshold


class Frame(msgspec.Struct, omit_defaults=True, rename="camel"):
    """`run` changes when the agent is started again: its sequence numbers begin at 1 again.

    `next_s`: after so many seconds the node has something newer.
    """

    run: str
    seq: int
    at: float
    since: int = 0
    node: dict[str, Any] | None = None
    vessels: list[dict[str, Any]] = []  # those that have changed, parents first
    rows: dict[str, list[int]] = {}  # id of a vessel → figures
    gone: list[str] = []
    orders: Orders | None = None  # in a frame with `since`, the id of an entry stands for one that has not changed
    marks: list[Mark] = []
    next_s: float = msgspec.field(default=0.0, name="nextSeconds")


def folded_orders(known: Orders, changed: Orders) -> Orders:
    """The complete orders after a frame."""
    return {name: [*_entries(known.get(name, ()), entries)] for name, entries in changed.items()}


def _entries(known: Iterable[Any], changed: Iterable[Any]) -> Iterator[Any]:
    by_id = {each["id"]: each for each in known}
    for each in changed:
        if not isinstance(each, str):
            yield each
        elif each in by_id:
            yield by_id[each]


class HistoryPage(msgspec.Struct, omit_defaults=True, rename="camel"):
    """Frames in the order of time; the first is complete. `more`: there are later ones."""

    frames: list[Frame] = []
    oldest: float = 0.0
    newest: float = 0.0
    more: bool = False
