"""One pass of the eviction loop as a decision: what is short, who is next, why, with which grace (04 §3, §5, §7).

`Decision` keeps the whole order with the figures that made it, so that "why this pod, and who is next" can be answered
from the record long after the pod is gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import msgspec

from plimsoll.rules.eviction import EVICTED, RESOURCE_OF, Observation, eviction_grace_s, wanted
from plimsoll.rules.eviction_reasons import eviction_message
from plimsoll.rules.objects import Pod
from plimsoll.rules.ranking import Ranked, ranked, reason_before, victim
from plimsoll.rules.thresholds import FsLayout, Threshold
from plimsoll.rules.usage import PodUsage

THRESHOLD_MET = "EvictionThresholdMet"
NO_REASON = ""


class Candidate(msgspec.Struct, frozen=True, rename="camel"):
    """One pod's place in the order. `before` says which key puts it before the next one."""

    uid: str
    namespace: str
    name: str
    priority: int
    usage: int
    request: str
    exceeds: bool
    critical: bool = False
    has_usage: bool = True
    before: str = NO_REASON


class Decision(msgspec.Struct, frozen=True, rename="camel"):
    signal: str
    resource: str
    threshold: str  # the quantity that should be available
    available: str
    hard: bool
    grace_s: float
    order: tuple[Candidate, ...]
    victim: Candidate | None  # None: everybody is exempt
    reason: str = EVICTED
    message: str = ""
    annotations: Mapping[str, str] = {}
    time_s: float = 0.0
    reclaimed_bytes: int = 0


def attempt_text(resource: str) -> str:
    """The node's event before anything is done (§3.13)."""
    return f"Attempting to reclaim {resource}"


def decision(
    urgent: Sequence[Threshold],
    observations: Mapping[str, Observation],
    pods: Iterable[Pod],
    usage: Mapping[str, PodUsage],
    *,
    layout: FsLayout = "single",
    max_pod_grace_s: int = 0,
    hard_grace_s: int | None = None,
    pod_level: bool = True,
    time_s: float = 0.0,
) -> Decision | None:
    """Whom to evict for the most urgent threshold; None where there is none.

    `hard_grace_s` is ours: without it a hard threshold gives the second that Kubernetes gives.
    """
    threshold = next((each for each in urgent if each.signal in RESOURCE_OF), None)
    if threshold is None:
        return None
    resource, observed = RESOURCE_OF[threshold.signal], observations[threshold.signal]
    order = ranked(pods, usage, threshold.signal, layout, pod_level=pod_level)
    chosen = victim(order)
    places = candidates(order, threshold.signal)
    base = Decision(
        threshold.signal,
        resource,
        str(wanted(threshold, observed.capacity)),
        str(observed.available),
        threshold.hard,
        0.0,
        places,
        None,
        time_s=time_s,
    )
    if chosen is None:
        return base
    told = eviction_message(
        chosen.pod, usage.get(chosen.pod.metadata.uid), resource, urgent, observations, pod_level=pod_level
    )
    grace = eviction_grace_s(threshold, chosen.pod, max_pod_grace_s)
    if threshold.hard and hard_grace_s is not None:
        grace = hard_grace_s
    return msgspec.structs.replace(
        base,
        grace_s=float(grace),
        victim=places[order.index(chosen)],
        message=told.text,
        annotations=told.annotations,
    )


def candidates(order: Sequence[Ranked], signal: str) -> tuple[Candidate, ...]:
    """The order with what people want to know of each place in it."""
    reasons = [reason_before(first, second, signal) for first, second in pairwise(order)]
    return tuple(
        Candidate(
            rank.pod.metadata.uid,
            rank.pod.metadata.namespace,
            rank.pod.metadata.name,
            rank.priority,
            rank.usage,
            str(rank.request),
            rank.exceeds,
            rank.critical,
            rank.has_usage,
            reason,
        )
        for rank, reason in zip(order, [*reasons, NO_REASON], strict=False)  # an empty order has no reasons
    )
