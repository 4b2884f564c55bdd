"""The scheduler cache: any order of changes gives the loads of a fresh count."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from plimsoll.codec.lean.lean import from_document
from plimsoll.rules.model.objects import Node, Pod
from plimsoll.rules.profile import profile_named
from plimsoll.rules.scheduling.fit import node_load, resident_load
from plimsoll.scheduler.cache import SchedulerCache


def _node(name: str, cpu: str = "4", **spec: Any) -> Node:
    allocatable = {"cpu": cpu, "memory": "8Gi", "pods": "10"}
    return from_document({"metadata": {"name": name}, "spec": spec, "status": {"allocatable": allocatable}}, Node)


def _pod(uid: str, node: str, cpu: str = "1", phase: str = "Running") -> Pod:
    containers = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
    return from_document(
        {
            "metadata": {"name": uid, "uid": uid},
            "spec": {"nodeName": node, "containers": containers},
            "status": {"phase": phase},
        },
        Pod,
    )


def test_pods_that_arrive_before_their_node_count_once_it_is_known() -> None:
    cluster = SchedulerCache(profile_named("1.36"))
    cluster.put_pod(_pod("a", "n"))
    assert cluster.put_node(_node("n"))
    load = cluster.load("n")
    assert load is not None and load.requested == {"cpu": 1000}


def test_changes_that_may_help_a_waiting_pod_are_reported() -> None:
    cluster = SchedulerCache(profile_named("1.36"))
    assert cluster.put_node(_node("n"))
    assert not cluster.put_node(_node("n"))  # a heartbeat
    assert cluster.put_node(_node("n", unschedulable=True))
    assert not cluster.put_pod(_pod("a", "n", "2"))
    assert cluster.put_pod(_pod("a", "n", "1"))  # shrank
    assert not cluster.put_pod(_pod("a", "n", "3"))  # grew
    assert cluster.put_pod(_pod("a", "n", phase="Failed"))
    assert not cluster.drop_pod("a")


def test_an_assumed_pod_counts_until_its_binding_fails() -> None:
    cluster = SchedulerCache(profile_named("1.36"))
    cluster.put_node(_node("n"))
    cluster.assume(resident_load(_pod("a", "n"), profile_named("1.36")), "n")
    assert cluster.is_placed("a")
    cluster.forget("a")
    load = cluster.load("n")
    assert load is not None and not load.residents and not cluster.is_placed("a")


def test_a_pod_that_the_api_shows_bound_is_not_forgotten() -> None:
    cluster = SchedulerCache(profile_named("1.36"))
    cluster.put_node(_node("n"))
    cluster.assume(resident_load(_pod("a", "n"), profile_named("1.36")), "n")
    cluster.put_pod(_pod("a", "n"))
    cluster.forget("a")
    assert cluster.is_placed("a")


_NEWS = st.lists(
    st.tuples(
        st.sampled_from(["pod", "end", "gone", "node", "no-node"]),
        st.sampled_from("abcd"),
        st.sampled_from(["n1", "n2", "n3"]),
        st.sampled_from(["500m", "1", "2"]),
    ),
    max_size=40,
)


@given(_NEWS)
def test_any_order_of_changes_adds_up(news: list[tuple[str, str, str, str]]) -> None:
    cluster, pods, nodes = SchedulerCache(profile_named("1.36")), dict[str, Pod](), dict[str, Node]()
    for what, uid, name, cpu in news:
        match what:
            case "pod":
                pods[uid] = _pod(uid, name, cpu)
                cluster.put_pod(pods[uid])
            case "end":
                if uid in pods:
                    cluster.put_pod(_pod(uid, pods.pop(uid).spec.node_name, cpu, "Succeeded"))
            case "gone":
                pods.pop(uid, None)
                cluster.drop_pod(uid)
            case "node":
                nodes[name] = _node(name, cpu)
                cluster.put_node(nodes[name])
            case "no-node":
                nodes.pop(name, None)
                cluster.drop_node(name)
    for name, node in nodes.items():
        fresh = node_load(node, (pod for pod in pods.values() if pod.spec.node_name == name), profile_named("1.36"))
        load = cluster.load(name)
        assert load is not None
        assert load.residents.keys() == fresh.residents.keys()
        assert {key: amount for key, amount in load.requested.items() if amount} == fresh.requested
    assert [load.name for load in cluster.loads()] == sorted(nodes)
