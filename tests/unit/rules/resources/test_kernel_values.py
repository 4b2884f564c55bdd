"""What a container's control files say of it, the kernel's rounding hidden (03 §9)."""

from __future__ import annotations

import pytest

from plimsoll.rules.model.kernel import CgroupVersion
from plimsoll.rules.resize.status import kernel_values
from plimsoll.rules.resources.values import Values

ALLOCATED = Values(cpu_shares=1024, cpu_quota_us=100_000, cpu_period_us=100_000, memory_bytes=100_000_001)
V1 = {
    "cpu.shares": "1024",
    "cpu.cfs_quota_us": "100000",
    "cpu.cfs_period_us": "100000",
    "memory.limit_in_bytes": "99999744",
}
V2 = {"cpu.weight": "39", "cpu.max": "100000 100000", "memory.max": "99999744"}


@pytest.mark.parametrize(
    ("version", "files", "said"),
    [
        pytest.param(1, V1, ALLOCATED, id="v1: pages are hidden"),
        pytest.param(2, V2, ALLOCATED, id="v2: pages and weight are hidden"),
        pytest.param(
            1,
            {**V1, "cpu.shares": "2048", "cpu.cfs_quota_us": "-1", "memory.limit_in_bytes": "9223372036854771712"},
            Values(cpu_shares=2048, cpu_quota_us=-1, cpu_period_us=100_000),
            id="v1: something else, and no limits",
        ),
        pytest.param(
            2,
            {"cpu.weight": "79", "cpu.max": "max 100000", "memory.max": "max"},
            Values(cpu_shares=2046, cpu_period_us=100_000),
            id="v2: something else, and no limits",
        ),
        pytest.param(
            2, {**V2, "memory.max": "4096"}, Values(1024, 100_000, 100_000, 4096), id="v2: another limit is reported"
        ),
    ],
)
def test_kernel_values(version: CgroupVersion, files: dict[str, str], said: Values) -> None:
    assert kernel_values(files, ALLOCATED, version) == said
