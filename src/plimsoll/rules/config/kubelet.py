"""The kubelet's settings as the rules use them, and the combinations that the kubelet refuses.

A KubeletConfig is complete: every setting has a value, the feature gates are resolved. `parse` builds it from a user's
file, the command line and the defaults of `table`; tests start from `default_config` and replace what they need.

Errors are of three kinds, in the kubelet's order: an invalid value (found by `parse`, with its path), settings that
contradict each other (`config_errors`), and settings that this machine does not support (`host_errors`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

from plimsoll.errors import InvalidConfigError
from plimsoll.rules.config.manager_options import (
    CPU_OPTIONS_GATE,
    CPU_OPTIONS_PATH,
    TOPOLOGY_OPTIONS_GATE,
    TOPOLOGY_OPTIONS_PATH,
    cpu_option_errors,
    no_reservation,
    none_option_error,
    options_need_gates,
    topology_option_errors,
)
from plimsoll.rules.config.reserved_memory import ReservedMemory, reserved_errors
from plimsoll.rules.config.thresholds import CONTAINERFS_AVAILABLE, CONTAINERFS_INODES_FREE
from plimsoll.rules.cpuset import cpu_text
from plimsoll.rules.model.kernel import DEFAULT_PERIOD_US, CgroupVersion
from plimsoll.rules.model.objects import CPU, ResourceList, Taint
from plimsoll.rules.profile import Profile
from plimsoll.rules.quantity import ZERO

DEFAULT_RESTART_PERIOD_S = 300.0


class PriorityPeriod(msgspec.Struct, frozen=True):
    """At shutdown: time for pods of this priority and above, up to the next entry."""

    priority: int
    grace_s: int


class KubeletConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One attribute per setting with an effect; `table` has its name in a user's file."""

    # Where cgroups are created, and their names
    cgroup_root: str
    cgroups_per_qos: bool
    cgroup_driver: Literal["cgroupfs", "systemd"]
    fail_cgroup_v1: bool
    kubelet_cgroups: str
    system_cgroups: str
    seccomp_default: bool
    allowed_unsafe_sysctls: tuple[str, ...]
    default_pod_sysctls: dict[str, str]
    user_ids_per_pod: int
    # Reserved resources
    system_reserved: ResourceList
    kube_reserved: ResourceList
    reserved_system_cpus: tuple[int, ...]
    system_reserved_cgroup: str
    kube_reserved_cgroup: str
    enforce_node_allocatable: tuple[str, ...]
    ignore_eviction_in_allocatable: bool
    qos_reserved_percent: dict[str, int]
    max_pods: int
    pods_per_core: int
    local_storage_capacity_isolation: bool
    # CPU
    cpu_cfs_quota: bool
    cpu_cfs_quota_period_us: int
    cpu_manager_policy: Literal["none", "static"]
    cpu_manager_policy_options: dict[str, str]
    cpu_manager_reconcile_period_s: float
    # Memory, swap, processes
    memory_throttling_factor: float | None  # None: no memory.high (02 §6.1)
    # Empty before 1.36 unless set: memory.min then follows requests in every class (02 §6.2).
    memory_reservation_policy: Literal["", "None", "TieredReservation"]
    memory_manager_policy: Literal["None", "Static"]
    reserved_memory: tuple[ReservedMemory, ...] | None
    # NUMA
    topology_manager_policy: Literal["none", "best-effort", "restricted", "single-numa-node"]
    topology_manager_scope: Literal["container", "pod"]
    topology_manager_policy_options: dict[str, str]
    # None: not set, so the cgroup version decides (`on_host`).
    single_process_oom_kill: bool | None
    swap_behavior: Literal["", "NoSwap", "LimitedSwap", "UnlimitedSwap"]
    fail_swap_on: bool
    pod_pids_limit: int
    kubelet_oom_score_adj: int
    protect_kernel_defaults: bool
    # Eviction: signal → text, parsed by `thresholds`
    eviction_hard: dict[str, str]
    eviction_soft: dict[str, str]
    eviction_soft_grace_period: dict[str, str]
    eviction_minimum_reclaim: dict[str, str]
    eviction_pressure_transition_period_s: float
    eviction_max_pod_grace_period_s: int
    merge_default_eviction_settings: bool
    # The running agent
    container_runtime_endpoint: str
    container_log_max_bytes: int
    container_log_max_files: int
    crash_loop_max_period_s: float
    node_status_update_s: float
    node_status_report_s: float
    node_status_max_images: int
    node_lease_s: int
    # Shutdown of the machine
    shutdown_grace_s: float
    shutdown_critical_grace_s: float
    shutdown_by_priority: tuple[PriorityPeriod, ...] | None
    # Images
    serialize_image_pulls: bool
    max_parallel_image_pulls: int | None
    image_min_age_s: float
    image_max_age_s: float
    image_gc_high_percent: int
    image_gc_low_percent: int
    credential_provider_config: str
    credential_provider_directory: str
    # Static pods
    static_pod_path: str
    static_pod_url: str
    static_pod_url_header: dict[str, tuple[str, ...]]
    file_check_s: float
    http_check_s: float
    # DNS of pods
    cluster_domain: str
    cluster_dns: tuple[str, ...]
    resolv_conf: str
    # Loops
    sync_frequency_s: float
    streaming_idle_s: float
    serves_system_logs: bool
    # The Node that is registered
    register_with_taints: tuple[Taint, ...] | None
    provider_id: str
    # The certificate of the node's server
    tls_cert_file: str
    tls_private_key_file: str
    server_tls_bootstrap: bool
    # Callers of the node's server
    client_ca_file: str
    authorization_mode: Literal["Webhook", "AlwaysAllow"]
    token_cache_s: float
    allowed_cache_s: float
    denied_cache_s: float
    # Gates
    feature_gates: dict[str, bool]

    def gate(self, name: str) -> bool:
        return self.feature_gates[name]

    @property
    def static_memory(self) -> bool:
        """Whether the memory manager binds memory to NUMA nodes."""
        return self.memory_manager_policy == "Static" and self.gate("MemoryManager")


