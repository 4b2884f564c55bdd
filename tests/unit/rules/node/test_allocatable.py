"""Capacity, reservations, allocatable, and the values of the node and class cgroups (spec 01 §10, 02 §6.2, §8)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.rules.config.thresholds import eviction_reservation, parsed_thresholds
from plimsoll.rules.model.gates import DEFAULT_GATES, Gates
from plimsoll.rules.model.objects import ResourceList
from plimsoll.rules.node.allocatable import (
    ClassSums,
    Reserved,
    absolute_allocatable,
    class_sums,
    class_values,
    kubepods_values,
    machine_capacity,
    node_allocatable,
    node_values,
    qos_reserved_limits,
    reservation_errors,
    reserved_values,
    total_reservation,
)
from plimsoll.rules.quantity import parse
from plimsoll.rules.resources.cpu import shares, weight_linear
from plimsoll.rules.resources.defaulting import defaulted
from plimsoll.rules.resources.node_policy import NodePolicy
from plimsoll.rules.resources.qos import qos_class
from plimsoll.rules.resources.values import Values
from tests.examples import examples
from tests.unit.strategies import Json, lean, valid_pods

MI, GI = 1 << 20, 1 << 30
UNBOUNDED = 1 << 62


def amounts(**texts: str) -> ResourceList:
    return {name.replace("_", "-"): parse(text) for name, text in texts.items()}


def shown(resources: ResourceList) -> dict[str, str]:
    return {name: str(quantity) for name, quantity in resources.items()}


# --- §10.5, the seed's node ---

SEED = machine_capacity(48, 263192560 * 1024, 110)
SYSTEM = amounts(cpu="2", memory="4Gi")


def reserved(hard: dict[str, str], capacity: ResourceList = SEED) -> Reserved:
    return Reserved(SYSTEM, {}, eviction_reservation(parsed_thresholds(hard), capacity))


ALLOCATABLE = [
    ("500Mi", {"memory.available": "500Mi"}, SEED, "258486256Ki"),
    ("default 100Mi", {"memory.available": "100Mi"}, SEED, "258895856Ki"),
    ("5%", {"memory.available": "5%"}, SEED, "251738754872"),
    ("none", {}, SEED, "258998256Ki"),
    ("10 huge pages of 1Gi", {"memory.available": "500Mi"}, {**SEED, "hugepages-1Gi": parse("10Gi")}, "248000496Ki"),
]


@pytest.mark.parametrize(
    ("hard", "capacity", "memory"), [row[1:] for row in ALLOCATABLE], ids=[f"01 §10.5 {row[0]}" for row in ALLOCATABLE]
)
def test_worked_allocatable(hard: dict[str, str], capacity: ResourceList, memory: str) -> None:
    reservation = reserved(hard, capacity)
    allocatable = node_allocatable(capacity, reservation)
    assert (str(allocatable["cpu"]), str(allocatable["memory"]), str(allocatable["pods"])) == ("46", memory, "110")
    absolute = absolute_allocatable(capacity, reservation)
    assert (str(absolute["memory"]), absolute["memory"].value) == ("258998256Ki", 265214214144)
    values = kubepods_values(capacity, reservation, enforce_pods=True)
    assert (values.cpu_shares, values.memory_bytes, values.cpu_quota_us) == (47104, 265214214144, None)
    assert weight_linear(values.cpu_shares) == 1797


CAPACITIES = [
    ("N-1 pods", (4, GI, 110, 0), "110"),
    ("N-1 podsPerCore", (4, GI, 110, 10), "40"),
    ("N-1 podsPerCore is capped", (48, GI, 110, 10), "110"),
]


@pytest.mark.parametrize(("arguments", "pods"), [row[1:] for row in CAPACITIES], ids=[row[0] for row in CAPACITIES])
def test_pods(arguments: tuple[int, int, int, int], pods: str) -> None:
    assert str(machine_capacity(*arguments)["pods"]) == pods


def test_n1_formats() -> None:
    capacity = machine_capacity(48, 263192560 * 1024, 110, others=amounts(hugepages_2Mi="64Mi"))
    assert shown(capacity) == {"cpu": "48", "memory": "263192560Ki", "pods": "110", "hugepages-2Mi": "64Mi"}


def test_n7_sums_and_errors() -> None:
    capacity = amounts(cpu="2", memory="1Gi")
    reservation = Reserved(
        amounts(cpu="1", memory="0", pid="100"), amounts(cpu="500m", ephemeral_storage="1Gi"), amounts(memory="100Mi")
    )
    assert shown(total_reservation(capacity, reservation)) == {"cpu": "1500m", "memory": "100Mi"}, (
        "only names of the node, no zeros"
    )
    assert reservation_errors(capacity, reservation) == []
    reservation = Reserved(amounts(cpu="1", memory="1Gi"), amounts(cpu="2"), amounts(memory="100Mi"))
    assert reservation_errors(capacity, reservation) == [
        'Resource "cpu" has a reservation of 3 but capacity of 2. Expected capacity >= reservation.',
        'Resource "memory" has a reservation of 1124Mi but capacity of 1Gi. Expected capacity >= reservation.',
    ]
    assert reservation_errors(capacity, reservation, says_reservation=False) == [  # up to 1.29
        'Resource "cpu" has an allocatable of 3, capacity of -1',
        'Resource "memory" has an allocatable of 1124Mi, capacity of -100Mi',
    ]
    assert shown(absolute_allocatable(capacity, reservation)) == {"cpu": "0", "memory": "0"}, "N-9: floor 0"


def test_n7_the_first_summand_decides_the_format() -> None:
    capacity = amounts(memory="8Gi")
    assert (
        str(total_reservation(capacity, Reserved(amounts(memory="1048576"), amounts(memory="1Mi")))["memory"])
        == "2097152"
    )
    assert (
        str(total_reservation(capacity, Reserved(amounts(memory="1Mi"), amounts(memory="1048576")))["memory"]) == "2Mi"
    )


KUBEPODS = [
    ("N-12 all keys", {"enforce_pods": True, "pid_capacity": 1000}, Values(1024, memory_bytes=7 * GI, pids=900, hugetlb={2 * MI: 4 * MI})),
    ("N-11 not enforced: capacity", {"enforce_pods": False, "pid_capacity": 1000}, Values(2048, memory_bytes=8 * GI, pids=1000, hugetlb={2 * MI: 4 * MI})),
    ("N-12 no pid capacity, no pids", {"enforce_pods": True}, Values(1024, memory_bytes=7 * GI, hugetlb={2 * MI: 4 * MI})),
]  # fmt: skip


@pytest.mark.parametrize(("options", "expected"), [row[1:] for row in KUBEPODS], ids=[row[0] for row in KUBEPODS])
def test_kubepods(options, expected: Values) -> None:
    capacity = amounts(cpu="2", memory="8Gi", hugepages_2Mi="4Mi")
    reservation = Reserved(amounts(cpu="1", memory="1Gi", pid="100"))
    assert kubepods_values(capacity, reservation, **options) == expected


RESERVED = [
    ("full", amounts(cpu="1", memory="1Gi", pid="100"), False, False, Values(1024, memory_bytes=GI, pids=100)),
    ("only what is listed", amounts(pid="100"), False, True, Values(pids=100)),
    ("compressible", amounts(cpu="1", memory="1Gi", pid="100"), True, True, Values(1024)),
    ("compressible without cpu", amounts(memory="1Gi"), True, True, Values()),
    ("Memory QoS", amounts(memory="1Gi"), False, True, Values(memory_bytes=GI, memory_min_bytes=GI)),
    ("nothing reserved", {}, False, True, Values()),
]


@pytest.mark.parametrize(
    ("resources", "compressible", "memory_qos", "expected"),
    [row[1:] for row in RESERVED],
    ids=[f"01 §10.4 {row[0]}" for row in RESERVED],
)
def test_reserved_cgroups(resources, compressible: bool, memory_qos: bool, expected: Values) -> None:
    assert reserved_values(resources, compressible=compressible, memory_qos=memory_qos) == expected


# --- class cgroups ---


def pod(memory: str | None, cpu: str | None = None, *, limits: bool = False, **fields: object) -> Json:
    amounts_ = {name: text for name, text in (("cpu", cpu), ("memory", memory)) if text}
    return {
        "spec": {"containers": [{"name": "c", "resources": {"limits" if limits else "requests": amounts_}}], **fields}
    }


def sums_of(*documents: Json, gates: Gates = DEFAULT_GATES) -> ClassSums:
    return class_sums([defaulted(lean(each)) for each in documents], gates=gates)


TIERED = (pod("2Gi", "1", limits=True), pod("300Mi"), pod("1Gi"), pod(None))


def test_worked_tiered() -> None:
    """02 §6.2, worked."""
    sums = sums_of(*TIERED)
    assert (sums.guaranteed_memory_bytes, sums.burstable_memory_bytes) == (2147483648, 1388314624)
    values = class_values(sums, NodePolicy(8 * GI, memory_qos=True, reservation="tiered"))
    assert (values.kubepods.memory_min_bytes, values.kubepods.memory_low_bytes) == (3535798272, None)
    assert (values.burstable.memory_min_bytes, values.burstable.memory_low_bytes) == (None, 1388314624)
    assert (values.besteffort.memory_min_bytes, values.besteffort.memory_low_bytes) == (None, None)


PROTECTION = [
    ("gate off", False, "none", (None, None), (None, None)),
    ("None: explicitly reset", True, "none", (0, None), (None, 0)),
    ("as in documents", True, "requests", (3535798272, None), (1388314624, None)),
]


@pytest.mark.parametrize(
    ("gate", "reservation", "node", "burstable"),
    [row[1:] for row in PROTECTION],
    ids=[f"02 §6.2 {row[0]}" for row in PROTECTION],
)
def test_protection(gate: bool, reservation, node, burstable) -> None:
    values = class_values(sums_of(*TIERED), NodePolicy(8 * GI, memory_qos=gate, reservation=reservation))
    assert (values.kubepods.memory_min_bytes, values.kubepods.memory_low_bytes) == node
    assert (values.burstable.memory_min_bytes, values.burstable.memory_low_bytes) == burstable


def test_no_protection() -> None:
    """02 §6.2: 1.22–1.35 write the sums only if > 0; Tiered writes zeros."""
    none = class_values(ClassSums(), NodePolicy(8 * GI, memory_qos=True, reservation="requests"))
    assert (none.kubepods.memory_min_bytes, none.burstable.memory_min_bytes) == (None, None)
    tiered = class_values(ClassSums(), NodePolicy(8 * GI, memory_qos=True, reservation="tiered"))
    assert (tiered.kubepods.memory_min_bytes, tiered.burstable.memory_low_bytes) == (0, 0)


def test_worked_shares() -> None:
    """02 §8: 250m + 100m + 1500m = 1850m → 1894 shares → weight 73; converted once, after summing."""
    sums = sums_of(pod(None, "250m"), pod(None, "100m"), pod(None, "1500m"), pod("1Gi", "4", limits=True), pod(None))
    assert sums.burstable_cpu_milli == 1850
    values = class_values(sums, NodePolicy(8 * GI))
    assert (values.burstable.cpu_shares, weight_linear(1894)) == (1894, 73)
    assert (values.besteffort.cpu_shares, values.kubepods.cpu_shares) == (2, None)
    assert class_values(ClassSums(), NodePolicy(8 * GI)).burstable.cpu_shares == 2


def test_hugetlb_is_unbounded_above_pods() -> None:
    values = class_values(ClassSums(), NodePolicy(8 * GI, hugepage_sizes=(2 * MI, GI)))
    for each in (values.kubepods, values.burstable, values.besteffort):
        assert each.hugetlb == {2 * MI: UNBOUNDED, GI: UNBOUNDED}
    assert class_values(ClassSums(), NodePolicy(8 * GI)).kubepods.hugetlb is None


RESERVE = [
    ("50%", 50, (90 * GI, 85 * GI)),
    ("100%", 100, (80 * GI, 70 * GI)),
    ("0%", 0, (100 * GI, 100 * GI)),
    ("off", None, (None, None)),
]


@pytest.mark.parametrize(
    ("percent", "limits"), [row[1:] for row in RESERVE], ids=[f"02 §8 worked {row[0]}" for row in RESERVE]
)
def test_qos_reserved(percent: int | None, limits: tuple[int | None, int | None]) -> None:
    sums = ClassSums(0, 20 * GI, 10 * GI)
    assert qos_reserved_limits(sums, NodePolicy(128 * GI, 100 * GI), percent) == limits
    values = class_values(sums, NodePolicy(128 * GI, 100 * GI), percent)
    assert (values.burstable.memory_bytes, values.besteffort.memory_bytes) == limits
    for unknown in (None, 0):
        assert qos_reserved_limits(sums, NodePolicy(128 * GI, unknown), percent) == (None, None)


def test_the_gate_off_counts_memory_but_not_cpu() -> None:
    """02 §6.2 [quirk]: the memory sums honour pod-level values even with gate PodLevelResources off."""
    document = pod("1Gi", "1", resources={"requests": {"cpu": "3", "memory": "3Gi"}})
    assert sums_of(document, gates=Gates(pod_level=False)) == ClassSums(1000, 0, 3 * GI)
    assert sums_of(document) == ClassSums(3000, 0, 3 * GI)


def test_a_stored_class_decides_where_a_pod_counts() -> None:
    stored = {**pod("1Gi", "1"), "status": {"qosClass": "Guaranteed"}}
    assert sums_of(stored) == ClassSums(0, GI, 0)


# --- properties ---


@settings(max_examples=examples(80), deadline=None)
@given(st.lists(valid_pods(), max_size=4))
def test_sums_are_sums(documents: list[Json]) -> None:
    """The node's sums are those of its pods taken one by one, in any order."""
    pods = [defaulted(lean(each)) for each in documents]
    total, single = class_sums(pods), [class_sums([each]) for each in pods]
    for field in ClassSums.__struct_fields__:
        assert getattr(total, field) == sum(getattr(each, field) for each in single)
    assert class_sums(pods[::-1]) == total
    for each, own in zip(pods, single, strict=True):
        if qos_class(each) == "BestEffort":
            assert own == ClassSums()


