"""What the kernel makes of a value, and when two texts are the same to it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.rules.cgroups.rounding import kept, memory_unit_bytes, same_value, unlimited_bytes
from plimsoll.rules.cpuset import cpu_numbers, cpu_text

NONE_V1 = "9223372036854771712"

# file, wanted, found, same?
SAME = [
    ("memory.max", "419430400", "419430400", True),
    ("memory.max", "1000000", "999424", True),  # 244 pages
    ("memory.max", "1000000", "1000000", True),
    ("memory.max", "1000000", "995328", False),
    ("memory.max", "4095", "0", True),
    ("memory.max", "max", "max", True),
    ("memory.max", "max", NONE_V1, True),
    ("memory.max", NONE_V1, "max", True),
    ("memory.max", "9223372036854771711", "max", False),
    ("memory.max", "-1", "max", False),  # v2 refuses −1
    ("memory.high", "408944640", "max", False),
    ("memory.min", "4097", "4096", True),
    ("memory.low", "4097", "8192", False),
    ("memory.swap.max", "4097", "4096", True),
    ("memory.oom.group", "1", "0", False),
    ("memory.limit_in_bytes", "-1", NONE_V1, True),
    ("memory.limit_in_bytes", "-1", "419430400", False),
    ("memory.limit_in_bytes", "419430401", "419430400", True),
    ("memory.limit_in_bytes", "9223372036854775807", NONE_V1, True),
    ("memory.memsw.limit_in_bytes", "-1", NONE_V1, True),
    ("memory.soft_limit_in_bytes", "4097", "4096", True),
    ("hugetlb.2MB.max", "4611686018427387904", "4611686018427387904", True),
    ("hugetlb.2MB.max", "3145728", "2097152", True),
    ("hugetlb.2MB.max", "3145728", "4194304", False),
    ("hugetlb.2MB.rsvd.max", "3145728", "2097152", True),
    ("hugetlb.1GB.max", "2147483647", "1073741824", True),
    ("hugetlb.2MB.max", "9223372036852678656", "max", True),
    ("hugetlb.2MB.limit_in_bytes", "-1", "9223372036852678656", True),
    ("hugetlb.2MB.max", "4611686018427387904", "max", False),
    ("cpu.max", "50000 100000", "50000 100000", True),
    ("cpu.max", "50000", "50000 100000", True),
    ("cpu.max", "max", "max 100000", True),
    ("cpu.max", "max 100000", "max 100000", True),
    ("cpu.max", "max 50000", "max 100000", False),
    ("cpu.max", "max", "50000 100000", False),
    ("cpu.max", "50000 100000", "max 100000", False),
    ("cpu.max", "50000 100000", "", False),
    ("cpu.cfs_quota_us", "-1", "-1", True),
    ("cpu.cfs_quota_us", "-5", "-1", True),
    ("cpu.cfs_quota_us", "-1", "50000", False),
    ("cpu.shares", "1", "2", True),
    ("cpu.shares", "262145", "262144", True),
    ("cpu.shares", "1024", "1023", False),
    ("cpu.weight", "039", "39", True),
    ("cpu.weight", "39", "40", False),
    ("pids.max", "max", "max", True),
    ("pids.max", "1000", "max", False),
    ("cpuset.cpus", "0,1,2,3,8", "0-3,8", True),
    ("cpuset.cpus", "0-3", "0-2", False),
    ("cpuset.cpus", "", "", True),
    ("cpuset.cpus", "0", "", False),
    ("cpuset.mems", "1,0", "0-1", True),
    ("io.weight", "100", "default 100", True),
    ("io.weight", "default 100", "default 100\n8:0 50", True),
    ("io.weight", "100", "default 200", False),
    ("freezer.state", "FROZEN", "FREEZING", False),
]


@pytest.mark.parametrize(("file", "wanted", "found", "same"), SAME, ids=[f"{f} {w!r} {r!r}" for f, w, r, _ in SAME])
def test_same_value(file: str, wanted: str, found: str, same: bool) -> None:
    assert same_value(file, wanted, found) is same


def test_larger_pages() -> None:
    assert same_value("memory.max", "100000", "65536", page_size=65536)
    assert not same_value("memory.max", "100000", "131072", page_size=65536)
    assert unlimited_bytes(65536) == 9223372036854710272


@pytest.mark.parametrize(
    ("file", "unit"),
    [
        ("memory.max", 4096),
        ("memory.limit_in_bytes", 4096),
        ("memory.events", 0),
        ("memory.oom.group", 0),
        ("hugetlb.64KB.max", 65536),
        ("hugetlb.1GB.limit_in_bytes", 1 << 30),
        ("hugetlb.2MB.current", 0),
        ("cpu.max", 0),
    ],
)
def test_unit(file: str, unit: int) -> None:
    assert memory_unit_bytes(file) == unit


@given(st.sampled_from(["memory.max", "memory.limit_in_bytes", "hugetlb.2MB.max", "cpu.shares", "pids.max"]), st.data())
def test_what_is_kept_stays(file: str, data: st.DataObject) -> None:
    value = data.draw(st.one_of(st.just("max"), st.integers(-1, 1 << 64).map(str)))
    once = kept(file, value)
    assert kept(file, once) == once
    assert same_value(file, value, once)


@given(st.integers(0, (1 << 63) - 1), st.integers(0, (1 << 63) - 1))
def test_memory_is_the_same_iff_the_pages_are(wanted: int, found: int) -> None:
    assert same_value("memory.max", str(wanted), str(found)) is (wanted // 4096 == found // 4096)


@given(st.sets(st.integers(0, 300)))
def test_cpu_lists_there_and_back(cpus: set[int]) -> None:
    assert cpu_numbers(cpu_text(cpus)) == tuple(sorted(cpus))


@pytest.mark.parametrize(
    ("numbers", "text"),
    [([], ""), ([3], "3"), ([0, 1], "0-1"), ([0, 1, 2, 5, 7, 8], "0-2,5,7-8"), ([2, 0], "0,2")],
)
def test_cpu_text(numbers: list[int], text: str) -> None:
    assert cpu_text(numbers) == text


@pytest.mark.parametrize("text", ["a", "1-", "-1", "2-1", "0-999999", "1,,2", "1\n", " 1", "٣"])
def test_no_cpu_list(text: str) -> None:
    assert cpu_numbers(text) is None