def on_host(config: KubeletConfig, cgroup_version: CgroupVersion) -> KubeletConfig:
    """Settings that depend on the machine: an unset singleProcessOOMKill is true on v1, false on v2 (02 §5)."""
    if config.single_process_oom_kill is not None:
        return config
    return msgspec.structs.replace(config, single_process_oom_kill=cgroup_version == 1)


def host_errors(
    config: KubeletConfig, profile: Profile, cgroup_version: CgroupVersion, online_cpus: Iterable[int] | None = None
) -> list[InvalidConfigError]:
    """Why the kubelet would not start on this machine; `config` is the parsed one, before `on_host`."""
    errors = []
    if cgroup_version == 1:
        if config.fail_cgroup_v1:
            support = f". cgroup v1 support is {profile.cgroup_v1_support}" if profile.cgroup_v1_support else ""
            sentence = f"kubelet is configured to not run on a host using cgroup v1{support}; set it to false to run"
            errors.append(InvalidConfigError("failCgroupV1", sentence))
        if config.single_process_oom_kill is False:
            errors.append(
                InvalidConfigError(
                    "singleProcessOOMKill", "cgroup v1 has no group kill: leave it unset or set it to true"
                )
            )
        if config.swap_behavior == "LimitedSwap" and profile.swap_rule == "limited":  # before, it gave no swap on v1
            errors.append(InvalidConfigError("memorySwap.swapBehavior", "LimitedSwap needs cgroup v2"))
    if online_cpus is not None:
        online, reserved = set(online_cpus), config.reserved_system_cpus
        if not online.issuperset(reserved):  # CM-5
            sentence = f"reserved-cpus: {cpu_text(reserved)} is not a subset of online-cpus: {cpu_text(online)}"
            errors.append(InvalidConfigError("reservedSystemCPUs", sentence))
    return errors


def config_errors(config: KubeletConfig, profile: Profile) -> list[InvalidConfigError]:
    """Every contradiction between settings, on any machine."""
    return [
        *_cgroup_errors(config),
        *_enforcement_errors(config, profile),
        *_signal_errors(config, profile),
        *_cpu_errors(config, profile),
        *_topology_errors(config, profile),
        *_memory_errors(config, profile),
        *_duration_errors(config),
        *_back_off_errors(config),
        *_shutdown_errors(config),
        *_sysctl_errors(config),
    ]


def _cgroup_errors(config: KubeletConfig) -> Iterator[InvalidConfigError]:
    if config.system_cgroups:
        if not config.cgroup_root:
            yield InvalidConfigError("systemCgroups", "needs cgroupRoot to be set as well")
        if config.system_cgroups == "/":
            yield InvalidConfigError("systemCgroups", "must not be the root cgroup")
    if config.reserved_system_cpus and (config.system_reserved_cgroup or config.kube_reserved_cgroup):
        yield InvalidConfigError(  # N-10
            "reservedSystemCPUs", "cannot be used together with systemReservedCgroup or kubeReservedCgroup"
        )


ENFORCEABLE = (
    "pods",
    "system-reserved",
    "system-reserved-compressible",
    "kube-reserved",
    "kube-reserved-compressible",
    "none",
)