capacity_bytes = st.integers(1 << 20, 1 << 42)


@settings(max_examples=examples(150), deadline=None)
@given(st.integers(1, 300), capacity_bytes, st.lists(st.integers(0, 1 << 43), min_size=3, max_size=3))
def test_allocatable_is_capacity_less_everything(cores: int, memory: int, parts: list[int]) -> None:
    capacity = machine_capacity(cores, memory, 110)
    system, kube, eviction = ({"memory": parse(str(part)), "cpu": parse(f"{part % 9000}m")} for part in parts)
    reservation = Reserved(system, kube, {"memory": eviction["memory"]})
    allocatable, absolute = node_allocatable(capacity, reservation), absolute_allocatable(capacity, reservation)
    assert allocatable["memory"].value == max(0, memory - sum(parts))
    assert absolute["memory"].value == max(0, memory - parts[0] - parts[1])
    assert allocatable["memory"] <= absolute["memory"] <= capacity["memory"]
    assert absolute["cpu"].milli == allocatable["cpu"].milli == max(0, 1000 * cores - parts[0] % 9000 - parts[1] % 9000)
    fits = sum(parts) <= memory and parts[0] % 9000 + parts[1] % 9000 <= 1000 * cores
    assert (reservation_errors(capacity, reservation) == []) is fits
    assert node_values(absolute).cpu_shares == shares(absolute["cpu"].milli)


@settings(max_examples=examples(100), deadline=None)
@given(
    st.integers(0, 1 << 40), st.integers(0, 1 << 40), st.integers(0, 1 << 42), st.integers(0, 100), st.integers(0, 100)
)
def test_a_higher_reserve_leaves_less(guaranteed: int, burstable: int, absolute: int, one: int, other: int) -> None:
    low, high = sorted((one, other))
    sums, policy = ClassSums(0, guaranteed, burstable), NodePolicy(1 << 42, absolute)
    if absolute:
        less, more = qos_reserved_limits(sums, policy, high), qos_reserved_limits(sums, policy, low)
        assert less[0] <= more[0]
        assert less[1] <= more[1]
        assert less[1] <= less[0] <= absolute
