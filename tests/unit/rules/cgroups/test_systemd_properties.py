from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.errors import InvalidNameError
from plimsoll.rules.cgroups.systemd import INFINITY, Property, files_beside, mask, properties
from plimsoll.rules.cpuset import cpu_text
from plimsoll.rules.model.kernel import CgroupVersion
from plimsoll.rules.resources.cpu import systemd_quota_us


def t(name: str, value: int) -> Property:
    return Property(name, "t", value)


def quota(per_second_us: int, period_us: int) -> tuple[Property, ...]:
    return t("CPUQuotaPerSecUSec", per_second_us), t("CPUQuotaPeriodUSec", period_us)


@pytest.mark.parametrize(
    ("version", "file", "value", "beside", "expected"),
    [
        pytest.param(2, "cpu.weight", "39", {}, (t("CPUWeight", 39),), id="weight"),
        pytest.param(1, "cpu.shares", "1024", {}, (t("CPUShares", 1024),), id="shares"),
        pytest.param(2, "cpu.max", "50000 100000", {}, quota(500_000, 100_000), id="quota"),
        pytest.param(2, "cpu.max", "25500 100000", {}, quota(260_000, 100_000), id="255m-rounded-up-to-a-percent"),
        pytest.param(2, "cpu.max", "max 100000", {}, quota(INFINITY, 100_000), id="no-quota"),
        pytest.param(2, "cpu.max", "10000", {"cpu.max": "max 50000"}, quota(200_000, 50_000), id="period-that-is-there"),
        pytest.param(2, "cpu.max", "max", {}, quota(INFINITY, 100_000), id="default-period"),
        pytest.param(1, "cpu.cfs_quota_us", "25500", {"cpu.cfs_period_us": "100000"}, quota(260_000, 100_000), id="quota-v1"),
        pytest.param(1, "cpu.cfs_quota_us", "-1", {"cpu.cfs_period_us": "50000"}, quota(INFINITY, 50_000), id="no-quota-v1"),
        pytest.param(1, "cpu.cfs_period_us", "50000", {"cpu.cfs_quota_us": "25000"}, quota(500_000, 50_000), id="period-v1"),
        pytest.param(1, "cpu.cfs_period_us", "50000", {}, quota(INFINITY, 50_000), id="period-v1-without-quota"),
        pytest.param(2, "io.weight", "500", {}, (t("IOWeight", 500),), id="io-weight"),
        pytest.param(2, "memory.min", "4096", {}, (t("MemoryMin", 4096),), id="min"),
        pytest.param(2, "memory.low", "4096", {}, (t("MemoryLow", 4096),), id="low"),
        pytest.param(2, "memory.high", "4096", {}, (t("MemoryHigh", 4096),), id="high"),
        pytest.param(2, "memory.max", "max", {}, (t("MemoryMax", INFINITY),), id="unlimited"),
        pytest.param(2, "memory.swap.max", "0", {}, (t("MemorySwapMax", 0),), id="swap"),
        pytest.param(1, "memory.limit_in_bytes", "4096", {}, (t("MemoryLimit", 4096),), id="limit-v1"),
        pytest.param(1, "memory.limit_in_bytes", "-1", {}, (t("MemoryLimit", INFINITY),), id="unlimited-v1"),
        pytest.param(2, "pids.max", "100", {}, (t("TasksMax", 100),), id="pids"),
        pytest.param(1, "pids.max", "max", {}, (t("TasksMax", INFINITY),), id="pids-unlimited"),
        pytest.param(2, "pids.max", "-1", {}, (t("TasksMax", INFINITY),), id="pids-negative"),
        pytest.param(2, "pids.max", "0", {}, (t("TasksMax", 1),), id="pids-0-is-1"),
        pytest.param(2, "cpuset.cpus", "0-2,9", {}, (Property("AllowedCPUs", "ay", b"\x07\x02"),), id="cpus"),
        pytest.param(1, "cpuset.mems", "1", {}, (Property("AllowedMemoryNodes", "ay", b"\x02"),), id="mems"),
        pytest.param(2, "cpuset.cpus", "", {}, (Property("AllowedCPUs", "ay", b""),), id="cpus-as-the-parent"),
        pytest.param(2, "memory.oom.group", "1", {}, (), id="oom-group-has-none"),
        pytest.param(2, "hugetlb.2MB.max", "0", {}, (), id="hugetlb-has-none"),
        pytest.param(1, "memory.memsw.limit_in_bytes", "4096", {}, (), id="memsw-has-none"),
        pytest.param(1, "memory.max", "4096", {}, (), id="a-v2-file-on-v1"),
        pytest.param(2, "cpu.shares", "4096", {}, (), id="a-v1-file-on-v2"),
    ],
)  # fmt: skip
def test_files_as_properties(
    version: CgroupVersion, file: str, value: str, beside: dict[str, str], expected: tuple[Property, ...]
) -> None:
    assert properties(file, value, version, beside) == expected
    assert set(beside) <= set(files_beside(file, version))


@pytest.mark.parametrize(
    ("file", "value"),
    [
        ("memory.max", "4Mi"),
        ("memory.max", ""),
        ("memory.max", str(2**64)),
        ("cpu.max", "10000 0"),
        ("cpu.max", "10000 max"),
        ("cpu.max", "a b"),
        ("cpuset.cpus", "2-1"),
        ("cpuset.cpus", "0-99999999"),
    ],
)
def test_a_text_that_is_none_is_refused(file: str, value: str) -> None:
    with pytest.raises(InvalidNameError):
        properties(file, value, 2, {})


@given(st.integers(1000, 10**9), st.integers(1000, 10**6))
def test_a_quota_that_systemd_has_kept_comes_back_from_it_unchanged(quota_us: int, period_us: int) -> None:
    kept = systemd_quota_us(quota_us, period_us)
    quota, period = properties("cpu.max", f"{kept} {period_us}", 2, {})
    assert isinstance(quota.value, int)
    assert period.value == period_us
    assert quota.value % 10_000 == 0
    assert quota.value * period_us // 1_000_000 >= kept


@given(st.sets(st.integers(0, 300)))
def test_a_mask_has_exactly_the_bits_of_the_list(numbers: set[int]) -> None:
    bits = int.from_bytes(mask("cpuset.cpus", cpu_text(numbers)), "little")
    assert {number for number in range(301) if bits >> number & 1} == numbers


def test_limits_of_devices() -> None:
    """systemd adds to a list that it has, so each list is emptied first."""
    paths = {"254:0": "/dev/vda", "254:16": "/dev/vdb"}
    found = properties(
        "io.max", "254:0 wbps=5 riops=7\n254:16 wbps=6\n9:9 wbps=1", 2, {}, lambda number: paths.get(number, "")
    )
    assert [(each.name, each.value) for each in found] == [
        ("IOReadBandwidthMax", []),
        ("IOWriteBandwidthMax", []),
        ("IOWriteBandwidthMax", [["/dev/vda", 5], ["/dev/vdb", 6]]),
        ("IOReadIOPSMax", []),
        ("IOReadIOPSMax", [["/dev/vda", 7]]),
        ("IOWriteIOPSMax", []),
    ]
    assert properties("io.latency", "", 2, {}) == (Property("IODeviceLatencyTargetUSec", "a(st)", []),)
