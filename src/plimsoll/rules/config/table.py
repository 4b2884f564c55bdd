"""Every setting of the kubelet's configuration file, one row each: for the parser, the flags and the documentation.

A row has the setting's name in the file (a dot leads into a nested object), its kind of value, its default as written
in a file, and the kubelet's command-line flag. `attribute` is its name in KubeletConfig; a row without one is accepted,
because real files contain it, and has no effect.

Defaults are the same in all profiles unless `changed` says otherwise; `None` means not set.
"""

from __future__ import annotations

import msgspec

from plimsoll.rules.config.field_types import KIND_WORDS, Kind
from plimsoll.rules.config.gates import GATES
from plimsoll.rules.config.thresholds import DEFAULT_EVICTION_HARD, EVICTION_HARD_1_27
from plimsoll.rules.profile import DOCUMENTS, Profile, minor

API_VERSION = "kubelet.config.k8s.io/v1beta1"
KIND = "KubeletConfiguration"


class Row(msgspec.Struct, frozen=True):
    name: str
    kind: Kind
    default: object
    flag: str
    description: str
    attribute: str = ""
    changed: dict[str, object] = {}  # release → the default from then on
    choices: tuple[str, ...] = ()
    least: object = None  # bounds are written as values are
    most: object = None
    above: object = None
    gate: str = ""  # without this feature gate the setting does nothing
    zero_is_unset: bool = False  # zero or empty text in the file means the default, as in Go
    in_file: bool = True  # false: the kubelet has it only as a flag
    since: str = ""  # the first release whose file has it; older kubelets ignore it

    def is_in(self, profile: Profile) -> bool:
        """Whether the release has the setting; profile `documents` has all."""
        return not self.since or profile.name == DOCUMENTS or minor(profile.release) >= minor(self.since)

    def default_in(self, profile: str) -> object:
        if not self.changed or profile == DOCUMENTS:
            return self.default
        since = [release for release in self.changed if minor(release) <= minor(profile)]
        return self.changed[since[-1]] if since else self.default


