"""The orders of eviction and of OOM kills, and the figures of a node in a list of many."""

from __future__ import annotations

from typing import Any

from plimsoll.codec.lean.lean import lean_pod
from plimsoll.codec.live_page import COLUMN, COLUMNS, NONE
from plimsoll.node.live.orders import eviction_order, kill_order, overview, working_set
from plimsoll.rules.model.gates import DEFAULT_GATES
from plimsoll.rules.model.objects import Pod

MIB = 1 << 20


def row(**figures: int) -> list[int]:
    found = [NONE] * len(COLUMNS)
    for name, value in figures.items():
        found[COLUMN[name]] = value
    return found


def pod(name: str, memory: str = "", priority: int = 0) -> Pod:
    resources: dict[str, Any] = {"requests": {"memory": memory}} if memory else {}
    spec = {"priority": priority, "containers": [{"name": "app", "image": "x", "resources": resources}]}
    return lean_pod({"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": spec})


def vessels(*names: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {"root": {"level": "pods", "name": "all pods", "parent": ""}}
    for name in names:
        about = {"namespace": "default", "pod": name, "uid": name}
        found[f"{name}-pod"] = {"level": "pod", "name": name, "parent": "root", "qosClass": "Burstable", **about}
        found[f"{name}-app"] = {
            "level": "container",
            "name": "app",
            "parent": f"{name}-pod",
            "oomScoreAdj": 900,
            **about,
        }
    return found


def test_inactive_cache_is_not_in_the_working_set() -> None:
    assert working_set(row(usage=30 * MIB, inactiveFile=10 * MIB)) == 20 * MIB
    assert working_set(row(usage=30 * MIB)) == 30 * MIB
    assert working_set(None) is None and working_set(row()) is None


def test_the_order_of_eviction_counts_working_sets() -> None:
    """04 §5: `cached` has the largest usage, but most of it is inactive cache, so it does not exceed its request."""
    pods = [pod("within", "64Mi"), pod("cached", "64Mi"), pod("loose"), pod("over", "16Mi")]
    rows = {
        "within-pod": row(usage=20 * MIB),
        "cached-pod": row(usage=200 * MIB, inactiveFile=190 * MIB),
        "loose-pod": row(usage=30 * MIB),
        "over-pod": row(usage=20 * MIB),
    }
    order = eviction_order(pods, vessels("within", "cached", "loose", "over"), rows, "single", DEFAULT_GATES)
    assert [each["pod"] for each in order] == ["loose", "over", "within", "cached"]
    assert [each["key"] for each in order] == ["larger excess", "exceeds its request", "closer to its request", ""]
    assert [each["exceeds"] for each in order] == [True, True, False, False]


def test_the_kernels_order_has_its_points() -> None:
    """oom_badness: 256 MiB of 1 GiB are 250 thousandths, plus 900; cache does not count."""
    known = vessels("big", "small")
    rows = {
        "big-app": row(usage=400 * MIB, anon=200 * MIB, shmem=56 * MIB, activeFile=100 * MIB),
        "small-app": row(usage=10 * MIB, anon=10 * MIB),
    }
    order = kill_order(known, rows, 1 << 30)
    assert [(each["pod"], each["share"], each["points"]) for each in order] == [("big", 250, 1150), ("small", 9, 909)]


def test_what_is_closest_to_its_line_comes_first() -> None:
    rows = {
        "root": row(usage=300 * MIB, inactiveFile=100 * MIB, cpuMilli=250),
        "a-app": row(usage=50 * MIB, max=100 * MIB),
        "b-app": row(usage=50 * MIB, max=100 * MIB, high=60 * MIB),
        "c-app": row(usage=500 * MIB),
    }
    found = overview(vessels("a", "b", "c"), rows)
    assert [(each["pod"], each["line"]) for each in found["closest"]] == [("b", "high"), ("a", "max")]
    assert found["used"] == {"usage": 300 * MIB, "workingSet": 200 * MIB, "cpuMilli": 250}
    assert found["classes"] == {"Burstable": 3}
