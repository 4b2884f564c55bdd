"""The pages of a node, `/pressure` and `/oom`: one format for the agent that writes and the command that reads them.

A record contains the message that explains it, so that every reader shows the same text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from plimsoll.rules.config.thresholds import FsLayout, Threshold
from plimsoll.rules.eviction.assessment import NodeCondition, Observation, met_thresholds, wanted
from plimsoll.rules.eviction.decision import EvictionCandidate, EvictionDecision, why_sentence
from plimsoll.rules.oom.report import OomKill, oom_sentence


class ThresholdShown(msgspec.Struct, frozen=True):
    value: str
    grace_s: float = msgspec.field(default=0.0, name="graceSeconds")  # 0: a hard threshold
    met: bool = False


class SignalShown(msgspec.Struct, frozen=True):
    signal: str
    available: str
    capacity: str
    thresholds: tuple[ThresholdShown, ...] = ()


class DecisionShown(EvictionDecision, frozen=True, rename="camel"):
    why: str = ""  # why this pod was chosen, and which pod was next


class KillShown(OomKill, frozen=True, rename="camel", omit_defaults=True):
    sentence: str = ""


class PressurePage(msgspec.Struct, frozen=True):
    conditions: tuple[str, ...] = ()
    signals: tuple[SignalShown, ...] = ()
    decisions: tuple[DecisionShown, ...] = ()
    order: dict[str, tuple[EvictionCandidate, ...]] = {}  # signal → eviction order
    layout: FsLayout | None = None
    hard_grace_s: int | None = msgspec.field(default=None, name="hardGraceSeconds")  # None: as in Kubernetes


class OomPage(msgspec.Struct, frozen=True):
    kills: tuple[KillShown, ...] = ()
    totals: dict[str, int] = {}  # limit → number of processes


def pressure_page(
    conditions: Iterable[NodeCondition],
    thresholds: Sequence[Threshold],
    observations: Mapping[str, Observation],
    decisions: Iterable[EvictionDecision],
    order: Mapping[str, tuple[EvictionCandidate, ...]],
    *,
    layout: FsLayout | None = None,
    hard_grace_s: int | None = None,
) -> PressurePage:
    return PressurePage(
        tuple(conditions),
        tuple(_signals(thresholds, observations)),
        tuple(DecisionShown(**msgspec.structs.asdict(each), why=why_sentence(each)) for each in decisions),
        dict(order),
        layout,
        hard_grace_s,
    )


def oom_page(kills: Iterable[OomKill], totals: Mapping[str, int]) -> OomPage:
    shown = (KillShown(**msgspec.structs.asdict(each), sentence=oom_sentence(each)) for each in kills)
    return OomPage(tuple(shown), dict(totals))


def _signals(thresholds: Sequence[Threshold], observations: Mapping[str, Observation]) -> Iterable[SignalShown]:
    """Signals that have a threshold and that this node can observe."""
    met = met_thresholds(thresholds, observations)
    for signal in dict.fromkeys(each.signal for each in thresholds):
        if (seen := observations.get(signal)) is not None:
            shown = (
                ThresholdShown(str(wanted(each, seen.capacity)), each.grace_s, each in met)
                for each in thresholds
                if each.signal == signal
            )
            yield SignalShown(signal, str(seen.available), str(seen.capacity), tuple(shown))
