"""oom_score_adj (spec 01 §7)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.rules.model.gates import Gates
from plimsoll.rules.model.objects import Pod
from plimsoll.rules.resources.defaulting import defaulted
from plimsoll.rules.resources.node_policy import NodePolicy
from plimsoll.rules.resources.oom_score import (
    GUARANTEED_SCORE,
    KUBELET_SCORE,
    SANDBOX_SCORE,
    burstable_score,
    clamped,
    memory_request_bytes,
    oom_scores,
    pod_share_bytes,
    smallest_request_bytes,
)
from plimsoll.rules.resources.qos import qos_class
from tests.examples import examples
from tests.unit.strategies import Json, lean, valid_pods

MI, GI = 1 << 20, 1 << 30
SEED = 263192560 * 1024

WORKED = [
    (SEED, 0, 999), (SEED, 300 * MI, 999), (SEED, GI, 997), (SEED, 4 * GI, 985), (SEED, 64 * GI, 746), (SEED, 128 * GI, 491),
    (SEED, 250 * GI, 4), (SEED, 251 * GI, 3),
    (8 * GI, GI, 875), (8 * GI, 2 * GI, 750), (8 * GI, 7 * GI, 125), (8 * GI, 8 * GI, 3),
]  # fmt: skip


def memory(name: str, amount: str | None, *, sidecar: bool = False) -> Json:
    block = {} if amount is None else {"requests": {"memory": amount}}
    return {"name": name, "resources": block} | ({"restartPolicy": "Always"} if sidecar else {})


def pod(*containers: Json, inits: tuple[Json, ...] = (), **fields: object) -> Pod:
    return lean({"spec": {"containers": list(containers), "initContainers": list(inits), **fields}})


@pytest.mark.parametrize(
    ("capacity", "amount", "score"), WORKED, ids=[f"§7 worked {row[1] >> 20}Mi of {row[0] >> 20}Mi" for row in WORKED]
)
def test_worked(capacity: int, amount: int, score: int) -> None:
    assert clamped(burstable_score(amount, capacity)) == score
    # A second, empty container keeps the pod Burstable whatever the first one asks for.
    assert oom_scores(pod(memory("a", str(amount)), memory("b", None)), "Burstable", NodePolicy(capacity)) == [
        score,
        999,
    ]


def test_constants() -> None:
    """O-1."""
    assert (KUBELET_SCORE, SANDBOX_SCORE, GUARANTEED_SCORE) == (-999, -998, -997)


CONSTANT = [
    ("O-3.2 Guaranteed", "Guaranteed", {}, [-997, -997]),
    ("O-3.2 BestEffort", "BestEffort", {}, [1000, 1000]),
    (
        "O-3.1 node-critical",
        "BestEffort",
        {"priority": 2_000_001_000, "priorityClassName": "system-node-critical"},
        [-997, -997],
    ),
    ("O-3.1 the class name alone", "BestEffort", {"priorityClassName": "system-node-critical"}, [1000, 1000]),
    (
        "O-3.1 cluster-critical",
        "BestEffort",
        {"priority": 2_000_000_000, "priorityClassName": "system-cluster-critical"},
        [1000, 1000],
    ),
]


@pytest.mark.parametrize(("qos", "fields", "scores"), [row[1:] for row in CONSTANT], ids=[row[0] for row in CONSTANT])
def test_constant_scores(qos, fields: Json, scores: list[int]) -> None:
    assert oom_scores(pod(memory("a", "1Gi"), inits=(memory("i", None),), **fields), qos, NodePolicy(8 * GI)) == scores


def test_pod_level_share() -> None:
    """§7 worked, pod level: 2Gi for two containers with 256Mi and none, on 8Gi."""
    shared = pod(memory("a", "256Mi"), memory("b", None), resources={"requests": {"memory": "2Gi"}})
    assert pod_share_bytes(shared, NodePolicy(0)) == 896 * MI
    assert oom_scores(shared, "Burstable", NodePolicy(8 * GI)) == [860, 891]
    assert oom_scores(shared, "Burstable", NodePolicy(8 * GI, gates=Gates(pod_level=False))) == [969, 999]


SHARES = [
    ("no pod level", {}, 0),
    ("no memory request", {"requests": {"cpu": "1"}}, 0),
    ("zero", {"requests": {"memory": "0"}}, 0),
    ("limits only", {"limits": {"memory": "2Gi"}}, 0),
    ("split over inits too, truncated", {"requests": {"memory": "1001"}}, 500),
]


@pytest.mark.parametrize(("block", "share"), [row[1:] for row in SHARES], ids=[f"O-3.3 {row[0]}" for row in SHARES])
def test_shares(block: Json, share: int) -> None:
    assert pod_share_bytes(pod(memory("a", None), inits=(memory("i", None),), resources=block), NodePolicy(0)) == share


def test_sidecars_are_as_safe_as_the_app() -> None:
    """O-3.5: 8Gi node, apps of 2Gi and 1Gi, sidecar of 64Mi: min(993, 875)."""
    sidecar = memory("s", "64Mi", sidecar=True)
    burstable = pod(memory("a", "2Gi"), memory("b", "1Gi"), inits=(sidecar, memory("i", "64Mi")))
    assert smallest_request_bytes(burstable) == GI
    assert oom_scores(burstable, "Burstable", NodePolicy(8 * GI)) == [875, 993, 750, 875]
    assert oom_scores(burstable, "Burstable", NodePolicy(8 * GI, sidecar_oom_rule=False)) == [993, 993, 750, 875]
    larger = pod(memory("a", "1Gi"), inits=(memory("s", "4Gi", sidecar=True),))
    assert oom_scores(larger, "Burstable", NodePolicy(8 * GI)) == [500, 875], "the rule never makes it less safe"


CLAMPS = [(1000, 999), (999, 999), (3, 3), (2, 3), (-5000, 3), (500, 500), (1001, 1001)]


@pytest.mark.parametrize(("plain", "score"), CLAMPS, ids=[f"O-3.6 {row[0]}" for row in CLAMPS])
def test_clamp(plain: int, score: int) -> None:
    assert clamped(plain) == score


def test_memory_requests_round_up() -> None:
    (container,) = pod(memory("a", "100m")).spec.containers
    assert memory_request_bytes(container) == 1
    assert memory_request_bytes(pod({"name": "x"}).spec.containers[0]) == 0


amounts = st.integers(0, 1 << 45)
capacities = st.integers(1 << 20, 1 << 45)


@settings(max_examples=examples(300), deadline=None)
@given(amounts, amounts, capacities)
def test_more_request_is_never_less_safe(one: int, other: int, capacity: int) -> None:
    low, high = sorted((one, other))
    assert burstable_score(high, capacity) <= burstable_score(low, capacity)
    assert clamped(burstable_score(high, capacity)) <= clamped(burstable_score(low, capacity))


@settings(max_examples=examples(300), deadline=None)
@given(amounts, capacities, capacities)
def test_a_larger_node_makes_a_request_less_safe(amount: int, one: int, other: int) -> None:
    small, large = sorted((one, other))
    assert burstable_score(amount, small) <= burstable_score(amount, large)


@settings(max_examples=examples(200), deadline=None)
@given(valid_pods(), capacities, st.booleans(), st.booleans())
def test_range_of_valid_pods(document: Json, capacity: int, share: bool, sidecars: bool) -> None:
    each = defaulted(lean(document))
    qos = qos_class(each)
    scores = oom_scores(each, qos, NodePolicy(capacity, pod_level_oom_share=share, sidecar_oom_rule=sidecars))
    assert len(scores) == len(each.spec.init_containers) + len(each.spec.containers)
    assert all(score in (-997, 1000) or 3 <= score <= 999 for score in scores)
    if qos == "Burstable" and -997 not in scores:
        assert all(3 <= score <= 999 for score in scores)
    with_rule = oom_scores(each, qos, NodePolicy(capacity, pod_level_oom_share=share))
    without = oom_scores(each, qos, NodePolicy(capacity, pod_level_oom_share=share, sidecar_oom_rule=False))
    assert all(a <= b for a, b in zip(with_rule, without, strict=True))


@pytest.mark.parametrize(
    ("qos", "amount", "score"),
    [("Burstable", "1Gi", 999), ("Guaranteed", "1Gi", -997), ("BestEffort", None, 1000)],
)
def test_o5_an_ephemeral_container_requests_nothing(qos, amount: str | None, score: int) -> None:
    one = pod(memory("c", amount), ephemeralContainers=[{"name": "d"}])
    scores = oom_scores(one, qos, NodePolicy(memory_capacity_bytes=8 * GI))
    assert (len(scores), scores[1]) == (2, score)


def test_an_ephemeral_container_has_its_share_of_pod_level() -> None:
    """O-3 step 3: 2Gi of 8Gi, 256Mi in one of two containers: (2048 − 256) / 2 = 896Mi for each, 1000 − 109 = 891."""
    resources = {"requests": {"memory": "2Gi"}}
    one = pod(memory("a", "256Mi"), memory("b", None), resources=resources, ephemeralContainers=[{"name": "d"}])
    assert oom_scores(one, "Burstable", NodePolicy(memory_capacity_bytes=8 * GI)) == [860, 891, 891]
