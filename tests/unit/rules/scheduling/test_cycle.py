"""A whole scheduling cycle and its messages: 05 A4."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.codec.lean.lean import from_document
from plimsoll.rules.model.objects import Node, Pod
from plimsoll.rules.profile import PROFILE_DOCUMENTS, Profile, profile_named
from plimsoll.rules.scheduling.cycle import (
    backoff_s,
    by_node,
    decide,
    preempted_message,
    queue_key,
    scheduled_message,
    unavailable,
)
from plimsoll.rules.scheduling.fit import FitVerdict, NodeLoad, node_load, waiting_load

Json = dict[str, Any]


def pod(name: str = "p", cpu: str = "1", priority: int = 0, *, status: Json | None = None, **spec: Any) -> Pod:
    containers = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
    return from_document(
        {
            "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
            "spec": {"priority": priority, "containers": containers, **spec},
            "status": status or {},
        },
        Pod,
    )


def node(name: str, cpu: str = "4", *residents: Pod, pods: str = "10", **spec: Any) -> NodeLoad:
    lean = from_document(
        {
            "metadata": {"name": name},
            "spec": spec,
            "status": {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": pods}},
        },
        Node,
    )
    return node_load(lean, residents, profile_named("1.36"))


TAINTED = [{"key": "dedicated", "value": "db", "effect": "NoSchedule"}]


def five_nodes() -> list[NodeLoad]:
    """The cluster of spec 06 E9: full, tainted, cordoned, too small, taken."""
    return [
        node("n1", "4", pod("a", "0"), pods="1"),
        node("n2", taints=TAINTED),
        node("n3", unschedulable=True),
        node("n4", "1"),
        node("n5", "1500m"),
    ]


HISTOGRAM = (
    "0/5 nodes are available: 1 Too many pods, 1 node(s) {taint}, 1 node(s) were unschedulable, 2 Insufficient cpu."
)
HELP = "preemption: 0/5 nodes are available: 1 No preemption victims found for incoming pod, 4 Preemption is not helpful for scheduling."


@pytest.mark.parametrize(
    ("profile", "message"),
    [
        pytest.param(
            profile_named("1.36"),
            f"{HISTOGRAM.format(taint='had untolerated taint(s)')} no new claims to deallocate, {HELP}",
            id="1.36, spec 06 E9",
        ),
        pytest.param(
            PROFILE_DOCUMENTS,
            f"{HISTOGRAM.format(taint='had untolerated taint {dedicated: db}')} {HELP}",
            id="documents",
        ),
    ],
)
def test_a4_failed_scheduling_text(profile: Profile, message: str) -> None:
    found = decide(pod("new", "2"), five_nodes(), profile)
    assert found.nodes == ()
    assert found.message == message


def test_a4_one_node_counts_under_each_of_its_reasons() -> None:
    full = node("n1", "4", pod("a", "4"), pods="1")
    message = decide(pod("new", "2"), [full], profile_named("1.36")).message
    assert message.startswith("0/1 nodes are available: 1 Insufficient cpu, 1 Too many pods. ")


def test_a4_counts_sort_as_text() -> None:
    verdicts = [FitVerdict(("Insufficient cpu",))] * 10 + [FitVerdict(("Too many pods",))] * 9
    assert unavailable(19, verdicts) == "0/19 nodes are available: 10 Insufficient cpu, 9 Too many pods."


def test_a4_no_nodes() -> None:
    assert decide(pod(), [], profile_named("1.36")).message == "no nodes available to schedule pods"


@pytest.mark.parametrize(
    ("profile", "before"),
    [
        pytest.param(profile_named("1.36"), "no new claims to deallocate, ", id="1.36"),
        pytest.param(PROFILE_DOCUMENTS, "", id="documents"),
    ],
)
def test_a4_preemption_policy_never(profile: Profile, before: str) -> None:
    message = decide(pod("new", "4", 9, preemptionPolicy="Never"), [node("n1", "4", pod("a", "1"))], profile).message
    assert (
        message
        == f"0/1 nodes are available: 1 Insufficient cpu. {before}preemption: not eligible due to preemptionPolicy=Never."
    )


def test_a4_when_preemption_helps_only_the_histogram_is_reported() -> None:
    found = decide(pod("new", "4", 9), [node("n1", "4", pod("a", "1"))], profile_named("1.36"))
    assert found.message == "0/1 nodes are available: 1 Insufficient cpu."
    assert found.preemption is not None and found.preemption.candidate is not None
    assert found.preemption.candidate.node == "n1"


def named(*names: str) -> Json:
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]} for name in names]}]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def test_a_daemon_sets_pod_tries_only_its_own_node() -> None:
    nodes = [node("n1", "4", pod("a", "4")), node("n2"), node("n3")]
    assert decide(pod("new", "1", affinity=named("n1")), nodes, profile_named("1.36")).message == (
        "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) didn't satisfy plugin(s) [NodeAffinity]. "
        "no new claims to deallocate, preemption: 0/3 nodes are available: "
        "1 No preemption victims found for incoming pod, 2 Preemption is not helpful for scheduling."
    )
    assert decide(pod("new", "1", affinity=named("n2")), nodes, profile_named("1.36")).nodes == ("n2",)


def test_terms_that_exclude_one_another_are_reported_once() -> None:
    found = decide(pod("new", affinity=named("n1", "n2")), [node("n1"), node("n2")], profile_named("1.36"))
    assert found.message == (
        "0/2 nodes are available: pod affinity terms conflict. no new claims to deallocate, "
        "preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
    )


def test_a3_the_emptiest_node_wins_and_all_ties_are_returned() -> None:
    nodes = [node("n1", "4", pod("a", "2")), node("n2"), node("n3")]
    found = decide(pod("new", "1"), nodes, profile_named("1.36"))
    assert found.nodes == ("n2", "n3")
    assert set(found.scores) == {"n1", "n2", "n3"}
    assert decide(pod("new", "3"), nodes[:2], profile_named("1.36")).scores == {}, "a single node is not scored"


def test_a5_the_nominated_node_is_tried_first() -> None:
    nodes = [node("n1", "4", pod("a", "2")), node("n2")]
    back = pod("new", "1", status={"nominatedNodeName": "n1"})
    assert decide(back, nodes, profile_named("1.36")).nodes == ("n1",)
    grown = pod("new", "3", status={"nominatedNodeName": "n1"})
    assert decide(grown, nodes, profile_named("1.36")).nodes == ("n2",), "another node may still be used"


def test_a2_a_nominated_pod_takes_its_place() -> None:
    nominee = waiting_load(pod("nominee", "4", 5, status={"nominatedNodeName": "n1"}))
    nodes = [node("n1"), node("n2")]
    nominated = by_node([nominee, waiting_load(pod("other"))])
    assert decide(pod("new", "1", 5), nodes, profile_named("1.36"), nominated=nominated).nodes == ("n2",)
    assert decide(pod("new", "1", 6), nodes, profile_named("1.36"), nominated=nominated).nodes == ("n1", "n2")


def test_a3_a_large_cluster_is_searched_in_rotation() -> None:
    nodes = [node(f"n{index}") for index in range(200)]
    first = decide(pod(), nodes, profile_named("1.36"))
    assert len(first.scores) == 100 and first.next_start == 100
    second = decide(pod(), nodes, profile_named("1.36"), start=first.next_start)
    assert not first.scores.keys() & second.scores.keys()
    assert second.next_start == 0


def test_texts_of_events() -> None:
    assert scheduled_message(pod("p1"), "n3") == "Successfully assigned default/p1 to n3"
    assert preempted_message(pod("p1"), "n3") == "Preempted by pod uid-p1 on node n3"


def test_a4_queue_order() -> None:
    waiting = [
        (pod("late", priority=1), 9.0),
        (pod("early", priority=1), 3.0),
        (pod("high", priority=7), 20.0),
        (pod("low", priority=-1), 0.0),
    ]
    waiting.sort(key=lambda entry: queue_key(*entry))
    assert [each.metadata.name for each, _ in waiting] == ["high", "early", "late", "low"]


@pytest.mark.parametrize(
    ("attempts", "seconds"), [(0, 1), (1, 1), (2, 2), (3, 4), (4, 8), (5, 10), (6, 10), (10**6, 10)]
)
def test_a4_backoff(attempts: int, seconds: int) -> None:
    assert backoff_s(attempts) == seconds


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(1, 6)), min_size=1, max_size=6), st.integers(1, 7))
def test_a_pod_goes_where_it_fits_or_the_message_counts_every_node(sizes: list[tuple[int, int]], cpu: int) -> None:
    nodes = [node(f"n{index}", str(size), pod("r", str(used))) for index, (used, size) in enumerate(sizes)]
    fitting = {f"n{index}" for index, (used, size) in enumerate(sizes) if used + cpu <= size}
    found = decide(pod("new", str(cpu)), nodes, profile_named("1.36"))
    assert set(found.nodes) <= fitting
    assert bool(found.nodes) is bool(fitting)
    if not fitting:
        assert found.message.startswith(f"0/{len(nodes)} nodes are available: {len(nodes)} Insufficient cpu. ")
