"""The order in which the node would evict pods for memory, and in which the kernel would kill.

`overview` has the few figures of a node that a list of many nodes shows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from plimsoll.codec.live_page import COLUMN
from plimsoll.rules.config.thresholds import MEMORY_AVAILABLE, FsLayout
from plimsoll.rules.eviction.decision import candidates
from plimsoll.rules.eviction.ranking import ranked
from plimsoll.rules.eviction.usage import ContainerUsage, PodUsage, working_set_bytes
from plimsoll.rules.model.gates import Gates
from plimsoll.rules.model.objects import Pod
from plimsoll.rules.oom.order import OomCandidate, oom_order

MOST_CLOSE = 5
_USAGE, _INACTIVE, _CPU = COLUMN["usage"], COLUMN["inactiveFile"], COLUMN["cpuMilli"]
Vessels = Mapping[str, Mapping[str, Any]]


def working_set(row: list[int] | None) -> int | None:
    """None where the usage is not known."""
    if row is None or row[_USAGE] < 0:
        return None
    return working_set_bytes(row[_USAGE], max(0, row[_INACTIVE]))


def eviction_order(
    pods: Iterable[Pod], vessels: Vessels, rows: Mapping[str, list[int]], layout: FsLayout, gates: Gates
) -> list[dict[str, Any]]:
    """For a shortage of memory; `key` puts a pod before the next one that can be evicted."""
    usages: dict[str, PodUsage] = {}
    ids: dict[str, str] = {}
    containers: dict[str, list[ContainerUsage]] = {}
    for name, vessel in vessels.items():
        if vessel["level"] == "container":
            used = ContainerUsage(vessel["name"], working_set(rows.get(name)))
            containers.setdefault(vessel.get("uid", ""), []).append(used)
    for name, vessel in vessels.items():
        if vessel["level"] == "pod" and name in rows:
            uid = vessel["uid"]
            ids[uid] = name
            usages[uid] = PodUsage(working_set(rows[name]), None, tuple(containers.get(uid, ())))
    order = ranked(pods, usages, MEMORY_AVAILABLE, layout, gates=gates)
    return [
        {
            "id": ids.get(each.uid, ""),
            "namespace": each.namespace,
            "pod": each.name,
            "priority": each.priority,
            "request": rank.request.value,
            "exceeds": each.exceeds,
            "exempt": each.critical,
            "key": each.before,
        }
        for rank, each in zip(order, candidates(order, MEMORY_AVAILABLE), strict=True)
    ]


def kill_order(vessels: Vessels, rows: Mapping[str, list[int]], memory_bytes: int) -> list[dict[str, Any]]:
    """If the whole machine is out of memory: containers, each as its largest process at most."""
    found = []
    for name, vessel in vessels.items():
        if vessel["level"] != "container" or vessel.get("oomScoreAdj") is None or name not in rows:
            continue
        row = rows[name]
        used = max(0, row[COLUMN["anon"]]) + max(0, row[COLUMN["shmem"]])
        where = str(vessel.get("namespace", "")), str(vessel.get("pod", "")), str(vessel["name"])
        found.append(OomCandidate(name, used, vessel["oomScoreAdj"], *where))
    return [
        {
            "id": rank.candidate.name,
            "namespace": rank.candidate.namespace,
            "pod": rank.candidate.pod,
            "container": rank.candidate.container,
            "adj": rank.candidate.oom_score_adj,
            "share": rank.share,
            "points": rank.points,
            "exempt": rank.exempt,
        }
        for rank in oom_order(found, memory_bytes)
    ]


def overview(vessels: Vessels, rows: Mapping[str, list[int]]) -> dict[str, Any]:
    """What all pods use, pods by class, and the containers that are closest to a line."""
    used: dict[str, int] = {}
    classes: dict[str, int] = {}
    close = []
    for name, vessel in vessels.items():
        row = rows.get(name)
        if vessel["level"] == "pod":
            classes[vessel.get("qosClass", "")] = classes.get(vessel.get("qosClass", ""), 0) + 1
        if row is None:
            continue
        if vessel["level"] == "pods":
            used = {"usage": row[_USAGE], "workingSet": working_set(row) or 0, "cpuMilli": max(0, row[_CPU])}
        if vessel["level"] == "container":
            found = [(row[_USAGE] / row[COLUMN[line]], line) for line in ("high", "max") if row[COLUMN[line]] > 0]
            if found:
                share, line = max(found)
                close.append((share, name, line))
    close.sort(reverse=True)
    return {
        "used": used,
        "classes": classes,
        "closest": [
            {
                "id": name,
                "namespace": vessels[name].get("namespace", ""),
                "pod": vessels[name].get("pod", ""),
                "container": vessels[name]["name"],
                "line": line,
                "bytes": rows[name][COLUMN[line]],
                "usage": rows[name][_USAGE],
            }
            for _, name, line in close[:MOST_CLOSE]
        ],
    }
