"""From machine, configuration and profile to figures (spec 01 §10, 02 §4.3, §5, §6)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings

from plimsoll.errors import InvalidConfigError
from plimsoll.rules.config.parse import reading
from plimsoll.rules.model.gates import Gates
from plimsoll.rules.node.node_config import Machine, NodeConfig, machine_from_capacity, resolved
from plimsoll.rules.profile import profile_named
from plimsoll.rules.quantity import parse
from tests.examples import examples
from tests.unit.strategies import node_settings

GI = 1 << 30
SEED = Machine(48, 263192560 * 1024, {}, pid_capacity=32768)


def setting(profile: str = "1.36", machine: Machine = SEED, document: Any = None, **options: Any) -> NodeConfig:
    config = reading(document, profile_named(profile)).config
    return resolved(machine, config, profile_named(profile), **options)


def test_the_seeds_node() -> None:
    """01 §10.5."""
    document = {
        "systemReserved": {"cpu": "2", "memory": "4Gi"},
        "evictionHard": {"memory.available": "500Mi"},
        "evictionSoft": {"memory.available": "1536Mi"},
        "evictionSoftGracePeriod": {"memory.available": "1m"},
    }
    found = setting(document=document)
    assert (str(found.allocatable["cpu"]), str(found.allocatable["memory"])) == ("46", "258486256Ki")
    assert found.absolute["memory"].value == 265214214144 == found.policy.allocatable_memory_bytes
    assert found.policy.memory_capacity_bytes == 269509181440
    assert str(found.capacity["pods"]) == "110"


STATIC: Any = {"cpuManagerPolicy": "static", "systemReserved": {"cpu": "1"}}
POLICY = [
    # reservation: profile, gate, policy in the file
    ("02 §6.2 documents, gate on, nothing set", "documents", {"featureGates": {"MemoryQoS": True}}, 2, {"memory_qos": True, "reservation": "requests"}),
    ("02 §6.2 documents, None", "documents", {"featureGates": {"MemoryQoS": True}, "memoryReservationPolicy": "None"}, 2, {"reservation": "none"}),
    ("02 §6.2 1.36, gate on, nothing set", "1.36", {"featureGates": {"MemoryQoS": True}}, 2, {"memory_qos": True, "reservation": "none"}),
    ("02 §6.2 Tiered", "1.36", {"featureGates": {"MemoryQoS": True}, "memoryReservationPolicy": "TieredReservation"}, 2, {"reservation": "tiered"}),
    ("02 §6 v1 has no Memory QoS", "1.36", {"featureGates": {"MemoryQoS": True}, "failCgroupV1": False}, 1, {"memory_qos": False}),
    ("02 §6.1 documents as documented", "documents", {}, 2, {"high_without_request": True, "throttling_factor": 0.9}),
    ("02 §6.1 1.36", "1.36", {"memoryThrottlingFactor": 0.8}, 2, {"high_without_request": False, "throttling_factor": 0.8}),
    ("02 §5 group kill 1.36 v2", "1.36", {}, 2, {"oom_group": True}),
    ("02 §5 group kill 1.36, single process", "1.36", {"singleProcessOOMKill": True}, 2, {"oom_group": False}),
    ("02 §5 no group kill on v1", "1.36", {"failCgroupV1": False}, 1, {"oom_group": False}),
    ("02 §5 no group kill in documents", "documents", {}, 2, {"oom_group": False}),
    ("02 §5 swap", "1.36", {"memorySwap": {"swapBehavior": "LimitedSwap"}}, 2, {"limited_swap": True}),
    ("02 §4.3 period", "1.36", {"cpuCFSQuotaPeriod": "50ms"}, 2, {"period_us": 50_000, "custom_period": True}),
    ("02 §4.3 quota off", "1.36", {"cpuCFSQuota": False}, 2, {"cfs_quota": False}),
    ("02 §4.2 weights documents", "documents", {}, 2, {"weight": "linear"}),
    ("02 §4.2 weights 1.36", "1.36", {}, 2, {"weight": "quadratic"}),
    ("02 §7 pids", "1.36", {"podPidsLimit": 1024}, 2, {"pod_pids_limit": 1024}),
    ("02 §10 static", "1.36", {"cpuManagerPolicy": "static", "systemReserved": {"cpu": "1"}}, 2, {"static_cpus": True, "quota_with_exclusive_cpus": False}),
    ("CM-25 quota kept before 1.33", "1.32", STATIC, 2, {"quota_with_exclusive_cpus": True}),
    ("CM-25 no quota since 1.33", "1.33", STATIC, 2, {"quota_with_exclusive_cpus": False}),
    ("CM-25 gate off", "1.36", STATIC | {"featureGates": {"DisableCPUQuotaWithExclusiveCPUs": False}}, 2, {"quota_with_exclusive_cpus": True}),
    ("02 §4.3 documents", "documents", STATIC, 2, {"quota_with_exclusive_cpus": True}),
    ("01 O-6 rules of documents", "documents", {}, 2, {"pod_level_oom_share": False, "sidecar_oom_rule": False}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("profile", "document", "version", "expected"), [row[1:] for row in POLICY], ids=[row[0] for row in POLICY]
)
def test_policy(profile: str, document: Any, version, expected: dict[str, object]) -> None:
    policy = setting(profile, document=document, cgroup_version=version).policy
    assert {name: getattr(policy, name) for name in expected} == expected


def test_a_gate_that_is_off() -> None:
    gates = setting("1.36", document={"featureGates": {"PodLevelResources": False}}).policy.gates
    assert {"PodLevelResources", "ContainerStopSignals"} <= gates.off
    assert msgspec.structs.replace(gates, off=frozenset()) == Gates(pod_level=False, stop_signals=False)


def test_driver_runtime_and_weight() -> None:
    assert setting().driver == "cgroupfs"
    assert setting(document={"cgroupDriver": "systemd"}).driver == "systemd"
    assert setting(document={"cgroupDriver": "systemd"}, driver="cgroupfs").driver == "cgroupfs"
    found = setting("documents", weight="quadratic", runtime="crio")
    assert (found.policy.weight, found.runtime) == ("quadratic", "crio")


REFUSED = [
    ("01 N-7", {"systemReserved": {"memory": "400Gi"}}, 2, "invalid Node Allocatable configuration"),
    ("02 §3 failCgroupV1", {"failCgroupV1": True}, 1, "cgroup v1"),
    (
        "02 §5 LimitedSwap on v1",
        {"failCgroupV1": False, "memorySwap": {"swapBehavior": "LimitedSwap"}},
        1,
        "LimitedSwap needs cgroup v2",
    ),
    ("01 N-5 a bad threshold", {"evictionHard": {"memory.available": "0"}}, 2, "must be positive"),
]


@pytest.mark.parametrize(
    ("document", "version", "words"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
def test_where_a_kubelet_would_not_start(document: Any, version, words: str) -> None:
    with pytest.raises(InvalidConfigError, match=words):
        setting(document=document, cgroup_version=version)


def test_n7_sentence() -> None:
    with pytest.raises(InvalidConfigError) as caught:
        setting(machine=Machine(1, GI, {}), document={"systemReserved": {"cpu": "2"}})
    assert str(caught.value) == (
        'invalid Node Allocatable configuration. Resource "cpu" has a reservation of 2 but capacity of 1. '
        "Expected capacity >= reservation."
    )


def test_hugepages_and_storage() -> None:
    machine = Machine(
        4, 8 * GI, {"hugepages-2Mi": parse("64Mi"), "hugepages-1Gi": parse("1Gi"), "ephemeral-storage": parse("10Gi")}
    )
    found = setting(machine=machine)
    assert found.policy.hugepage_sizes == (2 << 20, GI)
    assert str(found.allocatable["memory"]) == "7004Mi"  # 8192 − 100 − 64 − 1024, all huge pages off (N-8)
    assert "ephemeral-storage" in found.capacity
    assert (
        "ephemeral-storage" not in setting(machine=machine, document={"localStorageCapacityIsolation": False}).capacity
    )


def test_roots() -> None:
    assert setting().pods_root == ("kubepods",)
    assert setting(document={"cgroupRoot": "/custom"}).pods_root == ("custom", "kubepods")
    assert setting(
        document={"cgroupRoot": "/x", "cgroupsPerQOS": False, "enforceNodeAllocatable": ["none"]}
    ).pods_root == ("x",)


def test_machine_from_capacity() -> None:
    machine = machine_from_capacity(
        {name: parse(text) for name, text in (("cpu", "4"), ("memory", "8Gi"), ("pods", "30"), ("x.y/z", "2"))},
        name="n",
    )
    assert (machine.cores, machine.memory_bytes, machine.others, machine.name) == (
        4,
        8 * GI,
        {"x.y/z": parse("2")},
        "n",
    )


INCOMPLETE = [
    ("no cpu", {"memory": "1Gi"}),
    ("no memory", {"cpu": "1"}),
    ("zero", {"cpu": "0", "memory": "1Gi"}),
    ("negative cpu", {"cpu": "-1", "memory": "1Gi"}),
    ("negative memory", {"cpu": "1", "memory": "-1Gi"}),
]


@pytest.mark.parametrize("texts", [row[1] for row in INCOMPLETE], ids=[row[0] for row in INCOMPLETE])
def test_a_machine_needs_cpu_and_memory(texts: dict[str, str]) -> None:
    with pytest.raises(InvalidConfigError, match="greater than zero"):
        machine_from_capacity({name: parse(text) for name, text in texts.items()})


@settings(max_examples=examples(100), deadline=None)
@given(node_settings(static_cpus=None))
def test_figures_agree(found: NodeConfig) -> None:
    for name, quantity in found.allocatable.items():
        assert 0 <= quantity.nanos <= found.absolute[name].nanos <= found.capacity[name].nanos
    assert found.policy.allocatable_memory_bytes == found.absolute["memory"].value
    assert found.policy.memory_qos == (found.config.gate("MemoryQoS") and found.policy.cgroup_version == 2)
    assert found.config.single_process_oom_kill is not None
    assert len(found.policy.hugepage_sizes) == sum(name.startswith("hugepages-") for name in found.capacity)
