"""What language runtimes choose, as tables with numbers that can be checked with a calculator."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.errors import InvalidConfigError
from plimsoll.rules.applications.answer import AppLimits, amount, version_of
from plimsoll.rules.applications.table import APPS, answer, app_named

MIB, GIB = 1 << 20, 1 << 30


def limits(memory: int | None = GIB, cpu: int | None = 1500, **more: Any) -> AppLimits:
    return AppLimits(16, 64 * GIB, memory, cpu, **more)


# app, version, limits, settings, heap, CPUs, warned
CASES: list[tuple[str, str, AppLimits, dict[str, str], int | None, int, bool]] = [
    ("jvm", "21.0.4", limits(), {}, 256 * MIB, 2, False),  # 25 % of 1Gi; ⌈1.5⌉
    ("jvm", "21.0.4", limits(200 * MIB), {}, 100 * MIB, 2, False),  # 50 %: less than 124.8 MiB
    ("jvm", "21.0.4", limits(), {"MaxRAMPercentage": "75"}, 768 * MIB, 2, False),
    ("jvm", "21.0.4", limits(), {"Xmx": "2g"}, 2 * GIB, 2, True),  # above the limit
    ("jvm", "11.0.15", limits(), {}, 16 * GIB, 16, True),  # v2 unknown: 25 % of 64Gi
    ("jvm", "11.0.16", limits(), {}, 256 * MIB, 2, False),
    ("jvm", "11.0.15", limits(cgroup_version=1), {}, 256 * MIB, 2, False),
    ("jvm", "8u362", limits(), {}, 16 * GIB, 16, True),
    ("jvm", "1.8.0_372", limits(), {}, 256 * MIB, 2, False),
    ("jvm", "1.8.0_181", limits(cgroup_version=1), {}, 16 * GIB, 16, True),  # before 8u191
    ("jvm", "21.0.4", limits(kernel=(7, 0)), {}, 16 * GIB, 16, True),  # reads /proc/cgroups
    ("jvm", "21.0.4", limits(kernel=(7, 0), listed_in_proc=True), {}, 256 * MIB, 2, False),
    ("jvm", "25", limits(kernel=(7, 0)), {}, 256 * MIB, 2, False),
    ("jvm", "17.0.4", limits(cpu=None, cpu_shares=102, cgroup_version=1), {}, 256 * MIB, 1, True),  # ⌈102 / 1024⌉
    ("jvm", "17.0.5", limits(cpu=None, cpu_shares=102, cgroup_version=1), {}, 256 * MIB, 16, False),
    ("jvm", "21.0.4", limits(), {"ActiveProcessorCount": "4"}, 256 * MIB, 4, True),  # 4 threads on 1.5 CPUs
    ("jvm", "21.0.4", limits(), {"UseContainerSupport": "-"}, 16 * GIB, 16, True),
    ("go", "1.24.3", limits(), {}, None, 16, True),
    ("go", "go1.25.1", limits(), {}, None, 2, False),
    ("go", "1.25.1", limits(cpu=250), {}, None, 2, False),  # never below 2 by the quota
    ("go", "1.25.1", limits(cpu=2500), {}, None, 3, False),
    ("go", "1.25.1", limits(), {"containermaxprocs": "0"}, None, 16, True),
    ("go", "1.24.3", limits(), {"GOMAXPROCS": "2"}, None, 2, False),
    ("go", "1.25.1", limits(), {"GOMEMLIMIT": "900MiB"}, 900 * MIB, 2, False),
    ("go", "1.25.1", limits(), {"GOMEMLIMIT": "2GiB"}, 2 * GIB, 2, True),
    ("go", "1.25.1", limits(cpu=None, effective_cpu_milli=2000), {}, None, 16, True),  # the pod's limit
    ("node", "20.3.0", limits(), {}, 512 * MIB, 16, True),  # half; threads: the quota is not read
    ("node", "18.20.4", limits(), {}, 4 * GIB, 16, True),  # v2 unknown: 4Gi on a large machine
    ("node", "18.20.4", limits(cgroup_version=1), {}, 512 * MIB, 16, True),
    ("node", "22.16.0", limits(cpu=2500), {}, 512 * MIB, 2, False),  # ⌊2.5⌋
    ("node", "22.16.0", limits(8 * GIB, 2500), {}, 2 * GIB, 2, False),
    ("node", "18.20.4", limits(cpu=None), {"max-old-space-size": "700"}, 700 * MIB, 16, False),
    ("dotnet", "8.0.1", limits(), {}, 768 * MIB, 2, False),  # 75 %
    ("dotnet", "3.1.0", limits(), {}, None, 16, True),  # v2 unknown
    ("dotnet", "3.1.0", limits(cgroup_version=1), {}, 768 * MIB, 2, False),
    ("dotnet", "8.0.1", limits(16 * MIB), {}, 20_000_000, 2, True),  # at least 20 MB, above the limit
    ("dotnet", "8.0.1", limits(), {"GCHeapHardLimit": "0x20000000"}, 512 * MIB, 2, False),
    ("dotnet", "8.0.1", limits(), {"GCHeapHardLimitPercent": "32"}, GIB // 2, 2, False),  # hexadecimal: 50
    ("dotnet", "8.0.1", limits(), {"PROCESSOR_COUNT": "8"}, 768 * MIB, 8, True),
]


@pytest.mark.parametrize(
    "case", CASES, ids=lambda case: f"{case[0]} {case[1]} {case[3] or ''} {case[2].cgroup_version}"
)
def test_heap_and_cpus(case: tuple[Any, ...]) -> None:
    app, version, given_limits, settings, heap, cpus, warned = case
    found = answer(app, version, given_limits, settings)
    assert (found.heap_bytes, found.cpus_seen) == (heap, cpus)
    assert any(each.severe for each in found.warnings) == warned, found.warnings
    assert all(each.advice for each in found.warnings)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("17.0.8+7", (17, 0, 8)),
        ("1.8.0_372", (8, 372)),
        ("8u372", (8, 372)),
        ("go1.25.1", (1, 25, 1)),
        ("v20.3.0", (20, 3, 0)),
        ("", ()),
    ],
)
def test_versions(text: str, expected: tuple[int, ...]) -> None:
    assert version_of(text) == expected


def test_amounts() -> None:
    assert [amount(text) for text in ("512m", "2g", "1048576", "900MiB", "x")] == [
        512 * MIB,
        2 * GIB,
        MIB,
        900 * MIB,
        None,
    ]


@given(
    st.sampled_from(sorted(APPS)),
    st.sampled_from(["", "8", "11.0.16", "17", "25", "1.24", "1.26", "18.1.0", "24", "6.0.1"]),
    st.integers(1 << 22, 1 << 40) | st.none(),
    st.integers(10, 64_000) | st.none(),
    st.sampled_from((1, 2)),
)
def test_no_runtime_sees_more_than_the_machine(
    app: Any, version: str, memory: int | None, cpu: int | None, cgroup: Any
) -> None:
    found = answer(app, version, AppLimits(16, 64 * GIB, memory, cpu, cgroup_version=cgroup))
    assert 1 <= found.cpus_seen <= 16
    assert 0 < found.memory_seen_bytes <= 64 * GIB


@pytest.mark.parametrize(
    "text", ["jvm=17", "jvm=8u372", "jvm=1.8.0_362", "jvm=21.0.2+13-LTS", "go=go1.24rc1", "node=v20.1", "go"]
)
def test_versions_as_they_are_printed(text: str) -> None:
    name, _, version = text.partition("=")
    assert app_named(text) == (name, version)


@pytest.mark.parametrize("text", ["jvm=abc", "go=devel", "go=1.x", "dotnet=8.0.x"])
def test_a_version_without_a_number_is_not_taken_for_an_old_one(text: str) -> None:
    with pytest.raises(InvalidConfigError, match="is no version of"):
        app_named(text)
