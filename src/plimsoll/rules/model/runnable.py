"""The fields that running a pod needs beside its resources: commands, probes, hooks, mounts, statuses.

A `RunPod` is a lean `Pod` with more fields, so every rule for a Pod accepts it, and a node decodes a pod's document
once. As in `objects`, `None` is absent. Settings that this node refuses (volume kinds, security settings, hooks) are
kept as in the document, because a refusal names the field.
"""

from __future__ import annotations

import msgspec

from plimsoll.rules.model.objects import (
    Container,
    Int,
    Int32,
    Lean,
    Metadata,
    Pod,
    PodSpec,
    Port,
)
from plimsoll.rules.model.observed import ContainerKind
from plimsoll.rules.model.pod_status import RunStatus
from plimsoll.rules.model.run_volumes import ObjectField, RefusedField, ResourceField, RunVolume, VolumeMount

ALWAYS, ON_FAILURE, NEVER = "Always", "OnFailure", "Never"
DEFAULT_GRACE_S = 30
DEFAULT_MESSAGE_PATH = "/dev/termination-log"
FALLBACK_TO_LOGS = "FallbackToLogsOnError"


class RunPort(Port, frozen=True, gc=False):
    name: str = ""


# Environment


class KeyOf(Lean, frozen=True, gc=False):
    """One key of a config map or secret."""

    name: str = ""
    key: str = ""
    optional: bool = False


class FileKey(Lean, frozen=True, gc=False):
    """One variable in a file of an emptyDir volume."""

    volume_name: str = ""
    path: str = ""
    key: str = ""
    optional: bool = False


class EnvSource(Lean, frozen=True, gc=False):
    field_ref: ObjectField | None = None
    resource_field_ref: ResourceField | None = None
    config_map_key_ref: KeyOf | None = None
    secret_key_ref: KeyOf | None = None
    file_key_ref: FileKey | None = None


class EnvVar(Lean, frozen=True, gc=False):
    name: str = ""
    value: str = ""
    value_from: EnvSource | None = None


class NamedObject(Lean, frozen=True, gc=False):
    name: str = ""
    optional: bool = False


class EnvFrom(Lean, frozen=True, gc=False):
    prefix: str = ""
    config_map_ref: NamedObject | None = None
    secret_ref: NamedObject | None = None


class ConfigMap(Lean, frozen=True, gc=False):
    """The data that containers read."""

    metadata: Metadata = Metadata()
    data: dict[str, str] | None = None
    binary_data: dict[str, str] | None = None  # base64, as in the document


class Secret(Lean, frozen=True, gc=False):
    """The data that containers read."""

    metadata: Metadata = Metadata()
    data: dict[str, str] | None = None  # base64


# Probes and hooks


class ExecAction(Lean, frozen=True, gc=False):
    command: tuple[str, ...] = ()


class HttpHeader(Lean, frozen=True, gc=False):
    name: str = ""
    value: str = ""


class HttpGet(Lean, frozen=True, gc=False):
    path: str = ""
    port: int | str = 0  # a number, or the name of one of the container's ports
    host: str = ""
    scheme: str = "HTTP"
    http_headers: tuple[HttpHeader, ...] = ()


class TcpSocket(Lean, frozen=True, gc=False):
    port: int | str = 0
    host: str = ""


class GrpcAction(Lean, frozen=True, gc=False):
    port: Int32 = 0
    service: str = ""


class SleepAction(Lean, frozen=True, gc=False):
    seconds: Int = 0


class Probe(Lean, frozen=True, gc=False):
    exec: ExecAction | None = None
    http_get: HttpGet | None = None
    tcp_socket: TcpSocket | None = None
    grpc: GrpcAction | None = None
    initial_delay_seconds: Int32 = 0
    timeout_seconds: Int32 = 1
    period_seconds: Int32 = 10
    success_threshold: Int32 = 1
    failure_threshold: Int32 = 3
    termination_grace_period_seconds: Int | None = None


class Hook(Lean, frozen=True, gc=False):
    exec: ExecAction | None = None
    http_get: HttpGet | None = None
    tcp_socket: TcpSocket | None = None
    sleep: SleepAction | None = None


class Lifecycle(Lean, frozen=True, gc=False):
    post_start: Hook | None = None
    pre_stop: Hook | None = None
    stop_signal: str | None = None


# Security


class SeccompProfile(Lean, frozen=True, gc=False):
    type: str = ""
    localhost_profile: str = ""


class AppArmorProfile(Lean, frozen=True, gc=False):
    type: str = ""
    localhost_profile: str = ""


class SeLinuxOptions(Lean, frozen=True, gc=False):
    user: str = ""
    role: str = ""
    type: str = ""
    level: str = ""


class Sysctl(Lean, frozen=True, gc=False):
    name: str = ""
    value: str = ""


class Capabilities(Lean, frozen=True, gc=False):
    add: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()


