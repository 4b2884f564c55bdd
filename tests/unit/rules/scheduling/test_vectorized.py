"""The arrays decide as the scalar rules do, on every decision of a filling cluster."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.codec.lean.lean import from_document
from plimsoll.rules.model.objects import Node, Pod
from plimsoll.rules.profile import PROFILE_DOCUMENTS, Profile, profile_named
from plimsoll.rules.scheduling.cycle import by_node, decide
from plimsoll.rules.scheduling.fit import NodeLoad, node_load, resident_load, waiting_load
from plimsoll.rules.scheduling.vectorized import Fleet
from tests.examples import examples

Json = dict[str, Any]
ZONES = ("a", "b", "c")
TAINTS: list[Json] = [
    {"key": "dedicated", "value": "db", "effect": "NoSchedule"},
    {"key": "slow", "effect": "PreferNoSchedule"},
    {"key": "node.kubernetes.io/memory-pressure", "effect": "NoSchedule"},
]


def _node(chance: random.Random, index: int) -> Node:
    taints = [taint for taint in TAINTS if chance.random() < 0.08]
    return from_document(
        {
            "metadata": {"name": f"n{index:04}", "labels": {"zone": chance.choice(ZONES)}},
            "spec": {"taints": taints, "unschedulable": chance.random() < 0.02},
            "status": {
                "allocatable": {
                    "cpu": chance.choice(["2", "4", "16", "0"]) if index % 9 == 0 else "8",
                    "memory": chance.choice(["4Gi", "32Gi", "0"]) if index % 11 == 0 else "16Gi",
                    "pods": chance.choice(["3", "110"]),
                    **({"example.com/gpu": "2"} if index % 7 == 0 else {}),
                }
            },
        },
        Node,
    )


def _pod(chance: random.Random, index: int) -> Pod:
    requests = {
        "cpu": chance.choice(["0", "100m", "250m", "1", "1500m", "3"]),
        "memory": chance.choice(["0", "64Mi", "500M", "1Gi", "3Gi"]),
        **({"example.com/gpu": "1"} if index % 13 == 0 else {}),
    }
    if index % 5 == 0:
        requests.pop("cpu")
    spec: Json = {
        "containers": [{"name": "c", "resources": {"requests": requests}}],
        "priority": chance.choice([0, 0, 0, 10]),
    }
    if index % 6 == 0:
        spec["nodeSelector"] = {"zone": chance.choice(ZONES)}
    if index % 8 == 0:
        spec["tolerations"] = [{"key": "dedicated", "operator": "Exists"}]
    if index % 10 == 0:
        preference = {"matchExpressions": [{"key": "zone", "operator": "In", "values": [chance.choice(ZONES)]}]}
        term = {"weight": chance.randint(1, 100), "preference": preference}
        spec["affinity"] = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}
    if index % 17 == 0:
        spec["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 8080}]
    return from_document({"metadata": {"name": f"p{index}", "namespace": "d", "uid": f"u{index}"}, "spec": spec}, Pod)


def _filled(seed: int, nodes: int, pods: int, profile: Profile, percent: int = 0) -> tuple[int, int]:
    """Schedule pod after pod with both and compare each decision; how many the arrays decided, how many had a node."""
    chance = random.Random(seed)
    loads = {load.name: load for load in (node_load(_node(chance, i), (), profile) for i in range(nodes))}
    fleet, start, by_arrays, placed = Fleet(list(loads.values()), profile), 0, 0, 0
    second_nominee = _pod(chance, 10_001)
    nominee = from_document(
        {
            "metadata": {"name": "nom", "namespace": "d", "uid": "nom"},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "7"}}}], "priority": 5},
            "status": {"nominatedNodeName": "n0003"},
        },
        Pod,
    )
    nominated = by_node([waiting_load(nominee), waiting_load(second_nominee)])
    for index in range(pods):
        pod = _pod(chance, index)
        scalar = decide(pod, list(loads.values()), profile, nominated=nominated, start=start, percent_to_find=percent)
        found = fleet.decide(pod, nominated, start, percent)
        assert (found is None) == (not scalar.nodes)
        if found is not None:
            by_arrays += 1
            assert (found.nodes, found.next_start) == (scalar.nodes, scalar.next_start)
        start = scalar.next_start
        if scalar.nodes:
            placed += 1
            chosen = chance.choice(scalar.nodes)
            loads[chosen] = loads[chosen].with_pods([resident_load(pod, profile)])
            fleet.update(loads[chosen])
    return by_arrays, placed


@pytest.mark.parametrize("profile", [PROFILE_DOCUMENTS, profile_named("1.36")], ids=lambda profile: profile.name)
def test_every_decision_of_a_200_node_cluster(profile: Profile) -> None:
    by_arrays, placed = _filled(1, 200, 1000, profile)
    assert by_arrays == placed > 500


@settings(max_examples=examples(25), deadline=None)
@given(
    st.integers(0, 2**32),
    st.integers(1, 40),
    st.sampled_from([PROFILE_DOCUMENTS, profile_named("1.36")]),
    st.sampled_from([0, 20]),
)
def test_small_clusters_that_run_full(seed: int, nodes: int, profile: Profile, percent: int) -> None:
    _filled(seed, nodes, 120, profile, percent)


def test_more_nodes_than_are_searched() -> None:
    by_arrays, placed = _filled(3, 150, 60, profile_named("1.36"), 10)
    assert by_arrays == placed == 60


def test_a_nominated_pod_is_decided_by_the_scalar_rules() -> None:
    loads: list[NodeLoad] = [node_load(_node(random.Random(1), 1), (), profile_named("1.36"))]
    pod = from_document({"metadata": {"name": "p", "uid": "u"}, "status": {"nominatedNodeName": "n0001"}}, Pod)
    assert Fleet(loads, profile_named("1.36")).decide(pod, {}) is None
