"""What attach has done and would do: the status file, for `plimsoll attach --status`, and metrics."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from plimsoll.metrics.exposition import Counter, Gauge, Histogram, Registry

MOST_LISTED = 2000
ANSWER_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2)


class Change(msgspec.Struct, frozen=True, rename="camel"):
    """One file: what it has, what it should have."""

    level: str
    subject: str
    path: str
    file: str
    found: str
    wanted: str
    problem: str = ""


class AboveHigh(msgspec.Struct, frozen=True, rename="camel"):
    subject: str
    seconds: float
    high: str


class AttachStatus(msgspec.Struct, frozen=True, rename="camel"):
    mode: str
    pid: int
    node: str
    runtime: str
    connected: bool
    pods_known: bool
    time_s: float
    pods: int = 0
    containers: int = 0
    files: int = 0  # files that have a value of attach
    pending: tuple[Change, ...] = ()  # in observe: what would be written; otherwise what failed
    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    reasserts: dict[str, int] = {}  # by whom
    abandoned: tuple[str, ...] = ()  # files that another program writes again and again
    above_high: tuple[AboveHigh, ...] = ()
    late_answers: int = 0


class AttachMeters:
    def __init__(self) -> None:
        self.registry = Registry()
        self.answers = Histogram(
            "plimsoll_attach_answer_duration_seconds",
            "Time to answer a request of the container runtime.",
            ("method",),
            ANSWER_BUCKETS_S,
        )
        self.late = Counter("plimsoll_attach_late_answers_total", "Requests answered with no change for want of time.")
        self.writes = Counter("plimsoll_attach_writes_total", "Control files written.", ("level", "file"))
        self.failures = Counter("plimsoll_attach_write_failures_total", "Control files that could not be written.")
        self.reasserts = Counter(
            "plimsoll_attach_reasserts_total", "Values written again because they were overwritten.", ("by",)
        )
        self.files = Gauge("plimsoll_attach_files", "Control files that have a value of attach.")
        self.pending = Gauge("plimsoll_attach_pending_changes", "Control files that differ from the policy.")
        self.connected = Gauge("plimsoll_attach_connected", "Whether the container runtime is connected.")
        self.parked = Counter("plimsoll_attach_parked_total", "Containers found parked at memory.high.", ("action",))
        self.reclaimed = Counter("plimsoll_attach_reclaimed_bytes_total", "Memory that was asked to be reclaimed.")
        for each in self._all():
            self.registry.add(each)

    def _all(self) -> Iterable[Counter | Gauge | Histogram]:
        yield from (self.answers, self.late, self.writes, self.failures, self.reasserts, self.files, self.pending)
        yield from (self.connected, self.parked, self.reclaimed)