class SecurityContext(Lean, frozen=True, gc=False):
    """Of a container."""

    run_as_user: Int | None = None
    run_as_group: Int | None = None
    run_as_non_root: bool | None = None
    capabilities: Capabilities | None = None
    privileged: bool | None = None
    read_only_root_filesystem: bool | None = None
    allow_privilege_escalation: bool | None = None
    proc_mount: str | None = None
    se_linux_options: SeLinuxOptions | None = None
    windows_options: RefusedField | None = None
    seccomp_profile: SeccompProfile | None = None
    app_armor_profile: AppArmorProfile | None = None


class PodSecurityContext(Lean, frozen=True, gc=False):
    run_as_user: Int | None = None
    run_as_group: Int | None = None
    run_as_non_root: bool | None = None
    supplemental_groups: tuple[Int, ...] = ()
    supplemental_groups_policy: str | None = None
    fs_group: Int | None = None
    fs_group_change_policy: str | None = None
    sysctls: tuple[Sysctl, ...] = ()
    se_linux_options: SeLinuxOptions | None = None
    windows_options: RefusedField | None = None
    seccomp_profile: SeccompProfile | None = None
    app_armor_profile: AppArmorProfile | None = None
    se_linux_change_policy: str | None = None


# The pod


class RunContainer(Container, frozen=True, gc=False):
    image_pull_policy: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    working_dir: str = ""
    env: tuple[EnvVar, ...] = ()
    env_from: tuple[EnvFrom, ...] = ()
    ports: tuple[RunPort, ...] = ()
    volume_mounts: tuple[VolumeMount, ...] = ()
    volume_devices: tuple[RefusedField, ...] = ()
    liveness_probe: Probe | None = None
    readiness_probe: Probe | None = None
    startup_probe: Probe | None = None
    lifecycle: Lifecycle | None = None
    security_context: SecurityContext | None = None
    termination_message_path: str = DEFAULT_MESSAGE_PATH
    termination_message_policy: str = "File"
    stdin: bool = False
    stdin_once: bool = False
    tty: bool = False
    target_container_name: str = ""  # of an ephemeral container: whose processes it sees


class HostAlias(Lean, frozen=True, gc=False):
    ip: str = ""
    hostnames: tuple[str, ...] = ()


class DnsOption(Lean, frozen=True, gc=False):
    name: str = ""
    value: str | None = None


class DnsConfig(Lean, frozen=True, gc=False):
    nameservers: tuple[str, ...] = ()
    searches: tuple[str, ...] = ()
    options: tuple[DnsOption, ...] = ()


class ReadinessGate(Lean, frozen=True, gc=False):
    condition_type: str = ""


class RunSpec(PodSpec, frozen=True, gc=False):
    containers: tuple[RunContainer, ...] = ()
    init_containers: tuple[RunContainer, ...] = ()
    ephemeral_containers: tuple[RunContainer, ...] = ()
    # Not a subclass of Volume: its members are structs, where Volume has mappings of which only the presence matters.
    volumes: tuple[RunVolume, ...] = ()  # type: ignore[assignment]
    host_pid: bool = msgspec.field(name="hostPID", default=False)
    host_ipc: bool = msgspec.field(name="hostIPC", default=False)
    host_users: bool | None = None
    share_process_namespace: bool = False
    hostname: str = ""
    subdomain: str = ""
    set_hostname_as_fqdn: bool = msgspec.field(name="setHostnameAsFQDN", default=False)
    host_aliases: tuple[HostAlias, ...] = ()
    dns_policy: str = ""
    dns_config: DnsConfig | None = None
    security_context: PodSecurityContext | None = None
    service_account_name: str = ""
    image_pull_secrets: tuple[NamedObject, ...] = ()
    automount_service_account_token: bool | None = None
    enable_service_links: bool | None = None
    resource_claims: tuple[RefusedField, ...] = ()
    hostname_override: str | None = None
    readiness_gates: tuple[ReadinessGate, ...] = ()


class RunMetadata(Metadata, frozen=True, gc=False):
    resource_version: str = ""


class RunPod(Pod, frozen=True, gc=False):
    metadata: RunMetadata = RunMetadata()
    spec: RunSpec = RunSpec()
    status: RunStatus = RunStatus()


def containers_of(pod: RunPod) -> tuple[RunContainer, ...]:
    """Init containers first, ephemeral ones last."""
    return (*pod.spec.init_containers, *pod.spec.containers, *pod.spec.ephemeral_containers)


def container_kind(pod: RunPod, name: str) -> ContainerKind:
    if any(each.name == name for each in pod.spec.init_containers):
        return "initContainers"
    return "ephemeralContainers" if any(each.name == name for each in pod.spec.ephemeral_containers) else "containers"


def container_named(pod: RunPod, name: str) -> RunContainer | None:
    for container in (*pod.spec.containers, *pod.spec.init_containers, *pod.spec.ephemeral_containers):
        if container.name == name:
            return container
    return None


def grace_period_s(pod: RunPod) -> int:
    """The spec's, before a deletion or eviction shortens it."""
    grace = pod.spec.termination_grace_period_seconds
    return DEFAULT_GRACE_S if grace is None else grace
