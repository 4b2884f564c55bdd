"""The node's verdict on a resize, and the queue (spec 03 §6, §7)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.rules.model.gates import Gates
from plimsoll.rules.model.objects import Pod
from plimsoll.rules.node.admission import shortfalls
from plimsoll.rules.profile import PROFILE_DOCUMENTS, profile_named
from plimsoll.rules.quantity import QUANTITIES
from plimsoll.rules.resize.allocation import (
    allocation_of,
    is_allocated,
)
from plimsoll.rules.resize.verdict import (
    PendingResize,
    increases_requests,
    queue_order,
)
from plimsoll.rules.scheduling.fit import allocated_load
from tests.unit.rules.resize.resized_pods import ONE, TWO, container, node, pod, setting, verdict

CRITICAL = 2_000_000_000


# --- the verdict, step by step ---


def test_nothing_changed() -> None:
    found = verdict(ONE, ONE, setting(static_cpus=True))
    assert (found.decision, found.message, found.still_pending) == ("NoChange", "", False)


def test_accepted_as_a_whole() -> None:
    found = verdict(ONE, TWO)
    assert (found.decision, found.message, found.still_pending, found.victims) == ("Accepted", "", False, ())
    assert found.allocation == allocation_of(TWO)


def test_a_refusal_leaves_the_allocation() -> None:
    found = verdict(ONE, pod(container(cpu="9", memory="1Gi")))
    assert found.decision == "Deferred"
    assert found.allocation == allocation_of(ONE)


def test_static_pods_are_never_resized() -> None:
    static = {"annotations": {"kubernetes.io/config.source": "file"}}
    found = verdict(pod(container(cpu="1"), **static), pod(container(cpu="2"), **static))
    assert (found.decision, found.label) == ("Infeasible", "static_pod")


SWAP = "In-place resize of containers with swap is not supported."


@pytest.mark.parametrize(
    ("new", "swapping", "infeasible"),
    [
        pytest.param(container(memory="2Gi", guaranteed=False), True, True, id="another request"),
        pytest.param(container(memory="2Gi", guaranteed=False), False, False, id="no swap"),
        pytest.param(container(memory="1Gi", cpu="1", guaranteed=False), True, False, id="memory unchanged"),
        pytest.param(container(memory="1Gi"), True, False, id="only the limit"),
        pytest.param(
            container(
                memory="2Gi",
                guaranteed=False,
                resizePolicy=[{"resourceName": "memory", "restartPolicy": "RestartContainer"}],
            ),
            True,
            False,
            id="restarts anyway",
        ),
    ],
)
def test_swap(new: dict[str, Any], swapping: bool, infeasible: bool) -> None:
    old = pod(container(memory="1Gi", guaranteed=False))
    found = verdict(old, pod(new), setting(may_swap=lambda _pod, _container: swapping))
    assert (found.decision, found.message) == (("Infeasible", SWAP) if infeasible else ("Accepted", ""))
    assert not found.still_pending


def test_swap_before_or_after() -> None:
    old, new = pod(container(memory="1Gi", guaranteed=False)), pod(container(memory="2Gi", guaranteed=False))
    for swapping in (QUANTITIES["1Gi"], QUANTITIES["2Gi"]):
        found = verdict(old, new, setting(may_swap=lambda _, c, at=swapping: c.resources.requests["memory"] == at))
        assert found.message == SWAP


STATIC_CPUS = 'Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"'
STATIC_MEMORY = 'Resize is infeasible for Guaranteed Pods alongside Memory Manager policy "Static"'


@pytest.mark.parametrize(
    ("new", "around", "message"),
    [
        pytest.param(container(cpu="2", memory="1Gi"), {"static_cpus": True}, STATIC_CPUS, id="cpu"),
        pytest.param(container(cpu="1", memory="2Gi"), {"static_cpus": True}, "", id="cpu policy, memory change"),
        pytest.param(container(cpu="1", memory="2Gi"), {"static_memory": True}, STATIC_MEMORY, id="memory"),
        pytest.param(container(cpu="2", memory="1Gi"), {"static_memory": True}, "", id="memory policy, cpu change"),
        pytest.param(
            container(cpu="2", memory="2Gi"), {"static_cpus": True, "static_memory": True}, STATIC_CPUS, id="cpu first"
        ),
        pytest.param(
            container(cpu="2", memory="1Gi"),
            {"static_cpus": True, "gates": Gates(exclusive_cpus=True)},
            "",
            id="gate for cpus",
        ),
        pytest.param(
            container(cpu="1", memory="2Gi"),
            {"static_memory": True, "gates": Gates(exclusive_memory=True)},
            "",
            id="gate for memory",
        ),
    ],
)
def test_exclusive_resources(new: dict[str, Any], around: dict[str, Any], message: str) -> None:
    found = verdict(ONE, pod(new), setting(**around))
    assert (found.decision, found.message) == (("Infeasible", message) if message else ("Accepted", ""))


def test_the_gate_is_off() -> None:
    found = verdict(ONE, pod(container(cpu="2", memory="1Gi")), setting(enabled=False))
    assert (found.decision, found.label) == ("Infeasible", "feature_gate_off")
    assert verdict(ONE, ONE, setting(enabled=False)).decision == "NoChange"


def test_other_qos_classes_are_not_restricted() -> None:
    old, new = pod(container(cpu="1", guaranteed=False)), pod(container(cpu="2", guaranteed=False))
    assert verdict(old, new, setting(static_cpus=True, static_memory=True)).decision == "Accepted"


def test_a_change_of_pod_level_alone_passes() -> None:
    level = {"cpu": "2", "memory": "2Gi"}
    more = {"cpu": "3", "memory": "3Gi"}
    old = pod(container(cpu="1", memory="1Gi"), resources={"requests": level, "limits": level})
    new = pod(container(cpu="1", memory="1Gi"), resources={"requests": more, "limits": more})
    assert verdict(old, new, setting(static_cpus=True, static_memory=True)).decision == "Accepted"


@pytest.mark.parametrize(("cpu", "decision"), [("3", "Accepted"), ("3000m", "Accepted"), ("1500m", "Infeasible")])
def test_the_documents_allow_whole_cpus(cpu: str, decision: str) -> None:
    found = verdict(ONE, pod(container(cpu=cpu, memory="1Gi")), setting(static_cpus=True, profile=PROFILE_DOCUMENTS))
    assert found.decision == decision
    if decision == "Infeasible":
        assert 'CPU Manager policy "static" allows whole CPUs only, container c asks for 1500m' in found.message


TOO_LARGE = pod(container(cpu="100", memory="100Gi"))


def test_larger_than_the_node_in_documents() -> None:
    found = verdict(ONE, TOO_LARGE, setting(profile=PROFILE_DOCUMENTS))
    assert found.decision == "Infeasible"
    assert found.message == ("Node didn't have enough capacity: memory, requested: 107374182400, capacity: 8589934592")
    assert found.still_pending  # it heals when the node grows
    cpu = verdict(ONE, pod(container(cpu="100", memory="1Gi")), setting(profile=PROFILE_DOCUMENTS))
    assert cpu.message == "Node didn't have enough capacity: cpu, requested: 100000, capacity: 4000"


def test_larger_than_the_node_in_1_36() -> None:
    found = verdict(ONE, TOO_LARGE, setting(profile=profile_named("1.36")))
    assert found.decision == "Deferred"
    assert found.message == "Node didn't have enough resource: cpu, requested: 100000, used: 0, capacity: 4000"


def test_absolute_allocatable_is_the_bound_when_known() -> None:
    five = pod(container(cpu="5", memory="1Gi"))
    absolute = {"cpu": QUANTITIES["5"], "memory": QUANTITIES["8Gi"]}
    found = verdict(ONE, five, setting(profile=PROFILE_DOCUMENTS, absolute_allocatable=absolute))
    assert (found.decision, found.reason) == ("Deferred", "OutOfcpu")


OTHERS = (pod(container(cpu="2", memory="1Gi"), name="o1"), pod(container(cpu="1", memory="4Gi"), name="o2"))


@pytest.mark.parametrize(
    ("new", "around", "message", "reason"),
    [
        pytest.param(container(cpu="1", memory="3Gi"), {}, "", "", id="exactly what is left"),
        pytest.param(
            container(cpu="1001m", memory="1Gi"),
            {},
            "Node didn't have enough resource: cpu, requested: 1001, used: 3000, capacity: 4000",
            "OutOfcpu",
            id="cpu",
        ),
        pytest.param(
            container(cpu="1", memory="3073Mi"),
            {},
            f"Node didn't have enough resource: memory, requested: {3073 * 2**20}, used: {5 * 2**30}, capacity: {2**33}",
            "OutOfmemory",
            id="memory",
        ),
        pytest.param(
            container(cpu="2", memory="4Gi"),
            {},
            "Node didn't have enough resource: cpu, requested: 2000, used: 3000, capacity: 4000",
            "OutOfcpu",
            id="the first failure only",
        ),
        pytest.param(
            container(cpu="2", memory="4Gi"),
            {"node": node(pods="2")},
            "Node didn't have enough resource: pods, requested: 1, used: 2, capacity: 2",
            "OutOfpods",
            id="pods before all",
        ),
        pytest.param(
            container(cpu="1", memory="3Gi"),
            {"refusals": ("node(s) had untolerated taint(s)",)},
            "node(s) had untolerated taint(s)",
            "Deferred",
            id="another check",
        ),
        pytest.param(
            container(cpu="2", memory="1Gi"),
            {"refusals": ("node(s) had untolerated taint(s)",)},
            "Node didn't have enough resource: cpu, requested: 2000, used: 3000, capacity: 4000",
            "OutOfcpu",
            id="resources before other checks",
        ),
        pytest.param(
            container(cpu="1", memory="3Gi"),
            {"conditions": ("DiskPressure",)},
            "The node had condition: [DiskPressure]. ",
            "Evicted",
            id="pressure before all",
        ),
    ],
)
def test_does_it_fit_now(new: dict[str, Any], around: dict[str, Any], message: str, reason: str) -> None:
    found = verdict(ONE, pod(new), setting(others=OTHERS, **around))
    assert found.message == message
    assert found.decision == ("Deferred" if message else "Accepted")
    assert found.reason == reason
    assert found.still_pending is bool(message)


def test_the_pod_itself_is_not_among_the_others() -> None:
    three = pod(container(cpu="3", memory="1Gi"))
    assert verdict(ONE, three, setting(others=(TWO, OTHERS[1]))).decision == "Accepted"


def test_overhead_and_pod_level_count() -> None:
    small = pod(container(cpu="1", memory="1Gi"), overhead={"cpu": "100m"})
    found = verdict(small, pod(container(cpu="4", memory="1Gi"), overhead={"cpu": "100m"}))
    assert found.message == "Node didn't have enough resource: cpu, requested: 4100, used: 0, capacity: 4000"
    assert [
        each.resource for each in shortfalls(pod(resources={"requests": {"cpu": "5"}}), allocated_load(node(), ()))
    ] == ["cpu"]


def test_a_request_of_zero_always_fits() -> None:
    full = (pod(container(cpu="9"), name="o"),)
    assert shortfalls(pod(container(memory="1")), allocated_load(node(), full)) == []


def test_a_critical_pod_preempts_others() -> None:
    old, new = (
        pod(container(cpu="1", memory="1Gi"), priority=CRITICAL),
        pod(container(cpu="2", memory="1Gi"), priority=CRITICAL),
    )
    found = verdict(old, new, setting(others=OTHERS))
    assert found.decision == "Accepted"
    assert [each.metadata.name for each in found.victims] == ["o1"]  # both would do; o1 has the smaller memory request
    stuck = verdict(old, new, setting(others=tuple(pod(container(cpu="3"), name="o", priority=CRITICAL) for _ in (1,))))
    assert stuck.decision == "Deferred"
    assert stuck.message == (
        "Unexpected error while attempting to recover from admission failure: preemption: error finding a set of pods "
        "to preempt: no set of running pods found to reclaim resources: [(res: cpu, q: 1000), ]"
    )
    assert stuck.victims == ()


def test_a_critical_pod_with_other_failures_preempts_no_pod() -> None:
    old, new = pod(container(cpu="1"), priority=CRITICAL), pod(container(cpu="9"), priority=CRITICAL)
    found = verdict(old, new, setting(others=OTHERS, refusals=("no",)))
    assert (found.decision, found.message, found.victims) == ("Deferred", "no", ())


_SIZES = st.integers(0, 6)


@given(_SIZES, _SIZES, _SIZES, st.sampled_from([PROFILE_DOCUMENTS, profile_named("1.36")]))
def test_accepted_means_that_it_fits(old: int, new: int, used: int, profile: Any) -> None:
    before, after = pod(container(cpu=str(old), guaranteed=False)), pod(container(cpu=str(new), guaranteed=False))
    other = pod(container(cpu=str(used), guaranteed=False), name="o")
    found = verdict(before, after, setting(others=(other,), profile=profile))
    if old == new:
        assert found.decision == "NoChange"
    elif new == 0 or new + used <= 4:
        assert found.decision == "Accepted"
    elif new > 4 and profile is PROFILE_DOCUMENTS:
        assert found.decision == "Infeasible"
    else:
        assert found.decision == "Deferred"
    assert is_allocated(after, found.allocation) is (found.decision in ("Accepted", "NoChange"))


# --- §7 ---


def pending(name: str, old: str, new: str, since: float | None = None, **spec: Any) -> PendingResize:
    guaranteed = spec.pop("guaranteed", False)

    def sized(cpu: str) -> Pod:
        return pod(container(cpu=cpu, memory="1Gi", guaranteed=guaranteed), name=name, **spec)

    return PendingResize(sized(new), allocation_of(sized(old)), since)


def test_the_order_of_the_queue() -> None:
    expected = [
        pending("shrinks", "2", "1"),
        pending("important", "1", "2", priority=10),
        pending("guaranteed", "1", "2", guaranteed=True),
        pending("oldest", "1", "2", since=5.0),
        pending("old", "1", "2", since=6.0),
        pending("new", "1", "2"),
    ]
    for rotation in range(len(expected)):
        found = queue_order(expected[rotation:] + expected[:rotation])
        assert [each.desired.metadata.name for each in found] == [each.desired.metadata.name for each in expected]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param(("1", "1Gi"), ("1", "512Mi"), False, id="less"),
        pytest.param(("1", "1Gi"), ("500m", "2Gi"), True, id="less of one, more of the other"),
        pytest.param(("1", "1Gi"), ("1", "1Gi"), False, id="the same"),
    ],
)
def test_what_counts_as_growth(old: tuple[str, str], new: tuple[str, str], expected: bool) -> None:
    assert increases_requests(pod(container("c", *new)), allocation_of(pod(container("c", *old)))) is expected


def test_moving_within_the_pod_is_no_growth() -> None:
    old = pod(container("a", "1"), container("b", "2"))
    new = pod(container("a", "2"), container("b", "1"))
    assert not increases_requests(new, allocation_of(old))
