"""Translation for topic i: thresholds, met thresholds and eviction order."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from plimsoll.codec.lean.lean import from_document
from plimsoll.errors import InvalidConfigError
from plimsoll.rules.config.thresholds import Threshold, ThresholdValue, fs_layout, parsed_thresholds
from plimsoll.rules.eviction.assessment import Observation, met_thresholds, node_conditions
from plimsoll.rules.eviction.ranking import Ranked, ranked
from plimsoll.rules.eviction.usage import ContainerUsage, FsUsage, PodUsage
from plimsoll.rules.gotext import nearest_float32
from plimsoll.rules.model.objects import Pod
from plimsoll.rules.profile import Profile
from plimsoll.rules.quantity import QUANTITIES
from plimsoll.rules.resources.defaulting import defaulted
from tests.conformance.topics import gates_of

Json = dict[str, Any]
STABLE_SORT_UP_TO = 12  # Go's sort keeps the order of equals only up to here; beyond, the groups alone are compared


def eviction(given: Json, profile: Profile) -> Json:
    return _rank(given, profile) if given["kind"] == "rank" else _thresholds(given)


def _thresholds(given: Json) -> Json:
    try:
        thresholds = parsed_thresholds(
            given["evictionHard"],
            given["evictionSoft"],
            given["evictionSoftGracePeriod"],
            given["evictionMinimumReclaim"],
            given["enforceNodeAllocatable"],
        )
    except InvalidConfigError as error:
        return {"error": error.reason}
    found: Json = {"thresholds": _rows(thresholds)}
    if given["kind"] == "met":
        observations = {
            signal: Observation(QUANTITIES[seen["Available"]], QUANTITIES[seen["Capacity"]])
            for signal, seen in given["observations"].items()
        }
        met = met_thresholds(thresholds, observations, with_min_reclaim=given["enforceMinReclaim"])
        found["met"] = _rows(met)
        found["nodeConditions"] = sorted(node_conditions(met))
    return found


def _rows(thresholds: Iterable[Threshold]) -> list[Json]:
    rows = []
    for each in thresholds:
        row: Json = {"signal": each.signal, "operator": "LessThan", "gracePeriodSeconds": _seconds(each.grace_s)}
        row |= _amount(each.value, "quantity", "percentage")
        if each.min_reclaim is not None:
            row |= _amount(each.min_reclaim, "minReclaimQuantity", "minReclaimPercentage")
        rows.append(row)
    return rows


def _seconds(amount: float) -> float | int:
    return int(amount) if amount == int(amount) else amount


def _shortest_float32(value: float) -> float:
    """The number with the fewest digits that is this float32: 0.100000001490116… → 0.1."""
    for digits in range(1, 9):
        text = f"{value:.{digits}g}"
        if nearest_float32(*Decimal(text).as_integer_ratio()) == value:
            return float(text)
    return float(f"{value:.9g}")


def _amount(amount: ThresholdValue, quantity: str, percentage: str) -> Json:
    if amount.quantity is not None:
        return {quantity: str(amount.quantity)}
    return {percentage: _shortest_float32(amount.percentage)}


def _rank(given: Json, profile: Profile) -> Json:
    gates = gates_of(given, profile)
    pods = [defaulted(from_document(each, Pod), gates=gates) for each in given["pods"]]
    uids = {pod.metadata.name: pod.metadata.uid for pod in pods}
    usage = {uids[name]: _usage(stats) for name, stats in given["stats"].items()}
    layout = fs_layout(given["dedicatedImageFs"], given.get("splitContainerImageFs", False))
    order = ranked(pods, usage, given["signal"], layout, gates=gates)
    groups = [[_name(each) for each in group] for _, group in itertools.groupby(order, key=lambda each: each.key)]
    found: Json = {"groups": groups, "critical": {_name(each): each.critical for each in order}}
    if len(pods) <= STABLE_SORT_UP_TO:
        found["goOrder"] = [_name(each) for each in order]
    return found


def _name(each: Ranked) -> str:
    return each.pod.metadata.name


def _usage(stats: Json) -> PodUsage:
    container = ContainerUsage(
        "c",
        rootfs=FsUsage(stats.get("rootfsUsed"), stats.get("rootfsInodes")),
        logs=FsUsage(stats.get("logsUsed"), stats.get("logsInodes")),
    )
    volumes = {name: FsUsage(used) for name, used in (stats.get("volumesUsed") or {}).items()}
    return PodUsage(stats.get("memoryWorkingSet"), stats.get("processes"), (container,), volumes)