def _enforcement_errors(config: KubeletConfig, profile: Profile) -> Iterator[InvalidConfigError]:
    """01 §10.4."""
    path, values = "enforceNodeAllocatable", config.enforce_node_allocatable
    possible = [
        value for value in ENFORCEABLE if profile.compressible_enforcement or not value.endswith("-compressible")
    ]
    cgroups = {"system": config.system_reserved_cgroup, "kube": config.kube_reserved_cgroup}
    for value in sorted({value for value in values if values.count(value) > 1}):
        yield InvalidConfigError(path, f'"{value}" is listed more than once')
    for owner in cgroups:
        if {f"{owner}-reserved", f"{owner}-reserved-compressible"}.issubset(values):
            yield InvalidConfigError(path, f'"{owner}-reserved" and "{owner}-reserved-compressible" exclude each other')
    for value in dict.fromkeys(values):
        owner = value.partition("-")[0]
        if value not in possible:
            yield InvalidConfigError(path, f'"{value}" is not one of {", ".join(possible)}')
        elif value == "none":
            if not (config.cgroups_per_qos or profile.enforcement_without_hierarchy):
                yield InvalidConfigError(path, "must be empty without cgroupsPerQOS")
            if len(values) > 1:
                yield InvalidConfigError(path, '"none" must be the only entry')
        else:
            if owner in cgroups and not cgroups[owner]:
                yield InvalidConfigError(path, f'"{value}" needs {owner}ReservedCgroup')
            if not config.cgroups_per_qos:
                yield InvalidConfigError(path, f'"{value}" needs cgroupsPerQOS; without it only "none" is possible')


def _signal_errors(config: KubeletConfig, profile: Profile) -> Iterator[InvalidConfigError]:
    """Signals that the release does not have yet; other names are the parser's (04 §2.1)."""
    maps = {
        "evictionHard": config.eviction_hard,
        "evictionSoft": config.eviction_soft,
        "evictionSoftGracePeriod": config.eviction_soft_grace_period,
        "evictionMinimumReclaim": config.eviction_minimum_reclaim,
    }
    for name, signals in maps.items() if not profile.containerfs_signals else ():
        for signal in signals:
            if signal in (CONTAINERFS_AVAILABLE, CONTAINERFS_INODES_FREE):
                yield InvalidConfigError(f"{name}[{signal}]", f"unsupported eviction signal {signal}")


# 02 §10; whether they are alpha, beta or stable does not matter.
def _cpu_errors(config: KubeletConfig, profile: Profile) -> Iterator[InvalidConfigError]:
    if config.cpu_cfs_quota_period_us != DEFAULT_PERIOD_US and not config.gate("CustomCPUCFSQuotaPeriod"):
        yield InvalidConfigError("cpuCFSQuotaPeriod", "other than 100ms needs the feature gate CustomCPUCFSQuotaPeriod")
    options = config.cpu_manager_policy_options
    if options and not config.gate(CPU_OPTIONS_GATE):
        yield options_need_gates("CPU Manager", options, CPU_OPTIONS_PATH, "CPUManager", CPU_OPTIONS_GATE)
        options = {}
    if config.cpu_manager_policy == "static":
        reserved = config.system_reserved.get(CPU, ZERO) + config.kube_reserved.get(CPU, ZERO)
        if not reserved:
            yield no_reservation()
        yield from cpu_option_errors(options, config.gate, profile, config.topology_manager_policy)
    elif (error := none_option_error(options)) is not None:
        yield error


def _topology_errors(config: KubeletConfig, profile: Profile) -> Iterator[InvalidConfigError]:
    options = config.topology_manager_policy_options
    if options and not config.gate(TOPOLOGY_OPTIONS_GATE):
        yield options_need_gates("topology manager", options, TOPOLOGY_OPTIONS_PATH, TOPOLOGY_OPTIONS_GATE)
    elif config.topology_manager_policy != "none":  # none does not read its options
        yield from topology_option_errors(options, config.gate, profile)


FORMER_FACTOR = 0.9  # the default up to 1.36, which a file may still contain
# What memorySwap.swapBehavior may be, by `swap_rule` (02 §5).
SWAP_BEHAVIORS = {
    "memory and swap": ("LimitedSwap", "UnlimitedSwap"),
    "unlimited": ("LimitedSwap", "UnlimitedSwap"),
    "limited": ("NoSwap", "LimitedSwap"),
}


