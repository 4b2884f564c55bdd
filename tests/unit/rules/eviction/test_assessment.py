"""The eviction loop's decisions (spec 04 §1, §3, §4, §7, §8) and the worked timelines of §13a."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.codec.lean.lean import from_document
from plimsoll.rules.config.thresholds import SIGNALS, Threshold, ThresholdValue, parsed_thresholds
from plimsoll.rules.eviction.assessment import (
    NO_PRESSURE,
    NODE_CONDITIONS,
    RESOURCE_OF,
    Observation,
    Pressure,
    assess,
    eviction_grace_s,
    is_waited_for,
    kill_timeout_s,
    limit_grace_s,
    memory_observation,
    met_thresholds,
    node_conditions,
    node_reclaim,
    notifier_usage_bytes,
    pressure_refusal,
    reclaimed,
)
from plimsoll.rules.model.objects import Pod
from plimsoll.rules.profile import profile_named
from plimsoll.rules.quantity import QUANTITIES, from_units

MI, GI = 2**20, 2**30
MEM = "memory.available"


def pod(**spec: Any) -> Pod:
    annotations = spec.pop("annotations", None)
    return from_document({"metadata": {"name": "p", "uid": "u", "annotations": annotations}, "spec": spec}, Pod)


def seen(available: str, capacity: str = "8Gi", time_s: float | None = None) -> Observation:
    return Observation(QUANTITIES[available], QUANTITIES[capacity], time_s)


def threshold(value: str, signal: str = MEM, grace_s: float = 0.0, reclaim: str | None = None) -> Threshold:
    return Threshold(
        signal,
        ThresholdValue(QUANTITIES[value]),
        grace_s,
        None if reclaim is None else ThresholdValue(QUANTITIES[reclaim]),
    )


# --- §3.4, §3.5 ---


@pytest.mark.parametrize(
    ("value", "available", "met"),
    [
        pytest.param("100Mi", "99Mi", True, id="less is met"),
        pytest.param("100Mi", "100Mi", False, id="equal is not"),
        pytest.param("100Mi", "101Mi", False, id="more is not"),
        pytest.param("100m", "0", True, id="compared exactly, a tenth is not rounded"),
        pytest.param("1", "1000m", False, id="by value"),
    ],
)
def test_met_is_strictly_less(value: str, available: str, met: bool) -> None:
    assert bool(met_thresholds([threshold(value)], {MEM: seen(available)})) is met


def test_a_share_is_of_the_observed_capacity() -> None:
    found = parsed_thresholds({"nodefs.available": "10%"})
    assert met_thresholds(found, {"nodefs.available": seen("10737418399", "100Gi")}) == found
    assert met_thresholds(found, {"nodefs.available": seen("10737418400", "100Gi")}) == ()


def test_without_an_observation_nothing_is_met() -> None:
    assert met_thresholds([threshold("8Gi")], {"nodefs.available": seen("0")}) == ()


def test_minimum_reclaim_is_added_only_on_request() -> None:
    found = [threshold("1Gi", reclaim="500Mi")]
    observations = {MEM: seen("1200Mi")}
    assert met_thresholds(found, observations) == ()
    assert met_thresholds(found, observations, with_min_reclaim=True) == tuple(found)
    assert not reclaimed(found, observations)
    assert reclaimed(found, {MEM: seen("1524Mi")})


def test_a_share_to_reclaim() -> None:
    found = parsed_thresholds({MEM: "25%"}, minimum_reclaim={MEM: "25%"})
    assert met_thresholds(found, {MEM: seen("4095Mi")}, with_min_reclaim=True) == found
    assert met_thresholds(found, {MEM: seen("4096Mi")}, with_min_reclaim=True) == ()


@given(
    st.lists(st.tuples(st.sampled_from(sorted(SIGNALS)), st.integers(1, 1000), st.integers(0, 50)), max_size=8),
    st.dictionaries(st.sampled_from(sorted(SIGNALS)), st.integers(0, 1000)),
)
def test_minimum_reclaim_only_adds(rows: list[tuple[str, int, int]], available: dict[str, int]) -> None:
    thresholds = [
        Threshold(name, ThresholdValue(from_units(v)), 0.0, ThresholdValue(from_units(r))) for name, v, r in rows
    ]
    observations = {name: Observation(from_units(n), from_units(1000)) for name, n in available.items()}
    plain = met_thresholds(thresholds, observations)
    strict = met_thresholds(thresholds, observations, with_min_reclaim=True)
    assert set(plain) <= set(strict)
    for each in plain:
        assert each.value.of(from_units(1000)) > observations[each.signal].available


# --- §1 table ---


@pytest.mark.parametrize(
    ("signal", "condition", "resource"),
    [
        ("memory.available", "MemoryPressure", "memory"),
        ("allocatableMemory.available", "MemoryPressure", "memory"),
        ("nodefs.available", "DiskPressure", "ephemeral-storage"),
        ("nodefs.inodesFree", "DiskPressure", "inodes"),
        ("imagefs.available", "DiskPressure", "ephemeral-storage"),
        ("imagefs.inodesFree", "DiskPressure", "inodes"),
        ("containerfs.available", "DiskPressure", "ephemeral-storage"),
        ("containerfs.inodesFree", "DiskPressure", "inodes"),
        ("pid.available", "PIDPressure", "pids"),
    ],
)
def test_what_a_signal_raises(signal: str, condition: str, resource: str) -> None:
    assert node_conditions([threshold("1", signal)]) == (condition,)
    assert RESOURCE_OF[signal] == resource


def test_each_condition_once_in_the_order_of_the_status() -> None:
    signals = ["pid.available", "imagefs.available", "nodefs.available", "memory.available"]
    assert node_conditions([threshold("1", signal) for signal in signals]) == NODE_CONDITIONS


def test_memory_observation() -> None:
    found = memory_observation(8 * GI, 3 * GI, 7.0)
    assert found == Observation(from_units(5 * GI), from_units(8 * GI), 7.0)
    assert str(found.available if found else None) == "5Gi"
    assert memory_observation(2**62 + 1, GI) is None
    assert memory_observation(2**62, GI) is not None
    beyond = memory_observation(GI, 2 * GI)
    assert beyond is not None and met_thresholds([threshold("1")], {MEM: beyond})


def test_huge_pages_are_in_neither_figure() -> None:
    """The capacity is available + working set: 8Gi, 2Gi of them huge pages, 1Gi used: 5Gi of 6Gi."""
    found = memory_observation(8 * GI, GI, 7.0, 2 * GI)
    assert found == Observation(from_units(5 * GI), from_units(6 * GI), 7.0)
    share = parsed_thresholds({MEM: "85%"})  # 85% of 6Gi is 5.1Gi, of 8Gi it were 6.8Gi
    assert met_thresholds(share, {MEM: found}) == share
    assert not met_thresholds(parsed_thresholds({MEM: "80%"}), {MEM: found})
    full = memory_observation(8 * GI, 7 * GI, 7.0, 2 * GI)
    assert full == Observation(from_units(0), from_units(7 * GI), 7.0)


# --- §13a ---


def test_the_hard_timeline() -> None:
    thresholds = parsed_thresholds({MEM: "100Mi"})
    first = assess(thresholds, {MEM: seen("80Mi", time_s=0)}, NO_PRESSURE, 0.0)
    assert first.pressure.conditions == ("MemoryPressure",)
    assert first.urgent == thresholds
    second = assess(thresholds, {MEM: seen("600Mi", time_s=5)}, first.pressure, 5.0)
    assert second.urgent == ()
    assert second.pressure.conditions == ("MemoryPressure",)
    last = assess(thresholds, {MEM: seen("600Mi", time_s=299)}, second.pressure, 299.9)
    assert last.pressure.conditions == ("MemoryPressure",)
    assert assess(thresholds, {MEM: seen("600Mi", time_s=300)}, last.pressure, 300.0).pressure.conditions == ()


def test_the_soft_timeline() -> None:
    thresholds = parsed_thresholds({}, {MEM: "1Gi"}, {MEM: "90s"}, {MEM: "500Mi"})
    state = NO_PRESSURE
    acted: dict[float, bool] = {}
    reported: dict[float, bool] = {}
    timeline = [
        (0.0, "900Mi"),
        (40.0, "1127Mi"),  # 1.1Gi: the timer is reset, the condition stays
        (60.0, "900Mi"),
        (149.0, "900Mi"),
        (150.0, "900Mi"),
        (151.0, "1100Mi"),  # above the threshold, below threshold + minimum reclaim
        (152.0, "1523Mi"),
        (153.0, "1524Mi"),  # 1Gi + 500Mi
        (154.0, "1100Mi"),  # no longer active, so minimum reclaim does not count
    ]
    for now, available in timeline:
        found = assess(thresholds, {MEM: seen(available, time_s=now)}, state, now)
        state, acted[now], reported[now] = found.pressure, bool(found.urgent), bool(found.pressure.conditions)
    assert [now for now, yes in acted.items() if yes] == [150.0, 151.0, 152.0]
    assert all(reported.values())


def test_the_allocatable_example() -> None:
    capacity, reserved = 8192 * MI, 1000 * MI
    pods_limit = capacity - reserved
    assert pods_limit == 7192 * MI
    thresholds = parsed_thresholds({MEM: "100Mi"}, enforce_node_allocatable=["pods"])
    for working_set, expected in ((7092 * MI, 0), (7092 * MI + 1, 1)):
        pods = memory_observation(pods_limit, working_set)
        assert pods is not None
        observations = {MEM: seen("4Gi"), "allocatableMemory.available": pods}
        found = assess(thresholds, observations, NO_PRESSURE, 0.0)
        assert [each.signal for each in found.urgent] == ["allocatableMemory.available"] * expected


# --- §3, the other steps ---


def test_the_same_figures_evict_only_one_pod() -> None:
    thresholds = [threshold("1Gi")]
    first = assess(thresholds, {MEM: seen("1Mi", time_s=10)}, NO_PRESSURE, 11.0)
    stale = assess(thresholds, {MEM: seen("1Mi", time_s=10)}, first.pressure, 12.0)
    fresh = assess(thresholds, {MEM: seen("1Mi", time_s=11)}, stale.pressure, 13.0)
    timeless = assess(thresholds, {MEM: seen("1Mi")}, fresh.pressure, 14.0)
    assert [bool(each.urgent) for each in (first, stale, fresh, timeless)] == [True, False, True, True]
    assert stale.pressure.conditions == ("MemoryPressure",)


def test_memory_goes_first_and_the_rest_keeps_its_order() -> None:
    signals = ["pid.available", "nodefs.available", "allocatableMemory.available", "imagefs.available", MEM]
    thresholds = [threshold("2", signal) for signal in signals]
    found = assess(thresholds, dict.fromkeys(signals, seen("1")), NO_PRESSURE, 0.0)
    assert [each.signal for each in found.urgent] == [
        "allocatableMemory.available",
        MEM,
        "pid.available",
        "nodefs.available",
        "imagefs.available",
    ]


def test_a_condition_comes_at_once_and_action_after_the_grace_period() -> None:
    found = assess([threshold("1Gi", grace_s=90.0)], {MEM: seen("1Mi")}, NO_PRESSURE, 5.0)
    assert (found.pressure.conditions, found.urgent, found.pressure.active) == (("MemoryPressure",), (), ())


def test_the_transition_period_may_be_zero() -> None:
    found = assess([threshold("1Gi")], {MEM: seen("1Mi")}, NO_PRESSURE, 5.0, transition_period_s=0.0)
    assert found.pressure.conditions == ()
    assert found.urgent


def test_conditions_age_one_by_one() -> None:
    state = assess([threshold("1", MEM), threshold("1", "pid.available")], {MEM: seen("0")}, NO_PRESSURE, 0.0).pressure
    state = assess([threshold("1", "pid.available")], {"pid.available": seen("0")}, state, 200.0).pressure
    assert state.conditions == ("MemoryPressure", "PIDPressure")
    state = assess([], {}, state, 400.0).pressure
    assert state.conditions == ("PIDPressure",)


@given(st.lists(st.booleans(), min_size=1, max_size=40), st.integers(0, 12))
def test_action_means_a_whole_grace_period_of_shortage(short: list[bool], grace: int) -> None:
    thresholds = [threshold("10", grace_s=float(grace))]
    state: Pressure = NO_PRESSURE
    run = 0
    for now, is_short in enumerate(short):
        found = assess(thresholds, {MEM: seen("9" if is_short else "11")}, state, float(now))
        state = found.pressure
        run = run + 1 if is_short else 0
        assert bool(found.urgent) is (run > grace)
        assert bool(state.conditions) is (True in short[max(0, now - 299) : now + 1])


# --- §4, §7, §2.5 ---


@pytest.mark.parametrize(
    ("layout", "nodefs", "imagefs", "containerfs"),
    [("single", "ci", "ci", "ci"), ("dedicated", "", "ci", "ci"), ("split", "c", "i", "c")],
)
def test_reclaim_before_eviction(layout: Any, nodefs: str, imagefs: str, containerfs: str) -> None:
    letters = {"c": "delete dead containers", "i": "delete unused images"}
    for fs, expected in (("nodefs", nodefs), ("imagefs", imagefs), ("containerfs", containerfs)):
        for kind in ("available", "inodesFree"):
            assert node_reclaim(f"{fs}.{kind}", layout) == tuple(letters[each] for each in expected)
    assert node_reclaim(MEM, layout) == node_reclaim("pid.available", layout) == ()


@pytest.mark.parametrize(
    ("grace_s", "maximum", "own", "expected"),
    [
        pytest.param(0.0, 30, 60, 1, id="hard: one second"),
        pytest.param(90.0, 30, 60, 30, id="soft: the maximum"),
        pytest.param(90.0, 30, 5, 5, id="soft: the pod's own is shorter"),
        pytest.param(90.0, 0, 60, 1, id="never below one second"),
        pytest.param(90.0, 30, None, 30, id="a pod that says nothing"),
    ],
)
def test_how_long_a_victim_gets(grace_s: float, maximum: int, own: int | None, expected: int) -> None:
    victim = pod(containers=[], terminationGracePeriodSeconds=own)
    assert eviction_grace_s(threshold("1Gi", grace_s=grace_s), victim, maximum) == expected


@pytest.mark.parametrize(
    ("release", "hard", "soft", "soft_zero", "limit"),
    [("1.27", 60, 90, 60, 60), ("1.30", 60, 90, 60, 60), ("1.31", 1, 90, 1, 1), ("1.32", 1, 60, 1, 1), ("documents", 1, 60, 1, 1)],
)  # fmt: skip
def test_how_long_a_victim_gets_by_release(release: str, hard: int, soft: int, soft_zero: int, limit: int) -> None:
    """The pod's own grace period is 60 s, the maximum of a soft eviction 90 s or not set."""
    rule, victim = profile_named(release).eviction_grace, pod(containers=[], terminationGracePeriodSeconds=60)
    late = threshold("1Gi", grace_s=30.0)
    assert eviction_grace_s(threshold("1Gi"), victim, 90, rule=rule) == hard
    assert [eviction_grace_s(late, victim, most, rule=rule) for most in (90, 0)] == [soft, soft_zero]
    assert limit_grace_s(victim, rule) == limit
    assert eviction_grace_s(threshold("1Gi"), victim, 90, 5, rule) == 5  # the extension
    bare = pod(containers=[])
    assert eviction_grace_s(threshold("1Gi"), bare, 90, rule=rule) == limit_grace_s(bare, rule) == 1


