"""One pass of the eviction loop as a decision: what is short, who is next, why, with which grace (04 §3, §5, §7).

`Decision` keeps the whole order with the figures that made it, so that "why this pod, and who is next" can be answered
from the record long after the pod is gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from plimsoll.rules.eviction import EVICTED, RESOURCE_OF, Observation, eviction_grace_s, wanted
from plimsoll.rules.eviction_reasons import eviction_message
from plimsoll.rules.objects import EPHEMERAL_STORAGE, MEMORY, Pod
from plimsoll.rules.quantity import from_units
from plimsoll.rules.ranking import PIDS, Ranked, ranked, reason_before, victim
from plimsoll.rules.thresholds import FsLayout, Threshold
from plimsoll.rules.usage import PodUsage

THRESHOLD_MET = "EvictionThresholdMet"
EVICTION_DECISION = "EvictionDecision"  # ours, on the pod: why this one
NO_REASON = ""
SHOWN = 20  # places of the order that a decision keeps


class Candidate(msgspec.Struct, frozen=True, rename="camel"):
    """One pod's place in the order. `before` says which key puts it before the next one that can be evicted."""

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
    reclaimed_bytes: int = 0  # before, and not enough
    pods: int = 0  # how many were ranked; `order` has the first of them
    exempt: int = 0  # how many of them nobody may evict
    following: Candidate | None = None  # who goes after the victim


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
    most: int | None = SHOWN,
) -> Decision | None:
    """Whom to evict for the most urgent threshold; None where there is none.

    `most`: how many places of the order are kept, None is all.
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
        places[:most],
        None,
        time_s=time_s,
        pods=len(places),
        exempt=sum(each.critical for each in places),
    )
    if chosen is None:
        return base
    told = eviction_message(
        chosen.pod, usage.get(chosen.pod.metadata.uid), resource, urgent, observations, pod_level=pod_level
    )
    grace = eviction_grace_s(threshold, chosen.pod, max_pod_grace_s, hard_grace_s)
    at = order.index(chosen)
    return msgspec.structs.replace(
        base,
        grace_s=float(grace),
        victim=places[at],
        following=next((each for each in places[at + 1 :] if not each.critical), None),
        message=told.text,
        annotations=told.annotations,
    )


def why_sentence(found: Decision) -> str:
    """Why this pod, and who is next: for an event on the pod."""
    if found.victim is None:
        return f"{found.signal}: nobody can be evicted"
    others = found.pods - found.exempt - 1
    text = (
        f"{found.signal} is {found.available} and should be {found.threshold}: chosen before {others} other "
        f"{'pod' if others == 1 else 'pods'}{f', {found.exempt} exempt' if found.exempt else ''}; "
        f"{_figures(found.victim, found.resource)}"
    )
    if (following := found.following) is not None:
        text += (
            f"; before {following.namespace}/{following.name} ({_figures(following, found.resource)}) "
            f"because: {found.victim.before}"
        )
    if found.reclaimed_bytes:
        text += f"; {from_units(found.reclaimed_bytes, 'BinarySI')} were reclaimed first, which was not enough"
    return text


def _figures(place: Candidate, resource: str) -> str:
    used = str(from_units(place.usage, "BinarySI" if resource in (MEMORY, EPHEMERAL_STORAGE) else "DecimalSI"))
    if not place.has_usage:
        used = "an unknown amount"
    asked = "" if resource == PIDS else f", requests {place.request}"
    return f"priority {place.priority}, uses {used}{asked}"


def candidates(order: Sequence[Ranked], signal: str) -> tuple[Candidate, ...]:
    """The order with what people want to know of each place in it."""
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
        for rank, reason in zip(order, _reasons(order, signal), strict=True)
    )


def _reasons(order: Sequence[Ranked], signal: str) -> list[str]:
    """Why each goes before the next one that can go at all; one that cannot needs no reason."""
    reasons, following = [], None
    for rank in reversed(order):
        if rank.critical:
            reasons.append(NO_REASON)
            continue
        reasons.append(NO_REASON if following is None else reason_before(rank, following, signal))
        following = rank
    return reasons[::-1]
