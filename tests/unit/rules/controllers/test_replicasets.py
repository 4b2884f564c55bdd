"""ReplicaSets: how many pods, which to delete, and what is owned."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.rules.controllers.adoption import claims, released_references, selector_of
from plimsoll.rules.controllers.pods import count_or_percent, next_available_s
from plimsoll.rules.controllers.replicasets import batches, by_deletion_order, deletion_cost, replica_status, scaling
from tests.unit.rules.controllers.documents import NOW_S, Json, ago, names, pod


def _owner(replicas: int | None, **metadata: Any) -> Json:
    spec = {"template": {"metadata": {"labels": {"a": "b"}}}, **({} if replicas is None else {"replicas": replicas})}
    return {"metadata": {"name": "rs", "uid": "u", "generation": 3, **metadata}, "spec": spec}


def test_missing_evicted_and_deleted_pods_are_replaced() -> None:
    pods = [pod("a"), pod("b", "Failed"), pod("c", deletionTimestamp="x")]
    assert scaling(_owner(3), pods).create == 2
    assert scaling(_owner(None), []).create == 1
    assert scaling(_owner(5, deletionTimestamp="x"), pods).create == 0
    assert scaling(_owner(10_000), []).create == 500


@pytest.mark.parametrize(
    ("first", "then"),
    [
        pytest.param(pod("x", "Pending", ready=False, node=""), pod("y", "Pending", ready=False), id="not scheduled"),
        pytest.param(pod("x", "Pending", ready=False), pod("y", "Unknown", ready=False), id="pending"),
        pytest.param(pod("x", "Unknown", ready=False), pod("y", ready=False), id="unknown"),
        pytest.param(pod("x", ready=False), pod("y"), id="not ready"),
        pytest.param(
            pod("x", annotations={"controller.kubernetes.io/pod-deletion-cost": "-1"}), pod("y", ready_s=1), id="cost"
        ),
        pytest.param(pod("x", ready_s=10, restarts=0), pod("y", ready_s=90, restarts=9), id="ready for a shorter time"),
        pytest.param(pod("x", restarts=2), pod("y", restarts=1), id="restarts"),
        pytest.param(pod("x", age_s=10, ready_s=5), pod("y", age_s=1000, ready_s=5), id="younger"),
        pytest.param(pod("a", ready_s=90), pod("b", ready_s=91), id="about the same time: by uid"),
        pytest.param(pod("a", ready_s=91), pod("b", ready_s=90), id="about the same time: by uid, not by age"),
    ],
)
def test_which_pod_is_deleted_first(first: Json, then: Json) -> None:
    for both in ([first, then], [then, first]):
        assert names(by_deletion_order(both, NOW_S)) == names([first, then])


def test_pods_on_the_fullest_node_are_deleted_first() -> None:
    pods = [pod("a", node="n1", ready_s=1), pod("b", node="n2"), pod("c", node="n2")]
    assert names(by_deletion_order(pods, NOW_S)) == ["b", "c", "a"]
    assert names(scaling(_owner(1), pods, NOW_S).delete) == ["b", "c"]


@pytest.mark.parametrize(
    ("text", "cost"), [("5", 5), ("-7", -7), ("0", 0), ("+1", 0), ("01", 0), ("x", 0), ("", 0), ("2147483648", 0)]
)
def test_deletion_cost(text: str, cost: int) -> None:
    assert deletion_cost({"controller.kubernetes.io/pod-deletion-cost": text}) == cost


@given(st.integers(0, 1000))
def test_batches_double_and_add_up(count: int) -> None:
    sizes = batches(count)
    assert sum(sizes) == count
    assert all(size == 2**place for place, size in enumerate(sizes[:-1]))


def test_status() -> None:
    pods = [
        pod("a", labels={"a": "b", "x": "y"}),
        pod("b", ready=False),
        pod("c", "Failed"),
        pod("d", ready_s=3),
        pod("e", deletionTimestamp="x"),
    ]
    owner = _owner(4)
    counts = {"replicas": 3, "fullyLabeledReplicas": 1, "readyReplicas": 2, "observedGeneration": 3}
    assert replica_status(owner, pods, NOW_S) == {**counts, "availableReplicas": 2, "terminatingReplicas": 1}
    owner["spec"]["minReadySeconds"] = 10
    assert replica_status(owner, pods, NOW_S, terminating=False) == {**counts, "availableReplicas": 1}
    assert next_available_s(pods[:4], 10, NOW_S) == 7


def test_a_failure_is_a_condition_until_it_is_over() -> None:
    owner = _owner(4)
    failed = replica_status(owner, [], NOW_S, error="no room", terminating=False)
    condition = {"type": "ReplicaFailure", "status": "True", "lastTransitionTime": ago(0), "reason": "FailedCreate"}
    assert failed["conditions"] == [{**condition, "message": "no room"}]
    owner["status"] = failed
    assert replica_status(owner, [], NOW_S + 9, error="still", terminating=False)["conditions"] == failed["conditions"]
    assert "conditions" not in replica_status(owner, [], NOW_S, terminating=False)
    assert replica_status(_owner(0), [pod("a")], NOW_S, error="x")["conditions"][0]["reason"] == "FailedDelete"


@pytest.mark.parametrize(
    ("value", "total", "up", "expected"),
    [("25%", 3, True, 1), ("25%", 3, False, 0), ("100%", 7, False, 7), (2, 1, True, 2), ("0%", 5, True, 0)],
)
def test_count_or_percent(value: object, total: int, up: bool, expected: int) -> None:
    assert count_or_percent(value, total, up=up) == expected


# --- adoption ---

MINE = [{"uid": "u", "controller": True}]
OTHER = [{"uid": "v", "controller": True}]


def _selecting(**metadata: Any) -> Json:
    owner = _owner(1, **metadata)
    owner["spec"]["selector"] = {"matchLabels": {"a": "b"}}
    return owner


@pytest.mark.parametrize(
    ("owner", "each", "verdict"),
    [
        pytest.param(_selecting(), pod("p", labels={"a": "b"}, ownerReferences=MINE), "owned", id="own"),
        pytest.param(_selecting(), pod("p", labels={"a": "c"}, ownerReferences=MINE), "release", id="labels changed"),
        pytest.param(_selecting(), pod("p", labels={"a": "b"}), "adopt", id="orphan"),
        pytest.param(_selecting(), pod("p", labels={"a": "c"}), "", id="other labels"),
        pytest.param(_selecting(), pod("p", labels={"a": "b"}, ownerReferences=OTHER), "", id="another controller"),
        pytest.param(_selecting(), pod("p", labels={"a": "b"}, deletionTimestamp="x"), "", id="orphan, being deleted"),
        pytest.param(_selecting(deletionTimestamp="x"), pod("p", labels={"a": "b"}), "", id="owner, being deleted"),
    ],
)
def test_claims(owner: Json, each: Json, verdict: str) -> None:
    decided = claims(owner, [each])
    found = {name: getattr(decided, name) for name in ("owned", "adopt", "release")}
    assert {name for name, some in found.items() if some} == ({verdict} if verdict else set())


def test_a_map_of_labels_is_a_selector_too() -> None:
    assert selector_of({"spec": {"selector": {"app": "web"}}}).match_labels == {"app": "web"}
    assert released_references(pod("p", ownerReferences=[*MINE, *OTHER]), "u") == OTHER
