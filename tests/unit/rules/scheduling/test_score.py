"""Scoring: spec 05 A3 with its worked numbers, spec 01 E-15."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.codec.lean.lean import from_document
from plimsoll.rules.model.objects import Node, Pod
from plimsoll.rules.profile import PROFILE_DOCUMENTS, Profile, profile_named
from plimsoll.rules.scheduling.fit import NodeLoad, node_load, resident_load, waiting_load
from plimsoll.rules.scheduling.score import (
    NodeScore,
    ScoringStrategy,
    Weights,
    balanced_score,
    best,
    intolerable_taints,
    nodes_to_find,
    normalized,
    preferred_weight,
    scores,
    shaped,
    strategy_score,
    usages,
)

Json = dict[str, Any]


def pod(name: str = "p", requests: Json | None = None, **spec: Any) -> Pod:
    spec.setdefault("containers", [{"name": "c", "resources": {"requests": requests or {}}}])
    return from_document({"metadata": {"name": name, "namespace": "d"}, "spec": spec}, Pod)


def node(name: str = "n1", allocatable: Json | None = None, labels: Json | None = None, **spec: Any) -> Node:
    status = {"allocatable": {"pods": "110", **(allocatable or {"cpu": "4", "memory": "8Gi"})}}
    return from_document({"metadata": {"name": name, "labels": labels or {}}, "spec": spec, "status": status}, Node)


def worked() -> NodeLoad:
    """A3: node 4 CPU/8Gi, used 1 CPU/2Gi."""
    return node_load(node(), [pod("r", {"cpu": "1", "memory": "2Gi"})], profile_named("1.36"))


WORKED_POD = waiting_load(pod("p", {"cpu": "1", "memory": "1Gi"}))
BIN_PACKING = ((0, 0), (100, 10))


@pytest.mark.parametrize(
    ("strategy", "score"),
    [
        # cpu (4000−2000)·100/4000 = 50, memory (8−3)·100/8 = 62
        pytest.param(ScoringStrategy(), 56, id="LeastAllocated: (50+62) div 2"),
        pytest.param(ScoringStrategy(resources=(("cpu", 3), ("memory", 1))), 53, id="LeastAllocated: (150+62) div 4"),
        # cpu 50, memory 3·100/8 = 37
        pytest.param(ScoringStrategy("MostAllocated"), 43, id="MostAllocated: (50+37) div 2"),
        pytest.param(
            ScoringStrategy("RequestedToCapacityRatio", shape=BIN_PACKING),
            44,
            id="RequestedToCapacityRatio: 43.5 rounded",
        ),
        pytest.param(
            ScoringStrategy("RequestedToCapacityRatio", shape=((0, 10), (50, 0))),
            26,
            id="RequestedToCapacityRatio: zero scores do not count",
        ),
        pytest.param(ScoringStrategy(resources=(("ephemeral-storage", 1),)), 0, id="nothing that the node has"),
        pytest.param(
            ScoringStrategy(resources=(("cpu", 1), ("example.com/gpu", 9))), 50, id="an extended resource not asked for"
        ),
    ],
)
def test_a3_strategies(strategy: ScoringStrategy, score: int) -> None:
    assert strategy_score(strategy, usages(WORKED_POD, worked(), strategy.resources, real=False)) == score


@pytest.mark.parametrize(
    ("profile", "score"),
    [
        pytest.param(PROFILE_DOCUMENTS, 93, id="≤1.35: s = 93"),
        pytest.param(profile_named("1.36"), 71, id="1.36: 50 + (50 + 93 − 100) div 2"),
    ],
)
def test_a3_balanced_allocation(profile: Profile, score: int) -> None:
    assert balanced_score(WORKED_POD, worked(), profile) == score


def test_a3_balanced_allocation_more_than_two_resources() -> None:
    load = node_load(node(allocatable={"cpu": "4", "memory": "8", "example.com/gpu": "10"}), [], PROFILE_DOCUMENTS)
    asked = waiting_load(pod("p", {"cpu": "1", "memory": "4", "example.com/gpu": "10"}))
    # Fractions 0.25, 0.5, 1: mean 7/12, variance 7/72, standard deviation 0.3118.
    resources = (("cpu", 1), ("memory", 1), ("example.com/gpu", 1))
    assert balanced_score(asked, load, PROFILE_DOCUMENTS, resources) == 68


def test_a3_balanced_allocation_skips_a_pod_without_requests() -> None:
    assert balanced_score(waiting_load(pod()), worked(), profile_named("1.36")) == 0


def test_a3_balanced_allocation_knows_no_defaults() -> None:
    # Fractions 0 and 0.5: deviation 0.25.
    load = node_load(node(), [], PROFILE_DOCUMENTS)
    assert balanced_score(waiting_load(pod("p", {"memory": "4Gi"})), load, PROFILE_DOCUMENTS) == 75


def test_a3_an_extended_resource_counts_only_for_pods_that_request_it() -> None:
    load = node_load(node(allocatable={"cpu": "4", "example.com/gpu": "10"}), [], profile_named("1.36"))
    resources = (("cpu", 1), ("example.com/gpu", 1))
    asking, other = pod("p", {"cpu": "2", "example.com/gpu": "1"}), pod("p", {"cpu": "2"})
    assert (
        strategy_score(ScoringStrategy(), usages(waiting_load(asking), load, resources, real=False)) == (50 + 90) // 2
    )
    assert strategy_score(ScoringStrategy(), usages(waiting_load(other), load, resources, real=False)) == 50


def test_a3_balanced_allocation_counts_overfull_as_full() -> None:
    load = node_load(node(), [pod("r", {"cpu": "40"})], PROFILE_DOCUMENTS)
    assert balanced_score(waiting_load(pod("p", {"memory": "4Gi"})), load, PROFILE_DOCUMENTS) == 75


MIB_200 = 200 * 1024 * 1024


@pytest.mark.parametrize(
    ("spec", "cpu_milli", "memory_bytes"),
    [
        pytest.param({}, 100, MIB_200, id="nothing named"),
        pytest.param({"containers": [{"name": "a"}, {"name": "b"}]}, 200, 2 * MIB_200, id="each container"),
        pytest.param({"requests": {"cpu": "0", "memory": "0"}}, 0, 0, id="explicit zero stays zero"),
        pytest.param({"requests": {"cpu": "2"}}, 2000, MIB_200, id="only what is absent"),
        pytest.param(
            {"initContainers": [{"name": "i", "resources": {"requests": {"cpu": "3"}}}]},
            3000,
            MIB_200,
            id="init containers too",
        ),
        pytest.param({"overhead": {"cpu": "50m"}}, 150, MIB_200, id="overhead on top"),
        pytest.param({"resources": {"requests": {"cpu": "1"}}}, 1000, MIB_200, id="pod level replaces"),
    ],
)
def test_e15_defaults_for_absent_requests(spec: Json, cpu_milli: int, memory_bytes: int) -> None:
    for load in (waiting_load(pod("p", **spec)), resident_load(pod("p", **spec), profile_named("1.36"))):
        assert (load.scored_cpu_milli, load.scored_memory_bytes) == (cpu_milli, memory_bytes)
    assert waiting_load(pod()).requests == {}, "fitting knows no defaults"


def test_e15_with_pod_level_requests_a_resident_counts_no_default_for_what_any_container_names() -> None:
    named = {"name": "a", "resources": {"requests": {"memory": "1Gi"}}}
    both = pod("p", containers=[named, {"name": "b"}], resources={"requests": {"cpu": "1"}})
    assert resident_load(both, profile_named("1.36")).scored_memory_bytes == 1024**3
    assert waiting_load(both).scored_memory_bytes == 1024**3 + MIB_200


def test_e15_a_default_fills_what_a_resize_status_lacks() -> None:
    document = {
        "metadata": {"name": "r"},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
        "status": {"containerStatuses": [{"name": "c", "resources": {"requests": {"cpu": "3"}}}]},
    }
    load = resident_load(from_document(document, Pod), profile_named("1.36"))
    assert (load.scored_cpu_milli, load.scored_memory_bytes) == (3000, MIB_200)


SOFT = [
    {"key": "a", "effect": "PreferNoSchedule"},
    {"key": "b", "effect": "PreferNoSchedule"},
    {"key": "c", "effect": "NoSchedule"},
]


@pytest.mark.parametrize(
    ("tolerations", "count"),
    [
        pytest.param([], 2, id="only PreferNoSchedule counts"),
        pytest.param([{"key": "a", "operator": "Exists"}], 1, id="tolerated by an empty effect"),
        pytest.param([{"key": "a", "operator": "Exists", "effect": "NoSchedule"}], 2, id="another effect"),
        pytest.param([{"operator": "Exists"}], 0, id="everything tolerated"),
    ],
)
def test_intolerable_taints(tolerations: list[Json], count: int) -> None:
    assert intolerable_taints(pod(tolerations=tolerations), node(taints=SOFT)) == count


def test_preferred_weight_sums_matching_terms() -> None:
    ssd = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
    gpu = {"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}
    preferred = [
        {"weight": 30, "preference": ssd},
        {"weight": 50, "preference": gpu},
        {"weight": 7, "preference": {}},
        {"weight": 5, "preference": ssd},
    ]
    wishing = pod(affinity={"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}})
    assert preferred_weight(wishing, node(labels={"disk": "ssd"})) == 35


@pytest.mark.parametrize(
    ("counts", "reverse", "expected"),
    [
        pytest.param([0, 1, 3], True, [100, 67, 0], id="reversed: 100 − 33"),
        pytest.param([0, 0], True, [100, 100], id="reversed: all equal"),
        pytest.param([0, 1, 3], False, [0, 33, 100], id="stretched"),
        pytest.param([0, 0], False, [0, 0], id="all equal"),
        pytest.param([], False, [], id="no nodes"),
    ],
)
def test_normalized(counts: list[int], reverse: bool, expected: list[int]) -> None:
    assert normalized(counts, reverse=reverse) == expected


def test_a3_weighted_sum_decides() -> None:
    loads = [
        node_load(node("plain", labels={"disk": "hdd"}), [], profile_named("1.36")),
        node_load(node("tainted", labels={"disk": "ssd"}, taints=SOFT[:1]), [], profile_named("1.36")),
        node_load(node("wanted", labels={"disk": "ssd"}), [], profile_named("1.36")),
    ]
    ssd = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": ssd}]}}
    waiting = waiting_load(pod("p", {"cpu": "1", "memory": "2Gi"}, affinity=affinity))
    found = scores(waiting, loads, profile_named("1.36"))
    # Alike in resources: least (75+75) div 2; balanced before and after, 50 + 50 div 2.
    assert found == {
        "plain": NodeScore(100, 0, 75, 75, 3 * 100 + 75 + 75),
        "tainted": NodeScore(0, 100, 75, 75, 2 * 100 + 75 + 75),
        "wanted": NodeScore(100, 100, 75, 75, 3 * 100 + 2 * 100 + 75 + 75),
    }
    assert best(found) == ("wanted",)
    assert best(scores(waiting, loads, profile_named("1.36"), weights=Weights(0, 0, 1, 1))) == (
        "plain",
        "tainted",
        "wanted",
    )


@pytest.mark.parametrize(
    ("shape", "utilization", "score"),
    [
        pytest.param(((0, 0), (100, 10)), 43, 43, id="rising"),
        pytest.param(((0, 10), (100, 0)), 33, 67, id="falling"),
        pytest.param(((0, 10), (70, 1)), 10, 88, id="falling, cut off towards zero: 100 − 900 div 70"),
        pytest.param(((20, 3), (80, 6)), 10, 30, id="flat before the first point"),
        pytest.param(((20, 3), (80, 6)), 90, 60, id="flat after the last point"),
        pytest.param(((0, 0), (40, 10), (100, 0)), 70, 50, id="three points"),
    ],
)
def test_shaped(shape: tuple[tuple[int, int], ...], utilization: int, score: int) -> None:
    assert shaped(shape, utilization) == score


@pytest.mark.parametrize(
    ("count", "found"),
    [(0, 0), (1, 1), (99, 99), (100, 100), (125, 100), (250, 120), (1000, 420), (5000, 500), (6000, 300), (10000, 500)],
)
def test_a3_nodes_scored(count: int, found: int) -> None:
    assert nodes_to_find(count) == found


def test_nodes_scored_by_percentage() -> None:
    assert nodes_to_find(1000, percent=100) == 1000


AMOUNTS = st.integers(0, 10_000)


@given(AMOUNTS, AMOUNTS, AMOUNTS, AMOUNTS)
def test_every_score_stays_between_0_and_100(used_cpu: int, used_memory: int, cpu: int, memory: int) -> None:
    load = node_load(
        node(allocatable={"cpu": "5", "memory": "5000"}),
        [pod("r", {"cpu": f"{used_cpu}m", "memory": str(used_memory)})],
        profile_named("1.36"),
    )
    waiting = waiting_load(pod("p", {"cpu": f"{cpu}m", "memory": str(memory)}))
    for profile in (PROFILE_DOCUMENTS, profile_named("1.36")):
        for strategy in (
            ScoringStrategy(),
            ScoringStrategy("MostAllocated"),
            ScoringStrategy("RequestedToCapacityRatio", shape=BIN_PACKING),
        ):
            score = scores(waiting, [load], profile, strategy)["n1"]
            assert 0 <= score.resources_fit <= 100
            assert 0 <= score.balanced_allocation <= 100
            assert score.total == 300 + score.resources_fit + score.balanced_allocation


@given(AMOUNTS, AMOUNTS)
def test_least_and_most_are_each_others_mirror(used: int, asked: int) -> None:
    load = node_load(node(allocatable={"cpu": "100"}), [pod("r", {"cpu": f"{used}m"})], profile_named("1.36"))
    used_now = usages(waiting_load(pod("p", {"cpu": f"{asked}m"})), load, (("cpu", 1),), real=True)
    assert strategy_score(ScoringStrategy(), used_now) + strategy_score(ScoringStrategy("MostAllocated"), used_now) in (
        99,
        100,
    )