def test_how_long_an_eviction_waits() -> None:
    assert [kill_timeout_s(grace) for grace in (1, 6, 7, 30)] == [10.0, 10.0, 10.5, 45.0]


@pytest.mark.parametrize(
    ("after_s", "grace_s", "dead_s", "is_waited"),
    [
        (39.9, 1, None, True),
        (40.0, 1, None, False),
        (104.9, 50, None, True),
        (105.0, 50, None, False),
        (31.9, 1, 2.0, True),
        (32.0, 1, 2.0, False),
        (40.0, 1, 39.0, False),
    ],
    ids=["ten and thirty", "no longer", "soft", "soft, no longer", "dead", "dead, no longer", "dead too late"],
)
def test_how_long_a_pod_that_is_ended_is_waited_for(
    after_s: float, grace_s: int, dead_s: float | None, is_waited: bool
) -> None:
    """§7.2 and §3.15: its time to die, and then half a minute."""
    began_s = 1000.0
    dead_at_s = None if dead_s is None else began_s + dead_s
    assert is_waited_for(began_s + after_s, began_s, grace_s, dead_at_s) == is_waited


def test_where_the_notifier_stands() -> None:
    assert notifier_usage_bytes(threshold("100Mi"), 8 * GI, 50 * MI) == 8 * GI - 50 * MI