# fmt: off
ROWS: tuple[Row, ...] = (
    # Where cgroups are created
    Row("cgroupRoot", "text", "", "--cgroup-root",
        "The cgroup below which kubepods is created; empty is the root.", "cgroup_root"),
    Row("cgroupsPerQOS", "boolean", True, "--cgroups-per-qos",
        "Build the hierarchy of kubepods, QoS classes and pods.", "cgroups_per_qos"),
    Row("cgroupDriver", "text", "cgroupfs", "--cgroup-driver",
        "How cgroups are created: direct writes or systemd units; since 1.31 the runtime's wins.", "cgroup_driver",
        choices=("cgroupfs", "systemd"), zero_is_unset=True),
    Row("failCgroupV1", "boolean", False, "--fail-cgroupv1",
        "Refuse to start on cgroup v1; the kubelet's default since 1.35.", "fail_cgroup_v1", since="1.31"),
    Row("kubeletCgroups", "text", "", "--kubelet-cgroups",
        "Absolute name of the cgroup that the node agent moves itself into.", "kubelet_cgroups"),
    Row("systemCgroups", "text", "", "--system-cgroups",
        "Absolute name of the cgroup for all other processes of the root cgroup; needs cgroupRoot, and "
        "--allow-move-system-processes.", "system_cgroups"),
    Row("runtimeCgroups", "text", "", "--runtime-cgroups",
        "Absolute name of the cgroup that the container runtime runs in.", in_file=False),

    # Reserved resources
    Row("systemReserved", "quantities", {}, "--system-reserved",
        "Resources reserved for the operating system: cpu, memory, ephemeral-storage, pid.", "system_reserved"),
    Row("kubeReserved", "quantities", {}, "--kube-reserved",
        "Resources reserved for the kubelet and the container runtime, same names.", "kube_reserved"),
    Row("reservedSystemCPUs", "cpus", "", "--reserved-cpus",
        "CPUs reserved for the system; their number replaces the reserved cpu above.", "reserved_system_cpus"),
    Row("systemReservedCgroup", "text", "", "--system-reserved-cgroup",
        "Existing cgroup that systemReserved is enforced on.", "system_reserved_cgroup"),
    Row("kubeReservedCgroup", "text", "", "--kube-reserved-cgroup",
        "Existing cgroup that kubeReserved is enforced on.", "kube_reserved_cgroup"),
    Row("enforceNodeAllocatable", "texts", ["pods"], "--enforce-node-allocatable",
        "Which cgroups are limited: pods, system-reserved, kube-reserved, or none.",
        "enforce_node_allocatable"),
    Row("experimentalAllocatableIgnoreEviction", "boolean", False, "--experimental-allocatable-ignore-eviction",
        "Leave the hard eviction threshold out of the node's allocatable.", "ignore_eviction_in_allocatable",
        in_file=False),
    Row("qosReserved", "percentages", {}, "--qos-reserved",
        "Share of the memory requests of higher classes that lower classes may not use.", "qos_reserved_percent",
        gate="QOSReserved"),
    Row("maxPods", "integer", 110, "--max-pods",
        "How many pods the node accepts.", "max_pods", least=0, zero_is_unset=True),
    Row("podsPerCore", "integer", 0, "--pods-per-core",
        "Pods per logical core, at most maxPods; 0 is no such bound.", "pods_per_core", least=0),
    Row("localStorageCapacityIsolation", "boolean", True, "--local-storage-capacity-isolation",
        "Count ephemeral-storage as a resource of the node.", "local_storage_capacity_isolation"),

    # CPU
    Row("cpuCFSQuota", "boolean", True, "--cpu-cfs-quota",
        "Enforce CPU limits as quotas.", "cpu_cfs_quota"),
    Row("cpuCFSQuotaPeriod", "period", "100ms", "--cpu-cfs-quota-period",
        "Period of these quotas, 1ms to 1s.", "cpu_cfs_quota_period_us",
        least="1ms", most="1s", gate="CustomCPUCFSQuotaPeriod"),
    Row("cpuManagerPolicy", "text", "none", "--cpu-manager-policy",
        "Whether Guaranteed containers with whole CPUs get exclusive CPUs.", "cpu_manager_policy",
        choices=("none", "static"), zero_is_unset=True),
    Row("cpuManagerPolicyOptions", "map", {}, "--cpu-manager-policy-options",
        "Options of the static policy, such as full-pcpus-only: [topology](topology.md#cpu-manager).",
        "cpu_manager_policy_options"),
    Row("cpuManagerReconcilePeriod", "duration", "10s", "--cpu-manager-reconcile-period",
        "How often cpusets are reconciled.", "cpu_manager_reconcile_period_s",
        zero_is_unset=True),

    # Memory, swap, processes
    Row("memoryThrottlingFactor", "number", 0.9, "",
        "Where memory.high lies between request and limit, above 0 and at most 1.", "memory_throttling_factor",
        changed={"1.37": None}, above=0, most=1, gate="MemoryQoS"),
    Row("memoryReservationPolicy", "text", "", "",
        "Which protection requests give. Unset before 1.36: memory.min in every class.", "memory_reservation_policy",
        changed={"1.36": "None"}, choices=("None", "TieredReservation"), gate="MemoryQoS", zero_is_unset=True,
        since="1.36"),
    Row("memoryManagerPolicy", "text", "None", "--memory-manager-policy",
        "Static binds the memory of Guaranteed pods to NUMA nodes.", "memory_manager_policy",
        choices=("None", "Static"), gate="MemoryManager", zero_is_unset=True),
    Row("reservedMemory", "reserved", None, "--reserved-memory",
        "Memory of each NUMA node that no pod gets, for memoryManagerPolicy Static.", "reserved_memory"),
    Row("singleProcessOOMKill", "boolean", None, "",
        "Kill one process on a container's out-of-memory, not all; unset: true on v1, false on v2.",
        "single_process_oom_kill", since="1.32"),
    Row("memorySwap.swapBehavior", "text", "", "",
        "Whether Burstable containers may use swap, in proportion to their request; empty is NoSwap. Up to 1.29: "
        "LimitedSwap or UnlimitedSwap.",
        "swap_behavior", choices=("NoSwap", "LimitedSwap", "UnlimitedSwap"), gate="NodeSwap", zero_is_unset=True),
    Row("failSwapOn", "boolean", True, "--fail-swap-on",
        "Refuse to start while swap is on.", "fail_swap_on"),
    Row("podPidsLimit", "long", -1, "--pod-max-pids",
        "Most processes in one pod; negative or 0 sets no limit.", "pod_pids_limit"),
    Row("oomScoreAdj", "integer", -999, "--oom-score-adj",
        "The node agent's own oom_score_adj.", "kubelet_oom_score_adj", least=-1000, most=1000),
    Row("protectKernelDefaults", "boolean", False, "--protect-kernel-defaults",
        "Fail if kernel parameters differ from the expected values.", "protect_kernel_defaults"),

    # Eviction
    Row("evictionHard", "thresholds", dict(DEFAULT_EVICTION_HARD), "--eviction-hard",
        "Below these amounts pods are evicted at once; setting one replaces all defaults.", "eviction_hard",
        changed={"1.27": dict(EVICTION_HARD_1_27), "1.30": dict(DEFAULT_EVICTION_HARD)}),
    Row("evictionSoft", "thresholds", {}, "--eviction-soft",
        "Below these amounts pods are evicted after a grace period.", "eviction_soft"),
    Row("evictionSoftGracePeriod", "amounts", {}, "--eviction-soft-grace-period",
        "How long each soft threshold must hold; needed for every soft threshold.", "eviction_soft_grace_period"),
    Row("evictionMinimumReclaim", "amounts", {}, "--eviction-minimum-reclaim",
        "How much more than the threshold must be free again.", "eviction_minimum_reclaim"),
    Row("evictionPressureTransitionPeriod", "duration", "5m", "--eviction-pressure-transition-period",
        "How long a pressure condition stays after the pressure.", "eviction_pressure_transition_period_s",
        zero_is_unset=True),
    Row("evictionMaxPodGracePeriod", "integer", 0, "--eviction-max-pod-grace-period",
        "Longest termination grace of a soft eviction, in seconds.", "eviction_max_pod_grace_period_s"),
    Row("mergeDefaultEvictionSettings", "boolean", False, "",
        "Keep the default thresholds of signals that the file's evictionHard leaves out.",
        "merge_default_eviction_settings", since="1.33"),

    # Loops and gates
    Row("syncFrequency", "duration", "1m", "--sync-frequency",
        "Longest time between two syncs of a pod.", "sync_frequency_s", zero_is_unset=True),
    Row("featureGates", "gates", {}, "--feature-gates",
        "Features switched on or off by name: MemoryQoS=true.", "feature_gates"),

    # The running agent: logs, restarts, the Node's status
    Row("containerRuntimeEndpoint", "text", "", "--container-runtime-endpoint",
        "Socket of the container runtime, as unix:///run/containerd/containerd.sock; empty is the embedded one.",
        "container_runtime_endpoint"),
    Row("containerLogMaxSize", "quantity", "10Mi", "--container-log-max-size",
        "When a log file is rotated.", "container_log_max_bytes", zero_is_unset=True),
    Row("containerLogMaxFiles", "integer", 5, "--container-log-max-files",
        "Log files kept per container.", "container_log_max_files", least=2, zero_is_unset=True),
    Row("crashLoopBackOff.maxContainerRestartPeriod", "duration", "5m", "",
        "Longest wait before a restart.", "crash_loop_max_period_s", least="1s", most="5m", since="1.32"),
    Row("nodeStatusUpdateFrequency", "duration", "10s", "--node-status-update-frequency",
        "How often the node's status is computed.", "node_status_update_s", above="0s", zero_is_unset=True),
    Row("nodeStatusReportFrequency", "duration", "5m", "",
        "How often an unchanged status is sent.", "node_status_report_s", above="0s", zero_is_unset=True),
    Row("nodeStatusMaxImages", "integer", 50, "--node-status-max-images",
        "Images listed in the status; -1 is all.", "node_status_max_images", least=-1),
    Row("nodeLeaseDurationSeconds", "integer", 40, "",
        "How long the node's lease lasts; it is renewed four times as often.", "node_lease_s", above=0,
        zero_is_unset=True),

    # Static pods
    Row("staticPodPath", "text", "", "--pod-manifest-path",
        "Directory or file with static pods, watched.", "static_pod_path"),
    Row("staticPodURL", "text", "", "--manifest-url",
        "Address to fetch static pods from, http or https.", "static_pod_url"),
    Row("staticPodURLHeader", "headers", {}, "--manifest-url-header",
        "HTTP headers sent to staticPodURL.", "static_pod_url_header"),
    Row("fileCheckFrequency", "duration", "20s", "--file-check-frequency",
        "How often staticPodPath is read without a change.", "file_check_s", above="0s",
        zero_is_unset=True),
    Row("httpCheckFrequency", "duration", "20s", "--http-check-frequency",
        "How often staticPodURL is read.", "http_check_s", above="0s", zero_is_unset=True),

    # Without effect: eviction
    Row("kernelMemcgNotification", "boolean", False, "--kernel-memcg-notification",
        "Let the kernel report a crossed memory threshold between two polls; always on with cgroup v1, unavailable on "
        "cgroup v2."),

    # NUMA
    Row("topologyManagerPolicy", "text", "none", "--topology-manager-policy",
        "How strictly CPUs, memory and devices of a pod come from the same NUMA nodes.", "topology_manager_policy",
        choices=("none", "best-effort", "restricted", "single-numa-node"), zero_is_unset=True),
    Row("topologyManagerScope", "text", "container", "--topology-manager-scope",
        "Whether each container is aligned, or the pod as a whole.", "topology_manager_scope",
        choices=("container", "pod"), zero_is_unset=True),
    Row("topologyManagerPolicyOptions", "map", {}, "--topology-manager-policy-options",
        "prefer-closest-numa-nodes and max-allowable-numa-nodes.", "topology_manager_policy_options"),

    # Without effect: DRA
    Row("draManagerReconcilePeriod", "duration", "1m", "", "How often claimed devices are compared."),

    # Without effect: the node's own server and its certificates
    Row("enableServer", "boolean", True, "--enable-server", "Serve the node's HTTPS endpoint."),
    Row("address", "text", "0.0.0.0", "--address", "Address of the HTTPS endpoint."),
    Row("port", "integer", 10250, "--port", "Port of the HTTPS endpoint."),
    Row("readOnlyPort", "integer", 0, "--read-only-port", "Port without authentication; 0 is none."),
    Row("healthzPort", "integer", 10248, "--healthz-port", "Port of the health endpoint."),
    Row("healthzBindAddress", "text", "127.0.0.1", "--healthz-bind-address", "Address of the health endpoint."),
    Row("tlsCipherSuites", "texts", [], "--tls-cipher-suites", "Allowed cipher suites."),
    Row("tlsCurvePreferences", "list", None, "", "Allowed key exchanges, by number.", since="1.36"),
    Row("tlsMinVersion", "text", "", "--tls-min-version", "Oldest TLS version."),
    Row("rotateCertificates", "boolean", False, "--rotate-certificates",
        "Renew the client certificate; always done."),
    Row("authentication.webhook.enabled", "boolean", True, "--authentication-token-webhook",
        "Ask the API about bearer tokens."),
    Row("authentication.x509.clientCAFile", "text", "", "--client-ca-file",
        "CA of client certificates; empty: that of the kubeconfig.", "client_ca_file"),
    Row("authentication.webhook.cacheTTL", "duration", "2m", "--authentication-token-webhook-cache-ttl",
        "How long answers about tokens are cached.", "token_cache_s",
        zero_is_unset=True),
    Row("authentication.anonymous.enabled", "boolean", False, "--anonymous-auth", "Accept anonymous requests."),
    Row("authorization.mode", "text", "Webhook", "--authorization-mode",
        "Webhook: ask the API; AlwaysAllow: every caller with valid credentials.", "authorization_mode",
        choices=("Webhook", "AlwaysAllow"), zero_is_unset=True),
    Row("authorization.webhook.cacheAuthorizedTTL", "duration", "5m", "--authorization-webhook-cache-authorized-ttl",
        "How long an allowed answer is cached.", "allowed_cache_s", zero_is_unset=True),
    Row("authorization.webhook.cacheUnauthorizedTTL", "duration", "30s",
        "--authorization-webhook-cache-unauthorized-ttl", "How long a denied answer is cached.", "denied_cache_s",
        zero_is_unset=True),
    Row("streamingConnectionIdleTimeout", "duration", "4h", "--streaming-connection-idle-timeout",
        "When an exec, attach or port-forward connection without traffic is closed.", "streaming_idle_s",
        zero_is_unset=True),
    Row("enableDebuggingHandlers", "boolean", True, "--enable-debugging-handlers", "Serve logs, exec and the like."),
    Row("enableContentionProfiling", "boolean", False, "--contention-profiling", "Serve lock profiles."),
    Row("enableProfilingHandler", "boolean", True, "", "Serve profiles."),
    Row("enableDebugFlagsHandler", "boolean", True, "", "Let the log level be changed over HTTP."),
    Row("enableSystemLogHandler", "boolean", True, "", "Serve the machine's log directory at /logs/.",
        "serves_system_logs"),
    Row("enableSystemLogQuery", "boolean", False, "", "Let the machine's logs be searched."),

    # Without effect: images, logs
    Row("podLogsDir", "text", "/var/log/pods", "", "Directory of the pods' log files.", since="1.30"),
    Row("containerLogMaxWorkers", "integer", 1, "", "Log rotations at one time.", since="1.30"),
    Row("containerLogMonitorInterval", "duration", "10s", "", "How often log sizes are checked.", since="1.30"),
    Row("registryPullQPS", "integer", 5, "--registry-qps", "Image pulls per second; 0 is unlimited."),
    Row("registryBurst", "integer", 10, "--registry-burst", "Image pulls in one burst."),
    Row("imagePullCredentialsVerificationPolicy", "text", "", "", "Which pods must prove access to present images.",
        changed={"1.35": "NeverVerifyPreloadedImages"}, since="1.33"),
    Row("preloadedImagesVerificationAllowlist", "texts", [], "", "Images that every pod may use once present.",
        since="1.33"),

    # The certificate of the node's server
    Row("tlsCertFile", "text", "", "--tls-cert-file",
        "Serving certificate; without one, and without serverTLSBootstrap, the client certificate serves.",
        "tls_cert_file"),
    Row("tlsPrivateKeyFile", "text", "", "--tls-private-key-file", "Key of the serving certificate.",
        "tls_private_key_file"),
    Row("serverTLSBootstrap", "boolean", False, "--rotate-server-certificates",
        "Request the serving certificate from the cluster, and renew it.", "server_tls_bootstrap"),

    # The Node that is registered
    Row("registerWithTaints", "taints", None, "--register-with-taints", "Taints of a newly created Node.",
        "register_with_taints"),
    Row("providerID", "text", "", "--provider-id", "The machine's name at its cloud provider.", "provider_id"),

    # Shutdown of the machine, where systemd-logind runs
    Row("shutdownGracePeriod", "duration", "0s", "", "Time for pods when the machine shuts down.",
        "shutdown_grace_s"),
    Row("shutdownGracePeriodCriticalPods", "duration", "0s", "",
        "The part of shutdownGracePeriod for critical pods.", "shutdown_critical_grace_s"),
    Row("shutdownGracePeriodByPodPriority", "priorities", None, "",
        "In place of shutdownGracePeriod: time for pods, by their priority.", "shutdown_by_priority"),

    # Images of a CRI runtime
    Row("serializeImagePulls", "boolean", True, "--serialize-image-pulls", "Pull one image at a time.",
        "serialize_image_pulls"),
    Row("maxParallelImagePulls", "integer", None, "", "Pulls at one time, if not one by one.",
        "max_parallel_image_pulls", least=1),
    Row("imageMinimumGCAge", "duration", "2m", "--minimum-image-ttl-duration",
        "Unused images younger than this stay.", "image_min_age_s", zero_is_unset=True),
    Row("imageMaximumGCAge", "duration", "0s", "", "Unused images older than this are removed; 0s is never.",
        "image_max_age_s", since="1.29"),
    Row("imageGCHighThresholdPercent", "integer", 85, "--image-gc-high-threshold",
        "Disk use that starts a clean-up.", "image_gc_high_percent", least=0, most=100),
    Row("imageGCLowThresholdPercent", "integer", 80, "--image-gc-low-threshold",
        "Disk use that ends a clean-up.", "image_gc_low_percent", least=0, most=100),

    Row("imageCredentialProviderConfig", "text", "", "--image-credential-provider-config",
        "File with the credential provider plugins.", "credential_provider_config", in_file=False),
    Row("imageCredentialProviderBinDir", "text", "", "--image-credential-provider-bin-dir",
        "Directory of the credential provider plugins.", "credential_provider_directory", in_file=False),

    # Security
    Row("seccompDefault", "boolean", False, "--seccomp-default",
        "Containers without a seccompProfile get RuntimeDefault; always so with the embedded runtime.",
        "seccomp_default"),
    Row("allowedUnsafeSysctls", "texts", [], "--allowed-unsafe-sysctls",
        "Sysctls that pods may set besides the safe ones; a name, or a prefix that ends with *.",
        "allowed_unsafe_sysctls"),
    Row("defaultPodSysctls", "map", {}, "",
        "Sysctls of every pod, unless it shares the namespace with the host; its own win.", "default_pod_sysctls",
        gate="DefaultPodSysctls", since="1.37"),
    Row("userNamespaces.idsPerPod", "long", 65536, "",
        "Users and groups of a pod with hostUsers: false; a multiple of 65536.", "user_ids_per_pod", since="1.33"),

    # DNS of pods
    Row("clusterDomain", "text", "", "--cluster-domain", "DNS domain of the cluster, searched first.",
        "cluster_domain"),
    Row("clusterDNS", "texts", [], "--cluster-dns",
        "DNS servers of pods with dnsPolicy ClusterFirst; without any, they use the node's.", "cluster_dns"),
    Row("resolvConf", "text", "/etc/resolv.conf", "--resolv-conf",
        "The node's resolver file, which pods inherit; empty: none.", "resolv_conf"),

    # Without effect: runtime, network, volumes
    Row("imageServiceEndpoint", "text", "", "--image-service-endpoint", "Socket of the image service, if it differs."),
    Row("runtimeRequestTimeout", "duration", "2m", "--runtime-request-timeout", "Timeout of requests to the runtime."),
    Row("podCIDR", "text", "", "--pod-cidr", "Addresses of pods on a node without a cluster."),
    Row("hairpinMode", "text", "promiscuous-bridge", "--hairpin-mode", "How a pod reaches itself through a Service."),
    Row("makeIPTablesUtilChains", "boolean", True, "--make-iptables-util-chains", "Leave a hint in iptables."),
    Row("iptablesMasqueradeBit", "integer", 14, "", "Formerly a mark in iptables."),
    Row("iptablesDropBit", "integer", 15, "", "Formerly a mark in iptables."),
    Row("volumePluginDir", "text", "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/", "--volume-plugin-dir",
        "Directory of volume plug-ins."),
    Row("volumeStatsAggPeriod", "duration", "1m", "--volume-stats-agg-period", "How often volumes are measured."),
    Row("enableControllerAttachDetach", "boolean", True, "--enable-controller-attach-detach",
        "Leave attaching volumes to the control plane."),

    # Without effect: the cluster's side, shutdown, and the rest
    Row("registerNode", "boolean", True, "--register-node", "Create the Node object."),
    Row("eventRecordQPS", "integer", 50, "--event-qps", "Events per second; 0 is unlimited."),
    Row("eventBurst", "integer", 100, "--event-burst", "Events in one burst."),
    Row("kubeAPIQPS", "integer", 50, "--kube-api-qps", "Requests per second to the API server."),
    Row("kubeAPIBurst", "integer", 100, "--kube-api-burst", "Requests to the API server in one burst."),
    Row("contentType", "text", "application/vnd.kubernetes.protobuf", "--kube-api-content-type",
        "Encoding of requests to the API server."),
    Row("configMapAndSecretChangeDetectionStrategy", "text", "Watch", "", "How changes of Secrets are detected."),
    Row("maxOpenFiles", "long", 1_000_000, "--max-open-files", "Files the node agent may open."),
    Row("runOnce", "boolean", False, "--runonce", "Run static pods once and end."),
    Row("showHiddenMetricsForVersion", "text", "", "", "Show metrics that this version hid."),
    Row("logging", "object", None, "", "Format, level and buffering of the kubelet's log."),
    Row("tracing", "object", None, "", "Where traces go."),
)
# fmt: on

