"""Which process the kernel kills first if the whole machine is out of memory.

Each process has points: its share of the machine's memory in thousandths, plus `oom_score_adj`. The process with the
most points is killed first; an adjustment of −1000 exempts. Uses 2Gi of 8Gi, adjustment 875: 250 + 875 = 1125. At a
lower limit (container, pod, class) the same order applies to the processes below that limit. A container counts as its
largest process: its whole usage is the most that one process can have.

Kernel: mm/oom_kill.c, oom_badness.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

NEVER = -1000  # the oom_score_adj of exempt processes


class OomCandidate(msgspec.Struct, frozen=True, rename="camel"):
    """A process or, from manifests, a container."""

    name: str
    used_bytes: int | None  # None: not known
    oom_score_adj: int
    namespace: str = ""
    pod: str = ""
    container: str = ""
    pid: int = 0
    kernel_score: int | None = None  # /proc/PID/oom_score, which has another scale


class OomRank(msgspec.Struct, frozen=True, rename="camel"):
    candidate: OomCandidate
    share: int  # thousandths of the machine's memory
    points: int
    exempt: bool


def oom_order(candidates: Iterable[OomCandidate], memory_bytes: int) -> tuple[OomRank, ...]:
    """The first is killed first; exempt ones are last. Equal points keep their order."""
    ranks = [_rank(each, memory_bytes) for each in candidates]
    return tuple(sorted(ranks, key=lambda rank: (rank.exempt, -rank.points)))


def _rank(candidate: OomCandidate, memory_bytes: int) -> OomRank:
    share = 1000 * (candidate.used_bytes or 0) // memory_bytes
    adj = candidate.oom_score_adj
    return OomRank(candidate, share, share + adj, adj <= NEVER)