# --- §8 ---

BURSTABLE = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}
BEST_EFFORT: dict[str, Any] = {"containers": [{"name": "c"}]}
TOLERANT = {
    **BEST_EFFORT,
    "tolerations": [{"key": "node.kubernetes.io/memory-pressure", "operator": "Exists", "effect": "NoSchedule"}],
}


@pytest.mark.parametrize(
    ("spec", "conditions", "text"),
    [
        pytest.param(BEST_EFFORT, [], None, id="no condition"),
        pytest.param(BURSTABLE, ["MemoryPressure"], None, id="memory: not BestEffort"),
        pytest.param(
            BEST_EFFORT, ["MemoryPressure"], "The node had condition: [MemoryPressure]. ", id="memory: BestEffort"
        ),
        pytest.param(TOLERANT, ["MemoryPressure"], None, id="memory: tolerated"),
        pytest.param(BURSTABLE, ["DiskPressure"], "The node had condition: [DiskPressure]. ", id="disk: all pods"),
        pytest.param(BURSTABLE, ["PIDPressure"], "The node had condition: [PIDPressure]. ", id="pid: all pods"),
        pytest.param(
            TOLERANT,
            ["MemoryPressure", "DiskPressure"],
            "The node had condition: [MemoryPressure DiskPressure]. ",
            id="both: all pods",
        ),
        pytest.param({**BEST_EFFORT, "priority": 2_000_000_000}, ["DiskPressure"], None, id="critical"),
        pytest.param(
            {**BEST_EFFORT, "annotations": {"kubernetes.io/config.source": "file"}}, ["DiskPressure"], None, id="static"
        ),
    ],
)
def test_admission_under_pressure(spec: dict[str, Any], conditions: Any, text: str | None) -> None:
    assert pressure_refusal(pod(**spec), conditions) == text
