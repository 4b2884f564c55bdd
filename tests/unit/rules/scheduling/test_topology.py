"""Pod (anti-)affinity and topology spread, clause by clause as kube-scheduler's plugins decide (05 A2, A3)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from plimsoll.codec.lean.lean import from_document
from plimsoll.rules.model.objects import Node, Pod
from plimsoll.rules.profile import profile_named
from plimsoll.rules.scheduling.fit import NodeLoad, node_load
from plimsoll.rules.scheduling.topology import (
    AFFINITY,
    ANTI_AFFINITY,
    EXISTING_ANTI_AFFINITY,
    SPREAD,
    SPREAD_LABEL,
    Topology,
)

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
PROFILE = profile_named("1.36")
WEB = {"matchLabels": {"app": "web"}}


def pod(name: str = "p", labels: dict[str, str] | None = None, namespace: str = "default", **spec: Any) -> Pod:
    metadata = {"name": name, "namespace": namespace, "uid": name, "labels": labels or {}}
    if deleted := spec.pop("deleted", None):
        metadata["deletionTimestamp"] = deleted
    return from_document({"metadata": metadata, "spec": {"containers": [{"name": "c", "image": "i"}], **spec}}, Pod)


def load(name: str, zone: str | None, *pods: Pod, labels: dict[str, str] | None = None, **spec: Any) -> NodeLoad:
    own = {HOST: name, **({ZONE: zone} if zone else {}), **(labels or {})}
    node = {
        "metadata": {"name": name, "labels": own},
        "spec": spec,
        "status": {"allocatable": {"pods": "110", "cpu": "4"}},
    }
    return node_load(from_document(node, Node), pods, PROFILE)


def near(selector: Any = WEB, key: str = ZONE, **more: Any) -> dict[str, Any]:
    return {"requiredDuringSchedulingIgnoredDuringExecution": [{"labelSelector": selector, "topologyKey": key, **more}]}


def preferred(weight: int, selector: Any = WEB, key: str = ZONE) -> dict[str, Any]:
    term = {"labelSelector": selector, "topologyKey": key}
    return {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": weight, "podAffinityTerm": term}]}


def reasons(waiting: Pod, loads: list[NodeLoad], namespaces: dict[str, dict[str, str]] | None = None) -> list[str]:
    topology = Topology(waiting, loads, namespaces)
    verdicts = [topology.refusal(each) for each in loads]
    return ["" if verdict is None else verdict.reasons[0] for verdict in verdicts]


def test_affinity_counts_by_topology_pair() -> None:
    loads = [load("a1", "a", pod("w", {"app": "web"})), load("a2", "a"), load("b1", "b"), load("none", None)]
    assert reasons(pod(affinity={"podAffinity": near()}), loads) == ["", "", AFFINITY, AFFINITY]


def test_all_terms_must_match_one_pod() -> None:
    both = (
        near()["requiredDuringSchedulingIgnoredDuringExecution"]
        + near({"matchLabels": {"tier": "front"}})["requiredDuringSchedulingIgnoredDuringExecution"]
    )
    waiting = pod(affinity={"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": both}})
    apart = [load("a", "a", pod("w", {"app": "web"}), pod("f", {"tier": "front"}))]
    together = [load("a", "a", pod("wf", {"app": "web", "tier": "front"}))]
    assert (reasons(waiting, apart), reasons(waiting, together)) == ([AFFINITY], [""])


def test_the_first_pod_of_a_group_may_start_anywhere() -> None:
    loads = [load("a", "a"), load("none", None)]
    assert reasons(pod(labels={"app": "web"}, affinity={"podAffinity": near()}), loads) == ["", AFFINITY]
    assert reasons(pod(labels={"app": "db"}, affinity={"podAffinity": near()}), loads) == [AFFINITY, AFFINITY]


def test_anti_affinity_in_both_directions() -> None:
    web = pod("w", {"app": "web"})
    loads = [load("a1", "a", web), load("a2", "a"), load("b1", "b"), load("none", None)]
    assert reasons(pod(affinity={"podAntiAffinity": near()}), loads) == [ANTI_AFFINITY, ANTI_AFFINITY, "", ""]
    shy = pod("shy", affinity={"podAntiAffinity": near()})
    loads = [load("a1", "a", shy), load("a2", "a"), load("b1", "b")]
    assert reasons(pod(labels={"app": "web"}), loads) == [EXISTING_ANTI_AFFINITY, EXISTING_ANTI_AFFINITY, ""]
    assert reasons(pod(labels={"app": "db"}), loads) == ["", "", ""]


NAMESPACES = {"default": {}, "team": {"kind": "team"}, "other": {}}


@pytest.mark.parametrize(
    ("term", "expected"),
    [
        pytest.param({}, ["", "", ""], id="its own namespace"),
        pytest.param({"namespaces": ["team"]}, ["", ANTI_AFFINITY, ""], id="a list"),
        pytest.param({"namespaceSelector": {}}, ["", ANTI_AFFINITY, ANTI_AFFINITY], id="all of them"),
        pytest.param({"namespaceSelector": {"matchLabels": {"kind": "team"}}}, ["", ANTI_AFFINITY, ""], id="by label"),
    ],
)
def test_namespaces(term: dict[str, Any], expected: list[str]) -> None:
    loads = [
        load("a", "a"),
        load("b", "b", pod("t", {"app": "web"}, "team")),
        load("c", "c", pod("o", {"app": "web"}, "other")),
    ]
    assert reasons(pod(affinity={"podAntiAffinity": near(**term)}), loads, NAMESPACES) == expected


def test_match_label_keys() -> None:
    old, new = (pod(version, {"app": "web", "hash": version}) for version in ("1", "2"))
    loads = [load("a", "a", old), load("b", "b", new)]
    waiting = pod(labels={"hash": "2"}, affinity={"podAntiAffinity": near(matchLabelKeys=["hash"])})
    assert reasons(waiting, loads) == ["", ANTI_AFFINITY]
    waiting = pod(labels={"hash": "2"}, affinity={"podAntiAffinity": near(mismatchLabelKeys=["hash"])})
    assert reasons(waiting, loads) == [ANTI_AFFINITY, ""]


OPERATORS = [
    pytest.param({"key": "app", "operator": "In", "values": ["web", "db"]}, ANTI_AFFINITY, id="In"),
    pytest.param({"key": "app", "operator": "NotIn", "values": ["db"]}, ANTI_AFFINITY, id="NotIn"),
    pytest.param({"key": "tier", "operator": "NotIn", "values": ["x"]}, ANTI_AFFINITY, id="NotIn an absent label"),
    pytest.param({"key": "app", "operator": "Exists"}, ANTI_AFFINITY, id="Exists"),
    pytest.param({"key": "app", "operator": "DoesNotExist"}, "", id="DoesNotExist"),
    pytest.param({"key": "app", "operator": "Gt", "values": ["1"]}, "", id="Gt is for nodes only"),
]


@pytest.mark.parametrize(("term", "expected"), OPERATORS)
def test_operators(term: dict[str, Any], expected: str) -> None:
    waiting = pod(affinity={"podAntiAffinity": near({"matchExpressions": [term]})})
    assert reasons(waiting, [load("a", "a", pod("w", {"app": "web"}))]) == [expected]


def spread(key: str = ZONE, max_skew: int = 1, **more: Any) -> dict[str, Any]:
    return {
        "topologyKey": key,
        "maxSkew": max_skew,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": WEB,
        **more,
    }


def webs(count: int, prefix: str) -> list[Pod]:
    return [pod(f"{prefix}{number}", {"app": "web"}) for number in range(count)]


def spread_pod(*constraints: dict[str, Any], **more: Any) -> Pod:
    return pod(labels={"app": "web", "hash": "2"}, topologySpreadConstraints=list(constraints), **more)


def test_skew_is_against_the_emptiest_place() -> None:
    loads = [
        load("a1", "a", *webs(2, "a")),
        load("b1", "b", *webs(1, "b")),
        load("c1", "c", *webs(1, "c")),
        load("n", None),
    ]
    assert reasons(spread_pod(spread()), loads) == [SPREAD, "", "", SPREAD_LABEL]
    assert reasons(spread_pod(spread(max_skew=2)), loads) == ["", "", "", SPREAD_LABEL]


def test_min_domains_count_missing_places_as_empty() -> None:
    loads = [load("a1", "a", *webs(1, "a")), load("b1", "b", *webs(1, "b"))]
    assert reasons(spread_pod(spread()), loads) == ["", ""]
    assert reasons(spread_pod(spread(minDomains=3)), loads) == [SPREAD, SPREAD]


def test_pods_that_do_not_count() -> None:
    leaving = pod("l", {"app": "web"}, deleted="2026-01-01T00:00:00Z")
    elsewhere = pod("e", {"app": "web"}, "other")
    loads = [load("a1", "a", leaving, elsewhere, pod("d", {"app": "db"})), load("b1", "b")]
    assert reasons(spread_pod(spread()), loads) == ["", ""]


def test_which_nodes_are_spread_over() -> None:
    taint = {"key": "k", "effect": "NoSchedule"}
    loads = [load("a1", "a", *webs(1, "a")), load("b1", "b", taints=[taint]), load("c1", "c", labels={"disk": "slow"})]
    waiting = spread_pod(spread(), nodeSelector={"disk": "fast"})
    fast = [load("a1", "a", *webs(1, "a"), labels={"disk": "fast"}), *loads[1:]]
    assert reasons(waiting, fast)[0] == ""  # only zone a has such nodes
    assert reasons(spread_pod(spread(nodeAffinityPolicy="Ignore"), nodeSelector={"disk": "fast"}), fast)[0] == SPREAD
    two = loads[:2]
    assert reasons(spread_pod(spread()), two)[0] == SPREAD
    assert reasons(spread_pod(spread(nodeTaintsPolicy="Honor")), two)[0] == ""


def test_spread_by_the_labels_of_this_pod() -> None:
    loads = [load("a1", "a", pod("x", {"app": "web", "hash": "1"})), load("b1", "b")]
    assert reasons(spread_pod(spread()), loads)[0] == SPREAD
    assert reasons(spread_pod(spread(matchLabelKeys=["hash"])), loads)[0] == ""


def test_every_constraint_must_hold_and_needs_its_label() -> None:
    loads = [load("a1", "a", *webs(1, "a")), load("a2", "a"), load("b1", "b", *webs(1, "b"))]
    assert reasons(spread_pod(spread(), spread(HOST)), loads) == [SPREAD, "", SPREAD]


def test_counts_follow_the_pods_of_one_node() -> None:
    loads = [load("a1", "a", *webs(2, "a")), load("b1", "b", *webs(1, "b"))]
    topology = Topology(spread_pod(spread()), loads)
    assert topology.refusal(loads[0]) is not None
    assert topology.refusal(loads[0].without_pods(["a0"])) is None
    topology = Topology(pod(affinity={"podAntiAffinity": near()}), loads)
    assert topology.refusal(loads[1].without_pods(["b0"])) is None


def test_soft_spread_prefers_empty_places() -> None:
    loads = [load("a1", "a", *webs(3, "a")), load("b1", "b", *webs(1, "b")), load("n", None)]
    topology = Topology(spread_pod(spread(whenUnsatisfiable="ScheduleAnyway")), loads)
    # log(2 + 2) = 1.386: 3 pods give 4, 1 pod gives 1; 100 · (4 + 1 − s) / 4
    assert topology.spread_scores(loads) == [25, 100, 0]
    assert [topology.refusal(each) for each in loads] == [None, None, None]
    assert Topology(pod(), loads).spread_scores(loads) == [0, 0, 0]


def test_preferred_terms_of_both_sides() -> None:
    fan = pod(
        "fan", affinity={"podAffinity": preferred(30), "podAntiAffinity": preferred(10, {"matchLabels": {"app": "db"}})}
    )
    loads = [load("a1", "a", pod("w", {"app": "web"})), load("b1", "b", fan), load("c1", "c")]
    waiting = pod(labels={"app": "web"}, affinity={"podAffinity": preferred(60)})
    assert Topology(waiting, loads).affinity_scores(loads) == [100, 50, 0]
    assert Topology(pod(labels={"app": "db"}), loads).affinity_scores(loads) == [100, 0, 100]
    required = [load("a1", "a", pod("r", affinity={"podAffinity": near()})), load("b1", "b")]
    assert Topology(pod(labels={"app": "web"}), required).affinity_scores(required) == [100, 0]


LABELS = st.sampled_from([{"app": "web"}, {"app": "db"}, {}])
AFFINITIES = st.sampled_from(
    [None, {"podAffinity": near()}, {"podAntiAffinity": near()}, {"podAntiAffinity": near(key=HOST)}]
)


@st.composite
def clusters(draw: st.DrawFn) -> list[NodeLoad]:
    loads = []
    for number in range(draw(st.integers(1, 4))):
        pods = [
            pod(f"{number}-{index}", draw(LABELS), **({} if affinity is None else {"affinity": affinity}))
            for index, affinity in enumerate(draw(st.lists(AFFINITIES, max_size=3)))
        ]
        loads.append(load(f"n{number}", draw(st.sampled_from(["a", "b", None])), *pods))
    return loads


@given(clusters(), LABELS, AFFINITIES, st.booleans(), st.data())
def test_a_changed_node_is_counted_as_in_a_cluster_that_has_it(
    loads: list[NodeLoad], labels: dict[str, str], affinity: dict[str, Any] | None, is_spread: bool, data: st.DataObject
) -> None:
    spec: dict[str, Any] = {} if affinity is None else {"affinity": affinity}
    if is_spread:
        spec["topologySpreadConstraints"] = [spread()]
    waiting = pod(labels=labels, **spec)
    changed = data.draw(st.sampled_from(loads))
    leaving = data.draw(st.sets(st.sampled_from(sorted(changed.residents)))) if changed.residents else set()
    event("pods leave" if leaving else "nothing changes")
    smaller = changed.without_pods(leaving)
    others = [smaller if each is changed else each for each in loads]
    assert Topology(waiting, loads).refusal(smaller) == Topology(waiting, others).refusal(smaller)
