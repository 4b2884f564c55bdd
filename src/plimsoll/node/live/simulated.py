"""Figures where cgroups are simulated: what the containers' processes use, as the node's statistics measure them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plimsoll.codec.live_page import COLUMN, COLUMNS, NONE
from plimsoll.node.stats.stats import Measured, StatsSnapshot


def simulated_rows(snapshot: StatsSnapshot, vessels: Mapping[str, Mapping[str, Any]]) -> dict[str, list[int]]:
    """By vessel. Classes and the node have sums; there are no limits, no throttling and no kinds of memory."""
    known = {pod.place.uid: pod for pod in snapshot.pods}
    rows: dict[str, list[int]] = {}
    for name, vessel in vessels.items():
        pod = known.get(str(vessel.get("uid", "")))
        if pod is None:
            continue
        if vessel["level"] == "pod" and pod.measured is not None:
            rows[name] = _row(pod.measured)
        for container in pod.containers:
            if vessel["level"] == "container" and container.place.name == vessel["name"]:
                rows[name] = _row(container.measured)
    for name, vessel in reversed(list(vessels.items())):  # parents come first
        if vessel["level"] in ("class", "pods"):
            below = [rows[each] for each, child in vessels.items() if child["parent"] == name and each in rows]
            rows[name] = [max(NONE, sum(max(0, row[index]) for row in below)) for index in range(len(COLUMNS))]
            _without_limits(rows[name])
    return rows


def _row(measured: Measured) -> list[int]:
    row = [NONE] * len(COLUMNS)
    usage = measured.usage
    if usage.memory is not None:
        row[COLUMN["usage"]] = row[COLUMN["anon"]] = usage.memory.usage_bytes
    if measured.cpu_nanocores is not None:
        row[COLUMN["cpuMilli"]] = measured.cpu_nanocores // 1_000_000
    if usage.pids is not None:
        row[COLUMN["pids"]] = usage.pids.current
    return row


def _without_limits(row: list[int]) -> None:
    for name in COLUMNS:
        if name not in ("usage", "anon", "cpuMilli", "pids"):
            row[COLUMN[name]] = NONE
