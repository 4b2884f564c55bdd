"""What 1.37 does differently from 1.36, one test for each point of its list."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from plimsoll.errors import InvalidConfigsError
from plimsoll.rules.cgroups.desired import Workload, desired_tree, workload
from plimsoll.rules.config.gates import gate_in
from plimsoll.rules.config.parse import reading
from plimsoll.rules.eviction.assessment import memory_observation
from plimsoll.rules.eviction.decision import limit_finding
from plimsoll.rules.eviction.usage import ContainerUsage, FsUsage, PodUsage
from plimsoll.rules.explain.upgrade_node import flag_changes, metric_changes
from plimsoll.rules.model.observed import CriResources
from plimsoll.rules.node.node_config import withheld_hugepages
from plimsoll.rules.profile import profile_named
from plimsoll.rules.resize.steps import resize_writes
from plimsoll.rules.resources.cri import cleared, cri_resources
from plimsoll.rules.resources.defaulting import defaulted
from plimsoll.rules.resources.footprint import counted_requests
from plimsoll.rules.resources.oom_score import oom_scores
from plimsoll.rules.resources.qos import qos_class
from tests.unit.rules.release_pods import both, container, gates_of, node, pod
from tests.unit.strategies import lean

GI = 1 << 30
TIERED = {"memoryReservationPolicy": "TieredReservation", "featureGates": {"MemoryQoS": True}}


# --- Memory QoS ---


def test_m1_protection_is_reset_by_default() -> None:
    def values(release: str) -> tuple[int | None, ...]:
        found = workload(lean(pod(container(requests={"memory": "1Gi"}))), node(release)).container_values[0]
        return found.memory_min_bytes, found.memory_low_bytes, found.memory_high_bytes

    assert both(values) == ((None, None, None), (0, 0, None))


def test_m2_the_factor_has_no_default_and_needs_the_gate() -> None:
    assert both(lambda release: node(release).config.memory_throttling_factor) == (0.9, None)
    off = {"featureGates": {"MemoryQoS": False}}
    assert reading({"memoryThrottlingFactor": 0.9, **off}, profile_named("1.37"))
    assert reading({"memoryThrottlingFactor": 0.5, **off}, profile_named("1.36"))
    with pytest.raises(InvalidConfigsError, match="must not be set when MemoryQoS feature gate is disabled"):
        reading({"memoryThrottlingFactor": 0.5, **off}, profile_named("1.37"))


def test_m3_a_container_without_memory_settings_is_throttled() -> None:
    """⌊8Gi · 0.5 / 4096⌋ · 4096 = 4Gi."""
    config = {"memoryThrottlingFactor": 0.5, "featureGates": {"MemoryQoS": True}}

    def high(release: str) -> int | None:
        return workload(lean(pod(container())), node(release, config)).container_values[0].memory_high_bytes

    assert both(high) == (None, 4 * GI)


POD_LEVEL = pod(
    container("a"),
    container("b", limits={"memory": "1Gi"}),
    resources={"requests": {"memory": "2Gi"}, "limits": {"memory": "4Gi"}},
)


def test_m4_the_pod_is_throttled_by_its_own_limit() -> None:
    """2Gi + (4Gi − 2Gi) · 0.5 = 3Gi; 1Gi is requested by b, so nothing of it is equal."""
    config = {"memoryThrottlingFactor": 0.5, "featureGates": {"MemoryQoS": True}}
    assert both(lambda release: workload(lean(POD_LEVEL), node(release, config)).values.memory_high_bytes) == (
        None,
        3 * GI,
    )


def test_m5_a_container_under_the_pods_limit_is_not_throttled_itself() -> None:
    config = {"memoryThrottlingFactor": 0.5, "featureGates": {"MemoryQoS": True}}

    def high(release: str) -> int | None:
        given = pod(container("a", requests={"memory": "1Gi"}), resources={"limits": {"memory": "4Gi"}})
        return workload(lean(given), node(release, config)).container_values[0].memory_high_bytes

    # 1.36: (1Gi + (8Gi − 1Gi) · 0.5) from node allocatable
    assert both(high) == (GI + 7 * GI // 2, None)


def files(release: str, config: dict[str, Any] | None, *given: dict[str, Any]) -> dict[str, dict[str, int | str]]:
    setting = node(release, config)
    tree = desired_tree([workload(lean(each), setting) for each in given], setting).children[0]
    cgroups = [tree, *(child for child in tree.children if child.level == "class")]
    return {each.name: {file.name: file.value for file in each.files} for each in cgroups}


def test_m6_kubepods_has_a_low_of_its_own() -> None:
    given = pod(container(requests={"memory": "1Gi"}))
    found = [files(release, TIERED, given)["all pods"] for release in ("1.36", "1.37")]
    assert [(each["memory.min"], each.get("memory.low")) for each in found] == [(GI, None), (GI, GI)]


def test_m7_policy_none_is_reset_at_start() -> None:
    found = files("1.37", None)
    assert (found["all pods"]["memory.min"], found["all pods"]["memory.low"], found["Burstable"]["memory.low"]) == (
        0,
        0,
        0,
    )


def test_m8_with_the_gate_off_old_throttling_is_cleared() -> None:
    off = {"featureGates": {"MemoryQoS": False}}

    def high(release: str) -> int | None:
        return workload(lean(pod(container())), node(release, off)).container_values[0].memory_high_bytes

    assert both(high) == (None, -1)  # −1 is written as max
    assert files("1.37", off)["all pods"]["memory.min"] == 0
    assert "memory.min" not in files("1.36", off)["all pods"]


def test_m9_a_resize_keeps_memory_qos() -> None:
    """The pod's protection and throttling follow its new size: 1Gi → 2Gi of 4Gi, 1 + 3 · 0.5 → 2 + 2 · 0.5."""
    setting = node("1.37", {"memoryThrottlingFactor": 0.5, **TIERED})

    def sized(memory: str) -> Workload:
        given = pod(container(), resources={"requests": {"memory": memory}, "limits": {"memory": "4Gi"}})
        return workload(lean(given), setting)

    writes = resize_writes(sized("1Gi"), sized("2Gi"), (), setting)
    of_pod = {each.file: (each.before, each.after) for each in writes if each.level == "pod"}
    assert of_pod["memory.low"] == (GI, 2 * GI)
    assert of_pod["memory.high"] == (5 * GI // 2, 3 * GI)


def test_m10_a_removed_factor_ends_throttling() -> None:
    """The real 1.37 does not name memory.high any more, so running containers stay throttled; Plimsoll resets it."""
    given = lean(pod(container(requests={"memory": "1Gi"}, limits={"memory": "2Gi"})))

    def sent(config: dict[str, Any]) -> CriResources:
        return cri_resources(workload(given, node("1.37", config)).container_values[0], 0)

    before, after = sent({"memoryThrottlingFactor": 0.5}), sent({})
    assert (before.unified["memory.high"], "memory.high" in after.unified) == (str(3 * GI // 2), False)
    assert cleared(before, after).unified["memory.high"] == "max"


# --- QoS class, pod-level resources, sums ---


def test_q1_an_empty_pod_level_does_not_decide_the_class() -> None:
    given = lean(pod(container(limits={"cpu": "32", "memory": "8988Mi"}), resources={}))
    found = both(lambda release: workload(given, node(release, cpu="64", memory="64Gi")))
    assert [each.qos for each in found] == ["BestEffort", "Guaranteed"]
    assert [each.values.cpu_shares for each in found] == [2, 32768]
    assert (found[1].values.cpu_quota_us, found[1].values.memory_bytes) == (3200000, 9424601088)


def test_q2_the_class_is_that_of_each_container() -> None:
    mixed = lean(pod(container(limits={"cpu": "1", "memory": "1Gi"}), container("c1")))
    assert both(lambda release: qos_class(defaulted(mixed), gates=gates_of(release))) == ("Burstable", "Burstable")


def test_q3_pod_level_limits_are_defaulted() -> None:
    given = lean(pod(container(limits={"cpu": "11m", "memory": "8154M"}), resources={"requests": {"cpu": "201m"}}))

    def lists(release: str) -> tuple[dict[str, str], dict[str, str], str]:
        gates = gates_of(release)
        found = defaulted(given, gates=gates)
        assert found.spec.resources is not None
        requests, limits = found.spec.resources.requests or {}, found.spec.resources.limits or {}
        texts = [{name: str(amount) for name, amount in each.items()} for each in (requests, limits)]
        return texts[0], texts[1], qos_class(found, gates=gates)

    assert lists("1.36") == ({"cpu": "201m"}, {}, "Burstable")
    assert lists("1.37") == ({"cpu": "201m", "memory": "8154M"}, {"cpu": "201m", "memory": "8154M"}, "Guaranteed")


def test_q4_the_footprint_of_a_resize_is_the_largest_sum() -> None:
    """Spec 1 + 3, allocated and actual 2 + 1: 2 + 3 = 5 by containers, max(4, 3, 3) = 4 by pod."""
    given = pod(container("a", requests={"cpu": "1"}), container("b", requests={"cpu": "3"}))
    given["status"] = {
        "containerStatuses": [
            {"name": name, "resources": {"requests": {"cpu": cpu}}, "allocatedResources": {"cpu": cpu}}
            for name, cpu in (("a", "2"), ("b", "1"))
        ]
    }

    def counted(release: str) -> int:
        return counted_requests(lean(given), profile_named(release).resize_footprint)["cpu"].value

    assert both(counted) == (5, 4)


def test_q5_only_own_limits_count_as_declared() -> None:
    given = pod(
        container(limits={"cpu": "3", "memory": "13887660771"}),
        init=(
            container("i0", sidecar=True, limits={"cpu": "4", "memory": "2.5Gi"}),
            container("i1", sidecar=True, limits={"memory": "6950Mi"}),
        ),
    )
    quotas = both(lambda release: workload(lean(given), node(release, cpu="16", memory="64Gi")).values.cpu_quota_us)
    assert quotas == (700000, None)


def test_q6_the_pod_level_share_is_never_negative() -> None:
    given = pod(container(requests={"memory": "100Mi"}), resources={"requests": {"memory": "65Mi"}})
    policies = [node(release, memory="2Gi").policy for release in ("1.36", "1.37")]
    assert [oom_scores(lean(given), "Burstable", policy) for policy in policies] == [[969], [952]]


def test_q7_managers_for_pod_level_stay_off() -> None:
    assert list(map(str, both(lambda release: gate_in("PodLevelResourceManagers", release)))) == [
        "off alpha",
        "off beta",
    ]
    static = {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0"}
    amounts = {"cpu": "2", "memory": "1Gi"}
    own, level = container(requests=amounts, limits=amounts), {"requests": amounts, "limits": amounts}
    setting = node("1.37", static)
    assert workload(lean(pod(own)), setting).exclusive_cpus == 2
    assert workload(lean(pod(own, resources=level)), setting).exclusive_cpus == 0
    asked = reading({"featureGates": {"PodLevelResourceManagers": True}}, profile_named("1.37"))
    assert any("PodLevelResourceManagers" in note for note in asked.notes), "not done, and reported"


# --- eviction ---


def test_e1_huge_pages_are_not_available() -> None:
    settings = both(lambda release: node(release, hugepages_1Gi="1Gi"))
    assert [withheld_hugepages(each) for each in settings] == [0, GI]
    assert [memory_observation(8 * GI, 5 * GI, 0.0, withheld_hugepages(each)) for each in settings][1] is not None
    available = [memory_observation(8 * GI, 5 * GI, 0.0, withheld_hugepages(each)) for each in settings]
    assert [each.available.value for each in available if each is not None] == [3 * GI, 2 * GI]
    nothing = memory_observation(8 * GI, 8 * GI - 1, 0.0, GI)
    assert nothing is not None and nothing.available.value == 0


def test_e2_storage_limits_of_sidecars_count() -> None:
    limits = {"ephemeral-storage": "1Mi"}
    given = lean(pod(container(), init=(container("s", sidecar=True, limits=limits),)))
    usage = PodUsage(None, None, (ContainerUsage("s", rootfs=FsUsage(2 << 20), logs=FsUsage(0)),), {})
    found = both(lambda release: limit_finding(given, usage, gates=gates_of(release)))
    assert found[0] is None
    assert found[1] is not None and "Container s exceeded its local ephemeral storage limit" in found[1].message


def test_e3_the_kernel_enforces_memory_backed_volumes() -> None:
    volumes = [{"name": "v", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}]
    given = lean(pod(container(), volumes=volumes))
    usage = PodUsage(None, None, (), {"v": FsUsage(2 << 20)})
    found = limit_finding(given, usage, gates=gates_of("1.37"))
    assert found is not None and 'EmptyDir volume "v" exceeds the limit "1Mi"' in found.message
    using = msgspec.structs.replace(gates_of("1.37"), memory_volumes=True)
    assert limit_finding(given, usage, gates=using) is None
    on_disk = lean(pod(container(), volumes=[{"name": "v", "emptyDir": {"sizeLimit": "1Mi"}}]))
    assert limit_finding(on_disk, usage, gates=using) is not None


# cmd/kubelet/app/options/globalflags_linux.go of 1.36: all but housekeeping_interval.
CADVISOR_FLAGS = [
    "application_metrics_count_limit",
    "boot_id_file",
    "container_hints",
    "containerd",
    "containerd-namespace",
    "enable_load_reader",
    "event_storage_age_limit",
    "event_storage_event_limit",
    "global_housekeeping_interval",
    "log_cadvisor_usage",
    "machine_id_file",
    "storage_driver_user",
    "storage_driver_password",
    "storage_driver_host",
    "storage_driver_db",
    "storage_driver_table",
    "storage_driver_secure",
    "storage_driver_buffer_duration",
]


def test_e4_cadvisor_flags_and_metrics_are_gone() -> None:
    old, new = profile_named("1.36"), profile_named("1.37")
    line = " ".join(f"--{flag}=x" for flag in [*CADVISOR_FLAGS, "housekeeping_interval"])
    refused = list(flag_changes("n", line, old, new))
    assert [each.what for each in refused] == [f"--{flag.replace('_', '-')}" for flag in CADVISOR_FLAGS]
    assert all(each.breaks for each in refused)
    gone = ["container_tasks_state", "container_cpu_load_average_10s", "kubelet_volume_stats_health_status_abnormal"]
    lines = enumerate([f"sum({name})" for name in [*gone, "container_oom_events_total"]], 1)
    assert [each.what for each in metric_changes("r.yaml", lines, old, new)] == gone
