"""Values as control files (spec 02 §4.3, §4.6, §5, §7)."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.rules.resources.cpu import weight_linear, weight_quadratic
from plimsoll.rules.resources.files import controller_of, cpu_max, file_map, files, hugetlb_files
from plimsoll.rules.resources.values import Values
from tests.examples import examples

MI, GI = 1 << 20, 1 << 30

# 02 §4.6: one meaning per row
ROWS = [
    ("cpu weight", Values(cpu_shares=1024), {"cpu.shares": 1024}, {"cpu.weight": 39}),
    ("quota and period", Values(cpu_quota_us=50_000, cpu_period_us=100_000), {"cpu.cfs_period_us": 100_000, "cpu.cfs_quota_us": 50_000},
     {"cpu.max": "50000 100000"}),
    ("unlimited quota", Values(cpu_quota_us=-1, cpu_period_us=100_000), {"cpu.cfs_period_us": 100_000, "cpu.cfs_quota_us": -1},
     {"cpu.max": "max 100000"}),
    ("set, but none: 0 is not written on v1", Values(cpu_quota_us=0, cpu_period_us=100_000), {"cpu.cfs_period_us": 100_000},
     {"cpu.max": "max 100000"}),
    ("period alone", Values(cpu_period_us=50_000), {"cpu.cfs_period_us": 50_000}, {"cpu.max": "max 50000"}),
    ("memory limit", Values(memory_bytes=GI), {"memory.limit_in_bytes": GI}, {"memory.max": GI}),
    ("a memory limit of 0 means leave alone", Values(memory_bytes=0), {}, {}),
    ("memory and swap, 1.27", Values(memory_bytes=GI, memory_and_swap_bytes=GI),
     {"memory.limit_in_bytes": GI, "memory.memsw.limit_in_bytes": GI}, {"memory.max": GI, "memory.swap.max": 0}),
    ("unlimited memory and swap, 1.27", Values(memory_bytes=GI, memory_and_swap_bytes=-1),
     {"memory.limit_in_bytes": GI, "memory.memsw.limit_in_bytes": -1}, {"memory.max": GI, "memory.swap.max": "max"}),
    ("unlimited swap, 1.28", Values(swap_bytes=-1), {}, {"memory.swap.max": "max"}),
    ("a throttle that is reset, 1.37", Values(memory_high_bytes=-1), {}, {"memory.high": "max"}),
    ("swap", Values(swap_bytes=0), {}, {"memory.swap.max": 0}),
    ("protection and throttle", Values(memory_min_bytes=0, memory_low_bytes=1, memory_high_bytes=4096), {},
     {"memory.min": 0, "memory.low": 1, "memory.high": 4096}),
    ("group kill", Values(oom_group=1), {}, {"memory.oom.group": 1}),
    ("pids", Values(pids=1024), {"pids.max": 1024}, {"pids.max": 1024}),
    ("§7 pids 0 is written as 1", Values(pids=0), {"pids.max": 1}, {"pids.max": 1}),
    ("huge pages", Values(hugetlb={2 * MI: 4 * MI, GI: 0}), {"hugetlb.2MB.limit_in_bytes": 4 * MI, "hugetlb.1GB.limit_in_bytes": 0},
     {"hugetlb.2MB.max": 4 * MI, "hugetlb.1GB.max": 0}),
    ("nothing", Values(), {}, {}),
]  # fmt: skip


@pytest.mark.parametrize(("values", "v1", "v2"), [row[1:] for row in ROWS], ids=[f"02 §4.6 {row[0]}" for row in ROWS])
def test_file_map(values: Values, v1: dict[str, object], v2: dict[str, object]) -> None:
    assert file_map(values, 1) == v1
    assert file_map(values, 2) == v2


def test_v1_writes_the_period_first() -> None:
    """02 §4.3."""
    assert list(file_map(Values(2, 1000, 100_000), 1)) == ["cpu.shares", "cpu.cfs_period_us", "cpu.cfs_quota_us"]


def test_the_weight_formula_is_the_callers() -> None:
    """02 §4.2: linear for what the kubelet writes, the runtime's for containers."""
    values = Values(cpu_shares=256)
    assert file_map(values, 2) == {"cpu.weight": 10}
    assert file_map(values, 2, "quadratic") == {"cpu.weight": 35}
    assert file_map(values, 1, "quadratic") == {"cpu.shares": 256}


MAXES = [(None, 100_000, "max 100000"), (0, 50_000, "max 50000"), (-1, 0, "max 100000"), (1000, 0, "1000 100000")]


@pytest.mark.parametrize(("quota", "period", "text"), MAXES, ids=[f"02 §4.3 {row[2]}" for row in MAXES])
def test_cpu_max(quota: int | None, period: int, text: str) -> None:
    assert cpu_max(quota, period) == text


CONTROLLERS = [
    ("cpu.shares", "cpu"),
    ("memory.memsw.limit_in_bytes", "memory"),
    ("hugetlb.2MB.max", "hugetlb"),
    ("pids.max", "pids"),
]


@pytest.mark.parametrize(("name", "controller"), CONTROLLERS, ids=[row[0] for row in CONTROLLERS])
def test_controller(name: str, controller: str) -> None:
    assert controller_of(name) == controller


optional = st.none() | st.integers(0, 1 << 40)


@settings(max_examples=examples(150), deadline=None)
@given(
    st.builds(
        Values, st.none() | st.integers(2, 262144), st.none() | st.integers(-1, 10**7), st.none() | st.integers(1000, 10**6),
        optional, optional, optional, optional, optional, optional, st.sampled_from((None, 1)), optional,
        st.none() | st.dictionaries(st.sampled_from((2 * MI, GI, 65536)), st.integers(0, 1 << 40)),
    )
)  # fmt: skip
def test_every_value_is_in_its_file_and_nothing_else(values: Values) -> None:
    v1, v2 = file_map(values, 1), file_map(values, 2)
    assert v2.get("memory.max") == v1.get("memory.limit_in_bytes") == (values.memory_bytes or None)
    assert v1.get("cpu.shares") == values.cpu_shares
    if values.cpu_shares is not None:
        assert v2["cpu.weight"] == weight_linear(values.cpu_shares)
        assert file_map(values, 2, "quadratic")["cpu.weight"] == weight_quadratic(values.cpu_shares)
    assert ("cpu.max" in v2) == ("cpu.cfs_period_us" in v1) == (values.cpu_period_us is not None)
    for version in (1, 2):
        plain = msgspec.to_builtins(files(values, version))
        assert file_map(values, version) == {**plain, **(hugetlb_files(values, version) or {})}
        assert all(value is not None for value in plain.values())
