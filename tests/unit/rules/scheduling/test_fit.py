"""Fit of a pod on a node: spec 05 A1 and A2, spec 01 E-16."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.codec.lean.lean import from_document
from plimsoll.rules.model.objects import Node, Pod
from plimsoll.rules.profile import PROFILE_DOCUMENTS, profile_named
from plimsoll.rules.quantity import QUANTITIES
from plimsoll.rules.scheduling.fit import (
    FITS,
    FitVerdict,
    NodeLoad,
    Shortfall,
    amounts,
    host_ports,
    kubelet_shortfalls,
    node_load,
    resident_load,
    shortfalls,
    verdict,
    waiting_load,
    with_nominated,
)

Json = dict[str, Any]
ALLOCATABLE = {"cpu": "8", "memory": "16Gi", "ephemeral-storage": "100Gi", "pods": "110"}


def pod(name: str = "p", requests: Json | None = None, *, status: Json | None = None, **spec: Any) -> Pod:
    spec.setdefault("containers", [{"name": "c", "resources": {"requests": requests or {}}}])
    return from_document(
        {"metadata": {"name": name, "namespace": "default"}, "spec": spec, "status": status or {}}, Pod
    )


def node(name: str = "n1", allocatable: Json | None = None, labels: Json | None = None, **spec: Any) -> Node:
    return from_document(
        {
            "metadata": {"name": name, "labels": labels or {}},
            "spec": spec,
            "status": {"allocatable": ALLOCATABLE if allocatable is None else allocatable},
        },
        Node,
    )


def largest_cpu(load: NodeLoad) -> int:
    """The largest whole number of cores that still lands."""
    return max(
        n for n in range(20) if verdict(waiting_load(pod("new", {"cpu": str(n)})), load, profile_named("1.36")).fits
    )


def resident(
    spec: str, allocated: str | None = None, actual: str | None = None, pending: str = "", phase: str = ""
) -> Pod:
    status: Json = {"name": "c"}
    if allocated is not None:
        status["allocatedResources"] = {"cpu": allocated}
    if actual is not None:
        status["resources"] = {"requests": {"cpu": actual}}
    conditions = [{"type": "PodResizePending", "status": "True", "reason": pending}] if pending else []
    return pod("r", {"cpu": spec}, status={"phase": phase, "containerStatuses": [status], "conditions": conditions})


INIT_5 = {"name": "i", "resources": {"requests": {"cpu": "5"}}}
APP_2 = {"name": "c", "resources": {"requests": {"cpu": "2"}}}
SIDECAR_1 = {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}


@pytest.mark.parametrize(
    ("on_node", "cores"),
    [
        pytest.param(resident("1", "5", "5"), 3, id="shrinking: 1/5/5"),
        pytest.param(resident("6", "2", "2", "Infeasible"), 6, id="6/2/2 Infeasible"),
        pytest.param(resident("6", "3", "2", "Infeasible"), 5, id="6/3/2 Infeasible"),
        pytest.param(resident("6", "2", "2", "Deferred"), 2, id="6/2/2 Deferred"),
        pytest.param(resident("1", "1", "6"), 2, id="actual not yet shrunk: 1/1/6"),
        pytest.param(resident("2", "6"), 6, id="allocated alone is ignored"),
        pytest.param(resident("6", phase="Succeeded"), 8, id="phase Succeeded"),
        pytest.param(resident("6", phase="Failed"), 8, id="phase Failed"),
        pytest.param(pod("r", initContainers=[INIT_5], containers=[APP_2]), 3, id="init 5, app 2"),
        pytest.param(
            pod("r", initContainers=[SIDECAR_1, INIT_5], containers=[APP_2]), 2, id="sidecar 1, init 5, app 2"
        ),
        pytest.param(pod("r", {"cpu": "1500m"}, overhead={"cpu": "501m"}), 5, id="overhead"),
    ],
)
def test_a1_checked_on_a_live_1_36_scheduler(on_node: Pod, cores: int) -> None:
    assert largest_cpu(node_load(node(), [on_node], profile_named("1.36"))) == cores


def test_a1_a_pod_being_deleted_still_counts() -> None:
    leaving = from_document(
        {
            "metadata": {"name": "r", "deletionTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"containers": [APP_2]},
        },
        Pod,
    )
    assert largest_cpu(node_load(node(), [leaving], profile_named("1.36"))) == 6


@pytest.mark.parametrize(
    ("spec", "allocated", "resize", "cpu_milli"),
    [
        pytest.param("1500m", "1", "Proposed", 1500, id="T3 Proposed"),
        pytest.param("100", "1600m", "Proposed", 100_000, id="T11 Proposed at 100"),
        pytest.param("100", "1600m", "Infeasible", 1600, id="T12 Infeasible"),
        pytest.param("2", "1500m", "Deferred", 2000, id="Deferred"),
        pytest.param("1", "2", "InProgress", 2000, id="InProgress"),
        pytest.param("1600m", "2", "", 2000, id="allocated still higher"),
    ],
)
def test_a1_documents_rule(spec: str, allocated: str, resize: str, cpu_milli: int) -> None:
    status = {"resize": resize, "containerStatuses": [{"name": "c", "allocatedResources": {"cpu": allocated}}]}
    assert resident_load(pod("r", {"cpu": spec}, status=status), PROFILE_DOCUMENTS).requests == {"cpu": cpu_milli}


def test_a1_the_pod_being_scheduled_counts_from_its_spec_only() -> None:
    status = {"containerStatuses": [{"name": "c", "resources": {"requests": {"cpu": "7"}}}]}
    assert waiting_load(pod("p", {"cpu": "1"}, status=status)).requests == {"cpu": 1000}


# --- A2 ---


@pytest.mark.parametrize(
    ("used", "requests", "allocatable", "expected"),
    [
        pytest.param([], {}, {}, FitVerdict(("Too many pods",)), id="no allocatable: not even a pod"),
        pytest.param([], {}, {"pods": "1"}, FITS, id="nothing asked, nothing short"),
        pytest.param([], {"cpu": "0", "example.com/gpu": "0"}, {"pods": "1"}, FITS, id="zero is not asked for"),
        pytest.param(["2"], {"cpu": "6"}, ALLOCATABLE, FITS, id="exactly what is free"),
        pytest.param(["2"], {"cpu": "6001m"}, ALLOCATABLE, FitVerdict(("Insufficient cpu",)), id="a milli too much"),
        pytest.param(
            ["2"],
            {"cpu": "8001m"},
            ALLOCATABLE,
            FitVerdict(("Insufficient cpu",), True),
            id="above allocatable: unresolvable",
        ),
        pytest.param(
            ["2"],
            {
                "cpu": "7",
                "memory": "17Gi",
                "ephemeral-storage": "101Gi",
                "b.com/x": "1",
                "a.com/y": "1",
                "hugepages-2Mi": "2Mi",
            },
            {**ALLOCATABLE, "pods": "1"},
            FitVerdict(
                (
                    "Too many pods",
                    "Insufficient cpu",
                    "Insufficient memory",
                    "Insufficient ephemeral-storage",
                    "Insufficient a.com/y",
                    "Insufficient b.com/x",
                    "Insufficient hugepages-2Mi",
                ),
                True,
            ),
            id="all reasons are collected",
        ),
        pytest.param([], {"storage": "1Gi"}, ALLOCATABLE, FITS, id="a bare name that is not scheduled"),
    ],
)
def test_a2_resources(used: list[str], requests: Json, allocatable: Json, expected: FitVerdict) -> None:
    residents = [pod(f"r{index}", {"cpu": cpu}) for index, cpu in enumerate(used)]
    load = node_load(node(allocatable=allocatable), residents, profile_named("1.36"))
    assert verdict(waiting_load(pod("p", requests)), load, profile_named("1.36")) == expected


def test_a2_a_full_node_is_resolvable() -> None:
    load = node_load(node(allocatable={**ALLOCATABLE, "pods": "2"}), [pod("a"), pod("b")], profile_named("1.36"))
    assert verdict(waiting_load(pod()), load, profile_named("1.36")) == FitVerdict(("Too many pods",))


def test_a2_allocatable_defaults_to_capacity() -> None:
    bare = from_document({"metadata": {"name": "n"}, "status": {"capacity": {"cpu": "4", "pods": "10"}}}, Node)
    assert node_load(bare, [], profile_named("1.36")).allocatable == {"cpu": 4000}


TAINTED = [{"key": "soft", "effect": "PreferNoSchedule"}, {"key": "dedicated", "value": "db", "effect": "NoExecute"}]
PRESSURE = [{"key": "node.kubernetes.io/memory-pressure", "effect": "NoSchedule"}]
AFFINITY_TEXT = "node(s) didn't match Pod's node affinity/selector"


@pytest.mark.parametrize(
    ("profile", "the_pod", "the_node", "reason"),
    [
        pytest.param("1.36", pod(), node(unschedulable=True), "node(s) were unschedulable", id="unschedulable"),
        pytest.param(
            "1.36",
            pod(tolerations=[{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]),
            node(unschedulable=True),
            None,
            id="unschedulable, tolerated",
        ),
        pytest.param(
            "1.36", pod(nodeName="n2"), node(), "node(s) didn't match the requested node name", id="node name"
        ),
        pytest.param("1.36", pod(nodeName="n1"), node(), None, id="its own node name"),
        pytest.param("1.36", pod(), node(taints=TAINTED), "node(s) had untolerated taint(s)", id="taint, 1.36"),
        pytest.param(
            "documents",
            pod(),
            node(taints=TAINTED),
            "node(s) had untolerated taint {dedicated: db}",
            id="taint, documents",
        ),
        pytest.param("1.36", pod(), node(taints=TAINTED[:1]), None, id="PreferNoSchedule does not filter"),
        pytest.param(
            "1.36", pod(tolerations=[{"operator": "Exists"}]), node(taints=TAINTED), None, id="taint, tolerated"
        ),
        pytest.param("1.36", pod(nodeSelector={"a": "b"}), node(), AFFINITY_TEXT, id="node selector"),
        pytest.param("1.36", pod(nodeSelector={"a": "b"}), node(labels={"a": "b"}), None, id="node selector, matched"),
        pytest.param(
            "1.36",
            pod(nodeSelector={"a": "b"}),
            node(taints=TAINTED, unschedulable=True),
            "node(s) were unschedulable",
            id="first refusal only",
        ),
        pytest.param(
            "1.36",
            pod(nodeSelector={"a": "b"}),
            node(taints=TAINTED),
            "node(s) had untolerated taint(s)",
            id="taints before affinity",
        ),
        pytest.param(
            "documents", pod("p", {"cpu": "1"}), node(taints=PRESSURE), None, id="memory pressure, Burstable, documents"
        ),
        pytest.param(
            "documents",
            pod(),
            node(taints=PRESSURE),
            "node(s) had untolerated taint {node.kubernetes.io/memory-pressure: }",
            id="memory pressure, BestEffort, documents",
        ),
        pytest.param(
            "1.36",
            pod("p", {"cpu": "1"}),
            node(taints=PRESSURE),
            "node(s) had untolerated taint(s)",
            id="memory pressure, 1.36",
        ),
    ],
)
def test_a2_other_filters(profile: str, the_pod: Pod, the_node: Node, reason: str | None) -> None:
    load = node_load(the_node, [], profile_named(profile))
    expected = FITS if reason is None else FitVerdict((reason,), unresolvable=True)
    assert verdict(waiting_load(the_pod), load, profile_named(profile)) == expected


def with_port(name: str = "p", *, sidecar: bool = False, **port: Any) -> Pod:
    container = {"name": "c", "ports": [{"containerPort": 80, **port}]}
    if sidecar:
        return pod(name, initContainers=[{**container, "restartPolicy": "Always"}], containers=[{"name": "x"}])
    return pod(name, containers=[container])


@pytest.mark.parametrize(
    ("taken", "wanted", "collides"),
    [
        pytest.param(with_port("r", hostPort=80), with_port(hostPort=80), True, id="same port"),
        pytest.param(with_port("r", hostPort=80), with_port(hostPort=81), False, id="another port"),
        pytest.param(with_port("r", hostPort=80, protocol="UDP"), with_port(hostPort=80), False, id="another protocol"),
        pytest.param(with_port("r", hostPort=80), with_port(), False, id="no host port"),
        pytest.param(
            with_port("r", hostPort=80, hostIP="10.0.0.1"),
            with_port(hostPort=80, hostIP="10.0.0.2"),
            False,
            id="other address",
        ),
        pytest.param(
            with_port("r", hostPort=80, hostIP="10.0.0.1"), with_port(hostPort=80), True, id="all addresses wanted"
        ),
        pytest.param(
            with_port("r", hostPort=80), with_port(hostPort=80, hostIP="10.0.0.1"), True, id="all addresses taken"
        ),
        pytest.param(with_port("r", hostPort=80, sidecar=True), with_port(hostPort=80), True, id="a sidecar's port"),
    ],
)
def test_a2_host_ports(taken: Pod, wanted: Pod, collides: bool) -> None:
    load = node_load(node(), [taken], profile_named("1.36"))
    text = "node(s) didn't have free ports for the requested pod ports"
    assert verdict(waiting_load(wanted), load, profile_named("1.36")) == (FitVerdict((text,)) if collides else FITS)


def test_on_the_hosts_network_every_port_is_a_host_port() -> None:
    assert host_ports(pod(hostNetwork=True, containers=[{"name": "c", "ports": [{"containerPort": 9}]}])) == (
        ("0.0.0.0", "TCP", 9),
    )


@pytest.mark.parametrize(
    ("priority", "fits"),
    [
        pytest.param(5, False, id="equal priority counts"),
        pytest.param(6, True, id="lower priority does not"),
    ],
)
def test_a2_nominated_pods_of_no_lower_priority_count(priority: int, fits: bool) -> None:
    nominee = waiting_load(pod("nominee", {"cpu": "5"}, priority=5))
    new = waiting_load(pod("new", {"cpu": "4"}, priority=priority))
    load = with_nominated(node_load(node(), [], profile_named("1.36")), [nominee], new)
    assert verdict(new, load, profile_named("1.36")).fits is fits
    assert with_nominated(load, [new], new) is load, "its own nomination does not stand in its way"


# --- E-16 ---


def test_e16_kubelet_rejection() -> None:
    load = node_load(node(allocatable={"cpu": "4", "pods": "10"}), [pod("r", {"cpu": "3800m"})], profile_named("1.36"))
    asked = amounts({"cpu": QUANTITIES["500m"], "example.com/gpu": QUANTITIES["1"], "hugepages-2Mi": QUANTITIES["2Mi"]})
    first, *others = kubelet_shortfalls(asked, load)
    assert first == Shortfall("cpu", 500, 3800, 4000)
    assert first.rejection == "OutOfcpu"
    assert (
        first.rejection_message == "Node didn't have enough resource: cpu, requested: 500, used: 3800, capacity: 4000"
    )
    assert [each.rejection for each in others] == ["OutOfhugepages-2Mi"], "an unknown extended resource is not checked"
    assert Shortfall("pods", 1, 10, 10).rejection == "OutOfpods"


# --- sums ---

CPUS = st.integers(0, 5000).map(lambda milli: f"{milli}m")
PODS = st.lists(st.tuples(CPUS, st.integers(0, 10**9).map(str)), max_size=6)


@given(PODS, st.data())
def test_sums_are_the_same_however_pods_came_and_went(listed: list[tuple[str, str]], data: st.DataObject) -> None:
    pods = [pod(f"p{index}", {"cpu": cpu, "memory": memory}) for index, (cpu, memory) in enumerate(listed)]
    loads = [resident_load(each, profile_named("1.36")) for each in pods]
    gone = data.draw(st.sets(st.sampled_from(loads).map(lambda load: load.key))) if loads else set()
    moved = node_load(node(), [], profile_named("1.36")).with_pods(loads).with_pods(loads[:2]).without_pods(gone)
    fresh = node_load(
        node(), [each for each, load in zip(pods, loads, strict=True) if load.key not in gone], profile_named("1.36")
    )
    assert moved.residents == fresh.residents
    assert {name: amount for name, amount in moved.requested.items() if amount} == fresh.requested
    assert (moved.scored_cpu_milli, moved.scored_memory_bytes) == (fresh.scored_cpu_milli, fresh.scored_memory_bytes)


@given(st.integers(0, 8000), st.integers(0, 9000))
def test_fit_is_a_comparison_of_sums(used_milli: int, asked_milli: int) -> None:
    load = node_load(node(), [pod("r", {"cpu": f"{used_milli}m"})], profile_named("1.36"))
    fits = not shortfalls(amounts({"cpu": QUANTITIES[f"{asked_milli}m"]}), load)
    assert fits is (asked_milli == 0 or used_milli + asked_milli <= 8000)
