"""The kubelet configuration: flags over files, values and combinations that a kubelet refuses, and properties."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.codec.lean.lean import NumberText
from plimsoll.errors import InvalidConfigError, InvalidConfigsError
from plimsoll.rules.config.field_types import READERS
from plimsoll.rules.config.kubelet import config_errors
from plimsoll.rules.config.parse import default_config, flag_value, reading
from plimsoll.rules.config.table import BY_NAME, ROWS, WITH_FLAG, Row
from plimsoll.rules.profile import PROFILE_DOCUMENTS, PROFILE_NAMES, profile_named
from plimsoll.rules.quantity import QUANTITIES
from tests.examples import examples
from tests.unit.rules.config.kubelet_documents import API_NAMES, BOTH, problems, read

# Layers


@BOTH
def test_a_flag_wins_over_the_file_and_the_file_over_the_default(profile: Any) -> None:
    default = default_config(profile)
    in_file = reading({"maxPods": 20, "podsPerCore": 3}, profile).config
    on_line = reading({"maxPods": 20, "podsPerCore": 3}, profile, {"maxPods": "30", "cgroupDriver": None}).config
    assert (default.max_pods, in_file.max_pods, on_line.max_pods) == (110, 20, 30)
    assert (default.pods_per_core, in_file.pods_per_core, on_line.pods_per_core) == (0, 3, 3)


def test_zero_is_a_figure_on_the_command_line() -> None:
    assert read("{}", maxPods="0").config.max_pods == 0


def test_gates_of_file_and_flag_are_merged() -> None:
    got = read("{featureGates: {MemoryQoS: true, QOSReserved: true}}", featureGates="QOSReserved=false,Foo=true")
    assert (got.config.gate("MemoryQoS"), got.config.gate("QOSReserved")) == (True, False)
    assert got.notes == ["feature gate Foo changes nothing here"]


def test_a_repeated_flag_adds_up() -> None:
    got = read(
        "{systemReserved: {pid: 1000}}",
        systemReserved=["cpu=1,memory=1Gi", "cpu=2"],
        enforceNodeAllocatable=["pods", "kube-reserved"],
        kubeReservedCgroup=["/a", "/kube"],
    ).config
    assert got.system_reserved == {"cpu": QUANTITIES["2"], "memory": QUANTITIES["1Gi"]}
    assert got.enforce_node_allocatable == ("pods", "kube-reserved")
    assert got.kube_reserved_cgroup == "/kube"


# Flag → (text, the same in a file)
FLAGS: dict[str, tuple[str, object]] = {
    "--topology-manager-policy": ("restricted", "restricted"),
    "--topology-manager-scope": ("pod", "pod"),
    "--cgroup-root": ("/custom", "/custom"),
    "--cgroups-per-qos": ("false", False),
    "--cgroup-driver": ("systemd", "systemd"),
    "--authorization-mode": ("AlwaysAllow", "AlwaysAllow"),
    "--fail-cgroupv1": ("true", True),
    "--system-reserved": ("cpu=2,memory=4Gi", {"cpu": "2", "memory": "4Gi"}),
    "--kube-reserved": ("ephemeral-storage=1Gi, pid=1000", {"ephemeral-storage": "1Gi", "pid": 1000}),
    "--reserved-cpus": ("0-2,7", "7,0-2"),
    "--enforce-node-allocatable": ("pods,none", ["pods", "none"]),
    "--qos-reserved": ("memory=50%", {"memory": "50%"}),
    "--max-pods": ("50", 50),
    "--cpu-cfs-quota": ("F", False),
    "--cpu-cfs-quota-period": ("5ms", "5000us"),
    "--cpu-manager-policy": ("static", "static"),
    "--cpu-manager-policy-options": ("full-pcpus-only=true", {"full-pcpus-only": "true"}),
    "--memory-manager-policy": ("Static", "Static"),
    "--pod-max-pids": ("4096", 4096),
    "--eviction-hard": ("memory.available<500Mi,nodefs.available<10%", {"memory.available": "500Mi", "nodefs.available": "10%"}),
    "--eviction-soft": ("memory.available<1.5Gi", {"memory.available": "1.5Gi"}),
    "--eviction-soft-grace-period": ("memory.available=1m30s", {"memory.available": "1m30s"}),
    "--eviction-minimum-reclaim": ("memory.available=0Mi", {"memory.available": "0Mi"}),
    "--eviction-pressure-transition-period": ("1m", "60s"),
    "--feature-gates": ("A=true,B=false", {"A": True, "B": False}),
    "--fail-swap-on": ("0", False),
    "--oom-score-adj": ("-1000", -1000),
}  # fmt: skip


SAMPLES: dict[str, tuple[str, object]] = {
    "reserved": (
        "0:memory=1Gi;1:memory=2Gi,hugepages-2Mi=4Mi",
        [
            {"numaNode": 0, "limits": {"memory": "1Gi"}},
            {"numaNode": 1, "limits": {"memory": "2Gi", "hugepages-2Mi": "4Mi"}},
        ],
    ),
    "text": ("x", "x"),
    "boolean": ("true", True),
    "integer": ("12", 12),
    "long": ("12", 12),
    "quantity": ("10Mi", "10Mi"),
    "duration": ("90s", "1m30s"),
    "texts": ("a,b", ["a", "b"]),
    "map": ("a=b", {"a": "b"}),
    "object": ("a:b", {}),
    "headers": ("a:one,a:two,b: three", {"a": ["one", "two"], "b": ["three"]}),
    "list": ("0:memory=1Gi", []),
    "taints": ("a=b:NoSchedule", [{"key": "a", "value": "b", "effect": "NoSchedule"}]),
}


@pytest.mark.parametrize("row", WITH_FLAG, ids=lambda row: row.flag)
def test_a_flag_means_what_the_file_means(row: Row) -> None:
    text, in_file = FLAGS.get(row.flag) or SAMPLES[row.kind]
    found: list[InvalidConfigError] = []
    assert flag_value(row, text) == READERS[row.kind](in_file, row.name, found)
    assert not found


def test_the_documents_and_the_specs_flags_exist() -> None:
    assert set(FLAGS) <= {row.flag for row in WITH_FLAG}


@pytest.mark.parametrize(
    ("flag", "text", "expected"),
    [
        ("systemReserved", "cpu", "--system-reserved: malformed pair, expect string=string"),
        ("evictionHard", "memory.available=1Gi", "--eviction-hard: malformed pair, expect string<string"),
        ("kubeReserved", "gpu=1", '--kube-reserved[gpu]: cannot reserve "gpu" resource'),
        ("maxPods", "many", '--max-pods: must be a 32-bit integer, not "many"'),
        ("maxPods", "-1", "--max-pods: must not be less than 0"),
        ("cpuCFSQuota", "yes", '--cpu-cfs-quota: must be true or false, not "yes"'),
        ("featureGates", "MemoryQoS=on", '--feature-gates[MemoryQoS]: must be true or false, not "on"'),
        ("syncFrequency", "1d", '--sync-frequency: time: unknown unit "d" in duration "1d"'),
        ("cgroupDriver", "", "--cgroup-driver: must be cgroupfs or systemd"),
    ],
)
def test_refused_flags(flag: str, text: str, expected: str) -> None:
    with pytest.raises(InvalidConfigsError) as raised:
        flag_value(BY_NAME[flag], text)
    assert str(raised.value) == expected
    assert expected in [f"{path}: {reason}" for path, reason in problems("{}", **{flag: text}).items()]


# Refusals of single values


@pytest.mark.parametrize(
    ("text", "path", "reason"),
    [
        ("{maxPod: 5}", "maxPod", "unknown setting; did you mean maxPods?"),
        ("{plimsoll: {}}", "plimsoll", "unknown setting"),
        ("{memorySwap: {swapBehaviour: NoSwap}}", "memorySwap.swapBehaviour", "unknown setting; did you mean memorySwap.swapBehavior?"),
        ("{memorySwap.swapBehavior: NoSwap}", "memorySwap.swapBehavior", "unknown setting; did you mean memorySwap.swapBehavior?"),
        ("{runtimeCgroups: /x}", "runtimeCgroups", "unknown setting"),
        ("{7: 8}", "7", "unknown setting"),
        ("{memorySwap: NoSwap}", "memorySwap", 'must be an object, not "NoSwap"'),
        ("[]", "", "a KubeletConfiguration must be an object, not a list"),
        ("{apiVersion: v1}", "apiVersion", 'must be kubelet.config.k8s.io/v1beta1, not "v1"'),
        ("{kind: Pod}", "kind", 'must be KubeletConfiguration, not "Pod"'),
        ("{cgroupRoot: 5}", "cgroupRoot", "must be a text, not 5"),
        ("{cgroupsPerQOS: 'yes'}", "cgroupsPerQOS", 'must be true or false, not "yes"'),
        ("{maxPods: 1.5}", "maxPods", "must be a 32-bit integer, not 1.5"),
        ("{maxPods: true}", "maxPods", "must be a 32-bit integer, not true"),
        ("{maxPods: 2147483648}", "maxPods", "must be a 32-bit integer, not 2147483648"),
        ("{podPidsLimit: 9223372036854775808}", "podPidsLimit", "must be a 64-bit integer, not 9223372036854775808"),
        ("{syncFrequency: 60}", "syncFrequency", "must be a duration such as 1m30s, not 60"),
        ("{syncFrequency: '60'}", "syncFrequency", 'time: missing unit in duration "60"'),
        ("{fileCheckFrequency: soon}", "fileCheckFrequency", 'time: invalid duration "soon"'),
        ("{enforceNodeAllocatable: pods}", "enforceNodeAllocatable", 'must be a list of texts, not "pods"'),
        ("{enforceNodeAllocatable: [1]}", "enforceNodeAllocatable[0]", "must be a text, not 1"),
        ("{systemReserved: {gpu: 1}}", "systemReserved[gpu]", 'cannot reserve "gpu" resource'),  # N-4
        ("{kubeReserved: {memory: -1Gi}}", "kubeReserved[memory]", "must not be negative: -1Gi"),
        ("{kubeReserved: {memory: 1GiB}}", "kubeReserved[memory]", "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"),
        ("{kubeReserved: {memory: [1]}}", "kubeReserved[memory]", "must be a text or a number, not a list"),
        ("{kubeReserved: {5: 1}}", "kubeReserved", "names must be texts, not 5"),
        ("{evictionHard: {memory.available: true}}", "evictionHard[memory.available]", "must be a text or a number, not true"),
        ("{evictionSoft: [a]}", "evictionSoft", "must be a map from signal to text, not a list"),
        ("{featureGates: {MemoryQoS: 'true'}}", "featureGates[MemoryQoS]", 'must be true or false, not "true"'),
        ("{qosReserved: {cpu: 5%}}", "qosReserved[cpu]", 'cannot reserve "cpu" resource'),
        ("{qosReserved: {memory: 101%}}", "qosReserved[memory]", 'must be a whole percentage from 0% to 100%, not "101%"'),
        ("{qosReserved: {memory: -1%}}", "qosReserved[memory]", 'must be a whole percentage from 0% to 100%, not "-1%"'),
        ("{qosReserved: {memory: 50}}", "qosReserved[memory]", "must be a whole percentage from 0% to 100%, not 50"),
        ("{reservedSystemCPUs: 3-1}", "reservedSystemCPUs", 'must be a list of CPUs such as 0-3,8, not "3-1"'),
        ("{reservedSystemCPUs: 0-99999999}", "reservedSystemCPUs", 'must be a list of CPUs such as 0-3,8, not "0-99999999"'),
        ("{memoryThrottlingFactor: 0}", "memoryThrottlingFactor", "must be more than 0"),
        ("{memoryThrottlingFactor: 1.01}", "memoryThrottlingFactor", "must not be more than 1"),
        ("{memoryThrottlingFactor: .nan}", "memoryThrottlingFactor", "must be a number, not nan"),
        ("{oomScoreAdj: -1001}", "oomScoreAdj", "must not be less than -1000"),
        ("{oomScoreAdj: 1001}", "oomScoreAdj", "must not be more than 1000"),
        ("{cgroupDriver: docker}", "cgroupDriver", "must be cgroupfs or systemd"),
        ("{cpuManagerPolicy: dynamic}", "cpuManagerPolicy", "must be none or static"),
        ("{memoryReservationPolicy: Tiered}", "memoryReservationPolicy", "must be None or TieredReservation"),
        ("{memorySwap: {swapBehavior: UnlimitedSwap}}", "memorySwap.swapBehavior", "must be NoSwap or LimitedSwap"),
        ("{logging: text}", "logging", 'must be an object, not "text"'),
    ],
)  # fmt: skip
@BOTH
def test_refused_values(text: str, path: str, reason: str, profile: Any) -> None:
    assert problems(text, profile) == {path: reason}


def test_bounds_are_inclusive() -> None:
    config = read(
        "{oomScoreAdj: 1000, memoryThrottlingFactor: 1, qosReserved: {memory: 100%}, podPidsLimit: -5}"
    ).config
    assert (config.kubelet_oom_score_adj, config.memory_throttling_factor) == (1000, 1.0)
    assert config.qos_reserved_percent == {"memory": 100}
    assert config.pod_pids_limit == -1


@pytest.mark.parametrize(("period", "us"), [("1ms", 1000), ("1s", 1_000_000), ("0.1s", 100_000)])
def test_periods_within_bounds(period: str, us: int) -> None:
    assert read(f"{{cpuCFSQuotaPeriod: {period}}}", profile_named("1.36")).config.cpu_cfs_quota_period_us == us


@pytest.mark.parametrize(
    ("period", "reason"), [("999us", "not be less than 1ms"), ("1001ms", "not be more than 1s"), ("0s", "not be less than 1ms")]
)  # fmt: skip
def test_periods_out_of_bounds(period: str, reason: str) -> None:
    assert problems(f"{{cpuCFSQuotaPeriod: {period}}}", profile_named("1.36")) == {
        "cpuCFSQuotaPeriod": f"must {reason}"
    }


def test_another_period_needs_the_gate_in_documents() -> None:
    """02 §4.3: alpha and off before 1.36."""
    sentence = "other than 100ms needs the feature gate CustomCPUCFSQuotaPeriod"
    assert problems("{cpuCFSQuotaPeriod: 10ms}") == {"cpuCFSQuotaPeriod": sentence}
    gated = read("{cpuCFSQuotaPeriod: 10ms, featureGates: {CustomCPUCFSQuotaPeriod: true}}").config
    assert gated.cpu_cfs_quota_period_us == 10_000


def test_all_problems_come_at_once() -> None:
    text = "{kind: Pod, maxPods: x, systemReserved: {gpu: 1, cpu: y}, nope: 1, systemCgroups: /system}"
    assert list(problems(text, podsPerCore="-1")) == [
        "kind",
        "maxPods",
        "systemReserved[gpu]",
        "systemReserved[cpu]",
        "nope",
        "--pods-per-core",
        "systemCgroups",
    ]


@pytest.mark.parametrize("name", ["maxPods", "podPidsLimit", "memoryThrottlingFactor", "cgroupRoot"])
def test_figures_beyond_all_measure(name: str) -> None:
    with pytest.raises(InvalidConfigsError, match="not a number of that size"):
        reading({name: 10**5000}, PROFILE_DOCUMENTS)
    with pytest.raises(InvalidConfigsError, match="not a number of that size"):
        reading({"systemReserved": {"cpu": -(10**5000)}}, PROFILE_DOCUMENTS)


# Refusals of combinations


@pytest.mark.parametrize(
    ("text", "path", "reason"),
    [
        ("{enforceNodeAllocatable: [pods, pods]}", "enforceNodeAllocatable", '"pods" is listed more than once'),
        ("{enforceNodeAllocatable: [all]}", "enforceNodeAllocatable", '"all" is not one of pods, system-reserved, system-reserved-compressible, kube-reserved, kube-reserved-compressible, none'),
        ("{enforceNodeAllocatable: [pods, none]}", "enforceNodeAllocatable", '"none" must be the only entry'),
        ("{enforceNodeAllocatable: [system-reserved]}", "enforceNodeAllocatable", '"system-reserved" needs systemReservedCgroup'),
        ("{enforceNodeAllocatable: [kube-reserved-compressible]}", "enforceNodeAllocatable", '"kube-reserved-compressible" needs kubeReservedCgroup'),
        ("{enforceNodeAllocatable: [kube-reserved, kube-reserved-compressible], kubeReservedCgroup: /k}", "enforceNodeAllocatable", '"kube-reserved" and "kube-reserved-compressible" exclude each other'),
        ("{cgroupsPerQOS: false}", "enforceNodeAllocatable", '"pods" needs cgroupsPerQOS; without it only "none" is possible'),
        ("{reservedSystemCPUs: 0-1, kubeReservedCgroup: /k}", "reservedSystemCPUs", "cannot be used together with systemReservedCgroup or kubeReservedCgroup"),
        ("{systemCgroups: /system}", "systemCgroups", "needs cgroupRoot to be set as well"),
        ("{systemCgroups: /, cgroupRoot: /x}", "systemCgroups", "must not be the root cgroup"),
        ("{cpuManagerPolicy: static}", "cpuManagerPolicy", "[cpumanager] unable to determine reserved CPU resources for static policy"),
        ("{cpuManagerPolicy: static, systemReserved: {cpu: 0}}", "cpuManagerPolicy", "[cpumanager] unable to determine reserved CPU resources for static policy"),
        ("{cpuManagerPolicyOptions: {full-pcpus-only: 'true'}}", "cpuManagerPolicyOptions", "new none policy error: None policy: received unsupported options=map[full-pcpus-only:true]"),
        ("{cpuManagerPolicy: static, reservedSystemCPUs: '0', cpuManagerPolicyOptions: {full-pcpus-only: 'on'}}", "cpuManagerPolicyOptions[full-pcpus-only]", 'new static policy error: bad value for option "full-pcpus-only": strconv.ParseBool: parsing "on": invalid syntax'),
        ("{memoryReservationPolicy: TieredReservation}", "memoryReservationPolicy", "TieredReservation needs the feature gate MemoryQoS"),
        ("{reservedMemory: [{numaNode: 0, limits: {cpu: '1'}}]}", "reservedMemory[0].limits[cpu]", 'invalid configuration: the limit type "cpu" for NUMA node 0 is not supported, only [memory hugepages-<HugePageSize>] is accepted'),
        ("{syncFrequency: -1s}", "syncFrequency", "must be greater than zero"),
        ("{evictionPressureTransitionPeriod: -1s}", "evictionPressureTransitionPeriod", "must not be negative"),
    ],
)  # fmt: skip
@BOTH
def test_refused_combinations(text: str, path: str, reason: str, profile: Any) -> None:
    assert problems(text, profile) == {path: reason}


@pytest.mark.parametrize(
    "text",
    [
        "{cgroupsPerQOS: false, enforceNodeAllocatable: [none]}",
        "{cgroupsPerQOS: false, enforceNodeAllocatable: []}",
        "{enforceNodeAllocatable: [pods, system-reserved, kube-reserved-compressible], systemReservedCgroup: /s, kubeReservedCgroup: /k}",
        "{systemCgroups: /system, cgroupRoot: /}",
        "{cpuManagerPolicy: static, kubeReserved: {cpu: 100m}, cpuManagerPolicyOptions: {full-pcpus-only: 'true'}}",
        "{cpuManagerPolicy: static, reservedSystemCPUs: 0-1}",
        "{memoryReservationPolicy: TieredReservation, featureGates: {MemoryQoS: true}}",
        "{memorySwap: {swapBehavior: LimitedSwap}}",
        "{topologyManagerPolicyOptions: {nearest: 'true', max-allowable-numa-nodes: x}}",  # TM-2: none does not read them
    ],
)
@BOTH
def test_accepted_combinations(text: str, profile: Any) -> None:
    assert config_errors(read(text, profile).config, profile) == []


def test_reserved_cpus_replace_other_cpu_reservations() -> None:
    """N-10."""
    got = read(
        "{reservedSystemCPUs: '0,4-5', systemReserved: {cpu: 500m, memory: 1Gi}, kubeReserved: {cpu: '1', pid: '5'}}"
    )
    assert got.config.reserved_system_cpus == (0, 4, 5)
    assert got.config.system_reserved == {"cpu": QUANTITIES["3"], "memory": QUANTITIES["1Gi"]}
    assert got.config.kube_reserved == {"pid": QUANTITIES["5"]}
    assert got.notes == [
        "reservedSystemCPUs replaces the cpu of systemReserved",
        "reservedSystemCPUs replaces the cpu of kubeReserved",
    ]


def test_notes() -> None:
    got = read("{qosReserved: {memory: 50%}, featureGates: {KubeletTracing: true, AllAlpha: true}}")
    assert got.notes == [
        "feature gate KubeletTracing changes nothing here",
        "feature gate AllAlpha is not supported: name the single gates",
        "qosReserved has no effect while the feature gate QOSReserved is off",
    ]


def test_locked_gates() -> None:
    """GA and locked in 1.36; a documents user may still switch resize off."""
    off = "{featureGates: {InPlacePodVerticalScaling: false}}"
    assert not read(off).config.gate("InPlacePodVerticalScaling")
    locked = "cannot set feature gate InPlacePodVerticalScaling to false, feature is locked to true"
    assert problems(off, profile_named("1.36")) == {"featureGates[InPlacePodVerticalScaling]": locked}
    swap = "{featureGates: {NodeSwap: false}, memorySwap: {swapBehavior: LimitedSwap}}"
    assert problems(swap) == {"memorySwap.swapBehavior": "needs the feature gate NodeSwap"}


# Properties

scalars = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
    | st.sampled_from(["0s", "1m", "5%", "1Gi", "0-3", "static", "true", 10**4000]) | st.text("0123456789.eE+-").map(NumberText)
)  # fmt: skip


values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6) | st.integers(), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


tops: list[Any] = [*API_NAMES, "apiVersion", "kind", "other", 5]


inner_names = [*sorted({part for row in ROWS for part in row.name.split(".")[1:]}), "cpu", "memory", "memory.available"]


documents = st.dictionaries(
    st.sampled_from(tops), values | st.dictionaries(st.sampled_from(inner_names), values, max_size=3), max_size=6
)


@settings(max_examples=examples(200), deadline=None)
@given(documents | values, st.sampled_from(list(map(profile_named, PROFILE_NAMES))))
def test_any_document_is_read_or_refused(document: Any, profile: Any) -> None:
    try:
        got = reading(document, profile)
    except InvalidConfigsError as refused:
        assert refused.errors and all(error.reason for error in refused.errors)
    else:
        assert config_errors(got.config, profile) == []
        assert not {BY_NAME[name].attribute for name in got.without_effect} - {""}


@settings(max_examples=examples(200), deadline=None)
@given(st.sampled_from(WITH_FLAG), st.text(max_size=20) | st.text("0123456789=,<%-.smhGi", max_size=12))
def test_any_flag_text_is_read_or_refused(row: Row, text: str) -> None:
    try:
        flag_value(row, text)
    except InvalidConfigsError as refused:
        assert all(error.path.startswith(row.flag) for error in refused.errors)


@settings(max_examples=examples(100), deadline=None)
@given(st.sets(st.integers(0, 200), max_size=12))
def test_cpu_lists(cpus: set[int]) -> None:
    text = ",".join(map(str, cpus))
    assert flag_value(BY_NAME["reservedSystemCPUs"], text) == tuple(sorted(cpus))


@settings(max_examples=examples(100), deadline=None)
@given(st.dictionaries(st.sampled_from(["cpu", "memory", "ephemeral-storage", "pid"]), st.integers(0, 10**12)))
def test_reservations_survive_both_ways(amounts: dict[str, int]) -> None:
    by_flag = flag_value(BY_NAME["systemReserved"], ",".join(f"{name}={amount}" for name, amount in amounts.items()))
    in_file = reading({"systemReserved": amounts}, profile_named("1.36")).config.system_reserved
    assert by_flag == in_file
    assert {name: quantity.value for name, quantity in in_file.items()} == amounts


def test_documents_are_not_changed() -> None:
    document = {"systemReserved": {"cpu": "1"}, "reservedSystemCPUs": "0-1", "featureGates": {"Foo": True}}
    before = json.dumps(document)
    reading(document, PROFILE_DOCUMENTS)
    assert json.dumps(document) == before