BY_NAME = {row.name: row for row in ROWS}
WITH_FLAG = tuple(row for row in ROWS if row.flag)


def markdown() -> str:
    """The page `docs/kubelet-config.md`."""
    used = [row for row in ROWS if row.attribute]
    unused = [row for row in ROWS if not row.attribute]
    return "\n".join(
        [
            "# Kubelet configuration",
            "",
            f"A `{KIND}` file (`{API_VERSION}`) is read as it is. A flag wins over the file, the file over",
            "the defaults below. Where releases differ, the default since a release is named. A name in",
            "neither table is refused; a dot leads into a nested object. As in the kubelet, an empty text, a duration",
            "of `0s` and `maxPods: 0` in the file mean the default. In the profile of a release, a setting that came",
            "later has no effect, because a kubelet ignores what it does not know.",
            "",
            "## Settings with an effect",
            "",
            *_table(used),
            "",
            "## Settings accepted without effect",
            "",
            *_table(unused),
            "",
            "## Feature gates",
            "",
            "The gates that a rule uses. [Profiles](profiles.md#feature-gates) has their defaults. Other gates change",
            "nothing. A gate that a release does not have, or has locked, is refused in its profile.",
            "",
            "| gate | on means |",
            "|---|---|",
            *(f"| {gate.name} | {gate.description} |" for gate in GATES),
            "",
        ]
    )


def _table(rows: list[Row]) -> list[str]:
    return [
        "| setting | flag | value | default | meaning |",
        "|---|---|---|---|---|",
        *(
            f"| {_code(row.name) if row.in_file else '(only a flag)'} | {_code(row.flag)} "
            f"| {' or '.join(map(_code, row.choices)) or KIND_WORDS[row.kind]} "
            f"| {_defaults(row)} | {row.description}{f' Gate {row.gate}.' if row.gate else ''}"
            f"{f' Since {row.since}.' if row.since else ''} |"
            for row in rows
        ),
    ]


def _defaults(row: Row) -> str:
    first = _shown(row.default)
    later = [f"{_shown(value) or 'none'} since {release}" for release, value in row.changed.items()]
    return ", ".join([first or "none", *later]) if later else first


def _shown(value: object) -> str:
    if value is None or value == "" or value == []:
        return ""
    if isinstance(value, dict):
        return ", ".join(f"{name} {text}" for name, text in value.items())
    import json

    return _code(value if isinstance(value, str) else json.dumps(value))


def _code(text: str) -> str:
    return f"`{text}`" if text else ""
