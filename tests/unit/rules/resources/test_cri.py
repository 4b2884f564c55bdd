"""A container's resources as a runtime receives them, checked against the vectors and by table."""

from __future__ import annotations

import gzip
from pathlib import Path

import msgspec
import pytest

from plimsoll.rules.model.observed import CriResources
from plimsoll.rules.profile import profile_named
from plimsoll.rules.resources.cri import KERNEL_DEFAULT, cleared, cri_resources
from plimsoll.rules.resources.oom_score import oom_scores
from plimsoll.rules.resources.qos import qos_class
from plimsoll.rules.resources.values import Values, container_values
from tests.conformance import run, topics

MIB = 1 << 20

CASES = [
    pytest.param(Values(cpu_shares=2), 1000, CriResources(cpu_shares=2, oom_score_adj=1000), id="besteffort"),
    pytest.param(
        Values(cpu_shares=256, cpu_quota_us=50000, cpu_period_us=100000, memory_bytes=64 * MIB, memory_and_swap_bytes=64 * MIB),
        968,
        CriResources(256, 50000, 100000, 64 * MIB, 64 * MIB, 968),
        id="v1",
    ),
    pytest.param(
        Values(cpu_shares=256, cpu_period_us=100000, memory_bytes=64 * MIB, swap_bytes=0, memory_min_bytes=16 * MIB, memory_high_bytes=50 * MIB, oom_group=1),
        968,
        CriResources(256, 0, 100000, 64 * MIB, 0, 968, unified={"memory.min": str(16 * MIB), "memory.high": str(50 * MIB), "memory.swap.max": "0", "memory.oom.group": "1"}),
        id="v2-memory-qos",
    ),
    pytest.param(
        Values(cpu_shares=2048, cpu_quota_us=-1, cpu_period_us=100000, hugetlb={2 * MIB: 4 * MIB, 1 << 30: 0}),
        -997,
        CriResources(2048, -1, 100000, oom_score_adj=-997, hugepage_limits={"2MB": 4 * MIB, "1GB": 0}),
        id="exclusive-cpus-and-pages",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("values", "score", "expected_resources"), CASES)
def test_values_as_cri_resources(values: Values, score: int, expected_resources: CriResources) -> None:
    assert cri_resources(values, score) == expected_resources
    assert cri_resources(values, score, cpuset_cpus="0-1", cpuset_mems="0") == msgspec.structs.replace(
        expected_resources, cpuset_cpus="0-1", cpuset_mems="0"
    )


HIGH, MIN = {"memory.high": "5"}, {"memory.min": "5"}
CHANGES = [
    (CriResources(cpu_quota_us=5, cpu_period_us=9), CriResources(), CriResources(cpu_quota_us=-1, cpu_period_us=9)),
    (CriResources(cpu_quota_us=5, cpu_period_us=9), CriResources(cpu_quota_us=6, cpu_period_us=9), CriResources(cpu_quota_us=6, cpu_period_us=9)),
    (CriResources(cpu_quota_us=-1), CriResources(), CriResources()),
    (CriResources(memory_limit_bytes=5, memory_swap_limit_bytes=5), CriResources(), CriResources(memory_limit_bytes=-1, memory_swap_limit_bytes=-1)),
    (CriResources(), CriResources(memory_limit_bytes=5), CriResources(memory_limit_bytes=5)),
    (CriResources(unified=HIGH), CriResources(), CriResources(unified={"memory.high": "max"})),
    (CriResources(unified=MIN), CriResources(), CriResources(unified={"memory.min": "0"})),
    (CriResources(unified=HIGH), CriResources(unified={"memory.high": "7"}), CriResources(unified={"memory.high": "7"})),
    (CriResources(unified={"misc.max": "5"}), CriResources(), CriResources()),
]  # fmt: skip


@pytest.mark.parametrize(("before", "wanted", "update"), CHANGES)
def test_removed_values_are_reset_explicitly(before: CriResources, wanted: CriResources, update: CriResources) -> None:
    assert cleared(before, wanted) == update
    assert cleared(wanted, wanted) == wanted


def test_every_unified_file_has_a_default() -> None:
    full = Values(swap_bytes=0, memory_min_bytes=0, memory_low_bytes=0, memory_high_bytes=1, oom_group=1)
    assert cri_resources(full, 0).unified.keys() == KERNEL_DEFAULT.keys()


def test_the_vectors() -> None:
    """Every container of topic `e`: the message that a kubelet made of it."""
    seen, profile = 0, profile_named("1.36")
    with gzip.open(Path(topics.__file__).with_name("vectors") / "1.36" / "e_container.jsonl.gz") as lines:
        for case in map(msgspec.json.decode, lines):
            source, expected = case["input"], case["expected"]
            if run.differences(topics.container, source, expected, profile):
                continue  # beyond int64: `tests/conformance/test_vectors.py` allows nothing else
            policy, pod = topics.policy_of(source, profile), topics.pod_of(source["pod"], source, profile)
            qos = qos_class(pod, gates=policy.gates)
            scores = oom_scores(pod, qos, policy)
            containers = pod.spec.init_containers + pod.spec.containers
            for container, score, expected_resources in zip(containers, scores, expected["containers"], strict=True):
                seen += 1
                assert cri_resources(container_values(pod, container, qos, policy), score) == CriResources(
                    expected_resources["cpuShares"],
                    expected_resources["cpuQuota"],
                    expected_resources["cpuPeriod"],
                    expected_resources["memoryLimitInBytes"],
                    expected_resources["memorySwapLimitInBytes"],
                    expected_resources["oomScoreAdj"],
                    hugepage_limits=expected_resources["hugepageLimits"],
                    unified=expected_resources.get("unified") or {},
                ), source
    assert seen > 1000
