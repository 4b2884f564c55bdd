"""The kubelet configuration: its table, its defaults, and files as users have them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from plimsoll.codec.lean.lean import NumberText
from plimsoll.errors import InvalidConfigError, InvalidConfigsError
from plimsoll.rules.config import table as config_table
from plimsoll.rules.config.field_types import READERS
from plimsoll.rules.config.gates import GATES
from plimsoll.rules.config.kubelet import KubeletConfig
from plimsoll.rules.config.parse import ParsedConfig, default_config, reading
from plimsoll.rules.config.table import BY_NAME, ROWS, WITH_FLAG, Row
from plimsoll.rules.model.objects import Taint
from plimsoll.rules.profile import PROFILE_DOCUMENTS, PROFILE_NAMES, profile_named
from plimsoll.rules.quantity import QUANTITIES
from tests.unit.rules.config.kubelet_documents import API_NAMES, BOTH, read

DOCS = Path(__file__).resolve().parents[4] / "docs"


# The table


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_every_row_says_what_it_is(row: Row) -> None:
    assert row.kind in READERS
    assert row.description.endswith(".") and row.description[0].isalnum()
    assert row.flag == "" or row.flag.startswith("--")
    assert row.in_file or row.flag
    for profile in PROFILE_NAMES:
        found: list[InvalidConfigError] = []
        default = row.default_in(profile)
        if default is not None:
            READERS[row.kind](default, row.name, found)
        assert not found
        assert default in (None, "", *row.choices) or not row.choices


def test_names_flags_and_attributes_are_unique() -> None:
    assert len(BY_NAME) == len(ROWS)
    assert len({row.flag for row in WITH_FLAG}) == len(WITH_FLAG)
    attributes = [row.attribute for row in ROWS if row.attribute]
    assert sorted(attributes) == sorted(KubeletConfig.__struct_fields__)
    assert {row.gate for row in ROWS if row.gate} <= {gate.name for gate in GATES}


def test_every_name_of_the_api_is_known_and_no_other() -> None:
    assert sorted({row.name.partition(".")[0] for row in ROWS if row.in_file}) == sorted(API_NAMES)


# 02 §12 and 04 §2.3, as a user would write the defaults.
SPEC_DEFAULTS = {
    "cgroupRoot": "",
    "cgroupsPerQOS": True,
    "cgroupDriver": "cgroupfs",
    "kubeletCgroups": "",
    "systemCgroups": "",
    "runtimeCgroups": "",
    "enforceNodeAllocatable": ["pods"],
    "systemReserved": {},
    "kubeReserved": {},
    "systemReservedCgroup": "",
    "kubeReservedCgroup": "",
    "reservedSystemCPUs": "",
    "qosReserved": {},
    "cpuCFSQuota": True,
    "cpuCFSQuotaPeriod": "100ms",
    "podPidsLimit": -1,
    "maxPods": 110,
    "podsPerCore": 0,
    "oomScoreAdj": -999,
    "singleProcessOOMKill": None,
    "memoryThrottlingFactor": 0.9,
    "memorySwap.swapBehavior": "",
    "failSwapOn": True,
    "cpuManagerPolicy": "none",
    "cpuManagerPolicyOptions": {},
    "cpuManagerReconcilePeriod": "10s",
    "memoryManagerPolicy": "None",
    "reservedMemory": None,
    "topologyManagerPolicy": "none",
    "topologyManagerScope": "container",
    "protectKernelDefaults": False,
    "localStorageCapacityIsolation": True,
    "syncFrequency": "1m",
    "evictionPressureTransitionPeriod": "5m",
    "evictionMaxPodGracePeriod": 0,
    "kernelMemcgNotification": False,
    "mergeDefaultEvictionSettings": False,
    "failCgroupV1": False,  # the spec says true since 1.35; the design overrides it for both profiles
    "evictionHard": {
        "memory.available": "100Mi",
        "nodefs.available": "10%",
        "nodefs.inodesFree": "5%",
        "imagefs.available": "15%",
        "imagefs.inodesFree": "5%",
    },
}


@BOTH
@pytest.mark.parametrize("name", SPEC_DEFAULTS)
def test_defaults_are_the_specs(name: str, profile: Any) -> None:
    assert BY_NAME[name].default_in(profile.name) == SPEC_DEFAULTS[name]


def test_the_reservation_policy_has_no_default_in_documents() -> None:
    """There memory.min follows requests unless a policy is asked for (02 §6.2, 1.22–1.35)."""
    assert default_config(PROFILE_DOCUMENTS).memory_reservation_policy == ""
    assert default_config(profile_named("1.36")).memory_reservation_policy == "None"
    policy = "{featureGates: {MemoryQoS: true}, memoryReservationPolicy: None}"
    assert read(policy.replace("None", '"None"')).config.memory_reservation_policy == "None"


def test_default_values_as_stored() -> None:
    config = default_config(PROFILE_DOCUMENTS)
    assert config.sync_frequency_s == 60
    assert config.eviction_pressure_transition_period_s == 300
    assert config.cpu_cfs_quota_period_us == 100_000
    assert config.enforce_node_allocatable == ("pods",)
    assert config.system_reserved == {} and config.reserved_system_cpus == ()
    assert reading({}, PROFILE_DOCUMENTS) == reading(None, PROFILE_DOCUMENTS) == ParsedConfig(config, [], [])


@pytest.mark.parametrize(
    ("gate", "old", "new"),
    [
        ("InPlacePodVerticalScaling", True, True),
        ("MemoryQoS", False, False),
        ("QOSReserved", False, False),
        ("PodLevelResources", True, True),
        ("CustomCPUCFSQuotaPeriod", False, True),
        ("InPlacePodLevelResourcesVerticalScaling", True, True),
        ("InPlacePodVerticalScalingInitContainers", True, True),
        ("InPlacePodVerticalScalingExclusiveCPUs", False, False),
        ("InPlacePodVerticalScalingExclusiveMemory", False, False),
        ("NodeSwap", True, True),
    ],
)
def test_gates_of_each_profile(gate: str, old: bool, new: bool) -> None:
    assert (default_config(PROFILE_DOCUMENTS).gate(gate), default_config(profile_named("1.36")).gate(gate)) == (
        old,
        new,
    )


def test_the_page_is_current() -> None:
    page = (DOCS / "kubelet-config.md").read_text()
    assert page == config_table.markdown()
    assert all(f"`{row.name}`" in page for row in ROWS if row.in_file)
    assert all(f"`{row.flag}`" in page for row in WITH_FLAG)


# Files as users have them


def test_memory_qos_fragment() -> None:
    """Document 000."""
    got = read(
        """
        apiVersion: kubelet.config.k8s.io/v1beta1
        kind: KubeletConfiguration
        featureGates:
          MemoryQoS: true
        """
    )
    assert got.config.gate("MemoryQoS") and got.config.memory_throttling_factor == 0.9
    assert got.without_effect == [] and got.notes == []


def test_resize_fragment() -> None:
    """Document 003: a file that kubeadm wrote, where 0s means "not set"."""
    got = read("{syncFrequency: 0s, volumeStatsAggPeriod: 0s, featureGates: {InPlacePodVerticalScaling: true}}")
    assert got.config == default_config(PROFILE_DOCUMENTS)
    assert got.config.sync_frequency_s == 60
    assert got.without_effect == ["volumeStatsAggPeriod"]


def test_the_kernels_notifications_are_not_switched() -> None:
    """On v1 they are always requested, so the setting has no effect."""
    assert read("{kernelMemcgNotification: true}").without_effect == ["kernelMemcgNotification"]
    assert "always on with cgroup v1" in BY_NAME["kernelMemcgNotification"].description


def test_reservation_and_cgroup_fragments() -> None:
    """Document 004 §2.3 and §5.2."""
    got = read(
        """
        systemReserved: {cpu: "2", memory: "4Gi"}
        kubeletCgroups: ""
        systemCgroups: ""
        cgroupRoot: "" # if empty, default to "/" in the code
        cgroupsPerQOS: true
        cgroupDriver: cgroupfs
        """
    )
    assert got.config.system_reserved == {"cpu": QUANTITIES["2"], "memory": QUANTITIES["4Gi"]}
    assert msgspec.structs.replace(got.config, system_reserved={}) == default_config(PROFILE_DOCUMENTS)


def test_a_whole_node_file() -> None:
    got = read(
        """
        apiVersion: kubelet.config.k8s.io/v1beta1
        kind: KubeletConfiguration
        authentication: {anonymous: {enabled: false}, webhook: {cacheTTL: 0s, enabled: true}, x509: {clientCAFile: /ca}}
        authorization: {mode: Webhook, webhook: {cacheAuthorizedTTL: 0s, cacheUnauthorizedTTL: 0s}}
        cgroupDriver: systemd
        clusterDNS: [10.96.0.10]
        clusterDomain: cluster.local
        cpuManagerReconcilePeriod: 0s
        crashLoopBackOff: {}
        evictionPressureTransitionPeriod: 0s
        healthzPort: 10248
        imageMaximumGCAge: 0s
        logging: {flushFrequency: 0, options: {json: {infoBufferSize: "0"}}, verbosity: 0}
        memorySwap: {}
        registerWithTaints: null
        rotateCertificates: true
        maxPods: 0
        """
    )
    assert got.config == msgspec.structs.replace(
        default_config(PROFILE_DOCUMENTS),
        cgroup_driver="systemd",
        client_ca_file="/ca",
        cluster_dns=("10.96.0.10",),
        cluster_domain="cluster.local",
    )
    assert got.without_effect == [
        "healthzPort",
        "rotateCertificates",
        "authentication.webhook.enabled",
        "authentication.anonymous.enabled",
        "logging",
    ]


def test_taints() -> None:
    taints = "[{key: a, value: b, effect: NoSchedule}, {key: c, effect: NoExecute, timeAdded: null}]"
    expected = (Taint("a", "b", "NoSchedule"), Taint("c", "", "NoExecute"))
    assert read(f"registerWithTaints: {taints}").config.register_with_taints == expected
    by_flag = reading({}, PROFILE_DOCUMENTS, {"registerWithTaints": "a=b:NoSchedule,c:NoExecute"})
    assert by_flag.config.register_with_taints == expected
    with pytest.raises(InvalidConfigsError, match=r'registerWithTaints\[0\].effect.*not "Never"'):
        read("registerWithTaints: [{key: a, effect: Never}]")


def test_a_number_may_stand_for_a_quantity_and_keeps_its_text() -> None:
    kept = reading(
        {"systemReserved": {"cpu": NumberText("1.10")}, "maxPods": NumberText("7")}, PROFILE_DOCUMENTS
    ).config
    assert kept.system_reserved["cpu"].milli == 1100 and kept.max_pods == 7
    plain = read("{kubeReserved: {cpu: 0.5, pid: 1000}, evictionHard: {memory.available: 1048576}}").config
    assert (plain.kube_reserved["cpu"].milli, plain.kube_reserved["pid"].value) == (500, 1000)
    assert plain.eviction_hard == {"memory.available": "1048576"}


def test_a_number_where_a_kubelet_expects_a_text_is_a_note() -> None:
    """Go: cannot unmarshal number into Go struct field KubeletConfiguration.systemReserved of type string."""
    notes = read(
        "{kubeReserved: {cpu: 0.5, memory: 1Gi}, systemReserved: {cpu: '1'}, evictionHard: {pid.available: 9}}"
    ).notes
    words = "is a number; a real kubelet does not start, because it expects a text: use quotes"
    assert sorted(notes) == [f"evictionHard[pid.available] {words}", f"kubeReserved[cpu] {words}"]
    assert reading({"systemReserved": {"cpu": NumberText("1")}}, PROFILE_DOCUMENTS).notes == [
        f"systemReserved[cpu] {words}"
    ]


# N-6


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{}", SPEC_DEFAULTS["evictionHard"]),
        ("{evictionHard: null}", SPEC_DEFAULTS["evictionHard"]),
        ("{evictionHard: {}}", {}),
        ("{evictionHard: {memory.available: 500Mi}}", {"memory.available": "500Mi"}),
        (
            "{evictionHard: {memory.available: 500Mi}, mergeDefaultEvictionSettings: true}",
            {**SPEC_DEFAULTS["evictionHard"], "memory.available": "500Mi"},  # type: ignore[dict-item]
        ),
    ],
    ids=["absent", "null", "empty", "replaced", "merged"],
)
def test_eviction_hard(text: str, expected: dict[str, str]) -> None:
    assert read(text).config.eviction_hard == expected


def test_a_flag_replaces_the_map_even_when_the_file_merges() -> None:
    got = read("{mergeDefaultEvictionSettings: true}", evictionHard="memory.available<1Gi")
    assert got.config.eviction_hard == {"memory.available": "1Gi"}