def _memory_errors(config: KubeletConfig, profile: Profile) -> Iterator[InvalidConfigError]:
    if config.memory_reservation_policy == "TieredReservation" and not config.gate("MemoryQoS"):
        yield InvalidConfigError("memoryReservationPolicy", "TieredReservation needs the feature gate MemoryQoS")
    factor = config.memory_throttling_factor
    if profile.throttling_factor_needs_gate and factor not in (None, FORMER_FACTOR) and not config.gate("MemoryQoS"):
        sentence = "memoryThrottlingFactor must not be set when MemoryQoS feature gate is disabled"
        yield InvalidConfigError("memoryThrottlingFactor", sentence)
    yield from reserved_errors(config.reserved_memory or ())
    known = SWAP_BEHAVIORS[profile.swap_rule]
    if config.swap_behavior and config.swap_behavior not in known:
        yield InvalidConfigError("memorySwap.swapBehavior", f"must be {' or '.join(known)}")
    if config.swap_behavior and not config.gate("NodeSwap"):
        yield InvalidConfigError("memorySwap.swapBehavior", "needs the feature gate NodeSwap")


def _duration_errors(config: KubeletConfig) -> Iterator[InvalidConfigError]:
    # The kubelet accepts them and then never waits; Plimsoll's loops must not spin.
    if config.sync_frequency_s <= 0:
        yield InvalidConfigError("syncFrequency", "must be greater than zero")
    if config.cpu_manager_reconcile_period_s <= 0:
        yield InvalidConfigError("cpuManagerReconcilePeriod", "must be greater than zero")
    if config.eviction_pressure_transition_period_s < 0:
        yield InvalidConfigError("evictionPressureTransitionPeriod", "must not be negative")


def _back_off_errors(config: KubeletConfig) -> Iterator[InvalidConfigError]:
    """The text is the kubelet's."""
    gate, field = "KubeletCrashLoopBackOffMax", "maxContainerRestartPeriod"
    if config.crash_loop_max_period_s != DEFAULT_RESTART_PERIOD_S and not config.gate(gate):
        sentence = f"FeatureGate {gate} not enabled, CrashLoopBackOff.MaxContainerRestartPeriod must not be set"
        yield InvalidConfigError(f"crashLoopBackOff.{field}", sentence)


TOTAL, CRITICAL, BY_PRIORITY = (
    "shutdownGracePeriod",
    "shutdownGracePeriodCriticalPods",
    "shutdownGracePeriodByPodPriority",
)


def _shutdown_errors(config: KubeletConfig) -> Iterator[InvalidConfigError]:
    total_s, critical_s, periods = (
        config.shutdown_grace_s,
        config.shutdown_critical_grace_s,
        config.shutdown_by_priority,
    )
    is_set = total_s > 0 or critical_s > 0
    if config.gate("GracefulNodeShutdown"):
        if critical_s > total_s:
            yield InvalidConfigError(CRITICAL, f"must be at most {TOTAL}, {total_s:g} s")
        for path, value in ((TOTAL, total_s), (CRITICAL, critical_s)):
            if value < 0 or 0 < value < 1:
                yield InvalidConfigError(path, "must be zero or at least 1s")
    elif is_set:
        yield InvalidConfigError(TOTAL if total_s > 0 else CRITICAL, "needs the feature gate GracefulNodeShutdown")
    if periods and not config.gate("GracefulNodeShutdownBasedOnPodPriority"):
        yield InvalidConfigError(BY_PRIORITY, "needs the feature gate GracefulNodeShutdownBasedOnPodPriority")
    elif periods and is_set:
        yield InvalidConfigError(BY_PRIORITY, f"cannot be used together with {TOTAL}: remove one of them")


def _sysctl_errors(config: KubeletConfig) -> Iterator[InvalidConfigError]:
    """The texts are the kubelet's."""
    field = "defaultPodSysctls"
    if not config.default_pod_sysctls:
        return
    if not config.gate("DefaultPodSysctls"):
        sentence = f"DefaultPodSysctls feature gate is required for Kubelet configuration option {field}"
        yield InvalidConfigError(field, sentence)
        return
    from plimsoll.rules.model.sysctls import is_name, namespace_of, normalized  # few configurations have them

    seen: set[str] = set()
    for name in config.default_pod_sysctls:
        path = f"{field}[{name}]"
        if not is_name(name):
            yield InvalidConfigError(path, f'"{name}" is not a valid sysctl name for {field}')
            continue
        if not namespace_of(normalized(name)):
            yield InvalidConfigError(path, f'"{name}" is not known to be namespaced for {field}')
        if normalized(name) in seen:
            yield InvalidConfigError(path, f'duplicate sysctl "{normalized(name)}" found in {field}')
        seen.add(normalized(name))
