"""Whom the kernel would kill first when the whole machine is out of memory.

Each process has points: its share of the machine's memory in thousandths, plus `oom_score_adj`. The most points die
first; an adjustment of −1000 exempts. At a limit below (container, pod, class) the same order holds among the processes
below that limit. Here a container stands for its largest process: what it uses in all is the most that one can have.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

NEVER = -1000  # oom_score_adj of what the kernel must not choose


class OomCandidate(msgspec.Struct, frozen=True, rename="camel"):
    """A process or, from manifests, a container."""

    name: str
    used_bytes: int | None  # None: not known, or not said
    oom_score_adj: int
    namespace: str = ""
    pod: str = ""
    container: str = ""
    pid: int = 0
    kernel_score: int | None = None  # /proc/PID/oom_score, which kernels print in another scale


class OomRank(msgspec.Struct, frozen=True, rename="camel"):
    candidate: OomCandidate
    share: int  # thousandths of the machine's memory
    points: int
    exempt: bool


def oom_order(candidates: Iterable[OomCandidate], memory_bytes: int) -> tuple[OomRank, ...]:
    """The first dies first; exempt ones stand at the end. Equal points keep their order."""
    ranks = [_rank(each, memory_bytes) for each in candidates]
    return tuple(sorted(ranks, key=lambda rank: (rank.exempt, -rank.points)))


def _rank(candidate: OomCandidate, memory_bytes: int) -> OomRank:
    share = 1000 * (candidate.used_bytes or 0) // memory_bytes
    adj = candidate.oom_score_adj
    return OomRank(candidate, share, share + adj, adj <= NEVER)
