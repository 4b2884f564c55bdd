"""Which processes of a container have a stale oom_score_adj.

A resize changes the score that a container should have; its processes keep theirs. A process may also have set its own
score on purpose (browsers and databases do for their children), which must stay. So a score is stale if it is that of
the container's first process, the oldest, and not the expected one.

Expected 900; pid 10 (the first) 990, its child 990, another 1000: the first two are stale, the third has its own score.
"""

from __future__ import annotations

from collections.abc import Mapping


def stale_pids(scores: Mapping[int, int], expected: int) -> list[int]:
    """`scores`: pid → oom_score_adj."""
    if not scores:
        return []
    inherited = scores[min(scores)]
    return sorted(pid for pid, score in scores.items() if score == inherited != expected)
